/* Recognises Loop conditions that are always true. Pure. */
#ifndef SY_LOADER_LOOP_CONDITION_H
#define SY_LOADER_LOOP_CONDITION_H

#include <stdbool.h>

#include "loader/graph/graph.h"

/* A constant of one element that is not 0. */
bool sy_tensor_is_true(const struct sy_tensor *t);
/* Whether the body's condition is true whatever happens, if it was: also before inference, so along copies. */
bool sy_loop_stays_true(const struct sy_graph *body);

#endif

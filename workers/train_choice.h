/* Which constants of a graph training changes: the same for all trainers. */
#ifndef SY_WORKERS_TRAIN_CHOICE_H
#define SY_WORKERS_TRAIN_CHOICE_H

#include <stdbool.h>

#include "loader/graph.h"

/* Whether node n reads its input there as a weight. frozen: patterns of names that stay, ends with NULL; or NULL. */
bool sy_train_is_trained(const struct sy_graph *graph, int n, int input, char *const *frozen);

#endif

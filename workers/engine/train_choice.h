/* Which constants of a graph training changes: the same for all trainers. */
#ifndef SY_WORKERS_ENGINE_TRAIN_CHOICE_H
#define SY_WORKERS_ENGINE_TRAIN_CHOICE_H

#include <stdbool.h>

#include "loader/graph/graph.h"

/* Whether node n reads its input there as a weight. frozen: patterns of names that stay, ends with NULL; or NULL. */
bool sy_train_is_trained(const struct sy_graph *graph, int n, int input, char *const *frozen);
/* EARG names the first pattern that fits no weight of the graph, and a weight that there is. */
int sy_train_check_frozen(const struct sy_graph *graph, char *const *frozen);

#endif

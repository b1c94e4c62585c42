/* How often a Loop runs whose condition is made of counters, as Keras' and TensorFlow's loops have it. */
#ifndef SY_LOADER_LOOP_TRIPS_H
#define SY_LOADER_LOOP_TRIPS_H

#include "loader/graph.h"

/* Of a Loop whose body is inferred and has as many inputs and outputs as it should. -1: not known. Pure. */
int64_t sy_loop_trips(const struct sy_graph *graph, const struct sy_node *node,
                      const struct sy_graph *body);
/* The same, at most: data may end it before. -1: no counter ends it. Pure. */
int64_t sy_loop_most_trips(const struct sy_graph *graph, const struct sy_node *node,
                           const struct sy_graph *body);

#endif

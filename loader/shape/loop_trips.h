/* Trip count of Loops whose condition compares counters, as in exports of Keras and TensorFlow. */
#ifndef SY_LOADER_SHAPE_LOOP_TRIPS_H
#define SY_LOADER_SHAPE_LOOP_TRIPS_H

#include "loader/graph/graph.h"

#define SY_MOST_TURNS_WRITTEN 512 /* turns that loader/fuse/write_out.c makes nodes of */

/* Trip count of a Loop whose body is inferred and has the right number of inputs and outputs. -1: not known. Pure. */
int64_t sy_loop_trips(const struct sy_graph *graph, const struct sy_node *node,
                      const struct sy_graph *body);
/* The same, at most: data may end it before. -1: no counter ends it, or after more turns than are written out. Pure. */
int64_t sy_loop_most_trips(const struct sy_graph *graph, const struct sy_node *node,
                           const struct sy_graph *body);

#endif

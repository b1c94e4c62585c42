/* Which concatenations of channels grow out of each other, so that each part is written once: DenseNet's layers join all that came before them
 * with one more part, which copies the first part L times. Pure.
 *
 *   x0 ─┬──────────────┐
 *   x1 ─┴> [x0 x1] ─┬──┴> [x0 x1 x2] ──> ...        the last one is the group's root; the others are parts of it
 *   x2 ─────────────┘
 *
 * Both forms are found: a concatenation that another one joins, and one whose inputs follow each other in another one. */
#ifndef SY_WORKERS_HOST_PROGRAM_CONCAT_HOMES_H
#define SY_WORKERS_HOST_PROGRAM_CONCAT_HOMES_H

#include <stdbool.h>

#include "loader/graph/engine.h"

/* Place of a tensor that a Concat makes. */
struct sy_concat_home {
    int root;      /* the tensor that holds it; itself for a root; -1: no such Concat makes it */
    int64_t first; /* its first channel there */
    bool joined;   /* a root with other tensors as its parts */
};

/* homes: per tensor of the graph, filled. float32 of 3 to 5 dimensions joined along the second one. */
void sy_concat_homes_find(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                          struct sy_concat_home *homes);

#endif

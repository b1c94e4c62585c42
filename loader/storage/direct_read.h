/* Direct host access (DeepPlan): parameter tables of which a batch reads few rows (embeddings) may stay in the host image. Only the rows that are
 * read cross the link, and the swap does not wait for the rest. Pure. */
#ifndef SY_LOADER_STORAGE_DIRECT_READ_H
#define SY_LOADER_STORAGE_DIRECT_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/engine.h"
#include "loader/plan/plan.h"

/* Bytes of the layer's parameters that one batch reads: for a layer that picks elements by indices which are known at run time
 * only, and has no other parameter, the size of its result. 0: not known to be less than all of them. */
uint64_t sy_layer_read_bytes(const struct sy_graph *graph, const struct sy_layer *layer,
                             int64_t batch);

/* The best plan for the careful link (sy_link_careful) in which layers may be read where they are. read_bytes[i]: what a batch reads of layer i,
 * 0: it has to be copied.
 * Largest first, a layer is read directly if the swap with nothing resident becomes shorter by more than the reading makes each
 * later run longer, both by simulation. Such a layer is a group of its own (direct), whose bytes are those in the image.
 * The plan may have more than max_groups groups, since each direct layer can cut one in two. `out` gets malloc'd groups, which the caller
 * frees. predicted_ns and bound_ns are of the pipeline with the direct reads, on the link as it is.
 * Errors as sy_plan_make. */
struct sy_direct_plan {
    int n_groups, n_direct;
    struct sy_group *groups;
    uint64_t predicted_ns, bound_ns;
    uint64_t copied_ns; /* the predicted swap time if everything were copied */
};
int sy_direct_plan_make(const struct sy_plan_layer *layers, const uint64_t *read_bytes,
                        int n_layers, const struct sy_link_cost *cost, int max_groups,
                        uint64_t max_group_bytes, struct sy_direct_plan *out);
/* The plan with which a server cuts a model: with at most SY_MAX_GROUPS groups, none larger than is good for eviction and heads. Groups are what
 * is evicted, what a head is made of, and what takes turns in the pool when a model cycles: some sixteen should fit into the pool of pool_bytes, and
 * a model should have some thirty, as long as what they cost in all stays under a hundredth of their copies. Where layers are so uneven that this
 * takes too many, groups may be larger. */
int sy_direct_plan_for_pool(const struct sy_plan_layer *layers, const uint64_t *read_bytes,
                            int n_layers, const struct sy_link_cost *cost, uint64_t pool_bytes,
                            struct sy_direct_plan *out);
/* Changes `layers` into what the pipeline sees: direct layers copy nothing and compute as long as their reading takes more. */
void sy_direct_apply(const struct sy_direct_plan *plan, const uint64_t *read_bytes,
                     const struct sy_link_cost *cost, struct sy_plan_layer *layers);

#endif

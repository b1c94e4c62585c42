/* Places values with lives into one workspace so that values that live at the same time do not overlap. Pure.
 *
 * Greedy by size: the largest first, each at the lowest offset that is free during its whole life. Within a few percent of
 * the lower bound (the largest sum of sizes alive at one time) on the networks we run. */
#ifndef SY_WORKERS_ENGINE_WORKSPACE_PLAN_H
#define SY_WORKERS_ENGINE_WORKSPACE_PLAN_H

#include <stdint.h>

struct sy_interval {
    int id;
    int first, last; /* inclusive */
    uint64_t bytes;
    uint64_t offset; /* out: multiple of 64 */
};

/* Reorders `intervals`. */
int sy_workspace_plan(struct sy_interval *intervals, int n, uint64_t *total_bytes);

#endif

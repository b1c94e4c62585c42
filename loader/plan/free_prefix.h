/* The value of a resident prefix (head) of a model. Pure.
 *
 *   link      | - - | g2 | g3 | g4 |            groups 0 and 1 are resident
 *   compute   | g0 | g1 | g2 | g3 | g4 |        a swap costs nothing: 2 is the free prefix
 *
 * A longer resident head never makes the run end later, and makes it end earlier until the link keeps ahead of the computation; copies slow down the
 * computation beside them (sy_compute_beside). Tables that are read from the host image use the link whatever is resident. */
#ifndef SY_LOADER_PLAN_FREE_PREFIX_H
#define SY_LOADER_PLAN_FREE_PREFIX_H

#include <stdint.h>

#include "loader/plan/plan.h"

#define SY_FREE_PREFIX_SLACK_PART 125 /* sy_free_prefix_slack */

struct sy_run_group {
    uint64_t bytes; /* bytes to copy if not resident; 0: none (no parameters, or read directly) */
    uint64_t compute_ns;
    uint64_t read_bytes; /* bytes of a table in the host image, read over the link in each run */
};

/* Groups of a plan with the compute time of their layers, as they are with all in the pool. read_bytes[i]: what a run reads of layer i where
 * its group is direct; NULL: there are none. `out` has n_groups entries. */
void sy_run_groups(const struct sy_plan_layer *layers, const uint64_t *read_bytes,
                   const struct sy_group *groups, int n_groups, struct sy_run_group *out);
/* Time from the request to the end of the run with groups 0..n_there-1 in the pool, on an otherwise idle link. */
uint64_t sy_swap_predict(const struct sy_run_group *groups, int n_groups,
                         const struct sy_link_cost *cost, int n_there);
/* The shortest head with which a run takes, on the careful link (sy_link_careful), at most slack_ns longer than with everything, tables too, in the pool;
 * where the tables' reading alone takes about as long or longer, the shortest that takes at most a quarter of slack_ns longer there than the longest. */
int sy_free_prefix(const struct sy_run_group *groups, int n_groups, const struct sy_link_cost *cost,
                   uint64_t slack_ns);
/* "Costs nothing" as switchyard means it: 0.8 percent of the computation, so that a prediction that is off by a fifth stays below one. */
uint64_t sy_free_prefix_slack(const struct sy_run_group *groups, int n_groups);
uint64_t sy_prefix_bytes(const struct sy_run_group *groups, int n_there);

#endif

#include "loader/plan/free_prefix.h"

#include <math.h>
#include <stdbool.h>

#include "runtime/base/assert.h"

/* halves are rounded down, also where a double is slightly above, so that predicted ends never rise with a longer head */
#define ROUNDING_NS 1e-6

void sy_run_groups(const struct sy_plan_layer *layers, const uint64_t *read_bytes,
                   const struct sy_group *groups, int n_groups, struct sy_run_group *out)
{
    for (int g = 0; g < n_groups; g++) {
        bool direct = groups[g].direct;
        out[g] = (struct sy_run_group){
            .bytes = direct ? 0 : groups[g].bytes,
            .read_bytes = direct && read_bytes ? read_bytes[groups[g].first_layer] : 0};
        for (int i = 0; i < groups[g].n_layers; i++)
            out[g].compute_ns += layers[groups[g].first_layer + i].compute_ns;
    }
}

static double crossing_ns(const struct sy_link_cost *cost, uint64_t bytes)
{
    return bytes ? cost->alpha_ns + (double)bytes / cost->bytes_per_ns : 0;
}

/* A run waits for a table's rows, which delay the groups behind them on the link. */
uint64_t sy_swap_predict(const struct sy_run_group *groups, int n_groups,
                         const struct sy_link_cost *cost, int n_there)
{
    double copied = 0, done = 0; /* done: compute time completed, as slowed by copies */
    uint64_t moving = sy_prefix_bytes(groups, n_groups) - sy_prefix_bytes(groups, n_there);
    struct sy_compute_beside beside = sy_compute_beside(cost, (double)moving);
    for (int g = 0; g < n_groups; g++) {
        double read = crossing_ns(cost, groups[g].read_bytes);
        if (g >= n_there && groups[g].bytes > 0) {
            copied += crossing_ns(cost, groups[g].bytes);
            done = fmax(sy_compute_done(&beside, copied), done) + cost->sigma_ns;
        }
        copied += read;
        done += read + (double)groups[g].compute_ns;
    }
    return (uint64_t)llround(SY_MAX(sy_compute_until(&beside, done) - ROUNDING_NS, 0));
}

static uint64_t all_in_pool(const struct sy_run_group *groups, int n_groups)
{
    uint64_t compute = 0;
    for (int g = 0; g < n_groups; g++)
        compute += groups[g].compute_ns;
    return compute;
}

int sy_free_prefix(const struct sy_run_group *groups, int n_groups, const struct sy_link_cost *cost,
                   uint64_t slack_ns)
{
    struct sy_link_cost careful = sy_link_careful(cost);
    uint64_t least = sy_swap_predict(groups, n_groups, &careful, n_groups);
    uint64_t limit = SY_MAX(all_in_pool(groups, n_groups) + slack_ns, least + slack_ns / 4);
    int low = 0,
        high = n_groups; /* high satisfies the bound; predictions only fall with a longer head */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (sy_swap_predict(groups, n_groups, &careful, middle) <= limit)
            high = middle;
        else
            low = middle + 1;
    }
    while (high > 0 && groups[high - 1].bytes == 0)
        high--; /* a group without bytes makes no head longer */
    return high;
}

uint64_t sy_free_prefix_slack(const struct sy_run_group *groups, int n_groups)
{
    return all_in_pool(groups, n_groups) / SY_FREE_PREFIX_SLACK_PART;
}

uint64_t sy_prefix_bytes(const struct sy_run_group *groups, int n_there)
{
    uint64_t bytes = 0;
    for (int g = 0; g < n_there; g++)
        bytes += groups[g].bytes;
    return bytes;
}

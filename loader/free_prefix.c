#include "loader/free_prefix.h"

#include <math.h>

#define SLACK_PART 200

void sy_run_groups(const struct sy_plan_layer *layers, const struct sy_group *groups, int n_groups,
                   struct sy_run_group *out)
{
    for (int g = 0; g < n_groups; g++) {
        out[g] = (struct sy_run_group){.bytes = groups[g].direct ? 0 : groups[g].bytes};
        for (int i = 0; i < groups[g].n_layers; i++)
            out[g].compute_ns += layers[groups[g].first_layer + i].compute_ns;
    }
}

uint64_t sy_swap_predict(const struct sy_run_group *groups, int n_groups,
                         const struct sy_link_cost *cost, int n_there)
{
    double copied = 0, computed = 0;
    for (int g = 0; g < n_groups; g++) {
        if (g >= n_there && groups[g].bytes > 0) {
            copied += cost->alpha_ns + (double)groups[g].bytes / cost->bytes_per_ns;
            computed = fmax(copied, computed) + cost->sigma_ns;
        }
        computed += (double)groups[g].compute_ns;
    }
    return (uint64_t)llround(computed);
}

int sy_free_prefix(const struct sy_run_group *groups, int n_groups, const struct sy_link_cost *cost,
                   uint64_t slack_ns)
{
    uint64_t ready = sy_swap_predict(groups, n_groups, cost, n_groups);
    int low = 0, high = n_groups; /* high is good; predictions only fall with a longer head */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (sy_swap_predict(groups, n_groups, cost, middle) - ready <= slack_ns)
            high = middle;
        else
            low = middle + 1;
    }
    while (high > 0 && groups[high - 1].bytes == 0)
        high--; /* what takes no room makes no head longer */
    return high;
}

uint64_t sy_free_prefix_slack(const struct sy_run_group *groups, int n_groups)
{
    uint64_t compute = 0;
    for (int g = 0; g < n_groups; g++)
        compute += groups[g].compute_ns;
    return compute / SLACK_PART;
}

uint64_t sy_prefix_bytes(const struct sy_run_group *groups, int n_there)
{
    uint64_t bytes = 0;
    for (int g = 0; g < n_there; g++)
        bytes += groups[g].bytes;
    return bytes;
}

/* planner/LAYERS: time to compute the best plan of a network with that many layers. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/gbench.h"
#include "loader/plan/plan.h"
#include "runtime/base/status.h"

/* Layers like those of a deep residual network: bytes grow and compute stays about the same. */
static struct sy_plan_layer *make_layers(int n)
{
    struct sy_plan_layer *layers = calloc((size_t)n, sizeof *layers);
    unsigned seed = 1;
    for (int i = 0; layers && i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        layers[i] = (struct sy_plan_layer){
            .bytes = i % 3 == 2
                         ? 0
                         : 4096ull * (1 + (uint64_t)(seed >> 20) * (uint64_t)(i + 1) / (uint64_t)n),
            .compute_ns = 20000 + (seed >> 16),
        };
    }
    return layers;
}

struct planner_case {
    int n_layers;
    double alpha_ns; /* small, so that many groups pay off and the search does not end early */
};

static void run_planner(struct gb_state *state, void *arg)
{
    const struct planner_case *c = arg;
    struct sy_link_cost cost = {
        .alpha_ns = c->alpha_ns, .bytes_per_ns = 12.3, .sigma_ns = c->alpha_ns};
    struct sy_plan_layer *layers = make_layers(c->n_layers);
    struct sy_plan plan = {0};
    while (layers && gb_keep_running(state))
        if (sy_plan_make(layers, c->n_layers, &cost, SY_MAX_GROUPS, 0, &plan) < 0)
            gb_fail(state, sy_error_text());
    gb_set_counter(state, "groups", plan.n_groups);
    free(layers);
}

int main(int argc, char **argv)
{
    static struct planner_case cases[] = {{155, 10000}, {464, 10000}, {464, 1}, {1000, 10000}};
    struct gb_options options = {0};
    gb_initialize(&argc, argv);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        snprintf(name, sizeof name, "planner/layers:%d/alpha_ns:%.0f", cases[i].n_layers,
                 cases[i].alpha_ns);
        gb_register(name, run_planner, &cases[i], &options);
    }
    return gb_run() > 0 ? 0 : 1;
}

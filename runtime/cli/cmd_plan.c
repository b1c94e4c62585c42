#include <stdio.h>
#include <stdlib.h>

#include "loader/package.h"
#include "loader/plan.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"

#define LANE_COLUMNS 64

static void draw_lane(const char *name, const uint64_t *spans, int n_groups, int which,
                      double ns_per_column)
{
    printf("%-8s|", name);
    for (int column = 0; column < LANE_COLUMNS; column++) {
        double at = (column + 0.5) * ns_per_column;
        char letter = ' ';

        for (int i = 0; i < n_groups; i++)
            if (at >= (double)spans[4 * i + which] && at < (double)spans[4 * i + which + 1])
                letter = (char)('a' + i % 26);
        putchar(letter);
    }
    printf("|\n");
}

static void print_plan(const struct sy_plan *plan, const uint64_t *spans)
{
    double column_ns = (double)SY_MAX(plan->predicted_ns, 1) / LANE_COLUMNS;

    printf("%5s %7s %7s %10s %12s %12s\n", "group", "first", "layers", "MB", "copied ms",
           "computed ms");
    for (int i = 0; i < plan->n_groups; i++)
        printf("%4c%d %7d %7d %10.2f %12.3f %12.3f\n", 'a' + i % 26, i / 26,
               plan->groups[i].first_layer, plan->groups[i].n_layers,
               (double)plan->groups[i].bytes / 1e6, (double)spans[4 * i + 1] / 1e6,
               (double)spans[4 * i + 3] / 1e6);
    printf("\n");
    draw_lane("link", spans, plan->n_groups, 0, column_ns);
    draw_lane("compute", spans, plan->n_groups, 2, column_ns);
    printf("%-8s 0%*.3f ms\n", "", LANE_COLUMNS - 4, (double)plan->predicted_ns / 1e6);
    printf("predicted %.3f ms, lower bound %.3f ms\n", (double)plan->predicted_ns / 1e6,
           (double)plan->bound_ns / 1e6);
}

static int plan_package(const char *path, const struct sy_link_cost *cost, int64_t batch)
{
    struct sy_package *package;
    struct sy_plan_layer *layers;
    struct sy_plan plan;
    uint64_t spans[4 * SY_MAX_GROUPS];
    int status;

    SY_TRY(sy_package_open(path, &package));
    layers = calloc((size_t)package->n_layers + 1, sizeof(*layers));
    for (int i = 0; layers && i < package->n_layers; i++)
        layers[i] = (struct sy_plan_layer){package->layers[i].bytes,
                                           sy_package_layer_ns(package, i, batch)};
    status = layers ? sy_plan_make(layers, package->n_layers, cost, SY_MAX_GROUPS, 0, &plan)
                    : sy_error_set(SY_ENOMEM_HOST, "no memory for a plan");
    if (status == SY_OK) {
        sy_plan_simulate(layers, plan.groups, plan.n_groups, cost, spans);
        print_plan(&plan, spans);
    }
    free(layers);
    sy_package_close(package);
    return status;
}

int sy_cmd_plan(int argc, char **argv)
{
    static const struct sy_cli_option options[] = {
        {"link-gbps", "N", "rate of the link, 10^9 bytes per second; default 12.3"},
        {"alpha-us", "N", "fixed cost of one copy; default 10"},
        {"sigma-us", "N", "cost of one group's synchronisation; default 5"},
        {"batch", "N", "batch size; default 1"},
        {NULL, NULL, NULL}};
    struct sy_cli_parser parser = {"plan PACKAGE [options]\n\nCuts the model into groups for this "
                                   "link and draws the pipeline.",
                                   options, argc, argv, 0};
    double number[3] = {12.3, 10, 5};
    const char *value, *path = NULL;
    int64_t batch = 1;
    int got;

    while ((got = sy_cli_next(&parser, &value)) >= 0 || got == SY_CLI_WORD) {
        if (got == SY_CLI_WORD)
            path = value;
        else if ((got < 3 ? sy_cli_real(value, &number[got])
                          : sy_cli_integer(value, 1, 1024, &batch)) < 0)
            return sy_cli_usage("--%s: %s", options[got].name, sy_error_text());
    }
    if (got != SY_CLI_END)
        return got == SY_CLI_HELP ? 0 : 2;
    if (!path || number[0] <= 0)
        return sy_cli_usage(
            "plan takes a package, and a link faster than 0; see switchyard plan --help");
    if (plan_package(path, &(struct sy_link_cost){number[1] * 1e3, number[0], number[2] * 1e3},
                     batch) < 0)
        return sy_cli_fail_status();
    return 0;
}

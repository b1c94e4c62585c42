/* plan: the groups of a model and its pipeline, drawn as text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/graph/string_tensor.h"
#include "loader/package/package.h"
#include "loader/plan/free_prefix.h"
#include "loader/storage/direct_read.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/doctor/link_probe.h"
#include "runtime/device/device.h"

#define LANE_COLUMNS     64
#define AMPLE_POOL       UINT64_MAX /* as a server cuts it whose pool holds many such models */
#define DEFAULT_GBPS     12.3       /* PCIe 3.0 x16, as on the paper's machine */
#define DEFAULT_ALPHA_US 10.0
#define DEFAULT_SIGMA_US 5.0

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

static void print_groups(const struct sy_direct_plan *plan, const uint64_t *spans)
{
    printf("%5s %7s %7s %10s %12s %12s\n", "group", "first", "layers", "MB", "copied ms",
           "computed ms");
    for (int i = 0; i < plan->n_groups; i++) {
        const struct sy_group *g = &plan->groups[i];
        char copied[32] = "read there";

        if (!g->direct)
            snprintf(copied, sizeof(copied), "%.3f", (double)spans[4 * i + 1] / 1e6);
        printf("%4c%d %7d %7d %10.2f %12s %12.3f\n", 'a' + i % 26, i / 26, g->first_layer,
               g->n_layers, (double)g->bytes / 1e6, copied, (double)spans[4 * i + 3] / 1e6);
    }
}

/* Time saved by a resident head. */
static void print_prefix(const struct sy_run_group *groups, int n, const struct sy_link_cost *cost)
{
    int k = sy_free_prefix(groups, n, cost, sy_free_prefix_slack(groups, n));

    printf("free prefix: %d of %d groups, %.1f of %.1f MB; with it resident a swap takes %.3f ms, "
           "wholly resident %.3f ms\n",
           k, n, (double)sy_prefix_bytes(groups, k) / 1e6, (double)sy_prefix_bytes(groups, n) / 1e6,
           (double)sy_swap_predict(groups, n, cost, k) / 1e6,
           (double)sy_swap_predict(groups, n, cost, n) / 1e6);
}

static int print_plan(const struct sy_direct_plan *plan, const struct sy_plan_layer *layers,
                      const struct sy_link_cost *cost)
{
    double column_ns = (double)SY_MAX(plan->predicted_ns, 1) / LANE_COLUMNS;
    uint64_t *spans = calloc(4 * (size_t)plan->n_groups, sizeof(*spans));

    SY_TRY_ALLOC(spans, "no memory for %d groups", plan->n_groups);
    sy_plan_simulate(layers, plan->groups, plan->n_groups, cost, spans);
    print_groups(plan, spans);
    printf("\n");
    draw_lane("link", spans, plan->n_groups, 0, column_ns);
    draw_lane("compute", spans, plan->n_groups, 2, column_ns);
    printf("%-8s 0%*.3f ms\n", "", LANE_COLUMNS - 4, (double)plan->predicted_ns / 1e6);
    printf("predicted %.3f ms, lower bound %.3f ms\n", (double)plan->predicted_ns / 1e6,
           (double)plan->bound_ns / 1e6);
    if (plan->n_direct)
        printf("tables read in the host image: %d; predicted with them copied %.3f ms\n",
               plan->n_direct, (double)plan->copied_ns / 1e6);
    free(spans);
    return SY_OK;
}

/* Drawn with tables' reading in their layers; heads count it themselves. */
static int print_package_plan(const struct sy_direct_plan *plan, struct sy_plan_layer *layers,
                              const uint64_t *read_bytes, const struct sy_link_cost *cost)
{
    size_t n = (size_t)plan->n_groups;
    struct sy_run_group *groups = calloc(n, sizeof(*groups));

    SY_TRY_ALLOC(groups, "no memory for %zu groups", n);
    sy_run_groups(layers, read_bytes, plan->groups, plan->n_groups, groups);
    sy_direct_apply(plan, read_bytes, cost, layers);
    int status = print_plan(plan, layers, cost);
    if (status == SY_OK)
        print_prefix(groups, plan->n_groups, cost);
    free(groups);
    return status;
}

static int draw_package(const struct sy_package *package, const struct sy_link_cost *cost,
                        int64_t batch, bool host_reads)
{
    size_t n = (size_t)package->n_layers;
    struct sy_plan_layer *layers = calloc(n + 1, sizeof(*layers));
    uint64_t *read_bytes = calloc(n + 1, sizeof(*read_bytes));
    struct sy_direct_plan plan = {0};
    int status = layers && read_bytes ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory to plan");

    for (int i = 0; status == SY_OK && i < package->n_layers; i++) {
        layers[i] = (struct sy_plan_layer){package->layers[i].bytes,
                                           sy_package_layer_ns(package, i, batch)};
        if (host_reads)
            read_bytes[i] = sy_layer_read_bytes(package->usual, &package->layers[i], batch);
    }
    if (status == SY_OK)
        status =
            sy_direct_plan_for_pool(layers, read_bytes, package->n_layers, cost, AMPLE_POOL, &plan);
    if (status == SY_OK) {
        printf("%s, batch %lld", package->name, (long long)batch);
        for (int i = 0; i < package->graph->n_symbols; i++) /* as profiled */
            if (!sy_graph_is_own_size(package->graph, i))
                printf(", %s %lld", package->graph->symbols[i].name,
                       (long long)package->graph->symbols[i].usual);
        printf(": %d layers, %.1f MB, compute %s\n", package->n_layers,
               (double)package->weights_bytes / 1e6,
               package->profile.layer_ns[0] ? "as profiled" : "unknown: it was not profiled");
        printf("link: %.2f GB/s, %.2f us a copy, %.2f us a group's signal, computing held up "
               "%.4f ns a byte\n\n",
               cost->bytes_per_ns, cost->alpha_ns / 1e3, cost->sigma_ns / 1e3,
               cost->lost_ns_per_byte);
        status = print_package_plan(&plan, layers, read_bytes, cost);
    }
    free(plan.groups);
    free(read_bytes);
    free(layers);
    return status;
}

/* ---- the link ------------------------------------------------------------------------------------------ */

struct plan_options {
    const char *file, *device;
    double link_gbps, alpha_us, sigma_us, lost; /* negative: not given */
    int64_t batch;
    bool host_reads; /* the device reads tables in the image */
};

/* The command line overrides measurements. On the host device, storage is the link. */
static int choose_link(struct plan_options *options, const struct sy_package *package,
                       struct sy_link_cost *out)
{
    struct sy_device_spec spec;

    *out = (struct sy_link_cost){DEFAULT_ALPHA_US * 1e3, DEFAULT_GBPS, DEFAULT_SIGMA_US * 1e3, 0};
    if (options->device) {
        SY_TRY(sy_device_spec_parse(options->device, &spec));
        options->host_reads = strcmp(spec.kind, "emulated") == 0;
        if (strcmp(spec.kind, "host") != 0)
            SY_TRY(sy_link_probe(options->device, out));
        else if (package->profile.storage_bytes_per_s > 0)
            out->bytes_per_ns = (double)package->profile.storage_bytes_per_s / 1e9;
        else if (options->link_gbps < 0)
            return sy_error_set(SY_EARG,
                                "%s was not profiled, so its storage's rate is unknown; give "
                                "--link-gbps, or import it again",
                                package->path);
    }
    if (options->link_gbps > 0)
        out->bytes_per_ns = options->link_gbps;
    if (options->alpha_us >= 0)
        out->alpha_ns = options->alpha_us * 1e3;
    if (options->sigma_us >= 0)
        out->sigma_ns = options->sigma_us * 1e3;
    if (options->lost >= 0)
        out->lost_ns_per_byte = options->lost;
    return SY_OK;
}

/* ---- the command --------------------------------------------------------------------------------------- */

static int plan_package(struct plan_options *options, const char *path)
{
    struct sy_package *package;
    struct sy_link_cost cost;
    int status;

    SY_TRY(sy_package_open(path, &package));
    status = choose_link(options, package, &cost);
    if (status == SY_OK)
        status = draw_package(package, &cost, options->batch, options->host_reads);
    sy_package_close(package);
    return status;
}

/* An ONNX file is imported into a folder that is gone afterwards. */
static int plan_onnx(struct plan_options *options)
{
    const char *base = strrchr(options->file, '/'), *temporary = getenv("TMPDIR");
    char folder[1024], path[1100];
    int status;

    snprintf(folder, sizeof(folder), "%s/switchyard-plan-XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(folder))
        return sy_error_set(SY_EIO, "no temporary folder %s: %s", folder, strerror(errno));
    snprintf(path, sizeof(path), "%s/model" SY_PACKAGE_SUFFIX, folder);
    status = sy_cli_import(options->file, path, base ? base + 1 : options->file,
                           &(struct sy_cli_import){.profile = true});
    if (status == SY_OK)
        status = plan_package(options, path);
    unlink(path);
    rmdir(folder);
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

static int set_rate(void *command, const char *value)
{
    struct plan_options *options = command;

    SY_TRY(sy_cli_real(value, &options->link_gbps));
    return options->link_gbps > 0 ? SY_OK : sy_error_set(SY_EARG, "a link is faster than 0");
}

static int set_file(void *command, const char *word)
{
    struct plan_options *options = command;

    if (options->file)
        return sy_error_set(SY_EARG, "plan takes one model, not also %s", word);
    options->file = word;
    return SY_OK;
}

static const struct sy_cli_field fields[] = {
    {{"device", "SPEC",
      "plan for this device, its link measured: host, emulated[,link-gbps=12.3], cuda:N"},
     SY_CLI_TEXT(struct plan_options, device)},
    {{"link-gbps", "N", "rate of the link, 10^9 bytes per second; without --device 12.3"},
     SY_CLI_SET(set_rate)},
    {{"alpha-us", "N", "fixed cost of one copy; without --device 10"},
     SY_CLI_REAL(struct plan_options, alpha_us)},
    {{"sigma-us", "N", "cost of one group's signal; without --device 5"},
     SY_CLI_REAL(struct plan_options, sigma_us)},
    {{"batch", "N", "batch size; default 1"}, SY_CLI_INT64(struct plan_options, batch, 1, 1024)},
    {{"lost-ns-per-byte", "N",
      "what computing is held up for each byte that moves; without --device 0"},
     SY_CLI_REAL(struct plan_options, lost)}};

int sy_cmd_plan(int argc, char **argv)
{
    static const struct sy_cli_fields command = {
        "plan MODEL.sypkg|MODEL.onnx [options]\n\nCuts the model into groups for this link, "
        "draws the pipeline, and says which head makes a swap cost nothing when it is resident "
        "(the free prefix).\nWith --device emulated, tables of which a batch reads few rows may "
        "be read in the host image.",
        fields, SY_ARRAY_LEN(fields), set_file};
    struct plan_options options = {
        .link_gbps = -1, .alpha_us = -1, .sigma_us = -1, .lost = -1, .batch = 1};
    int status = sy_cli_read(&command, argc, argv, &options);

    if (status != SY_CLI_END)
        return status;
    if (!options.file)
        return sy_cli_usage("plan which model? see switchyard plan --help");
    status = ends_with(options.file, ".onnx") ? plan_onnx(&options)
                                              : plan_package(&options, options.file);
    return status < 0 ? sy_cli_fail_status() : 0;
}

#include "runtime/cli/train/train_explain.h"

#include <jansson.h>
#include <numa.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/train/explain_measure.h"

#define MAX_VARIANTS 16
#define ROUNDS       3
#define MOST_LAYERS  40

struct explained {
    int n;
    struct sy_explain_variant variants[MAX_VARIANTS]; /* [0]: as the job is run */
    double best_ms[MAX_VARIANTS]; /* minimum of the rounds' medians; 0: rejected */
    char why[MAX_VARIANTS][256];
};

/* ---- layers ---------------------------------------------------------------------------------------------- */

static double layer_ms(const struct sy_explain_layer *layer)
{
    double sum = 0;
    for (int p = 0; p < SY_EXPLAIN_PARTS; p++)
        sum += layer->ms[p];
    return sum;
}

static int by_time(const void *a, const void *b)
{
    double x = layer_ms(a), y = layer_ms(b);
    return (x < y) - (x > y);
}

static void print_row(const char *name, double forward, double backward, double update, double all)
{
    printf("%-44.44s %9.3f %9.3f %9.3f %6.1f %%\n", name, forward, backward, update,
           100 * (forward + backward + update) / all);
}

static void print_layers(struct sy_explain_result *r)
{
    double all = 0, rest[3] = {0};
    int shown = SY_MIN(r->n_layers, MOST_LAYERS);
    for (int p = 0; p < SY_EXPLAIN_PARTS; p++)
        all += r->part_ms[p];
    printf("%-44s %9s %9s %9s %8s\n",
           r->n_layers > shown ? "layer (ms a step), longest first" : "layer (ms a step)",
           "forward", "backward", "update", "share");
    if (r->n_layers > shown)
        qsort(r->layers, (size_t)r->n_layers, sizeof *r->layers, by_time);
    for (int i = 0; i < r->n_layers; i++) {
        const double *ms = r->layers[i].ms;
        if (i < shown) {
            print_row(r->layers[i].name, ms[SY_TRAIN_FORWARD], ms[SY_TRAIN_BACKWARD],
                      ms[SY_TRAIN_UPDATE], all);
            continue;
        }
        rest[0] += ms[SY_TRAIN_FORWARD];
        rest[1] += ms[SY_TRAIN_BACKWARD];
        rest[2] += ms[SY_TRAIN_UPDATE];
    }
    if (r->n_layers > shown) {
        char name[64];
        snprintf(name, sizeof name, "(%d others)", r->n_layers - shown);
        print_row(name, rest[0], rest[1], rest[2], all);
    }
    print_row("all layers", r->part_ms[SY_TRAIN_FORWARD], r->part_ms[SY_TRAIN_BACKWARD],
              r->part_ms[SY_TRAIN_UPDATE], all);
    printf("%-44s %29.3f %6.1f %%\n", "data (waiting for a batch, copying it)",
           r->part_ms[SY_TRAIN_DATA], 100 * r->part_ms[SY_TRAIN_DATA] / all);
    printf("%-44s %29.3f %6.1f %%\n", "between iterations", r->part_ms[SY_TRAIN_OTHER],
           100 * r->part_ms[SY_TRAIN_OTHER] / all);
    printf("%-44s %29.3f   (median %.3f of %d steps)\n\n", "step", all, r->step_ms, r->n_steps);
}

/* ---- switches -------------------------------------------------------------------------------------------- */

static struct sy_explain_variant *add(struct explained *e, const char *name)
{
    struct sy_explain_variant *v = &e->variants[e->n++];
    *v = (struct sy_explain_variant){.numa_node = -1, .huge = SY_HUGE_ALWAYS};
    snprintf(v->name, sizeof v->name, "%s", name);
    return v;
}

static void list_variants(struct explained *e, const char *precision)
{
    char name[64];
    int n_threads = omp_get_max_threads();
    bool is_f32 = !strcmp(precision, "f32");
    add(e, "as the job is run");
    for (int n = 1; n < n_threads && e->n < MAX_VARIANTS - 8; n *= 2) {
        snprintf(name, sizeof name, "threads: %d instead of %d", n, n_threads);
        add(e, name)->n_threads = n;
    }
    add(e, is_f32 ? "precision: bf16 instead of f32" : "precision: f32 instead of bf16")
        ->precision = is_f32 ? "bf16" : "f32";
    add(e, "convolutions: channels last")->layout = "channels_last";
    add(e, "huge pages: never")->huge = SY_HUGE_NEVER;
    for (int node = 0; numa_available() >= 0 && numa_num_configured_nodes() > 1 &&
                       node < SY_MIN(numa_num_configured_nodes(), 4);
         node++) {
        snprintf(name, sizeof name, "NUMA: node %d alone", node);
        add(e, name)->numa_node = node;
    }
    add(e, "instructions: AVX2 at most")->instructions = "AVX2";
}

static void measure_variants(const char *text, int n_steps, struct explained *e,
                             struct sy_explain_result *r)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int v = 0; v < e->n; v++) {
            if (round && !e->best_ms[v])
                continue;
            if (isatty(STDERR_FILENO))
                fprintf(stderr, "\r\033[Kround %d of %d: %s", round + 1, ROUNDS,
                        e->variants[v].name);
            sy_explain_measure(text, &e->variants[v], n_steps, r);
            if (r->status < 0)
                snprintf(e->why[v], sizeof e->why[v], "%.200s", r->error);
            else if (!e->best_ms[v] || r->step_ms < e->best_ms[v])
                e->best_ms[v] = r->step_ms;
        }
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

static void print_variants(const struct explained *e)
{
    printf("%-36s %10s %10s\n", "switch (one at a time)", "ms a step", "to the job");
    for (int v = 0; v < e->n; v++)
        if (e->best_ms[v])
            printf("%-36s %10.3f %9.2fx\n", e->variants[v].name, e->best_ms[v],
                   e->best_ms[v] / e->best_ms[0]);
    printf("(best of %d medians, in turns, each in a process of its own; above 1: slower)\n",
           ROUNDS);
    printf("\nnot measured:\n");
    for (int v = 0; v < e->n; v++)
        if (!e->best_ms[v])
            printf("  %s: %s\n", e->variants[v].name, e->why[v]);
    if (numa_available() < 0 || numa_num_configured_nodes() < 2)
        printf("  NUMA node: this machine has one\n");
}

int sy_train_explain(const char *text, int n_steps)
{
    static struct explained e;
    struct sy_explain_result *r =
        mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED)
        return sy_cli_fail("no room for the measurement");
    json_t *root = json_loads(text, 0, NULL);
    const char *precision = json_string_value(json_object_get(root, "precision"));
    list_variants(&e, precision ? precision : "f32");
    sy_explain_measure(text, &e.variants[0], n_steps, r);
    int result = r->status < 0 ? sy_cli_fail("%s", r->error) : 0;
    if (result == 0) {
        printf("%s, batch %lld, %d threads; state %.1f MB, activations %.1f MB\n\n",
               json_string_value(json_object_get(root, "name")),
               json_object_get(root, "batch")
                   ? (long long)json_integer_value(json_object_get(root, "batch"))
                   : 64LL,
               r->n_threads, (double)r->persistent_bytes / 1e6, (double)r->ephemeral_bytes / 1e6);
        print_layers(r);
        measure_variants(text, n_steps, &e, r);
        print_variants(&e);
    }
    json_decref(root);
    munmap(r, sizeof *r);
    return result;
}

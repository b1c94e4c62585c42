/* steps/MODEL: a run of a small model in this process, without runtime or worker: what its steps cost. Models of
 * tiny/tiny_models.py, imported; --models=FOLDER, then names. Reports the time of a step and of the run, layer by layer as
 * a worker runs it; the outputs of all runs are held against those of the first (B1). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gbench.h"
#include "bench/ready_rig.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "workers/host/program/program_internal.h"

enum { MAX_CORES = 64, RUNS = 2000, WARM_UP = 50 };

static const char *folder = "build/bench/tiny";
static int n_cores = 1;

static int compare(const void *a, const void *b)
{
    sy_ns x = *(const sy_ns *)a, y = *(const sy_ns *)b;
    return (x > y) - (x < y);
}

static int run_layers(struct ready_rig *rig)
{
    for (int layer = 0; layer < rig->package->n_layers; layer++)
        SY_TRY(sy_host_engine.program_run(rig->program, &rig->binding, layer, 1));
    return SY_OK;
}

/* A 64-bit hash of all outputs of the run. */
static uint64_t hash_outputs(const struct ready_rig *rig)
{
    const struct sy_graph *graph = rig->package->usual;
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < graph->n_outputs; i++) {
        const unsigned char *bytes = rig->outputs[i];
        for (uint64_t k = 0; k < sy_graph_tensor_room(graph, graph->outputs[i], 1); k++)
            hash = (hash ^ bytes[k]) * 1099511628211u;
    }
    return hash;
}

static void report(struct gb_state *state, const struct ready_rig *rig, sy_ns *ns)
{
    qsort(ns, RUNS, sizeof *ns, compare);
    gb_set_iteration_seconds(state, (double)ns[RUNS / 2] / 1e9);
    gb_set_counter(state, "min_ns", (double)ns[0]);
    gb_set_counter(state, "steps", rig->program->n_steps);
    gb_set_counter(state, "step_ns",
                   (double)ns[0] / (rig->program->n_steps ? rig->program->n_steps : 1));
}

static void run_model(struct gb_state *state, void *name)
{
    static sy_ns ns[RUNS];
    struct ready_rig rig;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/1/model.sypkg", folder, (const char *)name);
    int status = ready_rig_open(&rig, path, 1);
    for (int i = 0; status == SY_OK && i < WARM_UP; i++)
        status = run_layers(&rig);
    uint64_t first = status == SY_OK ? hash_outputs(&rig) : 0;
    while (status == SY_OK && gb_keep_running(state)) {
        for (int i = 0; status == SY_OK && i < RUNS; i++) {
            sy_ns start = sy_clock_now();
            status = run_layers(&rig);
            ns[i] = sy_clock_now() - start;
        }
        report(state, &rig, ns);
        if (hash_outputs(&rig) != first)
            gb_fail(state, "outputs differ from those of the first run");
    }
    if (status < 0)
        gb_fail(state, sy_error_text());
    ready_rig_close(&rig);
}

int main(int argc, char **argv)
{
    static const char *const all[] = {"steps_add", "steps_move",     "steps_gemm", "mlp",
                                      "tabular",   "recurrent_cell", "keywords",   "voice"};
    int cores[MAX_CORES], named = 0;
    const struct gb_options options = {.manual_time = true, .iterations = 1};
    gb_initialize(&argc, argv);
    for (int i = 1; i < argc; i++) {
        char bench[160];
        snprintf(bench, sizeof bench, "steps/%.120s", argv[i]);
        if (strncmp(argv[i], "--models=", 9) == 0)
            folder = argv[i] + 9;
        else if (strncmp(argv[i], "--threads=", 10) == 0)
            n_cores = atoi(argv[i] + 10);
        else if (++named)
            gb_register(bench, run_model, argv[i], &options);
    }
    for (size_t i = 0; named == 0 && i < sizeof all / sizeof *all; i++) {
        char bench[160];
        snprintf(bench, sizeof bench, "tiny/%s", all[i]);
        gb_register(bench, run_model, (void *)all[i], &options);
    }
    for (int i = 0; i < MAX_CORES; i++)
        cores[i] = i;
    if (n_cores < 1 || n_cores > MAX_CORES || sy_host_engine.set_threads(cores, n_cores) < 0) {
        fprintf(stderr, "steps: %d threads: %s\n", n_cores, sy_error_text());
        return 1;
    }
    return gb_run() > 0 ? 0 : 1;
}

#include "workers/profiler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/storage.h"
#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "workers/device_profiler.h"

#define N_RUNS        5
#define ENOUGH_NS     (10 * SY_NS_PER_S) /* fewer runs of a model that takes longer */
#define STORAGE_BYTES (256ull << 20)     /* enough for a steady rate */

struct rig {
    const struct sy_package *package;
    const struct sy_engine_ops *engine;
    struct sy_program *program;
    unsigned char *weights, **layer_params;
    void *workspace, **inputs, **outputs;
};

static void *take(uint64_t bytes)
{
    return aligned_alloc(SY_LAYER_ALIGN, SY_ALIGN_UP(bytes + 1, SY_LAYER_ALIGN));
}

static int read_weights(const struct sy_package *package, unsigned char *to)
{
    int fd = open(package->path, O_RDONLY | O_CLOEXEC);
    uint64_t done = 0;

    while (fd >= 0 && done < package->weights_bytes) {
        ssize_t n = pread(fd, to + done, package->weights_bytes - done,
                          (off_t)(package->weights_offset + done));

        if (n <= 0)
            break;
        done += (uint64_t)n;
    }
    if (fd >= 0)
        close(fd);
    return done == package->weights_bytes
               ? SY_OK
               : sy_error_set(SY_EIO, "cannot read %s: %s", package->path, strerror(errno));
}

/* Zeroed tensors: valid indices for a lookup, and no kernel's time depends on the values. */
static int take_tensors(const struct sy_graph *graph, const int *indices, int n, int64_t batch,
                        void ***out)
{
    *out = calloc((size_t)n + 1, sizeof(**out));
    for (int i = 0; *out && i < n; i++) {
        const struct sy_tensor *tensor = &graph->tensors[indices[i]];
        uint64_t bytes = sy_graph_tensor_room(graph, indices[i], batch);

        (*out)[i] = take(bytes);
        if (!(*out)[i])
            return sy_error_set(SY_ENOMEM_HOST, "no memory for tensor %s", tensor->name);
        memset((*out)[i], 0, bytes);
    }
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for tensors");
}

static void drop_tensors(void ***tensors, int n)
{
    for (int i = 0; *tensors && i < n; i++)
        free((*tensors)[i]);
    free(*tensors);
    *tensors = NULL;
}

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static int time_layers(struct rig *rig, uint64_t *layer_ns)
{
    struct sy_binding binding = {rig->layer_params, rig->workspace,
                                 (const void *const *)rig->inputs, rig->outputs};
    int n = rig->package->n_layers;
    uint64_t *times = calloc((size_t)n * N_RUNS, sizeof(*times));
    int status = times ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a profile");

    sy_ns begun = sy_clock_now();
    int n_runs = 0;

    for (int run = -1; status == SY_OK && run < N_RUNS; run++) { /* -1 warms up */
        if (run > 0 && sy_clock_now() - begun > ENOUGH_NS)
            break;
        for (int layer = 0; status == SY_OK && layer < n; layer++) {
            sy_ns start = sy_clock_now();

            status = rig->engine->program_run(rig->program, &binding, layer, 1);
            if (run >= 0)
                times[layer * N_RUNS + run] = sy_clock_now() - start;
        }
        n_runs = run + 1;
    }
    for (int layer = 0; status == SY_OK && layer < n; layer++) {
        qsort(times + layer * N_RUNS, (size_t)n_runs, sizeof(*times), compare_ns);
        layer_ns[layer] = times[layer * N_RUNS + n_runs / 2];
    }
    free(times);
    return status;
}

static int measure_batch(struct rig *rig, int64_t batch, uint64_t *layer_ns)
{
    const struct sy_graph *graph = rig->package->usual;
    int status;

    SY_TRY_GOTO(rig->engine->program_create(graph, rig->package->layers, rig->package->n_layers,
                                            batch, &rig->program),
                done);
    rig->workspace = take(rig->engine->program_workspace_bytes(rig->program));
    if (!rig->workspace) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for the workspace");
        goto done;
    }
    SY_TRY_GOTO(take_tensors(graph, graph->inputs, graph->n_inputs, batch, &rig->inputs), done);
    SY_TRY_GOTO(take_tensors(graph, graph->outputs, graph->n_outputs, batch, &rig->outputs), done);
    status = time_layers(rig, layer_ns);
done:
    drop_tensors(&rig->inputs, graph->n_inputs);
    drop_tensors(&rig->outputs, graph->n_outputs);
    free(rig->workspace);
    rig->workspace = NULL;
    if (rig->program)
        rig->engine->program_destroy(rig->program);
    rig->program = NULL;
    return status;
}

static int measure_storage(const struct sy_package *package, uint64_t *out_bytes_per_s)
{
    double gbps;

    SY_TRY(sy_storage_measure(package->path, STORAGE_BYTES, &gbps));
    *out_bytes_per_s = (uint64_t)(gbps * 1e9);
    return SY_OK;
}

int sy_profile_measure(const struct sy_package *package, const struct sy_engine_ops *engine,
                       const char *device, int n_threads, struct sy_profile *out)
{
    struct rig rig = {.package = package, .engine = engine};
    int status = SY_OK;

    *out = (struct sy_profile){.n_threads = n_threads, .batch = {1, 8}};
    rig.weights = take(package->weights_bytes);
    rig.layer_params = calloc((size_t)package->n_layers + 1, sizeof(*rig.layer_params));
    for (int i = 0; i < SY_PROFILE_BATCHES; i++)
        out->layer_ns[i] = calloc((size_t)package->n_layers + 1, sizeof(uint64_t));
    if (!rig.weights || !rig.layer_params || !out->layer_ns[0] || !out->layer_ns[1])
        status = sy_error_set(SY_ENOMEM_HOST, "no memory to profile %s", package->name);
    if (status == SY_OK)
        status = read_weights(package, rig.weights);
    for (int i = 0; status == SY_OK && i < package->n_layers; i++)
        rig.layer_params[i] = rig.weights + package->layers[i].offset_bytes;
    if (status == SY_OK && engine->attach)
        status = sy_profile_on_device(package, engine, device, rig.weights, out);
    for (int i = 0; status == SY_OK && !engine->attach && i < SY_PROFILE_BATCHES; i++)
        status = measure_batch(&rig, out->batch[i], out->layer_ns[i]);
    if (status == SY_OK)
        status = measure_storage(package, &out->storage_bytes_per_s);
    free(rig.weights);
    free(rig.layer_params);
    if (status < 0)
        sy_profile_finish(out);
    return status;
}

void sy_profile_finish(struct sy_profile *profile)
{
    for (int i = 0; i < SY_PROFILE_BATCHES; i++) {
        free(profile->layer_ns[i]);
        profile->layer_ns[i] = NULL;
    }
    free(profile->choices);
    profile->choices = NULL;
}

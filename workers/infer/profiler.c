#include "workers/infer/profiler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/storage/storage.h"
#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "workers/infer/device_profiler.h"
#include "workers/infer/solo.h"

#define N_RUNS        5
#define ENOUGH_NS     (10 * SY_NS_PER_S) /* fewer runs of a model that takes longer */
#define MOST_RUNS     31 /* runs of a small model, whose layers' threads are chosen by these times */
#define MORE_NS       (120 * SY_NS_PER_MS) /* for the runs beyond N_RUNS */
#define STORAGE_BYTES (256ull << 20)       /* enough for a steady rate */
#define N_RESTED      7
#define REST_NS       (10 * SY_NS_PER_MS) /* longer than OpenMP's threads spin: some 3 ms */
#define SOLO_MOST_NS  (10 * SY_NS_PER_MS) /* above it waking the threads is less than a hundredth */
/* One thread saves some 10 to 100 us of a layer. A wrong choice, of times measured on a busy machine or at other sizes than a request's, costs the
 * layer's time once more: such layers are all threads'. */
#define SOLO_LAYER_NS      (200 * SY_NS_PER_US)
#define SOLO_LAYER_OPEN_NS (20 * SY_NS_PER_US) /* where requests choose sizes */
#define SOLO_SIZES         16

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

static uint64_t sum(const uint64_t *ns, int n)
{
    uint64_t all = 0;
    for (int i = 0; i < n; i++)
        all += ns[i];
    return all;
}

static struct sy_binding bind(const struct rig *rig)
{
    return (struct sy_binding){rig->layer_params, rig->workspace, (const void *const *)rig->inputs,
                               rig->outputs};
}

static bool is_sized_at_run(const struct sy_package *package, int layer)
{
    return package->graph->nodes[package->layers[layer].node].op == SY_OP_DYNAMIC;
}

/*
 * A layer's time is what it took until it ended early: where the bytes of strings, which are unknown before, did not fit, and where
 * zeros yield no size (a Reshape to a shape that each request sends). Nothing reads the results of the latter but the request.
 */
static int run_layers(const struct rig *rig, const struct sy_binding *binding, int first, int n)
{
    int status = rig->engine->program_run(rig->program, binding, first, n);
    bool ended_early = status == SY_ETOOBIG && rig->package->usual->string_bytes > 0;

    for (int i = first; status == SY_EARG && i < first + n; i++)
        ended_early = ended_early || is_sized_at_run(rig->package, i);
    return ended_early ? SY_OK : status;
}

/* Each layer's median, of many runs the lower quartile: what else runs on the machine only adds to times. */
static int time_layers(struct rig *rig, uint64_t *layer_ns)
{
    struct sy_binding binding = bind(rig);
    int n = rig->package->n_layers;
    uint64_t *times = calloc((size_t)n * MOST_RUNS, sizeof(*times));
    int status = times ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a profile");

    sy_ns begun = sy_clock_now();
    int n_runs = 0;

    for (int run = -1; status == SY_OK && run < MOST_RUNS; run++) { /* -1 warms up */
        if (run > 0 && sy_clock_now() - begun > (run < N_RUNS ? ENOUGH_NS : MORE_NS))
            break;
        for (int layer = 0; status == SY_OK && layer < n; layer++) {
            sy_ns start = sy_clock_now();

            status = run_layers(rig, &binding, layer, 1);
            if (run >= 0)
                times[layer * MOST_RUNS + run] = sy_clock_now() - start;
        }
        n_runs = run + 1;
    }
    for (int layer = 0; status == SY_OK && layer < n; layer++) {
        qsort(times + layer * MOST_RUNS, (size_t)n_runs, sizeof(*times), compare_ns);
        layer_ns[layer] = times[layer * MOST_RUNS + n_runs / (n_runs > N_RUNS ? 4 : 2)];
    }
    free(times);
    return status;
}

/* The least of some runs that begin with all threads asleep, as those of an idle server do. */
static int time_rested(struct rig *rig, uint64_t *out_ns)
{
    struct sy_binding binding = bind(rig);
    *out_ns = UINT64_MAX;
    for (int run = 0; run < N_RESTED; run++) {
        sy_clock_sleep_until(sy_clock_now() + REST_NS);
        sy_ns start = sy_clock_now();
        SY_TRY(run_layers(rig, &binding, 0, rig->package->n_layers));
        *out_ns = SY_MIN(*out_ns, sy_clock_now() - start);
    }
    return SY_OK;
}

/* Times of a program of `layers`; rested_ns may be NULL, and is of small models only. */
static int measure_batch(struct rig *rig, const struct sy_layer *layers, int64_t batch,
                         uint64_t *layer_ns, uint64_t *rested_ns)
{
    const struct sy_graph *graph = rig->package->usual;
    int status;

    SY_TRY_GOTO(
        rig->engine->program_create(graph, layers, rig->package->n_layers, batch, &rig->program),
        done);
    rig->workspace = take(rig->engine->program_workspace_bytes(rig->program));
    if (!rig->workspace) {
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for the workspace");
        goto done;
    }
    SY_TRY_GOTO(take_tensors(graph, graph->inputs, graph->n_inputs, batch, &rig->inputs), done);
    SY_TRY_GOTO(take_tensors(graph, graph->outputs, graph->n_outputs, batch, &rig->outputs), done);
    status = time_layers(rig, layer_ns);
    if (status == SY_OK && rested_ns && sum(layer_ns, rig->package->n_layers) <= SOLO_MOST_NS)
        status = time_rested(rig, rested_ns);
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

/* ---- one thread or all ------------------------------------------------------------------------ */

/* Totals of a profile: [0] with all threads, [1] with one. */
struct both {
    uint64_t *layer_ns[2][SY_PROFILE_BATCHES];
    uint64_t rested_ns[2]; /* at the first batch */
};

/* Time that waking the threads adds to a run: the difference of rested runs less that of runs in a row. */
static uint64_t wake_ns(const struct both *both, int n)
{
    int64_t rested = (int64_t)both->rested_ns[0] - (int64_t)both->rested_ns[1];
    int64_t in_a_row =
        (int64_t)sum(both->layer_ns[0][0], n) - (int64_t)sum(both->layer_ns[1][0], n);
    return (uint64_t)SY_MAX(rested - in_a_row, (int64_t)SY_SOLO_LEAST_WAKE_NS);
}

/* In a line through the measured batch sizes. */
static void times_at(uint64_t *const layer_ns[SY_PROFILE_BATCHES], const int64_t *batches, int n,
                     int64_t batch, uint64_t *out)
{
    double share = (double)(batch - batches[0]) / (double)(batches[1] - batches[0]);
    for (int i = 0; i < n; i++) {
        double low = (double)layer_ns[0][i], high = (double)layer_ns[1][i];
        double ns = low + (high - low) * share;
        out[i] = ns > 1 ? (uint64_t)ns : 1;
    }
}

/* The masks of solo layers for all batch sizes up to 2^(SOLO_SIZES - 1), and the profile's times with them. Steps sized at run are not
 * solo: they take as long as the run's data needs, not the profile's. */
static int choose_solo(const struct sy_package *package, const struct both *both,
                       struct sy_profile *out)
{
    int n = package->n_layers;
    uint64_t most = package->graph->n_symbols > 0 ? SOLO_LAYER_OPEN_NS : SOLO_LAYER_NS;
    uint64_t *one = calloc((size_t)n, sizeof *one), *team = calloc((size_t)n, sizeof *team);
    unsigned char *solo = calloc((size_t)n, 1);
    out->solo_batches = calloc((size_t)n, sizeof *out->solo_batches);
    bool has_memory = one && team && solo && out->solo_batches;
    for (int k = 0; has_memory && k < SOLO_SIZES; k++) {
        times_at(both->layer_ns[1], out->batch, n, (int64_t)1 << k, one);
        times_at(both->layer_ns[0], out->batch, n, (int64_t)1 << k, team);
        sy_solo_choose(n, one, team, wake_ns(both, n), solo);
        for (int i = 0; i < n; i++)
            out->solo_batches[i] |=
                (uint32_t)(solo[i] && one[i] <= most && !is_sized_at_run(package, i)) << k;
    }
    for (int b = 0; has_memory && b < SY_PROFILE_BATCHES; b++)
        for (int i = 0; i < n; i++)
            if (sy_layer_is_solo(&(struct sy_layer){.solo_batches = out->solo_batches[i]},
                                 out->batch[b]))
                out->layer_ns[b][i] = both->layer_ns[1][b][i];
    free(one);
    free(team);
    free(solo);
    return has_memory ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory to choose threads");
}

/* The package's layers, all solo; the caller frees the list only. */
static struct sy_layer *make_solo(const struct sy_package *package)
{
    struct sy_layer *layers = calloc((size_t)package->n_layers + 1, sizeof *layers);
    for (int i = 0; layers && i < package->n_layers; i++) {
        layers[i] = package->layers[i];
        layers[i].solo_batches = UINT32_MAX;
    }
    return layers;
}

/* Times the layers with one thread, too, and chooses; `rested_ns` is that of all threads. */
static int measure_solo(struct rig *rig, uint64_t rested_ns, struct sy_profile *out)
{
    int n = rig->package->n_layers, status = SY_OK;
    struct both both = {.rested_ns = {rested_ns}};
    struct sy_layer *layers = make_solo(rig->package);
    if (!layers)
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for %d layers", n);
    for (int b = 0; status == SY_OK && b < SY_PROFILE_BATCHES; b++) {
        both.layer_ns[0][b] = out->layer_ns[b];
        both.layer_ns[1][b] = calloc((size_t)n, sizeof(uint64_t));
        status = both.layer_ns[1][b]
                     ? measure_batch(rig, layers, out->batch[b], both.layer_ns[1][b],
                                     b == 0 ? &both.rested_ns[1] : NULL)
                     : sy_error_set(SY_ENOMEM_HOST, "no memory to profile one thread");
    }
    if (status == SY_OK && both.rested_ns[1] > 0) /* else waking is less than a hundredth */
        status = choose_solo(rig->package, &both, out);
    for (int b = 0; b < SY_PROFILE_BATCHES; b++)
        free(both.layer_ns[1][b]);
    free(layers);
    return status;
}

static int measure_host(struct rig *rig, struct sy_profile *out)
{
    int n = rig->package->n_layers;
    uint64_t rested_ns = 0;
    for (int b = 0; b < SY_PROFILE_BATCHES; b++)
        SY_TRY(measure_batch(rig, rig->package->layers, out->batch[b], out->layer_ns[b],
                             b == 0 ? &rested_ns : NULL));
    if (out->n_threads < 2 || sum(out->layer_ns[0], n) > SOLO_MOST_NS)
        return SY_OK;
    return measure_solo(rig, rested_ns, out);
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
    if (status == SY_OK && !engine->attach)
        status = measure_host(&rig, out);
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
    free(profile->solo_batches);
    profile->choices = NULL;
    profile->solo_batches = NULL;
}

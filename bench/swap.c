/* swap/MODEL/MODE/batch:N: how long from a request to its outputs when the model is not there, in PipeSwitch's modes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/gbench.h"
#include "bench/swap_child.h"
#include "bench/swap_rig.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#define MAX_SAMPLES 512

/* Transfer / compute on the paper's V100 (figure 5: bytes over 12.3 GB/s, ready latency). 0: not in the paper; measured if its package exists, with the
 * device's own link. */
static const struct bench_model {
    const char *name;
    double paper_ratio;
} bench_models[] = {{"resnet152", 0.59},         {"inception_v3", 0.26}, {"bert_base", 0.73},
                    {"decoder_8b", 0},           {"attention_128", 0},   {"attention_1024", 0},
                    {"attention_causal_1024", 0}};
#define N_MODELS ((int)SY_ARRAY_LEN(bench_models))

static const char *const mode_names[] = {
#define X(name, text, what) text,
    SWAP_MODE_TABLE(X)
#undef X
};

struct options {
    const char *device, *models, *job_model;
    double link_ratio; /* 0: the paper's; negative: the device's own link */
    int batch, iterations;
};

static struct options options = {
    .device = "emulated",
    .models = "build/models",
    .job_model = "build/models/mnist_cnn/1/model.onnx",
    .batch = 8,
    .iterations = 15,
};
static const char *self_path;

struct one_bench {
    const struct bench_model *model;
    enum swap_mode mode;
};

/* One rig at a time: the benchmarks of a model are registered next to each other. */
static struct swap_rig *rig;
static const struct bench_model *rig_model;

static void package_of(const struct bench_model *model, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s/1/model.sypkg", options.models, model->name);
}

static int ensure_rig(const struct bench_model *model)
{
    char package[512];
    if (rig_model == model)
        return rig ? SY_OK : SY_EDEVICE;
    swap_rig_destroy(rig);
    rig = NULL;
    rig_model = model;
    package_of(model, package, sizeof package);
    double ratio = options.link_ratio == 0  ? model->paper_ratio
                   : options.link_ratio < 0 ? 0
                                            : options.link_ratio;
    SY_TRY(swap_rig_create(self_path, package, options.device, ratio, options.batch,
                           options.job_model, &rig));
    fprintf(stderr,
            "%s on %s: ready %.1f ms, lower bound of a swap %.1f ms, link or storage %.2f GB/s\n",
            model->name, swap_rig_device_name(rig), swap_rig_ready_ms(rig), swap_rig_bound_ms(rig),
            swap_rig_rate_gbps(rig));
    return SY_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, int n, double q)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    int rank = (int)ceil(q * n) - 1;
    return n ? values[rank < 0 ? 0 : rank] : NAN;
}

struct samples {
    int n;
    double total[MAX_SAMPLES], first[MAX_SAMPLES], wait[MAX_SAMPLES], ready[MAX_SAMPLES],
        read[MAX_SAMPLES], resident[MAX_SAMPLES], over_resident[MAX_SAMPLES];
    bool same_bits;
    struct swap_result last;
};

/* Measures with the free prefix and, alternately before or after it, with everything resident, so that neither is always the first one after the other's
 * baselines. */
static int measure_pair(struct samples *s, struct swap_result *prefix)
{
    struct swap_result whole;
    bool whole_first = s->n % 2 == 1;
    if (whole_first)
        SY_TRY(swap_rig_run(rig, SWAP_RESIDENT, &whole));
    SY_TRY(swap_rig_run(rig, SWAP_PREFIX, prefix));
    if (!whole_first)
        SY_TRY(swap_rig_run(rig, SWAP_RESIDENT, &whole));
    if (s->n == MAX_SAMPLES)
        return SY_OK;
    s->same_bits = s->same_bits && whole.same_bits;
    s->resident[s->n] = (double)whole.total_ns / 1e6;
    s->over_resident[s->n] = (double)prefix->total_ns / (double)whole.total_ns;
    return SY_OK;
}

/* One swap, then immediately its baselines: ready, and on a unified device the bare read. */
static int measure_once(enum swap_mode mode, struct samples *s, double *seconds)
{
    struct swap_result result, ready = {0};
    sy_ns read_ns = 0;
    if (mode == SWAP_PREFIX)
        SY_TRY(measure_pair(s, &result));
    else
        SY_TRY(swap_rig_run(rig, mode, &result));
    SY_TRY(swap_rig_run(rig, SWAP_READY, &ready));
    if (strncmp(options.device, "host", 4) == 0 && mode == SWAP_PIPELINED)
        SY_TRY(swap_rig_read(rig, &read_ns));
    *seconds = (double)result.total_ns / 1e9;
    s->same_bits = s->same_bits && result.same_bits && ready.same_bits;
    s->last = result;
    if (s->n == MAX_SAMPLES)
        return SY_OK;
    s->total[s->n] = (double)result.total_ns / 1e6;
    s->first[s->n] = (double)result.first_layer_ns / 1e6;
    s->wait[s->n] = (double)result.preempt_wait_ns / 1e6;
    s->ready[s->n] = (double)ready.total_ns / 1e6;
    s->read[s->n++] = (double)read_ns / 1e6;
    return SY_OK;
}

static void report(struct gb_state *state, struct samples *s)
{
    double p50 = quantile(s->total, s->n, 0.5), ready = quantile(s->ready, s->n, 0.5);
    double read = quantile(s->read, s->n, 0.5), bound = swap_rig_bound_ms(rig);
    gb_set_counter(state, "p50_ms", p50);
    gb_set_counter(state, "p99_ms", quantile(s->total, s->n, 0.99));
    gb_set_counter(state, "min_ms", quantile(s->total, s->n, 0));
    gb_set_counter(state, "ready_ms", ready);
    gb_set_counter(state, "over_ready", p50 / ready);
    gb_set_counter(state, "bound_ms", bound);
    gb_set_counter(state, "over_bound", p50 / bound);
    gb_set_counter(state, "first_layer_ms", quantile(s->first, s->n, 0.5));
    gb_set_counter(state, "first_layer_p99_ms", quantile(s->first, s->n, 0.99));
    gb_set_counter(state, "preempt_wait_ms", quantile(s->wait, s->n, 0.5));
    gb_set_counter(state, "preempt_wait_p99_ms", quantile(s->wait, s->n, 0.99));
    gb_set_counter(state, "link_gbps", swap_rig_rate_gbps(rig));
    gb_set_counter(state, "link_ratio", swap_rig_ratio(rig, ready));
    gb_set_counter(state, "bytes", (double)s->last.bytes);
    gb_set_counter(state, "gbps", (double)s->last.bytes / p50 / 1e6);
    gb_set_counter(state, "groups", s->last.n_groups);
    if (s->n > 0 && s->resident[0] > 0) {
        gb_set_counter(state, "resident_ms", quantile(s->resident, s->n, 0.5));
        gb_set_counter(state, "over_resident", quantile(s->over_resident, s->n, 0.5));
    }
    if (read > 0) {
        gb_set_counter(state, "read_ms", read);
        gb_set_counter(state, "over_read_or_ready", p50 / (read > ready ? read : ready));
    }
}

static void run_bench(struct gb_state *state, void *arg)
{
    const struct one_bench *bench = arg;
    struct samples *s = calloc(1, sizeof *s);
    if (!s || ensure_rig(bench->model) < 0) {
        gb_fail(state, sy_error_text());
        free(s);
        return;
    }
    s->same_bits = true;
    while (gb_keep_running(state)) {
        double seconds = 0;
        if (measure_once(bench->mode, s, &seconds) < 0) {
            gb_fail(state, sy_error_text());
            free(s);
            return;
        }
        gb_set_iteration_seconds(state, seconds);
    }
    if (!s->same_bits)
        gb_fail(state, "outputs differ from the ready run's");
    report(state, s);
    gb_set_label(state, swap_rig_device_name(rig));
    free(s);
}

static bool model_applies(const struct bench_model *model)
{
    char package[512];
    package_of(model, package, sizeof package);
    return model->paper_ratio > 0 || access(package, F_OK) == 0;
}

static bool mode_applies(enum swap_mode mode)
{
    if (mode == SWAP_PREFIX ||
        mode == SWAP_RESIDENT) /* on storage no head is kept: the page cache decides */
        return strncmp(options.device, "host", 4) != 0;
    if (mode == SWAP_NO_PIN || mode == SWAP_NO_IPC || mode == SWAP_MANAGED)
        return strncmp(options.device, "cuda", 4) == 0;
    return mode != SWAP_IN_IMAGE || strncmp(options.device, "host", 4) == 0;
}

static void register_all(void)
{
    static struct one_bench benches[SY_ARRAY_LEN(bench_models) * SWAP_N_MODES];
    char name[128];
    int n = 0;
    for (int m = 0; m < N_MODELS; m++)
        for (int mode = 0; mode < SWAP_N_MODES; mode++) {
            if (!model_applies(&bench_models[m]) || !mode_applies((enum swap_mode)mode))
                continue;
            /* Starting a fresh process takes seconds; three samples suffice. */
            struct gb_options o = {.iterations = mode == SWAP_RESTART ? 3 : options.iterations,
                                   .manual_time = true,
                                   .milliseconds = true};
            benches[n] = (struct one_bench){&bench_models[m], (enum swap_mode)mode};
            snprintf(name, sizeof name, "swap/%s/%s/batch:%d", bench_models[m].name,
                     mode_names[mode], options.batch);
            gb_register(name, run_bench, &benches[n++], &o);
        }
}

static void usage(void)
{
    printf(
        "usage: swap [--device=host|emulated[,link-gbps=N]|cuda[:N]] [--link-ratio=R] [--batch=8] "
        "[--iterations=15]\n"
        "            [--models=build/models] [--job-model=MODEL.onnx] [Google Benchmark's flags, "
        "e.g. "
        "--benchmark_filter=resnet152]\n\n"
        "Times one swap in each mode, preempting a training job, with the ready run "
        "interleaved:\n");
#define X(name, text, what) printf("  %-12s %s\n", text, what);
    SWAP_MODE_TABLE(X)
#undef X
    printf("\n--link-ratio sets the emulated link so that transfer / compute is R; by default as "
           "on the paper's V100\n"
           "(resnet152 0.59, inception_v3 0.26, bert_base 0.73). --link-ratio=-1 takes the "
           "device's link-gbps.\n");
}

static bool read_option(const char *text)
{
    const char *value = strchr(text, '=');
    if (!value)
        return false;
    size_t n = (size_t)(value++ - text);
    if (strncmp(text, "--device", n) == 0)
        options.device = value;
    else if (strncmp(text, "--job-model", n) == 0)
        options.job_model = value;
    else if (strncmp(text, "--models", n) == 0)
        options.models = value;
    else if (strncmp(text, "--link-ratio", n) == 0)
        options.link_ratio = strtod(value, NULL);
    else if (strncmp(text, "--batch", n) == 0)
        options.batch = atoi(value);
    else if (strncmp(text, "--iterations", n) == 0)
        options.iterations = atoi(value);
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    static char path[512];
    sy_log_init("bench");
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    self_path = path;
    if (argc > 1 && strncmp(argv[1], "--child-", 8) == 0)
        return swap_child_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        usage();
        return 0;
    }
    /* A waiting OpenMP thread must not spin beside the link or the training job; libgomp reads this at load. */
    if (!getenv("GOMP_SPINCOUNT")) {
        setenv("GOMP_SPINCOUNT", "20000", 1);
        execv(path, argv);
    }
    gb_initialize(&argc, argv);
    for (int i = 1; i < argc; i++)
        if (!read_option(argv[i])) {
            fprintf(stderr, "swap: unknown option %s; see --help\n", argv[i]);
            return 2;
        }
    if (options.batch < 1 || options.iterations < 1) {
        fprintf(stderr, "swap: --batch and --iterations must be at least 1\n");
        return 2;
    }
    gb_add_context("device", options.device);
    register_all();
    int ran = gb_run();
    swap_rig_destroy(rig);
    return ran > 0 ? 0 : 1;
}

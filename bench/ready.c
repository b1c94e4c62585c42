/* From a package to a ready program, and the overhead of a run beside its computation. --help describes each benchmark. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gbench.h"
#include "bench/ready_rig.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "workers/host/program/program_internal.h"

enum { MAX_CORES = 64, PAIRS = 15 };

static struct {
    const char *models, *model;
    int64_t batch;
    int n_cores;
    bool show_layers;
    char path[4096];
} flags = {.models = "build/models", .model = "resnet152", .batch = 1, .n_cores = 2};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, compare);
    return x[n / 2];
}

static double milliseconds_since(sy_ns start)
{
    return (double)(sy_clock_now() - start) / 1e6;
}

/* ---- package to program ------------------------------------------------------------------------------------ */

/* Empties oneDNN's cache, so that all primitives are created as in a fresh worker. */
static void run_create(struct gb_state *state, void *arg)
{
    (void)arg;
    while (gb_keep_running(state)) {
        struct sy_package *package = NULL;
        struct sy_program *program = NULL;
        dnnl_set_primitive_cache_capacity(0);
        dnnl_set_primitive_cache_capacity(SY_PRIMITIVES_KEPT);
        sy_ns start = sy_clock_now();
        int status = sy_package_open(flags.path, &package);
        if (status == SY_OK)
            status = sy_host_engine.program_create(package->usual, package->layers,
                                                   package->n_layers, flags.batch, &program);
        gb_set_iteration_seconds(state, milliseconds_since(start) / 1e3);
        if (status < 0)
            gb_fail(state, sy_error_text());
        if (program)
            sy_host_engine.program_destroy(program);
        sy_package_close(package);
    }
}

/* ---- beside the mathematics --------------------------------------------------------------------------------- */

struct bare_step {
    dnnl_exec_arg_t args[SY_STEP_MAX_ARGS];
};

/* Prepares each primitive's arguments, so that only the call itself is measured. */
static struct bare_step *prepare_bare(struct sy_program *p, const struct sy_binding *binding)
{
    struct bare_step *steps = calloc((size_t)p->n_steps + 1, sizeof *steps);
    p->binding = binding;
    for (int s = 0; steps && s < p->n_steps; s++)
        for (int i = 0; p->steps[s].primitive && i < p->steps[s].n_args; i++) {
            struct sy_step_arg *a = &p->steps[s].args[i];
            void *data = a->value >= 0 ? sy_program_pointer(p, a->value)
                                       : (char *)binding->workspace + p->scratch_offset;
            dnnl_memory_set_data_handle(a->memory, data);
            steps[s].args[i] = (dnnl_exec_arg_t){a->dnnl_arg, a->memory};
        }
    return steps;
}

static double time_bare(struct sy_program *p, const struct bare_step *steps)
{
    sy_ns start = sy_clock_now();
    for (int s = 0; s < p->n_steps; s++) {
        if (p->steps[s].primitive)
            dnnl_primitive_execute(p->steps[s].primitive, p->stream, p->steps[s].n_args,
                                   steps[s].args);
        else
            p->steps[s].run(p, &p->steps[s]);
    }
    return milliseconds_since(start);
}

/* Runs layer by layer, like a worker whose groups are single layers. */
static double time_engine(struct ready_rig *rig)
{
    sy_ns start = sy_clock_now();
    for (int layer = 0; layer < rig->package->n_layers; layer++)
        sy_host_engine.program_run(rig->program, &rig->binding, layer, 1);
    return milliseconds_since(start);
}

static void run_overhead(struct gb_state *state, void *arg)
{
    struct ready_rig rig;
    double engine[PAIRS], bare[PAIRS], share[PAIRS];
    (void)arg;
    if (ready_rig_open(&rig, flags.path, flags.batch) < 0)
        gb_fail(state, sy_error_text());
    struct bare_step *steps = rig.outputs ? prepare_bare(rig.program, &rig.binding) : NULL;
    while (steps && gb_keep_running(state)) {
        time_engine(&rig);
        for (int i = 0; i < PAIRS; i++) {
            engine[i] = time_engine(&rig);
            bare[i] = time_bare(rig.program, steps);
            share[i] = 100 * (engine[i] / bare[i] - 1);
        }
        gb_set_iteration_seconds(state, median(engine, PAIRS) / 1e3);
        gb_set_counter(state, "bare_ms", median(bare, PAIRS));
        gb_set_counter(state, "min_overhead_percent", 100 * (engine[0] / bare[0] - 1));
        gb_set_counter(state, "overhead_percent", median(share, PAIRS));
    }
    free(steps);
    ready_rig_close(&rig);
}

/* ---- first run after a swap --------------------------------------------------------------------------------- */

/* Rewrites all weights, as a transfer does; measures the run after that, and the next one. */
static void run_first(struct gb_state *state, void *arg)
{
    struct ready_rig rig;
    double first[PAIRS], later[PAIRS], ratio[PAIRS];
    (void)arg;
    if (ready_rig_open(&rig, flags.path, flags.batch) < 0)
        gb_fail(state, sy_error_text());
    while (rig.outputs && gb_keep_running(state)) {
        time_engine(&rig);
        for (int i = 0; i < PAIRS; i++) {
            memcpy(rig.weights, rig.image, rig.package->weights_bytes);
            first[i] = time_engine(&rig);
            later[i] = time_engine(&rig);
            ratio[i] = first[i] / later[i];
        }
        gb_set_iteration_seconds(state, median(first, PAIRS) / 1e3);
        gb_set_counter(state, "later_ms", median(later, PAIRS));
        gb_set_counter(state, "first_over_later", median(ratio, PAIRS));
    }
    ready_rig_close(&rig);
}

/* ---- where the time goes ------------------------------------------------------------------------------------- */

static void show_step(struct ready_rig *rig, const struct sy_step *step, int layer, double ms)
{
    const struct sy_node *node = &rig->package->usual->nodes[rig->package->layers[layer].node];
    const char *name = "own loop";
    const_dnnl_primitive_desc_t pd;
    if (step->primitive && dnnl_primitive_get_primitive_desc(step->primitive, &pd) == dnnl_success)
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    printf("%8.4f ms  %4d %2d %-22s %-24s %s\n", ms, layer, step->threads, sy_op_name(node->op),
           name, node->name);
}

/* Prints the minimum over all runs for each step. */
static int show_layers(void)
{
    struct ready_rig rig;
    int status = ready_rig_open(&rig, flags.path, flags.batch);
    struct sy_program *p = rig.program;
    double *least = p ? calloc((size_t)p->n_steps + 1, sizeof *least) : NULL, sum = 0;
    for (int run = 0; status == SY_OK && least && run < PAIRS; run++) {
        p->binding = &rig.binding;
        for (int s = 0; s < p->n_steps && status == SY_OK; s++) {
            sy_ns start = sy_clock_now();
            status = p->steps[s].run(p, &p->steps[s]);
            double ms = milliseconds_since(start);
            least[s] = run == 0 || ms < least[s] ? ms : least[s];
        }
    }
    for (int layer = 0; status == SY_OK && least && layer < p->n_layers; layer++)
        for (int s = p->layer_steps[layer]; s < p->layer_steps[layer + 1]; s++) {
            show_step(&rig, &p->steps[s], layer, least[s]);
            sum += least[s];
        }
    if (status < 0)
        fprintf(stderr, "ready: %s\n", sy_error_text());
    else
        printf("%8.4f ms  all\n", sum);
    free(least);
    ready_rig_close(&rig);
    return status;
}

/* ---- flags ---------------------------------------------------------------------------------------------------- */

static void usage(void)
{
    printf("ready [--models=build/models] [--model=resnet152] [--batch=1] [--threads=2] [--layers] "
           "[--benchmark_...]\n"
           "  create    package -> program that can run, all primitives made anew\n"
           "  overhead  layer by layer through the engine, against the bare calls of the same "
           "primitives and loops\n"
           "  first     the run after all weights were written, against the run after it\n"
           "  --layers  no bench: the least time of each step, and the implementation that oneDNN "
           "chose\n");
}

static bool take_flag(const char *arg, const char *name, const char **value)
{
    size_t n = strlen(name);
    if (strncmp(arg, name, n) != 0 || arg[n] != '=')
        return false;
    *value = arg + n + 1;
    return true;
}

static int read_flags(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *number = NULL;
        if (strcmp(argv[i], "--layers") == 0)
            flags.show_layers = true;
        else if (take_flag(argv[i], "--batch", &number))
            flags.batch = atoll(number);
        else if (take_flag(argv[i], "--threads", &number))
            flags.n_cores = atoi(number);
        else if (!take_flag(argv[i], "--models", &flags.models) &&
                 !take_flag(argv[i], "--model", &flags.model)) {
            usage();
            return strcmp(argv[i], "--help") == 0 ? 1 : 2;
        }
    }
    snprintf(flags.path, sizeof flags.path, "%s/%s/1/model.sypkg", flags.models, flags.model);
    return flags.n_cores < 1 || flags.n_cores > MAX_CORES ? 2 : 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        gb_function run;
    } benches[] = {{"create", run_create}, {"overhead", run_overhead}, {"first", run_first}};
    int cores[MAX_CORES];
    gb_initialize(&argc, argv);
    int wrong = read_flags(argc, argv);
    if (wrong)
        return wrong - 1;
    for (int i = 0; i < flags.n_cores; i++)
        cores[i] = i;
    if (sy_host_engine.set_threads(cores, flags.n_cores) < 0) {
        fprintf(stderr, "ready: %s\n", sy_error_text());
        return 1;
    }
    if (flags.show_layers)
        return show_layers() < 0;
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
        char name[160];
        bool create = benches[i].run == run_create;
        struct gb_options options = {
            .manual_time = true, .milliseconds = true, .iterations = create ? 5 : 1};
        snprintf(name, sizeof name, "ready/%.80s/%s/batch:%lld", flags.model, benches[i].name,
                 (long long)flags.batch);
        gb_register(name, benches[i].run, NULL, &options);
    }
    return gb_run() > 0 ? 0 : 1;
}

#include "runtime/cli/train/explain_measure.h"

#include <errno.h>
#include <jansson.h>
#include <numa.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#define WARM_UP   3
#define MAX_STEPS 1000
#define LIMIT_NS  (20 * SY_NS_PER_S)
#define LEAST     3 /* steps, however long they take */

/* ---- the job without its traces ------------------------------------------------------------------------ */

static char *text_of(const char *text, const struct sy_explain_variant *variant)
{
    json_t *root = json_loads(text, 0, NULL);
    json_object_del(root, "snapshot");
    json_object_del(root, "evaluate_every_steps");
    json_object_set_new(root, "epochs", json_integer(1000000000));
    json_object_set_new(root, "max_steps", json_integer(0));
    if (variant->precision)
        json_object_set_new(root, "precision", json_string(variant->precision));
    char *out = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return out;
}

/* ---- measuring ----------------------------------------------------------------------------------------- */

struct meter {
    struct sy_explain_result *result;
    const char *names[SY_EXPLAIN_LAYERS]; /* borrowed from the trainer: compared by address */
    int last;
    double steps_ms[MAX_STEPS];
};

/* Steps come in the network's order or against it: the search begins where the last one ended. */
static struct sy_explain_layer *find_layer(struct meter *m, const char *name)
{
    struct sy_explain_result *r = m->result;
    for (int i = 0; i < r->n_layers; i++) {
        int at = (m->last + i) % r->n_layers;
        if (m->names[at] == name || !strcmp(m->names[at], name))
            return &r->layers[m->last = at];
    }
    if (r->n_layers == SY_EXPLAIN_LAYERS)
        return &r->layers[SY_EXPLAIN_LAYERS - 1];
    bool is_last = r->n_layers == SY_EXPLAIN_LAYERS - 1;
    m->names[r->n_layers] = name;
    m->last = r->n_layers;
    struct sy_explain_layer *layer = &r->layers[r->n_layers++];
    snprintf(layer->name, sizeof layer->name, "%s", is_last ? "(others)" : name);
    return layer;
}

/* One iteration, timed by what each advance was for. */
static int run_step(struct sy_train_run *run, struct meter *m, double *step_ms)
{
    uint64_t step = sy_train_run_step(run), before = sy_clock_now(), start = before;
    enum sy_train_state state;
    bool is_over = false;
    while (!is_over) {
        const char *name;
        enum sy_train_part part = sy_train_run_next(run, &name);
        is_over = part == SY_TRAIN_OTHER && sy_train_run_step(run) > step;
        SY_TRY(sy_train_run_advance(run, &state));
        uint64_t now = sy_clock_now();
        double ms = (double)(now - before) / 1e6;
        before = now;
        if (!m)
            continue;
        m->result->part_ms[part] += ms;
        if (name)
            find_layer(m, name)->ms[part] += ms;
    }
    *step_ms = (double)(before - start) / 1e6;
    return SY_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void divide(struct sy_explain_result *r)
{
    for (int p = 0; p < SY_EXPLAIN_PARTS; p++) {
        r->part_ms[p] /= r->n_steps;
        for (int l = 0; l < r->n_layers; l++)
            r->layers[l].ms[p] /= r->n_steps;
    }
}

static int run_steps(struct sy_train_run *run, int n_steps, struct sy_explain_result *r)
{
    static struct meter meter;
    double unused;
    uint64_t start = sy_clock_now();
    meter.result = r;
    for (int i = 0; i < WARM_UP && (i == 0 || sy_clock_now() - start < LIMIT_NS / 4); i++)
        SY_TRY(run_step(run, NULL, &unused));
    while (r->n_steps < SY_MIN(n_steps, MAX_STEPS) &&
           (r->n_steps < LEAST || sy_clock_now() - start < LIMIT_NS)) {
        SY_TRY(run_step(run, &meter, &meter.steps_ms[r->n_steps]));
        r->n_steps++;
    }
    divide(r);
    qsort(meter.steps_ms, (size_t)r->n_steps, sizeof *meter.steps_ms, by_value);
    r->step_ms = meter.steps_ms[r->n_steps / 2];
    return SY_OK;
}

static int measure(const char *text, const struct sy_explain_variant *variant, int n_steps,
                   struct sy_explain_result *r)
{
    struct sy_local_job job = {0};
    omp_set_dynamic(0);
    if (variant->n_threads)
        omp_set_num_threads(variant->n_threads);
    r->n_threads = omp_get_max_threads();
    if (variant->numa_node >= 0) {
        numa_run_on_node(variant->numa_node);
        numa_set_preferred(variant->numa_node);
    }
    if (variant->instructions)
        setenv("DNNL_MAX_CPU_ISA", variant->instructions, 1);
    if (variant->layout)
        setenv("SY_TRAIN_LAYOUT", variant->layout, 1);
    char *changed = text_of(text, variant);
    SY_TRY_ALLOC(changed, "no room for the job's text");
    int status = sy_local_job_open(changed, variant->huge, NULL, NULL, &job);
    if (status == SY_OK)
        status = run_steps(job.run, n_steps, r);
    r->persistent_bytes = job.needs.persistent_bytes;
    r->ephemeral_bytes = job.needs.ephemeral_bytes;
    return status; /* the process ends with the job */
}

void sy_explain_measure(const char *text, const struct sy_explain_variant *variant, int n_steps,
                        struct sy_explain_result *r)
{
    int code;
    memset(r, 0, sizeof *r);
    r->status = SY_EPEER;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        sy_log_threshold = SY_LOG_WARN;
        r->status = measure(text, variant, n_steps, r);
        if (r->status < 0)
            snprintf(r->error, sizeof r->error, "%s", sy_error_text());
        _exit(0);
    }
    if (child < 0 || waitpid(child, &code, 0) < 0)
        snprintf(r->error, sizeof r->error, "no process: %s", strerror(errno));
    else if (code != 0)
        snprintf(r->error, sizeof r->error, "the measuring process ended with %s %d",
                 WIFSIGNALED(code) ? "signal" : "status",
                 WIFSIGNALED(code) ? WTERMSIG(code) : WEXITSTATUS(code));
}

#include "workers/cuda/cuda_candidates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/cuda/device_math_library.h"
#include "workers/cuda/trial_data.h"

/* One that is run both ways, in memory of its own: the program's workspace, and the parameters of the step's layer. */
struct trial {
    struct sy_program *p;
    struct sy_cuda_step *step;
    int first, end; /* the steps that are compared */
    struct sy_binding binding;
    unsigned char *memory, **params;
    unsigned char *numbers, *ours,
        *theirs; /* of host memory: what is read; results, those of the library twice */
};

static const struct sy_math_library_ops *library_of(const struct sy_program *p)
{
    return p->ops->library;
}

/* What the trial reads; -1: nothing. */
static int read_value(const struct trial *t, int i)
{
    return i == 0 ? t->step->args[0] : -1;
}

static int result_value(const struct trial *t)
{
    return t->step->args[1];
}

/* A mean of numbers in one type differs by the order of the sum; a maximum does not differ. */
static double tolerance_of(const struct sy_cuda_step *step)
{
    if (step->pool.max)
        return 0;
    return step->pool.type == SY_DTYPE_F16    ? 0x1p-10
           : step->pool.type == SY_DTYPE_BF16 ? 0x1p-7
                                              : 2e-5;
}

static int make_plan(struct sy_program *p, const struct sy_cuda_step *step,
                     struct sy_math_library_plan **out)
{
    return library_of(p)->pool_plan(p->math, &step->pool, out);
}

/* For tests: what agrees is taken, fast or slow. */
static bool is_preferred(void)
{
    const char *text = getenv("SY_CUDA_PREFER_CUDNN");
    return text && strcmp(text, "1") == 0;
}

/* ---- trials ------------------------------------------------------------------------------------------- */

static void drop_trial(struct trial *t)
{
    library_of(t->p)->memory_drop(t->p->math, t->memory); /* waits: copies have ended */
    free(t->params);
    free(t->numbers);
}

/* Without memory for it t->memory stays NULL. */
static int take_memory(struct trial *t)
{
    struct sy_program *p = t->p;
    uint64_t room = SY_ALIGN_UP(p->workspace_bytes, (uint64_t)SY_LAYER_ALIGN);
    int layer = 0;
    while (p->layer_steps[layer + 1] <= t->first)
        layer++;
    t->params = calloc((size_t)p->n_layers, sizeof *t->params);
    uint64_t reads = p->values[read_value(t, 0)].bytes, results = p->values[result_value(t)].bytes;
    t->numbers = malloc(reads + 3 * results + 1);
    if (!t->params || !t->numbers)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to try a candidate");
    t->ours = t->numbers + reads;
    t->theirs = t->ours + results;
    void *memory;
    SY_TRY(library_of(p)->memory_take(p->math, room + p->layers[layer].bytes, &memory));
    t->memory = memory;
    if (!memory)
        return SY_OK;
    t->params[layer] = t->memory + room;
    t->binding = (struct sy_binding){.layer_params = t->params, .workspace = t->memory};
    return SY_OK;
}

static int fill_value(struct trial *t, int value, uint64_t seed)
{
    struct sy_program *p = t->p;
    const struct sy_cuda_value *v = &p->values[value];
    sy_trial_fill(v->dtype, 1, true, seed, sy_cuda_count(v), t->numbers);
    return p->ops->to_device(p->math, t->numbers, sy_cuda_pointer(p, value), v->bytes);
}

static int fill_inputs(struct trial *t)
{
    for (int i = 0; read_value(t, i) >= 0; i++)
        SY_TRY(fill_value(t, read_value(t, i), (uint64_t)(i + 1) << 40));
    return SY_OK;
}

static int run_steps(void *arg)
{
    struct trial *t = arg;
    return sy_cuda_program_steps(t->p, t->first, t->end);
}

/* *out_ms below 0: it did not work. The results are on the host then. */
static int time_way(struct trial *t, struct sy_math_library_plan *plan, void *results,
                    float *out_ms)
{
    struct sy_program *p = t->p;
    const struct sy_cuda_value *v = &p->values[result_value(t)];
    void *at = sy_cuda_pointer(p, result_value(t));
    t->step->by_library = plan;
    int status = p->ops->zero(p->math, at, v->bytes);
    if (status == SY_OK)
        status = library_of(p)->time(p->math, run_steps, t, out_ms);
    t->step->by_library = NULL;
    if (status < 0 || *out_ms < 0)
        return status;
    SY_TRY(p->ops->to_host(p->math, at, results, v->bytes));
    return p->ops->synchronize(p->math);
}

/* That it was slower is the usual answer; what it could not do, or did otherwise, is worth knowing. */
static void tell(const struct trial *t, const char *result, float ours_ms, float library_ms,
                 double off)
{
    const char *name = t->step->node->name;
    if (library_ms < 0 || ours_ms < 0)
        sy_log_info("cuda", "event=candidate_fails node=\"%s\" why=\"%s\"", name, sy_error_text());
    else if (strcmp(result, "differs") == 0)
        sy_log_info("cuda", "event=candidate_differs node=\"%s\" off=%.3g allowed=%.3g", name, off,
                    tolerance_of(t->step));
    else
        sy_log_debug("cuda", "event=candidate node=\"%s\" result=%s us=%.1f ours_us=%.1f off=%.3g",
                     name, result, (double)library_ms * 1e3, (double)ours_ms * 1e3, off);
}

/* The library's, recorded twice: what a graph holds must not depend on when it was recorded (M3). */
static int time_library(struct trial *t, struct sy_math_library_plan *plan, uint64_t bytes,
                        float *out_ms)
{
    float again_ms;
    SY_TRY(time_way(t, plan, t->theirs, out_ms));
    if (*out_ms < 0)
        return SY_OK;
    SY_TRY(time_way(t, plan, t->theirs + bytes, &again_ms));
    if (again_ms >= 0 && memcmp(t->theirs, t->theirs + bytes, bytes) != 0) {
        (void)sy_error_set(SY_EUNSUPPORTED, "two runs gave different bits");
        again_ms = -1;
    }
    *out_ms = SY_MIN(*out_ms, again_ms);
    return SY_OK;
}

/* Both ways; what fails of the library's leaves ours. */
static int compare(struct trial *t, struct sy_math_library_plan *plan, bool *out)
{
    const struct sy_cuda_value *v = &t->p->values[result_value(t)];
    float ours_ms = -1, library_ms = -1;
    double off = 0;
    SY_TRY(time_way(t, NULL, t->ours, &ours_ms));
    SY_TRY(time_library(t, plan, v->bytes, &library_ms));
    bool both = ours_ms >= 0 && library_ms >= 0;
    bool agrees = both && sy_trial_agrees(v->dtype, tolerance_of(t->step), sy_cuda_count(v),
                                          t->ours, t->theirs, &off);
    *out = agrees && (library_ms < ours_ms || is_preferred());
    tell(t, both && !agrees ? "differs" : *out ? "taken" : "slower", ours_ms, library_ms, off);
    return SY_OK;
}

/* The plan's first run, so that no swap loads its kernels. */
static int warm(struct trial *t, struct sy_math_library_plan *plan, bool *out)
{
    float ms = -1;
    SY_TRY(time_way(t, plan, t->ours, &ms));
    *out = ms >= 0;
    if (!*out)
        sy_log_warn("cuda", "event=plan_fails node=\"%s\" why=\"%s\"", t->step->node->name,
                    sy_error_text());
    return SY_OK;
}

/* *io_taken: what is taken if there is no memory to run anything; what is taken. */
static int run_trial(struct sy_program *p, int first, struct sy_math_library_plan *plan,
                     bool tuning, bool *io_taken)
{
    struct trial t = {.p = p, .step = &p->steps[first], .first = first, .end = first + 1};
    const struct sy_binding *held = p->binding;
    int status = take_memory(&t);
    p->binding = &t.binding;
    if (status == SY_OK && t.memory)
        status = fill_inputs(&t);
    if (status == SY_OK && t.memory)
        status = tuning ? compare(&t, plan, io_taken) : warm(&t, plan, io_taken);
    p->binding = held;
    drop_trial(&t);
    return status;
}

/* ---- settling ----------------------------------------------------------------------------------------- */

/* A body's values lie outside it, too: it takes what was measured of pools elsewhere. */
static int settle(struct sy_program *p, int first, struct sy_math_library_plan *plan, bool *taken)
{
    const struct sy_math_library_ops *library = library_of(p);
    bool tuning = library->is_tuning(p->math) && !p->captured;
    *taken = !tuning && library->is_chosen(p->math, plan);
    if (tuning || (*taken && !p->captured && library->is_cold(p->math, plan)))
        SY_TRY(run_trial(p, first, plan, tuning, taken));
    return tuning ? library->choose(p->math, plan, *taken) : SY_OK;
}

static int settle_step(struct sy_program *p, int first)
{
    struct sy_math_library_plan *plan;
    bool taken = false;
    SY_TRY(make_plan(p, &p->steps[first], &plan));
    int status = plan ? settle(p, first, plan, &taken) : SY_OK;
    if (status == SY_OK && taken)
        p->steps[first].by_library = plan;
    else
        library_of(p)->plan_drop(p->math, plan);
    return status;
}

int sy_cuda_candidates_settle(struct sy_program *p)
{
    for (int i = 0; library_of(p) && i < p->n_steps; i++) {
        const struct sy_cuda_step *step = &p->steps[i];
        if (!step->has_candidate)
            continue;
        int status = settle_step(p, i);
        if (status < 0)
            return sy_error_prefix(status, "node %s: %s", step->node->name,
                                   sy_op_name(step->node->op));
    }
    return SY_OK;
}

#include "workers/cuda/program/cuda_candidates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/cuda/kernels/kernel_ops.h"
#include "workers/cuda/program/trial_data.h"

#define MAX_READS   6
#define MAX_RESULTS 3

/* A trial's inputs and the magnitude of their numbers; its outputs and their tolerance. */
struct operands {
    int n_reads, n_results, reads[MAX_READS], results[MAX_RESULTS];
    float scales[MAX_READS];
    bool odd; /* on numbers with NaN and infinities, too */
    double tolerance;
    uint64_t read_bytes, result_bytes;
};

/* A step that is timed both ways, in memory of its own: a workspace as the program's, and the parameters of its layer. */
struct trial {
    struct sy_program *p;
    struct sy_cuda_step *step;
    int first, end; /* the steps that are compared */
    struct operands of;
    struct sy_binding binding;
    unsigned char *memory, **params;
    unsigned char *numbers, *ours,
        *theirs; /* of host memory: what is read; results, those of the library twice */
};

static const struct sy_math_library_ops *library_of(const struct sy_program *p)
{
    return p->ops->library;
}

/* ---- what is compared --------------------------------------------------------------------------------- */

static void add_read(const struct sy_program *p, struct operands *o, int value, float scale)
{
    if (value < 0)
        return;
    assert(o->n_reads < MAX_READS);
    o->scales[o->n_reads] = scale;
    o->reads[o->n_reads++] = value;
    o->read_bytes += p->values[value].bytes;
}

static void add_result(const struct sy_program *p, struct operands *o, int value)
{
    if (value < 0)
        return;
    assert(o->n_results < MAX_RESULTS);
    o->results[o->n_results++] = value;
    o->result_bytes += p->values[value].bytes;
}

/* A mean of numbers in one type differs by the order of the sum; a maximum does not differ. */
static void describe_pool(const struct sy_program *p, const struct sy_cuda_step *step,
                          struct operands *o)
{
    enum sy_dtype type = step->pool.type;
    double mean = type == SY_DTYPE_F16 ? 0x1p-10 : type == SY_DTYPE_BF16 ? 0x1p-7 : 2e-5;
    *o = (struct operands){.odd = true, .tolerance = step->pool.max ? 0 : mean};
    add_read(p, o, step->args[0], 1);
    add_result(p, o, step->args[1]);
}

/* Weights as they are at first, so that states neither saturate nor grow. TF32 has 11 bits of a factor. */
static void describe_recurrence(const struct sy_program *p, const struct sy_cuda_step *step,
                                struct operands *o)
{
    const struct sy_cuda_cells *c = &step->cells;
    float of_input = 1 / sqrtf((float)c->of.input), of_state = 1 / sqrtf((float)c->of.hidden);
    *o = (struct operands){.tolerance = sy_math_kernel_tf32(p->math) ? 5e-3 : 2e-5};
    add_read(p, o, c->values[SY_CUDA_CELL_X], 1);
    add_read(p, o, c->values[SY_CUDA_CELL_W], of_input);
    add_read(p, o, c->values[SY_CUDA_CELL_R], of_state);
    add_read(p, o, c->values[SY_CUDA_CELL_BIAS], 0.5f);
    add_read(p, o, c->values[SY_CUDA_CELL_H0], 1);
    add_read(p, o, c->values[SY_CUDA_CELL_C0], 1);
    add_result(p, o, c->values[SY_CUDA_CELL_Y]);
    add_result(p, o, c->values[SY_CUDA_CELL_YH]);
    add_result(p, o, c->values[SY_CUDA_CELL_YC]);
}

static int make_plan(struct sy_program *p, const struct sy_cuda_step *step,
                     struct sy_math_library_plan **out)
{
    return step->candidate == SY_CUDA_POOL
               ? library_of(p)->pool_plan(p->math, &step->pool, out)
               : library_of(p)->recurrence_plan(p->math, &step->recurrence, out);
}

/* "1", for tests: what agrees is taken, fast or slow. "0": the library is neither tried nor taken. */
static bool environment_says(const char *value)
{
    const char *text = getenv("SY_CUDA_PREFER_CUDNN");
    return text && strcmp(text, value) == 0;
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
    uint64_t results = t->of.result_bytes;
    t->numbers = malloc(t->of.read_bytes + 3 * results + 1);
    SY_TRY_ALLOC(t->params && t->numbers, "no memory to try a candidate");
    t->ours = t->numbers + t->of.read_bytes;
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

static int fill_inputs(struct trial *t, bool odd)
{
    struct sy_program *p = t->p;
    unsigned char *numbers = t->numbers;
    for (int i = 0; i < t->of.n_reads; i++) {
        const struct sy_cuda_value *v = &p->values[t->of.reads[i]];
        sy_trial_fill(v->dtype, t->of.scales[i], odd, (uint64_t)i << 40, sy_cuda_count(v), numbers);
        SY_TRY(p->ops->to_device(p->math, numbers, sy_cuda_pointer(p, t->of.reads[i]), v->bytes));
        numbers += v->bytes;
    }
    return SY_OK;
}

static int run_steps(void *arg)
{
    struct trial *t = arg;
    return sy_cuda_program_steps(t->p, t->first, t->end);
}

static int zero_results(struct trial *t)
{
    struct sy_program *p = t->p;
    for (int i = 0; i < t->of.n_results; i++)
        SY_TRY(p->ops->zero(p->math, sy_cuda_pointer(p, t->of.results[i]),
                            p->values[t->of.results[i]].bytes));
    return SY_OK;
}

/* One behind the other. */
static int fetch_results(struct trial *t, unsigned char *to)
{
    struct sy_program *p = t->p;
    for (int i = 0; i < t->of.n_results; i++) {
        uint64_t bytes = p->values[t->of.results[i]].bytes;
        SY_TRY(p->ops->to_host(p->math, sy_cuda_pointer(p, t->of.results[i]), to, bytes));
        to += bytes;
    }
    return p->ops->synchronize(p->math);
}

/* *out_ms below 0: it did not work. The results are on the host then. */
static int time_way(struct trial *t, struct sy_math_library_plan *plan, unsigned char *results,
                    float *out_ms)
{
    struct sy_program *p = t->p;
    t->step->by_library = plan;
    int status = zero_results(t);
    if (status == SY_OK)
        status = library_of(p)->time(p->math, run_steps, t, out_ms);
    t->step->by_library = NULL;
    return status < 0 || *out_ms < 0 ? status : fetch_results(t, results);
}

static bool agrees(const struct trial *t, double *out_off)
{
    const unsigned char *ours = t->ours, *theirs = t->theirs;
    bool all = true;
    *out_off = 0;
    for (int i = 0; i < t->of.n_results; i++) {
        const struct sy_cuda_value *v = &t->p->values[t->of.results[i]];
        double off;
        all =
            sy_trial_agrees(v->dtype, t->of.tolerance, sy_cuda_count(v), ours, theirs, &off) && all;
        *out_off = fmax(*out_off, off);
        ours += v->bytes;
        theirs += v->bytes;
    }
    return all;
}

/* Times of both ways on the same numbers, and how far their results differ; a time below 0: it did not work. */
struct outcome {
    float ours_ms, library_ms;
    bool same;
    double off;
};

static bool works(const struct outcome *o)
{
    return o->ours_ms >= 0 && o->library_ms >= 0;
}

/* At info only failures and different results: being slower is the usual outcome. */
static void tell(const struct trial *t, const struct outcome *o, bool taken)
{
    const char *name = t->step->node->name;
    if (!works(o))
        sy_log_info("cuda", "event=candidate_fails node=\"%s\" why=\"%s\"", name, sy_error_text());
    else if (!o->same)
        sy_log_info("cuda", "event=candidate_differs node=\"%s\" off=%.3g allowed=%.3g", name,
                    o->off, t->of.tolerance);
    else
        sy_log_debug("cuda", "event=candidate node=\"%s\" result=%s us=%.1f ours_us=%.1f off=%.3g",
                     name, taken ? "taken" : "slower", (double)o->library_ms * 1e3,
                     (double)o->ours_ms * 1e3, o->off);
}

static int time_both(struct trial *t, struct sy_math_library_plan *plan, unsigned char *theirs,
                     struct outcome *io)
{
    float ours_ms, library_ms = -1;
    SY_TRY(time_way(t, NULL, t->ours, &ours_ms));
    if (ours_ms >= 0)
        SY_TRY(time_way(t, plan, theirs, &library_ms));
    io->ours_ms = fminf(io->ours_ms, ours_ms);
    io->library_ms = fminf(io->library_ms, library_ms);
    return SY_OK;
}

/* In turns, the least of two: the first finds a device that has rested. And twice recorded: what a graph holds must not depend on when it was
 * (M3). */
static int try_numbers(struct trial *t, struct sy_math_library_plan *plan, bool odd,
                       struct outcome *out)
{
    uint64_t bytes = t->of.result_bytes;
    *out = (struct outcome){.ours_ms = INFINITY, .library_ms = INFINITY};
    SY_TRY(fill_inputs(t, odd));
    for (int i = 0; i < 2 && works(out); i++)
        SY_TRY(time_both(t, plan, t->theirs + (uint64_t)i * bytes, out));
    if (works(out) && memcmp(t->theirs, t->theirs + bytes, bytes) != 0) {
        (void)sy_error_set(SY_EUNSUPPORTED, "two runs gave different bits");
        out->library_ms = -1;
    }
    out->same = works(out) && agrees(t, &out->off);
    return SY_OK;
}

/* Both ways; what fails of the library's leaves ours. Odd numbers apart: the mean of a large window that holds one of them says nothing of
 * the others. */
static int compare(struct trial *t, struct sy_math_library_plan *plan, bool *out)
{
    struct outcome o;
    SY_TRY(try_numbers(t, plan, false, &o));
    *out = o.same && (o.library_ms < o.ours_ms || environment_says("1"));
    if (*out && t->of.odd) {
        SY_TRY(try_numbers(t, plan, true, &o));
        *out = o.same;
    }
    tell(t, &o, *out);
    return SY_OK;
}

/* The plan's first run, so that no swap loads its kernels. */
static int warm(struct trial *t, struct sy_math_library_plan *plan, bool *out)
{
    float ms = -1;
    SY_TRY(fill_inputs(t, false));
    SY_TRY(time_way(t, plan, t->ours, &ms));
    *out = ms >= 0;
    if (*out)
        return SY_OK;
    library_of(t->p)->note_failure(t->p->math, plan);
    sy_log_warn("cuda", "event=plan_fails node=\"%s\" why=\"%s\"", t->step->node->name,
                sy_error_text());
    return SY_OK;
}

/* *io_taken: what is taken if there is no memory to run anything; what is taken. */
static int run_trial(struct sy_program *p, int first, struct sy_math_library_plan *plan,
                     bool tuning, bool *io_taken)
{
    struct sy_cuda_step *step = &p->steps[first];
    struct trial t = {.p = p, .step = step, .first = first, .end = first + step->n_compared};
    const struct sy_binding *held = p->binding;
    if (step->candidate == SY_CUDA_POOL)
        describe_pool(p, step, &t.of);
    else
        describe_recurrence(p, step, &t.of);
    int status = take_memory(&t);
    p->binding = &t.binding;
    if (status == SY_OK && t.memory)
        status = tuning ? compare(&t, plan, io_taken) : warm(&t, plan, io_taken);
    p->binding = held;
    drop_trial(&t);
    return status < 0 ? sy_error_prefix(status, "cuDNN's trial (SY_CUDA_PREFER_CUDNN=0 has none)")
                      : SY_OK;
}

/* ---- settling ----------------------------------------------------------------------------------------- */

/* A body's values lie outside it, too: it takes what was measured of the same elsewhere. */
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
    bool has_any = library_of(p) && !environment_says("0");
    for (int i = 0; has_any && i < p->n_steps; i++) {
        const struct sy_cuda_step *step = &p->steps[i];
        if (step->candidate == SY_CUDA_NO_CANDIDATE)
            continue;
        int status = settle_step(p, i);
        if (status < 0)
            return sy_error_prefix(status, "node %s: %s", step->node->name,
                                   sy_op_name(step->node->op));
    }
    return SY_OK;
}

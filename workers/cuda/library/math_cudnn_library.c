/* What cuDNN may compute in the place of our own kernels (device_math_library.h): pools, and recurrent layers (math_cudnn_recurrence.c). And how the two are timed. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_device.h"
#include "workers/cuda/library/math_internal.h"

#define N_LAUNCHES 5 /* of a recorded trial */

/* ---- descriptions ------------------------------------------------------------------------------------- */

static int make_tensor(struct sy_math *math, enum sy_dtype type, int rank, const int *dims,
                       const int *strides, cudnnTensorDescriptor_t *out)
{
    cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
    int which = type == SY_DTYPE_F16 ? 1 : type == SY_DTYPE_BF16 ? 2 : 0;
    SY_CUDNN(math, cudnnCreateTensorDescriptor(out));
    SY_CUDNN(math, cudnnSetTensorNdDescriptor(*out, types[which], rank, dims, strides));
    return SY_OK;
}

/* The number of results must be what cuDNN itself says: it would write as many. */
static int check_result(struct sy_math *math, const struct sy_math_library_plan *plan)
{
    int dims[SY_LIBRARY_POOL_RANK], rank = 2 + plan->pool.spatial;
    SY_CUDNN(math, cudnnGetPoolingNdForwardOutputDim(plan->window, plan->x, rank, dims));
    return memcmp(dims, plan->pool.y_dims, (size_t)rank * sizeof *dims) == 0
               ? SY_OK
               : sy_error_set(SY_EUNSUPPORTED, "cuDNN's pool has a result of another shape");
}

static int describe_pool(struct sy_math *math, struct sy_math_library_plan *plan)
{
    const struct sy_library_pool *s = &plan->pool;
    cudnnPoolingMode_t mode = s->max             ? CUDNN_POOLING_MAX_DETERMINISTIC
                              : s->count_padding ? CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
                                                 : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;
    int rank = 2 + s->spatial;
    SY_TRY(make_tensor(math, s->type, rank, s->x_dims, s->x_strides, &plan->x));
    SY_TRY(make_tensor(math, s->type, rank, s->y_dims, s->y_strides, &plan->y));
    SY_CUDNN(math, cudnnCreatePoolingDescriptor(&plan->window));
    SY_CUDNN(math, cudnnSetPoolingNdDescriptor(plan->window, mode, CUDNN_PROPAGATE_NAN, s->spatial,
                                               s->window, s->pads, s->strides));
    return check_result(math, plan);
}

/* ---- plans -------------------------------------------------------------------------------------------- */

static void finish_plan(struct sy_math_library_plan *plan)
{
    if (plan->x)
        cudnnDestroyTensorDescriptor(plan->x);
    if (plan->y)
        cudnnDestroyTensorDescriptor(plan->y);
    if (plan->window)
        cudnnDestroyPoolingDescriptor(plan->window);
    sy_math_recurrence_finish(plan);
    free(plan);
}

void sy_cudnn_library_finish(struct sy_math *math)
{
    while (math->library_plans) {
        struct sy_math_library_plan *plan = math->library_plans;
        math->library_plans = plan->next;
        finish_plan(plan);
    }
}

static struct sy_math_library_plan *find_plan(struct sy_math *math, const int64_t *key)
{
    struct sy_math_library_plan *plan = math->library_plans;
    while (plan && memcmp(plan->key, key, sizeof plan->key) != 0)
        plan = plan->next;
    return plan;
}

/* Keeps the plan until close, also one that does not work. */
static int keep_plan(struct sy_math *math, struct sy_math_library_plan *plan, int status)
{
    plan->works = status == SY_OK;
    plan->next = math->library_plans;
    math->library_plans = plan;
    if (!plan->works && math->tune)
        sy_log_info("cuda", "event=no_candidate why=\"%s\"", sy_error_text());
    else if (!plan->works)
        sy_log_debug("cuda", "event=no_candidate why=\"%s\"", sy_error_text());
    sy_math_forget_errors();
    return sy_cuda_device_failed(math->device);
}

static int new_plan(const int64_t *key, struct sy_math_library_plan **out)
{
    *out = calloc(1, sizeof **out);
    SY_TRY_ALLOC(*out, "no memory for a candidate's plan");
    memcpy((*out)->key, key, sizeof(*out)->key);
    return SY_OK;
}

static int pool_plan(struct sy_math *math, const struct sy_math_pool *pool,
                     struct sy_math_library_plan **out)
{
    struct sy_library_pool s;
    struct sy_math_library_plan *plan;
    *out = NULL;
    if (!sy_library_pool_of(pool, &s))
        return SY_OK;
    plan = find_plan(math, s.words);
    if (!plan) {
        SY_TRY(new_plan(s.words, &plan));
        plan->pool = s;
        SY_TRY(keep_plan(math, plan, describe_pool(math, plan)));
    }
    *out = plan->works ? plan : NULL;
    return SY_OK;
}

static int recurrence_plan(struct sy_math *math, const struct sy_math_recurrence *recurrence,
                           struct sy_math_library_plan **out)
{
    int64_t words[SY_MATH_KEY];
    sy_library_recurrence_words(recurrence, words);
    struct sy_math_library_plan *plan = find_plan(math, words);
    *out = NULL;
    if (!plan) {
        SY_TRY(new_plan(words, &plan));
        plan->recurrence = *recurrence;
        SY_TRY(keep_plan(math, plan, sy_math_recurrence_describe(math, plan)));
    }
    *out = plan->works ? plan : NULL;
    return SY_OK;
}

static void plan_drop(struct sy_math *math, struct sy_math_library_plan *plan)
{
    (void)math;
    (void)plan; /* remembered until close */
}

static int run_pool(struct sy_math *math, struct sy_math_library_plan *plan, const void *x, void *y)
{
    const float one = 1, zero = 0;
    SY_CUDNN(math,
             cudnnPoolingForward(math->cudnn, plan->window, &one, plan->x, x, &zero, plan->y, y));
    return SY_OK;
}

/* ---- choices ------------------------------------------------------------------------------------------ */

static bool is_tuning(const struct sy_math *math)
{
    return math->tune;
}

/* By what chooses a kernel, as far as we know. */
static void any_batch(const struct sy_math_library_plan *plan, int64_t *words)
{
    memcpy(words, plan->key, sizeof plan->key);
    words[SY_LIBRARY_BATCH_WORD] = -1;
}

static bool is_chosen(struct sy_math *math, const struct sy_math_library_plan *plan)
{
    int64_t words[SY_MATH_KEY];
    const struct sy_choice *chosen = sy_math_chosen(math, plan->key, SY_LIBRARY_BATCH_WORD);
    any_batch(plan, words);
    const struct sy_choice *known = sy_choices_find(math->warm, sy_choices_key(words, SY_MATH_KEY));
    return chosen && chosen->way == SY_WAY_CUDNN && !(known && known->way == SY_MATH_FAILED);
}

static int choose(struct sy_math *math, const struct sy_math_library_plan *plan, bool library)
{
    struct sy_choice choice = {.way = library ? SY_WAY_CUDNN : SY_WAY_DIRECT};
    return sy_math_choose(math, plan->key, SY_LIBRARY_BATCH_WORD, &choice);
}

static bool is_cold(struct sy_math *math, const struct sy_math_library_plan *plan)
{
    int64_t words[SY_MATH_KEY];
    any_batch(plan, words);
    return sy_math_warmth(math, words, SY_MATH_KEY) == SY_MATH_COLD;
}

static void note_failure(struct sy_math *math, const struct sy_math_library_plan *plan)
{
    int64_t words[SY_MATH_KEY];
    any_batch(plan, words);
    sy_math_note_failure(math, words, SY_MATH_KEY);
}

/* ---- trials ------------------------------------------------------------------------------------------- */

static int memory_take(struct sy_math *math, uint64_t bytes, void **out)
{
    unsigned char *memory;
    *out = sy_math_trial_take(math, bytes, &memory) ? memory : NULL;
    return sy_cuda_device_failed(math->device);
}

static void memory_drop(struct sy_math *math, void *memory)
{
    sy_math_trial_drop(math, memory);
}

/* A recording that fails ends all the same. */
static int record(struct sy_math *math, int (*run)(void *ctx), void *ctx,
                  struct sy_math_graph **out)
{
    *out = NULL;
    SY_TRY(sy_math_capture_begin(math));
    int status = run(ctx);
    int ended = sy_math_capture_end(math, out);
    if (status == SY_OK && ended == SY_OK && !*out)
        status = sy_error_set(SY_EUNSUPPORTED, "it cannot be recorded");
    return status < 0 ? status : ended;
}

static int launch(void *arg)
{
    void **both = arg;
    return sy_math_graph_launch(both[0], both[1]);
}

/* Libraries load their kernels in a run outside of a recording. */
static int time_recorded(struct sy_math *math, int (*run)(void *ctx), void *ctx, float *out_ms)
{
    struct sy_math_graph *graph = NULL;
    float ms = -1;
    int status = run(ctx);
    if (status == SY_OK)
        status = sy_math_cuda_check(math, cudaStreamSynchronize(math->stream), "a trial");
    if (status == SY_OK)
        status = record(math, run, ctx, &graph);
    *out_ms = -1;
    for (int i = 0; status == SY_OK && i < N_LAUNCHES; i++) {
        status = sy_math_time(math, launch, (void *[]){math, graph}, &ms);
        if (status == SY_OK && (*out_ms < 0 || ms < *out_ms))
            *out_ms = ms;
    }
    if (status < 0)
        *out_ms = -1;
    sy_math_graph_drop(math, graph);
    sy_math_forget_errors();
    return sy_cuda_device_failed(math->device);
}

const struct sy_math_library_ops sy_cudnn_library = {
    .pool_plan = pool_plan,
    .recurrence_plan = recurrence_plan,
    .plan_drop = plan_drop,
    .is_tuning = is_tuning,
    .is_chosen = is_chosen,
    .choose = choose,
    .is_cold = is_cold,
    .note_failure = note_failure,
    .memory_take = memory_take,
    .memory_drop = memory_drop,
    .time = time_recorded,
    .pool = run_pool,
    .recurrence = sy_math_recurrence_run,
};

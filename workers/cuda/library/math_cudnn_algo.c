/* cuDNN has a function, an enum and a struct for each direction of a convolution; here they are one. */
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/cuda/library/math_internal.h"

#define MAX_ALGOS 10 /* more than any direction has */

_Static_assert((int)CUDNN_CONVOLUTION_FWD_ALGO_COUNT <= MAX_ALGOS, "");
_Static_assert((int)CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT <= MAX_ALGOS, "");
_Static_assert((int)CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT <= MAX_ALGOS, "");

struct found {
    int algo;
    cudnnStatus_t status;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t math_type;
};

#define COPY_FOUND(perf, n, out)                                                           \
    for (int i = 0; i < (n); i++)                                                          \
        (out)[i] = (struct found){(int)(perf)[i].algo, (perf)[i].status, (perf)[i].memory, \
                                  (perf)[i].determinism, (perf)[i].mathType};

static cudnnStatus_t find_forward(struct sy_math_trial *t, struct found *out, int *n)
{
    struct sy_math_plan *p = t->plan;
    cudnnConvolutionFwdAlgoPerf_t perf[MAX_ALGOS];
    cudnnStatus_t answer =
        t->x ? cudnnFindConvolutionForwardAlgorithmEx(t->math->cudnn, p->x, t->x, p->w, t->w,
                                                      p->window, p->y, t->y, MAX_ALGOS, n, perf,
                                                      t->scratch, sy_math_conv_scratch(&p->conv))
             : cudnnGetConvolutionForwardAlgorithm_v7(t->math->cudnn, p->x, p->w, p->window, p->y,
                                                      MAX_ALGOS, n, perf);
    if (answer == CUDNN_STATUS_SUCCESS)
        COPY_FOUND(perf, *n, out)
    return answer;
}

static cudnnStatus_t find_data(struct sy_math_trial *t, struct found *out, int *n)
{
    struct sy_math_plan *p = t->plan;
    cudnnConvolutionBwdDataAlgoPerf_t perf[MAX_ALGOS];
    cudnnStatus_t answer =
        t->x
            ? cudnnFindConvolutionBackwardDataAlgorithmEx(t->math->cudnn, p->w, t->w, p->y, t->y,
                                                          p->window, p->x, t->x, MAX_ALGOS, n, perf,
                                                          t->scratch, SY_MATH_BACK_SCRATCH_BYTES)
            : cudnnGetConvolutionBackwardDataAlgorithm_v7(t->math->cudnn, p->w, p->y, p->window,
                                                          p->x, MAX_ALGOS, n, perf);
    if (answer == CUDNN_STATUS_SUCCESS)
        COPY_FOUND(perf, *n, out)
    return answer;
}

static cudnnStatus_t find_weights(struct sy_math_trial *t, struct found *out, int *n)
{
    struct sy_math_plan *p = t->plan;
    cudnnConvolutionBwdFilterAlgoPerf_t perf[MAX_ALGOS];
    cudnnStatus_t answer =
        t->x ? cudnnFindConvolutionBackwardFilterAlgorithmEx(
                   t->math->cudnn, p->x, t->x, p->y, t->y, p->window, p->w, t->w, MAX_ALGOS, n,
                   perf, t->scratch, SY_MATH_BACK_SCRATCH_BYTES)
             : cudnnGetConvolutionBackwardFilterAlgorithm_v7(t->math->cudnn, p->x, p->y, p->window,
                                                             p->w, MAX_ALGOS, n, perf);
    if (answer == CUDNN_STATUS_SUCCESS)
        COPY_FOUND(perf, *n, out)
    return answer;
}

static cudnnStatus_t find_all(struct sy_math_trial *t, struct found *out, int *n)
{
    switch (t->plan->conv.direction) {
    case SY_MATH_DATA:
        return find_data(t, out, n);
    case SY_MATH_WEIGHTS:
        return find_weights(t, out, n);
    default:
        return find_forward(t, out, n);
    }
}

static cudnnStatus_t workspace_of(struct sy_math *math, const struct sy_math_plan *p, size_t *bytes)
{
    switch (p->conv.direction) {
    case SY_MATH_DATA:
        return cudnnGetConvolutionBackwardDataWorkspaceSize(
            math->cudnn, p->w, p->y, p->window, p->x, (cudnnConvolutionBwdDataAlgo_t)p->algo,
            bytes);
    case SY_MATH_WEIGHTS:
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(
            math->cudnn, p->x, p->y, p->window, p->w, (cudnnConvolutionBwdFilterAlgo_t)p->algo,
            bytes);
    default:
        return cudnnGetConvolutionForwardWorkspaceSize(math->cudnn, p->x, p->w, p->window, p->y,
                                                       (cudnnConvolutionFwdAlgo_t)p->algo, bytes);
    }
}

bool sy_math_cudnn_fits(struct sy_math *math, struct sy_math_plan *p)
{
    size_t bytes = 0;
    return cudnnSetConvolutionMathType(p->window, p->math_type) == CUDNN_STATUS_SUCCESS &&
           workspace_of(math, p, &bytes) == CUDNN_STATUS_SUCCESS &&
           bytes <= sy_math_conv_scratch(&p->conv);
}

/* Our own kernel is then all that is left: worth knowing where a model is slow. */
static void tell_none(const struct sy_math_conv *c, cudnnStatus_t answer, int n)
{
    sy_log_info("cuda",
                "event=no_cudnn_algorithm direction=%d narrow=%d in=%lld out=%lld groups=%lld "
                "kernel=%lldx%lldx%lld offered=%d why=\"%s\"",
                (int)c->direction, (int)sy_math_is_narrow(c->type), (long long)c->in_channels,
                (long long)c->out_channels, (long long)c->groups, (long long)c->kernel[0],
                (long long)c->kernel[1], (long long)c->kernel[2], n,
                answer == CUDNN_STATUS_SUCCESS ? "none of them is deterministic and fits"
                                               : cudnnGetErrorString(answer));
}

bool sy_math_cudnn_find(struct sy_math_trial *t)
{
    struct found found[MAX_ALGOS];
    bool any_math = t->math->tf32 || sy_math_is_narrow(t->plan->conv.type);
    int n = 0;
    cudnnStatus_t answer = find_all(t, found, &n);
    for (int i = 0; answer == CUDNN_STATUS_SUCCESS && i < n; i++) {
        const struct found *f = &found[i];
        bool is_plain =
            f->math_type == CUDNN_FMA_MATH || f->math_type == CUDNN_DEFAULT_MATH; /* run as FMA */
        if (f->status != CUDNN_STATUS_SUCCESS || f->determinism != CUDNN_DETERMINISTIC ||
            f->memory > sy_math_conv_scratch(&t->plan->conv) || (!any_math && !is_plain))
            continue;
        t->plan->algo = f->algo;
        t->plan->math_type = any_math ? f->math_type : CUDNN_FMA_MATH;
        if (sy_math_cudnn_fits(t->math, t->plan))
            return true;
    }
    tell_none(&t->plan->conv, answer, n);
    return false;
}

int sy_math_cudnn_run(struct sy_math *math, struct sy_math_plan *p, const void *a, const void *b,
                      void *result, void *scratch)
{
    const float one = 1, zero = 0;
    switch (p->conv.direction) {
    case SY_MATH_DATA:
        SY_CUDNN(math,
                 cudnnConvolutionBackwardData(math->cudnn, &one, p->w, b, p->y, a, p->window,
                                              (cudnnConvolutionBwdDataAlgo_t)p->algo, scratch,
                                              SY_MATH_BACK_SCRATCH_BYTES, &zero, p->x, result));
        return SY_OK;
    case SY_MATH_WEIGHTS:
        SY_CUDNN(math,
                 cudnnConvolutionBackwardFilter(math->cudnn, &one, p->x, a, p->y, b, p->window,
                                                (cudnnConvolutionBwdFilterAlgo_t)p->algo, scratch,
                                                SY_MATH_BACK_SCRATCH_BYTES, &zero, p->w, result));
        return SY_OK;
    default:
        SY_CUDNN(math,
                 cudnnConvolutionForward(math->cudnn, &one, p->x, a, p->w, b, p->window,
                                         (cudnnConvolutionFwdAlgo_t)p->algo, scratch,
                                         sy_math_conv_scratch(&p->conv), &zero, p->y, result));
        return SY_OK;
    }
}

/* Convolutions: by cuDNN, by cuBLASLt where the window is one element, by our own kernel. Which is the fastest is tried once per
 * description; what one of them does not have, another does. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_device.h"
#include "workers/cuda/kernels/kernels.h"
#include "workers/cuda/library/math_internal.h"

#define BATCH_WORD      1 /* of the key */
#define DIRECT_CHANNELS 8 /* in a group, up to which our kernel is worth a trial */

static void make_key(const struct sy_math_conv *c, int64_t *key)
{
    float floats[2] = {c->act_alpha, c->act_beta};
    int64_t all[SY_MATH_KEY] = {c->spatial, c->batch,    c->in_channels,  c->out_channels,
                                c->groups,  c->has_bias, c->has_residual, (int64_t)c->activation};
    for (int i = 0; i < SY_MATH_SPATIAL; i++) {
        int64_t *at = &all[8 + i * 7];
        memcpy(at,
               (int64_t[]){c->in[i], c->out[i], c->kernel[i], c->strides[i], c->dilations[i],
                           c->pads[i], 0},
               7 * sizeof *at);
    }
    memcpy(&all[SY_MATH_KEY - 1], floats, sizeof floats);
    all[SY_MATH_KEY - 2] = (int64_t)c->direction;
    all[SY_MATH_KEY - 3] = sy_math_is_narrow(c->type) ? (int64_t)c->type : 0;
    all[SY_MATH_KEY - 4] = sy_math_is_narrow(c->bias_type);
    all[8 + 6] = c->wide_scratch; /* not used by the dimension's words */
    memcpy(key, all, sizeof all);
}

/* ---- descriptions ------------------------------------------------------------------------------------- */

static bool fits_int(const struct sy_math_conv *c)
{
    int64_t x = c->batch * c->in_channels, y = c->batch * c->out_channels;
    for (int i = 0; i < SY_MATH_SPATIAL; i++) {
        x *= c->in[i];
        y *= c->out[i];
    }
    return x <= INT32_MAX && y <= INT32_MAX;
}

static cudnnDataType_t data_type(enum sy_dtype type)
{
    return type == SY_DTYPE_F16    ? CUDNN_DATA_HALF
           : type == SY_DTYPE_BF16 ? CUDNN_DATA_BFLOAT16
                                   : CUDNN_DATA_FLOAT;
}

static cudnnDataType_t type_of(const struct sy_math_conv *c)
{
    return data_type(c->type);
}

static int make_tensor(struct sy_math *math, const struct sy_math_conv *c, int64_t channels,
                       const int64_t *spatial, cudnnTensorDescriptor_t *out)
{
    int dims[2 + SY_MATH_SPATIAL] = {(int)c->batch, (int)channels};
    for (int i = 0; i < c->spatial; i++)
        dims[2 + i] = (int)spatial[i];
    SY_CUDNN(math, cudnnCreateTensorDescriptor(out));
    if (c->spatial == 2)
        SY_CUDNN(math, cudnnSetTensor4dDescriptor(*out, CUDNN_TENSOR_NHWC, type_of(c), dims[0],
                                                  dims[1], dims[2], dims[3]));
    else
        SY_CUDNN(math, cudnnSetTensorNdDescriptorEx(*out, CUDNN_TENSOR_NHWC, type_of(c),
                                                    c->spatial + 2, dims));
    return SY_OK;
}

static int make_filter(struct sy_math *math, const struct sy_math_conv *c,
                       cudnnFilterDescriptor_t *out)
{
    int dims[2 + SY_MATH_SPATIAL] = {(int)c->out_channels, (int)(c->in_channels / c->groups)};
    for (int i = 0; i < c->spatial; i++)
        dims[2 + i] = (int)c->kernel[i];
    SY_CUDNN(math, cudnnCreateFilterDescriptor(out));
    if (c->spatial == 2)
        SY_CUDNN(math, cudnnSetFilter4dDescriptor(*out, type_of(c), CUDNN_TENSOR_NHWC, dims[0],
                                                  dims[1], dims[2], dims[3]));
    else
        SY_CUDNN(math, cudnnSetFilterNdDescriptor(*out, type_of(c), CUDNN_TENSOR_NHWC,
                                                  c->spatial + 2, dims));
    return SY_OK;
}

static int make_window(struct sy_math *math, const struct sy_math_conv *c,
                       cudnnConvolutionDescriptor_t *out)
{
    int pads[SY_MATH_SPATIAL], strides[SY_MATH_SPATIAL], dilations[SY_MATH_SPATIAL];
    for (int i = 0; i < c->spatial; i++) {
        pads[i] = (int)c->pads[i];
        strides[i] = (int)c->strides[i];
        dilations[i] = (int)c->dilations[i];
    }
    SY_CUDNN(math, cudnnCreateConvolutionDescriptor(out));
    SY_CUDNN(math, cudnnSetConvolutionNdDescriptor(*out, c->spatial, pads, strides, dilations,
                                                   CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    SY_CUDNN(math, cudnnSetConvolutionGroupCount(*out, (int)c->groups));
    /* The default math would take TF32 unasked; narrow numbers take the tensor cores, which lose nothing of them. */
    bool tensor_cores = math->tf32 || sy_math_is_narrow(c->type);
    SY_CUDNN(math,
             cudnnSetConvolutionMathType(*out, tensor_cores ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH));
    return SY_OK;
}

static int make_descriptions(struct sy_math *math, struct sy_math_plan *p)
{
    const struct sy_math_conv *c = &p->conv;
    int bias_dims[2 + SY_MATH_SPATIAL] = {1, (int)c->out_channels, 1, 1, 1};
    SY_TRY(make_tensor(math, c, c->in_channels, c->in, &p->x));
    SY_TRY(make_tensor(math, c, c->out_channels, c->out, &p->y));
    SY_TRY(make_filter(math, c, &p->w));
    SY_TRY(make_window(math, c, &p->window));
    SY_CUDNN(math, cudnnCreateTensorDescriptor(&p->bias));
    SY_CUDNN(math, cudnnSetTensorNdDescriptorEx(p->bias, CUDNN_TENSOR_NHWC, data_type(c->bias_type),
                                                c->spatial + 2, bias_dims));
    SY_CUDNN(math, cudnnCreateActivationDescriptor(&p->activation));
    SY_CUDNN(math,
             cudnnSetActivationDescriptor(p->activation,
                                          c->activation == SY_ACT_RELU ? CUDNN_ACTIVATION_RELU
                                                                       : CUDNN_ACTIVATION_IDENTITY,
                                          CUDNN_NOT_PROPAGATE_NAN, 0));
    return SY_OK;
}

/* ---- running ------------------------------------------------------------------------------------------ */

static int run_fused(struct sy_math *math, struct sy_math_plan *p, const void *x, const void *w,
                     const void *bias, const void *residual, void *y, void *scratch)
{
    const float one = 1, of_residual = residual ? 1 : 0;
    SY_CUDNN(math,
             cudnnConvolutionBiasActivationForward(
                 math->cudnn, &one, p->x, x, p->w, w, p->window, (cudnnConvolutionFwdAlgo_t)p->algo,
                 scratch, sy_math_conv_scratch(&p->conv), &of_residual, p->y,
                 residual ? residual : y, p->bias, bias, p->activation, p->y, y));
    return SY_OK;
}

/* Bias, residual, activation over the convolution's result. */
static int run_epilogue(struct sy_math *math, const struct sy_math_conv *c, const void *bias,
                        const void *residual, void *y)
{
    static const int32_t codes[] = {[SY_ACT_RELU] = SY_CHAIN_LEAKY,
                                    [SY_ACT_GELU_ERF] = SY_CHAIN_GELU_ERF,
                                    [SY_ACT_TANH] = SY_CHAIN_TANH,
                                    [SY_ACT_SIGMOID] = SY_CHAIN_SIGMOID,
                                    [SY_ACT_CLIP] = SY_CHAIN_CLIP};
    int64_t rows = c->batch * c->out[0] * c->out[1] * c->out[2], n = c->out_channels;
    bool clip = c->activation == SY_ACT_CLIP;
    struct sy_math_chain chain = {.dtype = SY_DTYPE_F32,
                                  .rank = 2,
                                  .n_inputs = 3,
                                  .in_types = {c->type, c->bias_type, c->type},
                                  .out_type = c->type,
                                  .dims = {rows, n},
                                  .out_strides = {n, 1},
                                  .in_strides = {{n, 1}, {0, 1}, {n, 1}}};
    chain.steps[chain.n_steps++] = (struct sy_math_chain_step){SY_CHAIN_LOAD, 0, 0, 0};
    if (bias)
        chain.steps[chain.n_steps++] = (struct sy_math_chain_step){SY_CHAIN_ADD, 1, 0, 0};
    if (residual)
        chain.steps[chain.n_steps++] = (struct sy_math_chain_step){SY_CHAIN_ADD, 2, 0, 0};
    if (c->activation != SY_ACT_NONE)
        chain.steps[chain.n_steps++] = (struct sy_math_chain_step){
            codes[c->activation], 0, clip ? c->act_alpha : 0, clip ? c->act_beta : 0};
    if (chain.n_steps == 1)
        return SY_OK;
    return sy_math_chain_run(math, &chain, (const void *[]){y, bias, residual}, y);
}

int sy_math_conv_run(struct sy_math *math, struct sy_math_plan *p, const void *a, const void *b,
                     const void *bias, const void *residual, void *y, void *scratch)
{
    bool swaps = p->conv.direction == SY_MATH_WEIGHTS; /* as a product: dy', x */
    switch (p->way) {
    case SY_WAY_FUSED:
        return run_fused(math, p, a, b, bias, residual, y, scratch);
    case SY_WAY_CUDNN:
        SY_TRY(sy_math_cudnn_run(math, p, a, b, y, scratch));
        return run_epilogue(math, &p->conv, bias, residual, y);
    case SY_WAY_GEMM:
        return sy_math_matmul_run(math, p->gemm, swaps ? b : a, swaps ? a : b, bias, residual, y,
                                  scratch);
    case SY_WAY_COLUMNS:
        return sy_math_columns_run(math, p, a, b, bias, y, scratch);
    default:
        return sy_math_cuda_check(
            math, (cudaError_t)sy_kernel_conv(math->stream, &p->conv, a, b, bias, residual, y),
            "the convolution kernel");
    }
}

/* ---- choosing ----------------------------------------------------------------------------------------- */

static int run_trial(void *arg)
{
    struct sy_math_trial *t = arg;
    const struct sy_math_conv *c = &t->plan->conv;
    unsigned char *roles[][3] = {[SY_MATH_FORWARD] = {t->x, t->w, t->y},
                                 [SY_MATH_DATA] = {t->y, t->w, t->x},
                                 [SY_MATH_WEIGHTS] = {t->x, t->y, t->w}};
    unsigned char **at = roles[c->direction];
    return sy_math_conv_run(t->math, t->plan, at[0], at[1], c->has_bias ? t->bias : NULL,
                            c->has_residual ? t->residual : NULL, at[2], t->scratch);
}

/* Takes `way` if it runs, and faster than what there is. */
static int consider(struct sy_math_trial *t, enum sy_math_way way)
{
    enum sy_math_way best = t->plan->way;
    float ms;
    t->plan->way = way;
    int status = sy_math_time(t->math, run_trial, t, &ms);
    if (status == SY_OK && (t->plan->best_ms < 0 || ms < t->plan->best_ms))
        t->plan->best_ms = ms;
    else
        t->plan->way = best;
    return sy_cuda_device_failed(t->math->device); /* then nothing else will work */
}

/* What cuDNN fuses: a bias with relu; with nothing behind it for one algorithm only. The bias must be of the tensors' type. */
static bool can_fuse(const struct sy_math_plan *p)
{
    const struct sy_math_conv *c = &p->conv;
    return c->direction == SY_MATH_FORWARD && c->has_bias &&
           sy_math_is_narrow(c->type) == sy_math_is_narrow(c->bias_type) &&
           (c->activation == SY_ACT_RELU ||
            (c->activation == SY_ACT_NONE &&
             p->algo == (int)CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM));
}

static bool is_product(const struct sy_math_conv *c)
{
    for (int i = 0; i < SY_MATH_SPATIAL; i++)
        if (c->kernel[i] != 1 || c->strides[i] != 1 || c->pads[i] != 0)
            return false;
    return c->groups == 1;
}

static int make_gemm(struct sy_math *math, struct sy_math_plan *p)
{
    const struct sy_math_conv *c = &p->conv;
    struct sy_math_matmul m = {.type = c->type,
                               .y_type = c->type,
                               .bias_type = c->bias_type,
                               .m = c->batch * c->out[0] * c->out[1] * c->out[2],
                               .n = c->out_channels,
                               .k = c->in_channels,
                               .count = 1,
                               .b_transposed = true,
                               .has_bias = c->has_bias,
                               .alpha = 1,
                               .beta = c->has_residual,
                               .activation = c->activation,
                               .act_alpha = c->act_alpha,
                               .act_beta = c->act_beta,
                               .align_bytes = 16};
    if (c->direction == SY_MATH_DATA) { /* dx[rows, in] = dy[rows, out] w[out, in] */
        m.n = c->in_channels;
        m.k = c->out_channels;
        m.b_transposed = false;
    } else if (c->direction == SY_MATH_WEIGHTS) { /* dw[out, in] = dy'[out, rows] x[rows, in] */
        m.m = c->out_channels;
        m.n = c->in_channels;
        m.k = c->batch * c->out[0] * c->out[1] * c->out[2];
        m.a_transposed = true;
        m.b_transposed = false;
    }
    return sy_math_matmul_plan(math, &m, &p->gemm);
}

/* Times what there is; without memory for it, products where there are some, else what cuDNN thinks best. */
static int choose(struct sy_math_trial *t, bool has_algo)
{
    struct sy_math_plan *p = t->plan;
    const struct sy_math_conv *c = &p->conv;
    p->way = p->gemm              ? SY_WAY_GEMM
             : p->columns_product ? SY_WAY_COLUMNS
             : has_algo           ? SY_WAY_CUDNN
                                  : SY_WAY_DIRECT;
    p->best_ms = -1;
    if (!t->x)
        return SY_OK;
    if (p->gemm)
        SY_TRY(consider(t, SY_WAY_GEMM));
    if (p->columns_product)
        SY_TRY(consider(t, SY_WAY_COLUMNS));
    if (has_algo)
        SY_TRY(consider(t, SY_WAY_CUDNN));
    if (has_algo && can_fuse(p))
        SY_TRY(consider(t, SY_WAY_FUSED));
    if (p->best_ms < 0 || c->in_channels / c->groups <= DIRECT_CHANNELS)
        SY_TRY(consider(t, SY_WAY_DIRECT));
    return p->best_ms < 0 ? sy_error_set(SY_EUNSUPPORTED,
                                         "no way to convolve %lld into %lld channels worked: %s",
                                         (long long)c->in_channels, (long long)c->out_channels,
                                         sy_error_text())
                          : SY_OK;
}

/* Takes the choice that was measured, if it also works for this plan. */
static bool take_chosen(struct sy_math *math, struct sy_math_plan *p, bool described)
{
    const struct sy_choice *chosen = sy_math_chosen(math, p->key, BATCH_WORD);
    if (!chosen)
        return false;
    p->way = (enum sy_math_way)chosen->way;
    p->algo = chosen->algo;
    p->math_type = (cudnnMathType_t)chosen->math_type;
    switch (p->way) {
    case SY_WAY_FUSED:
        return described && can_fuse(p) && sy_math_cudnn_fits(math, p);
    case SY_WAY_CUDNN:
        return described && sy_math_cudnn_fits(math, p);
    case SY_WAY_GEMM:
        return p->gemm != NULL;
    case SY_WAY_COLUMNS:
        return p->columns_product != NULL;
    case SY_WAY_DIRECT:
        return true;
    default:
        return false;
    }
}

static uint64_t floats(int64_t n)
{
    return SY_ALIGN_UP((uint64_t)n * sizeof(float), 256u);
}

/* Without one no algorithm can be timed. */
static void take_memory(struct sy_math_trial *t)
{
    const struct sy_math_conv *c = &t->plan->conv;
    int64_t in = c->in[0] * c->in[1] * c->in[2], out = c->out[0] * c->out[1] * c->out[2];
    uint64_t x = floats(c->batch * c->in_channels * in),
             y = floats(c->batch * c->out_channels * out),
             w = floats(c->out_channels * c->in_channels / c->groups * c->kernel[0] * c->kernel[1] *
                        c->kernel[2]),
             bias = floats(c->out_channels);
    if (!sy_math_trial_take(t->math, x + w + bias + 2 * y + sy_math_conv_scratch(c), &t->x))
        return;
    t->w = t->x + x;
    t->bias = t->w + w;
    t->y = t->bias + bias;
    t->residual = t->y + y;
    t->scratch = t->residual + y;
}

/* The plan's first run, if none like it has run yet; what does not work is our own kernel's. By what chooses a kernel: sizes of a batch and
 * of a picture are not among it, so that a new batch size costs nothing. */
static int try_out(struct sy_math_trial *t)
{
    struct sy_math_plan *p = t->plan;
    const struct sy_math_conv *c = &p->conv;
    const int64_t words[] = {(int64_t)p->way,       p->algo,          (int64_t)p->math_type,
                             (int64_t)c->direction, (int64_t)c->type, c->groups > 1,
                             c->in_channels,        c->out_channels,  c->kernel[0],
                             c->kernel[1],          c->kernel[2],     c->strides[0],
                             c->strides[1],         c->strides[2]};
    enum sy_math_warmth warmth = p->way == SY_WAY_DIRECT
                                     ? SY_MATH_WARM
                                     : sy_math_warmth(t->math, words, SY_ARRAY_LEN(words));
    if (warmth == SY_MATH_COLD) {
        take_memory(t);
        if (!t->x || sy_math_warm(t->math, run_trial, t) == SY_OK)
            return SY_OK;
        SY_TRY(sy_cuda_device_failed(t->math->device)); /* then nothing else will work */
        sy_math_note_failure(t->math, words, SY_ARRAY_LEN(words));
    }
    if (warmth != SY_MATH_WARM)
        p->way = SY_WAY_DIRECT;
    return SY_OK;
}

static int prepare(struct sy_math *math, struct sy_math_plan *p)
{
    const struct sy_math_conv *c = &p->conv;
    struct sy_math_trial t = {.math = math, .plan = p};
    bool described = fits_int(c) && make_descriptions(math, p) == SY_OK; /* else by other ways */
    SY_TRY(sy_cuda_device_failed(math->device));
    if (is_product(c) && make_gemm(math, p) < 0) {
        SY_TRY(sy_cuda_device_failed(math->device));
        p->gemm = NULL; /* by another way */
    }
    if (!p->gemm && sy_math_columns_plan(math, p) < 0)
        SY_TRY(sy_cuda_device_failed(math->device)); /* by another way */
    if (math->tune)
        take_memory(&t);
    int status = SY_OK;
    if (math->tune || !take_chosen(math, p, described))
        status = choose(&t, described && sy_math_cudnn_find(&t));
    if (status == SY_OK && !math->tune)
        status = try_out(&t);
    sy_math_trial_drop(math, t.x);
    sy_log_debug("cuda", "event=conv_plan in=%lld out=%lld area=%lld way=%d algo=%d us=%.1f",
                 (long long)c->in_channels, (long long)c->out_channels,
                 (long long)(c->out[0] * c->out[1] * c->out[2]), (int)p->way, p->algo,
                 (double)p->best_ms * 1e3);
    SY_TRY(status);
    struct sy_choice choice = {
        .way = (int32_t)p->way, .algo = p->algo, .math_type = (int32_t)p->math_type};
    return math->tune ? sy_math_choose(math, p->key, BATCH_WORD, &choice) : SY_OK;
}

int sy_math_conv_plan(struct sy_math *math, const struct sy_math_conv *conv,
                      struct sy_math_plan **out)
{
    int64_t key[SY_MATH_KEY];
    make_key(conv, key);
    *out = sy_math_find(math, key);
    if (*out)
        return SY_OK;
    struct sy_math_plan *p = calloc(1, sizeof *p);
    SY_TRY_ALLOC(p, "no memory for a convolution's plan");
    memcpy(p->key, key, sizeof key);
    p->conv = *conv;
    int status = prepare(math, p);
    sy_math_forget_errors();
    if (status < 0) {
        sy_math_conv_finish(p);
        free(p);
        return status;
    }
    sy_math_keep(math, p);
    *out = p;
    return SY_OK;
}

void sy_math_conv_finish(struct sy_math_plan *p)
{
    if (p->x)
        cudnnDestroyTensorDescriptor(p->x);
    if (p->y)
        cudnnDestroyTensorDescriptor(p->y);
    if (p->bias)
        cudnnDestroyTensorDescriptor(p->bias);
    if (p->w)
        cudnnDestroyFilterDescriptor(p->w);
    if (p->window)
        cudnnDestroyConvolutionDescriptor(p->window);
    if (p->activation)
        cudnnDestroyActivationDescriptor(p->activation);
}

/* Products, by cuBLASLt.
 *
 * cuBLASLt thinks in columns. The row-major y[m, n] = a[m, k] b[k, n] is, in columns, y'[n, m] = b'[n, k] a'[k, m] on the same bytes: so b
 * comes first, and the bias, one number for each of the result's rows there, is one for each of our columns. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_device.h"
#include "workers/cuda/library/math_internal.h"

#define MAX_TRIED  6
#define MAX_COUNT  32768 /* products in one call: a grid's third dimension ends at 65535 */
#define BATCH_WORD 1     /* of the key: rows */

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == SY_CHOICE_DATA, "an algorithm is copied whole");

static void make_key(const struct sy_math_matmul *m, int64_t *key)
{
    float floats[4] = {m->alpha, m->beta, m->act_alpha, m->act_beta};
    int64_t all[SY_MATH_KEY] = {-1, /* no convolution's */
                                m->m,
                                m->n,
                                m->k,
                                m->count,
                                m->a_stride,
                                m->b_stride,
                                m->y_stride,
                                m->a_transposed,
                                m->b_transposed,
                                m->has_bias,
                                (int64_t)m->activation,
                                m->align_bytes,
                                sy_math_is_narrow(m->type) ? (int64_t)m->type : 0,
                                sy_math_is_narrow(m->y_type) ? (int64_t)m->y_type : 0,
                                sy_math_is_narrow(m->bias_type)};
    memcpy(&all[SY_MATH_KEY - 2], floats, sizeof floats);
    memcpy(key, all, sizeof all);
}

/* ---- descriptions ------------------------------------------------------------------------------------- */

static cudaDataType_t type_of(enum sy_dtype type)
{
    return type == SY_DTYPE_F16 ? CUDA_R_16F : type == SY_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static int make_layout(struct sy_math *math, const struct sy_math_matmul *m, enum sy_dtype type,
                       int64_t rows, int64_t columns, int64_t stride, cublasLtMatrixLayout_t *out)
{
    int32_t count = (int32_t)SY_MIN(m->count, MAX_COUNT);
    SY_LT(math, cublasLtMatrixLayoutCreate(out, type_of(type), (uint64_t)rows, (uint64_t)columns,
                                           rows)); /* dense: a column after the other */
    if (count <= 1)
        return SY_OK;
    SY_LT(math, cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                 sizeof count));
    SY_LT(math, cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                 &stride, sizeof stride));
    return SY_OK;
}

static int make_product(struct sy_math *math, struct sy_math_plan *p)
{
    const struct sy_math_matmul *m = &p->matmul;
    cublasOperation_t left = m->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                      right = m->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    bool tf32 = math->tf32 && !sy_math_is_narrow(m->type);
    SY_LT(math, cublasLtMatmulDescCreate(&p->product,
                                         tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                         CUDA_R_32F));
    SY_LT(math, cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &left,
                                               sizeof left));
    SY_LT(math, cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSB, &right,
                                               sizeof right));
    SY_TRY(make_layout(math, m, m->type, m->b_transposed ? m->k : m->n,
                       m->b_transposed ? m->n : m->k, m->b_stride, &p->left));
    SY_TRY(make_layout(math, m, m->type, m->a_transposed ? m->m : m->k,
                       m->a_transposed ? m->k : m->m, m->a_stride, &p->right));
    return make_layout(math, m, m->y_type, m->n, m->m, m->y_stride, &p->result);
}

static int set_bias(struct sy_math *math, struct sy_math_plan *p, const void *bias)
{
    SY_LT(math, cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                               sizeof bias));
    return SY_OK;
}

/* What cuBLASLt does behind the product. Its gelu is the one by tanh, which is not ours. An activation needs the bias done before it, and
 * a bias must be of the result's type. */
static int set_epilogue(struct sy_math *math, struct sy_math_plan *p, bool fused)
{
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    fused = fused && (!p->matmul.has_bias || sy_math_is_narrow(p->matmul.y_type) ==
                                                 sy_math_is_narrow(p->matmul.bias_type));
    p->lt_bias = fused && p->matmul.has_bias;
    p->lt_relu = fused && p->matmul.activation == SY_ACT_RELU;
    if (p->lt_bias)
        epilogue = p->lt_relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    else if (p->lt_relu)
        epilogue = CUBLASLT_EPILOGUE_RELU;
    SY_LT(math, cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                               sizeof epilogue));
    /* Its alignment, of 64 bytes, is all that is looked at before the run. */
    return p->lt_bias ? set_bias(math, p, (const void *)(uintptr_t)64) : SY_OK;
}

/* ---- algorithms --------------------------------------------------------------------------------------- */

static int fill_preference(struct sy_math *math, const struct sy_math_plan *p,
                           cublasLtMatmulPreference_t preference)
{
    uint64_t scratch = SY_MATH_SCRATCH_BYTES;
    uint32_t align = (uint32_t)p->matmul.align_bytes;
    /* M3: not in place. Partial sums are added in float32, not rounded to the narrow result first. */
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (!sy_math_is_narrow(p->matmul.y_type))
        reductions |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    static const cublasLtMatmulPreferenceAttributes_t sides[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    SY_LT(math,
          cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &scratch, sizeof scratch));
    SY_LT(math, cublasLtMatmulPreferenceSetAttribute(preference,
                                                     CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                     &reductions, sizeof reductions));
    for (size_t i = 0; i < SY_ARRAY_LEN(sides); i++)
        SY_LT(math,
              cublasLtMatmulPreferenceSetAttribute(preference, sides[i], &align, sizeof align));
    return SY_OK;
}

/* *n 0: it has nothing for this. */
static int ask(struct sy_math *math, struct sy_math_plan *p,
               cublasLtMatmulHeuristicResult_t *results, int *n)
{
    cublasLtMatmulPreference_t preference;
    SY_LT(math, cublasLtMatmulPreferenceCreate(&preference));
    int status = fill_preference(math, p, preference), found = 0;
    cublasStatus_t answer = CUBLAS_STATUS_SUCCESS;
    if (status == SY_OK)
        answer = cublasLtMatmulAlgoGetHeuristic(math->lt, p->product, p->left, p->right, p->result,
                                                p->result, preference, MAX_TRIED, results, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    SY_TRY(status);
    /* How it refuses types or an epilogue that it does not have. */
    bool refused = answer == CUBLAS_STATUS_NOT_SUPPORTED || answer == CUBLAS_STATUS_INVALID_VALUE;
    if (!refused)
        SY_TRY(sy_math_lt_check(math, answer, "cublasLtMatmulAlgoGetHeuristic"));
    *n = 0;
    for (int i = 0; answer == CUBLAS_STATUS_SUCCESS && i < found; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS &&
            results[i].workspaceSize <= SY_MATH_SCRATCH_BYTES)
            results[(*n)++] = results[i];
    return SY_OK;
}

struct trial {
    struct sy_math *math;
    struct sy_math_plan *plan;
    const void *a, *b, *bias;
    void *y, *scratch;
};

static int run_trial(void *arg)
{
    struct trial *t = arg;
    return sy_math_matmul_run(t->math, t->plan, t->a, t->b,
                              t->plan->matmul.has_bias ? t->bias : NULL, t->y, t->y, t->scratch);
}

static uint64_t span_bytes(int64_t rows, int64_t columns, int64_t count, int64_t stride)
{
    return SY_ALIGN_UP((uint64_t)((count - 1) * stride + rows * columns) * sizeof(float), 256u);
}

/* Takes the choice that was measured, if it also works for this plan. way: whether bias and relu are fused. */
static bool take_chosen(struct sy_math *math, struct sy_math_plan *p)
{
    const struct sy_choice *chosen = sy_math_chosen(math, p->key, BATCH_WORD);
    cublasLtMatmulHeuristicResult_t result;
    if (!chosen || set_epilogue(math, p, chosen->way != 0) < 0)
        return false;
    memcpy(&p->lt_algo, chosen->data, sizeof p->lt_algo);
    return cublasLtMatmulAlgoCheck(math->lt, p->product, p->left, p->right, p->result, p->result,
                                   &p->lt_algo, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= SY_MATH_SCRATCH_BYTES;
}

static int keep_choice(struct sy_math *math, const struct sy_math_plan *p, bool fused)
{
    struct sy_choice choice = {.way = fused};
    memcpy(choice.data, &p->lt_algo, sizeof p->lt_algo);
    return sy_math_choose(math, p->key, BATCH_WORD, &choice);
}

/* The fastest while tuning, of what works; else the first, which is cuBLASLt's own choice, or what was chosen. */
static int measure(struct trial *t, const cublasLtMatmulHeuristicResult_t *results, int n)
{
    struct sy_math_plan *p = t->plan;
    int best = -1, status = SY_OK;
    for (int i = 0; i < n; i++) {
        float ms;
        p->lt_algo = results[i].algo;
        status = sy_math_time(t->math, run_trial, t, &ms);
        if (status == SY_OK && (best < 0 || ms < p->best_ms)) {
            best = i;
            p->best_ms = ms;
        }
    }
    if (best < 0)
        return status;
    p->lt_algo = results[best].algo;
    return SY_OK;
}

/* On trial memory, if there is any: n results to choose from while tuning; else the plan's first run, if none like it has run yet. */
static int try_out(struct sy_math *math, struct sy_math_plan *p,
                   const cublasLtMatmulHeuristicResult_t *results, int n)
{
    const struct sy_math_matmul *m = &p->matmul;
    uint64_t a = span_bytes(m->m, m->k, m->count, m->a_stride),
             b = span_bytes(m->k, m->n, m->count, m->b_stride),
             y = span_bytes(m->m, m->n, m->count, m->y_stride), bias = span_bytes(1, m->n, 1, 0);
    int64_t words[sizeof p->lt_algo / sizeof(int64_t) + 2] = {(int64_t)m->type, (int64_t)m->y_type};
    unsigned char *memory;
    p->best_ms = -1;
    memcpy(words + 2, &p->lt_algo, sizeof p->lt_algo);
    enum sy_math_warmth warmth =
        math->tune ? SY_MATH_COLD : sy_math_warmth(math, words, SY_ARRAY_LEN(words));
    if (warmth == SY_MATH_FAILED)
        return sy_error_set(SY_EUNSUPPORTED, "an algorithm of cuBLASLt's that did not run");
    if (warmth == SY_MATH_WARM)
        return SY_OK;
    if (!sy_math_trial_take(math, a + b + y + bias + SY_MATH_SCRATCH_BYTES, &memory))
        return SY_OK;
    struct trial t = {.math = math,
                      .plan = p,
                      .a = memory,
                      .b = memory + a,
                      .y = memory + a + b,
                      .bias = memory + a + b + y,
                      .scratch = memory + a + b + y + bias};
    int status = math->tune ? measure(&t, results, n) : sy_math_warm(math, run_trial, &t);
    sy_math_trial_drop(math, memory);
    if (status < 0 && !math->tune)
        sy_math_note_failure(math, words, SY_ARRAY_LEN(words));
    return status;
}

/* The first of them that runs: to have named an algorithm is no promise of cuBLASLt's that it does. While tuning the fastest. */
static int choose(struct sy_math *math, struct sy_math_plan *p,
                  const cublasLtMatmulHeuristicResult_t *results, int n)
{
    int status = SY_EUNSUPPORTED;
    for (int i = 0; i < (math->tune ? 1 : n) && status < 0; i++) {
        p->lt_algo = results[i].algo;
        status = try_out(math, p, results, n);
        SY_TRY(sy_cuda_device_failed(math->device));
    }
    return status;
}

static int prepare(struct sy_math *math, struct sy_math_plan *p)
{
    cublasLtMatmulHeuristicResult_t results[MAX_TRIED];
    int n = 0;
    if (p->matmul.k < 1 || p->matmul.m > INT32_MAX || p->matmul.n > INT32_MAX ||
        p->matmul.count > INT32_MAX)
        return sy_error_set(SY_EUNSUPPORTED, "a product of [%lld, %lld] by [%lld, %lld]",
                            (long long)p->matmul.m, (long long)p->matmul.k, (long long)p->matmul.k,
                            (long long)p->matmul.n);
    if (p->matmul.m * p->matmul.n * p->matmul.count == 0)
        return SY_OK;
    SY_TRY(make_product(math, p));
    if (!math->tune && take_chosen(math, p)) {
        if (try_out(math, p, NULL, 0) == SY_OK)
            return SY_OK;
        SY_TRY(sy_cuda_device_failed(math->device));
    }
    SY_TRY(set_epilogue(math, p, true));
    SY_TRY(ask(math, p, results, &n));
    bool fused = n > 0;
    if (n == 0) {
        SY_TRY(set_epilogue(math, p, false));
        SY_TRY(ask(math, p, results, &n));
    }
    if (n == 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "cuBLASLt has no algorithm for [%lld, %lld] by [%lld, %lld]",
                            (long long)p->matmul.m, (long long)p->matmul.k, (long long)p->matmul.k,
                            (long long)p->matmul.n);
    SY_TRY(choose(math, p, results, n));
    return math->tune ? keep_choice(math, p, fused) : SY_OK;
}

int sy_math_matmul_plan(struct sy_math *math, const struct sy_math_matmul *matmul,
                        struct sy_math_plan **out)
{
    int64_t key[SY_MATH_KEY];
    make_key(matmul, key);
    *out = sy_math_find(math, key);
    if (*out)
        return SY_OK;
    struct sy_math_plan *p = calloc(1, sizeof *p);
    SY_TRY_ALLOC(p, "no memory for a product's plan");
    memcpy(p->key, key, sizeof key);
    p->matmul = *matmul;
    p->way = SY_WAY_LT;
    int status = prepare(math, p);
    sy_math_forget_errors();
    if (status < 0) {
        sy_math_matmul_finish(p);
        free(p);
        return status;
    }
    sy_math_keep(math, p);
    *out = p;
    return SY_OK;
}

void sy_math_matmul_finish(struct sy_math_plan *p)
{
    if (p->left)
        cublasLtMatrixLayoutDestroy(p->left);
    if (p->right)
        cublasLtMatrixLayoutDestroy(p->right);
    if (p->result)
        cublasLtMatrixLayoutDestroy(p->result);
    if (p->product)
        cublasLtMatmulDescDestroy(p->product);
}

/* ---- running ------------------------------------------------------------------------------------------ */

static void add_activation(struct sy_math_chain *chain, const struct sy_math_matmul *m)
{
    static const int32_t codes[] = {[SY_ACT_RELU] = SY_CHAIN_LEAKY,
                                    [SY_ACT_GELU_ERF] = SY_CHAIN_GELU_ERF,
                                    [SY_ACT_TANH] = SY_CHAIN_TANH,
                                    [SY_ACT_SIGMOID] = SY_CHAIN_SIGMOID,
                                    [SY_ACT_CLIP] = SY_CHAIN_CLIP};
    bool clip = m->activation == SY_ACT_CLIP;
    if (m->activation != SY_ACT_NONE)
        chain->steps[chain->n_steps++] = (struct sy_math_chain_step){
            codes[m->activation], 0, clip ? m->act_alpha : 0, clip ? m->act_beta : 0};
}

static void describe_rows(const struct sy_math_matmul *m, struct sy_math_chain *chain)
{
    chain->rank = 2;
    chain->dims[0] = m->count * m->m;
    chain->dims[1] = m->n;
    chain->out_strides[0] = chain->in_strides[0][0] = m->n;
    chain->out_strides[1] = chain->in_strides[0][1] = 1;
    chain->in_strides[1][0] = 0;
    chain->in_strides[1][1] = 1;
}

/* What cuBLASLt did not do: bias and activation, over the result. */
static int run_epilogue(struct sy_math *math, const struct sy_math_plan *p, const void *bias,
                        void *y)
{
    const struct sy_math_matmul *m = &p->matmul;
    bool add = m->has_bias && !p->lt_bias;
    if (!add && (m->activation == SY_ACT_NONE || p->lt_relu))
        return SY_OK;
    struct sy_math_chain chain = {.dtype = SY_DTYPE_F32,
                                  .rank = 3,
                                  .n_inputs = add ? 2 : 1,
                                  .in_types = {m->y_type, m->bias_type},
                                  .out_type = m->y_type,
                                  .dims = {m->count, m->m, m->n},
                                  .out_strides = {m->y_stride, m->n, 1},
                                  .in_strides = {{m->y_stride, m->n, 1}, {0, 0, 1}}};
    if (m->count == 1 || m->y_stride == m->m * m->n) /* rows side by side are the fast case */
        describe_rows(m, &chain);
    chain.steps[chain.n_steps++] = (struct sy_math_chain_step){SY_CHAIN_LOAD, 0, 0, 0};
    if (add)
        chain.steps[chain.n_steps++] = (struct sy_math_chain_step){SY_CHAIN_ADD, 1, 0, 0};
    if (!p->lt_relu)
        add_activation(&chain, m);
    return sy_math_chain_run(math, &chain, (const void *[]){y, bias}, y);
}

static void *at(const void *matrix, enum sy_dtype type, int64_t elements)
{
    return (unsigned char *)(uintptr_t)matrix + elements * sy_math_float_bytes(type);
}

/* The last of several calls may be for fewer products; the algorithm does not depend on how many there are. */
static int set_count(struct sy_math *math, struct sy_math_plan *p, int32_t count)
{
    cublasLtMatrixLayout_t layouts[] = {p->left, p->right, p->result};
    for (size_t i = 0; i < SY_ARRAY_LEN(layouts); i++)
        SY_LT(math, cublasLtMatrixLayoutSetAttribute(layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                     &count, sizeof count));
    return SY_OK;
}

static int run_product(struct sy_math *math, struct sy_math_plan *p, const void *a, const void *b,
                       const void *c, void *y, void *scratch)
{
    const struct sy_math_matmul *m = &p->matmul;
    SY_LT(math, cublasLtMatmul(math->lt, p->product, &m->alpha, b, p->left, a, p->right, &m->beta,
                               c, p->result, y, p->result, &p->lt_algo, scratch,
                               SY_MATH_SCRATCH_BYTES, math->stream));
    return SY_OK;
}

int sy_math_matmul_run(struct sy_math *math, struct sy_math_plan *p, const void *a, const void *b,
                       const void *bias, const void *c, void *y, void *scratch)
{
    const struct sy_math_matmul *m = &p->matmul;
    if (m->m * m->n * m->count == 0)
        return SY_OK;
    if (p->lt_bias)
        SY_TRY(set_bias(math, p, bias));
    for (int64_t first = 0; first < m->count; first += MAX_COUNT) {
        if (m->count > MAX_COUNT)
            SY_TRY(set_count(math, p, (int32_t)SY_MIN(m->count - first, MAX_COUNT)));
        SY_TRY(run_product(math, p, at(a, m->type, first * m->a_stride),
                           at(b, m->type, first * m->b_stride),
                           at(m->beta != 0 ? c : y, m->y_type, first * m->y_stride),
                           at(y, m->y_type, first * m->y_stride), scratch));
    }
    return run_epilogue(math, p, bias, y);
}

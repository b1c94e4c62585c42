#include "workers/cuda/math/generic.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/math/generic_forms.h"
#include "workers/host/reference/kernel.h"

struct form {
    enum sy_op op;
    enum sy_generic_kind kind;
    sy_generic_fill_fn *fill;
    int64_t axis; /* without the attribute */
};

#define ONE(op)                                            \
    {                                                      \
        SY_OP_##op, SY_GENERIC_ONE, sy_generic_fill_one, 0 \
    }
#define PAIR(op)                                             \
    {                                                        \
        SY_OP_##op, SY_GENERIC_PAIR, sy_generic_fill_pair, 0 \
    }
#define REDUCTION(op)                                                  \
    {                                                                  \
        SY_OP_##op, SY_GENERIC_REDUCTION, sy_generic_fill_reduction, 0 \
    }
#define WINDOW(op, kind)                                         \
    {                                                            \
        SY_OP_##op, SY_GENERIC_##kind, sy_generic_fill_window, 0 \
    }
static const struct form forms[] = {
    ONE(RELU),
    ONE(LEAKY_RELU),
    ONE(SIGMOID),
    ONE(TANH),
    ONE(ERF),
    ONE(CLIP),
    ONE(HARD_SIGMOID),
    ONE(HARD_SWISH),
    ONE(ELU),
    ONE(EXP),
    ONE(LOG),
    ONE(SQRT),
    ONE(NEG),
    ONE(ABS),
    ONE(RECIPROCAL),
    ONE(GELU),
    ONE(CELU),
    ONE(SELU),
    ONE(SOFTPLUS),
    ONE(SOFTSIGN),
    ONE(MISH),
    ONE(SHRINK),
    ONE(THRESHOLDED_RELU),
    ONE(SIN),
    ONE(COS),
    ONE(TAN),
    ONE(ASIN),
    ONE(ACOS),
    ONE(ATAN),
    ONE(SINH),
    ONE(COSH),
    ONE(ASINH),
    ONE(ACOSH),
    ONE(ATANH),
    ONE(FLOOR),
    ONE(CEIL),
    ONE(ROUND),
    ONE(SIGN),
    ONE(NOT),
    ONE(BITWISE_NOT),
    ONE(IS_NAN),
    ONE(IS_INF),
    ONE(CAST),
    PAIR(ADD),
    PAIR(SUB),
    PAIR(MUL),
    PAIR(DIV),
    PAIR(POW),
    PAIR(MIN),
    PAIR(MAX),
    PAIR(SUM),
    PAIR(MEAN),
    PAIR(MOD),
    PAIR(PRELU),
    PAIR(EQUAL),
    PAIR(GREATER),
    PAIR(GREATER_OR_EQUAL),
    PAIR(LESS),
    PAIR(LESS_OR_EQUAL),
    PAIR(AND),
    PAIR(OR),
    PAIR(XOR),
    PAIR(BITWISE_AND),
    PAIR(BITWISE_OR),
    PAIR(BITWISE_XOR),
    PAIR(BIT_SHIFT),
    {SY_OP_WHERE, SY_GENERIC_WHERE, sy_generic_fill_where, 0},
    {SY_OP_RUN_CLIP, SY_GENERIC_BOUND, NULL, 0},
    {SY_OP_EYE_LIKE, SY_GENERIC_FILL, sy_generic_fill_fill, 0},
    {SY_OP_DROPOUT, SY_GENERIC_FILL, sy_generic_fill_fill, 0},
    {SY_OP_TRILU, SY_GENERIC_TRIANGLE, sy_generic_fill_triangle, 0},
    {SY_OP_RANGE, SY_GENERIC_RANGE, NULL, 0},
    {SY_OP_ONE_HOT, SY_GENERIC_ONE_HOT, NULL, -1},
    {SY_OP_REVERSE_SEQUENCE, SY_GENERIC_REVERSE, sy_generic_fill_reverse, 0},
    {SY_OP_RANDOM_NORMAL_LIKE, SY_GENERIC_RANDOM, sy_generic_fill_random, 0},
    {SY_OP_RANDOM_UNIFORM_LIKE, SY_GENERIC_RANDOM, sy_generic_fill_random, 0},
    {SY_OP_PAD, SY_GENERIC_PAD, sy_generic_fill_pad, 0},
    {SY_OP_CUM_SUM, SY_GENERIC_RUNNING_SUM, sy_generic_fill_running_sum, 0},
    {SY_OP_TOP_K, SY_GENERIC_TOP, sy_generic_fill_top, -1},
    {SY_OP_GATHER_ELEMENTS, SY_GENERIC_GATHER_ALONG, NULL, 0},
    {SY_OP_GATHER_ND, SY_GENERIC_GATHER_TUPLES, sy_generic_fill_gather_tuples, 0},
    {SY_OP_SCATTER_ELEMENTS, SY_GENERIC_SCATTER_ALONG, sy_generic_fill_scatter_along, 0},
    {SY_OP_SCATTER_ND, SY_GENERIC_SCATTER_TUPLES, sy_generic_fill_scatter_tuples, 0},
    {SY_OP_HARDMAX, SY_GENERIC_LINE, sy_generic_fill_line, -1},
    {SY_OP_LP_NORM, SY_GENERIC_LINE, sy_generic_fill_line, -1},
    {SY_OP_SOFTMAX, SY_GENERIC_LINE, sy_generic_fill_line, -1},
    {SY_OP_LOG_SOFTMAX, SY_GENERIC_LINE, sy_generic_fill_line, -1},
    {SY_OP_ARG_MAX, SY_GENERIC_ARG, sy_generic_fill_line, -1},
    {SY_OP_ARG_MIN, SY_GENERIC_ARG, sy_generic_fill_line, -1},
    REDUCTION(REDUCE_MEAN),
    REDUCTION(REDUCE_SUM),
    REDUCTION(REDUCE_MAX),
    REDUCTION(REDUCE_MIN),
    REDUCTION(REDUCE_PROD),
    REDUCTION(REDUCE_L1),
    REDUCTION(REDUCE_L2),
    REDUCTION(REDUCE_LOG_SUM),
    REDUCTION(REDUCE_LOG_SUM_EXP),
    REDUCTION(REDUCE_SUM_SQUARE),
    REDUCTION(MEAN_VARIANCE_NORM),
    {SY_OP_BATCH_NORM, SY_GENERIC_BATCH, sy_generic_fill_batch, 0},
    {SY_OP_LAYER_NORM, SY_GENERIC_NORM, sy_generic_fill_norm, -1},
    {SY_OP_LRN, SY_GENERIC_NEIGHBOURS, sy_generic_fill_neighbours, 0},
    {SY_OP_RESIZE, SY_GENERIC_RESIZE, sy_generic_fill_resize, 0},
    {SY_OP_EINSUM, SY_GENERIC_PRODUCT, sy_generic_fill_einsum, 0},
    {SY_OP_MATMUL, SY_GENERIC_PRODUCT, sy_generic_fill_matmul, 0},
    {SY_OP_MATMUL_INTEGER, SY_GENERIC_INTEGER_PRODUCT, sy_generic_fill_matmul, 0},
    {SY_OP_QLINEAR_MATMUL, SY_GENERIC_INTEGER_PRODUCT, sy_generic_fill_matmul, 0},
    {SY_OP_QUANTIZE_LINEAR, SY_GENERIC_QUANTIZE, sy_generic_fill_quantize, 1},
    {SY_OP_DEQUANTIZE_LINEAR, SY_GENERIC_QUANTIZE, sy_generic_fill_quantize, 1},
    {SY_OP_DYNAMIC_QUANTIZE_LINEAR, SY_GENERIC_DYNAMIC, sy_generic_fill_dynamic, 0},
    {SY_OP_NLL_LOSS, SY_GENERIC_LOSS, sy_generic_fill_loss, 0},
    {SY_OP_SOFTMAX_LOSS, SY_GENERIC_LOSS, sy_generic_fill_loss, 0},
    WINDOW(CONV_INTEGER, INTEGER_CONV),
    WINDOW(QLINEAR_CONV, INTEGER_CONV),
    WINDOW(MAX_POOL, WINDOW),
    WINDOW(GLOBAL_MAX_POOL, WINDOW),
    WINDOW(AVERAGE_POOL, WINDOW),
    WINDOW(GLOBAL_AVERAGE_POOL, WINDOW),
    WINDOW(LP_POOL, WINDOW),
    WINDOW(GLOBAL_LP_POOL, WINDOW),
    {SY_OP_GRID_SAMPLE, SY_GENERIC_SAMPLE, sy_generic_fill_sample, 0},
    {SY_OP_ROI_ALIGN, SY_GENERIC_REGION, sy_generic_fill_region, 0},
    {SY_OP_MAX_ROI_POOL, SY_GENERIC_PIXEL_REGION, sy_generic_fill_pixel_region, 0},
    {SY_OP_MAX_UNPOOL, SY_GENERIC_UNPOOL, sy_generic_fill_unpool, 0},
    {SY_OP_RUN_RESHAPE, SY_GENERIC_VIEW, sy_generic_fill_view, 0},
    {SY_OP_RUN_SQUEEZE, SY_GENERIC_VIEW, sy_generic_fill_view, 0},
    {SY_OP_RUN_UNSQUEEZE, SY_GENERIC_VIEW, sy_generic_fill_view, 0},
    {SY_OP_RUN_EXPAND, SY_GENERIC_EXPAND, sy_generic_fill_expand, 0},
    {SY_OP_TILE, SY_GENERIC_TILE, sy_generic_fill_tile, 0},
    {SY_OP_RUN_SLICE, SY_GENERIC_SLICE, sy_generic_fill_slice, 0},
    {SY_OP_RUN_SPLIT, SY_GENERIC_SPLIT, sy_generic_fill_split, 0},
    {SY_OP_RUN_PAD, SY_GENERIC_PAD, sy_generic_fill_run_pad, 0},
    {SY_OP_NON_ZERO, SY_GENERIC_NON_ZERO, sy_generic_fill_non_zero, 0},
    {SY_OP_COMPRESS, SY_GENERIC_COMPRESS, sy_generic_fill_compress, 0},
    {SY_OP_UNIQUE, SY_GENERIC_UNIQUE, sy_generic_fill_unique, 0},
    {SY_OP_NON_MAX_SUPPRESSION, SY_GENERIC_SUPPRESS, sy_generic_fill_suppress, 0},
    {SY_OP_HANN_WINDOW, SY_GENERIC_TAPER, sy_generic_fill_taper, 0},
    {SY_OP_HAMMING_WINDOW, SY_GENERIC_TAPER, sy_generic_fill_taper, 0},
    {SY_OP_BLACKMAN_WINDOW, SY_GENERIC_TAPER, sy_generic_fill_taper, 0},
    {SY_OP_DFT, SY_GENERIC_DFT, sy_generic_fill_dft, 1},
    {SY_OP_DET, SY_GENERIC_DET, sy_generic_fill_det, 0},
};

/* Types that the kernels load and store; the others are the host's. */
#define SY_ON_DEVICE                                                                     \
    (SY_ANY_FLOAT | SY_BIT(I64) | SY_BIT(I32) | SY_BIT(I16) | SY_BIT(I8) | SY_BIT(U32) | \
     SY_BIT(U16) | SY_BIT(U8) | SY_BIT(BOOL))

/* The host kernel's own checks of types and shapes. */
static int check(const struct sy_node *node, const struct sy_math_generic *e)
{
    const struct sy_kernel *kernel = sy_kernel_find(node->op);
    struct sy_call call = {.node = node, .n_in = e->n_in, .n_out = e->n_out};
    if (!kernel)
        return sy_generic_refuse(node, "no formula");
    for (int i = 0; i < SY_GENERIC_ROOM; i++) {
        const struct sy_generic_array *from = &e->at[i];
        struct sy_array *to = i < SY_GENERIC_IN ? &call.in[i] : &call.out[i - SY_GENERIC_IN];
        *to = (struct sy_array){.dtype = from->dtype, .rank = from->rank, .n = from->n};
        memcpy(to->dims, from->dims, sizeof to->dims);
    }
    SY_TRY(sy_kernel_check_types(kernel, &call));
    unsigned types = SY_ON_DEVICE | (e->kind == SY_GENERIC_PAIR ? SY_BIT(U64) : 0);
    for (int i = 0; i < SY_GENERIC_ROOM; i++)
        if (e->at[i].dtype != SY_DTYPE_NONE && !(types >> e->at[i].dtype & 1))
            return sy_generic_refuse(node, sy_dtype_wire_name(e->at[i].dtype));
    return kernel->check ? kernel->check(&call) : SY_OK;
}

static const struct form *form_of(enum sy_op op)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(forms); i++)
        if (forms[i].op == op)
            return &forms[i];
    return NULL;
}

bool sy_generic_has(enum sy_op op)
{
    return form_of(op) != NULL;
}

static bool copies_first(enum sy_generic_kind kind, enum sy_op op)
{
    return kind == SY_GENERIC_SCATTER_ALONG || kind == SY_GENERIC_SCATTER_TUPLES ||
           op == SY_OP_DROPOUT;
}

static void set_own_strides(struct sy_generic_array *a)
{
    int64_t stride = 1;
    for (int i = a->rank - 1; i >= 0; i--) {
        a->strides[i] = stride;
        stride *= a->dims[i];
    }
    a->n = stride;
}

int sy_generic_check(const struct sy_node *node, struct sy_math_generic *e)
{
    e->op = node->op;
    for (int i = 0; i < SY_GENERIC_ARRAYS; i++)
        set_own_strides(&e->at[i]);
    return check(node, e);
}

int sy_generic_describe(const struct sy_node *node, struct sy_math_generic *e, bool *copies)
{
    const struct form *form = form_of(node->op);
    if (!form)
        return sy_generic_refuse(node, "no formula");
    if (node->activation != SY_ACT_NONE || node->residual_input >= 0 || node->bias_input >= 0)
        return sy_generic_refuse(node, "something fused to it");
    e->kind = form->kind;
    SY_TRY(sy_generic_check(node, e));
    int rank = e->at[node->op == SY_OP_ONE_HOT ? SY_GENERIC_IN : 0].rank;
    e->axis = sy_node_int(node, "axis", form->axis);
    e->axis += e->axis < 0 ? rank : 0;
    e->items = e->at[SY_GENERIC_IN].n;
    *copies = copies_first(e->kind, e->op);
    return form->fill ? form->fill(node, e) : SY_OK;
}

/* ONNX Runtime's own operators as its optimizer writes them: activations, products, normalisations, convolutions. */
#include <math.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- activations ------------------------------------------------------------------------------ */

static int x_plus_bias(struct sy_expand *e)
{
    int x = sy_expand_input(e, 0), bias = sy_expand_input(e, 1);
    return bias < 0 ? x : SY_EXPAND(e, ADD, x, bias);
}

/* Gelu and BiasGelu by erf; FastGelu by tanh. */
static int expand_gelu(struct sy_expand *e)
{
    int y = SY_EXPAND(e, GELU, x_plus_bias(e));
    if (e->node->op == SY_OP_MS_FAST_GELU)
        sy_expand_set_text(e, "approximate", "tanh");
    sy_expand_result(e, 0, y);
    return e->status;
}

/* x * sigmoid(alpha * x) */
static int expand_quick_gelu(struct sy_expand *e)
{
    int x = sy_expand_input(e, 0);
    double alpha = (double)sy_node_float(e->node, "alpha", 1.702f);
    int scaled = SY_EXPAND(e, MUL, x, sy_expand_number(e, sy_expand_dtype(e, 0), alpha));
    sy_expand_result(e, 0, SY_EXPAND(e, MUL, x, SY_EXPAND(e, SIGMOID, scaled)));
    return e->status;
}

/* The activation fused to a Conv or a Gemm; its parameters are in a list, or in attributes of their own. */
static int activated(struct sy_expand *e, int x, enum sy_dtype dtype)
{
    static const struct {
        const char *name;
        enum sy_op op;
        const char *numbers[2];
    } known[] = {{"Relu", SY_OP_RELU, {0}},
                 {"Sigmoid", SY_OP_SIGMOID, {0}},
                 {"Tanh", SY_OP_TANH, {0}},
                 {"LeakyRelu", SY_OP_LEAKY_RELU, {"alpha"}},
                 {"Elu", SY_OP_ELU, {"alpha"}},
                 {"Softplus", SY_OP_SOFTPLUS, {0}},
                 {"Softsign", SY_OP_SOFTSIGN, {0}},
                 {"HardSwish", SY_OP_HARD_SWISH, {0}},
                 {"ThresholdedRelu", SY_OP_THRESHOLDED_RELU, {"alpha"}},
                 {"HardSigmoid", SY_OP_HARD_SIGMOID, {"alpha", "beta"}}};
    const char *name = sy_infer_text(e->node, "activation", "");
    const struct sy_attr *list = sy_node_attr(e->node, "activation_params");
    float numbers[2] = {sy_node_float(e->node, "activation_alpha", NAN),
                        sy_node_float(e->node, "activation_beta", NAN)};
    for (int i = 0; list && list->kind == SY_ATTR_FLOATS && i < SY_MIN(list->n, 2); i++)
        numbers[i] = list->floats[i];
    if (!*name)
        return x;
    if (strcmp(name, "Clip") == 0 && !isnan(numbers[0]) && !isnan(numbers[1])) {
        int low = sy_expand_number(e, dtype, (double)numbers[0]);
        return SY_EXPAND(e, CLIP, x, low, sy_expand_number(e, dtype, (double)numbers[1]));
    }
    for (size_t k = 0; k < SY_ARRAY_LEN(known); k++) {
        if (strcmp(known[k].name, name) != 0)
            continue;
        int y = sy_expand_op(e, known[k].op, &x, 1);
        for (int i = 0; i < 2; i++)
            if (known[k].numbers[i] && !isnan(numbers[i]))
                sy_expand_set_float(e, known[k].numbers[i], numbers[i]);
        return y;
    }
    sy_expand_fail(e, SY_EUNSUPPORTED, "activation '%.60s'", name);
    return -1;
}

/* ---- products --------------------------------------------------------------------------------- */

/* Input i with its last two dimensions swapped, or (`batch`) its first one moved before the last. */
static int turned(struct sy_expand *e, int i, bool swaps, bool batch)
{
    const struct sy_tensor *t = sy_expand_tensor(e, i);
    int64_t perm[SY_MAX_RANK];
    int rank = t ? t->shape.rank : 0;
    if (rank < 2 || (!swaps && !batch))
        return sy_expand_input(e, i);
    for (int k = 0; k < rank; k++)
        perm[k] = k;
    for (int k = 0; batch && k < rank - 1; k++)
        perm[k] = k + 1 < rank - 1 ? k + 1 : 0;
    if (swaps) {
        int64_t last = perm[rank - 1];
        perm[rank - 1] = perm[rank - 2];
        perm[rank - 2] = last;
    }
    return sy_expand_transpose(e, sy_expand_input(e, i), perm, rank);
}

static int expand_fused_matmul(struct sy_expand *e)
{
    int a = turned(e, 0, sy_node_int(e->node, "transA", 0) != 0,
                   sy_node_int(e->node, "transBatchA", 0) != 0);
    int b = turned(e, 1, sy_node_int(e->node, "transB", 0) != 0,
                   sy_node_int(e->node, "transBatchB", 0) != 0);
    int y = SY_EXPAND(e, MATMUL, a, b);
    double alpha = (double)sy_node_float(e->node, "alpha", 1);
    if (alpha != 1)
        y = SY_EXPAND(e, MUL, y, sy_expand_number(e, sy_expand_dtype(e, 0), alpha));
    if (e->node->op == SY_OP_MS_FUSED_MATMUL_ACTIVATION)
        y = activated(e, y, sy_expand_dtype(e, 0));
    sy_expand_result(e, 0, y);
    return e->status;
}

static int expand_fused_gemm(struct sy_expand *e)
{
    int y = sy_expand_op(e, SY_OP_GEMM, e->node->inputs, SY_MIN(e->node->n_inputs, 3));
    const char *const names[] = {"alpha", "beta", "transA", "transB"};
    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
        sy_expand_pass(e, names[i]);
    sy_expand_result(e, 0, activated(e, y, sy_expand_dtype(e, 0)));
    return e->status;
}

/* Conv(x, w, b) + z, then the activation. */
static int expand_fused_conv(struct sy_expand *e)
{
    int y = sy_expand_op(e, SY_OP_CONV, e->node->inputs, SY_MIN(e->node->n_inputs, 3));
    const char *const names[] = {"auto_pad",     "dilations", "group",
                                 "kernel_shape", "pads",      "strides"};
    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
        sy_expand_pass(e, names[i]);
    if (sy_expand_input(e, 3) >= 0)
        y = SY_EXPAND(e, ADD, y, sy_expand_input(e, 3));
    sy_expand_result(e, 0, activated(e, y, sy_expand_dtype(e, 0)));
    return e->status;
}

/* ---- normalisations --------------------------------------------------------------------------- */

static int add_norm(struct sy_expand *e, bool simplified, int x, int gamma, int beta, int results,
                    int *out)
{
    int ids[3] = {x, gamma, beta};
    double epsilon = (double)sy_node_float(e->node, "epsilon", simplified ? 1e-5f : 1e-12f);
    sy_expand_op_many(e, simplified ? SY_OP_RMS_NORM : SY_OP_LAYER_NORM, ids,
                      !simplified && beta >= 0 ? 3 : 2, out, results);
    sy_expand_set_int(e, "axis", sy_node_int(e->node, "axis", -1));
    sy_expand_set_float(e, "epsilon", (float)epsilon);
    return out[0];
}

/* Inputs: x, skip, gamma, beta (not in the simplified form), bias. Results: y, mean, deviation, the sum. */
static int expand_skip_norm(struct sy_expand *e)
{
    bool simplified = e->node->op == SY_OP_MS_SKIP_SIMPLIFIED_NORM;
    int bias = sy_expand_input(e, simplified ? 3 : 4), out[3];
    int sum = SY_EXPAND(e, ADD, sy_expand_input(e, 0), sy_expand_input(e, 1));
    if (bias >= 0)
        sum = SY_EXPAND(e, ADD, sum, bias);
    int results = simplified ? 1 : sy_expand_wanted(e, 2) ? 3 : sy_expand_wanted(e, 1) ? 2 : 1;
    add_norm(e, simplified, sum, sy_expand_input(e, 2), simplified ? -1 : sy_expand_input(e, 3),
             results, out);
    for (int i = 0; i < results; i++)
        if (sy_expand_wanted(e, i))
            sy_expand_result(e, i, out[i]);
    if (sy_expand_wanted(e, 3))
        sy_expand_result(e, 3, sum);
    return e->status;
}

/* RMSNormalization under the name that ONNX Runtime gave it before ONNX had one. */
static int expand_simplified_norm(struct sy_expand *e)
{
    int out;
    add_norm(e, true, sy_expand_input(e, 0), sy_expand_input(e, 1), -1, 1, &out);
    sy_expand_result(e, 0, out);
    return e->status;
}

/* Rows of a table; QEmbedLayerNormalization's tables are of 8 bits, with scales from input 8 on and zero points from 13 on. */
static int table_rows(struct sy_expand *e, int table, int ids)
{
    int rows = SY_EXPAND(e, GATHER, sy_expand_input(e, table), ids);
    if (e->node->op != SY_OP_MS_QEMBED_LAYER_NORM)
        return rows;
    return SY_EXPAND(e, DEQUANTIZE_LINEAR, rows, sy_expand_input(e, table + 6),
                     sy_expand_input(e, table + 11));
}

/* Rows of tables: words, positions (0, 1, ... if none are given), segments. */
static int embedding_sum(struct sy_expand *e)
{
    bool whole = e->node->op == SY_OP_MS_QEMBED_LAYER_NORM;
    int ids = sy_expand_input(e, 0), segments = sy_expand_input(e, 1),
        positions = whole ? -1 : sy_expand_input(e, 8), zero = sy_expand_int(e, 0);
    int sum = table_rows(e, 2, ids);
    if (positions < 0) {
        int length = SY_EXPAND(e, GATHER, SY_EXPAND(e, SHAPE, ids), sy_expand_int(e, 1));
        positions = SY_EXPAND(e, RANGE, zero, length, sy_expand_int(e, 1));
    }
    sum = SY_EXPAND(e, ADD, sum, table_rows(e, 3, positions));
    if (segments >= 0 && sy_expand_input(e, 4) >= 0)
        sum = SY_EXPAND(e, ADD, sum, table_rows(e, 4, segments));
    return sum;
}

/* Scale or shift of the norm, input i. */
static int norm_weight(struct sy_expand *e, int i)
{
    if (e->node->op != SY_OP_MS_QEMBED_LAYER_NORM)
        return sy_expand_input(e, i);
    return SY_EXPAND(e, DEQUANTIZE_LINEAR, sy_expand_input(e, i), sy_expand_input(e, i + 6),
                     sy_expand_input(e, i + 11));
}

/* Results: y; per row how much of the mask is 1; the sum of embeddings. */
static int expand_embed_norm(struct sy_expand *e)
{
    int sum = embedding_sum(e), mask = sy_expand_input(e, 7), out;
    int64_t last = 1;
    int gamma = norm_weight(e, 5), beta = norm_weight(e, 6);
    add_norm(e, false, sum, gamma, beta, 1, &out);
    sy_expand_result(e, 0, out);
    if (sy_expand_wanted(e, 1)) {
        if (mask < 0)
            return sy_expand_fail(e, SY_EUNSUPPORTED, "a mask's index without a mask");
        int ones = sy_expand_cast(e, mask, SY_DTYPE_I32);
        int count = SY_EXPAND(e, REDUCE_SUM, ones, sy_expand_ints(e, &last, 1));
        sy_expand_set_int(e, "keepdims", 0);
        sy_expand_result(e, 1, count);
    }
    if (sy_expand_wanted(e, 2))
        sy_expand_result(e, 2, sum);
    return e->status;
}

/* GroupNorm of x over channels that come last, with an activation: 1 is SiLU. -1: not so. */
static int group_norm(struct sy_expand *e, int x, int rank)
{
    static const int64_t to_first[] = {0, 3, 1, 2}, to_last[] = {0, 2, 3, 1};
    bool last = sy_node_int(e->node, "channels_last", 1) != 0;
    if (last && rank != 4) {
        sy_expand_fail(e, SY_EUNSUPPORTED, "not 4 dimensions");
        return -1;
    }
    int y = last ? sy_expand_transpose(e, x, to_first, 4) : x;
    y = SY_EXPAND(e, GROUP_NORM, y, sy_expand_input(e, 1), sy_expand_input(e, 2));
    sy_expand_set_int(e, "num_groups", sy_node_int(e->node, "groups", 1));
    sy_expand_set_float(e, "epsilon", sy_node_float(e->node, "epsilon", 1e-5f));
    if (sy_node_int(e->node, "activation", 0) != 0)
        y = SY_EXPAND(e, MUL, y, SY_EXPAND(e, SIGMOID, y));
    return last ? sy_expand_transpose(e, y, to_last, 4) : y;
}

static int expand_group_norm(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    sy_expand_result(e, 0, group_norm(e, sy_expand_input(e, 0), x ? x->shape.rank : 0));
    return e->status;
}

/* Inputs: x, gamma, beta, skip ([N, C], [N, 1, 1, C] or as x), bias of C. Results: y, the sum. */
static int expand_skip_group_norm(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0), *skip = sy_expand_tensor(e, 3);
    int rank = x ? x->shape.rank : 0, sum = sy_expand_input(e, 3);
    if (sy_node_int(e->node, "channels_last", 1) == 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "channels that come first");
    if (skip && skip->shape.rank == 2)
        sum = sy_expand_unsqueeze(e, sy_expand_unsqueeze(e, sum, 1), 1);
    sum = SY_EXPAND(e, ADD, sy_expand_input(e, 0), sum);
    if (sy_expand_input(e, 4) >= 0)
        sum = SY_EXPAND(e, ADD, sum, sy_expand_input(e, 4));
    sy_expand_result(e, 0, group_norm(e, sum, rank));
    if (sy_expand_wanted(e, 1))
        sy_expand_result(e, 1, sum);
    return e->status;
}

/* x + bias + skip */
static int expand_bias_add(struct sy_expand *e)
{
    int y = SY_EXPAND(e, ADD, sy_expand_input(e, 0), sy_expand_input(e, 1));
    sy_expand_result(e, 0, SY_EXPAND(e, ADD, y, sy_expand_input(e, 2)));
    return e->status;
}

/* Splits x + bias in the last dimension: the left half times the Gelu of the right one. */
static int expand_bias_split_gelu(struct sy_expand *e)
{
    int sum = SY_EXPAND(e, ADD, sy_expand_input(e, 0), sy_expand_input(e, 1)), half[2];
    sy_expand_op_many(e, SY_OP_SPLIT, &sum, 1, half, 2);
    sy_expand_set_int(e, "axis", -1);
    sy_expand_set_int(e, "num_outputs", 2);
    sy_expand_result(e, 0, SY_EXPAND(e, MUL, half[0], SY_EXPAND(e, GELU, half[1])));
    return e->status;
}

/* ---- distances -------------------------------------------------------------------------------- */

/* Between rows of a and rows of b: |a|^2 + |b|^2 - 2ab, at least 0; its root unless the squares are asked for. */
static int expand_distances(struct sy_expand *e)
{
    static const int64_t swapped[] = {1, 0}, last = -1;
    const char *metric = sy_infer_text(e->node, "metric", "sqeuclidean");
    enum sy_dtype dtype = sy_expand_dtype(e, 0);
    int a = sy_expand_input(e, 0), b = sy_expand_input(e, 1);
    bool squares = strcmp(metric, "sqeuclidean") == 0;
    if (!squares && strcmp(metric, "euclidean") != 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "metric '%.60s'", metric);
    int of_a = SY_EXPAND(e, REDUCE_SUM, SY_EXPAND(e, MUL, a, a), sy_expand_ints(e, &last, 1));
    int of_b = SY_EXPAND(e, REDUCE_SUM, SY_EXPAND(e, MUL, b, b), sy_expand_ints(e, &last, 1));
    sy_expand_set_int(e, "keepdims", 0);
    int twice =
        SY_EXPAND(e, MUL, sy_expand_transpose(e, b, swapped, 2), sy_expand_number(e, dtype, -2));
    int y = SY_EXPAND(e, ADD, SY_EXPAND(e, MATMUL, a, twice), of_a);
    y = SY_EXPAND(e, MAX, SY_EXPAND(e, ADD, y, of_b), sy_expand_number(e, dtype, 0));
    sy_expand_result(e, 0, squares ? y : SY_EXPAND(e, SQRT, y));
    return e->status;
}

/* An ONNX operator in another domain, or under an older name, with the same inputs and attributes. */
static int expand_same(struct sy_expand *e)
{
    static const struct {
        enum sy_op from, to;
    } same[] = {{SY_OP_MS_QUANTIZE, SY_OP_QUANTIZE_LINEAR},
                {SY_OP_MS_DEQUANTIZE, SY_OP_DEQUANTIZE_LINEAR},
                {SY_OP_MS_TRILU, SY_OP_TRILU},
                {SY_OP_MS_UNIQUE, SY_OP_UNIQUE},
                {SY_OP_MS_RANGE, SY_OP_RANGE},
                {SY_OP_MS_GRID_SAMPLE, SY_OP_GRID_SAMPLE},
                {SY_OP_MS_GATHER_ND, SY_OP_GATHER_ND},
                {SY_OP_MS_PAD, SY_OP_PAD},
                {SY_OP_MS_EXPAND_DIMS, SY_OP_UNSQUEEZE}};
    int out[3], n = SY_MIN(e->node->n_outputs, 3);
    for (size_t i = 0; i < SY_ARRAY_LEN(same); i++) {
        if (same[i].from != e->node->op)
            continue;
        sy_expand_op_many(e, same[i].to, e->node->inputs, e->node->n_inputs, out, n);
        for (int k = 0; k < e->node->n_attrs; k++)
            sy_expand_pass(e, e->node->attrs[k].name);
        for (int k = 0; k < n; k++)
            if (sy_expand_wanted(e, k))
                sy_expand_result(e, k, out[k]);
    }
    return e->status;
}

const struct sy_expander_line sy_expanders_microsoft[] = {
    {SY_OP_MS_GELU, expand_gelu},
    {SY_OP_MS_FAST_GELU, expand_gelu},
    {SY_OP_MS_BIAS_GELU, expand_gelu},
    {SY_OP_MS_QUICK_GELU, expand_quick_gelu},
    {SY_OP_MS_FUSED_MATMUL, expand_fused_matmul},
    {SY_OP_MS_TRANSPOSE_MATMUL, expand_fused_matmul},
    {SY_OP_MS_FUSED_MATMUL_ACTIVATION, expand_fused_matmul},
    {SY_OP_MS_FUSED_GEMM, expand_fused_gemm},
    {SY_OP_MS_FUSED_CONV, expand_fused_conv},
    {SY_OP_MS_SKIP_LAYER_NORM, expand_skip_norm},
    {SY_OP_MS_SKIP_SIMPLIFIED_NORM, expand_skip_norm},
    {SY_OP_SIMPLIFIED_LAYER_NORM, expand_simplified_norm},
    {SY_OP_MS_EMBED_LAYER_NORM, expand_embed_norm},
    {SY_OP_MS_GROUP_NORM, expand_group_norm},
    {SY_OP_MS_QUANTIZE, expand_same},
    {SY_OP_MS_DEQUANTIZE, expand_same},
    {SY_OP_MS_TRILU, expand_same},
    {SY_OP_MS_UNIQUE, expand_same},
    {SY_OP_MS_RANGE, expand_same},
    {SY_OP_MS_GRID_SAMPLE, expand_same},
    {SY_OP_MS_GATHER_ND, expand_same},
    {SY_OP_MS_PAD, expand_same},
    {SY_OP_MS_EXPAND_DIMS, expand_same},
    {SY_OP_MS_QEMBED_LAYER_NORM, expand_embed_norm},
    {SY_OP_MS_SKIP_GROUP_NORM, expand_skip_group_norm},
    {SY_OP_MS_BIAS_ADD, expand_bias_add},
    {SY_OP_MS_BIAS_SPLIT_GELU, expand_bias_split_gelu},
    {SY_OP_MS_CDIST, expand_distances},
    {0}};

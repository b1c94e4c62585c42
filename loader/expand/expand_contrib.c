/* ONNX Runtime's own operators that its exporters for hybrid language models write, and what PyTorch's and TensorFlow's exporters put in its domain: gates,
 * norms of branches, sliding windows, crops of images, transposed convolutions with pads as an input, repeated n-grams. */
#include <math.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* Input i in float32, in which these operators compute. */
static int wide(struct sy_expand *e, int i)
{
    int x = sy_expand_input(e, i);
    return x < 0 || sy_expand_dtype(e, i) == SY_DTYPE_F32 ? x : sy_expand_cast(e, x, SY_DTYPE_F32);
}

/* Result i, as the node's first input's type. */
static int give(struct sy_expand *e, int i, int y)
{
    enum sy_dtype dtype = sy_expand_dtype(e, 0);
    if (sy_expand_wanted(e, i))
        sy_expand_result(e, i, dtype == SY_DTYPE_F32 ? y : sy_expand_cast(e, y, dtype));
    return e->status;
}

/* ---- gates ------------------------------------------------------------------------------------ */

static int expand_gated_add(struct sy_expand *e)
{
    int scaled = SY_EXPAND(e, MUL, sy_expand_input(e, 1), sy_expand_input(e, 2));
    sy_expand_result(e, 0, SY_EXPAND(e, ADD, sy_expand_input(e, 0), scaled));
    return e->status;
}

/* x * sigmoid(x) of the scaled x; the scale is an input or `alpha`. */
static int expand_scaled_silu(struct sy_expand *e)
{
    int scale = wide(e, 1);
    if (scale < 0)
        scale = sy_expand_number(e, SY_DTYPE_F32, (double)sy_node_float(e->node, "alpha", 1));
    int x = SY_EXPAND(e, MUL, wide(e, 0), scale);
    return give(e, 0, SY_EXPAND(e, MUL, x, SY_EXPAND(e, SIGMOID, x)));
}

/* decay = decay_scale * softplus(a + bias), beta = sigmoid(b). */
static int expand_attention_gate(struct sy_expand *e)
{
    int a = SY_EXPAND(e, ADD, wide(e, 0), wide(e, 1));
    int decay = SY_EXPAND(e, MUL, SY_EXPAND(e, SOFTPLUS, a), wide(e, 2));
    if (sy_expand_wanted(e, 1) && sy_expand_input(e, 3) < 0)
        return sy_expand_fail(e, SY_ECORRUPT, "a result beta without its input");
    if (sy_expand_wanted(e, 1))
        give(e, 1, SY_EXPAND(e, SIGMOID, wide(e, 3)));
    return give(e, 0, decay);
}

/* ---- norms ------------------------------------------------------------------------------------ */

/* x / sqrt(mean(x^2) + epsilon) along the last dimension. */
static int unit_rms(struct sy_expand *e, int x)
{
    static const int64_t last = -1;
    double epsilon = (double)sy_node_float(e->node, "epsilon", 1e-5f);
    int mean = SY_EXPAND(e, REDUCE_MEAN, SY_EXPAND(e, MUL, x, x), sy_expand_ints(e, &last, 1));
    mean = SY_EXPAND(e, ADD, mean, sy_expand_number(e, SY_DTYPE_F32, epsilon));
    return SY_EXPAND(e, DIV, x, SY_EXPAND(e, SQRT, mean));
}

/* x with its last dimension of `width` cut into parts of `size`. */
static int in_parts(struct sy_expand *e, int x, int rank, int64_t width, int64_t size)
{
    int64_t dims[SY_MAX_RANK] = {0}; /* 0: as it is */
    dims[rank - 1] = width / size;
    dims[rank] = size;
    return sy_expand_reshape(e, x, dims, rank + 1);
}

/* The last dimension again in one. */
static int in_one(struct sy_expand *e, int x, int rank, int64_t width)
{
    int64_t dims[SY_MAX_RANK] = {0};
    dims[rank - 1] = width;
    return sy_expand_reshape(e, x, dims, rank);
}

/* Size of input i's last dimension, which is to be known, and its rank. */
static int last_size(struct sy_expand *e, int i, int *rank, int64_t *size)
{
    const struct sy_tensor *t = sy_expand_tensor(e, i);
    if (!t || t->shape.rank < 1 || t->shape.rank >= SY_MAX_RANK)
        return sy_expand_fail(e, SY_ECORRUPT, "input %d without dimensions", i);
    *rank = t->shape.rank;
    return sy_infer_fixed(e->in, e->node, &t->shape, *rank - 1, size);
}

/* norm(x) * scale * activation(gate); each `scale` long part of a row has its own norm. */
static int expand_gated_norm(struct sy_expand *e)
{
    const char *how = sy_infer_text(e->node, "activation", "silu");
    int64_t width, size;
    int rank, scale_rank;
    SY_TRY(last_size(e, 0, &rank, &width));
    SY_TRY(last_size(e, 1, &scale_rank, &size));
    bool is_silu = strcmp(how, "silu") == 0 || strcmp(how, "swish") == 0;
    if (size < 1 || width % size != 0 || (!is_silu && strcmp(how, "sigmoid") != 0))
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "a scale of %lld for %lld numbers, activation '%.40s'",
                              (long long)size, (long long)width, how);
    int y = SY_EXPAND(e, MUL, unit_rms(e, in_parts(e, wide(e, 0), rank, width, size)), wide(e, 1));
    int gate = wide(e, 2), open = SY_EXPAND(e, SIGMOID, gate);
    if (is_silu)
        open = SY_EXPAND(e, MUL, gate, open);
    return give(e, 0, SY_EXPAND(e, MUL, in_one(e, y, rank, width), open));
}

/* A norm for each branch, [..., branches, size] or the same with the last two dimensions in one; the scale is for all branches or for each. */
static int expand_branch_norm(struct sy_expand *e)
{
    const struct sy_tensor *scale = sy_expand_tensor(e, 1);
    int64_t width, branches = sy_node_int(e->node, "num_branches", 0),
                   n = scale ? sy_shape_elements(&scale->shape, 1) : 0;
    int rank;
    SY_TRY(last_size(e, 0, &rank, &width));
    int64_t size = branches > 0 ? width / branches : width;
    if (branches < 0 || size < 1 || (branches > 0 && width % branches != 0) ||
        (scale && n != size && n != width))
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "%lld branches of %lld numbers with a scale of %lld",
                              (long long)branches, (long long)width, (long long)n);
    int y = wide(e, 0);
    y = unit_rms(e, branches > 0 ? in_parts(e, y, rank, width, size) : y);
    if (n > 0) {
        const int64_t dims[] = {n / size, size};
        y = SY_EXPAND(e, MUL, y,
                      n == size ? wide(e, 1) : sy_expand_reshape(e, wide(e, 1), dims, 2));
    }
    return give(e, 0, branches > 0 ? in_one(e, y, rank, width) : y);
}

/* ---- windows and tables ------------------------------------------------------------------------- */

/* Slices of `size` numbers along `dim`, `step` apart; the slices' own dimension is the last one. */
static int expand_unfold(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    int64_t size = sy_node_int(e->node, "size", 0), step = sy_node_int(e->node, "step", 1), n;
    int64_t perm[SY_MAX_RANK];
    int axis, k = 0;
    if (!x || x->shape.rank < 1 || x->shape.rank >= SY_MAX_RANK || size < 1 || step < 1)
        return sy_expand_fail(e, SY_ECORRUPT, "slices of %lld numbers, %lld apart", (long long)size,
                              (long long)step);
    int rank = x->shape.rank;
    SY_TRY(sy_infer_axis(e->node, sy_node_int(e->node, "dim", -1), rank, &axis));
    SY_TRY(sy_infer_fixed(e->in, e->node, &x->shape, axis, &n));
    if (n < size)
        return sy_expand_fail(e, SY_ECORRUPT, "slices of %lld of %lld numbers", (long long)size,
                              (long long)n);
    int64_t slices = (n - size) / step + 1;
    int starts =
        SY_EXPAND(e, MUL, sy_expand_count(e, sy_expand_int(e, slices)), sy_expand_int(e, step));
    int each = SY_EXPAND(e, ADD, sy_expand_unsqueeze(e, starts, 1),
                         sy_expand_count(e, sy_expand_int(e, size)));
    int y = SY_EXPAND(e, GATHER, sy_expand_input(e, 0), each);
    sy_expand_set_int(e, "axis", axis);
    for (int i = 0; i <= rank; i++)
        if (i != axis + 1)
            perm[k++] = i;
    perm[rank] = axis + 1;
    sy_expand_result(e, 0, sy_expand_transpose(e, y, perm, rank + 1));
    return e->status;
}

static int expand_embedding(struct sy_expand *e)
{
    sy_expand_result(e, 0, SY_EXPAND(e, GATHER, sy_expand_input(e, 0), sy_expand_input(e, 1)));
    return e->status;
}

/* Scores of the tokens that would end an n-gram which the row has already: -infinity. The last n - 1 tokens are compared with each place of the row. */
static int expand_repeats(struct sy_expand *e)
{
    const struct sy_tensor *ids = sy_expand_tensor(e, 0), *scores = sy_expand_tensor(e, 1);
    int64_t n = sy_node_int(e->node, "ngram_size", 0);
    enum { MOST_GRAM = 64 };
    if (!ids || !scores || ids->shape.rank != 2 || scores->shape.rank != 2 || n < 1 ||
        n > MOST_GRAM)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "n-grams of %lld, or rows of other forms",
                              (long long)n);
    enum sy_dtype dtype = scores->dtype;
    int x = sy_expand_input(e, 0), next = sy_expand_slice(e, x, 1, n - 1, INT64_MAX), same = -1;
    for (int64_t k = 0; k < n - 1; k++) {
        int64_t end = k - (n - 1);
        int here = SY_EXPAND(e, EQUAL, sy_expand_slice(e, x, 1, k, end),
                             sy_expand_slice(e, x, 1, end, end + 1 < 0 ? end + 1 : INT64_MAX));
        same = same < 0 ? here : SY_EXPAND(e, AND, same, here);
    }
    int barred = sy_expand_number(e, dtype, -INFINITY), all = sy_expand_number(e, dtype, INFINITY);
    int limit = same < 0 ? SY_EXPAND(e, EXPAND, barred, SY_EXPAND(e, SHAPE, next))
                         : SY_EXPAND(e, WHERE, same, barred, all);
    int y = SY_EXPAND(e, SCATTER_ELEMENTS, sy_expand_input(e, 1),
                      sy_expand_cast(e, next, SY_DTYPE_I64), limit);
    sy_expand_set_int(e, "axis", 1);
    sy_expand_set_text(e, "reduction", "min");
    sy_expand_result(e, 0, y);
    return e->status;
}

/* ---- images ----------------------------------------------------------------------------------- */

/* Places of `n` samples of a box between columns `from` and `to` of the boxes, as shares of the image: [boxes, n]. */
static int samples(struct sy_expand *e, int from, int to, int64_t n)
{
    int boxes = sy_expand_input(e, 1);
    int low = sy_expand_slice(e, boxes, 1, from, from + 1),
        high = sy_expand_slice(e, boxes, 1, to, to + 1);
    if (n == 1)
        return SY_EXPAND(e, MUL, SY_EXPAND(e, ADD, low, high),
                         sy_expand_number(e, SY_DTYPE_F32, 0.5));
    int at = sy_expand_cast(e, sy_expand_count(e, sy_expand_int(e, n)), SY_DTYPE_F32);
    int step = SY_EXPAND(e, DIV, SY_EXPAND(e, SUB, high, low),
                         sy_expand_number(e, SY_DTYPE_F32, (double)(n - 1)));
    return SY_EXPAND(e, ADD, low, SY_EXPAND(e, MUL, at, step));
}

/* Whether the places lie within the image: [boxes, n]. */
static int within(struct sy_expand *e, int places)
{
    int not_before = SY_EXPAND(e, GREATER_OR_EQUAL, places, sy_expand_number(e, SY_DTYPE_F32, 0));
    int not_after = SY_EXPAND(e, LESS_OR_EQUAL, places, sy_expand_number(e, SY_DTYPE_F32, 1));
    return SY_EXPAND(e, AND, not_before, not_after);
}

/* [boxes, n] with a dimension of 1 at `axis`, spread to [boxes, high, wide, 1]; as coordinates of GridSample, from -1 to 1. */
static int coordinate(struct sy_expand *e, int places, int axis, int64_t high, int64_t wide_)
{
    const int64_t ones[] = {1, high, wide_, 1};
    int g = SY_EXPAND(e, SUB, SY_EXPAND(e, MUL, places, sy_expand_number(e, SY_DTYPE_F32, 2)),
                      sy_expand_number(e, SY_DTYPE_F32, 1));
    g = sy_expand_unsqueeze(e, sy_expand_unsqueeze(e, g, axis), 3);
    return SY_EXPAND(e, EXPAND, g, sy_expand_ints(e, ones, 4));
}

/* Boxes of images, each sampled at crop_size places from corner to corner; `extrapolation_value` outside of the image. */
static int expand_crops(struct sy_expand *e)
{
    const char *mode = sy_infer_text(e->node, "mode", "bilinear");
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    int64_t sizes[2];
    int n;
    SY_TRY(sy_infer_ints(e->in, e->node, 3, NULL, 2, &n, sizes));
    if (!x || x->shape.rank != 4 || x->dtype != SY_DTYPE_F32 || n != 2 || sizes[0] < 1 ||
        sizes[1] < 1 || sy_dim_is(x->shape.dims[2], 1) || sy_dim_is(x->shape.dims[3], 1) ||
        (strcmp(mode, "bilinear") != 0 && strcmp(mode, "nearest") != 0))
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "images of other than float32 with 2 rows and columns at least, or "
                              "mode '%.40s'",
                              mode);
    int64_t high = sizes[0], wide_ = sizes[1];
    int images = SY_EXPAND(e, GATHER, sy_expand_input(e, 0), sy_expand_input(e, 2));
    int rows = samples(e, 0, 2, high), columns = samples(e, 1, 3, wide_);
    int grid = sy_expand_join(e, coordinate(e, columns, 1, high, wide_),
                              coordinate(e, rows, 2, high, wide_), 3);
    int y = SY_EXPAND(e, GRID_SAMPLE, images, grid);
    sy_expand_set_text(e, "mode", mode[0] == 'b' ? "linear" : "nearest");
    sy_expand_set_text(e, "padding_mode", "border");
    sy_expand_set_int(e, "align_corners", 1);
    int inside = SY_EXPAND(e, AND, sy_expand_unsqueeze(e, within(e, rows), 2),
                           sy_expand_unsqueeze(e, within(e, columns), 1));
    double outside = (double)sy_node_float(e->node, "extrapolation_value", 0);
    sy_expand_result(e, 0,
                     SY_EXPAND(e, WHERE, sy_expand_unsqueeze(e, inside, 1), y,
                               sy_expand_number(e, SY_DTYPE_F32, outside)));
    return e->status;
}

/* ConvTranspose with its pads as an input, which is to be known. */
static int expand_padded_transpose(struct sy_expand *e)
{
    static const char *const names[] = {"auto_pad",       "dilations",    "group",
                                        "output_padding", "kernel_shape", "strides"};
    int64_t pads[2 * SY_MAX_RANK];
    int n = 0;
    if (sy_expand_input(e, 2) >= 0)
        SY_TRY(sy_infer_ints(e->in, e->node, 2, NULL, 2 * SY_MAX_RANK, &n, pads));
    const int operands[] = {sy_expand_input(e, 0), sy_expand_input(e, 1), sy_expand_input(e, 3)};
    int y = sy_expand_op(e, SY_OP_CONV_TRANSPOSE, operands, operands[2] >= 0 ? 3 : 2);
    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
        sy_expand_pass(e, names[i]);
    if (n > 0 && e->status == SY_OK)
        e->status = sy_node_set_ints(&e->graph->nodes[e->graph->n_nodes - 1], "pads", n, pads);
    sy_expand_result(e, 0, y);
    return e->status;
}

/* ---- whole numbers, states --------------------------------------------------------------------- */

/* A product of numbers of 16 bits, summed in 32. */
static int expand_integers(struct sy_expand *e)
{
    int a = sy_expand_cast(e, sy_expand_input(e, 0), SY_DTYPE_I32),
        b = sy_expand_cast(e, sy_expand_input(e, 1), SY_DTYPE_I32);
    sy_expand_result(e, 0, SY_EXPAND(e, MATMUL, a, b));
    return e->status;
}

/* ONNX's operators of the same names came from these, and have fewer attributes. */
static int expand_state_operator(struct sy_expand *e)
{
    static const char *const names[] = {"activation",  "chunk_size", "kv_num_heads",
                                        "q_num_heads", "scale",      "update_rule"};
    bool is_conv = e->node->op == SY_OP_MS_CAUSAL_CONV;
    int out[2], n = SY_MIN(e->node->n_outputs, 2);
    if (sy_node_int(e->node, "state_window", 0) != 0 ||
        sy_node_int(e->node, "channels_last", 0) != 0 || sy_node_int(e->node, "dilation", 1) != 1 ||
        sy_node_int(e->node, "ndim", 1) != 1)
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "windows of states, channels last, a dilation, or more than one "
                              "dimension");
    sy_expand_op_many(e, is_conv ? SY_OP_CAUSAL_CONV : SY_OP_LINEAR_ATTENTION, e->node->inputs,
                      e->node->n_inputs, out, n);
    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
        sy_expand_pass(e, names[i]);
    for (int i = 0; i < n; i++)
        if (sy_expand_wanted(e, i))
            sy_expand_result(e, i, out[i]);
    return e->status;
}

const struct sy_expander_line sy_expanders_contrib[] = {
    {SY_OP_MS_GATED_ADD, expand_gated_add},
    {SY_OP_MS_SCALED_SILU, expand_scaled_silu},
    {SY_OP_MS_ATTENTION_GATE, expand_attention_gate},
    {SY_OP_MS_GATED_NORM, expand_gated_norm},
    {SY_OP_MS_BRANCH_NORM, expand_branch_norm},
    {SY_OP_MS_UNFOLD, expand_unfold},
    {SY_OP_MS_EMBEDDING, expand_embedding},
    {SY_OP_MS_NGRAM_REPEAT, expand_repeats},
    {SY_OP_MS_CROP_AND_RESIZE, expand_crops},
    {SY_OP_MS_PADDED_TRANSPOSE, expand_padded_transpose},
    {SY_OP_MS_MATMUL_INTEGER16, expand_integers},
    {SY_OP_MS_CAUSAL_CONV, expand_state_operator},
    {SY_OP_MS_LINEAR_ATTENTION, expand_state_operator},
    {0}};

/* Quantised operators of ONNX Runtime: what goes in as numbers, the operator in float32, and back. The passes bring products of
 * constant weights together again (fuse_quantized.c). */
#include <stdlib.h>

#include "loader/expand/expand_small.h"
#include "loader/graph/small_types.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static int dequantized(struct sy_expand *e, int x, int scale, int zero)
{
    return SY_EXPAND(e, DEQUANTIZE_LINEAR, sy_expand_input(e, x), sy_expand_input(e, scale),
                     sy_expand_input(e, zero));
}

static void quantized_result(struct sy_expand *e, int y, int scale, int zero)
{
    sy_expand_result(
        e, 0,
        SY_EXPAND(e, QUANTIZE_LINEAR, y, sy_expand_input(e, scale), sy_expand_input(e, zero)));
}

/* Inputs: a and its scale and zero point, the same of b, then of the result. */
static int expand_binary(struct sy_expand *e)
{
    int a = dequantized(e, 0, 1, 2), b = dequantized(e, 3, 4, 5);
    enum sy_op op = e->node->op == SY_OP_MS_QLINEAR_ADD ? SY_OP_ADD : SY_OP_MUL;
    quantized_result(e, sy_expand_op(e, op, (const int[]){a, b}, 2), 6, 7);
    return e->status;
}

static int expand_unary(struct sy_expand *e)
{
    int x = dequantized(e, 0, 1, 2), y;
    bool sigmoid = e->node->op == SY_OP_MS_QLINEAR_SIGMOID;
    y = sy_expand_op(e, sigmoid ? SY_OP_SIGMOID : SY_OP_LEAKY_RELU, &x, 1);
    sy_expand_pass(e, "alpha");
    quantized_result(e, y, 3, 4);
    return e->status;
}

static int expand_softmax(struct sy_expand *e)
{
    int y = SY_EXPAND(e, SOFTMAX, dequantized(e, 0, 1, 2));
    if (sy_node_int(e->node, "opset", 13) < 13)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "a softmax of before opset 13");
    sy_expand_set_int(e, "axis", sy_node_int(e->node, "axis", -1));
    quantized_result(e, y, 3, 4);
    return e->status;
}

/* Channels may come last. */
static int expand_pool(struct sy_expand *e)
{
    const char *const names[] = {"auto_pad", "ceil_mode",    "count_include_pad",
                                 "pads",     "kernel_shape", "strides"};
    static const int64_t to_second[] = {0, 3, 1, 2}, to_last[] = {0, 2, 3, 1};
    bool global = e->node->op == SY_OP_MS_QLINEAR_GLOBAL_POOL;
    bool last = sy_node_int(e->node, "channels_last", 0) != 0;
    const struct sy_tensor *image = sy_expand_tensor(e, 0);
    if (last && (!image || image->shape.rank != 4))
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "channels that come last of other than 4 dimensions");
    int x = dequantized(e, 0, 1, 2);
    if (last)
        x = sy_expand_transpose(e, x, to_second, 4);
    int y = sy_expand_op(e, global ? SY_OP_GLOBAL_AVERAGE_POOL : SY_OP_AVERAGE_POOL, &x, 1);
    for (size_t i = 0; !global && i < SY_ARRAY_LEN(names); i++)
        sy_expand_pass(e, names[i]);
    quantized_result(e, last ? sy_expand_transpose(e, y, to_last, 4) : y, 3, 4);
    return e->status;
}

/* Inputs: scale and zero point of the result, then three for each part. */
static int expand_concat(struct sy_expand *e)
{
    enum { MAX_PARTS = 64 };
    int parts[MAX_PARTS], n = (e->node->n_inputs - 2) / 3;
    if (n < 1 || n > MAX_PARTS || e->node->n_inputs != 2 + 3 * n)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%d inputs", e->node->n_inputs);
    for (int i = 0; i < n; i++)
        parts[i] = dequantized(e, 2 + 3 * i, 3 + 3 * i, 4 + 3 * i);
    int y = sy_expand_op(e, SY_OP_CONCAT, parts, n);
    sy_expand_pass(e, "axis");
    quantized_result(e, y, 0, 1);
    return e->status;
}

/* Inputs: condition, x and its two, y and its two, then the result's. */
static int expand_where(struct sy_expand *e)
{
    int x = dequantized(e, 1, 2, 3), y = dequantized(e, 4, 5, 6);
    quantized_result(e, SY_EXPAND(e, WHERE, sy_expand_input(e, 0), x, y), 7, 8);
    return e->status;
}

/* Inputs: a, b (each with two), c of int32, the result's two, or none for a float result. */
static int expand_gemm(struct sy_expand *e)
{
    const struct sy_tensor *b_scale = sy_expand_tensor(e, 4);
    bool columns = b_scale && b_scale->shape.rank == 1; /* before tensors move */
    int a = dequantized(e, 0, 1, 2), b = dequantized(e, 3, 4, 5), c = sy_expand_input(e, 6), ids[3];
    float alpha = sy_node_float(e->node, "alpha", 1);
    if (columns)
        sy_expand_set_int(e, "axis", sy_node_int(e->node, "transB", 0) != 0 ? 0 : 1);
    if (c >= 0) { /* its scale is that of the product */
        int scale = SY_EXPAND(e, MUL, sy_expand_input(e, 1), sy_expand_input(e, 4));
        c = SY_EXPAND(e, MUL, sy_expand_cast(e, c, SY_DTYPE_F32), scale);
        if (alpha != 1)
            c = SY_EXPAND(e, MUL, c, sy_expand_number(e, SY_DTYPE_F32, (double)alpha));
    }
    ids[0] = a;
    ids[1] = b;
    ids[2] = c;
    int y = sy_expand_op(e, SY_OP_GEMM, ids, c < 0 ? 2 : 3);
    sy_expand_set_float(e, "alpha", alpha);
    sy_expand_pass(e, "transA");
    sy_expand_pass(e, "transB");
    if (sy_expand_input(e, 7) >= 0)
        quantized_result(e, y, 7, 8);
    else
        sy_expand_result(e, 0, y);
    return e->status;
}

/* (a - zero) times (b - zero) as whole numbers, times both scales, plus bias. */
int sy_expand_integer_product(struct sy_expand *e, const struct sy_whole_product *p)
{
    int product = SY_EXPAND(e, MATMUL_INTEGER, p->a, p->b, p->a_zero, p->b_zero);
    int scale = SY_EXPAND(e, MUL, p->a_scale, p->b_scale);
    int y = SY_EXPAND(e, MUL, sy_expand_cast(e, product, SY_DTYPE_F32), scale);
    return p->bias < 0 ? y : SY_EXPAND(e, ADD, y, p->bias);
}

static int expand_dynamic_matmul(struct sy_expand *e)
{
    int a[3], x = sy_expand_input(e, 0);
    sy_expand_op_many(e, SY_OP_DYNAMIC_QUANTIZE_LINEAR, &x, 1, a, 3);
    struct sy_whole_product p = {.a = a[0],
                                 .a_scale = a[1],
                                 .a_zero = a[2],
                                 .b = sy_expand_input(e, 1),
                                 .b_scale = sy_expand_input(e, 2),
                                 .b_zero = sy_expand_input(e, 3),
                                 .bias = sy_expand_input(e, 4)};
    sy_expand_result(e, 0, sy_expand_integer_product(e, &p));
    return e->status;
}

static int expand_matmul_to_float(struct sy_expand *e)
{
    struct sy_whole_product p = {.a = sy_expand_input(e, 0),
                                 .a_scale = sy_expand_input(e, 2),
                                 .a_zero = sy_expand_input(e, 4),
                                 .b = sy_expand_input(e, 1),
                                 .b_scale = sy_expand_input(e, 3),
                                 .b_zero = sy_expand_input(e, 5),
                                 .bias = sy_expand_input(e, 6)};
    sy_expand_result(e, 0, sy_expand_integer_product(e, &p));
    return e->status;
}

/* Weights of whole numbers [directions, input, gates], with a scale for each direction or each of its columns. */
struct recurrent_weights {
    const struct sy_tensor *w, *scale, *zero;
    int64_t directions, depth, columns;
};

static int read_weights(struct sy_expand *e, int w, int scale, struct recurrent_weights *out)
{
    *out = (struct recurrent_weights){.w = sy_expand_tensor(e, w),
                                      .scale = sy_expand_tensor(e, scale),
                                      .zero = sy_expand_tensor(e, scale + 1)};
    const struct sy_tensor *t = out->w, *s = out->scale, *z = out->zero;
    if (!t || !s || !t->data || !s->data || (z && !z->data) || t->shape.rank != 3 ||
        (t->dtype != SY_DTYPE_I8 && t->dtype != SY_DTYPE_U8) || s->dtype != SY_DTYPE_F32 ||
        (z && z->dtype != t->dtype))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "weights or scales that are not constants");
    out->directions = t->shape.dims[0].fixed;
    out->depth = t->shape.dims[1].fixed;
    out->columns = t->shape.dims[2].fixed;
    int64_t n = sy_shape_elements(&s->shape, 1);
    if ((n != out->directions && n != out->directions * out->columns) ||
        (z && sy_shape_elements(&z->shape, 1) != n))
        return sy_expand_fail(e, SY_ECORRUPT, "%lld scales for %lld directions of %lld columns",
                              (long long)n, (long long)out->directions, (long long)out->columns);
    return SY_OK;
}

/* As LSTM has them, [directions, gates, input], in float32; steps: of each column. */
static void widen_weights(const struct recurrent_weights *from, float *to, float *steps)
{
    bool each = sy_shape_elements(&from->scale->shape, 1) != from->directions;
    for (int64_t d = 0; d < from->directions; d++)
        for (int64_t c = 0; c < from->columns; c++) {
            int64_t scale = each ? d * from->columns + c : d, row = d * from->columns + c;
            steps[row] = ((const float *)from->scale->data)[scale];
            int64_t zero = from->zero ? sy_load_integer(from->zero->dtype,
                                                        (const char *)from->zero->data + scale)
                                      : 0;
            for (int64_t k = 0; k < from->depth; k++) {
                int64_t at = (d * from->depth + k) * from->columns + c;
                int64_t whole =
                    sy_load_integer(from->w->dtype, (const char *)from->w->data + at) - zero;
                to[row * from->depth + k] = (float)whole * steps[row];
            }
        }
}

/* A constant; *steps is the caller's to free. */
static int recurrent_weights(struct sy_expand *e, int w, int scale, int *out, float **steps,
                             int *n_steps)
{
    struct recurrent_weights from;
    float *wide;
    *steps = NULL;
    SY_TRY(read_weights(e, w, scale, &from));
    const int64_t rows = from.directions * from.columns,
                  dims[] = {from.directions, from.columns, from.depth};
    SY_TRY(sy_graph_alloc((size_t)(rows * from.depth), sizeof *wide, &wide));
    int status = sy_graph_alloc((size_t)rows, sizeof **steps, steps);
    if (status == SY_OK) {
        widen_weights(&from, wide, *steps);
        *n_steps = (int)rows;
        *out = sy_expand_float_array(e, wide, 3, dims);
    }
    free(wide);
    return status;
}

/* DynamicQuantizeLSTM: x, w, r, bias, lengths, states, peepholes, then scales and zero points of w and r. An LSTM of float32 that knows what a
 * step of its weights is, for engines that compute it in 8 bits (fuse_int8_recurrent.c). In float32 x and the states are as they are, so
 * closer to the unquantised model than 8 bits are. */
static int expand_lstm(struct sy_expand *e)
{
    const char *const names[] = {"activations", "activation_alpha", "activation_beta", "clip",
                                 "direction",   "hidden_size",      "input_forget"};
    int ids[8], out[3], n = SY_MIN(e->node->n_outputs, 3), counts[2];
    float *steps[2] = {NULL, NULL};
    for (int i = 0; i < 8; i++)
        ids[i] = sy_expand_input(e, i);
    int status = recurrent_weights(e, 1, 8, &ids[1], &steps[0], &counts[0]);
    if (status == SY_OK)
        status = recurrent_weights(e, 2, 10, &ids[2], &steps[1], &counts[1]);
    if (status == SY_OK) {
        sy_expand_op_many(e, SY_OP_LSTM, ids, 8, out, n);
        for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
            sy_expand_pass(e, names[i]);
        sy_expand_set_floats(e, "w_steps", steps[0], counts[0]);
        sy_expand_set_floats(e, "r_steps", steps[1], counts[1]);
        for (int i = 0; i < n; i++)
            if (sy_expand_wanted(e, i))
                sy_expand_result(e, i, out[i]);
    }
    free(steps[0]);
    free(steps[1]);
    return status < 0 ? status : e->status;
}

/* ---- blocks: a scale for each `block_size` neighbours along the axis --------------------------- */

struct blocked {
    int rank, axis;
    int64_t size, cut[SY_MAX_RANK + 1],
        flat[SY_MAX_RANK]; /* of x with the axis in two, and as it is */
};

static int measure_blocks(struct sy_expand *e, struct blocked *b)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0), *scale = sy_expand_tensor(e, 1);
    b->size = sy_node_int(e->node, "block_size", 0);
    SY_TRY(sy_infer_quantized_types(e->in, e->node));
    if (!x || !scale || scale->shape.rank != x->shape.rank || x->shape.rank >= SY_MAX_RANK)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "scales of blocks with other dimensions");
    b->rank = x->shape.rank;
    SY_TRY(sy_infer_axis(e->node, sy_node_int(e->node, "axis", 1), b->rank, &b->axis));
    int64_t n = x->shape.dims[b->axis].fixed;
    if (x->shape.dims[b->axis].per_batch != 0 || b->size < 1 || n % b->size != 0 ||
        !sy_dim_is(scale->shape.dims[b->axis], n / b->size))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "blocks of %lld in a dimension of %lld",
                              (long long)b->size, (long long)n);
    for (int i = 0, k = 0; i < b->rank; i++, k++) {
        b->flat[i] = i == b->axis ? n : 0;
        b->cut[k] = i == b->axis ? n / b->size : i < b->axis ? 0 : x->shape.dims[i].fixed;
        if (i > b->axis && x->shape.dims[i].per_batch != 0)
            return sy_expand_fail(e, SY_EUNSUPPORTED, "a batch behind the blocks");
        if (i > b->axis)
            b->flat[i] = x->shape.dims[i].fixed;
        if (i == b->axis)
            b->cut[++k] = b->size;
    }
    return SY_OK;
}

/* Without blocks: a scale for all, or for each place along the axis. */
static int measure_scales(struct sy_expand *e, struct blocked *b)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0), *scale = sy_expand_tensor(e, 1);
    *b = (struct blocked){.rank = x ? x->shape.rank : 0};
    if (sy_node_int(e->node, "block_size", 0) != 0)
        return measure_blocks(e, b);
    SY_TRY(sy_infer_quantized_types(e->in, e->node));
    if (!x || !scale || scale->shape.rank > 1)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "a scale of several dimensions");
    return scale->shape.rank == 0 || b->rank == 0
               ? SY_OK
               : sy_infer_axis(e->node, sy_node_int(e->node, "axis", 1), b->rank, &b->axis);
}

/* Input i, a scale or zero point, so that it can be broadcast to x, of blocks to x in blocks. */
static int of_block(struct sy_expand *e, const struct blocked *b, int i)
{
    const int64_t axis = b->axis + 1;
    int64_t dims[SY_MAX_RANK] = {-1};
    const struct sy_tensor *t = sy_expand_tensor(e, i);
    if (b->size > 0)
        return SY_EXPAND(e, UNSQUEEZE, sy_expand_input(e, i), sy_expand_ints(e, &axis, 1));
    if (t->shape.rank == 0 || sy_dim_is(t->shape.dims[0], 1))
        return sy_expand_input(e, i);
    for (int k = 1; k < b->rank - b->axis; k++)
        dims[k] = 1;
    return sy_expand_reshape(e, sy_expand_input(e, i), dims, b->rank - b->axis);
}

/* x in its blocks, if it has such; and in one again. */
static int in_blocks(struct sy_expand *e, const struct blocked *b, int x)
{
    return b->size > 0 ? sy_expand_reshape(e, x, b->cut, b->rank + 1) : x;
}

static int out_of_blocks(struct sy_expand *e, const struct blocked *b, int x)
{
    return b->size > 0 ? sy_expand_reshape(e, x, b->flat, b->rank) : x;
}

static int expand_blocked_dequantize(struct sy_expand *e)
{
    struct blocked b;
    SY_TRY(measure_scales(e, &b));
    enum sy_dtype dtype = sy_expand_dtype(e, 1);
    int x = in_blocks(e, &b, sy_expand_input(e, 0));
    if (sy_expand_dtype(e, 0) != dtype)
        x = sy_expand_cast(e, x, dtype);
    if (sy_expand_input(e, 2) >= 0)
        x = SY_EXPAND(e, SUB, x, sy_expand_cast(e, of_block(e, &b, 2), dtype));
    x = SY_EXPAND(e, MUL, x, of_block(e, &b, 1));
    sy_expand_result(e, 0, out_of_blocks(e, &b, x));
    return e->status;
}

/* Rounded x / scale + zero point within the numbers of the type, `type` of a small one, in x's type. */
static int whole_steps(struct sy_expand *e, const struct blocked *b, int x, enum sy_dtype to,
                       int64_t type)
{
    enum sy_dtype dtype = sy_expand_dtype(e, 0);
    bool is_signed = to == SY_DTYPE_I8 || to == SY_DTYPE_I16;
    double steps = sy_dtype_bytes(to) == 1 ? 256 : 65536, least = is_signed ? -steps / 2 : 0,
           most = least + steps - 1;
    if (type != 0)
        sy_small_range(type, &least, &most);
    x = SY_EXPAND(e, ROUND, x);
    if (sy_expand_input(e, 2) >= 0)
        x = SY_EXPAND(e, ADD, x, sy_expand_cast(e, of_block(e, b, 2), dtype));
    int low = sy_expand_number(e, dtype, least);
    return SY_EXPAND(e, CLIP, x, low, sy_expand_number(e, dtype, most));
}

static int expand_blocked_quantize(struct sy_expand *e)
{
    struct blocked b;
    SY_TRY(measure_scales(e, &b));
    int64_t type = sy_small_result_type(e);
    enum sy_dtype dtype = sy_expand_dtype(e, 0), to = sy_small_carrier(type);
    if (type == 0)
        to = sy_expand_input(e, 2) >= 0
                 ? sy_expand_dtype(e, 2)
                 : (enum sy_dtype)sy_node_int(e->node, "output_dtype", SY_DTYPE_U8);
    if (to != SY_DTYPE_I8 && to != SY_DTYPE_I16 && to != SY_DTYPE_U8 && to != SY_DTYPE_U16 &&
        type == 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "results of element type %d", (int)to);
    int x = in_blocks(e, &b, sy_expand_input(e, 0));
    x = SY_EXPAND(e, DIV, x, of_block(e, &b, 1));
    x = to == SY_DTYPE_F32 ? sy_small_from_float(e, x, type) : whole_steps(e, &b, x, to, type);
    x = out_of_blocks(e, &b, x);
    if (type != 0)
        return sy_small_give(e, x, dtype, type);
    sy_expand_result(e, 0, sy_expand_cast(e, x, to));
    return e->status;
}

/* ---- rows of a table in blocks ------------------------------------------------------------------------ */

/* Input i's rows of the indices as [-1, n] numbers of the scales' type; `packed`: two of 4 bits to a byte, the lower one first. */
static int numbers_of_rows(struct sy_expand *e, int i, bool packed, int64_t n, enum sy_dtype dtype)
{
    int rows = SY_EXPAND(e, GATHER, sy_expand_input(e, i), sy_expand_input(e, 1));
    if (packed) {
        int low = sy_expand_cast(e, sy_expand_number(e, SY_DTYPE_F32, 15), SY_DTYPE_U8);
        int by = sy_expand_cast(e, sy_expand_number(e, SY_DTYPE_F32, 4), SY_DTYPE_U8);
        low = sy_expand_unsqueeze(e, SY_EXPAND(e, BITWISE_AND, rows, low), -1);
        int high = SY_EXPAND(e, BIT_SHIFT, rows, by);
        sy_expand_set_text(e, "direction", "RIGHT");
        rows = sy_expand_join(e, low, sy_expand_unsqueeze(e, high, -1), -1);
    }
    return sy_expand_cast(e, sy_expand_reshape(e, rows, (const int64_t[]){-1, n}, 2), dtype);
}

/* Its table: [rows, columns], a scale and perhaps a zero point for each block of a row. */
struct block_table {
    int64_t columns, blocks;
    bool packed, packed_zeros;
    double zero;
    enum sy_dtype dtype;
};

static int read_block_table(struct sy_expand *e, struct block_table *b)
{
    const struct sy_tensor *data = sy_expand_tensor(e, 0), *scales = sy_expand_tensor(e, 2);
    const struct sy_tensor *zeros = sy_expand_tensor(e, 3);
    int64_t block = sy_node_int(e->node, "block_size", 128), bits = sy_node_int(e->node, "bits", 4),
            axis = sy_node_int(e->node, "quantize_axis", 1);
    if (!data || !scales || data->shape.rank != 2 || scales->shape.rank != 2 || block < 1 ||
        sy_node_int(e->node, "gather_axis", 0) != 0 || (axis != 1 && axis != -1) ||
        !sy_dim_is_number(data->shape.dims[1]) || (bits != 4 && bits != 8))
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "other than rows of a table in blocks of columns");
    bool bytes = data->dtype == SY_DTYPE_U8 && data->small_type == 0;
    b->packed = bytes && bits == 4;
    b->packed_zeros = b->packed && zeros;
    b->columns = data->shape.dims[1].fixed * (b->packed ? 2 : 1);
    b->zero = bytes ? (bits == 4 ? 8 : 128) : 0;
    b->dtype = scales->dtype;
    if (b->columns < 1 || block > b->columns || b->columns % block != 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%lld columns in blocks of %lld",
                              (long long)b->columns, (long long)block);
    b->blocks = b->columns / block;
    if (!sy_dim_is(scales->shape.dims[1], b->blocks))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "scales of other than the %lld blocks of a row",
                              (long long)b->blocks);
    return SY_OK;
}

/* (data - zero) * scale of the rows that the indices name. */
static int expand_gather_blocks(struct sy_expand *e)
{
    struct block_table b;
    SY_TRY(read_block_table(e, &b));
    const int64_t cut[] = {-1, b.blocks, b.columns / b.blocks}, each[] = {-1, b.blocks, 1};
    int zero = sy_expand_number(e, b.dtype, b.zero);
    if (sy_expand_input(e, 3) >= 0) {
        int64_t n = b.packed_zeros ? (b.blocks + 1) / 2 * 2 : b.blocks;
        zero = numbers_of_rows(e, 3, b.packed_zeros, n, b.dtype);
        if (n > b.blocks)
            zero = sy_expand_slice(e, zero, 1, 0, b.blocks);
        zero = sy_expand_reshape(e, zero, each, 3);
    }
    int scale = numbers_of_rows(e, 2, false, b.blocks, b.dtype);
    int y = numbers_of_rows(e, 0, b.packed, b.columns, b.dtype);
    y = SY_EXPAND(e, SUB, sy_expand_reshape(e, y, cut, 3), zero);
    y = SY_EXPAND(e, MUL, y, sy_expand_reshape(e, scale, each, 3));
    int shape = sy_expand_join(e, SY_EXPAND(e, SHAPE, sy_expand_input(e, 1)),
                               sy_expand_ints(e, &b.columns, 1), 0);
    sy_expand_result(e, 0, SY_EXPAND(e, RESHAPE, y, shape));
    return e->status;
}

const struct sy_expander_line sy_expanders_quantized[] = {
    {SY_OP_QUANTIZE_LINEAR, expand_blocked_quantize},
    {SY_OP_DEQUANTIZE_LINEAR, expand_blocked_dequantize},
    {SY_OP_MS_QLINEAR_ADD, expand_binary},
    {SY_OP_MS_QLINEAR_MUL, expand_binary},
    {SY_OP_MS_QLINEAR_SIGMOID, expand_unary},
    {SY_OP_MS_QLINEAR_LEAKY_RELU, expand_unary},
    {SY_OP_MS_QLINEAR_SOFTMAX, expand_softmax},
    {SY_OP_MS_QLINEAR_POOL, expand_pool},
    {SY_OP_MS_QLINEAR_GLOBAL_POOL, expand_pool},
    {SY_OP_MS_QLINEAR_CONCAT, expand_concat},
    {SY_OP_MS_QLINEAR_WHERE, expand_where},
    {SY_OP_MS_GATHER_BLOCKS, expand_gather_blocks},
    {SY_OP_MS_QGEMM, expand_gemm},
    {SY_OP_MS_DYNAMIC_QUANTIZE_MATMUL, expand_dynamic_matmul},
    {SY_OP_MS_MATMUL_INTEGER_TO_FLOAT, expand_matmul_to_float},
    {SY_OP_MS_DYNAMIC_QUANTIZE_LSTM, expand_lstm},
    {0}};

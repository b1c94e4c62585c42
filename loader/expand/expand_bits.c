/* Products whose weights have a few bits: MatMulNBits (blocks of each column, whole numbers), MatMulBnb4 (blocks of the flat matrix, 16 floats to choose from).
 * The weights are dequantised at import. */
#include <stdlib.h>

#include "loader/expand/expand_bits.h"
#include "runtime/base/assert.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"

float sy_bits_float_at(const struct sy_tensor *t, int64_t i)
{
    if (t->dtype == SY_DTYPE_F32)
        return ((const float *)t->data)[i];
    uint16_t half = ((const uint16_t *)t->data)[i];
    return t->dtype == SY_DTYPE_F16 ? sy_half_to_float(half) : sy_bf16_to_float(half);
}

int sy_bits_at(const unsigned char *from, int64_t i, int64_t bits)
{
    int64_t at = i * bits;
    return from[at / 8] >> (at % 8) & ((1 << bits) - 1);
}

bool sy_bits_is_float(const struct sy_tensor *t)
{
    return t->dtype == SY_DTYPE_F32 || t->dtype == SY_DTYPE_F16 || t->dtype == SY_DTYPE_BF16;
}

/* ---- MatMulNBits ------------------------------------------------------------------------------ */

struct few_bits {
    int64_t k, n, bits, block, blocks; /* blocks of a column */
    const unsigned char *b, *zeros;    /* zeros: packed like b, or NULL */
    const struct sy_tensor *scales, *float_zeros;
    const int32_t *groups; /* block whose scale row k has; NULL: the one in which it lies */
};

/* Column n of the product's right side; to[k * w->n]. */
static void unpack_column(const struct few_bits *w, int64_t n, float *to)
{
    int64_t blob = w->block * w->bits / 8, zero_row = (w->blocks * w->bits + 7) / 8;
    for (int64_t k = 0; k < w->k; k++) {
        int64_t from = k / w->block, group = w->groups ? w->groups[k] : from,
                at = n * w->blocks + group;
        float zero = (float)(1 << (w->bits - 1));
        if (w->zeros)
            zero = (float)sy_bits_at(w->zeros + n * zero_row, group, w->bits);
        if (w->float_zeros)
            zero = sy_bits_float_at(w->float_zeros, at);
        float q = (float)sy_bits_at(w->b + (n * w->blocks + from) * blob, k % w->block, w->bits);
        to[k * w->n] = (q - zero) * sy_bits_float_at(w->scales, at);
    }
}

static int read_groups(struct sy_expand *e, struct few_bits *w)
{
    const struct sy_tensor *groups = sy_expand_tensor(e, 4);
    if (!groups)
        return SY_OK;
    if (groups->dtype != SY_DTYPE_I32 || !groups->data ||
        groups->data_bytes < (size_t)w->k * sizeof *w->groups)
        return sy_expand_fail(e, SY_ECORRUPT, "no group of each row");
    w->groups = groups->data;
    for (int64_t k = 0; k < w->k; k++)
        if (w->groups[k] < 0 || w->groups[k] >= w->blocks)
            return sy_expand_fail(e, SY_ECORRUPT, "row %lld is of group %d, there are %lld",
                                  (long long)k, w->groups[k], (long long)w->blocks);
    return SY_OK;
}

static int read_few_bits(struct sy_expand *e, struct few_bits *w)
{
    const struct sy_tensor *b = sy_expand_tensor(e, 1), *scales = sy_expand_tensor(e, 2),
                           *zeros = sy_expand_tensor(e, 3);
    *w = (struct few_bits){.k = sy_node_int(e->node, "K", 0),
                           .n = sy_node_int(e->node, "N", 0),
                           .bits = sy_node_int(e->node, "bits", 4),
                           .block = sy_node_int(e->node, "block_size", 0)};
    if (!b || !scales || !b->data || !scales->data || (zeros && !zeros->data))
        return sy_expand_defer(e, "weights that are computed");
    if ((w->bits != 2 && w->bits != 4 && w->bits != 8) || w->block < 16 || w->block > 1 << 16 ||
        (w->block & (w->block - 1)) != 0 || w->k < 1 || w->n < 1 || w->k > 1 << 24 ||
        w->n > 1 << 24)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%lld bits, blocks of %lld, %lld by %lld",
                              (long long)w->bits, (long long)w->block, (long long)w->k,
                              (long long)w->n);
    w->blocks = (w->k + w->block - 1) / w->block;
    size_t each = sy_dtype_bytes(scales->dtype), all = (size_t)(w->n * w->blocks);
    w->b = b->data;
    w->scales = scales;
    if (zeros && zeros->dtype == SY_DTYPE_U8)
        w->zeros = zeros->data;
    else
        w->float_zeros = zeros;
    size_t zero_bytes = w->zeros ? (size_t)(w->n * ((w->blocks * w->bits + 7) / 8)) : all * each;
    if (b->dtype != SY_DTYPE_U8 || !sy_bits_is_float(scales) || scales->data_bytes != all * each ||
        b->data_bytes != all * (size_t)(w->block * w->bits / 8) ||
        (zeros &&
         (zeros->data_bytes != zero_bytes || (w->float_zeros && !sy_bits_is_float(zeros)))))
        return sy_expand_fail(e, SY_ECORRUPT, "weights, scales or zeros of another size");
    return read_groups(e, w);
}

/* Input 0 times these weights [k, n], which are taken, in float32; `bias`: -1, or an input. */
static int multiply(struct sy_expand *e, float *weights, int64_t k, int64_t n, int bias)
{
    const struct sy_shape shape = {.rank = 2, .dims = {{k, 0}, {n, 0}}};
    enum sy_dtype dtype = sy_expand_dtype(e, 0);
    int right;
    SY_TRY(sy_graph_add_constant(e->graph, e->node->name, SY_DTYPE_F32, &shape, weights,
                                 (size_t)(k * n) * sizeof *weights, &right));
    int y = SY_EXPAND(e, MATMUL, sy_expand_cast(e, sy_expand_input(e, 0), SY_DTYPE_F32), right);
    if (bias >= 0)
        y = SY_EXPAND(e, ADD, y, sy_expand_cast(e, bias, SY_DTYPE_F32));
    sy_expand_result(e, 0, sy_expand_cast(e, y, dtype));
    return e->status;
}

static int expand_few_bits(struct sy_expand *e)
{
    struct few_bits w;
    float *columns;
    SY_TRY(read_few_bits(e, &w));
    size_t n = (size_t)w.k * (size_t)w.n;
    SY_TRY(sy_graph_alloc(n, sizeof *columns, &columns));
    for (int64_t i = 0; i < w.n; i++)
        unpack_column(&w, i, columns + i);
    return multiply(e, columns, w.k, w.n, sy_expand_input(e, 5));
}

/* ---- MatMulBnb4 ------------------------------------------------------------------------------- */

/* What 4 bits stand for, as shares of their block's largest number: FP4 (a sign, then 3 bits) and NF4 (quantiles of a normal distribution). */
static const float bnb4[2][16] = {
    {0, 0.005208333333f, 0.66666667f, 1, 0.33333333f, 0.5f, 0.16666667f, 0.25f, -0.0f,
     -0.005208333333f, -0.66666667f, -1, -0.33333333f, -0.5f, -0.16666667f, -0.25f},
    {-1, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
     -0.18477343022823334f, -0.09105003625154495f, 0, 0.07958029955625534f, 0.16093020141124725f,
     0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
     0.7229568362236023f, 1}};

/* The flat matrix is [n, k]; of two numbers in a byte the first has the higher bits. */
static int expand_bnb4(struct sy_expand *e)
{
    const struct sy_tensor *b = sy_expand_tensor(e, 1), *most = sy_expand_tensor(e, 2);
    int64_t k = sy_node_int(e->node, "K", 0), n = sy_node_int(e->node, "N", 0),
            block = sy_node_int(e->node, "block_size", 0),
            kind = sy_node_int(e->node, "quant_type", -1);
    float *weights;
    if (!b || !most || !b->data || !most->data || sy_node_int(e->node, "transB", 1) == 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "weights that are computed, or not transposed");
    if (k < 1 || n < 1 || k > 1 << 24 || n > 1 << 24 || block < 16 || block > 1 << 16 ||
        (kind != 0 && kind != 1))
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "%lld by %lld, blocks of %lld, numbers of kind %lld", (long long)k,
                              (long long)n, (long long)block, (long long)kind);
    size_t all = (size_t)(k * n), blocks = (all + (size_t)block - 1) / (size_t)block;
    if (b->dtype != SY_DTYPE_U8 || b->data_bytes != (all + 1) / 2 || !sy_bits_is_float(most) ||
        most->data_bytes != blocks * sy_dtype_bytes(most->dtype))
        return sy_expand_fail(e, SY_ECORRUPT, "weights or scales of another size");
    SY_TRY(sy_graph_alloc(all, sizeof *weights, &weights));
    for (int64_t i = 0; i < k * n; i++) {
        int code = sy_bits_at(b->data, i ^ 1, 4);
        weights[i % k * n + i / k] = bnb4[kind][code] * sy_bits_float_at(most, i / block);
    }
    return multiply(e, weights, k, n, -1);
}

const struct sy_expander_line sy_expanders_bits[] = {
    {SY_OP_MS_MATMUL_NBITS, expand_few_bits}, {SY_OP_MS_MATMUL_BNB4, expand_bnb4}, {0}};

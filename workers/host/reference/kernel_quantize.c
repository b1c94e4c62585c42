/* Quantised forms: to 8 bits and back, and Conv and MatMul of 8 bits. Sums of products are exact; results are rounded half to even. */
#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/reference/kernel_product.h"

static void put_saturated(const struct sy_array *y, int64_t i, double value)
{
    double bits = sy_dtype_bytes(y->dtype) == 1 ? 255 : 65535;
    bool is_signed = y->dtype == SY_DTYPE_I8 || y->dtype == SY_DTYPE_I16;
    double low = is_signed ? -(bits + 1) / 2 : 0, high = low + bits;
    sy_put_int(y, i, (int64_t)(value > high ? high : value >= low ? value : low));
}

/* Element k of a scale or zero point that is one number or one for each; 0 where it is left out. */
static double parameter(const struct sy_array *a, int64_t k)
{
    return a ? sy_get(a, a->n == 1 ? 0 : k) : 0;
}

/* ---- to and fro ----------------------------------------------------------------------------------- */

/* Which scale element i takes: its index along the axis. */
static int64_t along_axis(const struct sy_call *call, int64_t i)
{
    const struct sy_array *x = &call->in[0];
    int64_t axis = sy_node_int(call->node, "axis", 1);
    axis += axis < 0 ? x->rank : 0;
    return call->in[1].n == 1 ? 0 : i / sy_array_extent(x, (int)axis + 1, x->rank) % x->dims[axis];
}

static int run_quantize(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *zero = sy_call_in(call, 2);
    for (int64_t i = 0; i < x->n; i++) {
        int64_t k = along_axis(call, i);
        double quotient = sy_get(x, i) / sy_get(&call->in[1], k);
        if (x->dtype == SY_DTYPE_F32) /* halves are those of the quotient as float32 */
            quotient = (double)(float)quotient;
        put_saturated(&call->out[0], i, nearbyint(quotient) + parameter(zero, k));
    }
    return SY_OK;
}

static int run_dequantize(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *zero = sy_call_in(call, 2);
    for (int64_t i = 0; i < x->n; i++) {
        int64_t k = along_axis(call, i);
        sy_put(&call->out[0], i, (sy_get(x, i) - parameter(zero, k)) * sy_get(&call->in[1], k));
    }
    return SY_OK;
}

static int check_scale(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    int64_t axis = sy_node_int(call->node, "axis", 1);
    axis += axis < 0 ? x->rank : 0;
    if (call->n_in < 2 || !sy_call_in(call, 1) || !sy_array_same_dims(x, &call->out[0]))
        return sy_kernel_refuse(call, "no scale, or a result of another shape");
    if (call->in[1].n != 1 && (axis < 0 || axis >= x->rank || call->in[1].n != x->dims[axis]))
        return sy_kernel_refuse(call, "a scale that does not fit");
    if (sy_call_in(call, 2) && call->in[2].n != 1 && call->in[2].n != call->in[1].n)
        return sy_kernel_refuse(call, "a zero point that does not fit");
    return SY_OK;
}

static int run_dynamic(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    float low = 0, high = 0;
    for (int64_t i = 0; i < x->n; i++) {
        low = fminf(low, (float)sy_get(x, i));
        high = fmaxf(high, (float)sy_get(x, i));
    }
    float scale = (high - low) / 255;
    scale = scale == 0 ? 1 : scale;
    float zero = nearbyintf(fmaxf(0, fminf(255, -low / scale)));
    for (int64_t i = 0; i < x->n; i++)
        put_saturated(&call->out[0], i,
                      (double)nearbyintf((float)sy_get(x, i) / scale) + (double)zero);
    if (sy_call_out(call, 1))
        sy_put(&call->out[1], 0, (double)scale);
    if (sy_call_out(call, 2))
        sy_put(&call->out[2], 0, (double)zero);
    return SY_OK;
}

static int check_dynamic(const struct sy_call *call)
{
    for (int i = 1; i < call->n_out; i++)
        if (sy_call_out(call, i) && (i > 2 || call->out[i].n != 1))
            return sy_kernel_refuse(call, "results that do not fit");
    return sy_array_same_dims(&call->in[0], &call->out[0])
               ? SY_OK
               : sy_kernel_refuse(call, "a result of another shape");
}

/* ---- products ------------------------------------------------------------------------------------- */

/* Scales NULL: the integer forms. */
struct quantized {
    const struct sy_array *zero_a, *zero_b, *scale_a, *scale_b, *scale_y, *zero_y;
};

static void finish(const struct quantized *q, const struct sy_array *y, int64_t to, int64_t k,
                   int64_t sum)
{
    if (!q->scale_a) {
        sy_put_int(y, to, sum);
        return;
    }
    double scale = sy_get(q->scale_a, 0) * parameter(q->scale_b, k) / sy_get(q->scale_y, 0);
    put_saturated(y, to, nearbyint((double)sum * scale) + parameter(q->zero_y, 0));
}

static void matmul_cell(const struct sy_product *p, int64_t to, void *context)
{
    const struct quantized *q = context;
    int64_t sum = 0, zero_a = (int64_t)parameter(q->zero_a, p->row),
            zero_b = (int64_t)parameter(q->zero_b, p->column);
    for (int64_t k = 0; k < p->depth; k++)
        sum += (sy_get_int(p->a, p->a_start + p->row * p->depth + k) - zero_a) *
               (sy_get_int(p->b, p->b_start + k * p->columns + p->column) - zero_b);
    finish(q, p->y, to, p->column, sum);
}

static bool is_linear(const struct sy_call *call)
{
    return call->node->op == SY_OP_QLINEAR_CONV || call->node->op == SY_OP_QLINEAR_MATMUL;
}

static const struct sy_array *second(const struct sy_call *call)
{
    return &call->in[is_linear(call) ? 3 : 1];
}

static struct quantized read_quantized(const struct sy_call *call)
{
    if (!is_linear(call))
        return (struct quantized){.zero_a = sy_call_in(call, 2), .zero_b = sy_call_in(call, 3)};
    return (struct quantized){.scale_a = sy_call_in(call, 1),
                              .zero_a = sy_call_in(call, 2),
                              .scale_b = sy_call_in(call, 4),
                              .zero_b = sy_call_in(call, 5),
                              .scale_y = sy_call_in(call, 6),
                              .zero_y = sy_call_in(call, 7)};
}

static int run_matmul(const struct sy_call *call)
{
    struct quantized q = read_quantized(call);
    return sy_product_run(&call->in[0], second(call), &call->out[0], matmul_cell, &q);
}

/* One number of the type that it is taken from, or n of them. */
static bool is_zero_point(const struct sy_array *zero, enum sy_dtype of, int64_t n)
{
    return !zero || (zero->dtype == of && (zero->n == 1 || zero->n == n));
}

/* Types and sizes of scales and zero points; `per`: how many a parameter of b may have, `rows` of a. */
static int check_parameters(const struct sy_call *call, int64_t rows, int64_t per)
{
    struct quantized q = read_quantized(call);
    bool linear = is_linear(call);
    enum sy_dtype b = second(call)->dtype;
    bool fits = (b == SY_DTYPE_I8 || b == SY_DTYPE_U8) &&
                is_zero_point(q.zero_a, call->in[0].dtype, rows) && is_zero_point(q.zero_b, b, per);
    if (linear)
        fits = fits && q.scale_a && q.scale_b && q.scale_y && q.scale_a->n == 1 &&
               q.scale_y->n == 1 && (q.scale_b->n == 1 || q.scale_b->n == per) &&
               (!q.zero_y || q.zero_y->n == 1) && sy_is_float(q.scale_a->dtype) &&
               sy_is_float(q.scale_b->dtype) && sy_is_float(q.scale_y->dtype);
    return fits ? SY_OK : sy_kernel_refuse(call, "scales or zero points that do not fit");
}

static int check_matmul(const struct sy_call *call)
{
    if (call->n_in < (is_linear(call) ? 8 : 2) ||
        !sy_product_fits(&call->in[0], second(call), &call->out[0]))
        return sy_kernel_refuse(call, "operands that do not fit");
    const struct sy_array *a = &call->in[0], *b = second(call);
    return check_parameters(call, a->rank > 1 ? a->dims[a->rank - 2] : 1,
                            b->rank > 1 ? b->dims[b->rank - 1] : 1);
}

/* ---- convolution ---------------------------------------------------------------------------------- */

/* Offset in a channel of x of position k of the window at `out`; -1: the padding, whose value is the zero point. */
static int64_t tap(const struct sy_call *call, const struct sy_array *w, const int64_t *out,
                   int64_t k)
{
    const struct sy_array *x = &call->in[0];
    int64_t offset = 0, stride = 1;
    for (int d = x->rank - 3; d >= 0; d--) {
        int64_t at = out[d + 2] * sy_node_int_at(call->node, "strides", d, 1) -
                     sy_node_int_at(call->node, "pads", d, 0) +
                     k % w->dims[d + 2] * sy_node_int_at(call->node, "dilations", d, 1);
        k /= w->dims[d + 2];
        if (at < 0 || at >= x->dims[d + 2])
            return -1;
        offset += at * stride;
        stride *= x->dims[d + 2];
    }
    return offset;
}

static int run_conv(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *w = second(call), *y = &call->out[0],
                          *bias = is_linear(call) ? sy_call_in(call, 8) : NULL;
    struct quantized q = read_quantized(call);
    int64_t inner = sy_array_extent(x, 2, x->rank), size = sy_array_extent(w, 2, w->rank);
    int64_t depth = w->dims[1], per_group = y->dims[1] / sy_node_int(call->node, "group", 1);
    int64_t zero_x = (int64_t)parameter(q.zero_a, 0);
    for (int64_t i = 0; i < y->n; i++) {
        int64_t at[SY_MAX_RANK];
        sy_array_at(y, i, at);
        int64_t m = at[1], zero_w = (int64_t)parameter(q.zero_b, m);
        int64_t first = (at[0] * x->dims[1] + m / per_group * depth) * inner;
        int64_t sum = bias ? sy_get_int(bias, m) : 0;
        for (int64_t k = 0; k < size; k++) {
            int64_t from = tap(call, w, at, k);
            for (int64_t c = 0; from >= 0 && c < depth; c++)
                sum += (sy_get_int(x, first + c * inner + from) - zero_x) *
                       (sy_get_int(w, (m * depth + c) * size + k) - zero_w);
        }
        finish(&q, y, i, m, sum);
    }
    return SY_OK;
}

static int check_conv(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    int64_t group = sy_node_int(call->node, "group", 1);
    if (call->n_in < (is_linear(call) ? 8 : 2))
        return sy_kernel_refuse(call, "inputs that are left out");
    const struct sy_array *w = second(call);
    if (x->rank < 3 || w->rank != x->rank || y->rank != x->rank || group < 1 ||
        x->dims[1] != w->dims[1] * group || y->dims[1] != w->dims[0] || w->dims[0] % group != 0 ||
        y->dims[0] != x->dims[0])
        return sy_kernel_refuse(call, "weights that do not fit");
    if (is_linear(call) && sy_call_in(call, 8) &&
        (call->in[8].n != y->dims[1] || call->in[8].dtype != SY_DTYPE_I32))
        return sy_kernel_refuse(call, "a bias that does not fit");
    return check_parameters(call, 1, w->dims[0]);
}

#define WORDS (SY_BIT(U16) | SY_BIT(I16))
#define BYTES (SY_BIT(I8) | SY_BIT(U8))
const struct sy_kernel sy_kernels_quantize[] = {
    {SY_OP_QUANTIZE_LINEAR,
     run_quantize,
     {SY_ANY_FLOAT | SY_BIT(I32), SY_ANY_FLOAT, BYTES | WORDS},
     check_scale,
     NULL},
    {SY_OP_DEQUANTIZE_LINEAR,
     run_dequantize,
     {BYTES | WORDS | SY_BIT(I32), SY_ANY_FLOAT, SY_AS_FIRST},
     check_scale,
     NULL},
    {SY_OP_DYNAMIC_QUANTIZE_LINEAR, run_dynamic, {SY_BIT(F32)}, check_dynamic, NULL},
    {SY_OP_QLINEAR_MATMUL, run_matmul, {BYTES, SY_ANY_TYPE}, check_matmul, NULL},
    {SY_OP_MATMUL_INTEGER, run_matmul, {BYTES, BYTES}, check_matmul, NULL},
    {SY_OP_QLINEAR_CONV, run_conv, {BYTES, SY_ANY_TYPE}, check_conv, NULL},
    {SY_OP_CONV_INTEGER, run_conv, {BYTES, BYTES}, check_conv, NULL},
    {0}};

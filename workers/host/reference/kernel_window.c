/* Windows over any number of spatial dimensions, in the forms and types that oneDNN does not take: convolution with computed weights,
 * transposed convolution, pools with indices, of integers, with padding beyond the edge. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/rows/pool_rows.h"
#include "workers/host/rows/reduce_rows.h"

/* A window of the large side: the input of a convolution or pool, the result of a transposed convolution. */
struct window {
    int n;
    int64_t kernel[SY_MAX_RANK], strides[SY_MAX_RANK], dilations[SY_MAX_RANK], pads[SY_MAX_RANK],
        size; /* positions in it */
};

/* Sizes from `kernel` (weights from dimension 2 on), or from the attribute. */
static struct window read_window(const struct sy_call *call, const int64_t *kernel)
{
    struct window w = {.n = call->in[0].rank - 2, .size = 1};
    for (int i = 0; i < w.n; i++) {
        w.kernel[i] = kernel ? kernel[i] : sy_node_int_at(call->node, "kernel_shape", i, 1);
        w.strides[i] = sy_node_int_at(call->node, "strides", i, 1);
        w.dilations[i] = sy_node_int_at(call->node, "dilations", i, 1);
        w.pads[i] = sy_node_int_at(call->node, "pads", i, 0);
        w.size =
            (int64_t)((uint64_t)w.size * (uint64_t)w.kernel[i]); /* checked by window_is_sane */
    }
    return w;
}

/* Offset in a channel of `large` of position k of the window at `out` (spatial, row-major in `small`); -1: the padding. */
static int64_t window_offset(const struct window *w, const struct sy_array *large,
                             const int64_t *out, int64_t k)
{
    int64_t offset = 0, stride = 1;
    for (int d = w->n - 1; d >= 0; d--) {
        int64_t at = out[d] * w->strides[d] - w->pads[d] + k % w->kernel[d] * w->dilations[d];
        k /= w->kernel[d];
        if (at < 0 || at >= large->dims[d + 2])
            return -1;
        offset += at * stride;
        stride *= large->dims[d + 2];
    }
    return offset;
}

static void spatial_at(const struct sy_array *a, int64_t i, int64_t *at)
{
    for (int d = a->rank - 1; d >= 2; d--) {
        at[d - 2] = i % a->dims[d];
        i /= a->dims[d];
    }
}

static bool window_is_sane(const struct window *w)
{
    bool sane = w->n >= 1;
    int64_t size = 1;
    for (int i = 0; sane && i < w->n; i++)
        sane = !__builtin_mul_overflow(size, w->kernel[i], &size) && size <= INT32_MAX &&
               w->kernel[i] > 0 && w->strides[i] > 0 && w->dilations[i] > 0 && w->pads[i] >= 0 &&
               w->kernel[i] <= INT32_MAX && w->strides[i] <= INT32_MAX &&
               w->dilations[i] <= INT32_MAX && w->pads[i] <= INT32_MAX;
    return sane;
}

/* ---- convolution ---------------------------------------------------------------------------------- */

static const int64_t *weight_sizes(const struct sy_call *call)
{
    return &call->in[1].dims[2];
}

static int run_conv(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *w = &call->in[1], *bias = sy_call_in(call, 2),
                          *y = &call->out[0];
    struct window win = read_window(call, weight_sizes(call));
    int64_t inner = sy_array_extent(x, 2, x->rank), outer = sy_array_extent(y, 2, y->rank);
    int64_t depth = w->dims[1], per_group = y->dims[1] / sy_node_int(call->node, "group", 1);
    for (int64_t i = 0; i < y->n; i++) {
        int64_t at[SY_MAX_RANK], m = i / outer % y->dims[1], image = i / outer / y->dims[1];
        int64_t first = (image * x->dims[1] + m / per_group * depth) * inner;
        double sum = bias ? sy_get(bias, m) : 0;
        spatial_at(y, i % outer, at);
        for (int64_t k = 0; k < win.size; k++) {
            int64_t from = window_offset(&win, x, at, k);
            for (int64_t c = 0; from >= 0 && c < depth; c++)
                sum +=
                    sy_get(x, first + c * inner + from) * sy_get(w, (m * depth + c) * win.size + k);
        }
        sy_put(y, i, sum);
    }
    return SY_OK;
}

/* Weights and channels of both sides fit, for a convolution from `from` to `to`. */
static int check_channels(const struct sy_call *call, const struct sy_array *from,
                          const struct sy_array *to)
{
    const struct sy_array *w = &call->in[1];
    int64_t group = sy_node_int(call->node, "group", 1);
    if (call->n_in < 2 || call->n_in > 3 || !sy_call_in(call, 1) || from->rank < 3 ||
        w->rank != from->rank || to->rank != from->rank || group < 1 ||
        from->dims[1] != w->dims[1] * group || to->dims[1] != w->dims[0] ||
        w->dims[0] % group != 0 || from->dims[0] != to->dims[0] ||
        (sy_call_in(call, 2) && call->in[2].n != call->out[0].dims[1]))
        return sy_kernel_refuse(call, "weights that do not fit");
    struct window win = read_window(call, weight_sizes(call));
    return window_is_sane(&win) ? SY_OK : sy_kernel_refuse(call, "a window that does not fit");
}

static int check_conv(const struct sy_call *call)
{
    return check_channels(call, &call->in[0], &call->out[0]);
}

/* Each input is spread over its window of the result: sums in scratch, rounded once. */
static int run_conv_transpose(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *w = &call->in[1], *bias = sy_call_in(call, 2),
                          *y = &call->out[0];
    struct window win = read_window(call, weight_sizes(call));
    int64_t inner = sy_array_extent(x, 2, x->rank), outer = sy_array_extent(y, 2, y->rank);
    int64_t depth = w->dims[1], per_group = x->dims[1] / sy_node_int(call->node, "group", 1);
    double *sums = call->scratch;
    for (int64_t i = 0; i < y->n; i++)
        sums[i] = bias ? sy_get(bias, i / outer % y->dims[1]) : 0;
    for (int64_t i = 0; i < x->n; i++) {
        int64_t at[SY_MAX_RANK], c = i / inner % x->dims[1], image = i / inner / x->dims[1];
        int64_t first = (image * y->dims[1] + c / per_group * depth) * outer;
        spatial_at(x, i % inner, at);
        for (int64_t k = 0; k < win.size; k++) {
            int64_t to = window_offset(&win, y, at, k);
            for (int64_t m = 0; to >= 0 && m < depth; m++)
                sums[first + m * outer + to] +=
                    sy_get(x, i) * sy_get(w, (c * depth + m) * win.size + k);
        }
    }
    for (int64_t i = 0; i < y->n; i++)
        sy_put(y, i, sums[i]);
    return SY_OK;
}

static int check_conv_transpose(const struct sy_call *call)
{
    return check_channels(call, &call->out[0], &call->in[0]);
}

static int64_t scratch_conv_transpose(const struct sy_call *call)
{
    return call->out[0].n * (int64_t)sizeof(double);
}

/* ---- pools ---------------------------------------------------------------------------------------- */

static bool is_global(enum sy_op op)
{
    return op == SY_OP_GLOBAL_AVERAGE_POOL || op == SY_OP_GLOBAL_MAX_POOL ||
           op == SY_OP_GLOBAL_LP_POOL;
}

static struct window pool_window(const struct sy_call *call)
{
    return read_window(call, is_global(call->node->op) ? &call->in[0].dims[2] : NULL);
}

static bool is_norm(enum sy_op op)
{
    return op == SY_OP_LP_POOL || op == SY_OP_GLOBAL_LP_POOL;
}

/* Floats, the usual norms, no places asked for: a reduction of each plane, or by rows. */
static bool goes_by_rows(const struct sy_call *call)
{
    int64_t p = sy_node_int(call->node, "p", 2);
    return call->in[0].dtype == SY_DTYPE_F32 && !sy_call_out(call, 1) && call->in[0].n > 0 &&
           call->in[0].rank - 2 <= SY_POOL_DIMS && (!is_norm(call->node->op) || p == 1 || p == 2);
}

static void reduce_planes(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    bool sizes = sy_node_int(call->node, "p", 2) == 1;
    enum sy_op op = call->node->op == SY_OP_GLOBAL_MAX_POOL       ? SY_OP_REDUCE_MAX
                    : call->node->op == SY_OP_GLOBAL_AVERAGE_POOL ? SY_OP_REDUCE_MEAN
                    : sizes                                       ? SY_OP_REDUCE_L1
                                                                  : SY_OP_REDUCE_L2;
    int64_t inner = sy_array_extent(x, 2, x->rank);
    sy_reduce_rows(op, &(struct sy_reduce_shape){x->n / inner, inner, 1}, x->data,
                   call->out[0].data);
}

static void pool_by_rows(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    struct window w = pool_window(call);
    struct sy_pool_rows p = {
        .kind = SY_POOL_LARGEST, .n_dims = w.n, .planes = x->dims[0] * x->dims[1]};
    bool padding = sy_node_int(call->node, "count_include_pad", 0) != 0;
    if (is_norm(call->node->op))
        p.kind = sy_node_int(call->node, "p", 2) == 1 ? SY_POOL_L1 : SY_POOL_L2;
    else if (call->node->op == SY_OP_AVERAGE_POOL)
        p.kind = SY_POOL_AVERAGE;
    for (int d = 0; d < w.n; d++) {
        p.in[d] = x->dims[d + 2];
        p.out[d] = y->dims[d + 2];
        p.kernel[d] = w.kernel[d];
        p.strides[d] = w.strides[d];
        p.dilations[d] = w.dilations[d];
        p.pads[d] = w.pads[d];
        p.from[d] = padding ? -w.pads[d] : 0;
        p.end[d] = p.in[d] + (padding ? sy_node_int_at(call->node, "pads", w.n + d, 0) : 0);
    }
    sy_pool_rows(&p, x->data, y->data);
}

static int run_by_rows(const struct sy_call *call)
{
    if (is_global(call->node->op))
        reduce_planes(call);
    else
        pool_by_rows(call);
    return SY_OK;
}

/* The largest in the window: where it lies in its channel, the first of equal ones. */
static int64_t best_in(const struct window *w, const struct sy_array *x, int64_t first,
                       const int64_t *at)
{
    int64_t best = -1;
    for (int64_t k = 0; k < w->size; k++) {
        int64_t from = window_offset(w, x, at, k);
        if (from >= 0 && (best < 0 || sy_get(x, first + from) > sy_get(x, first + best)))
            best = from;
    }
    return best;
}

/* Row-major among the spatial dimensions, or (storage_order 1) column-major; in the whole tensor. */
static int64_t index_of(const struct sy_call *call, int64_t channel, int64_t offset)
{
    const struct sy_array *x = &call->in[0];
    int64_t inner = sy_array_extent(x, 2, x->rank);
    if (sy_node_int(call->node, "storage_order", 0) == 0)
        return channel * inner + offset;
    int64_t turned = 0, stride = 1, at[SY_MAX_RANK];
    spatial_at(x, offset, at);
    for (int d = 0; d < x->rank - 2; d++) {
        turned += at[d] * stride;
        stride *= x->dims[d + 2];
    }
    return channel * inner + turned;
}

static int run_max_pool(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0], *indices = sy_call_out(call, 1);
    if (goes_by_rows(call))
        return run_by_rows(call);
    struct window w = pool_window(call);
    int64_t inner = sy_array_extent(x, 2, x->rank), outer = sy_array_extent(y, 2, y->rank);
    for (int64_t i = 0; i < y->n; i++) {
        int64_t at[SY_MAX_RANK], channel = i / outer;
        spatial_at(y, i % outer, at);
        int64_t best = best_in(&w, x, channel * inner, at);
        if (best < 0)
            return sy_kernel_fail(call, "a window lies in the padding altogether");
        sy_array_copy(y, i, x, channel * inner + best);
        if (indices)
            sy_put_int(indices, i, index_of(call, channel, best));
    }
    return SY_OK;
}

/* Positions that count for an average: the window without what lies behind the end padding (ceil_mode). */
static int64_t counted(const struct sy_call *call, const struct window *w, const int64_t *at)
{
    const struct sy_array *x = &call->in[0];
    int64_t n = 1;
    for (int d = 0; d < w->n; d++) {
        int64_t end = x->dims[d + 2] + sy_node_int_at(call->node, "pads", w->n + d, 0), inside = 0;
        for (int64_t k = 0; k < w->kernel[d]; k++)
            inside += at[d] * w->strides[d] - w->pads[d] + k * w->dilations[d] < end;
        n *= inside;
    }
    return n;
}

static double pool_one(const struct sy_call *call, const struct window *w, int64_t first,
                       const int64_t *at)
{
    const struct sy_array *x = &call->in[0];
    bool lp = is_norm(call->node->op);
    double p = (double)sy_node_int(call->node, "p", 2), sum = 0;
    int64_t n = 0;
    for (int64_t k = 0; k < w->size; k++) {
        int64_t from = window_offset(w, x, at, k);
        if (from < 0)
            continue;
        double value = sy_get(x, first + from);
        sum += lp ? pow(fabs(value), p) : value;
        n++;
    }
    if (lp)
        return pow(sum, 1 / p);
    if (sy_node_int(call->node, "count_include_pad", 0) != 0)
        n = counted(call, w, at);
    return n ? sum / (double)n : 0;
}

static int run_pool(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    if (goes_by_rows(call))
        return run_by_rows(call);
    struct window w = pool_window(call);
    int64_t inner = sy_array_extent(x, 2, x->rank), outer = sy_array_extent(y, 2, y->rank);
    for (int64_t i = 0; i < y->n; i++) {
        int64_t at[SY_MAX_RANK];
        spatial_at(y, i % outer, at);
        sy_put(y, i, pool_one(call, &w, i / outer * inner, at));
    }
    return SY_OK;
}

static int check_pool(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0], *indices = sy_call_out(call, 1);
    if (call->n_in != 1 || x->rank < 3 || y->rank != x->rank || x->dims[0] != y->dims[0] ||
        x->dims[1] != y->dims[1] || x->dtype != y->dtype ||
        (indices && (!sy_array_same_dims(indices, y) || indices->dtype != SY_DTYPE_I64)))
        return sy_kernel_refuse(call, "a result that does not fit");
    struct window w = pool_window(call);
    return window_is_sane(&w) ? SY_OK : sy_kernel_refuse(call, "a window that does not fit");
}

/* Indices count in the shape that the pool had: its size as inference knows it without output_shape. */
static int run_max_unpool(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    struct sy_array pooled = *x;
    struct window w = read_window(call, NULL);
    for (int d = 0; d < w.n; d++)
        pooled.dims[d + 2] = (x->dims[d + 2] - 1) * w.strides[d] + w.kernel[d] - w.pads[d] -
                             sy_node_int_at(call->node, "pads", w.n + d, 0);
    pooled.n = sy_array_extent(&pooled, 0, pooled.rank);
    memset(y->data, 0, (size_t)y->n * sy_dtype_bytes(y->dtype));
    for (int64_t i = 0; i < x->n; i++) {
        int64_t at[SY_MAX_RANK], to = 0, index = sy_get_int(&call->in[1], i);
        if (index < 0 || index >= pooled.n)
            return sy_kernel_fail(call, "index %lld of %lld", (long long)index,
                                  (long long)pooled.n);
        sy_array_at(&pooled, index, at);
        for (int d = 0; d < y->rank; d++) {
            if (at[d] >= y->dims[d])
                return sy_kernel_fail(call, "index %lld is outside the result", (long long)index);
            to = to * y->dims[d] + at[d];
        }
        sy_array_copy(y, to, x, i);
    }
    return SY_OK;
}

static int check_max_unpool(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    if (call->n_in < 2 || x->rank < 3 || call->in[1].n != x->n ||
        call->in[1].dtype != SY_DTYPE_I64 || call->out[0].rank != x->rank ||
        call->out[0].dtype != x->dtype)
        return sy_kernel_refuse(call, "indices or a result that do not fit");
    struct window w = read_window(call, NULL);
    bool fits = window_is_sane(&w);
    for (int d = 0; fits && d < w.n; d++)
        fits = (x->dims[d + 2] - 1) * w.strides[d] + w.kernel[d] > w.pads[d];
    return fits ? SY_OK : sy_kernel_refuse(call, "a window that does not fit");
}

#define POOL(op, run, types)               \
    {                                      \
        op, run, {types}, check_pool, NULL \
    }
const struct sy_kernel sy_kernels_window[] = {
    {SY_OP_CONV, run_conv, {SY_ANY_FLOAT, SY_AS_FIRST}, check_conv, NULL},
    {SY_OP_CONV_TRANSPOSE,
     run_conv_transpose,
     {SY_ANY_FLOAT, SY_AS_FIRST},
     check_conv_transpose,
     scratch_conv_transpose},
    POOL(SY_OP_MAX_POOL, run_max_pool, SY_ANY_NUMBER),
    POOL(SY_OP_GLOBAL_MAX_POOL, run_max_pool, SY_ANY_FLOAT),
    POOL(SY_OP_AVERAGE_POOL, run_pool, SY_ANY_FLOAT),
    POOL(SY_OP_GLOBAL_AVERAGE_POOL, run_pool, SY_ANY_FLOAT),
    POOL(SY_OP_LP_POOL, run_pool, SY_ANY_FLOAT),
    POOL(SY_OP_GLOBAL_LP_POOL, run_pool, SY_ANY_FLOAT),
    {SY_OP_MAX_UNPOOL, run_max_unpool, {SY_ANY_NUMBER, SY_BIT(I64)}, check_max_unpool, NULL},
    {0}};

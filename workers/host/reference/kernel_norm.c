/* Normalisations, and softmax in the forms and types that oneDNN does not take. */
#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/rows/row_kernels.h"
#include "workers/host/rows/softmax_rows.h"

static int64_t axis_of(const struct sy_call *call, int64_t otherwise)
{
    int64_t axis = sy_node_int(call->node, "axis", otherwise);
    return axis < 0 ? axis + call->in[0].rank : axis;
}

static int check_same(const struct sy_call *call)
{
    return sy_array_same_dims(&call->in[0], &call->out[0])
               ? SY_OK
               : sy_kernel_refuse(call, "a result of another shape");
}

static int check_axis(const struct sy_call *call)
{
    int64_t axis = axis_of(call, -1);
    if (axis < 0 || axis >= call->in[0].rank)
        return sy_kernel_refuse(call, "an axis that does not fit");
    return check_same(call);
}

/* ---- lines: softmax, hardmax, Lp ------------------------------------------------------------------ */

/* A line starts at `start`; its elements are `step` apart. */
static void softmax_line(const struct sy_call *call, int64_t start, int64_t step, int64_t n)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    double top = -INFINITY, sum = 0;
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        double value = sy_get(x, start + i * step);
        best = value > top ? i : best;
        top = fmax(top, value);
    }
    for (int64_t i = 0; i < n; i++)
        sum += exp(sy_get(x, start + i * step) - top);
    for (int64_t i = 0; i < n; i++) {
        double value = sy_get(x, start + i * step) - top;
        if (call->node->op == SY_OP_HARDMAX)
            value = i == best;
        else
            value = call->node->op == SY_OP_SOFTMAX ? exp(value) / sum : value - log(sum);
        sy_put(y, start + i * step, value);
    }
}

/* 1 where the first of the largest is. */
static void hardmax_line(const float *x, int64_t step, int64_t n, float *y)
{
    int64_t best = 0;
    float top = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        best = x[i * step] > top ? i : best;
        top = x[i * step] > top ? x[i * step] : top;
        y[i * step] = 0;
    }
    y[best * step] = 1;
}

static void lp_line(const struct sy_call *call, int64_t start, int64_t step, int64_t n)
{
    double norm = 0;
    bool first = sy_node_int(call->node, "p", 2) == 1;
    for (int64_t i = 0; i < n; i++) {
        double value = sy_get(&call->in[0], start + i * step);
        norm += first ? fabs(value) : value * value;
    }
    norm = first ? norm : sqrt(norm);
    for (int64_t i = 0; i < n; i++)
        sy_put(&call->out[0], start + i * step,
               norm == 0 ? 0 : sy_get(&call->in[0], start + i * step) / norm);
}

/* `flat`: all dimensions from the axis on are one, as up to opset 12. */
static int run_lines(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    int axis = (int)axis_of(call, -1);
    bool flat = sy_node_int(call->node, "flat", 0) != 0;
    int64_t n = flat ? sy_array_extent(x, axis, x->rank) : x->dims[axis];
    int64_t step = flat ? 1 : sy_array_extent(x, axis + 1, x->rank);
    if (call->node->op == SY_OP_LP_NORM && x->dtype == SY_DTYPE_F32 && x->n > 0) {
        sy_lp_norm_rows(sy_node_int(call->node, "p", 2),
                        &(struct sy_reduce_shape){x->n / n / step, n, step}, x->data,
                        call->out[0].data);
        return SY_OK;
    }
    for (int64_t k = 0; n > 0 && k < x->n / n; k++) {
        int64_t start = k / step * step * n + k % step;
        if (call->node->op == SY_OP_LP_NORM)
            lp_line(call, start, step, n);
        else if (call->node->op == SY_OP_HARDMAX && x->dtype == SY_DTYPE_F32)
            hardmax_line((const float *)x->data + start, step, n,
                         (float *)call->out[0].data + start);
        else
            softmax_line(call, start, step, n);
    }
    return SY_OK;
}

/* ---- blocks: mean and variance of contiguous elements ---------------------------------------------- */

struct moments {
    double mean, rate;
};

/* root: of the mean square, without a mean. */
static struct moments moments_of(const struct sy_array *x, int64_t start, int64_t n, double epsilon,
                                 bool root)
{
    double mean = 0, square = 0;
    for (int64_t i = 0; i < n && !root; i++)
        mean += sy_get(x, start + i);
    mean /= (double)n;
    for (int64_t i = 0; i < n; i++) {
        double d = sy_get(x, start + i) - mean;
        square += d * d;
    }
    return (struct moments){mean, 1 / sqrt(square / (double)n + epsilon)};
}

/* LayerNormalization with all its outputs, RMSNormalization; scale and bias are broadcast to the input. */
static int run_layer_norm(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0], *bias = sy_call_in(call, 2);
    int64_t scale_strides[SY_MAX_RANK], bias_strides[SY_MAX_RANK];
    int64_t n = sy_array_extent(x, (int)axis_of(call, -1), x->rank);
    double epsilon = (double)sy_node_float(call->node, "epsilon", 1e-5f);
    sy_array_broadcast_strides(&call->in[1], x, scale_strides);
    if (bias)
        sy_array_broadcast_strides(bias, x, bias_strides);
    for (int64_t k = 0; n > 0 && k < x->n / n; k++) {
        struct moments m = moments_of(x, k * n, n, epsilon, call->node->op == SY_OP_RMS_NORM);
        for (int64_t i = k * n; i < (k + 1) * n; i++) {
            double value = (sy_get(x, i) - m.mean) * m.rate *
                           sy_get(&call->in[1], sy_array_offset(x, i, scale_strides));
            sy_put(y, i, value + (bias ? sy_get(bias, sy_array_offset(x, i, bias_strides)) : 0));
        }
        if (sy_call_out(call, 1))
            sy_put(&call->out[1], k, m.mean);
        if (sy_call_out(call, 2))
            sy_put(&call->out[2], k, m.rate);
    }
    return SY_OK;
}

static int check_layer_norm(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    int64_t strides[SY_MAX_RANK];
    SY_TRY(check_axis(call));
    int64_t n = sy_array_extent(x, (int)axis_of(call, -1), x->rank);
    for (int i = 1; i < 3; i++)
        if (sy_call_in(call, i) ? !sy_array_broadcast_strides(&call->in[i], x, strides) : i == 1)
            return sy_kernel_refuse(call, "a scale or bias that does not fit");
    for (int o = 1; o < call->n_out; o++)
        if (sy_call_out(call, o) && (o > 2 || call->out[o].n * n != x->n))
            return sy_kernel_refuse(call, "a second or third result that does not fit");
    return SY_OK;
}

/* InstanceNormalization and GroupNormalization: groups of channels; scale and bias per channel, or (opset 18) per group. */
static int run_group_norm(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *scale = &call->in[1];
    int64_t channels = x->dims[1], inner = sy_array_extent(x, 2, x->rank);
    int64_t groups =
        call->node->op == SY_OP_GROUP_NORM ? sy_node_int(call->node, "num_groups", 1) : channels;
    int64_t per_group = channels / groups, n = per_group * inner;
    double epsilon = (double)sy_node_float(call->node, "epsilon", 1e-5f);
    for (int64_t k = 0; k < x->dims[0] * groups; k++) {
        struct moments m = moments_of(x, k * n, n, epsilon, false);
        for (int64_t i = 0; i < n; i++) {
            int64_t c = k % groups * per_group + i / inner;
            c = scale->n == channels ? c : k % groups;
            double value = (sy_get(x, k * n + i) - m.mean) * m.rate;
            sy_put(&call->out[0], k * n + i, value * sy_get(scale, c) + sy_get(&call->in[2], c));
        }
    }
    return SY_OK;
}

static int check_group_norm(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    bool grouped = call->node->op == SY_OP_GROUP_NORM;
    if (call->n_in != 3 || x->rank < 3 || !sy_call_in(call, 1) || !sy_call_in(call, 2))
        return sy_kernel_refuse(call, "inputs that do not fit");
    int64_t groups = grouped ? sy_node_int(call->node, "num_groups", 0) : x->dims[1];
    if (groups < 1 || x->dims[1] % groups != 0 || call->in[1].n != call->in[2].n ||
        (call->in[1].n != x->dims[1] && !(grouped && call->in[1].n == groups)))
        return sy_kernel_refuse(call, "groups, scale or bias that do not fit");
    return check_same(call);
}

/* Mean and variance of channel c over all images (biased: divided by n). */
static void channel_moments(const struct sy_array *x, int64_t c, int64_t inner, double *mean,
                            double *variance)
{
    int64_t images = x->dims[0], n = images * inner;
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++)
        sum += sy_get(x, (i / inner * x->dims[1] + c) * inner + i % inner);
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double d = sy_get(x, (i / inner * x->dims[1] + c) * inner + i % inner) - *mean;
        square += d * d;
    }
    *variance = square / (double)n;
}

/* training_mode: the batch's own mean and variance, whose running ones are outputs 1 and 2. */
static void norm_channel_by_batch(const struct sy_call *call, int64_t c, int64_t inner)
{
    const struct sy_array *x = &call->in[0];
    double epsilon = (double)sy_node_float(call->node, "epsilon", 1e-5f),
           keep = (double)sy_node_float(call->node, "momentum", 0.9f), now[2];
    channel_moments(x, c, inner, &now[0], &now[1]);
    double scale = sy_get(&call->in[1], c) / sqrt(now[1] + epsilon),
           shift = sy_get(&call->in[2], c);
    for (int64_t i = 0; i < x->dims[0] * inner; i++) {
        int64_t at = (i / inner * x->dims[1] + c) * inner + i % inner;
        sy_put(&call->out[0], at, (sy_get(x, at) - now[0]) * scale + shift);
    }
    for (int i = 0; i < 2; i++)
        if (sy_call_out(call, i + 1))
            sy_put(&call->out[i + 1], c, sy_get(&call->in[i + 3], c) * keep + now[i] * (1 - keep));
}

static int run_batch_norm(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    int64_t inner = sy_array_extent(x, 2, x->rank);
    double epsilon = (double)sy_node_float(call->node, "epsilon", 1e-5f);
    if (sy_node_int(call->node, "training_mode", 0) != 0) {
#pragma omp parallel for schedule(static) if (x->n > 16384)
        for (int64_t c = 0; c < x->dims[1]; c++)
            norm_channel_by_batch(call, c, inner);
        return SY_OK;
    }
    for (int64_t i = 0; i < x->n; i++) {
        int64_t c = i / inner % x->dims[1];
        double value =
            (sy_get(x, i) - sy_get(&call->in[3], c)) / sqrt(sy_get(&call->in[4], c) + epsilon);
        sy_put(&call->out[0], i, value * sy_get(&call->in[1], c) + sy_get(&call->in[2], c));
    }
    return SY_OK;
}

static int check_batch_norm(const struct sy_call *call)
{
    for (int i = 1; i < 5; i++)
        if (call->n_in != 5 || !sy_call_in(call, i) || call->in[0].rank < 2 ||
            call->in[i].n != call->in[0].dims[1])
            return sy_kernel_refuse(call, "a parameter that does not fit the channels");
    for (int i = 1; i < call->n_out; i++)
        if (sy_call_out(call, i) && call->out[i].n != call->in[0].dims[1])
            return sy_kernel_refuse(call, "a result that does not fit the channels");
    return check_same(call);
}

/* Axes 0, 2, 3 unless given; mean and variance in scratch, one pair for each that stays. */
static bool is_averaged(const struct sy_call *call, int d)
{
    const struct sy_attr *axes = sy_node_attr(call->node, "axes");
    bool averaged = axes ? false : d != 1;
    for (int i = 0; axes && i < axes->n; i++)
        averaged = averaged || axes->ints[i] == d || axes->ints[i] + call->in[0].rank == d;
    return averaged;
}

/* Floats whose averaged dimensions are the first ones (or none) and the last ones: whole rows. */
static bool mean_variance_rows(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    int first = 0, end = x->rank;
    while (end > 0 && is_averaged(call, end - 1))
        end--;
    while (first < end && is_averaged(call, first))
        first++;
    bool rows = x->dtype == SY_DTYPE_F32 && call->out[0].dtype == SY_DTYPE_F32 && end < x->rank;
    for (int d = first; d < end; d++)
        rows = rows && !is_averaged(call, d);
    if (rows)
        sy_row_mean_variance(sy_array_extent(x, 0, first), sy_array_extent(x, first, end),
                             sy_array_extent(x, end, x->rank), x->data, call->out[0].data);
    return rows;
}

static int run_mean_variance(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    if (mean_variance_rows(call))
        return SY_OK;
    int64_t strides[SY_MAX_RANK] = {0}, kept = 1;
    double *sums = call->scratch, *squares = sums + x->n;
    for (int d = x->rank - 1; d >= 0; d--) {
        bool reduced = is_averaged(call, d);
        strides[d] = reduced ? 0 : kept;
        kept *= reduced ? 1 : x->dims[d];
    }
    memset(sums, 0, (size_t)(2 * x->n) * sizeof *sums);
    int64_t averaged = kept ? x->n / kept : 1;
    double n = (double)averaged;
    for (int64_t i = 0; i < x->n; i++)
        sums[sy_array_offset(x, i, strides)] += sy_get(x, i) / n;
    for (int64_t i = 0; i < x->n; i++) {
        int64_t k = sy_array_offset(x, i, strides);
        double d = sy_get(x, i) - sums[k];
        squares[k] += d * d / n;
    }
    for (int64_t i = 0; i < x->n; i++) {
        int64_t k = sy_array_offset(x, i, strides);
        sy_put(&call->out[0], i, (sy_get(x, i) - sums[k]) / (sqrt(squares[k]) + 1e-9));
    }
    return SY_OK;
}

static int64_t scratch_mean_variance(const struct sy_call *call)
{
    return 2 * call->in[0].n * (int64_t)sizeof(double);
}

/* LRN: squares of `size` channels around each. */
static int run_lrn(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    int64_t size = sy_node_int(call->node, "size", 1), inner = sy_array_extent(x, 2, x->rank);
    double alpha = (double)sy_node_float(call->node, "alpha", 1e-4f),
           beta = (double)sy_node_float(call->node, "beta", 0.75f),
           bias = (double)sy_node_float(call->node, "bias", 1);
    for (int64_t i = 0; i < x->n; i++) {
        int64_t c = i / inner % x->dims[1], first = c - (size - 1) / 2, last = c + size / 2;
        double sum = 0;
        first = first < 0 ? 0 : first;
        last = last >= x->dims[1] ? x->dims[1] - 1 : last;
        for (int64_t k = first; k <= last; k++) {
            double value = sy_get(x, i + (k - c) * inner);
            sum += value * value;
        }
        sy_put(&call->out[0], i, sy_get(x, i) / pow(bias + alpha / (double)size * sum, beta));
    }
    return SY_OK;
}

static int check_lrn(const struct sy_call *call)
{
    int64_t size = sy_node_int(call->node, "size", 0);
    if (call->in[0].rank < 2 || size < 1 || size > 1 << 20)
        return sy_kernel_refuse(call, "a size that does not fit");
    return check_same(call);
}

#define LINES(op)                                       \
    {                                                   \
        op, run_lines, {SY_ANY_FLOAT}, check_axis, NULL \
    }
const struct sy_kernel sy_kernels_norm[] = {
    LINES(SY_OP_SOFTMAX),
    LINES(SY_OP_LOG_SOFTMAX),
    LINES(SY_OP_HARDMAX),
    LINES(SY_OP_LP_NORM),
    {SY_OP_LAYER_NORM, run_layer_norm, {SY_ANY_FLOAT}, check_layer_norm, NULL},
    {SY_OP_RMS_NORM, run_layer_norm, {SY_ANY_FLOAT}, check_layer_norm, NULL},
    {SY_OP_INSTANCE_NORM, run_group_norm, {SY_ANY_FLOAT}, check_group_norm, NULL},
    {SY_OP_GROUP_NORM, run_group_norm, {SY_ANY_FLOAT}, check_group_norm, NULL},
    {SY_OP_BATCH_NORM, run_batch_norm, {SY_ANY_FLOAT}, check_batch_norm, NULL},
    {SY_OP_MEAN_VARIANCE_NORM,
     run_mean_variance,
     {SY_ANY_FLOAT},
     check_same,
     scratch_mean_variance},
    {SY_OP_LRN, run_lrn, {SY_ANY_FLOAT}, check_lrn, NULL},
    {0}};

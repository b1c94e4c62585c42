/* Softmax, the normalizations over rows and groups, reductions. */
#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/train/train_curves.h"
#include "workers/host/train/train_internal.h"

#define PARALLEL_FROM 16384

/* ---- Softmax, LogSoftmax -------------------------------------------------------------------------- */

/* Lines of n elements `inner` apart; line (o, i) begins at o * n * inner + i. */
struct lines {
    int64_t outer, n, inner;
    bool is_log;
};

static void describe_lines(const struct sy_trainer *t, const struct sy_node *node, struct lines *l)
{
    int64_t dims[SY_MAX_RANK];
    int rank = sy_tr_shape(t, node->outputs[0], dims);
    int axis = (int)sy_node_int(node, "axis", -1);
    bool is_flat = sy_node_int(node, "flat", 0) != 0;
    axis += axis < 0 ? rank : 0;
    *l = (struct lines){1, 1, 1, node->op == SY_OP_LOG_SOFTMAX};
    for (int i = 0; i < rank; i++)
        *(i < axis ? &l->outer : i == axis || is_flat ? &l->n : &l->inner) *= dims[i];
}

SY_CLONES static void softmax_line(const float *x, float *y, int64_t n, int64_t step, bool is_log)
{
    float top = x[0], sum = 0.0f;
    for (int64_t i = 0; i < n; i++)
        top = x[i * step] > top ? x[i * step] : top;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float e = sy_curve_exp(x[i * step] - top);
        y[i * step] = e;
        sum += e;
    }
    float log_sum = top + logf(sum), rate = 1.0f / sum;
    for (int64_t i = 0; is_log && i < n; i++)
        y[i * step] = x[i * step] - log_sum;
    for (int64_t i = 0; !is_log && i < n; i++)
        y[i * step] *= rate;
}

SY_CLONES static void softmax_back_line(const float *y, const float *dy, float *dx, int64_t n,
                                        int64_t step, bool is_log)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += is_log ? dy[i * step] : dy[i * step] * y[i * step];
    for (int64_t i = 0; is_log && i < n; i++)
        dx[i * step] = dy[i * step] - sy_curve_exp(y[i * step]) * sum;
    for (int64_t i = 0; !is_log && i < n; i++)
        dx[i * step] = y[i * step] * (dy[i * step] - sum);
}

static int run_softmax(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct lines *l = step->data;
    float *y = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1);
#pragma omp parallel for schedule(static) if (l->outer * l->n * l->inner > PARALLEL_FROM)
    for (int64_t k = 0; k < l->outer * l->inner; k++) {
        int64_t at = k / l->inner * l->n * l->inner + k % l->inner;
        softmax_line(x + at, y + at, l->n, l->inner, l->is_log);
    }
    return SY_OK;
}

static int run_softmax_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct lines *l = step->data;
    float *dx = sy_tr_at(t, step, 0);
    const float *y = sy_tr_at(t, step, 1), *dy = sy_tr_at(t, step, 2);
#pragma omp parallel for schedule(static) if (l->outer * l->n * l->inner > PARALLEL_FROM)
    for (int64_t k = 0; k < l->outer * l->inner; k++) {
        int64_t at = k / l->inner * l->n * l->inner + k % l->inner;
        softmax_back_line(y + at, dy + at, dx + at, l->n, l->inner, l->is_log);
    }
    return SY_OK;
}

static int add_softmax(struct sy_trainer *t, unsigned when, const struct sy_node *node,
                       sy_tr_fn *fn, int n_values, const int *values)
{
    struct lines *l;
    SY_TRY(sy_tr_alloc(sizeof *l, &l));
    describe_lines(t, node, l);
    return sy_tr_add_call(t, when, fn, 1, n_values, values, l);
}

int sy_tr_softmax_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x, y;
    if (t->graph->tensors[node->outputs[0]].dtype != SY_DTYPE_F32)
        return sy_tr_plain_forward(t, n);
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[0], &x));
    SY_TRY(sy_tr_result(t, node->outputs[0], &y));
    return add_softmax(t, SY_TR_FORWARD, node, run_softmax, 2, (const int[]){y, x});
}

int sy_tr_softmax_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int dx, dy, y;
    (void)gradient;
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->outputs[0], &y));
    SY_TRY(sy_tr_diff_of(t, node->outputs[0], &dy));
    SY_TRY(sy_tr_diff_begin(t, node->inputs[0], &dx));
    SY_TRY(add_softmax(t, SY_TR_TRAIN, node, run_softmax_back, 3, (const int[]){dx, y, dy}));
    return sy_tr_diff_end(t, node->inputs[0], dx);
}

/* ---- LayerNormalization, RMSNormalization, InstanceNormalization, GroupNormalization ----------------
 *
 * A row of n elements is normalized by its own mean and deviation. Element i of row r belongs to channel
 * r % groups * (n / plane) + i / plane, which has the scale `channel / share`. Layer norm: one group, plane 1. */
struct rows {
    int64_t n_rows, n, groups, plane, share, n_scales;
    float epsilon;
    bool is_rms;
};

static int describe_rows(const struct sy_trainer *t, const struct sy_node *node, struct rows *r)
{
    int64_t dims[SY_MAX_RANK], all = sy_tr_count(t, node->inputs[0]);
    int rank = sy_tr_dims(t, node->inputs[0], dims);
    SY_TRY(rank);
    bool is_layer = node->op == SY_OP_LAYER_NORM || node->op == SY_OP_RMS_NORM;
    *r = (struct rows){.groups = 1, .n = 1, .plane = 1, .share = 1};
    r->epsilon = sy_node_float(node, "epsilon", 1e-5f);
    r->is_rms = node->op == SY_OP_RMS_NORM;
    if (is_layer) {
        int64_t axis = sy_node_int(node, "axis", -1);
        for (int64_t i = axis < 0 ? axis + rank : axis; i < rank; i++)
            r->n *= dims[i];
    } else {
        for (int i = 2; i < rank; i++)
            r->plane *= dims[i];
        r->groups = node->op == SY_OP_GROUP_NORM ? sy_node_int(node, "num_groups", 1) : dims[1];
        if (r->groups < 1 || dims[1] % r->groups)
            return sy_tr_refuse(node, "channels and groups do not fit together");
        r->n = dims[1] / r->groups * r->plane;
    }
    r->n_rows = all / r->n;
    int64_t channels = r->groups * (r->n / r->plane);
    r->n_scales = node->n_inputs > 1 ? sy_tr_count(t, node->inputs[1]) : 0;
    if (r->n_scales < 1 || channels % r->n_scales || (is_layer && r->n_scales != channels) ||
        (sy_node_input(node, 2) >= 0 && sy_tr_count(t, node->inputs[2]) != r->n_scales))
        return sy_tr_refuse(node, "a scale or bias that does not fit the channels");
    r->share = channels / r->n_scales;
    return SY_OK;
}

static inline int64_t scale_of(const struct rows *r, int64_t row, int64_t i)
{
    return (row % r->groups * (r->n / r->plane) + i / r->plane) / r->share;
}

SY_CLONES static void moments(const float *x, int64_t n, bool is_rms, float epsilon, float *mean,
                              float *rate)
{
    float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    float m = is_rms ? 0.0f : sum / (float)n;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - m) * (x[i] - m);
    *mean = m;
    *rate = 1.0f / sqrtf(squares / (float)n + epsilon);
}

SY_CLONES static void norm_part(const float *x, float *y, int64_t n, float mean, float rate,
                                const float *scale, const float *shift, int64_t step)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * rate * scale[i * step] + (shift ? shift[i * step] : 0.0f);
}

/* values: y, mean, rate, x, scale, shift */
static int run_rows(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct rows *r = step->data;
    float *y = sy_tr_at(t, step, 0), *mean = sy_tr_at(t, step, 1), *rate = sy_tr_at(t, step, 2);
    const float *x = sy_tr_at(t, step, 3), *scale = sy_tr_at(t, step, 4),
                *shift = sy_tr_at(t, step, 5);
    bool is_flat = r->plane == 1 && r->groups == 1 && r->share == 1;
    int64_t width = is_flat ? r->n : r->plane;
#pragma omp parallel for schedule(static) if (r->n_rows * r->n > PARALLEL_FROM)
    for (int64_t row = 0; row < r->n_rows; row++) {
        const float *from = x + row * r->n;
        moments(from, r->n, r->is_rms, r->epsilon, &mean[row], &rate[row]);
        for (int64_t i = 0; i < r->n; i += width) {
            int64_t at = is_flat ? 0 : scale_of(r, row, i);
            norm_part(from + i, y + row * r->n + i, width, mean[row], rate[row], scale + at,
                      shift ? shift + at : NULL, is_flat);
        }
    }
    return SY_OK;
}

struct sums {
    float of_g, of_gx;
};

SY_CLONES static struct sums row_sums(const float *x, const float *dy, int64_t n, float mean,
                                      float rate, const float *scale, int64_t step)
{
    float a = 0.0f, b = 0.0f;
#pragma omp simd reduction(+ : a, b)
    for (int64_t i = 0; i < n; i++) {
        float g = dy[i] * scale[i * step];
        a += g;
        b += g * (x[i] - mean) * rate;
    }
    return (struct sums){a, b};
}

SY_CLONES static void back_part(const float *x, const float *dy, float *dx, int64_t n, float mean,
                                float rate, const float *scale, int64_t step, float of_g,
                                float of_gx)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = rate * (dy[i] * scale[i * step] - of_g - (x[i] - mean) * rate * of_gx);
}

/* values: dx, x, dy, mean, rate, scale */
static int run_rows_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct rows *r = step->data;
    float *dx = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1), *dy = sy_tr_at(t, step, 2), *mean = sy_tr_at(t, step, 3),
                *rate = sy_tr_at(t, step, 4), *scale = sy_tr_at(t, step, 5);
    bool is_flat = r->plane == 1 && r->groups == 1 && r->share == 1;
    int64_t width = is_flat ? r->n : r->plane;
#pragma omp parallel for schedule(static) if (r->n_rows * r->n > PARALLEL_FROM)
    for (int64_t row = 0; row < r->n_rows; row++) {
        const float *px = x + row * r->n, *pg = dy + row * r->n;
        struct sums all = {0, 0};
        for (int64_t i = 0; i < r->n; i += width) {
            struct sums s = row_sums(px + i, pg + i, width, mean[row], rate[row],
                                     scale + (is_flat ? 0 : scale_of(r, row, i)), is_flat);
            all.of_g += s.of_g;
            all.of_gx += s.of_gx;
        }
        all.of_g = r->is_rms ? 0.0f : all.of_g / (float)r->n;
        all.of_gx /= (float)r->n;
        for (int64_t i = 0; i < r->n; i += width)
            back_part(px + i, pg + i, dx + row * r->n + i, width, mean[row], rate[row],
                      scale + (is_flat ? 0 : scale_of(r, row, i)), is_flat, all.of_g, all.of_gx);
    }
    return SY_OK;
}

SY_CLONES static void scale_part(const float *x, const float *dy, float *scale, float *shift,
                                 int64_t n, float mean, float rate)
{
    for (int64_t i = 0; i < n; i++) {
        scale[i] += dy[i] * (x[i] - mean) * rate;
        shift[i] += dy[i];
    }
}

/* One column block a thread; rows in order. */
static void flat_scales(const struct rows *r, const float *x, const float *dy, const float *mean,
                        const float *rate, float *scale, float *shift)
{
    const int64_t block = 128;
#pragma omp parallel for schedule(static) if (r->n_rows * r->n > PARALLEL_FROM)
    for (int64_t i = 0; i < r->n; i += block)
        for (int64_t row = 0; row < r->n_rows; row++)
            scale_part(x + row * r->n + i, dy + row * r->n + i, scale + i, shift + i,
                       SY_MIN(block, r->n - i), mean[row], rate[row]);
}

/* values: dscale, dshift, x, dy, mean, rate */
static int run_rows_scale(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct rows *r = step->data;
    float *scale = sy_tr_at(t, step, 0), *shift = sy_tr_at(t, step, 1);
    const float *x = sy_tr_at(t, step, 2), *dy = sy_tr_at(t, step, 3), *mean = sy_tr_at(t, step, 4),
                *rate = sy_tr_at(t, step, 5);
    memset(scale, 0, (size_t)r->n_scales * sizeof *scale);
    memset(shift, 0, (size_t)r->n_scales * sizeof *shift);
    if (r->plane == 1 && r->groups == 1 && r->share == 1) {
        flat_scales(r, x, dy, mean, rate, scale, shift);
        return SY_OK;
    }
    for (int64_t row = 0; row < r->n_rows; row++)
        for (int64_t i = 0; i < r->n; i += r->plane) {
            struct sums s;
            const float one = 1.0f;
            int64_t at = row * r->n + i;
            s = row_sums(x + at, dy + at, r->plane, mean[row], rate[row], &one, 0);
            scale[scale_of(r, row, i)] += s.of_gx;
            shift[scale_of(r, row, i)] += s.of_g;
        }
    return SY_OK;
}

static int add_rows(struct sy_trainer *t, unsigned when, const struct sy_node *node, sy_tr_fn *fn,
                    int n_results, const int *values)
{
    struct rows *r;
    SY_TRY(sy_tr_alloc(sizeof *r, &r));
    describe_rows(t, node, r);
    return sy_tr_add_call(t, when, fn, n_results, 6, values, r);
}

int sy_tr_rows_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_node *record = &t->nodes[n];
    struct rows r;
    int v[6];
    bool has_shift = sy_node_input(node, 2) >= 0;
    for (int i = 1; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0 && t->tensors[node->outputs[i]].n_consumers)
            return sy_tr_refuse(node, "its mean or deviation is read");
    SY_TRY(describe_rows(t, node, &r));
    dnnl_memory_desc_t row = sy_tr_plain(1, &r.n_rows);
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[0], &v[3]));
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[1], &v[4]));
    v[5] = -1;
    if (has_shift)
        SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[2], &v[5]));
    SY_TRY(sy_tr_result(t, node->outputs[0], &v[0]));
    SY_TRY(sy_tr_value_new(t, &row, false, &v[1]));
    SY_TRY(sy_tr_value_new(t, &row, false, &v[2]));
    record->mean = v[1];
    record->variance = v[2];
    return add_rows(t, SY_TR_FORWARD, node, run_rows, 3, v);
}

/* A shift that is not trained still needs somewhere to go: the two sums are made together. */
static int rows_scales(struct sy_trainer *t, int n, int x, int dy)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int gradients[2], tensors[2] = {node->inputs[1], node->n_inputs > 2 ? node->inputs[2] : -1};
    dnnl_memory_desc_t md = sy_tr_raw_md(t, node->inputs[1]);
    if (!sy_tr_needs(t, tensors[0]) && !sy_tr_needs(t, tensors[1]))
        return SY_OK;
    for (int i = 0; i < 2; i++)
        SY_TRY(sy_tr_needs(t, tensors[i]) ? sy_tr_diff_begin(t, tensors[i], &gradients[i])
                                          : sy_tr_value_new(t, &md, false, &gradients[i]));
    int values[] = {gradients[0], gradients[1], x, dy, t->nodes[n].mean, t->nodes[n].variance};
    SY_TRY(add_rows(t, SY_TR_TRAIN, node, run_rows_scale, 2, values));
    for (int i = 0; i < 2; i++)
        if (sy_tr_needs(t, tensors[i]))
            SY_TRY(sy_tr_diff_end(t, tensors[i], gradients[i]));
    return SY_OK;
}

int sy_tr_rows_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x, dy, dx, scale;
    (void)gradient;
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[0], &x));
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[1], &scale));
    SY_TRY(sy_tr_diff_of(t, node->outputs[0], &dy));
    SY_TRY(rows_scales(t, n, x, dy));
    if (!sy_tr_needs(t, node->inputs[0]))
        return SY_OK;
    SY_TRY(sy_tr_diff_begin(t, node->inputs[0], &dx));
    int values[] = {dx, x, dy, t->nodes[n].mean, t->nodes[n].variance, scale};
    SY_TRY(add_rows(t, SY_TR_TRAIN, node, run_rows_back, 1, values));
    return sy_tr_diff_end(t, node->inputs[0], dx);
}

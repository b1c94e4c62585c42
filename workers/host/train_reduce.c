/* Reductions: forward in double, one result after the other; backward by the slope at each element. */
#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/train_internal.h"

#define PARALLEL_FROM 16384

/* Kept dimensions first, then reduced ones: x is at kept_at + reduced_at. */
struct reduction {
    enum sy_op op;
    int n_kept, n_reduced;
    int64_t kept[SY_MAX_RANK], reduced[SY_MAX_RANK];
    int64_t kept_strides[SY_MAX_RANK], reduced_strides[SY_MAX_RANK];
    int64_t n_out, n_each;
};

static int describe(const struct sy_trainer *t, const struct sy_node *node, struct reduction *r)
{
    int64_t dims[SY_MAX_RANK], stride = 1;
    bool is_reduced[SY_MAX_RANK] = {false};
    int rank = sy_tr_dims(t, node->inputs[0], dims);
    SY_TRY(rank);
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    for (int i = 0; i < rank; i++)
        is_reduced[i] = !axes;
    for (int i = 0; axes && i < axes->n; i++)
        is_reduced[axes->ints[i] + (axes->ints[i] < 0 ? rank : 0)] = true;
    memset(r, 0, sizeof *r);
    r->op = node->op;
    r->n_out = sy_tr_count(t, node->outputs[0]);
    r->n_each = sy_tr_count(t, node->inputs[0]) / r->n_out;
    for (int i = rank - 1; i >= 0; i--) { /* the last dimension comes first in both lists */
        int *n = is_reduced[i] ? &r->n_reduced : &r->n_kept;
        (is_reduced[i] ? r->reduced : r->kept)[*n] = dims[i];
        (is_reduced[i] ? r->reduced_strides : r->kept_strides)[(*n)++] = stride;
        stride *= dims[i];
    }
    return SY_OK;
}

static int64_t offset_of(int64_t i, int n, const int64_t *dims, const int64_t *strides)
{
    int64_t at = 0;
    for (int d = 0; d < n; d++) {
        at += i % dims[d] * strides[d];
        i /= dims[d];
    }
    return at;
}

static double collect(enum sy_op op, double sum, double x)
{
    switch (op) {
    case SY_OP_REDUCE_MAX:
        return fmax(sum, x);
    case SY_OP_REDUCE_MIN:
        return fmin(sum, x);
    case SY_OP_REDUCE_PROD:
        return sum * x;
    case SY_OP_REDUCE_L1:
        return sum + fabs(x);
    case SY_OP_REDUCE_L2:
    case SY_OP_REDUCE_SUM_SQUARE:
        return sum + x * x;
    default:
        return sum + x;
    }
}

static double start_of(enum sy_op op)
{
    return op == SY_OP_REDUCE_MAX    ? -INFINITY
           : op == SY_OP_REDUCE_MIN  ? INFINITY
           : op == SY_OP_REDUCE_PROD ? 1.0
                                     : 0.0;
}

static double finish(const struct reduction *r, double sum)
{
    switch (r->op) {
    case SY_OP_REDUCE_MEAN:
        return sum / (double)r->n_each;
    case SY_OP_REDUCE_L2:
        return sqrt(sum);
    case SY_OP_REDUCE_LOG_SUM:
        return log(sum);
    default:
        return sum;
    }
}

static double log_sum_exp(const struct reduction *r, const float *x)
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < r->n_each; i++)
        top = fmax(top, (double)x[offset_of(i, r->n_reduced, r->reduced, r->reduced_strides)]);
    for (int64_t i = 0; i < r->n_each; i++)
        sum += exp((double)x[offset_of(i, r->n_reduced, r->reduced, r->reduced_strides)] - top);
    return top + log(sum);
}

static int run_reduce(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct reduction *r = step->data;
    float *y = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1);
#pragma omp parallel for schedule(static) if (r->n_out * r->n_each > PARALLEL_FROM)
    for (int64_t o = 0; o < r->n_out; o++) {
        const float *from = x + offset_of(o, r->n_kept, r->kept, r->kept_strides);
        double sum = start_of(r->op);
        if (r->op == SY_OP_REDUCE_LOG_SUM_EXP) {
            y[o] = (float)log_sum_exp(r, from);
            continue;
        }
        for (int64_t i = 0; i < r->n_each; i++)
            sum = collect(r->op, sum,
                          (double)from[offset_of(i, r->n_reduced, r->reduced, r->reduced_strides)]);
        y[o] = (float)finish(r, sum);
    }
    return SY_OK;
}

/* Of the result y at one of its elements x; n_equal elements share an extreme. */
static double slope(const struct reduction *r, double x, double y, double n_equal)
{
    switch (r->op) {
    case SY_OP_REDUCE_MEAN:
        return 1.0 / (double)r->n_each;
    case SY_OP_REDUCE_MAX:
    case SY_OP_REDUCE_MIN:
        return x == y ? 1.0 / n_equal : 0.0;
    case SY_OP_REDUCE_L1:
        return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0;
    case SY_OP_REDUCE_L2:
        return y > 0.0 ? x / y : 0.0;
    case SY_OP_REDUCE_SUM_SQUARE:
        return 2.0 * x;
    case SY_OP_REDUCE_LOG_SUM:
        return exp(-y);
    case SY_OP_REDUCE_LOG_SUM_EXP:
        return exp(x - y);
    default:
        return 1.0;
    }
}

/* All but one: exact where that one is zero too. */
static double product_of_others(const struct reduction *r, const float *x, int64_t without)
{
    double product = 1.0;
    for (int64_t i = 0; i < r->n_each; i++)
        if (i != without)
            product *= (double)x[offset_of(i, r->n_reduced, r->reduced, r->reduced_strides)];
    return product;
}

static void back_one(const struct reduction *r, const float *x, float y, float g, float *dx)
{
    double n_equal = 0.0;
    bool is_extreme = r->op == SY_OP_REDUCE_MAX || r->op == SY_OP_REDUCE_MIN;
    for (int64_t i = 0; is_extreme && i < r->n_each; i++)
        n_equal += x[offset_of(i, r->n_reduced, r->reduced, r->reduced_strides)] == y;
    for (int64_t i = 0; i < r->n_each; i++) {
        int64_t at = offset_of(i, r->n_reduced, r->reduced, r->reduced_strides);
        double d = r->op == SY_OP_REDUCE_PROD ? product_of_others(r, x, i)
                                              : slope(r, (double)x[at], (double)y, n_equal);
        dx[at] = (float)((double)g * d);
    }
}

static int run_reduce_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct reduction *r = step->data;
    float *dx = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1), *y = sy_tr_at(t, step, 2), *dy = sy_tr_at(t, step, 3);
#pragma omp parallel for schedule(static) if (r->n_out * r->n_each > PARALLEL_FROM)
    for (int64_t o = 0; o < r->n_out; o++) {
        int64_t at = offset_of(o, r->n_kept, r->kept, r->kept_strides);
        back_one(r, x + at, y[o], dy[o], dx + at);
    }
    return SY_OK;
}

static int add_reduce(struct sy_trainer *t, unsigned when, const struct sy_node *node, sy_tr_fn *fn,
                      int n_values, const int *values)
{
    struct reduction *r;
    SY_TRY(sy_tr_alloc(sizeof *r, &r));
    describe(t, node, r);
    return sy_tr_add_call(t, when, fn, 1, n_values, values, r);
}

int sy_tr_reduce_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x, y;
    struct reduction r;
    if (t->graph->tensors[node->outputs[0]].dtype != SY_DTYPE_F32)
        return sy_tr_plain_forward(t, n);
    SY_TRY(describe(t, node, &r));
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[0], &x));
    SY_TRY(sy_tr_result(t, node->outputs[0], &y));
    return add_reduce(t, SY_TR_FORWARD, node, run_reduce, 2, (const int[]){y, x});
}

int sy_tr_reduce_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x, dx, dy, y;
    (void)gradient;
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[0], &x));
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->outputs[0], &y));
    SY_TRY(sy_tr_diff_of(t, node->outputs[0], &dy));
    SY_TRY(sy_tr_diff_begin(t, node->inputs[0], &dx));
    SY_TRY(add_reduce(t, SY_TR_TRAIN, node, run_reduce_back, 4, (const int[]){dx, x, y, dy}));
    return sy_tr_diff_end(t, node->inputs[0], dx);
}

/* Reductions and their derivatives, one result after another, in double: one text for the host's loops and the CUDA kernels of training. */
#ifndef SY_WORKERS_ENGINE_TRAIN_REDUCTIONS_H
#define SY_WORKERS_ENGINE_TRAIN_REDUCTIONS_H

#include "workers/engine/reduction_formulas.h"
#include "workers/engine/train_formulas.h"

/* x is at kept_at + reduced_at; the last dimension comes first in both lists. */
struct sy_train_reduction {
    enum sy_op op;
    int n_kept, n_reduced;
    int64_t kept[SY_MAX_RANK], reduced[SY_MAX_RANK];
    int64_t kept_strides[SY_MAX_RANK], reduced_strides[SY_MAX_RANK];
    int64_t n_out, n_each;
};

SY_FORMULA int64_t sy_reduction_offset(int64_t i, int n, const int64_t *dims,
                                       const int64_t *strides)
{
    int64_t at = 0;
    for (int d = 0; d < n; d++) {
        at += i % dims[d] * strides[d];
        i /= dims[d];
    }
    return at;
}

SY_FORMULA double sy_reduction_log_sum_exp(const struct sy_train_reduction *r, const float *x)
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < r->n_each; i++)
        top = fmax(top,
                   (double)x[sy_reduction_offset(i, r->n_reduced, r->reduced, r->reduced_strides)]);
    double shift = sy_reduction_shift(top);
    for (int64_t i = 0; i < r->n_each; i++)
        sum += exp((double)x[sy_reduction_offset(i, r->n_reduced, r->reduced, r->reduced_strides)] -
                   shift);
    return shift + log(sum);
}

/* One result: x at its first element. */
SY_FORMULA float sy_reduction_of(const struct sy_train_reduction *r, const float *x)
{
    double sum = sy_reduction_start(r->op);
    if (r->op == SY_OP_REDUCE_LOG_SUM_EXP)
        return (float)sy_reduction_log_sum_exp(r, x);
    for (int64_t i = 0; i < r->n_each; i++)
        sum = sy_reduction_collect(
            r->op, sum,
            (double)x[sy_reduction_offset(i, r->n_reduced, r->reduced, r->reduced_strides)]);
    return (float)sy_reduction_finish(r->op, sum, r->n_each);
}

/* The derivative of the result y by one of its elements x; n_equal elements share an extreme. */
SY_FORMULA double sy_reduction_slope(const struct sy_train_reduction *r, double x, double y,
                                     double n_equal)
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
SY_FORMULA double sy_reduction_product_of_others(const struct sy_train_reduction *r, const float *x,
                                                 int64_t without)
{
    double product = 1.0;
    for (int64_t i = 0; i < r->n_each; i++)
        if (i != without)
            product *=
                (double)x[sy_reduction_offset(i, r->n_reduced, r->reduced, r->reduced_strides)];
    return product;
}

SY_FORMULA void sy_reduction_back(const struct sy_train_reduction *r, const float *x, float y,
                                  float g, float *dx)
{
    double n_equal = 0.0;
    bool is_extreme = r->op == SY_OP_REDUCE_MAX || r->op == SY_OP_REDUCE_MIN;
    for (int64_t i = 0; is_extreme && i < r->n_each; i++)
        n_equal += x[sy_reduction_offset(i, r->n_reduced, r->reduced, r->reduced_strides)] == y;
    for (int64_t i = 0; i < r->n_each; i++) {
        int64_t at = sy_reduction_offset(i, r->n_reduced, r->reduced, r->reduced_strides);
        double d = r->op == SY_OP_REDUCE_PROD
                       ? sy_reduction_product_of_others(r, x, i)
                       : sy_reduction_slope(r, (double)x[at], (double)y, n_equal);
        dx[at] = (float)((double)g * d);
    }
}

#endif

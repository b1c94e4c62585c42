#include "workers/host/rows/collect_rows.h"

#include "workers/engine/reduction_formulas.h"

/* The exponentials of a LogSumExp come one by one: the sum's logarithm is kept. */
static double collect_exponential(double sum, double x)
{
    if (isnan(x) || isnan(sum))
        return sum + x;
    if (x == -INFINITY || sum == INFINITY)
        return sum;
    return fmax(sum, x) + log1p(exp(fmin(sum, x) - fmax(sum, x)));
}

/* Inlined where the operator is a constant. */
static inline __attribute__((always_inline)) void collect_steps(enum sy_op op, int64_t n,
                                                                const double *x, double *sums,
                                                                int64_t stride)
{
    if (stride == 0) {
        double sum = *sums;
        for (int64_t i = 0; i < n; i++)
            sum = sy_reduction_collect(op, sum, x[i]);
        *sums = sum;
    } else {
        for (int64_t i = 0; i < n; i++)
            sums[i * stride] = sy_reduction_collect(op, sums[i * stride], x[i]);
    }
}

void sy_collect_row(enum sy_op op, int64_t n, const double *x, double *sums, int64_t stride)
{
    switch (op) {
    case SY_OP_REDUCE_LOG_SUM_EXP:
        for (int64_t i = 0; i < n; i++)
            sums[i * stride] = collect_exponential(sums[i * stride], x[i]);
        break;
    case SY_OP_REDUCE_SUM:
    case SY_OP_REDUCE_MEAN:
        collect_steps(SY_OP_REDUCE_SUM, n, x, sums, stride);
        break;
    case SY_OP_REDUCE_MAX:
        collect_steps(SY_OP_REDUCE_MAX, n, x, sums, stride);
        break;
    case SY_OP_REDUCE_MIN:
        collect_steps(SY_OP_REDUCE_MIN, n, x, sums, stride);
        break;
    default:
        collect_steps(op, n, x, sums, stride);
        break;
    }
}

/* A sum that wraps around starts from 0 as from its first element: nothing is counted. */
static void sum_integers(int64_t n, const int64_t *x, int64_t *sums, int64_t stride)
{
    uint64_t sum = 0;
    if (stride == 0) {
        for (int64_t i = 0; i < n; i++)
            sum += (uint64_t)x[i];
        *sums = (int64_t)((uint64_t)*sums + sum);
    } else {
        for (int64_t i = 0; i < n; i++)
            sums[i * stride] = (int64_t)((uint64_t)sums[i * stride] + (uint64_t)x[i]);
    }
}

void sy_collect_integers(enum sy_op op, int64_t n, const int64_t *x, int64_t *sums, int64_t *seen,
                         int64_t stride)
{
    if (op == SY_OP_REDUCE_SUM || op == SY_OP_REDUCE_MEAN) {
        sum_integers(n, x, sums, stride);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i * stride;
        sums[k] = sy_reduction_collect_integer(op, sums[k], x[i], seen[k]++ == 0);
    }
}

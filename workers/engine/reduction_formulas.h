/* What a reduction collects of the elements it takes: floats in double, integers wrapping around. */
#ifndef SY_WORKERS_ENGINE_REDUCTION_FORMULAS_H
#define SY_WORKERS_ENGINE_REDUCTION_FORMULAS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "workers/engine/formula.h"

SY_FORMULA double sy_reduction_start(enum sy_op op)
{
    return op == SY_OP_REDUCE_MAX    ? -INFINITY
           : op == SY_OP_REDUCE_MIN  ? INFINITY
           : op == SY_OP_REDUCE_PROD ? 1.0
                                     : 0.0;
}

SY_FORMULA double sy_reduction_collect(enum sy_op op, double sum, double x)
{
    switch (op) {
    case SY_OP_REDUCE_MAX:
        return x > sum || x != x ? x : sum; /* NaN goes on */
    case SY_OP_REDUCE_MIN:
        return x < sum || x != x ? x : sum;
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

/* The result, of n elements. */
SY_FORMULA double sy_reduction_finish(enum sy_op op, double sum, int64_t n)
{
    switch (op) {
    case SY_OP_REDUCE_MEAN:
        return sum / (double)n;
    case SY_OP_REDUCE_L2:
        return sqrt(sum);
    case SY_OP_REDUCE_LOG_SUM:
        return log(sum);
    default:
        return sum;
    }
}

/* From 0; the first element replaces it where 0 is not neutral. */
SY_FORMULA int64_t sy_reduction_collect_integer(enum sy_op op, int64_t sum, int64_t x,
                                                bool is_first)
{
    uint64_t a = (uint64_t)sum, b = (uint64_t)x;
    switch (op) {
    case SY_OP_REDUCE_MAX:
        return is_first || x > sum ? x : sum;
    case SY_OP_REDUCE_MIN:
        return is_first || x < sum ? x : sum;
    case SY_OP_REDUCE_PROD:
        return is_first ? x : (int64_t)(a * b);
    case SY_OP_REDUCE_L1:
        return (int64_t)(a + (x < 0 ? 0 - b : b));
    case SY_OP_REDUCE_SUM_SQUARE:
        return (int64_t)(a + b * b);
    default:
        return (int64_t)(a + b);
    }
}

/* What is subtracted in a sum of exponentials: the largest, or 0 if that is infinite: the sum is then infinite or NaN as it should be. */
SY_FORMULA double sy_reduction_shift(double top)
{
    return fabs(top) == INFINITY ? 0.0 : top;
}

#endif

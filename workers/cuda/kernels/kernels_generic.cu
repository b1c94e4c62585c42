/* Elements by elements: curves, pairs with numpy's repetition, choices, casts. */
#include "workers/cuda/kernels/generic_arrays.cuh"
#include "workers/engine/curve_formulas.h"
#include "workers/engine/pair_formulas.h"

SY_KERNEL_FILE(each)

/* ---- one input ---------------------------------------------------------------------------------------- */

struct one {
    __device__ static void of(const each &c, int64_t i)
    {
        enum sy_op op = c.e.op;
        bool floats = c.is_float(0);
        if (op == SY_OP_IS_NAN || op == SY_OP_IS_INF) {
            double x = c.get(0, i);
            bool counts = x > 0 ? c.e.as.one.positive : c.e.as.one.negative;
            c.put_int(GENERIC_OUT, i,
                      op == SY_OP_IS_NAN ? x != x : x == x && x - x != 0 && counts);
        } else if (op == SY_OP_CAST && (floats || c.is_float(GENERIC_OUT))) {
            c.put(GENERIC_OUT, i, c.get(0, i));
        } else if (floats || op == SY_OP_SHRINK) {
            c.put(GENERIC_OUT, i, sy_curve_at(&c.e.as.one.curve, c.get(0, i)));
        } else {
            int64_t x = c.get_int(0, i);
            c.put_int(GENERIC_OUT, i, op == SY_OP_CAST ? x : sy_curve_of_integer(op, x));
        }
    }
};

/* ---- two inputs and more ------------------------------------------------------------------------------ */

/* Left to right; each partial result is rounded as the result is. */
struct pair {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_pair_rules rules = {c.e.op, c.e.as.pair.c_rule, c.e.as.pair.is_left,
                                     c.array(0).dtype == SY_DTYPE_U64};
        bool floats = c.is_float(0);
        for (int k = 1; k < c.e.n_in; k++)
            floats = floats || c.is_float(k);
        if (floats) {
            double value = c.get(0, c.seen(0, i));
            for (int k = 1; k < c.e.n_in; k++)
                value = c.rounded(GENERIC_OUT, sy_pair_of_floats(&rules, value, c.get(k, c.seen(k, i))));
            c.put(GENERIC_OUT, i, c.e.op == SY_OP_MEAN ? value / c.e.n_in : value);
        } else {
            int64_t value = c.get_int(0, c.seen(0, i));
            for (int k = 1; k < c.e.n_in; k++)
                value = sy_pair_of_integers(&rules, value, c.get_int(k, c.seen(k, i)));
            c.put_int(GENERIC_OUT, i, value);
        }
    }
};

struct where {
    __device__ static void of(const each &c, int64_t i)
    {
        int pick = c.get_int(0, c.seen(0, i)) ? 1 : 2;
        c.copy(GENERIC_OUT, i, pick, c.seen(pick, i));
    }
};

/* Bounds as inputs 1 and 2, each of which may be left out. */
struct bound {
    __device__ static void of(const each &c, int64_t i)
    {
        if (c.is_float(0)) {
            double v = c.get(0, i);
            v = c.has(1) && v < c.get(1, 0) ? c.get(1, 0) : v;
            c.put(GENERIC_OUT, i, c.has(2) && v > c.get(2, 0) ? c.get(2, 0) : v);
        } else {
            int64_t v = c.get_int(0, i);
            v = c.has(1) && v < c.get_int(1, 0) ? c.get_int(1, 0) : v;
            c.put_int(GENERIC_OUT, i, c.has(2) && v > c.get_int(2, 0) ? c.get_int(2, 0) : v);
        }
    }
};

int sy_kernel_each(struct CUstream_st *stream, const struct sy_math_generic *e, void *const *at,
                   struct sy_math_fault *fault)
{
    if (e->items == 0)
        return 0;
    switch (e->kind) {
    case SY_GENERIC_ONE:
        return generic_launch<one>(stream, e, at, fault);
    case SY_GENERIC_PAIR:
        return generic_launch<pair>(stream, e, at, fault);
    case SY_GENERIC_WHERE:
        return generic_launch<where>(stream, e, at, fault);
    case SY_GENERIC_BOUND:
        return generic_launch<bound>(stream, e, at, fault);
    default:
        break;
    }
    int error = sy_kernel_each_index(stream, e, at, fault);
    if (error < 0)
        error = sy_kernel_each_lines(stream, e, at, fault);
    if (error < 0)
        error = sy_kernel_each_run(stream, e, at, fault);
    if (error < 0)
        error = sy_kernel_each_sample(stream, e, at, fault);
    if (error < 0)
        error = sy_kernel_each_signal(stream, e, at, fault);
    return error < 0 ? sy_kernel_each_windows(stream, e, at, fault) : error;
}

/* Operators as a formula for each element, or each line, of the result: arrays of any element type, row-major, computed in double or in
 * int64 and rounded once, as the host engine's kernels (workers/host/kernel.h), whose checks say what fits. For what is rare, and for types
 * that the other kernels do not know. Pure description: kernels_each*.cu compute it. */
#ifndef SY_WORKERS_CUDA_EACH_H
#define SY_WORKERS_CUDA_EACH_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph.h"

#define SY_EACH_IN      9
#define SY_EACH_OUT     3
#define SY_EACH_ARRAYS  (SY_EACH_IN + SY_EACH_OUT)
#define SY_EACH_NUMBERS 128
#define SY_EACH_FLOATS  4

struct sy_each_array {
    enum sy_dtype dtype; /* NONE: left out */
    int rank;
    int64_t n, dims[SY_MAX_RANK];
    int64_t strides
        [SY_MAX_RANK]; /* seen with the first result's dims where the operator repeats its inputs, else its own */
};

/* X(name): one kernel each. */
#define SY_EACH_TABLE(X) \
    X(ONE)               \
    X(PAIR)              \
    X(WHERE)             \
    X(BOUND)             \
    X(FILL)              \
    X(TRIANGLE)          \
    X(RANGE)             \
    X(ONE_HOT)           \
    X(REVERSE)           \
    X(PAD)               \
    X(PAD_BACK)          \
    X(RUNNING_SUM)       \
    X(TOP)               \
    X(GATHER_ALONG)      \
    X(GATHER_TUPLES)     \
    X(SCATTER_ALONG)     \
    X(SCATTER_TUPLES)    \
    X(LINE)              \
    X(ARG)               \
    X(BATCH)             \
    X(NORM)              \
    X(DYNAMIC)           \
    X(LOSS)              \
    X(FOLD)              \
    X(NEIGHBOURS)        \
    X(RESIZE)            \
    X(PRODUCT)           \
    X(QUANTIZE)          \
    X(INTEGER_PRODUCT)   \
    X(INTEGER_CONV)      \
    X(WINDOW)            \
    X(SAMPLE)            \
    X(REGION)

enum sy_each_kind {
#define X(name) SY_EACH_##name,
    SY_EACH_TABLE(X)
#undef X
};

struct sy_math_each {
    enum sy_each_kind kind;
    enum sy_op op;
    int n_in, n_out;
    struct sy_each_array at[SY_EACH_ARRAYS]; /* inputs, then results from SY_EACH_IN on */
    int64_t items;                           /* threads that have something to do */
    int64_t axis, step;                      /* step: what to write into the fault */
    int64_t numbers[SY_EACH_NUMBERS];        /* each.c and the kernel know what they are */
    double floats[SY_EACH_FLOATS];
};

/* Whether there is a formula, of some types. */
bool sy_each_has(enum sy_op op);
/* Inputs and results by dtype, rank, dims (n and strides are filled in); the node's attributes. `copies_first`: the first result is a copy of the
 * first input before the kernel runs. EUNSUPPORTED names the node: no formula, other types, what does not fit. */
int sy_each_describe(const struct sy_node *node, struct sy_math_each *each, bool *copies_first);

#endif

/* A case of the CUDA kernel of attention: its tensors, and where matrices lie. */
#ifndef SY_TESTS_ON_CPU_ATTENTION_CASE_H
#define SY_TESTS_ON_CPU_ATTENTION_CASE_H

#include <math.h>

#include "tests/on_cpu/kernel_rig.h"
#include "workers/cuda/kernels/kernels.h"
#include "workers/cuda/kernels/kernels_train_ops.h"

struct attention_case {
    struct sy_math_attention attention;
    bool tf32;
    struct kernel_tensor *q, *k, *v, *masks[SY_ATTENTION_MASKS], *y;
    struct sy_math_attention_back back; /* of gradients */
    struct kernel_tensor *stats, *dy, *delta, *dq, *dk, *dv;
};

/* Strides of a matrix per head, [heads, row, column] in one of the orders that models have; how many elements lie there. pad: between lines. */
static int64_t lay(const struct sy_attention *a, int64_t rows, int64_t columns, bool repeats,
                   struct sy_attention_view *view)
{
    int order = (int)kernel_between(0, 5);
    bool transposed = order == 0, between = order >= 3; /* row-major; a row's heads side by side */
    int64_t pad = kernel_between(0, 3) == 0 ? kernel_between(1, 9) : 0, line = 0, stride = 0;
    if (transposed) {
        line = rows + pad;
        view->row = 1;
        view->column = line;
        stride = line * columns;
    } else {
        view->row = columns + pad;
        view->column = 1;
        stride = view->row * rows;
    }
    int64_t inner = a->head_rank > 0 ? a->head_dims[a->head_rank - 1] : 1;
    if (between && !transposed && a->head_rank > 0 && !repeats) {
        view->row = inner * (columns + pad);
        stride = view->row * rows;
    }
    for (int d = a->head_rank - 1; d >= 0; d--) {
        bool side = between && !transposed && !repeats && d == a->head_rank - 1;
        bool same = repeats && kernel_between(0, 1);
        view->heads[d] = same ? 0 : side ? columns + pad : stride;
        stride *= same || side ? 1 : a->head_dims[d];
    }
    return stride;
}

static int64_t offset_of(const struct sy_attention *a, const struct sy_attention_view *view,
                         int64_t head, int64_t row, int64_t column)
{
    return kernel_offset(head, a->head_rank, a->head_dims, view->heads) + row * view->row +
           column * view->column;
}

static void add_mask(struct attention_case *c)
{
    struct sy_attention *a = &c->attention.of;
    struct sy_attention_view *view = &a->masks[a->n_masks];
    int kind = (int)kernel_between(0, 3);
    int64_t n = 1;
    view->column = kernel_between(0, 5) > 0;
    n *= view->column ? a->columns : 1;
    view->row = kernel_between(0, 1) ? n : 0;
    n *= view->row ? a->rows : 1;
    for (int d = a->head_rank - 1; d >= 0; d--) {
        view->heads[d] = kernel_between(0, 1) ? n : 0;
        n *= view->heads[d] ? a->head_dims[d] : 1;
    }
    a->kinds[a->n_masks] = kind < 2 ? SY_MASK_ADD : kind == 2 ? SY_MASK_KEEP : SY_MASK_DROP;
    a->fills[a->n_masks] = kernel_between(0, 1) ? -INFINITY : -1e4f;
    struct kernel_tensor *t = kernel_random(kind < 2 ? SY_DTYPE_F32 : SY_DTYPE_BOOL, n);
    for (int64_t i = 0; kind == 1 && i < n; i++) /* as exporters write "not this one" */
        if (kernel_between(0, 2) == 0)
            kernel_put(t, i, kernel_between(0, 1) ? -3.4028234663852886e38 : -INFINITY);
    c->masks[a->n_masks++] = t;
}

#endif

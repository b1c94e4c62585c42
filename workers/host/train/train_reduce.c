/* Reductions: forward in double, one result after the other; backward by the slope at each element. */
#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/train_reductions.h"
#include "workers/host/train/train_internal.h"

#define PARALLEL_FROM 16384

static int describe(const struct sy_trainer *t, const struct sy_node *node,
                    struct sy_train_reduction *r)
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

static int run_reduce(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct sy_train_reduction *r = step->data;
    float *y = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1);
#pragma omp parallel for schedule(static) if (r->n_out * r->n_each > PARALLEL_FROM)
    for (int64_t o = 0; o < r->n_out; o++) {
        const float *from = x + sy_reduction_offset(o, r->n_kept, r->kept, r->kept_strides);
        y[o] = sy_reduction_of(r, from);
    }
    return SY_OK;
}

static int run_reduce_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct sy_train_reduction *r = step->data;
    float *dx = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1), *y = sy_tr_at(t, step, 2), *dy = sy_tr_at(t, step, 3);
#pragma omp parallel for schedule(static) if (r->n_out * r->n_each > PARALLEL_FROM)
    for (int64_t o = 0; o < r->n_out; o++) {
        int64_t at = sy_reduction_offset(o, r->n_kept, r->kept, r->kept_strides);
        sy_reduction_back(r, x + at, y[o], dy[o], dx + at);
    }
    return SY_OK;
}

static int add_reduce(struct sy_trainer *t, unsigned when, const struct sy_node *node, sy_tr_fn *fn,
                      int n_values, const int *values)
{
    struct sy_train_reduction *r;
    SY_TRY(sy_tr_alloc(sizeof *r, &r));
    describe(t, node, r);
    return sy_tr_add_call(t, when, fn, 1, n_values, values, r);
}

int sy_tr_reduce_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x, y;
    struct sy_train_reduction r;
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

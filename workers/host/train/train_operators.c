/* The table of operators that can be trained, and the small ones: sums, shapes. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

/* ---- Add ---------------------------------------------------------------------------------------- */

static int add_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    if (!sy_train_adds_results(t->graph, node))
        return sy_tr_broadcast_forward(t, n);
    int a = t->tensors[node->inputs[0]].value, b = t->tensors[node->inputs[1]].value, same;
    dnnl_memory_desc_t md = t->values[a].md;
    SY_TRY(sy_tr_as(t, SY_TR_FORWARD, b, &md, &same));
    SY_TRY(sy_tr_value_new(t, &md, false, &t->tensors[node->outputs[0]].value));
    return sy_tr_add_kernel(t, SY_TR_FORWARD, SY_TR_SUM, node->name,
                            t->tensors[node->outputs[0]].value, a, same);
}

static int add_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    if (!sy_train_adds_results(t->graph, node))
        return sy_tr_broadcast_backward(t, n, gradient);
    for (int i = 0; i < 2; i++)
        if (t->tensors[node->inputs[i]].needs_gradient)
            SY_TRY(sy_tr_gradient_add(t, node->inputs[i], gradient));
    return SY_OK;
}

/* ---- shapes ------------------------------------------------------------------------------------- */

static int view_as(struct sy_trainer *t, unsigned when, int value, int tensor, int *out)
{
    int64_t dims[SY_MAX_RANK];
    int rank = sy_tr_dims(t, tensor, dims), plain;
    SY_TRY(rank);
    SY_TRY(sy_tr_as_plain(t, when, value, &plain));
    dnnl_memory_desc_t md = sy_tr_plain(rank, dims);
    return sy_tr_value_view(t, plain, &md, out);
}

static int shape_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    if (t->graph->tensors[node->inputs[0]].data ||
        t->graph->tensors[node->outputs[0]].dtype != SY_DTYPE_F32) {
        int x;
        SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[0], &x));
        dnnl_memory_desc_t md = sy_tr_raw_md(t, node->outputs[0]);
        return sy_tr_value_view(t, x, &md, &t->tensors[node->outputs[0]].value);
    }
    return view_as(t, SY_TR_FORWARD, t->tensors[node->inputs[0]].value, node->outputs[0],
                   &t->tensors[node->outputs[0]].value);
}

static int shape_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int out;
    if (!t->tensors[node->inputs[0]].needs_gradient)
        return SY_OK;
    SY_TRY(view_as(t, SY_TR_TRAIN, gradient, node->inputs[0], &out));
    return sy_tr_diff_end(t, node->inputs[0], out);
}

/* ---- the table ---------------------------------------------------------------------------------- */

#define BY(name) sy_tr_##name##_forward, sy_tr_##name##_backward

static const struct sy_gradient_steps gradients[SY_GRADIENT_COUNT] = {
    [SY_GRADIENT_CONV] = {BY(conv)},
    [SY_GRADIENT_BATCH_NORM] = {BY(norm)},
    [SY_GRADIENT_ACTIVATION] = {BY(activation)},
    [SY_GRADIENT_CURVE] = {BY(unary)},
    [SY_GRADIENT_CHAIN] = {BY(unary)},
    [SY_GRADIENT_PAIR] = {BY(broadcast)},
    [SY_GRADIENT_ADD] = {add_forward, add_backward},
    [SY_GRADIENT_POOL] = {BY(pool)},
    [SY_GRADIENT_PRODUCT] = {BY(matmul)},
    [SY_GRADIENT_SOFTMAX] = {BY(softmax)},
    [SY_GRADIENT_ROWS] = {BY(rows)},
    [SY_GRADIENT_REDUCE] = {BY(reduce)},
    [SY_GRADIENT_GATHER] = {BY(gather)},
    [SY_GRADIENT_MOVE] = {BY(move)},
    [SY_GRADIENT_VIEW] = {shape_forward, shape_backward},
    [SY_GRADIENT_IDENTITY] = {shape_forward, shape_backward},
    [SY_GRADIENT_DROPOUT] = {BY(dropout)},
    [SY_GRADIENT_CAST] = {BY(cast)},
    [SY_GRADIENT_PAD] = {BY(map)},
    [SY_GRADIENT_WHERE] = {BY(where)},
    [SY_GRADIENT_COMPARE] = {sy_tr_plain_forward, sy_tr_no_backward},
    [SY_GRADIENT_STEP] = {sy_tr_plain_forward, sy_tr_no_backward},
    [SY_GRADIENT_TILE] = {BY(map)},
    [SY_GRADIENT_TRIANGLE] = {BY(map)},
    [SY_GRADIENT_BLOCKS] = {BY(map)},
    [SY_GRADIENT_DECONV] = {BY(deconv)},
    [SY_GRADIENT_RECURRENT] = {BY(recurrent)},
};

const struct sy_gradient_steps *sy_tr_gradient_of(enum sy_op op)
{
    return sy_gradient_steps_of(gradients, op);
}

/* The table of operators that can be trained, and the small ones: activations, sums, shapes. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

/* ---- activations -------------------------------------------------------------------------------- */

struct activation {
    dnnl_alg_kind_t forward,
        backward; /* backward reads the result, so the input may be forgotten (and fused away) */
    float alpha;
};

static bool activation_of(const struct sy_node *node, struct activation *out)
{
    *out = (struct activation){0};
    switch (node->op) {
    case SY_OP_RELU:
        *out = (struct activation){dnnl_eltwise_relu, dnnl_eltwise_relu_use_dst_for_bwd, 0.0f};
        return true;
    case SY_OP_LEAKY_RELU:
        *out = (struct activation){dnnl_eltwise_relu, dnnl_eltwise_relu_use_dst_for_bwd,
                                   sy_node_float(node, "alpha", 0.01f)};
        return out->alpha >= 0.0f; /* below zero the result does not tell the input's sign */
    case SY_OP_SIGMOID:
        *out =
            (struct activation){dnnl_eltwise_logistic, dnnl_eltwise_logistic_use_dst_for_bwd, 0.0f};
        return true;
    case SY_OP_TANH:
        *out = (struct activation){dnnl_eltwise_tanh, dnnl_eltwise_tanh_use_dst_for_bwd, 0.0f};
        return true;
    default:
        return false;
    }
}

int sy_tr_fused_attr(struct sy_trainer *t, int n, dnnl_primitive_attr_t *out)
{
    const struct sy_tr_tensor *result = &t->tensors[t->graph->nodes[n].outputs[0]];
    struct activation a;
    SY_TRY(sy_tr_check(dnnl_primitive_attr_clone(out, t->attr), "attributes",
                       t->graph->nodes[n].name));
    bool can = result->n_consumers == 1 && activation_of(&t->graph->nodes[result->consumer], &a);
    if (!can)
        return SY_OK;
    dnnl_post_ops_t ops;
    if (dnnl_post_ops_create(&ops) != dnnl_success)
        return SY_OK; /* fusing is an option, not a need */
    if (dnnl_post_ops_append_eltwise(ops, 1.0f, a.forward, a.alpha, 0.0f) == dnnl_success &&
        dnnl_primitive_attr_set_post_ops(*out, ops) == dnnl_success)
        t->nodes[result->consumer].fused_into_producer = true;
    dnnl_post_ops_destroy(ops);
    return SY_OK;
}

static int activation_pd(struct sy_trainer *t, const struct sy_node *node, dnnl_alg_kind_t alg,
                         float alpha, const dnnl_memory_desc_t *md, dnnl_primitive_desc_t *out)
{
    dnnl_eltwise_desc_t desc;
    SY_TRY(sy_tr_check(
        dnnl_eltwise_forward_desc_init(&desc, dnnl_forward_training, alg, md, alpha, 0.0f),
        "activation", node->name));
    return sy_tr_check(dnnl_primitive_desc_create(out, &desc, t->attr, t->engine, NULL),
                       "activation", node->name);
}

int sy_tr_activation_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct activation a;
    int source = t->tensors[node->inputs[0]].value, *out = &t->tensors[node->outputs[0]].value;
    if (!activation_of(node, &a) || t->graph->tensors[node->inputs[0]].data)
        return sy_tr_unary_forward(t, n);
    if (t->nodes[n].fused_into_producer) {
        *out = source;
        return SY_OK;
    }
    dnnl_primitive_desc_t pd;
    dnnl_memory_desc_t md = t->values[source].md;
    SY_TRY(activation_pd(t, node, a.forward, a.alpha, &md, &pd));
    t->nodes[n].forward = pd;
    SY_TRY(sy_tr_value_new(t, &md, false, out));
    struct sy_tr_arg args[] = {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, *out}};
    return sy_tr_add_primitive(t, SY_TR_FORWARD, node->name, pd, args, 2);
}

static int add_activation_backward(struct sy_trainer *t, const struct sy_node *node,
                                   const struct activation *a, dnnl_primitive_desc_t hint,
                                   int gradient)
{
    int result = t->tensors[node->outputs[0]].value, diff, out;
    dnnl_memory_desc_t md = t->values[result].md;
    dnnl_eltwise_desc_t desc;
    dnnl_primitive_desc_t pd;
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, gradient, &md, &diff));
    SY_TRY(sy_tr_value_new(t, &md, false, &out));
    SY_TRY(
        sy_tr_check(dnnl_eltwise_backward_desc_init(&desc, a->backward, &md, &md, a->alpha, 0.0f),
                    "activation backward", node->name));
    SY_TRY(sy_tr_check(dnnl_primitive_desc_create(&pd, &desc, t->attr, t->engine, hint),
                       "activation backward", node->name));
    struct sy_tr_arg args[] = {
        {DNNL_ARG_DST, result}, {DNNL_ARG_DIFF_DST, diff}, {DNNL_ARG_DIFF_SRC, out}};
    int status = sy_tr_add_primitive(t, SY_TR_TRAIN, node->name, pd, args, 3);
    dnnl_primitive_desc_destroy(pd);
    SY_TRY(status);
    return sy_tr_gradient_add(t, node->inputs[0], out);
}

int sy_tr_activation_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct activation a;
    dnnl_primitive_desc_t hint;
    if (!t->tensors[node->inputs[0]].needs_gradient)
        return SY_OK;
    if (t->nodes[n].masked_by_producer)
        return sy_tr_gradient_add(t, node->inputs[0], gradient);
    if (!activation_of(node, &a) || t->graph->tensors[node->inputs[0]].data)
        return sy_tr_unary_backward(t, n, gradient);
    dnnl_memory_desc_t md = t->values[t->tensors[node->outputs[0]].value].md;
    SY_TRY(activation_pd(t, node, a.backward, a.alpha, &md, &hint));
    int status = add_activation_backward(t, node, &a, hint, gradient);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

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

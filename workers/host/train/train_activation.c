/* Activations: by themselves, or fused into the product whose result they read. */
#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

struct activation {
    dnnl_alg_kind_t forward,
        backward; /* backward reads the result, so the input need not be kept (and may be fused away) */
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
        /* with a negative alpha the result's sign does not tell the input's */
        return out->alpha >= 0.0f;
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
    bool can = result->n_consumers == 1 && result->consumer >= 0 &&
               activation_of(&t->graph->nodes[result->consumer], &a);
    if (!can)
        return SY_OK;
    dnnl_post_ops_t ops;
    if (dnnl_post_ops_create(&ops) != dnnl_success)
        return SY_OK; /* fusing is optional */
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

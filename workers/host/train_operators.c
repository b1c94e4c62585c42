/* The table of operators that can be trained, and the small ones: activations, sums, shapes. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/train_internal.h"

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
    if (!activation_of(node, &a))
        return sy_tr_refuse(node, "a negative slope");
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
    activation_of(node, &a);
    dnnl_memory_desc_t md = t->values[t->tensors[node->outputs[0]].value].md;
    SY_TRY(activation_pd(t, node, a.backward, a.alpha, &md, &hint));
    int status = add_activation_backward(t, node, &a, hint, gradient);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

/* ---- Add: a residual sum, or a bias row --------------------------------------------------------- */

static int add_residual_forward(struct sy_trainer *t, const struct sy_node *node)
{
    int a = t->tensors[node->inputs[0]].value, b = t->tensors[node->inputs[1]].value, same;
    const struct sy_shape *shape = &t->graph->tensors[node->outputs[0]].shape;
    if (!sy_shape_equal(&t->graph->tensors[node->inputs[0]].shape, shape) ||
        !sy_shape_equal(&t->graph->tensors[node->inputs[1]].shape, shape))
        return sy_tr_refuse(node, "broadcasting between two activations");
    dnnl_memory_desc_t md = t->values[a].md;
    SY_TRY(sy_tr_as(t, SY_TR_FORWARD, b, &md, &same));
    SY_TRY(sy_tr_value_new(t, &md, false, &t->tensors[node->outputs[0]].value));
    return sy_tr_add_kernel(t, SY_TR_FORWARD, SY_TR_SUM, node->name,
                            t->tensors[node->outputs[0]].value, a, same);
}

static int add_bias_forward(struct sy_trainer *t, int n, int data, int constant)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int64_t dims[SY_MAX_RANK];
    int rank = sy_tr_dims(t, data, dims), plain, row;
    SY_TRY(rank);
    dnnl_memory_desc_t row_md = sy_tr_plain(1, &dims[rank - 1]);
    if (t->graph->tensors[constant].data_bytes != (size_t)dims[rank - 1] * sizeof(float))
        return sy_tr_refuse(node,
                            "a constant that is not one value for each of the last dimension");
    SY_TRY(sy_tr_as_plain(t, SY_TR_FORWARD, t->tensors[data].value, &plain));
    SY_TRY(sy_tr_param_use(t, constant, &row_md, &row_md, true, &t->nodes[n].bias, &row));
    dnnl_memory_desc_t md = t->values[plain].md;
    SY_TRY(sy_tr_value_new(t, &md, false, &t->tensors[node->outputs[0]].value));
    return sy_tr_add_kernel(t, SY_TR_FORWARD, SY_TR_ADD_ROW, node->name,
                            t->tensors[node->outputs[0]].value, plain, row);
}

static int add_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    for (int i = 0; i < 2; i++)
        if (t->graph->tensors[node->inputs[i]].data)
            return t->tensors[node->inputs[1 - i]].value < 0
                       ? sy_tr_refuse(node, "both inputs are constants")
                       : add_bias_forward(t, n, node->inputs[1 - i], node->inputs[i]);
    return add_residual_forward(t, node);
}

static int add_bias_backward(struct sy_trainer *t, int n, int gradient)
{
    int param = t->nodes[n].bias, plain, row;
    dnnl_memory_desc_t md = t->params[param].plain;
    SY_TRY(sy_tr_as_plain(t, SY_TR_TRAIN, gradient, &plain));
    SY_TRY(sy_tr_param_gradient(t, param, &md, &row));
    SY_TRY(sy_tr_add_kernel(t, SY_TR_TRAIN, SY_TR_COLUMN_SUM, t->graph->nodes[n].name, row, plain,
                            plain));
    return sy_tr_param_commit(t, param, row);
}

static int add_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    if (t->nodes[n].bias >= 0)
        SY_TRY(add_bias_backward(t, n, gradient));
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
    return sy_tr_gradient_add(t, node->inputs[0], out);
}

static int same_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    t->tensors[node->outputs[0]].value = t->tensors[node->inputs[0]].value;
    return SY_OK;
}

static int same_backward(struct sy_trainer *t, int n, int gradient)
{
    int input = t->graph->nodes[n].inputs[0];
    return t->tensors[input].needs_gradient ? sy_tr_gradient_add(t, input, gradient) : SY_OK;
}

/* ---- the table ---------------------------------------------------------------------------------- */

static const struct sy_tr_operator operators[] = {
    {SY_OP_CONV, sy_tr_conv_forward, sy_tr_conv_backward},
    {SY_OP_GEMM, sy_tr_linear_forward, sy_tr_linear_backward},
    {SY_OP_MATMUL, sy_tr_linear_forward, sy_tr_linear_backward},
    {SY_OP_RELU, sy_tr_activation_forward, sy_tr_activation_backward},
    {SY_OP_LEAKY_RELU, sy_tr_activation_forward, sy_tr_activation_backward},
    {SY_OP_SIGMOID, sy_tr_activation_forward, sy_tr_activation_backward},
    {SY_OP_TANH, sy_tr_activation_forward, sy_tr_activation_backward},
    {SY_OP_MAX_POOL, sy_tr_pool_forward, sy_tr_pool_backward},
    {SY_OP_AVERAGE_POOL, sy_tr_pool_forward, sy_tr_pool_backward},
    {SY_OP_GLOBAL_AVERAGE_POOL, sy_tr_pool_forward, sy_tr_pool_backward},
    {SY_OP_BATCH_NORM, sy_tr_norm_forward, sy_tr_norm_backward},
    {SY_OP_ADD, add_forward, add_backward},
    {SY_OP_FLATTEN, shape_forward, shape_backward},
    {SY_OP_RESHAPE, shape_forward, shape_backward},
    {SY_OP_SQUEEZE, shape_forward, shape_backward},
    {SY_OP_UNSQUEEZE, shape_forward, shape_backward},
    {SY_OP_IDENTITY, same_forward, same_backward},
    {SY_OP_DROPOUT, same_forward, same_backward},
};

const struct sy_tr_operator *sy_tr_operator_of(enum sy_op op)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(operators); i++)
        if (operators[i].op == op)
            return &operators[i];
    return NULL;
}

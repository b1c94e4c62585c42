/* Shared by the convolution operators: shapes, descriptors, fused activations. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/operators/op_blocked.h"
#include "workers/host/operators/op_conv.h"
#include "workers/host/program/program_internal.h"

static int64_t attr_at(const struct sy_node *node, const char *name, int i, int64_t otherwise)
{
    const struct sy_attr *a = sy_node_attr(node, name);
    return a && i < a->n ? a->ints[i] : otherwise;
}

static void tensor_dims(const struct sy_tensor *t, int64_t batch, int64_t *dims)
{
    for (int i = 0; i < t->shape.rank; i++)
        dims[i] = sy_dim_at(t->shape.dims[i], batch);
}

/* Padding by auto_pad or pads; the right side follows from the output's size, which inference computed. */
static int fill_padding(const struct sy_node *node, struct sy_conv_shape *c)
{
    const struct sy_attr *auto_pad = sy_node_attr(node, "auto_pad");
    bool same_lower = auto_pad && strcmp(auto_pad->s, "SAME_LOWER") == 0;
    bool same_upper = auto_pad && strcmp(auto_pad->s, "SAME_UPPER") == 0;
    int at = c->weights_rank - c->spatial;
    for (int i = 0; i < c->spatial; i++) {
        int64_t kernel = (c->weights[at + i] - 1) * (c->dilations[i] + 1) + 1;
        int64_t total = (c->dst[2 + i] - 1) * c->strides[i] + kernel - c->src[2 + i];
        int64_t left = attr_at(node, "pads", i, 0);
        if (same_lower || same_upper)
            left = total <= 0 ? 0 : same_upper ? total / 2 : total - total / 2;
        c->pad_left[i] = left;
        c->pad_right[i] = total - left;
    }
    return SY_OK;
}

int sy_conv_shape_read(const struct sy_graph *graph, const struct sy_node *node, int64_t batch,
                       struct sy_conv_shape *c)
{
    const struct sy_tensor *x = &graph->tensors[node->inputs[0]],
                           *w = &graph->tensors[node->inputs[1]];
    const struct sy_tensor *y = &graph->tensors[node->outputs[0]];
    int64_t plain[SY_MAX_RANK];
    if ((x->dtype != SY_DTYPE_F32 && node->op == SY_OP_CONV) || x->shape.rank < 3 ||
        x->shape.rank > 5)
        return sy_unsupported(node, "only float32 with 1 to 3 spatial dimensions");
    *c = (struct sy_conv_shape){.type = dnnl_f32,
                                .dst_type = dnnl_f32,
                                .data = dnnl_format_tag_any,
                                .spatial = x->shape.rank - 2,
                                .groups = (int)sy_node_int(node, "group", 1)};
    tensor_dims(x, batch, c->src);
    tensor_dims(y, batch, c->dst);
    tensor_dims(w, batch, plain);
    c->weights_rank = w->shape.rank + (c->groups > 1);
    if (c->groups > 1) {
        c->weights[0] = c->groups;
        c->weights[1] = plain[0] / c->groups;
        memcpy(&c->weights[2], &plain[1], (size_t)(w->shape.rank - 1) * sizeof *plain);
    } else {
        memcpy(c->weights, plain, (size_t)w->shape.rank * sizeof *plain);
    }
    c->bias[0] = plain[0];
    for (int i = 0; i < c->spatial; i++) {
        c->strides[i] = attr_at(node, "strides", i, 1);
        c->dilations[i] = attr_at(node, "dilations", i, 1) - 1;
    }
    return fill_padding(node, c);
}

static dnnl_alg_kind_t kind_of(enum sy_activation activation)
{
    switch (activation) {
    case SY_ACT_RELU:
        return dnnl_eltwise_relu;
    case SY_ACT_GELU_ERF:
        return dnnl_eltwise_gelu_erf;
    case SY_ACT_TANH:
        return dnnl_eltwise_tanh;
    case SY_ACT_SIGMOID:
        return dnnl_eltwise_logistic;
    case SY_ACT_CLIP:
        return dnnl_eltwise_clip;
    case SY_ACT_SWISH:
        return dnnl_eltwise_swish;
    case SY_ACT_HARD_SWISH:
        return dnnl_eltwise_hardswish;
    case SY_ACT_NONE:
        break;
    }
    return dnnl_alg_kind_undef;
}

/* oneDNN 2.6 takes none for HardSwish. */
dnnl_alg_kind_t sy_dnnl_activation(const struct sy_node *node, float *alpha, float *beta)
{
    bool hard = node->activation == SY_ACT_HARD_SWISH, clip = node->activation == SY_ACT_CLIP;
    *alpha = hard ? 1.0f / 6 : clip || node->activation == SY_ACT_SWISH ? node->act_alpha : 0;
    *beta = hard ? 0.5f : clip ? node->act_beta : 0;
    return kind_of(node->activation);
}

dnnl_status_t sy_dnnl_append_activation(const struct sy_node *node, dnnl_post_ops_t ops)
{
    float alpha, beta;
    dnnl_alg_kind_t activation = sy_dnnl_activation(node, &alpha, &beta);
    return activation == dnnl_alg_kind_undef
               ? dnnl_success
               : dnnl_post_ops_append_eltwise(ops, 1.0f, activation, alpha, beta);
}

int sy_dnnl_node_attr(const struct sy_node *node, dnnl_data_type_t type, float sum_scale,
                      dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops;
    SY_DNNL(dnnl_primitive_attr_create(out), node->name);
    SY_DNNL(dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user), node->name);
    SY_DNNL(dnnl_post_ops_create(&ops), node->name);
    dnnl_status_t status = dnnl_success;
    if (sum_scale != 0)
        status = dnnl_post_ops_append_sum(ops, sum_scale);
    if (status == dnnl_success && !sy_activation_is_own(node, type))
        status = sy_dnnl_append_activation(node, ops);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*out, ops);
    dnnl_post_ops_destroy(ops);
    return sy_dnnl_check(status, "fused operations", node->name);
}

bool sy_conv_has_bias(const struct sy_node *node)
{
    return sy_node_input(node, 2) >= 0 && node->residual_input != 2;
}

int64_t sy_conv_elements(const int64_t *dims, int spatial)
{
    int64_t n = 1;
    for (int i = 0; i < spatial + 2; i++)
        n *= dims[i];
    return n;
}

int64_t sy_conv_rows(const struct sy_conv_shape *c)
{
    return c->dst[1] > 0 ? sy_conv_elements(c->dst, c->spatial) / c->dst[1] : 0;
}

bool sy_conv_is_reference(const_dnnl_primitive_desc_t pd)
{
    const char *name = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return strncmp(name, "ref", 3) == 0;
}

int sy_conv_place_output(struct sy_program *p, const dnnl_memory_desc_t *dst, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    int tensor = node->outputs[0], residual, own;
    if (node->residual_input < 0)
        return sy_program_new_laid_out(p, tensor, dst, out);
    SY_TRY(sy_program_input_native(p, node->residual_input, &own));
    SY_TRY(sy_program_input_as(p, node->residual_input, dst, &residual));
    bool is_copy = residual != own && p->values[residual].place == SY_IN_WORKSPACE;
    if (is_copy || sy_program_is_last_use(p, node->residual_input, residual))
        return sy_program_new_alias(p, residual, tensor, dst, out);
    SY_TRY(sy_program_new_laid_out(p, tensor, dst, out));
    return sy_program_add_reorder(p, residual, *out);
}

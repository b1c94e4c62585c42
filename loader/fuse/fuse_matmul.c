/* Passes around matrix products: scales, biases; and activations of products and convolutions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static bool is_bare(const struct sy_node *matmul)
{
    return matmul->activation == SY_ACT_NONE && matmul->residual_input < 0 &&
           matmul->bias_input < 0;
}

/* Mul or Div by a constant -> attribute alpha of the MatMul. */
int sy_fuse_matmul_scales(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        float scalar;
        int x;
        if ((node->op != SY_OP_MUL && node->op != SY_OP_DIV) ||
            !sy_fuse_split_scalar(f, node, &scalar, &x))
            continue;
        if (node->op == SY_OP_DIV && (x != node->inputs[0] || scalar == 0))
            continue;
        struct sy_node *matmul = sy_fuse_inner(f, x, SY_OP_MATMUL);
        if (!matmul || !is_bare(matmul) ||
            !sy_shape_equal(&sy_fuse_tensor(f, x)->shape,
                            &sy_fuse_tensor(f, node->outputs[0])->shape))
            continue;
        float alpha = sy_node_float(matmul, "alpha", 1);
        SY_TRY(sy_node_set_float(matmul, "alpha",
                                 node->op == SY_OP_MUL ? alpha * scalar : alpha / scalar));
        sy_fuse_absorb(f, matmul, node);
    }
    return SY_OK;
}

/* A constant vector as long as the product's last dimension. */
static bool is_bias_of(const struct sy_fuse *f, int tensor, const struct sy_tensor *product)
{
    if (tensor < 0)
        return false;
    const struct sy_tensor *bias = sy_fuse_tensor(f, tensor);
    int rank = product->shape.rank;
    return bias->data && bias->dtype == SY_DTYPE_F32 && product->dtype == SY_DTYPE_F32 &&
           bias->shape.rank == 1 && rank >= 2 &&
           sy_dim_at(product->shape.dims[rank - 1], 1) == bias->shape.dims[0].fixed &&
           product->shape.dims[rank - 1].per_batch == 0;
}

/* A constant [1, .., n] that a product's Add takes, of no more dimensions than the product has. */
static bool is_upright(const struct sy_tensor *bias, const struct sy_tensor *product)
{
    int rank = bias->shape.rank;
    return bias->data && bias->dtype == SY_DTYPE_F32 && rank > 1 && rank <= product->shape.rank &&
           bias->shape.dims[rank - 1].per_batch == 0 &&
           sy_shape_elements(&bias->shape, 1) == bias->shape.dims[rank - 1].fixed;
}

/* Add(MatMul(x, w), [1, n]), as scikit-learn's converters write it -> the same with a vector. */
int sy_fuse_flat_biases(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        const struct sy_node *add = &f->graph->nodes[n];
        for (int i = 0; i < 2 && add->op == SY_OP_ADD && add->n_inputs == 2; i++) {
            const struct sy_tensor *bias = sy_fuse_tensor(f, add->inputs[1 - i]);
            if (!sy_fuse_inner(f, add->inputs[i], SY_OP_MATMUL) ||
                !is_upright(bias, sy_fuse_tensor(f, add->inputs[i])))
                continue;
            struct sy_shape flat = {.rank = 1, .dims = {bias->shape.dims[bias->shape.rank - 1]}};
            char name[160];
            int vector;
            float *to;
            snprintf(name, sizeof name, "%.120s.flat", bias->name);
            SY_TRY(sy_fuse_constant(f, name, &flat, &vector, &to));
            bias = sy_fuse_tensor(f, add->inputs[1 - i]);
            memcpy(to, bias->data, bias->data_bytes);
            f->graph->nodes[n].inputs[1 - i] = vector;
        }
    }
    return SY_OK;
}

/* Add(MatMul(x, w), vector) -> MatMul with bias: its last input. */
int sy_fuse_matmul_biases(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *add = &f->graph->nodes[n];
        for (int i = 0; i < 2 && add->op == SY_OP_ADD && add->n_inputs == 2; i++) {
            struct sy_node *matmul = sy_fuse_inner(f, add->inputs[i], SY_OP_MATMUL);
            int bias = add->inputs[1 - i];
            if (!matmul || !is_bare(matmul) ||
                !is_bias_of(f, bias, sy_fuse_tensor(f, add->inputs[i])))
                continue;
            SY_TRY(sy_node_add_input(matmul, bias));
            matmul->bias_input = matmul->n_inputs - 1;
            sy_fuse_absorb(f, matmul, add);
            break;
        }
    }
    return SY_OK;
}

enum sy_activation sy_fuse_activation_of(const struct sy_node *node)
{
    switch (node->op) {
    case SY_OP_RELU:
        return SY_ACT_RELU;
    case SY_OP_TANH:
        return SY_ACT_TANH;
    case SY_OP_SIGMOID:
        return SY_ACT_SIGMOID;
    case SY_OP_CLIP:
        return SY_ACT_CLIP;
    case SY_OP_GELU: {
        const struct sy_attr *kind = sy_node_attr(node, "approximate");
        return kind && kind->kind == SY_ATTR_STRING && strcmp(kind->s, "none") != 0
                   ? SY_ACT_NONE
                   : SY_ACT_GELU_ERF;
    }
    default:
        return SY_ACT_NONE;
    }
}

static struct sy_node *activated(const struct sy_fuse *f, int tensor)
{
    static const enum sy_op ops[] = {SY_OP_CONV, SY_OP_GEMM, SY_OP_MATMUL};
    for (size_t i = 0; i < SY_ARRAY_LEN(ops); i++) {
        struct sy_node *node = sy_fuse_inner(f, tensor, ops[i]);
        if (node && node->activation == SY_ACT_NONE &&
            sy_fuse_tensor(f, tensor)->dtype == SY_DTYPE_F32)
            return node;
    }
    return NULL;
}

/* Relu(Conv(x)) -> Conv(x) with an activation; the same for Gemm and MatMul, and for the other activations. */
int sy_fuse_activations(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        enum sy_activation activation = sy_fuse_activation_of(node);
        struct sy_node *maker = activation == SY_ACT_NONE ? NULL : activated(f, node->inputs[0]);
        if (!maker)
            continue;
        maker->activation = activation;
        if (activation == SY_ACT_CLIP) {
            maker->act_alpha = sy_node_float(node, "min", 0);
            maker->act_beta = sy_node_float(node, "max", 0);
        }
        sy_fuse_absorb(f, maker, node);
    }
    return SY_OK;
}

/* Swish and HardSwish behind Conv, Gemm, MatMul. */
int sy_fuse_gated_activations(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        bool swish = node->op == SY_OP_SWISH;
        struct sy_node *maker =
            swish || node->op == SY_OP_HARD_SWISH ? activated(f, node->inputs[0]) : NULL;
        if (!maker)
            continue;
        maker->activation = swish ? SY_ACT_SWISH : SY_ACT_HARD_SWISH;
        maker->act_alpha = swish ? sy_node_float(node, "alpha", 1) : 0;
        sy_fuse_absorb(f, maker, node);
    }
    return SY_OK;
}

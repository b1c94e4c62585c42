/* Scales and shifts of the columns of a product are folded into its constant weights: BatchNormalization behind Gemm or MatMul, also behind a
 * Reshape between the two, as exporters flatten [N, L, C] for it; and Mul by a vector. */
#include <stdio.h>
#include <stdlib.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* A product of float32 with constant weights [K, n] or, transposed, [n, K]. */
struct product {
    struct sy_node *node;
    int64_t n;
    bool transposed;
    int bias; /* a constant of n numbers, or -1 */
};

static bool is_vector(const struct sy_fuse *f, int tensor, int64_t n)
{
    const struct sy_tensor *t = sy_fuse_tensor(f, tensor);
    return t->data && t->dtype == SY_DTYPE_F32 && t->data_bytes == (size_t)n * sizeof(float) &&
           t->shape.rank >= 1 && t->shape.dims[t->shape.rank - 1].fixed == n;
}

/* Its weights are whole numbers, or such times steps: products of 8 bits. */
static bool is_quantized(const struct sy_node *node)
{
    return sy_node_int(node, "whole", 0) || sy_node_attr(node, "steps");
}

static bool read_bias(const struct sy_fuse *f, struct product *p)
{
    const struct sy_node *node = p->node;
    p->bias = node->op == SY_OP_GEMM  ? sy_node_input(node, 2)
              : node->bias_input >= 0 ? node->inputs[node->bias_input]
                                      : -1;
    return p->bias < 0 || is_vector(f, p->bias, p->n);
}

/* The product that makes `tensor`, whose last dimension is `n`, if it has one reader. */
static bool find_product(const struct sy_fuse *f, int tensor, int64_t n, struct product *p)
{
    struct sy_node *node = sy_fuse_inner(f, tensor, SY_OP_MATMUL);
    if (!node)
        node = sy_fuse_inner(f, tensor, SY_OP_GEMM);
    if (!node || node->activation != SY_ACT_NONE || node->residual_input >= 0 || is_quantized(node))
        return false;
    const struct sy_tensor *weights = sy_fuse_tensor(f, node->inputs[1]);
    *p = (struct product){.node = node,
                          .n = n,
                          .transposed = node->op == SY_OP_GEMM && sy_node_int(node, "transB", 0)};
    return weights->data && weights->dtype == SY_DTYPE_F32 && weights->shape.rank == 2 &&
           weights->shape.dims[p->transposed ? 0 : 1].fixed == n && read_bias(f, p);
}

static int set_bias(struct product *p, int bias)
{
    struct sy_node *node = p->node;
    if (node->op == SY_OP_MATMUL) {
        if (node->bias_input < 0) {
            SY_TRY(sy_node_add_input(node, bias));
            node->bias_input = node->n_inputs - 1;
        }
        node->inputs[node->bias_input] = bias;
        return SY_OK;
    }
    if (node->n_inputs == 2)
        SY_TRY(sy_node_add_input(node, bias));
    node->inputs[2] = bias;
    return sy_node_set_float(node, "beta", 1);
}

/* New weights: others may share the old ones. In double: the rounding happens once. */
static int scale_product(struct sy_fuse *f, struct product *p, const double *scale,
                         const double *shift)
{
    const struct sy_tensor *old = sy_fuse_tensor(f, p->node->inputs[1]);
    struct sy_shape shape = old->shape, vector = {1, {{p->n, 0}}};
    int64_t n = p->n, k = sy_shape_elements(&shape, 0) / SY_MAX(n, 1);
    double beta = p->node->op == SY_OP_GEMM ? (double)sy_node_float(p->node, "beta", 1) : 1;
    int weights, bias;
    float *to, *bias_to;
    char name[160];
    snprintf(name, sizeof name, "%.120s.scaled", old->name);
    SY_TRY(sy_fuse_constant(f, name, &shape, &weights, &to));
    snprintf(name, sizeof name, "%.120s.scaled_bias", p->node->name);
    SY_TRY(sy_fuse_constant(f, name, &vector, &bias, &bias_to));
    const float *from = sy_fuse_tensor(f, p->node->inputs[1])->data;
    const float *bias_from = p->bias < 0 ? NULL : sy_fuse_tensor(f, p->bias)->data;
    for (int64_t i = 0; i < n * k; i++)
        to[i] = (float)((double)from[i] * scale[p->transposed ? i / k : i % n]);
    for (int64_t c = 0; c < n; c++)
        bias_to[c] = (float)((bias_from ? (double)bias_from[c] * beta : 0) * scale[c] + shift[c]);
    p->node->inputs[1] = weights;
    return set_bias(p, bias);
}

/* The node as x * scale + shift of each column, and its input *x; false: it is something else. */
static bool read_columns(const struct sy_fuse *f, const struct sy_node *node, int64_t n,
                         double *scale, double *shift, int *x)
{
    int vector;
    *x = node->inputs[0];
    if (node->op == SY_OP_BATCH_NORM)
        return sy_fuse_read_batch_norm(f, node, n, scale, shift);
    if (!sy_fuse_split_vector(f, node, n, &vector, x))
        return false;
    const float *factor = sy_fuse_tensor(f, vector)->data;
    for (int64_t c = 0; c < n; c++) {
        scale[c] = (double)factor[c];
        shift[c] = 0;
    }
    return true;
}

/* Columns of the node's result: its channels have to be the last dimension. 0: they are not. */
static int64_t count_columns(const struct sy_fuse *f, const struct sy_node *node)
{
    const struct sy_shape *shape = &sy_fuse_tensor(f, node->outputs[0])->shape;
    bool normalises = node->op == SY_OP_BATCH_NORM && node->n_outputs == 1 && shape->rank == 2;
    if (!normalises && !(node->op == SY_OP_MUL && node->n_inputs == 2 && shape->rank >= 2))
        return 0;
    struct sy_dim last = shape->dims[shape->rank - 1];
    return last.per_batch == 0 && last.fixed > 1 ? last.fixed : 0;
}

/* The node between the two that only changes the shape, with one reader; NULL: none. */
static struct sy_node *find_reshape(const struct sy_fuse *f, int tensor)
{
    static const enum sy_op ops[] = {SY_OP_RESHAPE, SY_OP_FLATTEN, SY_OP_SQUEEZE, SY_OP_UNSQUEEZE};
    struct sy_node *node = NULL;
    for (size_t i = 0; i < SY_ARRAY_LEN(ops) && !node; i++)
        node = sy_fuse_inner(f, tensor, ops[i]);
    return node;
}

/* node(product) -> product; node(Reshape(product)) -> Reshape(product). */
static int fold(struct sy_fuse *f, struct sy_node *node, int64_t n, double *scale, double *shift)
{
    struct product p;
    int x;
    if (!read_columns(f, node, n, scale, shift, &x) ||
        !sy_shape_equal(&sy_fuse_tensor(f, x)->shape, &sy_fuse_tensor(f, node->outputs[0])->shape))
        return SY_OK;
    struct sy_node *reshape = find_reshape(f, x);
    int made = reshape ? reshape->inputs[0] : x;
    const struct sy_shape *shape = &sy_fuse_tensor(f, made)->shape;
    struct sy_dim last = shape->rank > 0 ? shape->dims[shape->rank - 1] : (struct sy_dim){0, 0};
    if (last.fixed != n || last.per_batch != 0 || !find_product(f, made, n, &p))
        return SY_OK;
    SY_TRY(scale_product(f, &p, scale, shift));
    sy_fuse_absorb(f, reshape ? reshape : p.node, node);
    return SY_OK;
}

int sy_fuse_product_norms(struct sy_fuse *f)
{
    for (int i = 0; i < f->graph->n_nodes; i++) {
        int64_t n = count_columns(f, &f->graph->nodes[i]);
        double *scale;
        if (n == 0)
            continue;
        SY_TRY(sy_graph_alloc((size_t)n * 2, sizeof *scale, &scale));
        int status = fold(f, &f->graph->nodes[i], n, scale, scale + n);
        free(scale);
        SY_TRY(status);
    }
    return SY_OK;
}

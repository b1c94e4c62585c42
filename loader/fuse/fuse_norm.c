/* Passes that recognise GELU and layer normalisation where an exporter took them apart. */
#include <math.h>
#include <stdlib.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static bool near(float value, double want)
{
    return fabs(value - want) <= 1e-4 * fabs(want);
}

/* ---- GELU ------------------------------------------------------------------------------------- */

/* The node is `op` of a constant near `want` and another tensor. */
static bool is_with(const struct sy_fuse *f, const struct sy_node *node, double want, int *other)
{
    float scalar;
    return node && sy_fuse_split_scalar(f, node, &scalar, other) && near(scalar, want);
}

/* `tensor` = 1 + erf(x / sqrt(2)) */
static bool is_erf_part(const struct sy_fuse *f, int tensor, int *x)
{
    int erf_out;
    const struct sy_node *add = sy_fuse_inner(f, tensor, SY_OP_ADD);
    if (!is_with(f, add, 1, &erf_out))
        return false;
    const struct sy_node *erf = sy_fuse_inner(f, erf_out, SY_OP_ERF);
    if (!erf)
        return false;
    const struct sy_node *div = sy_fuse_inner(f, erf->inputs[0], SY_OP_DIV);
    if (is_with(f, div, 1.4142135623730951, x))
        return *x == div->inputs[0];
    return is_with(f, sy_fuse_inner(f, erf->inputs[0], SY_OP_MUL), 0.7071067811865476, x);
}

/* `node` = x * (1 + erf), either way round; x without the half. */
static bool is_erf_product(const struct sy_fuse *f, const struct sy_node *node, int *x, int *factor)
{
    if (!node || node->op != SY_OP_MUL || node->n_inputs != 2)
        return false;
    for (int i = 0; i < 2; i++) {
        if (is_erf_part(f, node->inputs[i], x)) {
            *factor = node->inputs[1 - i];
            return true;
        }
    }
    return false;
}

/* 0.5 * (x * (1 + erf)), or (0.5 * x) * (1 + erf), or x * (0.5 * (1 + erf)) */
static bool is_gelu(const struct sy_fuse *f, const struct sy_node *node, int *x)
{
    int inner, factor;
    if (node->op != SY_OP_MUL || node->n_inputs != 2)
        return false;
    if (is_with(f, node, 0.5, &inner) &&
        is_erf_product(f, sy_fuse_inner(f, inner, SY_OP_MUL), x, &factor))
        return factor == *x;
    if (is_erf_product(f, node, x, &factor))
        return is_with(f, sy_fuse_inner(f, factor, SY_OP_MUL), 0.5, &inner) && inner == *x;
    for (int i = 0; i < 2; i++)
        if (is_with(f, sy_fuse_inner(f, node->inputs[i], SY_OP_MUL), 0.5, &inner) &&
            is_erf_part(f, inner, x) && node->inputs[1 - i] == *x)
            return true;
    return false;
}

int sy_fuse_gelus(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        int x;
        if (is_gelu(f, &f->graph->nodes[n], &x))
            SY_TRY(sy_fuse_become(f, &f->graph->nodes[n], SY_OP_GELU, 1, &x));
    }
    return SY_OK;
}

/* ---- layer normalisation ---------------------------------------------------------------------- */

struct layer_norm {
    int x, gamma, beta;
    float epsilon;
};

static bool is_vector(const struct sy_fuse *f, int tensor, int64_t n)
{
    if (tensor < 0)
        return false;
    const struct sy_tensor *t = sy_fuse_tensor(f, tensor);
    return t->data && t->dtype == SY_DTYPE_F32 && t->shape.rank == 1 && t->shape.dims[0].fixed == n;
}

bool sy_fuse_split_vector(const struct sy_fuse *f, const struct sy_node *node, int64_t n,
                          int *vector, int *other)
{
    for (int i = 0; i < 2 && node && node->n_inputs == 2; i++) {
        if (is_vector(f, node->inputs[i], n)) {
            *vector = node->inputs[i];
            *other = node->inputs[1 - i];
            return true;
        }
    }
    return false;
}

const struct sy_node *sy_fuse_last_axis_mean(const struct sy_fuse *f, int tensor)
{
    const struct sy_node *mean = sy_fuse_maker(f, tensor, SY_OP_REDUCE_MEAN);
    const struct sy_attr *axes = mean ? sy_node_attr(mean, "axes") : NULL;
    if (!axes || axes->n != 1 ||
        axes->ints[0] != sy_fuse_tensor(f, mean->inputs[0])->shape.rank - 1 ||
        sy_node_int(mean, "keepdims", 1) == 0)
        return NULL;
    return mean;
}

/* `tensor` = x - mean(x) */
static bool is_centred(const struct sy_fuse *f, int tensor, int *x)
{
    const struct sy_node *sub = sy_fuse_maker(f, tensor, SY_OP_SUB);
    const struct sy_node *mean = sub ? sy_fuse_last_axis_mean(f, sub->inputs[1]) : NULL;
    if (!mean || mean->inputs[0] != sub->inputs[0])
        return false;
    *x = sub->inputs[0];
    return true;
}

/* `tensor` = (x - mean)^2, by Pow or Mul */
static bool is_squared(const struct sy_fuse *f, int tensor, int *x)
{
    float exponent;
    const struct sy_node *pow = sy_fuse_maker(f, tensor, SY_OP_POW),
                         *mul = sy_fuse_maker(f, tensor, SY_OP_MUL);
    if (pow && sy_graph_scalar(f->graph, pow->inputs[1], &exponent) && exponent == 2)
        return is_centred(f, pow->inputs[0], x);
    return mul && mul->inputs[0] == mul->inputs[1] && is_centred(f, mul->inputs[0], x);
}

/* `tensor` = sqrt(mean((x - mean)^2) + epsilon) */
static bool is_deviation(const struct sy_fuse *f, int tensor, int *x, float *epsilon)
{
    int variance;
    const struct sy_node *root = sy_fuse_maker(f, tensor, SY_OP_SQRT);
    const struct sy_node *add = root ? sy_fuse_maker(f, root->inputs[0], SY_OP_ADD) : NULL;
    if (!add || !sy_fuse_split_scalar(f, add, epsilon, &variance))
        return false;
    const struct sy_node *mean = sy_fuse_last_axis_mean(f, variance);
    return mean && is_squared(f, mean->inputs[0], x);
}

/* Inner results with other readers stay: their nodes do too. */
static bool is_layer_norm(const struct sy_fuse *f, const struct sy_node *add,
                          struct layer_norm *norm)
{
    int product, quotient, x;
    const struct sy_shape *shape = &sy_fuse_tensor(f, add->outputs[0])->shape;
    if (shape->rank < 1 || shape->dims[shape->rank - 1].per_batch != 0)
        return false;
    int64_t n = shape->dims[shape->rank - 1].fixed;
    if (!sy_fuse_split_vector(f, add, n, &norm->beta, &product) ||
        !sy_fuse_split_vector(f, sy_fuse_maker(f, product, SY_OP_MUL), n, &norm->gamma, &quotient))
        return false;
    const struct sy_node *div = sy_fuse_maker(f, quotient, SY_OP_DIV);
    if (!div || !is_centred(f, div->inputs[0], &norm->x) ||
        !is_deviation(f, div->inputs[1], &x, &norm->epsilon))
        return false;
    return x == norm->x && sy_shape_equal(&sy_fuse_tensor(f, x)->shape, shape);
}

int sy_fuse_layer_norms(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        struct layer_norm norm;
        if (node->op != SY_OP_ADD || node->n_outputs != 1 || !is_layer_norm(f, node, &norm))
            continue;
        int axis = sy_fuse_tensor(f, norm.x)->shape.rank - 1;
        SY_TRY(sy_fuse_become(f, node, SY_OP_LAYER_NORM, 3,
                              (const int[]){norm.x, norm.gamma, norm.beta}));
        SY_TRY(sy_node_set_int(node, "axis", axis));
        SY_TRY(sy_node_set_float(node, "epsilon", norm.epsilon));
    }
    return SY_OK;
}

/* LayerNorm(Add(a, b)) -> SkipLayerNorm(a, b, gamma, beta), if the sum has no other reader and a, b its shape. */
int sy_fuse_skip_norms(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *norm = &f->graph->nodes[n];
        const struct sy_node *add =
            norm->op == SY_OP_LAYER_NORM ? sy_fuse_inner(f, norm->inputs[0], SY_OP_ADD) : NULL;
        if (!add || norm->n_inputs != 3 || norm->inputs[2] < 0)
            continue;
        const struct sy_shape *shape = &sy_fuse_tensor(f, norm->outputs[0])->shape;
        const struct sy_tensor *a = sy_fuse_tensor(f, add->inputs[0]),
                               *b = sy_fuse_tensor(f, add->inputs[1]);
        if (a->data || b->data || !sy_shape_equal(&a->shape, shape) ||
            !sy_shape_equal(&b->shape, shape))
            continue;
        int64_t axis = sy_node_int(norm, "axis", -1);
        float epsilon = sy_node_float(norm, "epsilon", 1e-5f);
        const int inputs[] = {add->inputs[0], add->inputs[1], norm->inputs[1], norm->inputs[2]};
        SY_TRY(sy_fuse_become(f, norm, SY_OP_SKIP_LAYER_NORM, 4, inputs));
        SY_TRY(sy_node_set_int(norm, "axis", axis));
        SY_TRY(sy_node_set_float(norm, "epsilon", epsilon));
    }
    return SY_OK;
}

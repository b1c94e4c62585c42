/* Normalisations in other forms: RMS, and layer normalisation with the scale in the reciprocal deviation, as Keras has it, or without
 * scale and bias. */
#include <stdlib.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static bool is_power(const struct sy_fuse *f, const struct sy_node *pow, float exponent)
{
    float e;
    return pow && pow->n_inputs == 2 && sy_graph_scalar(f->graph, pow->inputs[1], &e) &&
           e == exponent;
}

/* `tensor` = sqrt(x) */
static bool is_root(const struct sy_fuse *f, int tensor, int *x)
{
    const struct sy_node *root = sy_fuse_maker(f, tensor, SY_OP_SQRT),
                         *pow = sy_fuse_maker(f, tensor, SY_OP_POW);
    if (root)
        *x = root->inputs[0];
    else if (is_power(f, pow, 0.5f))
        *x = pow->inputs[0];
    else
        return false;
    return true;
}

/* `tensor` = 1 / sqrt(x) */
static bool is_reciprocal_root(const struct sy_fuse *f, int tensor, int *x)
{
    const struct sy_node *reciprocal = sy_fuse_maker(f, tensor, SY_OP_RECIPROCAL),
                         *div = sy_fuse_maker(f, tensor, SY_OP_DIV),
                         *pow = sy_fuse_maker(f, tensor, SY_OP_POW);
    float one;
    if (reciprocal)
        return is_root(f, reciprocal->inputs[0], x);
    if (div)
        return sy_graph_scalar(f->graph, div->inputs[0], &one) && one == 1 &&
               is_root(f, div->inputs[1], x);
    if (!is_power(f, pow, -0.5f))
        return false;
    *x = pow->inputs[0];
    return true;
}

/* `tensor` = x * x */
static bool is_square(const struct sy_fuse *f, int tensor, int *x)
{
    const struct sy_node *mul = sy_fuse_maker(f, tensor, SY_OP_MUL),
                         *pow = sy_fuse_maker(f, tensor, SY_OP_POW);
    if (!(mul && mul->inputs[0] == mul->inputs[1]) && !is_power(f, pow, 2))
        return false;
    *x = mul ? mul->inputs[0] : pow->inputs[0];
    return true;
}

/* `tensor` = mean(x * x) + epsilon, over the last axis */
static bool is_mean_square(const struct sy_fuse *f, int tensor, int *x, float *epsilon)
{
    int square;
    const struct sy_node *add = sy_fuse_maker(f, tensor, SY_OP_ADD);
    if (!add || !sy_fuse_split_scalar(f, add, epsilon, &square))
        return false;
    const struct sy_node *mean = sy_fuse_last_axis_mean(f, square);
    return mean && is_square(f, mean->inputs[0], x);
}

/* `tensor` = x / sqrt(mean(x * x) + epsilon) */
static bool is_rms_quotient(const struct sy_fuse *f, int tensor, int *x, float *epsilon)
{
    const struct sy_node *div = sy_fuse_maker(f, tensor, SY_OP_DIV),
                         *mul = sy_fuse_maker(f, tensor, SY_OP_MUL);
    int mean, same;
    if (div) {
        *x = div->inputs[0];
        return is_root(f, div->inputs[1], &mean) && is_mean_square(f, mean, &same, epsilon) &&
               same == *x;
    }
    for (int i = 0; mul && i < 2; i++) {
        *x = mul->inputs[i];
        if (is_reciprocal_root(f, mul->inputs[1 - i], &mean) &&
            is_mean_square(f, mean, &same, epsilon) && same == *x)
            return true;
    }
    return false;
}

/* The extent of the last axis of the node's result, or -1. */
static int64_t last_extent(const struct sy_fuse *f, const struct sy_node *node)
{
    const struct sy_tensor *y = sy_fuse_tensor(f, node->outputs[0]);
    int rank = y->shape.rank;
    return y->dtype == SY_DTYPE_F32 && rank > 0 && y->shape.dims[rank - 1].per_batch == 0
               ? y->shape.dims[rank - 1].fixed
               : -1;
}

static int become_norm(struct sy_fuse *f, struct sy_node *node, enum sy_op op, int n_inputs,
                       const int *inputs, float epsilon)
{
    int axis = sy_fuse_tensor(f, inputs[0])->shape.rank - 1;
    SY_TRY(sy_fuse_become(f, node, op, n_inputs, inputs));
    SY_TRY(sy_node_set_int(node, "axis", axis));
    return sy_node_set_float(node, "epsilon", epsilon);
}

/* gamma * x / sqrt(mean(x * x) + epsilon) -> RMSNormalization */
int sy_fuse_rms_norms(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        int inputs[2], quotient;
        float epsilon;
        if (node->op != SY_OP_MUL || node->n_outputs != 1 ||
            !sy_fuse_split_vector(f, node, last_extent(f, node), &inputs[1], &quotient) ||
            !is_rms_quotient(f, quotient, &inputs[0], &epsilon) ||
            !sy_shape_equal(&sy_fuse_tensor(f, inputs[0])->shape,
                            &sy_fuse_tensor(f, node->outputs[0])->shape))
            continue;
        SY_TRY(become_norm(f, node, SY_OP_RMS_NORM, 2, inputs, epsilon));
    }
    return SY_OK;
}

/* ---- layer normalisation ----------------------------------------------------------------------- */

struct late_norm {
    int x, mean, rate; /* rate: gamma / deviation, in tensor `rate` */
    int gamma, beta;
    float epsilon;
};

/* `tensor` = a * b, either way round; *b for the given a. */
static bool is_times(const struct sy_fuse *f, int tensor, int a, int *b)
{
    const struct sy_node *mul = sy_fuse_maker(f, tensor, SY_OP_MUL);
    for (int i = 0; mul && i < 2; i++)
        if (mul->inputs[i] == a) {
            *b = mul->inputs[1 - i];
            return true;
        }
    return false;
}

/* `tensor` = (x - mean)^2, of the mean over x's last axis */
static bool is_square_distance(const struct sy_fuse *f, int tensor, int x, int mean)
{
    int centred;
    if (!is_square(f, tensor, &centred))
        return false;
    const struct sy_node *sub = sy_fuse_maker(f, centred, SY_OP_SUB);
    return sub && ((sub->inputs[0] == x && sub->inputs[1] == mean) ||
                   (sub->inputs[0] == mean && sub->inputs[1] == x));
}

/* `tensor` = gamma / sqrt(mean((x - mean)^2) + epsilon) */
static bool is_rate(const struct sy_fuse *f, int tensor, int64_t n, struct late_norm *norm)
{
    int root, sum, variance;
    const struct sy_node *mul = sy_fuse_maker(f, tensor, SY_OP_MUL);
    if (!mul || !sy_fuse_split_vector(f, mul, n, &norm->gamma, &root) ||
        !is_reciprocal_root(f, root, &sum))
        return false;
    const struct sy_node *add = sy_fuse_maker(f, sum, SY_OP_ADD);
    if (!add || !sy_fuse_split_scalar(f, add, &norm->epsilon, &variance))
        return false;
    const struct sy_node *mean = sy_fuse_last_axis_mean(f, variance);
    return mean && is_square_distance(f, mean->inputs[0], norm->x, norm->mean);
}

/* `tensor` = -mean * rate: the mean. */
static bool is_negative_offset(const struct sy_fuse *f, int tensor, struct late_norm *norm)
{
    int factor;
    const struct sy_node *neg = sy_fuse_maker(f, tensor, SY_OP_NEG);
    if (neg)
        return is_times(f, neg->inputs[0], norm->rate, &norm->mean);
    if (!is_times(f, tensor, norm->rate, &factor))
        return false;
    neg = sy_fuse_maker(f, factor, SY_OP_NEG);
    norm->mean = neg ? neg->inputs[0] : -1;
    return neg != NULL;
}

/* `tensor` = beta - mean * rate: beta and the mean. */
static bool is_offset(const struct sy_fuse *f, int tensor, int64_t n, struct late_norm *norm)
{
    int other;
    const struct sy_node *sub = sy_fuse_maker(f, tensor, SY_OP_SUB),
                         *add = sy_fuse_maker(f, tensor, SY_OP_ADD);
    if (sub)
        return sy_fuse_split_vector(f, sub, n, &norm->beta, &other) && other == sub->inputs[1] &&
               is_times(f, other, norm->rate, &norm->mean);
    return add && sy_fuse_split_vector(f, add, n, &norm->beta, &other) &&
           is_negative_offset(f, other, norm);
}

/* x * rate + (beta - mean * rate) */
static bool is_late_norm(const struct sy_fuse *f, const struct sy_node *add, int64_t n,
                         struct late_norm *norm)
{
    for (int i = 0; i < 4 && add->n_inputs == 2; i++) {
        const struct sy_node *mul = sy_fuse_maker(f, add->inputs[i & 1], SY_OP_MUL), *mean;
        if (!mul)
            continue;
        norm->x = mul->inputs[i >> 1];
        norm->rate = mul->inputs[1 - (i >> 1)];
        if (!is_offset(f, add->inputs[1 - (i & 1)], n, norm))
            continue;
        mean = sy_fuse_last_axis_mean(f, norm->mean);
        if (mean && mean->inputs[0] == norm->x && is_rate(f, norm->rate, n, norm))
            return true;
    }
    return false;
}

/* x * (gamma / deviation) + (beta - mean * (gamma / deviation)) -> LayerNormalization */
int sy_fuse_late_layer_norms(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        struct late_norm norm;
        int64_t extent = node->op == SY_OP_ADD && node->n_outputs == 1 ? last_extent(f, node) : -1;
        if (extent < 0 || !is_late_norm(f, node, extent, &norm) ||
            !sy_shape_equal(&sy_fuse_tensor(f, norm.x)->shape,
                            &sy_fuse_tensor(f, node->outputs[0])->shape))
            continue;
        SY_TRY(become_norm(f, node, SY_OP_LAYER_NORM, 3,
                           (const int[]){norm.x, norm.gamma, norm.beta}, norm.epsilon));
    }
    return SY_OK;
}

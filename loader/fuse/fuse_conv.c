/* Passes around convolutions: batch normalisation into weights, biases, residual sums. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static bool is_plain(const struct sy_node *node)
{
    return node->activation == SY_ACT_NONE && node->residual_input < 0;
}

/* The tensor's floats if it is a constant of `n` of them; NULL otherwise. */
static const float *constant_floats(const struct sy_fuse *f, int tensor, int64_t n)
{
    if (tensor < 0)
        return NULL;
    const struct sy_tensor *t = sy_fuse_tensor(f, tensor);
    return t->dtype == SY_DTYPE_F32 && t->data_bytes == (size_t)n * sizeof(float) ? t->data : NULL;
}

/* Gives the convolution an input 2, perhaps -1. */
static int ensure_bias_slot(struct sy_node *conv)
{
    if (conv->n_inputs == 2)
        SY_TRY(sy_node_add_input(conv, -1));
    return SY_OK;
}

static int set_bias(struct sy_node *conv, int tensor)
{
    SY_TRY(ensure_bias_slot(conv));
    conv->inputs[2] = tensor;
    conv->bias_input = 2;
    return SY_OK;
}

/* New weights: other convolutions may share the old ones. */
static int scale_conv(struct sy_fuse *f, struct sy_node *conv, int64_t channels,
                      const double *scale, const double *shift)
{
    struct sy_shape shape = sy_fuse_tensor(f, conv->inputs[1])->shape,
                    bias_shape = {1, {{channels, 0}}};
    int64_t each = sy_shape_elements(&shape, 0) / channels;
    int old_bias = sy_node_input(conv, 2), weights, bias;
    float *to, *bias_to;
    char name[160];
    snprintf(name, sizeof name, "%.120s.folded", sy_fuse_tensor(f, conv->inputs[1])->name);
    SY_TRY(sy_fuse_constant(f, name, &shape, &weights, &to));
    snprintf(name, sizeof name, "%.120s.folded_bias", conv->name);
    SY_TRY(sy_fuse_constant(f, name, &bias_shape, &bias, &bias_to));
    const float *from = sy_fuse_tensor(f, conv->inputs[1])->data;
    const float *bias_from = old_bias < 0 ? NULL : sy_fuse_tensor(f, old_bias)->data;
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t i = 0; i < each; i++)
            to[c * each + i] = (float)(from[c * each + i] * scale[c]);
        bias_to[c] = (float)((bias_from ? bias_from[c] : 0) * scale[c] + shift[c]);
    }
    conv->inputs[1] = weights;
    return set_bias(conv, bias);
}

bool sy_fuse_read_batch_norm(const struct sy_fuse *f, const struct sy_node *bn, int64_t n,
                             double *scale, double *shift)
{
    const float *gamma = constant_floats(f, bn->inputs[1], n),
                *beta = constant_floats(f, bn->inputs[2], n);
    const float *mean = constant_floats(f, bn->inputs[3], n),
                *var = constant_floats(f, bn->inputs[4], n);
    double epsilon = sy_node_float(bn, "epsilon", 1e-5f);
    if (!gamma || !beta || !mean || !var || sy_node_int(bn, "training_mode", 0) != 0)
        return false;
    for (int64_t c = 0; c < n; c++) {
        scale[c] = gamma[c] / sqrt(var[c] + epsilon);
        shift[c] = beta[c] - mean[c] * scale[c];
    }
    return true;
}

static bool has_constant_weights(const struct sy_fuse *f, const struct sy_node *conv,
                                 int64_t channels)
{
    const struct sy_tensor *weights = sy_fuse_tensor(f, conv->inputs[1]);
    return weights->data && weights->dtype == SY_DTYPE_F32 &&
           (sy_node_input(conv, 2) < 0 || constant_floats(f, conv->inputs[2], channels));
}

/* The node as x * scale + shift of each channel of a convolution's result; false: it is something else. */
typedef bool affine_read(const struct sy_fuse *f, const struct sy_node *node, int64_t channels,
                         double *scale, double *shift);

/* node(Conv(x)) -> Conv(x). */
static int fold_affine(struct sy_fuse *f, struct sy_node *node, int input, affine_read *read)
{
    struct sy_node *conv = sy_fuse_inner(f, node->inputs[input], SY_OP_CONV);
    if (!conv || !is_plain(conv))
        return SY_OK;
    int64_t channels = sy_fuse_tensor(f, conv->outputs[0])->shape.dims[1].fixed;
    if (channels < 1 || !has_constant_weights(f, conv, channels))
        return SY_OK;
    double *scale, *shift;
    SY_TRY(sy_graph_alloc((size_t)channels * 2, sizeof *scale, &scale));
    shift = scale + channels;
    int status = SY_OK;
    if (read(f, node, channels, scale, shift)) {
        status = scale_conv(f, conv, channels, scale, shift);
        if (status == SY_OK)
            sy_fuse_absorb(f, conv, node);
    }
    free(scale);
    return status;
}

/* BatchNormalization(Conv(x)) -> Conv(x). */
int sy_fuse_batch_norms(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++)
        if (f->graph->nodes[n].op == SY_OP_BATCH_NORM)
            SY_TRY(fold_affine(f, &f->graph->nodes[n], 0, sy_fuse_read_batch_norm));
    return SY_OK;
}

/* A constant [1, C, 1, 1] or [C, 1, 1]. */
static bool is_per_channel(const struct sy_tensor *t, const struct sy_shape *out)
{
    int before = out->rank - t->shape.rank;
    if (!t->data || t->dtype != SY_DTYPE_F32 || before < 0 || before > 1)
        return false;
    for (int i = before; i < out->rank; i++) {
        struct sy_dim dim = t->shape.dims[i - before];
        if (dim.fixed != (i == 1 ? out->dims[1].fixed : 1))
            return false;
    }
    return true;
}

/* The constant of a sum or product, one number or one for each channel, that leaves the other's shape as it is. */
static bool read_constant(const struct sy_fuse *f, const struct sy_node *node, int input,
                          int64_t channels, double *out)
{
    const struct sy_tensor *c = sy_fuse_tensor(f, node->inputs[input]);
    const struct sy_shape *x = &sy_fuse_tensor(f, node->inputs[1 - input])->shape;
    bool is_number = c->data && c->dtype == SY_DTYPE_F32 && c->shape.rank <= x->rank &&
                     c->data_bytes == sizeof(float);
    if (!is_number && !is_per_channel(c, x))
        return false;
    const float *from = c->data;
    for (int64_t i = 0; i < channels; i++)
        out[i] = from[is_number ? 0 : i];
    return true;
}

/* Products, sums, differences and quotients with a constant. */
static bool read_pair(const struct sy_fuse *f, const struct sy_node *node, int64_t channels,
                      double *scale, double *shift)
{
    bool first = sy_fuse_maker(f, node->inputs[0], SY_OP_CONV);
    bool is_product = node->op == SY_OP_MUL || node->op == SY_OP_DIV;
    if ((!first && (node->op == SY_OP_DIV || node->op == SY_OP_SUB)) ||
        !read_constant(f, node, first, channels, is_product ? scale : shift))
        return false;
    for (int64_t c = 0; c < channels; c++) {
        if (node->op == SY_OP_DIV)
            scale[c] = 1 / scale[c];
        if (node->op == SY_OP_SUB)
            shift[c] = -shift[c];
        if (!is_product)
            scale[c] = 1;
        else
            shift[c] = 0;
        if (!isfinite(scale[c]))
            return false;
    }
    return true;
}

/* Its weights are whole numbers, or such times steps: products of 8 bits (fuse_int8.h). */
static bool is_quantized(const struct sy_node *conv)
{
    return sy_node_int(conv, "whole", 0) || sy_node_attr(conv, "steps");
}

/* Conv(x) times, over, plus or minus a constant -> Conv(x). */
int sy_fuse_conv_pairs(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        bool scales = node->op == SY_OP_MUL || node->op == SY_OP_DIV;
        if ((!scales && node->op != SY_OP_ADD && node->op != SY_OP_SUB) || node->n_inputs != 2)
            continue;
        int input = sy_fuse_maker(f, node->inputs[0], SY_OP_CONV) ? 0 : 1;
        const struct sy_node *conv = sy_fuse_maker(f, node->inputs[input], SY_OP_CONV);
        if (conv && !(scales && is_quantized(conv)))
            SY_TRY(fold_affine(f, node, input, read_pair));
    }
    return SY_OK;
}

static int add_conv_bias(struct sy_fuse *f, struct sy_node *add)
{
    for (int i = 0; i < 2; i++) {
        struct sy_node *conv = sy_fuse_inner(f, add->inputs[i], SY_OP_CONV);
        if (!conv || !is_plain(conv) || sy_node_input(conv, 2) >= 0)
            continue;
        const struct sy_tensor *c = sy_fuse_tensor(f, add->inputs[1 - i]);
        struct sy_shape out = sy_fuse_tensor(f, conv->outputs[0])->shape;
        if (!is_per_channel(c, &out))
            continue;
        struct sy_shape flat = {.rank = 1, .dims = {out.dims[1]}};
        char name[160];
        int bias;
        float *to;
        snprintf(name, sizeof name, "%.120s.flat", c->name);
        SY_TRY(sy_fuse_constant(f, name, &flat, &bias, &to));
        c = sy_fuse_tensor(f, add->inputs[1 - i]);
        memcpy(to, c->data, c->data_bytes);
        SY_TRY(set_bias(conv, bias));
        sy_fuse_absorb(f, conv, add);
        return SY_OK;
    }
    return SY_OK;
}

/* Add(Conv(x), constant per channel) -> Conv(x) with that bias. */
int sy_fuse_conv_biases(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++)
        if (f->graph->nodes[n].op == SY_OP_ADD)
            SY_TRY(add_conv_bias(f, &f->graph->nodes[n]));
    return SY_OK;
}

/* The convolution among the sum's inputs that can absorb the other; the later one, so that the order changes least. */
static struct sy_node *residual_conv(struct sy_fuse *f, const struct sy_node *add, int *residual)
{
    struct sy_node *best = NULL;
    for (int i = 0; i < 2; i++) {
        struct sy_node *conv = sy_fuse_inner(f, add->inputs[i], SY_OP_CONV);
        const struct sy_tensor *mine = sy_fuse_tensor(f, add->inputs[i]);
        const struct sy_tensor *other = sy_fuse_tensor(f, add->inputs[1 - i]);
        if (!conv || !is_plain(conv) || other->data || mine->dtype != other->dtype ||
            !sy_shape_equal(&mine->shape, &other->shape) || (best && best > conv))
            continue;
        best = conv;
        *residual = add->inputs[1 - i];
    }
    return best;
}

/* Add(Conv(x), y) -> Conv(x) with residual y: last input, already computed in the sum's place. */
int sy_fuse_residuals(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *add = &f->graph->nodes[n];
        int residual;
        struct sy_node *conv =
            add->op == SY_OP_ADD && add->n_inputs == 2 ? residual_conv(f, add, &residual) : NULL;
        if (!conv)
            continue;
        SY_TRY(ensure_bias_slot(conv));
        SY_TRY(sy_node_add_input(conv, residual));
        conv->residual_input = conv->n_inputs - 1;
        sy_fuse_absorb(f, conv, add);
    }
    return SY_OK;
}

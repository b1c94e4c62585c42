/* Sums of convolutions of one input (RepVGG, MobileOne as trained): convolutions are linear, so the sum is one convolution.
 *
 *   x ─┬> Conv 3x3 ───────────┐
 *      ├> Conv 1x1 ─────────> Add ──> Conv 3x3 of weights in which the 1x1 is added to the middle, and the scale to the diagonal there
 *      └> BatchNormalization ─┘
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/fuse.h"
#include "runtime/base/status.h"

/* One side of the sum: a convolution, or a batch norm as one of 1x1. */
struct branch {
    const struct sy_node *node; /* NULL: neither */
    int64_t out, in, groups;    /* channels; in: of a group */
    int64_t kernel[2], pads[4], strides[2];
    const float *weights, *bias; /* NULL: a batch norm; none */
};

static int64_t at(const struct sy_node *node, const char *name, int i, int64_t otherwise)
{
    const struct sy_attr *a = sy_node_attr(node, name);
    return a && a->kind == SY_ATTR_INTS && i < a->n ? a->ints[i] : otherwise;
}

static bool is_bare(const struct sy_node *conv)
{
    return conv->activation == SY_ACT_NONE && conv->residual_input < 0 &&
           !sy_node_int(conv, "whole", 0) && !sy_node_attr(conv, "steps");
}

static bool has_bias_of(const struct sy_fuse *f, const struct sy_node *conv, struct branch *b)
{
    int bias = sy_node_input(conv, 2);
    const struct sy_tensor *t = bias < 0 ? NULL : sy_fuse_tensor(f, bias);
    b->bias = t ? t->data : NULL;
    return !t ||
           (t->data && t->dtype == SY_DTYPE_F32 && t->data_bytes == (size_t)b->out * sizeof(float));
}

static bool read_conv(const struct sy_fuse *f, const struct sy_node *conv, struct branch *b)
{
    const struct sy_tensor *w = sy_fuse_tensor(f, conv->inputs[1]);
    const struct sy_attr *pad = sy_node_attr(conv, "auto_pad");
    if (!is_bare(conv) || !w->data || w->dtype != SY_DTYPE_F32 || w->shape.rank != 4 ||
        (pad && pad->s && strcmp(pad->s, "NOTSET") != 0) || at(conv, "dilations", 0, 1) != 1 ||
        at(conv, "dilations", 1, 1) != 1)
        return false;
    *b = (struct branch){.node = conv,
                         .out = w->shape.dims[0].fixed,
                         .in = w->shape.dims[1].fixed,
                         .groups = sy_node_int(conv, "group", 1),
                         .weights = w->data};
    for (int i = 0; i < 4; i++)
        b->pads[i] = at(conv, "pads", i, 0);
    for (int i = 0; i < 2; i++) {
        b->kernel[i] = w->shape.dims[2 + i].fixed;
        b->strides[i] = at(conv, "strides", i, 1);
    }
    return b->out > 0 && b->in > 0 && b->groups > 0 && b->out % b->groups == 0 &&
           has_bias_of(f, conv, b);
}

static bool read_norm(const struct sy_fuse *f, const struct sy_node *bn, struct branch *b)
{
    const struct sy_shape *x = &sy_fuse_tensor(f, bn->inputs[0])->shape;
    *b = (struct branch){.node = bn, .kernel = {1, 1}, .strides = {1, 1}};
    if (bn->n_outputs != 1 || x->rank != 4 || !sy_dim_is_number(x->dims[1]))
        return false;
    b->out = x->dims[1].fixed;
    return b->out > 0 && sy_fuse_tensor(f, bn->inputs[0])->dtype == SY_DTYPE_F32;
}

/* What makes `tensor`, if it is a branch that nobody else reads. */
static bool read_branch(const struct sy_fuse *f, int tensor, struct branch *b)
{
    const struct sy_node *conv = sy_fuse_inner(f, tensor, SY_OP_CONV);
    const struct sy_node *bn = sy_fuse_inner(f, tensor, SY_OP_BATCH_NORM);
    return conv ? read_conv(f, conv, b) : bn && read_norm(f, bn, b);
}

/* Whether the window of `small` lies inside the one of `large` at each place, both over the same pixels. */
static bool fits_in(const struct branch *large, const struct branch *small)
{
    bool fits = large->weights && large->node->inputs[0] == small->node->inputs[0] &&
                large->out == small->out;
    if (small->weights)
        fits = fits && large->groups == small->groups && large->in == small->in;
    else
        fits = fits && large->in * large->groups == large->out;
    for (int i = 0; i < 2; i++) {
        int64_t before = large->pads[i] - small->pads[i],
                after = large->pads[2 + i] - small->pads[2 + i];
        fits = fits && large->strides[i] == small->strides[i] && before >= 0 && after >= 0 &&
               large->kernel[i] == small->kernel[i] + before + after;
    }
    return fits;
}

/* Adds the weights of `small` where its window lies. */
static void add_window(const struct branch *large, const struct branch *small, double *to)
{
    int64_t top = large->pads[0] - small->pads[0], left = large->pads[1] - small->pads[1];
    const float *from = small->weights;
    for (int64_t pair = 0; pair < large->out * large->in; pair++)
        for (int64_t y = 0; y < small->kernel[0]; y++)
            for (int64_t x = 0; x < small->kernel[1]; x++)
                to[(pair * large->kernel[0] + top + y) * large->kernel[1] + left + x] += *from++;
}

/* The same of a batch norm: its scale between a channel and itself. */
static void add_diagonal(const struct branch *large, const struct branch *small,
                         const double *scale, double *to)
{
    int64_t top = large->pads[0] - small->pads[0], left = large->pads[1] - small->pads[1];
    for (int64_t c = 0; c < large->out; c++)
        to[((c * large->in + c % large->in) * large->kernel[0] + top) * large->kernel[1] + left] +=
            scale[c];
}

/* work: out * in * kernel weights, then three times `out`: biases, scales, shifts. false: a batch norm without constants. */
static bool sum_branches(const struct sy_fuse *f, const struct branch *large,
                         const struct branch *small, int64_t n_weights, double *work)
{
    double *bias = work + n_weights, *scale = bias + large->out, *shift = scale + large->out;
    if (!small->weights && !sy_fuse_read_batch_norm(f, small->node, large->out, scale, shift))
        return false;
    for (int64_t i = 0; i < n_weights; i++)
        work[i] = large->weights[i];
    for (int64_t c = 0; c < large->out; c++) {
        bias[c] = large->bias ? large->bias[c] : 0;
        bias[c] += !small->weights ? shift[c] : small->bias ? small->bias[c] : 0;
    }
    if (small->weights)
        add_window(large, small, work);
    else
        add_diagonal(large, small, scale, work);
    return true;
}

static int put_constant(struct sy_fuse *f, const struct sy_node *conv, const char *what,
                        const struct sy_shape *shape, const double *from, int *tensor)
{
    char name[160];
    float *to;
    snprintf(name, sizeof name, "%.120s.%s", conv->name, what);
    SY_TRY(sy_fuse_constant(f, name, shape, tensor, &to));
    for (int64_t i = 0; i < sy_shape_elements(shape, 0); i++)
        to[i] = (float)from[i];
    return SY_OK;
}

/* Add(large, small) -> large. */
static int merge(struct sy_fuse *f, const struct branch *large, const struct branch *small,
                 struct sy_node *add)
{
    struct sy_node *conv = (struct sy_node *)large->node;
    struct sy_shape shape = sy_fuse_tensor(f, conv->inputs[1])->shape,
                    flat = {1, {{large->out, 0}}};
    int64_t n = sy_shape_elements(&shape, 0);
    int weights, bias;
    double *work;
    SY_TRY(sy_graph_alloc((size_t)(n + 3 * large->out), sizeof *work, &work));
    int status = SY_OK;
    if (sum_branches(f, large, small, n, work)) {
        status = put_constant(f, conv, "summed", &shape, work, &weights);
        if (status == SY_OK)
            status = put_constant(f, conv, "summed_bias", &flat, work + n, &bias);
        if (status == SY_OK && conv->n_inputs == 2)
            status = sy_node_add_input(conv, -1);
        if (status == SY_OK) {
            conv->inputs[1] = weights;
            conv->inputs[2] = bias;
            conv->bias_input = 2;
            sy_fuse_absorb(f, conv, add);
        }
    }
    free(work);
    return status;
}

int sy_fuse_branches(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *add = &f->graph->nodes[n];
        struct branch a, b;
        if (add->op != SY_OP_ADD || add->n_inputs != 2 || add->inputs[0] == add->inputs[1] ||
            !read_branch(f, add->inputs[0], &a) || !read_branch(f, add->inputs[1], &b))
            continue;
        if (fits_in(&a, &b))
            SY_TRY(merge(f, &a, &b, add));
        else if (fits_in(&b, &a))
            SY_TRY(merge(f, &b, &a, add));
    }
    return SY_OK;
}

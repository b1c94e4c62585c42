/* Batch normalisation before Relu that no convolution precedes (DenseNet, ResNet v2): becomes one pass over the tensor. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/status.h"

/* A constant vector of these numbers, rounded once. */
static int add_vector(struct sy_fuse *f, const struct sy_node *node, const char *what, int64_t n,
                      const double *from, int *tensor)
{
    struct sy_shape shape = {1, {{n, 0}}};
    char name[160];
    float *to;
    snprintf(name, sizeof name, "%.120s.%s", node->name, what);
    SY_TRY(sy_fuse_constant(f, name, &shape, tensor, &to));
    for (int64_t c = 0; c < n; c++)
        to[c] = (float)from[c];
    return SY_OK;
}

static bool all_finite(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite((float)x[i]))
            return false;
    return true;
}

/* BatchNormalization(x) -> ChannelAffine(x, scale, shift). */
static int become_affine(struct sy_fuse *f, struct sy_node *bn)
{
    const struct sy_tensor *x = sy_fuse_tensor(f, bn->inputs[0]);
    bool fits = x->dtype == SY_DTYPE_F32 && !x->data && x->shape.rank >= 2 && bn->n_outputs == 1 &&
                x->shape.dims[1].per_batch == 0 && x->shape.dims[1].fixed > 0;
    int64_t n = fits ? x->shape.dims[1].fixed : 0;
    int inputs[3] = {bn->inputs[0], -1, -1};
    double *scale;
    if (!fits)
        return SY_OK;
    SY_TRY(sy_graph_alloc((size_t)n * 2, sizeof *scale, &scale));
    int status = SY_OK;
    if (sy_fuse_read_batch_norm(f, bn, n, scale, scale + n) && all_finite(scale, 2 * n)) {
        status = add_vector(f, bn, "scale", n, scale, &inputs[1]);
        if (status == SY_OK)
            status = add_vector(f, bn, "shift", n, scale + n, &inputs[2]);
        if (status == SY_OK)
            status = sy_fuse_become(f, bn, SY_OP_CHANNEL_AFFINE, 3, inputs);
    }
    free(scale);
    return status;
}

/* Relu(ChannelAffine(x)), or Clip -> ChannelAffine(x) with limits. */
static void take_limits(struct sy_fuse *f, struct sy_node *node)
{
    enum sy_activation activation = sy_fuse_activation_of(node);
    if (activation != SY_ACT_RELU && activation != SY_ACT_CLIP)
        return;
    struct sy_node *maker = sy_fuse_inner(f, node->inputs[0], SY_OP_CHANNEL_AFFINE);
    if (!maker || maker->activation != SY_ACT_NONE)
        return;
    maker->activation = activation;
    if (activation == SY_ACT_CLIP) {
        maker->act_alpha = sy_node_float(node, "min", 0);
        maker->act_beta = sy_node_float(node, "max", 0);
    }
    sy_fuse_absorb(f, maker, node);
}

int sy_fuse_channel_affines(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++)
        if (f->graph->nodes[n].op == SY_OP_BATCH_NORM)
            SY_TRY(become_affine(f, &f->graph->nodes[n]));
    for (int n = 0; n < f->graph->n_nodes; n++)
        if (f->graph->nodes[n].op == SY_OP_RELU || f->graph->nodes[n].op == SY_OP_CLIP)
            take_limits(f, &f->graph->nodes[n]);
    return SY_OK;
}

/* Dimensions of 1 that come and go around convolutions: TensorFlow's Conv1D is written as Unsqueeze, Conv, Squeeze, and what follows (bias,
 * normalisation, activation) reads the squeezed form. It moves to the convolution's side, where it is fused; what is left between two convolutions is
 * Squeeze and Unsqueeze, which are nothing together.
 *
 *   Conv -> Squeeze -> Add -> Relu -> Unsqueeze -> Conv     becomes     Conv -> Add -> Relu -> Conv */
#include <stdio.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MOST_BEHIND = 4 }; /* nodes between a convolution and the reshape */

static bool is_one(struct sy_dim dim)
{
    return dim.fixed == 1 && dim.per_batch == 0;
}

/* Whether the shapes are equal but for dimensions of 1, none among the first two (images and channels). */
static bool differ_by_ones(const struct sy_shape *a, const struct sy_shape *b)
{
    int i = 2, k = 2;
    if (a->rank < 3 || b->rank < 3 || !sy_dim_equal(a->dims[0], b->dims[0]) ||
        !sy_dim_equal(a->dims[1], b->dims[1]))
        return false;
    while (i < a->rank || k < b->rank) {
        bool both = i < a->rank && k < b->rank && sy_dim_equal(a->dims[i], b->dims[k]);
        if (both)
            i++, k++;
        else if (i < a->rank && is_one(a->dims[i]))
            i++;
        else if (k < b->rank && is_one(b->dims[k]))
            k++;
        else
            return false;
    }
    return true;
}

static bool is_reshape(const struct sy_node *node)
{
    return node->n_outputs == 1 &&
           (node->op == SY_OP_RESHAPE || node->op == SY_OP_SQUEEZE || node->op == SY_OP_UNSQUEEZE);
}

/* The reshape by ones that makes `tensor`, of float32; NULL: something else does. */
static struct sy_node *thin_reshape(const struct sy_fuse *f, int tensor)
{
    struct sy_node *node =
        tensor >= 0 && f->producer[tensor] >= 0 ? &f->graph->nodes[f->producer[tensor]] : NULL;
    if (!node || !is_reshape(node) || node->inputs[0] < 0)
        return NULL;
    const struct sy_tensor *x = sy_fuse_tensor(f, node->inputs[0]), *y = sy_fuse_tensor(f, tensor);
    return !x->data && x->dtype == SY_DTYPE_F32 && differ_by_ones(&x->shape, &y->shape) ? node
                                                                                        : NULL;
}

/* A scalar, or a value for each channel of a tensor of this rank. */
static bool is_by_channel(const struct sy_fuse *f, int tensor, const struct sy_shape *x)
{
    const struct sy_tensor *c = sy_fuse_tensor(f, tensor);
    int before = x->rank - c->shape.rank;
    if (!c->data || c->dtype != SY_DTYPE_F32 || before < 0)
        return false;
    for (int i = 0; i < c->shape.rank; i++)
        if (!is_one(c->shape.dims[i]) &&
            !(before + i == 1 && sy_dim_equal(c->shape.dims[i], x->dims[1])))
            return false;
    return true;
}

static bool is_pair(enum sy_op op)
{
    return op == SY_OP_ADD || op == SY_OP_SUB || op == SY_OP_MUL || op == SY_OP_DIV;
}

/* The data input of a node that a convolution can fuse; its other inputs are constants by channel. -1: it cannot. */
static int data_input(const struct sy_fuse *f, const struct sy_node *node)
{
    if (node->n_outputs != 1 || node->n_inputs < 1)
        return -1;
    if (node->op == SY_OP_BATCH_NORM) {
        for (int i = 1; i < node->n_inputs; i++)
            if (node->inputs[i] < 0 || !sy_fuse_tensor(f, node->inputs[i])->data)
                return -1;
        return 0;
    }
    if (sy_fuse_activation_of(node) != SY_ACT_NONE || node->op == SY_OP_SWISH ||
        node->op == SY_OP_HARD_SWISH)
        return 0;
    for (int i = 0; is_pair(node->op) && node->n_inputs == 2 && i < 2; i++)
        if (node->inputs[i] >= 0 && node->inputs[1 - i] >= 0 &&
            !sy_fuse_tensor(f, node->inputs[i])->data &&
            is_by_channel(f, node->inputs[1 - i], &sy_fuse_tensor(f, node->inputs[i])->shape))
            return i;
    return -1;
}

/* Whether a convolution makes the tensor, or what it is to take in behind one. */
static bool is_behind_conv(const struct sy_fuse *f, int tensor)
{
    for (int i = 0; i <= MOST_BEHIND; i++) {
        if (tensor < 0 || f->producer[tensor] < 0 || f->uses[tensor] != 1)
            return false;
        const struct sy_node *node = &f->graph->nodes[f->producer[tensor]];
        if (node->op == SY_OP_CONV)
            return true;
        int input = data_input(f, node);
        tensor = input < 0 ? -1 : node->inputs[input];
    }
    return false;
}

/* The constant with its channels where a tensor of `rank` dimensions has them. */
static int reshape_constant(struct sy_fuse *f, int rank, int *tensor)
{
    const struct sy_tensor *c = sy_fuse_tensor(f, *tensor);
    struct sy_shape shape = {.rank = rank};
    float *to;
    if (c->data_bytes == sizeof(float))
        return SY_OK;
    for (int i = 0; i < rank; i++)
        shape.dims[i].fixed = i == 1 ? (int64_t)(c->data_bytes / sizeof(float)) : 1;
    int made;
    char name[160];
    snprintf(name, sizeof name, "%.120s.thin", c->name);
    SY_TRY(sy_fuse_constant(f, name, &shape, &made, &to));
    c = sy_fuse_tensor(f, *tensor);
    memcpy(to, c->data, c->data_bytes);
    *tensor = made;
    return SY_OK;
}

/* node(reshape(x)) -> reshape(node(x)): they change places, and the tensor between them has x's shape. */
static int change_places(struct sy_fuse *f, struct sy_node *reshape, struct sy_node *node,
                         int input)
{
    int between = node->inputs[input], out = node->outputs[0], x = reshape->inputs[0];
    struct sy_shape shape = sy_fuse_tensor(f, x)->shape;
    if (is_pair(node->op))
        SY_TRY(reshape_constant(f, shape.rank, &node->inputs[1 - input]));
    node->inputs[input] = x;
    node->outputs[0] = between;
    reshape->inputs[0] = between;
    reshape->outputs[0] = out;
    reshape->op = SY_OP_RESHAPE;
    f->graph->tensors[between].shape = shape;
    f->graph->tensors[between].dtype = SY_DTYPE_F32;
    struct sy_node first = *reshape;
    *reshape = *node;
    *node = first;
    f->producer[between] = (int)(reshape - f->graph->nodes);
    f->producer[out] = (int)(node - f->graph->nodes);
    return SY_OK;
}

int sy_fuse_thin_reshapes(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        int input = data_input(f, node);
        struct sy_node *reshape = input < 0 ? NULL : thin_reshape(f, node->inputs[input]);
        if (!reshape || f->uses[node->inputs[input]] != 1 || !is_behind_conv(f, reshape->inputs[0]))
            continue;
        SY_TRY(change_places(f, reshape, node, input));
    }
    return SY_OK;
}

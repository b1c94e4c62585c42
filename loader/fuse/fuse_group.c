/* Group normalisation as PyTorch's exporter takes it apart.
 *
 *   x -> Reshape [N, groups, -1] -> InstanceNormalization (1, 0) -> Reshape [as x] -> Mul gamma -> Add beta     becomes     GroupNormalization(x, gamma, beta)
 */
#include <stdio.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/status.h"

struct group_norm {
    int x, gamma, beta;
    int64_t groups, channels;
    float epsilon;
};

/* For a node with two inputs: finds the constant with one number for each of x's channels, and the other input. */
static bool split_by_channel(const struct sy_fuse *f, const struct sy_node *node, int *constant,
                             int *other)
{
    const struct sy_shape *y = &sy_fuse_tensor(f, node->outputs[0])->shape;
    for (int i = 0; i < 2 && node->n_inputs == 2 && y->rank >= 3; i++) {
        const struct sy_tensor *c = sy_fuse_tensor(f, node->inputs[i]);
        int before = y->rank - c->shape.rank;
        bool fits = c->data && c->dtype == SY_DTYPE_F32 && (before == 0 || before == 1);
        for (int d = before; fits && d < y->rank; d++)
            fits = c->shape.dims[d - before].fixed == (d == 1 ? y->dims[1].fixed : 1);
        if (fits && !sy_fuse_tensor(f, node->inputs[1 - i])->data) {
            *constant = node->inputs[i];
            *other = node->inputs[1 - i];
            return true;
        }
    }
    return false;
}

static bool is_all(const struct sy_fuse *f, int tensor, int64_t n, float value)
{
    const struct sy_tensor *t = tensor < 0 ? NULL : sy_fuse_tensor(f, tensor);
    const float *data = t ? t->data : NULL;
    if (!data || t->dtype != SY_DTYPE_F32 || t->data_bytes != (size_t)n * sizeof(float))
        return false;
    for (int64_t i = 0; i < n; i++)
        if (data[i] != value)
            return false;
    return true;
}

/* `tensor` = x normalised by groups */
static bool is_normalised(const struct sy_fuse *f, int tensor, struct group_norm *out)
{
    const struct sy_node *back = sy_fuse_inner(f, tensor, SY_OP_RESHAPE);
    const struct sy_node *norm =
        back ? sy_fuse_inner(f, back->inputs[0], SY_OP_INSTANCE_NORM) : NULL;
    const struct sy_node *into = norm ? sy_fuse_inner(f, norm->inputs[0], SY_OP_RESHAPE) : NULL;
    if (!into || norm->n_inputs != 3)
        return false;
    const struct sy_tensor *x = sy_fuse_tensor(f, into->inputs[0]),
                           *grouped = sy_fuse_tensor(f, norm->inputs[0]);
    const struct sy_dim channels = x->shape.rank > 1 ? x->shape.dims[1] : (struct sy_dim){0, 0},
                        groups = grouped->shape.dims[1];
    *out = (struct group_norm){.x = into->inputs[0],
                               .groups = groups.fixed,
                               .channels = channels.fixed,
                               .epsilon = sy_node_float(norm, "epsilon", 1e-5f)};
    return x->dtype == SY_DTYPE_F32 && !x->data &&
           sy_shape_equal(&x->shape, &sy_fuse_tensor(f, tensor)->shape) &&
           sy_dim_equal(x->shape.dims[0], grouped->shape.dims[0]) && sy_dim_is_number(channels) &&
           sy_dim_is_number(groups) && groups.fixed > 0 && channels.fixed % groups.fixed == 0 &&
           is_all(f, norm->inputs[1], groups.fixed, 1) &&
           is_all(f, norm->inputs[2], groups.fixed, 0);
}

/* The constant as a vector. */
static int flatten(struct sy_fuse *f, int64_t n, int *tensor)
{
    struct sy_shape shape = {1, {{n, 0}}};
    char name[160];
    float *to;
    int flat;
    snprintf(name, sizeof name, "%.120s.flat%d", sy_fuse_tensor(f, *tensor)->name, *tensor);
    SY_TRY(sy_fuse_constant(f, name, &shape, &flat, &to));
    memcpy(to, sy_fuse_tensor(f, *tensor)->data, (size_t)n * sizeof *to);
    *tensor = flat;
    return SY_OK;
}

int sy_fuse_group_norms(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *add = &f->graph->nodes[n];
        struct group_norm norm;
        int beta, gamma, scaled, normalised;
        if (add->op != SY_OP_ADD || add->n_outputs != 1 ||
            !split_by_channel(f, add, &beta, &scaled))
            continue;
        const struct sy_node *mul = sy_fuse_inner(f, scaled, SY_OP_MUL);
        if (!mul || !split_by_channel(f, mul, &gamma, &normalised) ||
            !is_normalised(f, normalised, &norm) ||
            !sy_shape_equal(&sy_fuse_tensor(f, norm.x)->shape,
                            &sy_fuse_tensor(f, add->outputs[0])->shape)) /* nothing is broadcast */
            continue;
        SY_TRY(flatten(f, norm.channels, &gamma));
        SY_TRY(flatten(f, norm.channels, &beta));
        SY_TRY(sy_fuse_become(f, add, SY_OP_GROUP_NORM, 3, (const int[]){norm.x, gamma, beta}));
        SY_TRY(sy_node_set_int(add, "num_groups", norm.groups));
        SY_TRY(sy_node_set_float(add, "epsilon", norm.epsilon));
    }
    return SY_OK;
}

/* Softmax, normalizations over rows and groups, reductions. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"

/* ---- Softmax, LogSoftmax ------------------------------------------------------------------------------ */

static void describe_softmax(const struct sy_trainer *t, const struct sy_node *node,
                             struct sy_math_softmax *s)
{
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, node->outputs[0], dims);
    int axis = (int)sy_node_int(node, "axis", -1);
    bool is_flat = sy_node_int(node, "flat", 0) != 0;
    axis += axis < 0 ? rank : 0;
    *s = (struct sy_math_softmax){
        .outer = 1, .extent = 1, .inner = 1, .logarithm = node->op == SY_OP_LOG_SOFTMAX};
    for (int i = 0; i < rank; i++)
        *(i < axis ? &s->outer : i == axis || is_flat ? &s->extent : &s->inner) *= dims[i];
}

/* args: x, y */
static int run_softmax(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->softmax(t->math, &step->softmax, sy_cutr_pointer(t, step->args[0]),
                           sy_cutr_pointer(t, step->args[1]));
}

/* args: y, dy, dx */
static int run_softmax_gradient(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->train->softmax_gradient(
        t->math, &step->softmax, sy_cutr_pointer(t, step->args[0]),
        sy_cutr_pointer(t, step->args[1]), sy_cutr_pointer(t, step->args[2]));
}

int sy_cutr_softmax_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_step *step;
    int x, y;
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_PLAIN, &x));
    SY_TRY(sy_cutr_result(t, node->outputs[0], false, &y));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_FORWARD, node->name, run_softmax, (int[]){x, y}, 2, &step));
    describe_softmax(t, node, &step->softmax);
    return SY_OK;
}

int sy_cutr_softmax_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_step *step;
    int dx, dy, y = t->tensors[node->outputs[0]].value;
    SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, false, &dy));
    SY_TRY(sy_cutr_diff_begin(t, node->inputs[0], false, &dx));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_softmax_gradient, (int[]){y, dy, dx},
                            3, &step));
    describe_softmax(t, node, &step->softmax);
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

/* ---- LayerNormalization, RMSNormalization, InstanceNormalization, GroupNormalization -------------------
 *
 * Seen as [batch, groups, members, plane]: each (batch, group) is a row that is normalized by its own mean and deviation; channel
 * (group, member) has a scale. Layer norm: one group, plane 1. */
struct groups {
    struct sy_math_rows rows;
    int64_t dims[4];
    int64_t scale_strides[4]; /* of a channel's scale; 0 in batch and plane */
};

static int describe_groups(const struct sy_trainer *t, const struct sy_node *node, struct groups *g)
{
    int64_t x[SY_MAX_RANK], groups = 1, members = 1, plane = 1;
    int rank = sy_cutr_dims(t, node->inputs[0], x);
    SY_TRY(rank);
    bool is_layer = node->op == SY_OP_LAYER_NORM || node->op == SY_OP_RMS_NORM;
    int64_t axis = sy_node_int(node, "axis", -1);
    for (int64_t i = axis < 0 ? axis + rank : axis; is_layer && i < rank; i++)
        members *= x[i];
    if (!is_layer) {
        for (int i = 2; i < rank; i++)
            plane *= x[i];
        groups = node->op == SY_OP_GROUP_NORM ? sy_node_int(node, "num_groups", 1) : x[1];
        if (groups < 1 || x[1] % groups)
            return sy_cutr_refuse(node, "channels and groups do not fit together");
        members = x[1] / groups;
    }
    int64_t columns = members * plane, rows = sy_cutr_elements(t, node->inputs[0]) / columns;
    int64_t n = node->n_inputs > 1 ? sy_cutr_elements(t, node->inputs[1]) : 0;
    bool by_group = n == groups && members > 1;
    if ((n != groups * members && !by_group) ||
        (sy_node_input(node, 2) >= 0 && sy_cutr_elements(t, node->inputs[2]) != n))
        return sy_cutr_refuse(node, "a scale or bias that does not fit the channels");
    *g = (struct groups){
        .rows = {rows, columns, sy_node_float(node, "epsilon", 1e-5f), node->op == SY_OP_RMS_NORM},
        .dims = {rows / groups, groups, members, plane},
        .scale_strides = {0, by_group ? 1 : members, by_group ? 0 : 1, 0}};
    return SY_OK;
}

/* How an operand is read at each element: by element, by row, by channel. */
enum { WHOLE, OF_ROW, OF_CHANNEL };

static int add_chain(struct sy_trainer *t, unsigned when, const struct sy_node *node,
                     const struct groups *g, struct sy_math_chain *chain, const int *kinds,
                     const int *inputs, int to)
{
    const int64_t *d = g->dims;
    chain->rank = 4;
    memcpy(chain->dims, d, sizeof g->dims);
    for (int i = 0; i < chain->n_inputs; i++) {
        int64_t whole[4] = {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}, row[4] = {d[1], 1, 0, 0};
        memcpy(chain->in_strides[i],
               kinds[i] == WHOLE    ? whole
               : kinds[i] == OF_ROW ? row
                                    : g->scale_strides,
               sizeof whole);
    }
    return sy_cutr_strided_chain(t, when, node->name, chain, inputs, to);
}

/* args: x, mean, rate */
static int run_moments(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->train->row_moments(t->math, &step->rows, sy_cutr_pointer(t, step->args[0]),
                                      sy_cutr_pointer(t, step->args[1]),
                                      sy_cutr_pointer(t, step->args[2]));
}

/* args: x, g, mean, rate, dx */
static int run_row_gradient(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    const int *a = step->args;
    return t->ops->train->row_gradient(t->math, &step->rows, sy_cutr_pointer(t, a[0]),
                                       sy_cutr_pointer(t, a[1]), sy_cutr_pointer(t, a[2]),
                                       sy_cutr_pointer(t, a[3]), sy_cutr_pointer(t, a[4]));
}

int sy_cutr_rows_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_node *record = &t->nodes[n];
    struct groups g;
    struct sy_cutr_step *step;
    int scale, shift = -1, y, x;
    SY_TRY(describe_groups(t, node, &g));
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_PLAIN, &x));
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[1], SY_CUTR_PLAIN, &scale));
    if (sy_node_input(node, 2) >= 0)
        SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[2], SY_CUTR_PLAIN, &shift));
    SY_TRY(sy_cutr_value_new(t, 1, &g.rows.rows, false, false, &record->moments));
    SY_TRY(sy_cutr_value_new(t, 1, &g.rows.rows, false, false, &record->rate));
    SY_TRY(sy_cutr_result(t, node->outputs[0], false, &y));
    record->source = x;
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_FORWARD, node->name, run_moments,
                            (int[]){x, record->moments, record->rate}, 3, &step));
    step->n_results = 2;
    step->rows = g.rows;
    struct sy_math_chain chain = {.n_inputs = shift >= 0 ? 5 : 4,
                                  .n_steps = shift >= 0 ? 5 : 4,
                                  .steps = {{SY_CHAIN_LOAD, 0, 0, 0},
                                            {SY_CHAIN_SUB, 1, 0, 0},
                                            {SY_CHAIN_MUL, 2, 0, 0},
                                            {SY_CHAIN_MUL, 3, 0, 0},
                                            {SY_CHAIN_ADD, 4, 0, 0}}};
    return add_chain(t, SY_CUTR_FORWARD, node, &g, &chain,
                     (int[]){WHOLE, OF_ROW, OF_ROW, OF_CHANNEL, OF_CHANNEL},
                     (int[]){x, record->moments, record->rate, scale, shift}, y);
}

/* The sum of `full` over all but the channel (or group) of the scale. */
static int sum_channels(struct sy_trainer *t, const struct sy_node *node, const struct groups *g,
                        int tensor, int full)
{
    bool reduced[4];
    int to;
    for (int i = 0; i < 4; i++)
        reduced[i] = g->scale_strides[i] == 0;
    SY_TRY(sy_cutr_diff_begin(t, tensor, false, &to));
    SY_TRY(sy_cutr_sum(t, SY_CUTR_TRAIN, node->name, 4, g->dims, reduced, full, to));
    return sy_cutr_diff_end(t, tensor, to);
}

static int scales_backward(struct sy_trainer *t, int n, const struct groups *g, int dy)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_cutr_node *record = &t->nodes[n];
    int64_t count = g->rows.rows * g->rows.columns;
    int shift = node->n_inputs > 2 ? node->inputs[2] : -1, full;
    if (sy_cutr_needs(t, shift))
        SY_TRY(sum_channels(t, node, g, shift, dy));
    if (!sy_cutr_needs(t, node->inputs[1]))
        return SY_OK;
    struct sy_math_chain chain = {.n_inputs = 4,
                                  .n_steps = 4,
                                  .steps = {{SY_CHAIN_LOAD, 0, 0, 0},
                                            {SY_CHAIN_SUB, 1, 0, 0},
                                            {SY_CHAIN_MUL, 2, 0, 0},
                                            {SY_CHAIN_MUL, 3, 0, 0}}};
    SY_TRY(sy_cutr_value_new(t, 1, &count, false, false, &full));
    SY_TRY(add_chain(t, SY_CUTR_TRAIN, node, g, &chain, (int[]){WHOLE, OF_ROW, OF_ROW, WHOLE},
                     (int[]){record->source, record->moments, record->rate, dy}, full));
    return sum_channels(t, node, g, node->inputs[1], full);
}

int sy_cutr_rows_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_cutr_node *record = &t->nodes[n];
    struct groups g;
    struct sy_cutr_step *step;
    int dy, dx, scale;
    SY_TRY(describe_groups(t, node, &g));
    SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, false, &dy));
    SY_TRY(scales_backward(t, n, &g, dy));
    if (!sy_cutr_needs(t, node->inputs[0]))
        return SY_OK;
    struct sy_math_chain chain = {
        .n_inputs = 2, .n_steps = 2, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}, {SY_CHAIN_MUL, 1, 0, 0}}};
    SY_TRY(sy_cutr_operand(t, SY_CUTR_TRAIN, node->inputs[1], SY_CUTR_PLAIN, &scale));
    SY_TRY(sy_cutr_diff_begin(t, node->inputs[0], false, &dx));
    SY_TRY(add_chain(t, SY_CUTR_TRAIN, node, &g, &chain, (int[]){WHOLE, OF_CHANNEL},
                     (int[]){dy, scale}, dx));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_row_gradient,
                            (int[]){record->source, dx, record->moments, record->rate, dx}, 5,
                            &step));
    step->rows = g.rows;
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

/* ---- reductions --------------------------------------------------------------------------------------- */

static int reduced_of(const struct sy_trainer *t, const struct sy_node *node, int64_t *dims,
                      bool *reduced)
{
    int rank = sy_cutr_dims(t, node->inputs[0], dims);
    SY_TRY(rank);
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    for (int i = 0; i < rank; i++)
        reduced[i] = !axes;
    for (int i = 0; axes && i < axes->n; i++)
        reduced[axes->ints[i] + (axes->ints[i] < 0 ? rank : 0)] = true;
    return rank;
}

static bool is_sum(const struct sy_node *node)
{
    return node->op == SY_OP_REDUCE_SUM || node->op == SY_OP_REDUCE_MEAN;
}

/* 1 / the number of elements in a mean; 1 of a sum. */
static float share_of(const struct sy_node *node, int rank, const int64_t *dims,
                      const bool *reduced)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= reduced[i] ? dims[i] : 1;
    return node->op == SY_OP_REDUCE_MEAN ? 1.0f / (float)n : 1.0f;
}

static int describe_reduction(const struct sy_trainer *t, const struct sy_node *node,
                              struct sy_train_reduction *f)
{
    int64_t dims[SY_MAX_RANK], stride = 1;
    bool reduced[SY_MAX_RANK];
    int rank = reduced_of(t, node, dims, reduced);
    SY_TRY(rank);
    *f = (struct sy_train_reduction){.op = node->op, .n_out = 1, .n_each = 1};
    for (int i = rank - 1; i >= 0; i--) {
        int *n = reduced[i] ? &f->n_reduced : &f->n_kept;
        (reduced[i] ? f->reduced : f->kept)[*n] = dims[i];
        (reduced[i] ? f->reduced_strides : f->kept_strides)[(*n)++] = stride;
        *(reduced[i] ? &f->n_each : &f->n_out) *= dims[i];
        stride *= dims[i];
    }
    return SY_OK;
}

/* args: x, y */
static int run_reduction(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->train->reduction(t->math, &step->reduction, sy_cutr_pointer(t, step->args[0]),
                                    sy_cutr_pointer(t, step->args[1]));
}

/* args: x, y, dy, dx */
static int run_fold_gradient(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->train->reduction_gradient(
        t->math, &step->reduction, sy_cutr_pointer(t, step->args[0]),
        sy_cutr_pointer(t, step->args[1]), sy_cutr_pointer(t, step->args[2]),
        sy_cutr_pointer(t, step->args[3]));
}

int sy_cutr_reduce_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int64_t dims[SY_MAX_RANK];
    bool reduced[SY_MAX_RANK];
    struct sy_cutr_step *step;
    int rank = reduced_of(t, node, dims, reduced), x, y;
    SY_TRY(rank);
    if (t->graph->tensors[node->inputs[0]].dtype != SY_DTYPE_F32)
        return sy_cutr_refuse(node, "of a type other than float32");
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_PLAIN, &x));
    SY_TRY(sy_cutr_result(t, node->outputs[0], false, &y));
    if (!is_sum(node)) {
        SY_TRY(sy_cutr_step_new(t, SY_CUTR_FORWARD, node->name, run_reduction, (int[]){x, y}, 2,
                                &step));
        return describe_reduction(t, node, &step->reduction);
    }
    SY_TRY(sy_cutr_sum(t, SY_CUTR_FORWARD, node->name, rank, dims, reduced, x, y));
    if (node->op == SY_OP_REDUCE_SUM)
        return SY_OK;
    struct sy_math_chain scale = {
        .n_inputs = 1,
        .n_steps = 2,
        .steps = {{SY_CHAIN_LOAD, 0, 0, 0},
                  {SY_CHAIN_LINEAR, 0, share_of(node, rank, dims, reduced), 0}}};
    return sy_cutr_chain(t, SY_CUTR_FORWARD, node->name, &scale, &y, (bool[]){false}, 1, y);
}

static int fold_backward(struct sy_trainer *t, const struct sy_node *node, int dy)
{
    struct sy_cutr_step *step;
    int x, dx, y = t->tensors[node->outputs[0]].value;
    SY_TRY(sy_cutr_operand(t, SY_CUTR_TRAIN, node->inputs[0], SY_CUTR_PLAIN, &x));
    SY_TRY(sy_cutr_diff_begin(t, node->inputs[0], false, &dx));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_fold_gradient, (int[]){x, y, dy, dx},
                            4, &step));
    SY_TRY(describe_reduction(t, node, &step->reduction));
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

int sy_cutr_reduce_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    bool reduced[SY_MAX_RANK];
    int64_t stride = 1;
    struct sy_math_chain chain = {.n_inputs = 1,
                                  .n_steps = 2,
                                  .steps = {{SY_CHAIN_LOAD, 0, 0, 0}, {SY_CHAIN_LINEAR, 0, 1, 0}}};
    int dy, dx;
    SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, false, &dy));
    if (!is_sum(node))
        return fold_backward(t, node, dy);
    chain.rank = reduced_of(t, node, chain.dims, reduced);
    SY_TRY(chain.rank);
    for (int i = chain.rank - 1; i >= 0; i--) {
        chain.in_strides[0][i] = reduced[i] ? 0 : stride;
        stride *= reduced[i] ? 1 : chain.dims[i];
    }
    chain.steps[1].alpha = share_of(node, chain.rank, chain.dims, reduced);
    SY_TRY(sy_cutr_diff_begin(t, node->inputs[0], false, &dx));
    SY_TRY(sy_cutr_strided_chain(t, SY_CUTR_TRAIN, node->name, &chain, &dy, dx));
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

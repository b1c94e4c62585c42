#include "tests/nets/naive_ops.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors ------------------------------------------------------------------------------------ */

int64_t naive_attr_at(const struct sy_node *node, const char *name, int i, int64_t otherwise)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    return attr && i < attr->n ? attr->ints[i] : otherwise;
}

double naive_load(enum sy_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case SY_DTYPE_F32:
        return ((const float *)data)[i];
    case SY_DTYPE_I64:
        return (double)((const int64_t *)data)[i];
    case SY_DTYPE_I32:
        return ((const int32_t *)data)[i];
    case SY_DTYPE_BOOL:
    case SY_DTYPE_U8:
        return ((const uint8_t *)data)[i];
    default:
        assert(!"a type that the yardstick does not know");
        return 0;
    }
}

void naive_graph_set(struct naive_graph *net, int tensor, const void *data)
{
    for (int64_t i = 0; i < naive_graph_elements(net, tensor); i++)
        net->values[tensor][i] = naive_load(net->graph->tensors[tensor].dtype, data, i);
}

static struct naive_size size_at(const struct sy_shape *shape, int64_t batch)
{
    struct naive_size size = {.rank = shape->rank, .elements = sy_shape_elements(shape, batch)};
    for (int d = 0; d < shape->rank; d++)
        size.dims[d] = sy_dim_at(shape->dims[d], batch);
    return size;
}

void naive_graph_init(struct naive_graph *net, const struct sy_graph *graph, int64_t batch)
{
    *net = (struct naive_graph){.graph = graph, .batch = batch};
    net->values = calloc((size_t)graph->n_tensors, sizeof *net->values);
    net->sizes = calloc((size_t)graph->n_tensors, sizeof *net->sizes);
    assert(net->values && net->sizes);
    for (int t = 0; t < graph->n_tensors; t++) {
        net->sizes[t] = size_at(&graph->tensors[t].shape, batch);
        net->values[t] = calloc((size_t)naive_graph_elements(net, t) + 1, sizeof(double));
        assert(net->values[t]);
        if (graph->tensors[t].data)
            naive_graph_set(net, t, graph->tensors[t].data);
    }
}

void naive_graph_finish(struct naive_graph *net)
{
    for (int t = 0; t < net->graph->n_tensors; t++)
        free(net->values[t]);
    free(net->values);
    free(net->sizes);
}

/* The element of `tensor` that numpy's broadcasting puts at `index` of a tensor of rank `rank`. */
static double broadcast_at(const struct naive_graph *net, int tensor, int rank,
                           const int64_t *index)
{
    int64_t k = 0, skip = rank - naive_rank(net, tensor);
    for (int d = 0; d < naive_rank(net, tensor); d++) {
        int64_t extent = naive_dim(net, tensor, d);
        k = k * extent + (extent == 1 ? 0 : index[skip + d]);
    }
    return net->values[tensor][k];
}

/* ---- elementwise -------------------------------------------------------------------------------- */

static double unary(const struct sy_node *node, double x)
{
    const struct sy_attr *form;
    switch (node->op) {
    case SY_OP_RELU:
        return x > 0 ? x : 0;
    case SY_OP_LEAKY_RELU:
        return x > 0 ? x : x * sy_node_float(node, "alpha", 0.01f);
    case SY_OP_SIGMOID:
        return 1 / (1 + exp(-x));
    case SY_OP_TANH:
        return tanh(x);
    case SY_OP_ERF:
        return erf(x);
    case SY_OP_CLIP:
        return fmin(fmax(x, sy_node_float(node, "min", -HUGE_VALF)),
                    sy_node_float(node, "max", HUGE_VALF));
    case SY_OP_HARD_SIGMOID:
        return fmax(
            0, fmin(1, sy_node_float(node, "alpha", 0.2f) * x + sy_node_float(node, "beta", 0.5f)));
    case SY_OP_HARD_SWISH:
        return x * fmax(0, fmin(1, x / 6 + 0.5));
    case SY_OP_ELU:
        return x > 0 ? x : sy_node_float(node, "alpha", 1) * (exp(x) - 1);
    case SY_OP_EXP:
        return exp(x);
    case SY_OP_LOG:
        return log(x);
    case SY_OP_SQRT:
        return sqrt(x);
    case SY_OP_NEG:
        return -x;
    case SY_OP_ABS:
        return fabs(x);
    case SY_OP_RECIPROCAL:
        return 1 / x;
    case SY_OP_FLOOR:
        return floor(x);
    case SY_OP_CEIL:
        return ceil(x);
    case SY_OP_ROUND:
        return nearbyint(x);
    case SY_OP_THRESHOLDED_RELU:
        return x > sy_node_float(node, "alpha", 1) ? x : 0;
    case SY_OP_IS_NAN:
        return isnan(x);
    case SY_OP_GELU:
        form = sy_node_attr(node, "approximate");
        return form && !strcmp(form->s, "tanh")
                   ? 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)))
                   : 0.5 * x * (1 + erf(x / sqrt(2)));
    default:
        return x; /* Identity, Reshape, Expand ... */
    }
}

static double binary(enum sy_op op, bool integers, double a, double b)
{
    switch (op) {
    case SY_OP_ADD:
    case SY_OP_SUM:
        return a + b;
    case SY_OP_SUB:
        return a - b;
    case SY_OP_MUL:
        return a * b;
    case SY_OP_DIV:
        return integers ? trunc(a / b) : a / b;
    case SY_OP_POW:
        return pow(a, b);
    case SY_OP_MIN:
        return fmin(a, b);
    case SY_OP_MAX:
        return fmax(a, b);
    case SY_OP_EQUAL:
        return a == b;
    case SY_OP_LESS:
        return a < b;
    case SY_OP_LESS_OR_EQUAL:
        return a <= b;
    case SY_OP_GREATER:
        return a > b;
    case SY_OP_GREATER_OR_EQUAL:
        return a >= b;
    case SY_OP_PRELU:
        return a < 0 ? a * b : a;
    default:
        assert(!"not an operator of two inputs");
        return 0;
    }
}

/* One input and more, broadcast to the output. */
static void elementwise(struct naive_graph *net, const struct sy_node *node)
{
    int out = node->outputs[0], rank = naive_rank(net, out);
    bool integers = net->graph->tensors[node->inputs[0]].dtype != SY_DTYPE_F32;
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t index[SY_MAX_RANK];
        naive_unravel(net, out, k, index);
        double value = broadcast_at(net, node->inputs[0], rank, index);
        if (node->op == SY_OP_WHERE)
            value = broadcast_at(net, node->inputs[value != 0 ? 1 : 2], rank, index);
        else if (node->n_inputs == 1)
            value = unary(node, value);
        else
            for (int i = 1; i < node->n_inputs; i++)
                value = binary(node->op, integers, value,
                               broadcast_at(net, node->inputs[i], rank, index));
        net->values[out][k] = value;
    }
}

static void cast(struct naive_graph *net, const struct sy_node *node)
{
    int out = node->outputs[0];
    enum sy_dtype to = net->graph->tensors[out].dtype;
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        double x = net->values[node->inputs[0]][k];
        net->values[out][k] = to == SY_DTYPE_F32    ? (double)(float)x
                              : to == SY_DTYPE_BOOL ? x != 0
                                                    : trunc(x);
    }
}

/* Same elements in the same order. */
static void view(struct naive_graph *net, const struct sy_node *node)
{
    memcpy(net->values[node->outputs[0]], net->values[node->inputs[0]],
           (size_t)naive_graph_elements(net, node->outputs[0]) * sizeof(double));
}

static void expand(struct naive_graph *net, const struct sy_node *node)
{
    int out = node->outputs[0];
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t index[SY_MAX_RANK];
        naive_unravel(net, out, k, index);
        net->values[out][k] = broadcast_at(net, node->inputs[0], naive_rank(net, out), index);
    }
}

/* ---- products ----------------------------------------------------------------------------------- */

static void gemm(struct naive_graph *net, const struct sy_node *node)
{
    int a = node->inputs[0], b = node->inputs[1], out = node->outputs[0];
    int64_t ta = sy_node_int(node, "transA", 0), tb = sy_node_int(node, "transB", 0);
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t index[SY_MAX_RANK];
        double sum = 0;
        naive_unravel(net, out, k, index);
        for (int64_t i = 0; i < naive_dim(net, a, ta ? 0 : 1); i++) {
            int64_t ai[2] = {ta ? i : index[0], ta ? index[0] : i};
            int64_t bi[2] = {tb ? index[1] : i, tb ? i : index[1]};
            sum +=
                net->values[a][naive_ravel(net, a, ai)] * net->values[b][naive_ravel(net, b, bi)];
        }
        sum *= sy_node_float(node, "alpha", 1);
        if (node->n_inputs > 2 && node->inputs[2] >= 0)
            sum += sy_node_float(node, "beta", 1) * broadcast_at(net, node->inputs[2], 2, index);
        net->values[out][k] = sum;
    }
}

/* Two dimensions and more on both sides. */
static void matmul(struct naive_graph *net, const struct sy_node *node)
{
    int a = node->inputs[0], b = node->inputs[1], out = node->outputs[0],
        rank = naive_rank(net, out);
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t ai[SY_MAX_RANK], bi[SY_MAX_RANK];
        double sum = 0;
        naive_unravel(net, out, k, ai);
        memcpy(bi, ai, sizeof bi);
        for (int64_t i = 0; i < naive_dim(net, a, naive_rank(net, a) - 1); i++) {
            ai[rank - 1] = bi[rank - 2] = i;
            sum += broadcast_at(net, a, rank, ai) * broadcast_at(net, b, rank, bi);
        }
        net->values[out][k] = sum;
    }
}

/* ---- moves: where each element of the output comes from ----------------------------------------- */

static void transpose(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], out = node->outputs[0], rank = naive_rank(net, x);
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t index[SY_MAX_RANK], from[SY_MAX_RANK];
        naive_unravel(net, out, k, index);
        for (int d = 0; d < rank; d++)
            from[naive_attr_at(node, "perm", d, rank - 1 - d)] = index[d];
        net->values[out][k] = net->values[x][naive_ravel(net, x, from)];
    }
}

static void slice(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], out = node->outputs[0];
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t index[SY_MAX_RANK];
        naive_unravel(net, out, k, index);
        for (int d = 0; d < naive_rank(net, x); d++)
            index[d] =
                naive_attr_at(node, "starts", d, 0) + index[d] * naive_attr_at(node, "steps", d, 1);
        net->values[out][k] = net->values[x][naive_ravel(net, x, index)];
    }
}

static void pad(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], out = node->outputs[0];
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t index[SY_MAX_RANK];
        bool inside = true;
        naive_unravel(net, out, k, index);
        for (int d = 0; d < naive_rank(net, x); d++) {
            index[d] -= naive_attr_at(node, "pads", d, 0);
            inside = inside && index[d] >= 0 && index[d] < naive_dim(net, x, d);
        }
        net->values[out][k] =
            inside ? net->values[x][naive_ravel(net, x, index)] : sy_node_float(node, "value", 0);
    }
}

static void gather(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], indices = node->inputs[1], out = node->outputs[0];
    int axis = (int)sy_node_int(node, "axis", 0), n = naive_rank(net, indices);
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t index[2 * SY_MAX_RANK], from[SY_MAX_RANK];
        naive_unravel(net, out, k, index);
        for (int d = 0; d < naive_rank(net, x); d++)
            from[d] = d < axis ? index[d] : d > axis ? index[d + n - 1] : 0;
        from[axis] = (int64_t)net->values[indices][naive_ravel(net, indices, index + axis)];
        from[axis] += from[axis] < 0 ? naive_dim(net, x, axis) : 0;
        net->values[out][k] = net->values[x][naive_ravel(net, x, from)];
    }
}

/* Concat: `whole` is the output; Split: it is the input. */
static void copy_part(struct naive_graph *net, int part, int whole, int axis, int64_t at,
                      bool to_whole)
{
    for (int64_t k = 0; k < naive_graph_elements(net, part); k++) {
        int64_t index[SY_MAX_RANK];
        naive_unravel(net, part, k, index);
        index[axis] += at;
        double *there = &net->values[whole][naive_ravel(net, whole, index)];
        if (to_whole)
            *there = net->values[part][k];
        else
            net->values[part][k] = *there;
    }
}

static void concat_or_split(struct naive_graph *net, const struct sy_node *node)
{
    bool concat = node->op == SY_OP_CONCAT;
    int whole = concat ? node->outputs[0] : node->inputs[0];
    int axis = (int)sy_node_int(node, "axis", 0), n = concat ? node->n_inputs : node->n_outputs;
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        int part = concat ? node->inputs[i] : node->outputs[i];
        copy_part(net, part, whole, axis, at, concat);
        at += naive_dim(net, part, axis);
    }
}

/* ---- all of them -------------------------------------------------------------------------------- */

typedef void (*naive_op)(struct naive_graph *net, const struct sy_node *node);

static naive_op op_of(enum sy_op op)
{
    static const struct {
        enum sy_op op;
        naive_op run;
    } table[] = {{SY_OP_CONV, naive_conv},
                 {SY_OP_MAX_POOL, naive_pool},
                 {SY_OP_AVERAGE_POOL, naive_pool},
                 {SY_OP_GLOBAL_AVERAGE_POOL, naive_pool},
                 {SY_OP_GLOBAL_MAX_POOL, naive_pool},
                 {SY_OP_GEMM, gemm},
                 {SY_OP_MATMUL, matmul},
                 {SY_OP_SOFTMAX, naive_softmax},
                 {SY_OP_LOG_SOFTMAX, naive_softmax},
                 {SY_OP_LAYER_NORM, naive_layer_norm},
                 {SY_OP_INSTANCE_NORM, naive_group_norm},
                 {SY_OP_GROUP_NORM, naive_group_norm},
                 {SY_OP_BATCH_NORM, naive_batch_norm},
                 {SY_OP_CONV_TRANSPOSE, naive_conv_transpose},
                 {SY_OP_ROI_ALIGN, naive_roi_align},
                 {SY_OP_GRID_SAMPLE, naive_grid_sample},
                 {SY_OP_MEAN_VARIANCE_NORM, naive_mean_variance},
                 {SY_OP_REDUCE_MEAN, naive_reduce},
                 {SY_OP_REDUCE_SUM, naive_reduce},
                 {SY_OP_REDUCE_MAX, naive_reduce},
                 {SY_OP_REDUCE_MIN, naive_reduce},
                 {SY_OP_REDUCE_PROD, naive_reduce},
                 {SY_OP_REDUCE_L1, naive_reduce},
                 {SY_OP_REDUCE_L2, naive_reduce},
                 {SY_OP_REDUCE_SUM_SQUARE, naive_reduce},
                 {SY_OP_TRANSPOSE, transpose},
                 {SY_OP_SLICE, slice},
                 {SY_OP_PAD, pad},
                 {SY_OP_GATHER, gather},
                 {SY_OP_CONCAT, concat_or_split},
                 {SY_OP_SPLIT, concat_or_split},
                 {SY_OP_CAST, cast},
                 {SY_OP_RESHAPE, view},
                 {SY_OP_FLATTEN, view},
                 {SY_OP_SQUEEZE, view},
                 {SY_OP_UNSQUEEZE, view},
                 {SY_OP_EXPAND, expand}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].op == op)
            return table[i].run;
    return elementwise;
}

void naive_graph_run(struct naive_graph *net)
{
    for (int i = 0; i < net->graph->n_nodes; i++)
        op_of(net->graph->nodes[i].op)(net, &net->graph->nodes[i]);
}

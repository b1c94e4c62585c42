/* Convolution and pooling of one to three spatial dimensions, by definition. */
#include <assert.h>
#include <math.h>

#include "tests/naive_ops.h"

/* Where tap `tap` of the window at output position `o` looks in spatial dimension `d`; false: outside the input. */
static bool look(const struct naive_graph *net, const struct sy_node *node, int d, int64_t o,
                 int64_t tap, int64_t *at)
{
    *at = o * naive_attr_at(node, "strides", d, 1) - naive_attr_at(node, "pads", d, 0) +
          tap * naive_attr_at(node, "dilations", d, 1);
    return *at >= 0 && *at < naive_dim(net, node->inputs[0], 2 + d);
}

/* Where output `index` looks: flat[k] of the input's spatial extent for tap k of the kernel, -1 outside. */
static void look_all(const struct naive_graph *net, const struct sy_node *node,
                     const int64_t *index, int64_t taps, int64_t *flat)
{
    int x = node->inputs[0], w = node->inputs[1], rank = net->graph->tensors[x].shape.rank;
    for (int64_t k = 0; k < taps; k++) {
        int64_t left = k, stride = 1, at;
        flat[k] = 0;
        for (int d = rank - 3; d >= 0; d--) {
            bool inside = look(net, node, d, index[2 + d], left % naive_dim(net, w, 2 + d), &at);
            flat[k] = inside && flat[k] >= 0 ? flat[k] + at * stride : -1;
            left /= naive_dim(net, w, 2 + d);
            stride *= naive_dim(net, x, 2 + d);
        }
    }
}

static double conv_at(const struct naive_graph *net, const struct sy_node *node,
                      const int64_t *index)
{
    int x = node->inputs[0], w = node->inputs[1];
    int64_t outs = naive_dim(net, w, 0), per_group = naive_dim(net, w, 1);
    int64_t group = index[1] / (outs / sy_node_int(node, "group", 1));
    int64_t taps = naive_graph_elements(net, w) / outs / per_group, flat[64];
    int64_t channels = naive_dim(net, x, 1);
    int64_t area = naive_graph_elements(net, x) / naive_dim(net, x, 0) / channels;
    bool has_bias = node->n_inputs > 2 && node->inputs[2] >= 0;
    double sum = has_bias ? net->values[node->inputs[2]][index[1]] : 0;
    assert(taps <= 64);
    look_all(net, node, index, taps, flat);
    for (int64_t c = 0; c < per_group; c++) {
        const double *plane = net->values[x] + (index[0] * channels + group * per_group + c) * area;
        const double *weights = net->values[w] + (index[1] * per_group + c) * taps;
        for (int64_t k = 0; k < taps; k++)
            sum += flat[k] >= 0 ? plane[flat[k]] * weights[k] : 0;
    }
    return sum;
}

void naive_conv(struct naive_graph *net, const struct sy_node *node)
{
    int out = node->outputs[0];
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t index[SY_MAX_RANK];
        naive_unravel(net, out, k, index);
        net->values[out][k] = conv_at(net, node, index);
    }
}

static double pool_at(const struct naive_graph *net, const struct sy_node *node,
                      const int64_t *index)
{
    int x = node->inputs[0], rank = net->graph->tensors[x].shape.rank;
    bool global = node->op == SY_OP_GLOBAL_AVERAGE_POOL || node->op == SY_OP_GLOBAL_MAX_POOL;
    int64_t extent[SY_MAX_RANK] = {0}, taps = 1, seen = 0;
    double sum = 0, top = -HUGE_VAL;
    for (int d = 0; d < rank - 2; d++)
        taps *= extent[d] =
            global ? naive_dim(net, x, 2 + d) : naive_attr_at(node, "kernel_shape", d, 1);
    for (int64_t k = 0; k < taps; k++) {
        int64_t xi[SY_MAX_RANK] = {index[0], index[1]}, left = k;
        bool inside = true;
        for (int d = rank - 3; d >= 0; d--) {
            inside = look(net, node, d, index[2 + d], left % extent[d], &xi[2 + d]) && inside;
            left /= extent[d];
        }
        if (!inside)
            continue;
        double value = net->values[x][naive_ravel(net, x, xi)];
        sum += value;
        top = fmax(top, value);
        seen++;
    }
    if (node->op == SY_OP_MAX_POOL || node->op == SY_OP_GLOBAL_MAX_POOL)
        return top;
    return sum / (double)(sy_node_int(node, "count_include_pad", 0) ? taps : seen);
}

void naive_pool(struct naive_graph *net, const struct sy_node *node)
{
    int out = node->outputs[0];
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t index[SY_MAX_RANK];
        naive_unravel(net, out, k, index);
        net->values[out][k] = pool_at(net, node, index);
    }
}

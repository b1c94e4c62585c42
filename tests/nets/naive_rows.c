/* Softmax, norms and reductions: what many elements give together. */
#include <math.h>

#include "tests/nets/naive_ops.h"

void naive_softmax(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], out = node->outputs[0], axis = (int)sy_node_int(node, "axis", -1);
    const double *from = net->values[x];
    axis += axis < 0 ? naive_rank(net, x) : 0;
    int64_t n = naive_dim(net, x, axis), stride = 1;
    for (int d = axis + 1; d < naive_rank(net, x); d++)
        stride *= naive_dim(net, x, d);
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t base = k - k / stride % n * stride;
        double top = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++)
            top = fmax(top, from[base + i * stride]);
        for (int64_t i = 0; i < n; i++)
            sum += exp(from[base + i * stride] - top);
        net->values[out][k] =
            node->op == SY_OP_SOFTMAX ? exp(from[k] - top) / sum : from[k] - top - log(sum);
    }
}

void naive_layer_norm(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], out = node->outputs[0], axis = (int)sy_node_int(node, "axis", -1);
    int bias = node->n_inputs > 2 ? node->inputs[2] : -1;
    int64_t columns = 1;
    axis += axis < 0 ? naive_rank(net, x) : 0;
    for (int d = axis; d < naive_rank(net, x); d++)
        columns *= naive_dim(net, x, d);
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        const double *row = net->values[x] + k / columns * columns;
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < columns; i++)
            mean += row[i] / (double)columns;
        for (int64_t i = 0; i < columns; i++)
            variance += (row[i] - mean) * (row[i] - mean) / (double)columns;
        net->values[out][k] = (row[k % columns] - mean) /
                                  sqrt(variance + sy_node_float(node, "epsilon", 1e-5f)) *
                                  net->values[node->inputs[1]][k % columns] +
                              (bias >= 0 ? net->values[bias][k % columns] : 0);
    }
}

/* InstanceNormalization too: each channel its own group. Scale and bias per channel, or per group. */
void naive_group_norm(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], out = node->outputs[0];
    int64_t channels = naive_dim(net, x, 1), all = naive_graph_elements(net, out);
    int64_t groups = sy_node_int(node, "num_groups", channels), spatial = 1;
    for (int d = 2; d < naive_rank(net, x); d++)
        spatial *= naive_dim(net, x, d);
    int64_t n = channels / groups * spatial;
    bool is_per_group = naive_graph_elements(net, node->inputs[1]) == groups;
    int64_t shared = is_per_group ? channels / groups : 1;
    double mean = 0, variance = 0;
    for (int64_t k = 0; k < all; k++) {
        const double *group = net->values[x] + k / n * n;
        mean = k % n == 0 ? 0 : mean; /* once a group */
        variance = k % n == 0 ? 0 : variance;
        for (int64_t i = 0; i < n && k % n == 0; i++)
            mean += group[i] / (double)n;
        for (int64_t i = 0; i < n && k % n == 0; i++)
            variance += (group[i] - mean) * (group[i] - mean) / (double)n;
        int64_t c = k / spatial % channels / shared;
        net->values[out][k] = (net->values[x][k] - mean) /
                                  sqrt(variance + sy_node_float(node, "epsilon", 1e-5f)) *
                                  net->values[node->inputs[1]][c] +
                              net->values[node->inputs[2]][c];
    }
}

/* Elements i and k are averaged together: they differ in averaged dimensions alone. */
static bool is_together(const struct naive_graph *net, const struct sy_node *node, int64_t i,
                        int64_t k)
{
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    int64_t at[SY_MAX_RANK], other[SY_MAX_RANK];
    bool together = true;
    naive_unravel(net, node->outputs[0], i, at);
    naive_unravel(net, node->outputs[0], k, other);
    for (int d = 0; d < naive_rank(net, node->inputs[0]); d++) {
        bool averaged = !axes && d != 1;
        for (int a = 0; axes && a < axes->n; a++)
            averaged = averaged || axes->ints[a] == d;
        together = together && (averaged || at[d] == other[d]);
    }
    return together;
}

void naive_mean_variance(struct naive_graph *net, const struct sy_node *node)
{
    int out = node->outputs[0];
    const double *x = net->values[node->inputs[0]];
    int64_t n = naive_graph_elements(net, out);
    for (int64_t k = 0; k < n; k++) {
        double count = 0, sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++)
            if (is_together(net, node, i, k)) {
                count++;
                sum += x[i];
                squares += x[i] * x[i];
            }
        double mean = sum / count;
        net->values[out][k] = (x[k] - mean) / (sqrt(fmax(squares / count - mean * mean, 0)) + 1e-9);
    }
}

/* The mean of channel c over all images, of x or of its squared distance from `from`. */
static double channel_mean(const struct naive_graph *net, int x, int64_t c, double from,
                           bool square)
{
    int64_t count = 0;
    double sum = 0;
    for (int64_t k = 0; k < naive_graph_elements(net, x); k++) {
        int64_t index[SY_MAX_RANK];
        naive_unravel(net, x, k, index);
        double d = net->values[x][k] - from;
        sum += index[1] == c ? (square ? d * d : d) : 0;
        count += index[1] == c;
    }
    return sum / (double)count;
}

/* training_mode: by the batch's own mean and variance; outputs 1 and 2 are the running ones. */
static void batch_norm_by_batch(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0];
    double keep = sy_node_float(node, "momentum", 0.9f);
    double *const *v = net->values;
    for (int64_t c = 0; c < naive_dim(net, x, 1); c++) {
        double mean = channel_mean(net, x, c, 0, false), var = channel_mean(net, x, c, mean, true);
        for (int64_t k = 0; k < naive_graph_elements(net, x); k++) {
            int64_t index[SY_MAX_RANK];
            naive_unravel(net, x, k, index);
            if (index[1] == c)
                v[node->outputs[0]][k] = (v[x][k] - mean) /
                                             sqrt(var + sy_node_float(node, "epsilon", 1e-5f)) *
                                             v[node->inputs[1]][c] +
                                         v[node->inputs[2]][c];
        }
        if (node->n_outputs > 1)
            v[node->outputs[1]][c] = v[node->inputs[3]][c] * keep + mean * (1 - keep);
        if (node->n_outputs > 2)
            v[node->outputs[2]][c] = v[node->inputs[4]][c] * keep + var * (1 - keep);
    }
}

void naive_batch_norm(struct naive_graph *net, const struct sy_node *node)
{
    int out = node->outputs[0];
    double *const *v = net->values;
    if (sy_node_int(node, "training_mode", 0) != 0) {
        batch_norm_by_batch(net, node);
        return;
    }
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t index[SY_MAX_RANK];
        naive_unravel(net, out, k, index);
        int64_t c = index[1];
        v[out][k] = (v[node->inputs[0]][k] - v[node->inputs[3]][c]) /
                        sqrt(v[node->inputs[4]][c] + sy_node_float(node, "epsilon", 1e-5f)) *
                        v[node->inputs[1]][c] +
                    v[node->inputs[2]][c];
    }
}

static double reduced_with(enum sy_op op, double sum, double x)
{
    switch (op) {
    case SY_OP_REDUCE_MAX:
        return fmax(sum, x);
    case SY_OP_REDUCE_MIN:
        return fmin(sum, x);
    case SY_OP_REDUCE_PROD:
        return sum * x;
    case SY_OP_REDUCE_L1:
        return sum + fabs(x);
    case SY_OP_REDUCE_L2:
    case SY_OP_REDUCE_SUM_SQUARE:
        return sum + x * x;
    default:
        return sum + x;
    }
}

void naive_reduce(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], out = node->outputs[0], rank = naive_rank(net, x);
    bool reduced[SY_MAX_RANK] = {false};
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    int64_t n = naive_graph_elements(net, x), n_out = naive_graph_elements(net, out);
    for (int i = 0; i < axes->n; i++)
        reduced[axes->ints[i]] = true;
    for (int64_t k = 0; k < n_out; k++)
        net->values[out][k] = node->op == SY_OP_REDUCE_MAX    ? -INFINITY
                              : node->op == SY_OP_REDUCE_MIN  ? INFINITY
                              : node->op == SY_OP_REDUCE_PROD ? 1
                                                              : 0;
    for (int64_t k = 0; k < n; k++) {
        int64_t index[SY_MAX_RANK], to = 0;
        naive_unravel(net, x, k, index);
        for (int d = 0; d < rank; d++)
            to = reduced[d] ? to : to * naive_dim(net, x, d) + index[d];
        net->values[out][to] = reduced_with(node->op, net->values[out][to], net->values[x][k]);
    }
    for (int64_t k = 0; k < n_out && node->op == SY_OP_REDUCE_MEAN; k++)
        net->values[out][k] /= (double)(n / n_out);
    for (int64_t k = 0; k < n_out && node->op == SY_OP_REDUCE_L2; k++)
        net->values[out][k] = sqrt(net->values[out][k]);
}

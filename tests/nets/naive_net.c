#include "tests/nets/naive_net.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t dim(const struct naive_net *net, int tensor, int i)
{
    const struct sy_shape *shape = &net->graph->tensors[tensor].shape;
    return i < shape->rank ? sy_dim_at(shape->dims[i], net->batch) : 1;
}

int64_t naive_elements(const struct naive_net *net, int tensor)
{
    return sy_shape_elements(&net->graph->tensors[tensor].shape, net->batch);
}

void naive_init(struct naive_net *net, const struct sy_graph *graph, int64_t batch,
                enum sy_loss_kind loss)
{
    *net = (struct naive_net){.graph = graph, .batch = batch, .loss = loss};
    net->values = calloc((size_t)graph->n_tensors, sizeof *net->values);
    for (int t = 0; t < graph->n_tensors; t++) {
        int64_t n = naive_elements(net, t);
        net->values[t] = calloc((size_t)n, sizeof(double));
        assert(net->values[t]);
        const float *data = graph->tensors[t].data;
        for (int64_t i = 0; data && i < n; i++)
            net->values[t][i] = data[i];
    }
}

void naive_finish(struct naive_net *net)
{
    for (int t = 0; t < net->graph->n_tensors; t++)
        free(net->values[t]);
    free(net->values);
}

static int64_t attr_at(const struct sy_node *node, const char *name, int i, int64_t otherwise)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    return attr && i < attr->n ? attr->ints[i] : otherwise;
}

struct window {
    int64_t kernel[2], stride[2], pad[2], dilation[2];
};

static struct window window_of(const struct sy_node *node, int64_t k0, int64_t k1)
{
    struct window w;
    for (int i = 0; i < 2; i++) {
        w.kernel[i] = i ? k1 : k0;
        w.stride[i] = attr_at(node, "strides", i, 1);
        w.pad[i] = attr_at(node, "pads", i, 0);
        w.dilation[i] = attr_at(node, "dilations", i, 1);
    }
    return w;
}

/* Where position p of the window at output o looks, in dimension i; -1: outside. */
static int64_t look(const struct window *w, int i, int64_t o, int64_t p, int64_t size)
{
    int64_t at = o * w->stride[i] - w->pad[i] + p * w->dilation[i];
    return at >= 0 && at < size ? at : -1;
}

/* One output of a convolution: channel m of row n at (y, x). */
static double conv_at(const struct naive_net *net, const struct sy_node *node,
                      const struct window *w, int64_t n, int64_t m, int64_t y, int64_t x)
{
    int in = node->inputs[0], weights = node->inputs[1];
    int64_t channels = dim(net, in, 1), height = dim(net, in, 2), width = dim(net, in, 3);
    int64_t per_group = dim(net, weights, 1),
            group = m / (dim(net, weights, 0) / sy_node_int(node, "group", 1));
    double sum = node->n_inputs > 2 ? net->values[node->inputs[2]][m] : 0.0;
    for (int64_t c = 0; c < per_group; c++)
        for (int64_t p = 0; p < w->kernel[0]; p++)
            for (int64_t q = 0; q < w->kernel[1]; q++) {
                int64_t yy = look(w, 0, y, p, height), xx = look(w, 1, x, q, width);
                if (yy >= 0 && xx >= 0)
                    sum += net->values[in][((n * channels + group * per_group + c) * height + yy) *
                                               width +
                                           xx] *
                           net->values[weights]
                                      [((m * per_group + c) * w->kernel[0] + p) * w->kernel[1] + q];
            }
    return sum;
}

static double pool_at(const struct naive_net *net, const struct sy_node *node,
                      const struct window *w, int64_t plane, int64_t y, int64_t x)
{
    int in = node->inputs[0];
    int64_t height = dim(net, in, 2), width = dim(net, in, 3), seen = 0;
    double sum = 0.0, top = -HUGE_VAL;
    for (int64_t p = 0; p < w->kernel[0]; p++)
        for (int64_t q = 0; q < w->kernel[1]; q++) {
            int64_t yy = look(w, 0, y, p, height), xx = look(w, 1, x, q, width);
            if (yy < 0 || xx < 0)
                continue;
            double v = net->values[in][(plane * height + yy) * width + xx];
            sum += v;
            top = fmax(top, v);
            seen++;
        }
    if (node->op == SY_OP_MAX_POOL)
        return top;
    return sum /
           (double)(sy_node_int(node, "count_include_pad", 0) ? w->kernel[0] * w->kernel[1] : seen);
}

static void windows(struct naive_net *net, const struct sy_node *node)
{
    int out = node->outputs[0], in = node->inputs[0], is_conv = node->op == SY_OP_CONV;
    int64_t channels = dim(net, out, 1), height = dim(net, out, 2), width = dim(net, out, 3);
    struct window w = window_of(node, attr_at(node, "kernel_shape", 0, dim(net, in, 2)),
                                attr_at(node, "kernel_shape", 1, dim(net, in, 3)));
    for (int64_t n = 0; n < net->batch; n++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t y = 0; y < height; y++)
                for (int64_t x = 0; x < width; x++)
                    net->values[out][((n * channels + c) * height + y) * width + x] =
                        is_conv ? conv_at(net, node, &w, n, c, y, x)
                                : pool_at(net, node, &w, n * channels + c, y, x);
}

static void linear(struct naive_net *net, const struct sy_node *node)
{
    const double *a = net->values[node->inputs[0]], *b = net->values[node->inputs[1]];
    int is_out_first = node->op == SY_OP_GEMM && sy_node_int(node, "transB", 0);
    int64_t in = dim(net, node->inputs[1], is_out_first),
            out = dim(net, node->inputs[1], !is_out_first);
    int64_t rows = naive_elements(net, node->inputs[0]) / in;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = node->n_inputs > 2 ? net->values[node->inputs[2]][o] : 0.0;
            for (int64_t i = 0; i < in; i++)
                sum += a[r * in + i] * (is_out_first ? b[o * in + i] : b[i * out + o]);
            net->values[node->outputs[0]][r * out + o] = sum;
        }
}

static void norm_channel(struct naive_net *net, const struct sy_node *node, int64_t c,
                         int64_t channels, int64_t plane)
{
    const double *x = net->values[node->inputs[0]];
    double sum = 0.0, squares = 0.0, n = (double)(net->batch * plane);
    for (int64_t b = 0; b < net->batch; b++)
        for (int64_t i = 0; i < plane; i++)
            sum += x[(b * channels + c) * plane + i];
    for (int64_t b = 0; b < net->batch; b++)
        for (int64_t i = 0; i < plane; i++)
            squares += pow(x[(b * channels + c) * plane + i] - sum / n, 2.0);
    double scale = net->values[node->inputs[1]][c] /
                   sqrt(squares / n + (double)sy_node_float(node, "epsilon", 1e-5f));
    for (int64_t b = 0; b < net->batch; b++)
        for (int64_t i = 0; i < plane; i++) {
            int64_t at = (b * channels + c) * plane + i;
            net->values[node->outputs[0]][at] =
                (x[at] - sum / n) * scale + net->values[node->inputs[2]][c];
        }
}

static void norm(struct naive_net *net, const struct sy_node *node)
{
    int64_t channels = dim(net, node->inputs[0], 1);
    int64_t plane = naive_elements(net, node->inputs[0]) / net->batch / channels;
    for (int64_t c = 0; c < channels; c++)
        norm_channel(net, node, c, channels, plane);
}

static double elementwise(const struct sy_node *node, double x)
{
    switch (node->op) {
    case SY_OP_RELU:
        return x > 0.0 ? x : 0.0;
    case SY_OP_LEAKY_RELU:
        return x > 0.0 ? x : x * (double)sy_node_float(node, "alpha", 0.01f);
    case SY_OP_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    case SY_OP_TANH:
        return tanh(x);
    default:
        return x; /* Flatten, Reshape, Identity, Dropout */
    }
}

static void run_node(struct naive_net *net, const struct sy_node *node)
{
    int64_t n = naive_elements(net, node->outputs[0]);
    double *to = net->values[node->outputs[0]];
    switch (node->op) {
    case SY_OP_CONV:
    case SY_OP_MAX_POOL:
    case SY_OP_AVERAGE_POOL:
    case SY_OP_GLOBAL_AVERAGE_POOL:
        windows(net, node);
        return;
    case SY_OP_GEMM:
    case SY_OP_MATMUL:
        linear(net, node);
        return;
    case SY_OP_BATCH_NORM:
        norm(net, node);
        return;
    case SY_OP_ADD:
        for (int64_t i = 0; i < n; i++)
            to[i] = net->values[node->inputs[0]][i] +
                    net->values[node->inputs[1]][i % naive_elements(net, node->inputs[1])];
        return;
    default:
        for (int64_t i = 0; i < n; i++)
            to[i] = elementwise(node, net->values[node->inputs[0]][i]);
    }
}

static double cross_entropy(const double *x, const int32_t *labels, int64_t rows, int64_t n)
{
    double loss = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++)
            sum += exp(x[r * n + i]);
        loss += log(sum) - x[r * n + labels[r]];
    }
    return loss / (double)rows;
}

double naive_loss(struct naive_net *net, const float *input, const void *labels)
{
    const struct sy_graph *g = net->graph;
    for (int64_t i = 0; i < naive_elements(net, g->inputs[0]); i++)
        net->values[g->inputs[0]][i] = (double)input[i];
    for (int n = 0; n < g->n_nodes; n++)
        run_node(net, &g->nodes[n]);
    const double *y = net->values[g->outputs[0]];
    int64_t n = naive_elements(net, g->outputs[0]);
    if (net->loss == SY_LOSS_SOFTMAX_CROSS_ENTROPY)
        return cross_entropy(y, labels, net->batch, n / net->batch);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += pow(y[i] - (double)((const float *)labels)[i], 2.0);
    return sum / (double)n;
}

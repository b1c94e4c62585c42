/* Convolution and pooling of one to three spatial dimensions, by definition. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "tests/nets/naive_ops.h"

struct window {
    int64_t strides[SY_MAX_RANK], pads[SY_MAX_RANK], dilations[SY_MAX_RANK];
};

static struct window window_of(const struct sy_node *node)
{
    struct window window;
    for (int d = 0; d < SY_MAX_RANK; d++) {
        window.strides[d] = naive_attr_at(node, "strides", d, 1);
        window.pads[d] = naive_attr_at(node, "pads", d, 0);
        window.dilations[d] = naive_attr_at(node, "dilations", d, 1);
    }
    return window;
}

/* Where tap `tap` of the window at output position `o` looks in spatial dimension `d`; false: outside the input `x`. */
static bool look(const struct naive_graph *net, int x, const struct window *window, int d,
                 int64_t o, int64_t tap, int64_t *at)
{
    *at = o * window->strides[d] - window->pads[d] + tap * window->dilations[d];
    return *at >= 0 && *at < naive_dim(net, x, 2 + d);
}

struct taps {
    int n;
    struct {
        int64_t tap, at; /* of the kernel; of the input's spatial extent */
    } each[64];
};

/* The taps of `kernel` that look inside the input at output position `index`. */
static void look_all(const struct naive_graph *net, int x, int kernel, const struct window *window,
                     const int64_t *index, int64_t n_taps, struct taps *taps)
{
    taps->n = 0;
    for (int64_t tap = 0; tap < n_taps; tap++) {
        int64_t left = tap, stride = 1, flat = 0, at;
        bool inside = true;
        for (int d = naive_rank(net, x) - 3; d >= 0; d--) {
            int64_t extent = naive_dim(net, kernel, 2 + d);
            inside = look(net, x, window, d, index[2 + d], left % extent, &at) && inside;
            flat += at * stride;
            left /= extent;
            stride *= naive_dim(net, x, 2 + d);
        }
        if (inside)
            taps->each[taps->n].tap = tap, taps->each[taps->n++].at = flat;
    }
}

/* Output channel `to` of image `image` where `taps` look. */
static double conv_at(const struct naive_graph *net, const struct sy_node *node, int64_t group,
                      int64_t n_taps, const struct taps *taps, int64_t image, int64_t to)
{
    int x = node->inputs[0], w = node->inputs[1];
    int64_t per_group = naive_dim(net, w, 1), channels = naive_dim(net, x, 1);
    int64_t area = naive_graph_elements(net, x) / naive_dim(net, x, 0) / channels;
    bool has_bias = node->n_inputs > 2 && node->inputs[2] >= 0;
    double sum = has_bias ? net->values[node->inputs[2]][to] : 0;
    for (int64_t c = 0; c < per_group; c++) {
        const double *plane = net->values[x] + (image * channels + group * per_group + c) * area;
        const double *weights = net->values[w] + (to * per_group + c) * n_taps;
        for (int i = 0; i < taps->n; i++)
            sum += plane[taps->each[i].at] * weights[taps->each[i].tap];
    }
    return sum;
}

void naive_conv(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], w = node->inputs[1], y = node->outputs[0];
    int64_t outs = naive_dim(net, w, 0), images = naive_dim(net, y, 0);
    int64_t n_taps = naive_graph_elements(net, w) / outs / naive_dim(net, w, 1);
    int64_t area = naive_graph_elements(net, y) / images / outs;
    int64_t per_group = outs / sy_node_int(node, "group", 1);
    struct window window = window_of(node);
    struct taps taps;
    assert(n_taps <= 64);
    for (int64_t at = 0; at < area; at++) {
        int64_t index[SY_MAX_RANK];
        naive_unravel(net, y, at, index);
        look_all(net, x, w, &window, index, n_taps, &taps);
        for (int64_t i = 0; i < images * outs; i++)
            net->values[y][i * area + at] =
                conv_at(net, node, i % outs / per_group, n_taps, &taps, i / outs, i % outs);
    }
}

static double pool_at(const struct naive_graph *net, const struct sy_node *node,
                      const struct window *window, const int64_t *index)
{
    int x = node->inputs[0], rank = naive_rank(net, x);
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
            inside = look(net, x, window, d, index[2 + d], left % extent[d], &xi[2 + d]) && inside;
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
    int64_t counted = sy_node_int(node, "count_include_pad", 0) ? taps : seen;
    return counted ? sum / (double)counted
                   : 0; /* in the padding altogether: as ONNX Runtime has it */
}

void naive_pool(struct naive_graph *net, const struct sy_node *node)
{
    int out = node->outputs[0];
    struct window window = window_of(node);
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t index[SY_MAX_RANK];
        naive_unravel(net, out, k, index);
        net->values[out][k] = pool_at(net, node, &window, index);
    }
}

/* Each input is added to its window of the result. */
void naive_conv_transpose(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], w = node->inputs[1], y = node->outputs[0];
    int rank = naive_rank(net, x);
    int64_t outs = naive_dim(net, w, 1), taps = 1;
    int64_t per_group = naive_dim(net, x, 1) / sy_node_int(node, "group", 1);
    bool has_bias = node->n_inputs > 2 && node->inputs[2] >= 0;
    struct window window = window_of(node);
    for (int d = 2; d < rank; d++)
        taps *= naive_dim(net, w, d);
    for (int64_t k = 0; k < naive_graph_elements(net, y); k++) {
        int64_t index[SY_MAX_RANK];
        naive_unravel(net, y, k, index);
        net->values[y][k] = has_bias ? net->values[node->inputs[2]][index[1]] : 0;
    }
    for (int64_t k = 0; k < naive_graph_elements(net, x) * outs * taps; k++) {
        int64_t from[SY_MAX_RANK], to[SY_MAX_RANK], tap = k % taps, left = tap;
        naive_unravel(net, x, k / taps / outs, from);
        int64_t out = k / taps % outs;
        bool inside = true;
        to[0] = from[0];
        to[1] = from[1] / per_group * outs + out;
        for (int d = rank - 1; d >= 2; d--) {
            to[d] = from[d] * window.strides[d - 2] - window.pads[d - 2] +
                    left % naive_dim(net, w, d) * window.dilations[d - 2];
            left /= naive_dim(net, w, d);
            inside = inside && to[d] >= 0 && to[d] < naive_dim(net, y, d);
        }
        if (inside)
            net->values[y][naive_ravel(net, y, to)] +=
                net->values[x][k / taps / outs] *
                net->values[w][(from[1] * outs + out) * taps + tap];
    }
}

/* Between the four pixels around a point; 0 further than 1 outside. */
static double pixel_between(const struct naive_graph *net, int x, int64_t image, int64_t channel,
                            double row, double column)
{
    int64_t height = naive_dim(net, x, 2), width = naive_dim(net, x, 3);
    double sum = 0;
    if (row < -1 || row > (double)height || column < -1 || column > (double)width)
        return 0;
    row = fmin(fmax(row, 0), (double)(height - 1));
    column = fmin(fmax(column, 0), (double)(width - 1));
    for (int64_t r = (int64_t)row; r < height && r <= (int64_t)row + 1; r++)
        for (int64_t c = (int64_t)column; c < width && c <= (int64_t)column + 1; c++)
            sum += fmax(0, 1 - fabs(row - (double)r)) * fmax(0, 1 - fabs(column - (double)c)) *
                   net->values[x][naive_ravel(net, x, (int64_t[]){image, channel, r, c})];
    return sum;
}

/* The largest of the four pixels around a point, each times its weight there. */
static double pixel_largest(const struct naive_graph *net, int x, int64_t image, int64_t channel,
                            double row, double column)
{
    int64_t height = naive_dim(net, x, 2), width = naive_dim(net, x, 3);
    double most = -INFINITY;
    if (row < -1 || row > (double)height || column < -1 || column > (double)width)
        return 0;
    row = fmin(fmax(row, 0), (double)(height - 1));
    column = fmin(fmax(column, 0), (double)(width - 1));
    for (int64_t r = (int64_t)row; r <= (int64_t)row + 1; r++)
        for (int64_t c = (int64_t)column; c <= (int64_t)column + 1; c++) {
            double weight = (1 - fabs(row - (double)r)) * (1 - fabs(column - (double)c));
            int64_t at[] = {image, channel, r < height ? r : height - 1, c < width ? c : width - 1};
            most = fmax(most, weight * net->values[x][naive_ravel(net, x, at)]);
        }
    return most;
}

/* The mean, or the largest, of sampling_ratio x sampling_ratio points a bin, or of as many as it is pixels high and wide. */
void naive_roi_align(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], y = node->outputs[0];
    double scale = sy_node_float(node, "spatial_scale", 1);
    bool half = strcmp(sy_node_attr(node, "coordinate_transformation_mode")->s, "half_pixel") == 0;
    int64_t ratio = sy_node_int(node, "sampling_ratio", 0);
    bool largest = sy_node_attr(node, "mode") && !strcmp(sy_node_attr(node, "mode")->s, "max");
    for (int64_t k = 0; k < naive_graph_elements(net, y); k++) {
        int64_t at[SY_MAX_RANK], each[2];
        double start[2], size[2], sum = 0, most = -INFINITY;
        naive_unravel(net, y, k, at);
        for (int d = 0; d < 2; d++) { /* corners are x, y */
            const double *corner = net->values[node->inputs[1]] + at[0] * 4 + 1 - d;
            start[d] = corner[0] * scale - (half ? 0.5 : 0);
            size[d] = (corner[2] - corner[0]) * scale;
            size[d] = (half ? size[d] : fmax(size[d], 1)) / (double)naive_dim(net, y, 2 + d);
            each[d] = ratio > 0 ? ratio : (int64_t)fmax(ceil(size[d]), 1);
        }
        for (int64_t i = 0; i < each[0] * each[1]; i++) {
            double row =
                       start[0] +
                       ((double)at[2] + ((double)(i / each[1]) + 0.5) / (double)each[0]) * size[0],
                   column =
                       start[1] +
                       ((double)at[3] + ((double)(i % each[1]) + 0.5) / (double)each[1]) * size[1];
            int64_t image = (int64_t)net->values[node->inputs[2]][at[0]];
            if (largest)
                most = fmax(most, pixel_largest(net, x, image, at[1], row, column));
            else
                sum += pixel_between(net, x, image, at[1], row, column);
        }
        net->values[y][k] = largest ? most : sum / (double)(each[0] * each[1]);
    }
}

/* A place outside is mirrored at the edges, held at them, or left there. */
static double fold_place(const struct sy_node *node, double v, int64_t n)
{
    const struct sy_attr *padding = sy_node_attr(node, "padding_mode");
    double low = sy_node_int(node, "align_corners", 0) != 0 ? 0 : -0.5, high = (double)n - 1 - low;
    if (padding && strcmp(padding->s, "reflection") == 0)
        while (high > low && (v < low || v > high))
            v = v < low ? 2 * low - v : 2 * high - v;
    return padding && strcmp(padding->s, "zeros") != 0 ? fmin(fmax(v, 0), (double)n - 1) : v;
}

/* Where a coordinate of the grid points to; the lower edge if it is no number or too large for an integer, as in ONNX Runtime. */
static double place_of(const struct sy_node *node, double v, int64_t n)
{
    double low = sy_node_int(node, "align_corners", 0) != 0 ? 0 : -0.5, high = (double)n - 1 - low;
    v = low + (v + 1) / 2 * (high - low);
    return fabs(v) < 0x1p63 ? v : low;
}

/* Keys' kernel with a = -0.75. */
static double cubic_weight(double distance)
{
    double x = fabs(distance), a = -0.75;
    if (x <= 1)
        return (a + 2) * x * x * x - (a + 3) * x * x + 1;
    return x < 2 ? a * (x * x * x - 5 * x * x + 8 * x - 4) : 0;
}

/* What place `at` of one dimension counts at a point; cubic: each of four places is folded by itself. */
static double share_of(const struct sy_node *node, double point, int64_t n, int64_t at)
{
    const struct sy_attr *attr = sy_node_attr(node, "mode");
    const char *mode = attr ? attr->s : "bilinear";
    double share = 0, first = floor(point) - 1;
    if (!strstr(mode, "cubic")) {
        double folded = fold_place(node, point, n);
        bool nearest = strcmp(mode, "nearest") == 0;
        return fmax(0, 1 - fabs((nearest ? nearbyint(folded) : folded) - (double)at));
    }
    for (int k = 0; k < 4; k++)
        if (fold_place(node, first + k, n) == (double)at)
            share += cubic_weight(point - first - k);
    return share;
}

/* GridSample of images and volumes. */
void naive_grid_sample(struct naive_graph *net, const struct sy_node *node)
{
    int x = node->inputs[0], grid = node->inputs[1], out = node->outputs[0],
        rank = naive_rank(net, x);
    int64_t plane = 1;
    for (int d = 2; d < rank; d++)
        plane *= naive_dim(net, x, d);
    for (int64_t k = 0; k < naive_graph_elements(net, out); k++) {
        int64_t at[SY_MAX_RANK], from[SY_MAX_RANK], in_grid[SY_MAX_RANK] = {0};
        double point[SY_MAX_RANK], sum = 0;
        naive_unravel(net, out, k, at);
        in_grid[0] = at[0];
        for (int d = 2; d < rank; d++)
            in_grid[d - 1] = at[d];
        for (int d = 2; d < rank; d++) {
            in_grid[rank - 1] = rank - 1 - d;
            point[d] = place_of(node, net->values[grid][naive_ravel(net, grid, in_grid)],
                                naive_dim(net, x, d));
        }
        for (int64_t i = 0; i < plane; i++) {
            int64_t flat = (at[0] * naive_dim(net, x, 1) + at[1]) * plane + i;
            naive_unravel(net, x, flat, from);
            double share = 1;
            for (int d = 2; d < rank; d++)
                share *= share_of(node, point[d], naive_dim(net, x, d), from[d]);
            sum += share * net->values[x][flat];
        }
        net->values[out][k] = sum;
    }
}

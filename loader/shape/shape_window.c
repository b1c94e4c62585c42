/* Shape rules: convolution, pooling, padding, batch normalisation. After them, kernel_shape, strides, dilations and pads are
 * always there and auto_pad is resolved. */
#include <stdlib.h>
#include <string.h>

#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

struct window {
    int n; /* spatial dimensions */
    int64_t kernel[SY_MAX_RANK], strides[SY_MAX_RANK], dilations[SY_MAX_RANK],
        pads[2 * SY_MAX_RANK];
    bool is_same;                          /* padding follows from the sizes, which are open: */
    struct sy_dim padded[2 * SY_MAX_RANK]; /* instead of pads */
};

/* The attribute's list, or n times `otherwise`. */
static int list_or(const struct sy_node *node, const char *name, int n, int64_t otherwise,
                   int64_t least, int64_t *out)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    if (attr && (attr->kind != SY_ATTR_INTS || attr->n != n))
        return sy_infer_fail(node, SY_ECORRUPT, "'%s' needs %d numbers", name, n);
    for (int i = 0; i < n; i++) {
        out[i] = attr ? attr->ints[i] : otherwise;
        if (out[i] < least || out[i] > INT32_MAX)
            return sy_infer_fail(node, SY_EUNSUPPORTED, "'%s' has the value %lld", name,
                                 (long long)out[i]);
    }
    return SY_OK;
}

/* auto_pad SAME_*: as much padding as keeps ceil(size / stride). */
static void pad_same(struct window *w, int i, int64_t size, bool upper)
{
    int64_t out = (size + w->strides[i] - 1) / w->strides[i];
    int64_t total = (out - 1) * w->strides[i] + (w->kernel[i] - 1) * w->dilations[i] + 1 - size;
    total = SY_MAX(total, 0);
    w->pads[i] = upper ? total / 2 : total - total / 2;
    w->pads[i + w->n] = total - w->pads[i];
}

static int ceil_of(struct sy_dim size, int64_t stride, struct sy_dim *out)
{
    SY_TRY(sy_size_add(size, (struct sy_dim){stride - 1, 0}, out));
    return sy_size_floor_div(*out, (struct sy_dim){stride, 0}, out);
}

/* As pad_same, for an open size. */
static int pad_same_open(struct window *w, int i, struct sy_dim size, bool upper)
{
    struct sy_dim out, total, half, stride = {w->strides[i], 0}, zero = {0, 0}, one = {1, 0},
                                    two = {2, 0},
                                    reach = {(w->kernel[i] - 1) * w->dilations[i] + 1, 0};
    SY_TRY(ceil_of(size, w->strides[i], &out));
    SY_TRY(sy_size_sub(out, one, &total));
    SY_TRY(sy_size_mul(total, stride, &total));
    SY_TRY(sy_size_add(total, reach, &total));
    SY_TRY(sy_size_sub(total, size, &total));
    SY_TRY(sy_size_max(total, zero, &total));
    SY_TRY(sy_size_floor_div(total, two, &half));
    SY_TRY(sy_size_sub(total, half, &total));
    w->padded[i] = upper ? half : total;
    w->padded[i + w->n] = upper ? total : half;
    return SY_OK;
}

static int resolve_auto_pad(const struct sy_infer *in, struct sy_node *node,
                            const struct sy_shape *x, struct window *w)
{
    const struct sy_attr *attr = sy_node_attr(node, "auto_pad");
    const char *mode = attr && attr->kind == SY_ATTR_STRING ? attr->s : "NOTSET";
    bool upper = strcmp(mode, "SAME_UPPER") == 0;
    if (strcmp(mode, "VALID") == 0)
        memset(w->pads, 0, sizeof w->pads);
    for (int i = 0; (upper || strcmp(mode, "SAME_LOWER") == 0) && i < w->n; i++) {
        int64_t size;
        if (sy_dim_is_expr(x->dims[i + 2])) {
            w->is_same = true;
            if (pad_same_open(w, i, x->dims[i + 2], upper) < 0)
                return sy_infer_defer(in, node, "padding of open sizes");
            continue;
        }
        SY_TRY(sy_infer_fixed(in, node, x, i + 2, &size));
        pad_same(w, i, size, upper);
        w->padded[i] = (struct sy_dim){w->pads[i], 0};
        w->padded[i + w->n] = (struct sy_dim){w->pads[i + w->n], 0};
    }
    struct sy_attr *slot;
    if (!attr)
        return SY_OK;
    SY_TRY(sy_node_attr_slot(node, "auto_pad", &slot));
    slot->kind = SY_ATTR_STRING;
    return sy_graph_strdup("NOTSET", &slot->s);
}

/* kernel: the default kernel_shape, or NULL where the attribute must be there. */
static int read_window(const struct sy_infer *in, struct sy_node *node, const struct sy_shape *x,
                       const int64_t *kernel, struct window *w)
{
    *w = (struct window){.n = x->rank - 2};
    if (w->n < 1)
        return sy_infer_fail(node, SY_ECORRUPT, "input of %d dimensions, at least 3 are needed",
                             x->rank);
    if (!kernel && !sy_node_attr(node, "kernel_shape"))
        return sy_infer_fail(node, SY_ECORRUPT, "kernel_shape is missing");
    if (kernel && !sy_node_attr(node, "kernel_shape"))
        SY_TRY(sy_node_set_ints(node, "kernel_shape", w->n, kernel));
    SY_TRY(list_or(node, "kernel_shape", w->n, 1, 1, w->kernel));
    SY_TRY(list_or(node, "strides", w->n, 1, 1, w->strides));
    SY_TRY(list_or(node, "dilations", w->n, 1, 1, w->dilations));
    SY_TRY(list_or(node, "pads", 2 * w->n, 0, 0, w->pads));
    SY_TRY(resolve_auto_pad(in, node, x, w));
    SY_TRY(sy_node_set_ints(node, "strides", w->n, w->strides));
    SY_TRY(sy_node_set_ints(node, "dilations", w->n, w->dilations));
    if (w->is_same)
        return sy_node_set_sizes(node, "pads", 2 * w->n, w->padded);
    return sy_node_set_ints(node, "pads", 2 * w->n, w->pads);
}

/* For an open size: it must have room for the kernel, which becomes a condition. */
static int open_window(struct sy_infer *in, const struct sy_node *node, struct sy_dim size,
                       const struct window *w, int i, bool ceil_mode, struct sy_dim *out)
{
    struct sy_dim before = {w->pads[i], 0}, after = {w->pads[i + w->n], 0}, room, steps,
                  reach = {(w->kernel[i] - 1) * w->dilations[i] + 1, 0},
                  stride = {w->strides[i], 0}, last;
    int status = sy_size_add(size, before, &last);
    if (w->is_same && ceil_of(size, w->strides[i], out) == SY_OK)
        return SY_OK;
    if (status == SY_OK)
        status = sy_size_add(last, after, &room);
    if (status == SY_OK && !sy_infer_at_most(in, node, reach, room))
        return sy_infer_fail(node, SY_ECORRUPT, "kernel %lld does not fit into dimension %d",
                             (long long)w->kernel[i], i + 2);
    if (status == SY_OK)
        status = sy_size_sub(room, reach, &room);
    if (status == SY_OK && ceil_mode)
        status = sy_size_add(room, (struct sy_dim){w->strides[i] - 1, 0}, &room);
    if (status == SY_OK)
        status = sy_size_floor_div(room, stride, &steps);
    if (status == SY_OK && ceil_mode) { /* a window that starts in the end padding does not count */
        status = sy_size_add(last, (struct sy_dim){-1, 0}, &last);
        if (status == SY_OK)
            status = sy_size_floor_div(last, stride, &last);
        if (status == SY_OK)
            status = sy_size_min(steps, last, &steps);
    }
    if (status == SY_OK)
        status = sy_size_add(steps, (struct sy_dim){1, 0}, out);
    return status < 0 ? sy_infer_defer(in, node, "a window over an open size") : SY_OK;
}

static int window_output(struct sy_infer *in, const struct sy_node *node, const struct sy_shape *x,
                         const struct window *w, bool ceil_mode, struct sy_shape *out)
{
    for (int i = 0; i < w->n; i++) {
        int64_t size;
        if (sy_dim_is_expr(x->dims[i + 2])) {
            SY_TRY(open_window(in, node, x->dims[i + 2], w, i, ceil_mode, &out->dims[i + 2]));
            continue;
        }
        SY_TRY(sy_infer_fixed(in, node, x, i + 2, &size));
        int64_t room =
            size + w->pads[i] + w->pads[i + w->n] - ((w->kernel[i] - 1) * w->dilations[i] + 1);
        if (room < 0)
            return sy_infer_fail(node, SY_ECORRUPT,
                                 "kernel %lld does not fit into dimension %d of %lld",
                                 (long long)w->kernel[i], i + 2, (long long)size);
        int64_t steps = (room + (ceil_mode ? w->strides[i] - 1 : 0)) / w->strides[i];
        if (ceil_mode && steps * w->strides[i] >= size + w->pads[i])
            steps--; /* a window that starts in the end padding does not count */
        out->dims[i + 2] = (struct sy_dim){steps + 1, 0};
    }
    return SY_OK;
}

/* Left out, or one number a channel of the result. */
static int check_bias(struct sy_infer *in, struct sy_node *node, int64_t channels)
{
    const struct sy_tensor *bias;
    char text[160];
    if (sy_node_input(node, 2) < 0)
        return SY_OK;
    SY_TRY(sy_infer_need(in, node, 2, &bias));
    if (bias->shape.rank != 1 || bias->shape.dims[0].per_batch != 0 ||
        bias->shape.dims[0].fixed != channels)
        return sy_infer_fail(node, SY_ECORRUPT, "a bias %s for %lld channels",
                             sy_shape_text(&bias->shape, text, sizeof text), (long long)channels);
    node->bias_input = 2;
    return SY_OK;
}

int sy_rule_conv(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *weights;
    struct window w;
    int64_t kernel[SY_MAX_RANK], channels, group = sy_node_int(node, "group", 1);
    char a[160], b[160];
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &weights));
    int64_t w_out, w_in;
    SY_TRY(sy_infer_fixed(in, node, &weights->shape, 0, &w_out));
    SY_TRY(sy_infer_fixed(in, node, &weights->shape, 1, &w_in));
    struct sy_shape shape = x->shape; /* open channels are as many as the weights have */
    if (shape.rank > 1 && sy_dim_is_expr(shape.dims[1]) && group > 0 && group <= INT32_MAX)
        sy_infer_same_size(in, node, &shape.dims[1], (struct sy_dim){w_in * group, 0});
    SY_TRY(sy_infer_fixed(in, node, &shape, 1, &channels));
    if (weights->shape.rank != x->shape.rank || group < 1 || group > channels ||
        w_in * group != channels || w_out % group != 0)
        return sy_infer_fail(node, SY_ECORRUPT, "weights %s do not fit input %s in %lld groups",
                             sy_shape_text(&weights->shape, a, sizeof a),
                             sy_shape_text(&x->shape, b, sizeof b), (long long)group);
    for (int i = 2; i < weights->shape.rank; i++)
        SY_TRY(sy_infer_fixed(in, node, &weights->shape, i, &kernel[i - 2]));
    SY_TRY(read_window(in, node, &x->shape, kernel, &w));
    if (memcmp(w.kernel, kernel, (size_t)w.n * sizeof *kernel) != 0)
        return sy_infer_fail(node, SY_ECORRUPT, "kernel_shape does not fit weights %s",
                             sy_shape_text(&weights->shape, a, sizeof a));
    shape.dims[1] = (struct sy_dim){w_out, 0};
    SY_TRY(window_output(in, node, &x->shape, &w, false, &shape));
    SY_TRY(sy_node_set_int(node, "group", group));
    SY_TRY(check_bias(in, node, w_out));
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_pool(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    struct window w;
    bool indices = node->n_outputs > 1 && node->outputs[1] >= 0 && in->uses[node->outputs[1]] > 0;
    if (!indices)
        SY_TRY(sy_infer_keep_outputs(in, node, 1));
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(read_window(in, node, &x->shape, NULL, &w));
    struct sy_shape shape = x->shape;
    SY_TRY(window_output(in, node, &x->shape, &w, sy_node_int(node, "ceil_mode", 0) != 0, &shape));
    sy_infer_set(in, node, 1, SY_DTYPE_I64, &shape);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

int sy_rule_global_pool(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    for (int i = 2; i < shape.rank; i++)
        shape.dims[i] = (struct sy_dim){1, 0};
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

/* Pads of some axes become pads of all dimensions. */
static int spread_pads(const struct sy_node *node, int rank, int n_axes, const int64_t *axes,
                       struct sy_dim *pads)
{
    struct sy_dim all[2 * SY_MAX_RANK] = {{0, 0}};
    for (int i = 0; i < n_axes; i++) {
        int axis;
        SY_TRY(sy_infer_axis(node, axes[i], rank, &axis));
        all[axis] = pads[i];
        all[axis + rank] = pads[i + n_axes];
    }
    memcpy(pads, all, sizeof all);
    return SY_OK;
}

/* Pads and value: attributes up to opset 10, inputs from 11 on, axes from 18 on; here always attributes for all dimensions. */
/* The result's shape; `pads` of all dimensions. */
static int padded_shape(struct sy_infer *in, struct sy_node *node, struct sy_shape *shape,
                        struct sy_dim *pads)
{
    int64_t axes[SY_MAX_RANK];
    struct sy_dim *given;
    int n, n_axes;
    SY_TRY(sy_infer_dims(in, node, 1, "pads", &n, &given));
    bool open = false;
    for (int i = 0; i < n && i < 2 * SY_MAX_RANK; i++) {
        pads[i] = given[i];
        open = open || (!sy_dim_is_number(given[i]) && !sy_dim_is_expr(given[i]));
    }
    free(given);
    if (n > 2 * SY_MAX_RANK)
        return sy_infer_fail(node, SY_ECORRUPT, "'pads' has %d entries, at most %d fit", n,
                             2 * SY_MAX_RANK);
    if (open)
        return sy_infer_defer(in, node, "'pads' depends on the batch size");
    SY_TRY(sy_infer_ints(in, node, 3, "axes", SY_MAX_RANK, &n_axes, axes));
    if (n != 2 * (n_axes >= 0 ? n_axes : shape->rank))
        return sy_infer_fail(node, SY_ECORRUPT, "%d pads for %d dimensions", n,
                             n_axes >= 0 ? n_axes : shape->rank);
    if (n_axes >= 0)
        SY_TRY(spread_pads(node, shape->rank, n_axes, axes, pads));
    for (int i = 0; i < shape->rank; i++) {
        struct sy_dim sum;
        if (sy_dim_add(shape->dims[i], pads[i], &sum) < 0 ||
            sy_dim_add(sum, pads[i + shape->rank], &shape->dims[i]) < 0)
            return sy_infer_fail(node, SY_ECORRUPT, "pads are too large");
    }
    return SY_OK;
}

int sy_rule_pad(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    struct sy_dim pads[2 * SY_MAX_RANK] = {{0, 0}};
    float value;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    bool sizes_known = sy_infer_is_known(in, node, 1) && sy_infer_is_known(in, node, 3);
    struct sy_shape shape = x->shape;
    SY_TRY(sizes_known ? padded_shape(in, node, &shape, pads)
                       : sy_infer_declared(in, node, 0, &shape));
    if (!sizes_known || !sy_infer_is_known(in, node, 2) ||
        (x->dtype != SY_DTYPE_F32 && sy_node_input(node, 2) >= 0)) {
        node->op = SY_OP_RUN_PAD;
        sy_infer_set(in, node, 0, x->dtype, &shape);
        return SY_OK;
    }
    SY_TRY(sy_infer_float(in, node, 2, "value", 0, &value));
    SY_TRY(sy_node_set_sizes(node, "pads", 2 * shape.rank, pads));
    SY_TRY(sy_node_set_float(node, "value", value));
    sy_infer_keep_inputs(node, 1);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

/* Outputs 1 and 2, if used, of a node that uses the batch's mean and variance. */
static int running_outputs(struct sy_infer *in, struct sy_node *node)
{
    bool any = false;
    SY_TRY(sy_infer_keep_outputs(in, node, 3));
    for (int i = 1; i < node->n_outputs; i++) {
        const struct sy_tensor *from;
        if (node->outputs[i] < 0)
            continue;
        SY_TRY(sy_infer_need(in, node, i + 2, &from));
        struct sy_shape shape = from->shape;
        sy_infer_set(in, node, i, from->dtype, &shape);
        any = any || in->uses[node->outputs[i]] > 0;
    }
    return any ? SY_OK : sy_infer_keep_outputs(in, node, 1);
}

int sy_rule_batch_norm(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x, *parameter;
    bool by_batch = sy_node_int(node, "training_mode", 0) != 0 && !in->for_training;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    if (sy_node_int(node, "spatial", 1) != 1)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "spatial=0; export the model for inference");
    for (int i = 1; i < 5; i++) {
        SY_TRY(sy_infer_need(in, node, i, &parameter));
        struct sy_dim channels = x->shape.dims[1];
        if (x->shape.rank < 2 || parameter->shape.rank != 1 ||
            !sy_infer_same_size(in, node, &channels, parameter->shape.dims[0]))
            return sy_infer_fail(node, SY_ECORRUPT, "input %d does not fit the channels", i);
    }
    if (in->for_training)
        SY_TRY(sy_infer_keep_outputs(in, node, 1));
    if (!by_batch)
        return sy_rule_same(in, node);
    struct sy_shape shape = x->shape;
    sy_infer_keep_inputs(node, 5);
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return running_outputs(in, node);
}

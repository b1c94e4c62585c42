/* Conv, channels last, with bias, residual and activation fused. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"

struct window {
    int64_t left[SY_MATH_SPATIAL], right[SY_MATH_SPATIAL]; /* padding; right may be negative */
};

static int64_t attr_at(const struct sy_node *node, const char *name, int i, int64_t otherwise)
{
    const struct sy_attr *a = sy_node_attr(node, name);
    return a && i < a->n ? a->ints[i] : otherwise;
}

static bool has_bias(const struct sy_node *node)
{
    return sy_node_input(node, 2) >= 0 && node->residual_input != 2;
}

/* Dimension `i` of the node is `k` of the description: one spatial dimension is the second of two. */
static int read_dimension(const struct sy_node *node, int i, int k, const int64_t *in,
                          const int64_t *weights, const int64_t *out, struct sy_math_conv *c,
                          struct window *w)
{
    const struct sy_attr *auto_pad = sy_node_attr(node, "auto_pad");
    bool lower = auto_pad && auto_pad->s && strcmp(auto_pad->s, "SAME_LOWER") == 0;
    bool upper = auto_pad && auto_pad->s && strcmp(auto_pad->s, "SAME_UPPER") == 0;
    c->in[k] = in[2 + i];
    c->out[k] = out[2 + i];
    c->kernel[k] = weights[2 + i];
    c->strides[k] = attr_at(node, "strides", i, 1);
    c->dilations[k] = attr_at(node, "dilations", i, 1);
    if (c->kernel[k] < 1 || c->strides[k] < 1 || c->dilations[k] < 1)
        return sy_unsupported(node, "a window of no size");
    int64_t extent = (c->kernel[k] - 1) * c->dilations[k] + 1;
    int64_t total = (c->out[k] - 1) * c->strides[k] + extent - c->in[k];
    w->left[k] = attr_at(node, "pads", i, 0);
    if (lower || upper)
        w->left[k] = total <= 0 ? 0 : upper ? total / 2 : total - total / 2;
    w->right[k] = total - w->left[k];
    return SY_OK;
}

static int read_shape(struct sy_program *p, struct sy_math_conv *c, struct window *w)
{
    const struct sy_node *node = sy_cuda_node(p);
    int64_t in[SY_MAX_RANK], out[SY_MAX_RANK], weights[SY_MAX_RANK];
    int rank = sy_cuda_input_tensor(p, 0)->shape.rank, spatial = rank - 2;
    if (sy_cuda_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || rank < 3 || rank > 5)
        return sy_unsupported(node, "only float32 with 1 to 3 spatial dimensions");
    if (sy_cuda_input_tensor(p, 1)->shape.rank != rank ||
        p->graph->tensors[node->outputs[0]].shape.rank != rank)
        return sy_unsupported(node, "weights or output of another rank than the input");
    sy_cuda_dims(p, node->inputs[0], in);
    sy_cuda_dims(p, node->inputs[1], weights);
    sy_cuda_dims(p, node->outputs[0], out);
    *c = (struct sy_math_conv){.spatial = SY_MAX(spatial, 2),
                               .batch = in[0],
                               .in_channels = in[1],
                               .out_channels = out[1],
                               .groups = sy_node_int(node, "group", 1),
                               .in = {1, 1, 1},
                               .out = {1, 1, 1},
                               .kernel = {1, 1, 1},
                               .strides = {1, 1, 1},
                               .dilations = {1, 1, 1},
                               .has_bias = has_bias(node),
                               .has_residual = node->residual_input >= 0,
                               .activation = node->activation,
                               .act_alpha = node->act_alpha,
                               .act_beta = node->act_beta};
    *w = (struct window){0};
    if (c->groups < 1 || weights[0] != out[1] || weights[1] * c->groups != in[1] ||
        out[1] % c->groups != 0)
        return sy_unsupported(node, "channels that do not fit the weights and groups");
    for (int i = 0; i < spatial; i++)
        SY_TRY(read_dimension(node, i, spatial == 1 ? 1 : i, in, weights, out, c, w));
    return SY_OK;
}

/* Whether equal padding on both sides gives the output's size. */
static bool is_symmetric(const struct sy_math_conv *c, const struct window *w)
{
    for (int i = 0; i < SY_MATH_SPATIAL; i++) {
        int64_t extent = (c->kernel[i] - 1) * c->dilations[i] + 1;
        int64_t room = c->in[i] + 2 * w->left[i] - extent;
        if (w->left[i] < 0 || room < 0 || room / c->strides[i] + 1 != c->out[i])
            return false;
    }
    return true;
}

static int run_zero(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->zero(p->math, sy_cuda_pointer(p, step->args[0]), step->zero_bytes);
}

/* A copy of the input with zeros around it; then the convolution pads nothing. */
static int pad_input(struct sy_program *p, struct sy_math_conv *c, const struct window *w,
                     int *value)
{
    int padded, from = *value, spatial = p->values[from].rank - 2;
    int64_t dims[SY_MAX_RANK];
    enum sy_dtype dtype = p->values[from].dtype;
    struct sy_math_move move = {.element_bytes = sy_math_float_bytes(dtype), .rank = spatial + 2};
    struct sy_cuda_step *step;
    memcpy(dims, p->values[from].dims, sizeof dims);
    memcpy(move.dims, p->values[from].dims, sizeof move.dims);
    for (int i = 0; i < spatial; i++) {
        int k = spatial == 1 ? 1 : i;
        if (w->left[k] < 0)
            return sy_unsupported(sy_cuda_node(p), "negative pads");
        dims[2 + i] += w->left[k] + SY_MAX(w->right[k], (int64_t)0);
        c->in[k] = dims[2 + i];
    }
    SY_TRY(sy_cuda_new_value(p, dtype, spatial + 2, dims, true, &padded));
    SY_TRY(sy_cuda_add_step(p, run_zero, &padded, 1, &step));
    step->zero_bytes = p->values[padded].bytes;
    sy_cuda_strides(&p->values[from], move.from_strides);
    sy_cuda_strides(&p->values[padded], move.to_strides);
    for (int i = 0; i < spatial; i++)
        move.to_offset += w->left[spatial == 1 ? 1 : i] * move.to_strides[2 + i];
    *value = padded;
    return sy_cuda_add_move(p, &move, from, padded);
}

/* args: x, w, bias, residual, y */
static int run_conv(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->conv(p->math, step->plan, sy_cuda_pointer(p, step->args[0]),
                        sy_cuda_pointer(p, step->args[1]), sy_cuda_pointer(p, step->args[2]),
                        sy_cuda_pointer(p, step->args[3]), sy_cuda_pointer(p, step->args[4]),
                        (unsigned char *)p->binding->workspace + p->scratch_offset);
}

static int build_conv(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_math_conv conv;
    struct window window;
    struct sy_cuda_step *step;
    int values[5] = {-1, -1, -1, -1, -1};
    if (node->n_inputs < 2 || node->inputs[0] < 0 || node->inputs[1] < 0)
        return sy_unsupported(node, "an input that is left out");
    SY_TRY(read_shape(p, &conv, &window));
    bool narrow = sy_cuda_multiplies_narrow(p, &p->layers[p->layer]);
    SY_TRY(sy_cuda_input_as(p, 0, true, narrow, &values[0]));
    SY_TRY(sy_cuda_is_param(p, 1) ? sy_cuda_input(p, 1, &values[1]) /* packed so */
                                  : sy_cuda_input_as(p, 1, true, narrow, &values[1]));
    if (conv.has_bias)
        SY_TRY(narrow && sy_cuda_is_param(p, 2) ? sy_cuda_input(p, 2, &values[2]) /* packed so */
                                                : sy_cuda_input_plain(p, 2, &values[2]));
    if (conv.has_residual)
        SY_TRY(sy_cuda_input_as(p, node->residual_input, true, narrow, &values[3]));
    conv.type = p->values[values[0]].dtype;
    conv.bias_type = conv.has_bias ? p->values[values[2]].dtype : SY_DTYPE_F32;
    SY_TRY(sy_cuda_output_as(p, 0, conv.type, true, /* not over the residual: device_math.h */
                             &values[4]));
    memcpy(conv.pads, window.left, sizeof conv.pads);
    if (!is_symmetric(&conv, &window)) {
        SY_TRY(pad_input(p, &conv, &window, &values[0]));
        memset(conv.pads, 0, sizeof conv.pads);
    }
    SY_TRY(sy_cuda_add_step(p, run_conv, values, 5, &step));
    step->conv = conv;
    step->plan_kind = SY_CUDA_CONV_PLAN;
    return SY_OK;
}

const struct sy_cuda_op sy_cuda_ops_conv[] = {{.build = build_conv, SY_OPS(SY_OP_CONV)}, {0}};

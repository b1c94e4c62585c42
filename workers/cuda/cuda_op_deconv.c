/* ConvTranspose as the gradient of a convolution's input (cuda_train_deconv.c says more), channels last, float32. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/cuda_program.h"

static int64_t attr_at(const struct sy_node *node, const char *name, int i, int64_t otherwise)
{
    const struct sy_attr *a = sy_node_attr(node, name);
    return a && i < a->n ? a->ints[i] : otherwise;
}

static int read_shape(struct sy_program *p, struct sy_math_conv *c)
{
    const struct sy_node *node = sy_cuda_node(p);
    int64_t x[SY_MAX_RANK], y[SY_MAX_RANK], w[SY_MAX_RANK];
    if (node->n_inputs < 2 || node->inputs[0] < 0 || node->inputs[1] < 0)
        return sy_cuda_unsupported(node, "an input that is left out");
    int rank = sy_cuda_input_tensor(p, 0)->shape.rank;
    if (sy_cuda_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || rank < 3 || rank > 5 ||
        sy_cuda_input_tensor(p, 1)->shape.rank != rank)
        return sy_cuda_unsupported(node, "only float32 with 1 to 3 spatial dimensions");
    sy_cuda_dims(p, node->inputs[0], x);
    sy_cuda_dims(p, node->inputs[1], w);
    sy_cuda_dims(p, node->outputs[0], y);
    *c = (struct sy_math_conv){.direction = SY_MATH_DATA,
                               .type = SY_DTYPE_F32,
                               .spatial = SY_MAX(rank - 2, 2),
                               .batch = x[0],
                               .in_channels = y[1],
                               .out_channels = x[1],
                               .groups = sy_node_int(node, "group", 1),
                               .in = {1, 1, 1},
                               .out = {1, 1, 1},
                               .kernel = {1, 1, 1},
                               .strides = {1, 1, 1},
                               .dilations = {1, 1, 1}};
    if (c->groups < 1 || w[0] != x[1] || w[1] * c->groups != y[1] || x[1] % c->groups)
        return sy_cuda_unsupported(node, "channels that do not fit the weights and groups");
    for (int i = 0; i < rank - 2; i++) {
        int k = rank == 3 ? 1 : i;
        c->in[k] = y[2 + i];
        c->out[k] = x[2 + i];
        c->kernel[k] = w[2 + i];
        c->strides[k] = attr_at(node, "strides", i, 1);
        c->dilations[k] = attr_at(node, "dilations", i, 1);
        c->pads[k] = attr_at(node, "pads", i, 0);
        if (c->kernel[k] < 1 || c->strides[k] < 1 || c->dilations[k] < 1 || c->pads[k] < 0)
            return sy_cuda_unsupported(node, "a window of no size, or negative pads");
    }
    return SY_OK;
}

/* Whether equal padding on both sides leads from y to x. */
static bool is_symmetric(const struct sy_math_conv *c)
{
    for (int i = 0; i < SY_MATH_SPATIAL; i++) {
        int64_t room = c->in[i] + 2 * c->pads[i] - (c->kernel[i] - 1) * c->dilations[i] - 1;
        if (room < 0 || room / c->strides[i] + 1 != c->out[i])
            return false;
    }
    return true;
}

/* args: x, w, y */
static int run_deconv(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->conv(p->math, step->plan, sy_cuda_pointer(p, step->args[0]),
                        sy_cuda_pointer(p, step->args[1]), NULL, NULL,
                        sy_cuda_pointer(p, step->args[2]),
                        (unsigned char *)p->binding->workspace + p->scratch_offset);
}

static int run_zero(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->zero(p->math, sy_cuda_pointer(p, step->args[0]), step->zero_bytes);
}

/* All that the windows reach, without padding; y is a part of it, zero behind. */
static int through_all(struct sy_program *p, struct sy_math_conv *c, int *values)
{
    struct sy_cuda_value y = p->values[values[2]];
    struct sy_math_move move = {.element_bytes = sizeof(float), .rank = y.rank};
    struct sy_cuda_step *step;
    int64_t left[SY_MATH_SPATIAL], dims[SY_MAX_RANK];
    int out = values[2], full;
    memcpy(left, c->pads, sizeof left);
    memset(c->pads, 0, sizeof c->pads);
    memcpy(dims, y.dims, sizeof dims);
    memcpy(move.dims, y.dims, sizeof dims);
    for (int i = 0; i < y.rank - 2; i++) {
        int k = y.rank == 3 ? 1 : i;
        c->in[k] = (c->out[k] - 1) * c->strides[k] + (c->kernel[k] - 1) * c->dilations[k] + 1;
        dims[2 + i] = c->in[k];
        move.dims[2 + i] = SY_MIN(y.dims[2 + i], c->in[k] - left[k]);
        if (move.dims[2 + i] < 1)
            return sy_cuda_unsupported(sy_cuda_node(p), "pads that leave nothing");
    }
    SY_TRY(sy_cuda_new_value(p, SY_DTYPE_F32, y.rank, dims, true, &full));
    values[2] = full;
    SY_TRY(sy_cuda_add_step(p, run_deconv, values, 3, &step));
    step->conv = *c;
    step->plan_kind = SY_CUDA_CONV_PLAN;
    SY_TRY(sy_cuda_add_step(p, run_zero, &out, 1, &step));
    step->zero_bytes = y.bytes;
    sy_cuda_strides(&y, move.to_strides);
    sy_cuda_strides(&p->values[full], move.from_strides);
    for (int i = 0; i < y.rank - 2; i++)
        move.from_offset += left[y.rank == 3 ? 1 : i] * move.from_strides[2 + i];
    return sy_cuda_add_move(p, &move, full, out);
}

/* Over the result, where it lies. */
static int add_epilogue(struct sy_program *p, int y)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_math_chain chain = {.n_inputs = 1};
    int inputs[2] = {y}, bias, rank = p->values[y].rank;
    int64_t dims[SY_MAX_RANK] = {p->values[y].dims[1], 1, 1, 1, 1};
    sy_cuda_chain_add(&chain, SY_CHAIN_LOAD, 0, 0, 0);
    if (node->n_inputs > 2 && node->inputs[2] >= 0) {
        SY_TRY(sy_cuda_input_plain(p, 2, &bias));
        SY_TRY(sy_cuda_seen_as(p, bias, dims, rank - 1, &inputs[1]));
        sy_cuda_chain_add(&chain, SY_CHAIN_ADD, 1, 0, 0);
        chain.n_inputs = 2;
    }
    sy_cuda_chain_activation(&chain, node);
    return chain.n_steps > 1 ? sy_cuda_add_chain(p, &chain, inputs, y) : SY_OK;
}

static int build_deconv(struct sy_program *p)
{
    struct sy_math_conv conv;
    struct sy_cuda_step *step;
    int values[3];
    SY_TRY(read_shape(p, &conv));
    SY_TRY(sy_cuda_input_as(p, 0, true, false, &values[0]));
    SY_TRY(sy_cuda_is_param(p, 1) ? sy_cuda_input(p, 1, &values[1]) /* packed so */
                                  : sy_cuda_input_as(p, 1, true, false, &values[1]));
    SY_TRY(sy_cuda_output(p, 0, true, &values[2]));
    int y = values[2];
    if (!is_symmetric(&conv)) {
        SY_TRY(through_all(p, &conv, values));
        return add_epilogue(p, y);
    }
    SY_TRY(sy_cuda_add_step(p, run_deconv, values, 3, &step));
    step->conv = conv;
    step->plan_kind = SY_CUDA_CONV_PLAN;
    return add_epilogue(p, y);
}

const struct sy_cuda_op sy_cuda_ops_deconv[] = {
    {SY_OP_CONV_TRANSPOSE, build_deconv, sy_cuda_layout_conv, sy_cuda_prepare_conv}, {0}};

/* ConvTranspose as the gradient of a convolution's input (deconv_node.h), channels last, float32. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/math/deconv_node.h"
#include "workers/cuda/program/cuda_program.h"

static int read_shape(struct sy_program *p, struct sy_deconv_node *d)
{
    const struct sy_node *node = sy_cuda_node(p);
    int64_t x[SY_MAX_RANK], y[SY_MAX_RANK], w[SY_MAX_RANK];
    if (node->n_inputs < 2 || node->inputs[0] < 0 || node->inputs[1] < 0)
        return sy_unsupported(node, "an input that is left out");
    int rank = sy_cuda_input_tensor(p, 0)->shape.rank;
    if (sy_cuda_input_tensor(p, 0)->dtype != SY_DTYPE_F32 ||
        sy_cuda_input_tensor(p, 1)->shape.rank != rank)
        return sy_unsupported(node, "of a type other than float32, or weights of another rank");
    sy_cuda_dims(p, node->inputs[0], x);
    sy_cuda_dims(p, node->inputs[1], w);
    sy_cuda_dims(p, node->outputs[0], y);
    const char *why = sy_deconv_node_read(node, rank, x, w, y, d);
    d->conv.type = SY_DTYPE_F32;
    return why ? sy_unsupported(node, why) : SY_OK;
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

/* All that the windows reach; y is a part of it, zero behind. */
static int through_all(struct sy_program *p, const struct sy_deconv_node *d, int *values)
{
    struct sy_cuda_value y = p->values[values[2]];
    struct sy_math_move move = {.element_bytes = sizeof(float), .rank = y.rank};
    struct sy_cuda_step *step;
    int64_t dims[SY_MAX_RANK];
    int out = values[2], full;
    memcpy(dims, y.dims, sizeof dims);
    for (int i = 0; i < y.rank - 2; i++)
        dims[2 + i] = d->conv.in[y.rank == 3 ? 1 : i];
    SY_TRY(sy_cuda_new_value(p, SY_DTYPE_F32, y.rank, dims, true, &full));
    values[2] = full;
    SY_TRY(sy_cuda_add_step(p, run_deconv, values, 3, &step));
    step->conv = d->conv;
    step->plan_kind = SY_CUDA_CONV_PLAN;
    SY_TRY(sy_cuda_add_step(p, run_zero, &out, 1, &step));
    step->zero_bytes = y.bytes;
    sy_cuda_strides(&y, move.to_strides);
    sy_cuda_strides(&p->values[full], move.from_strides);
    if (!sy_deconv_common(y.rank, y.dims, dims, move.from_strides, d->pad_left, move.dims,
                          &move.from_offset))
        return sy_unsupported(sy_cuda_node(p), "pads that leave nothing");
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
    if (sy_node_input(node, 2) >= 0) {
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
    struct sy_deconv_node d;
    struct sy_cuda_step *step;
    int values[3];
    SY_TRY(read_shape(p, &d));
    SY_TRY(sy_cuda_input_as(p, 0, true, false, &values[0]));
    SY_TRY(sy_cuda_is_param(p, 1) ? sy_cuda_input(p, 1, &values[1]) /* packed so */
                                  : sy_cuda_input_as(p, 1, true, false, &values[1]));
    SY_TRY(sy_cuda_output(p, 0, true, &values[2]));
    int y = values[2];
    if (d.padded) {
        SY_TRY(through_all(p, &d, values));
        return add_epilogue(p, y);
    }
    SY_TRY(sy_cuda_add_step(p, run_deconv, values, 3, &step));
    step->conv = d.conv;
    step->plan_kind = SY_CUDA_CONV_PLAN;
    return add_epilogue(p, y);
}

const struct sy_cuda_op sy_cuda_ops_deconv[] = {
    {.build = build_deconv, SY_OPS(SY_OP_CONV_TRANSPOSE)}, {0}};

/* ConvTranspose (deconv_node.h), forward and backward. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/math/deconv_node.h"
#include "workers/cuda/train/cuda_train.h"

static int bias_of(const struct sy_node *node)
{
    return node->n_inputs > 2 ? node->inputs[2] : -1;
}

static int describe(struct sy_trainer *t, const struct sy_node *node, struct sy_cutr_node *record)
{
    int64_t x[SY_MAX_RANK], y[SY_MAX_RANK], weights[SY_MAX_RANK];
    struct sy_deconv_node d;
    int rank = sy_cutr_dims(t, node->inputs[0], x);
    SY_TRY(rank);
    if (t->graph->tensors[node->inputs[1]].shape.rank != rank)
        return sy_cutr_refuse(node, "weights of another rank");
    SY_TRY(sy_cutr_dims(t, node->inputs[1], weights));
    SY_TRY(sy_cutr_dims(t, node->outputs[0], y));
    const char *why = sy_deconv_node_read(node, rank, x, weights, y, &d);
    if (why)
        return sy_cutr_refuse(node, why);
    if (bias_of(node) >= 0 && sy_cutr_elements(t, bias_of(node)) != y[1])
        return sy_cutr_refuse(node, "a bias that does not fit the channels");
    record->conv = d.conv;
    record->conv.direction = SY_MATH_FORWARD;
    record->conv.type = sy_cutr_product_type(t);
    record->padded = d.padded;
    memcpy(record->pad_left, d.pad_left, sizeof d.pad_left);
    return SY_OK;
}

/* A value of y's dims, or of all that the windows reach. */
static int full_value(struct sy_trainer *t, const struct sy_node *node,
                      const struct sy_cutr_node *record, int *value)
{
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, node->outputs[0], dims);
    SY_TRY(rank);
    for (int i = 0; i < rank - 2; i++)
        dims[2 + i] = record->conv.in[rank == 3 ? 1 : i];
    return sy_cutr_value_typed(t, record->conv.type, rank, dims, true, false, value);
}

/* Copies the part that y and the windows' full extent have in common; the rest of `to` is zero. */
static int move_common(struct sy_trainer *t, unsigned when, const struct sy_node *node,
                       const struct sy_cutr_node *record, int y, int full, bool to_full)
{
    const struct sy_cutr_value a = t->values[y], b = t->values[full];
    struct sy_math_move move = {.rank = a.rank};
    int64_t *y_strides = to_full ? move.from_strides : move.to_strides,
            *full_strides = to_full ? move.to_strides : move.from_strides,
            *offset = to_full ? &move.to_offset : &move.from_offset;
    sy_cutr_strides(&a, y_strides);
    sy_cutr_strides(&b, full_strides);
    if (!sy_deconv_common(a.rank, a.dims, b.dims, full_strides, record->pad_left, move.dims,
                          offset))
        return sy_cutr_refuse(node, "pads that leave nothing");
    SY_TRY(sy_cutr_fill(t, when, node->name, to_full ? full : y, 0));
    return sy_cutr_move(t, when, node->name, &move, to_full ? y : full, to_full ? full : y);
}

static int add_bias(struct sy_trainer *t, const struct sy_node *node, int y)
{
    struct sy_math_chain sum = {
        .n_inputs = 2, .n_steps = 2, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}, {SY_CHAIN_ADD, 1, 0, 0}}};
    int bias;
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, bias_of(node), SY_CUTR_PLAIN, &bias));
    return sy_cutr_chain(t, SY_CUTR_FORWARD, node->name, &sum, (int[]){y, bias},
                         (bool[]){false, true}, t->values[y].dims[1], y);
}

int sy_cutr_deconv_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_node *record = &t->nodes[n];
    int x, y, w, full;
    SY_TRY(describe(t, node, record));
    struct sy_math_conv conv = record->conv;
    conv.direction = SY_MATH_DATA;
    SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[1], SY_CUTR_LAST, conv.type, &w));
    SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_LAST, conv.type, &x));
    record->source = x;
    SY_TRY(sy_cutr_result_typed(t, node->outputs[0], true, conv.type, &y));
    full = y;
    if (record->padded)
        SY_TRY(full_value(t, node, record, &full));
    SY_TRY(sy_cutr_add_conv(t, SY_CUTR_FORWARD, node->name, &conv, (int[]){x, w, -1, full}));
    if (record->padded)
        SY_TRY(move_common(t, SY_CUTR_FORWARD, node, record, y, full, false));
    return bias_of(node) >= 0 ? add_bias(t, node, y) : SY_OK;
}

int sy_cutr_deconv_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_cutr_node *record = &t->nodes[n];
    struct sy_math_conv conv = record->conv;
    int dy, dw, dx, w, full, bias = bias_of(node);
    SY_TRY(sy_cutr_as_typed(t, SY_CUTR_TRAIN, gradient, true, conv.type, &dy));
    if (sy_cutr_needs(t, bias))
        SY_TRY(sy_cutr_bias_gradient(t, node->name, bias, dy, conv.in_channels));
    full = dy;
    if (record->padded) {
        SY_TRY(full_value(t, node, record, &full));
        SY_TRY(move_common(t, SY_CUTR_TRAIN, node, record, dy, full, true));
    }
    if (sy_cutr_needs(t, node->inputs[1])) {
        conv.direction = SY_MATH_WEIGHTS;
        SY_TRY(sy_cutr_diff_begin_typed(t, node->inputs[1], true, conv.type, &dw));
        SY_TRY(sy_cutr_add_conv(t, SY_CUTR_TRAIN, node->name, &conv,
                                (int[]){full, record->source, -1, dw}));
        SY_TRY(sy_cutr_diff_end(t, node->inputs[1], dw));
    }
    if (!sy_cutr_needs(t, node->inputs[0]))
        return SY_OK;
    conv.direction = SY_MATH_FORWARD;
    SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_TRAIN, node->inputs[1], SY_CUTR_LAST, conv.type, &w));
    SY_TRY(sy_cutr_diff_begin_typed(t, node->inputs[0], true, conv.type, &dx));
    SY_TRY(sy_cutr_add_conv(t, SY_CUTR_TRAIN, node->name, &conv, (int[]){full, w, -1, dx}));
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

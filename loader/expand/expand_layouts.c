/* ONNX Runtime's operators over images whose channels come last, as its passes for 8 bits and for GPUs write them: the operator on channels
 * that come second, between transpositions. */
#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static const int64_t to_second[] = {0, 3, 1, 2}, to_last[] = {0, 2, 3, 1};

static void pass_window(struct sy_expand *e)
{
    const char *const names[] = {"auto_pad", "ceil_mode", "count_include_pad", "dilations",
                                 "group",    "pads",      "kernel_shape",      "strides"};
    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
        sy_expand_pass(e, names[i]);
}

static int image(struct sy_expand *e, bool last)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    int ids = sy_expand_input(e, 0);
    if (!last)
        return ids;
    if (!x || x->shape.rank != 4) {
        sy_expand_fail(e, SY_EUNSUPPORTED, "channels that come last of other than 4 dimensions");
        return -1;
    }
    return sy_expand_transpose(e, ids, to_second, 4);
}

static int expand_last_pool(struct sy_expand *e)
{
    int y = SY_EXPAND(e, MAX_POOL, image(e, true));
    pass_window(e);
    sy_expand_result(e, 0, sy_expand_transpose(e, y, to_last, 4));
    return e->status;
}

/* The weights have their channels last, too: [M, kH, kW, C]. */
static int expand_last_conv(struct sy_expand *e)
{
    int ids[3] = {image(e, true), -1, sy_expand_input(e, 2)};
    ids[1] = sy_expand_transpose(e, sy_expand_input(e, 1), to_second, 4);
    int y = sy_expand_op(e, SY_OP_CONV, ids, ids[2] >= 0 ? 3 : 2);
    pass_window(e);
    sy_expand_result(e, 0, sy_expand_transpose(e, y, to_last, 4));
    return e->status;
}

/* The weights are ONNX's. */
static int expand_quantized_conv(struct sy_expand *e)
{
    bool last = sy_node_int(e->node, "channels_last", 0) != 0;
    int ids[9], n = SY_MIN(e->node->n_inputs, 9);
    for (int i = 1; i < n; i++)
        ids[i] = sy_expand_input(e, i);
    ids[0] = image(e, last);
    int y = sy_expand_op(e, SY_OP_QLINEAR_CONV, ids, n);
    pass_window(e);
    sy_expand_result(e, 0, last ? sy_expand_transpose(e, y, to_last, 4) : y);
    return e->status;
}

const struct sy_expander_line sy_expanders_layouts[] = {
    {SY_OP_MS_NHWC_MAX_POOL, expand_last_pool},
    {SY_OP_MS_NHWC_CONV, expand_last_conv},
    {SY_OP_MS_QLINEAR_CONV, expand_quantized_conv},
    {0}};

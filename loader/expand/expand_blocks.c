/* Convolutional networks as ONNX Runtime saves them after its last level of optimization: images in blocks of 8 or 16 channels (domain
 * com.microsoft.nchwc).
 *
 * A blocked tensor's shape in the file is that of channels that come second, padded to whole blocks, and so it is read here: what moves it into
 * blocks only pads it. Weights lie in the file in the blocks of the machine that wrote it, which the file does not name: they are read in this
 * machine's, as ONNX Runtime does. Where extents show that the file's are others it is refused; of 32 channels they do not, and import says what
 * was taken. */
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

static const int64_t to_second[] = {0, 3, 1, 2}, to_last[] = {0, 2, 3, 1};

static int64_t channels_of_block(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") ? 16 : 8;
#else
    return 16;
#endif
}

static int64_t whole_blocks(int64_t channels)
{
    int64_t block = channels_of_block();
    return (channels + block - 1) / block * block;
}

static int other_blocks(struct sy_expand *e, const char *what, int64_t channels)
{
    return sy_expand_fail(e, SY_EUNSUPPORTED,
                          "%s of %lld channels in blocks of another machine's size: optimize the "
                          "model on this machine, or to a lower level",
                          what, (long long)channels);
}

/* ---- into blocks and out of them -------------------------------------------------------------- */

static int expand_into(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    bool last = sy_node_int(e->node, "channels_last", 0) != 0;
    if (!x || x->shape.rank != 4 || !sy_dim_is_number(x->shape.dims[last ? 3 : 1]))
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "blocks of other than images, or of open channels");
    int64_t n = x->shape.dims[last ? 3 : 1].fixed;
    int64_t pads[8] = {0, 0, 0, 0, 0, whole_blocks(n) - n};
    int y = sy_expand_input(e, 0);
    if (last)
        y = sy_expand_transpose(e, y, to_second, 4);
    if (pads[5] > 0)
        y = SY_EXPAND(e, PAD, y, sy_expand_ints(e, pads, 8));
    sy_expand_result(e, 0, y);
    return e->status;
}

static int expand_out_of(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    int64_t channels = sy_node_int(e->node, "channels", 0);
    if (!x || x->shape.rank != 4 || channels < 1 || channels > INT32_MAX)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%lld channels of blocks of other than images",
                              (long long)channels);
    if (!sy_dim_is(x->shape.dims[1], whole_blocks(channels)))
        return other_blocks(e, "images", channels);
    int y = sy_expand_slice(e, sy_expand_input(e, 0), 1, 0, channels);
    if (sy_node_int(e->node, "channels_last", 0) != 0)
        y = sy_expand_transpose(e, y, to_last, 4);
    sy_expand_result(e, 0, y);
    return e->status;
}

/* ---- convolutions ----------------------------------------------------------------------------- */

/* Weights of the file: [out / block][in / each][place][each][block], each being a block of input channels or one. */
struct blocked {
    int64_t out, in, places, block, each;
};

static void put_in_order(const struct blocked *w, const float *from, float *to)
{
    for (int64_t o = 0; o < w->out; o++)
        for (int64_t i = 0; i < w->in; i++)
            for (int64_t k = 0; k < w->places; k++) {
                int64_t at = (o / w->block * (w->in / w->each) + i / w->each) * w->places + k;
                at = (at * w->each + i % w->each) * w->block + o % w->block;
                to[(o * w->in + i) * w->places + k] = from[at];
            }
}

static int read_blocked(struct sy_expand *e, struct blocked *w)
{
    const struct sy_tensor *t = sy_expand_tensor(e, 1);
    if (!t || !t->data || t->dtype != SY_DTYPE_F32 || t->shape.rank != 4)
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "weights that are computed, or not float32 of 4 dimensions");
    const struct sy_dim *d = t->shape.dims;
    *w = (struct blocked){d[0].fixed, d[1].fixed, d[2].fixed * d[3].fixed, channels_of_block(), 1};
    if (w->in % w->block == 0)
        w->each = w->block;
    if (w->out % w->block != 0)
        return other_blocks(e, "weights", w->out);
    /* few channels come unblocked, and so does the one of a group */
    if (w->each == 1 && w->in > 1 && (w->in > w->block || sy_node_int(e->node, "group", 1) > 1))
        return other_blocks(e, "weights", w->in);
    return SY_OK;
}

/* Once for a graph: its last such node says it. */
static void say_which_blocks(const struct sy_expand *e, int64_t block)
{
    for (int n = 0; n < e->first; n++)
        if (e->graph->nodes[n].op == SY_OP_BLOCKED_CONV)
            return;
    sy_log_info("import",
                "event=channel_blocks node=\"%s\" channels=%lld why=\"the file does not say how "
                "large its blocks of weights are: they are taken as this machine's\"",
                e->node->name, (long long)block);
}

/* A constant of the weights in ONNX's order. */
static int weights_in_order(struct sy_expand *e, const struct blocked *w, int *out)
{
    float *ordered;
    const struct sy_tensor *t = sy_expand_tensor(e, 1);
    struct sy_shape shape = t->shape;
    SY_TRY(sy_graph_alloc((size_t)(w->out * w->in * w->places), sizeof *ordered, &ordered));
    put_in_order(w, t->data, ordered);
    return sy_graph_add_constant(e->graph, e->node->name, SY_DTYPE_F32, &shape, ordered,
                                 (size_t)(w->out * w->in * w->places) * sizeof *ordered, out);
}

/* Conv(x, w, b) + z, then the activation. */
static int expand_conv(struct sy_expand *e)
{
    struct blocked w = {0};
    int ids[4] = {sy_expand_input(e, 0), -1, sy_expand_input(e, 2), sy_expand_input(e, 3)};
    SY_TRY(read_blocked(e, &w));
    say_which_blocks(e, w.block);
    SY_TRY(weights_in_order(e, &w, &ids[1]));
    int y = sy_expand_op(e, SY_OP_MS_FUSED_CONV, ids, 4);
    for (int i = 0; i < e->node->n_attrs; i++)
        sy_expand_pass(e, e->node->attrs[i].name);
    if (sy_node_int(e->node, "group", 1) > 1 && w.in == 1) /* padded, too */
        sy_expand_set_int(e, "group", w.out);
    sy_expand_result(e, 0, y);
    return e->status;
}

/* ---- what needs no more than its name --------------------------------------------------------- */

static int expand_pool(struct sy_expand *e)
{
    static const struct {
        enum sy_op from, to;
    } same[] = {{SY_OP_BLOCKED_MAX_POOL, SY_OP_MAX_POOL},
                {SY_OP_BLOCKED_AVERAGE_POOL, SY_OP_AVERAGE_POOL},
                {SY_OP_BLOCKED_GLOBAL_MAX_POOL, SY_OP_GLOBAL_MAX_POOL},
                {SY_OP_BLOCKED_GLOBAL_POOL, SY_OP_GLOBAL_AVERAGE_POOL}};
    int x = sy_expand_input(e, 0), y = -1;
    for (size_t i = 0; i < SY_ARRAY_LEN(same); i++)
        if (same[i].from == e->node->op)
            y = sy_expand_op(e, same[i].to, &x, 1);
    for (int i = 0; i < e->node->n_attrs; i++)
        sy_expand_pass(e, e->node->attrs[i].name);
    sy_expand_result(e, 0, y);
    return e->status;
}

static int expand_upsample(struct sy_expand *e)
{
    const struct sy_attr *by = sy_node_attr(e->node, "scales");
    float scales[4];
    if (!by || by->kind != SY_ATTR_INTS || by->n != 4)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "scales of other than 4 dimensions");
    for (int i = 0; i < 4; i++)
        scales[i] = (float)by->ints[i];
    int y = SY_EXPAND(e, RESIZE, sy_expand_input(e, 0), -1, sy_expand_floats(e, scales, 4));
    sy_expand_set_text(e, "mode", sy_infer_text(e->node, "mode", "nearest"));
    sy_expand_set_text(e, "coordinate_transformation_mode",
                       sy_infer_text(e->node, "coordinate_transformation_mode", "asymmetric"));
    sy_expand_set_text(e, "nearest_mode", "floor");
    sy_expand_result(e, 0, y);
    return e->status;
}

const struct sy_expander_line sy_expanders_blocks[] = {
    {SY_OP_BLOCKED_REORDER_INPUT, expand_into},
    {SY_OP_BLOCKED_REORDER_OUTPUT, expand_out_of},
    {SY_OP_BLOCKED_CONV, expand_conv},
    {SY_OP_BLOCKED_MAX_POOL, expand_pool},
    {SY_OP_BLOCKED_AVERAGE_POOL, expand_pool},
    {SY_OP_BLOCKED_GLOBAL_MAX_POOL, expand_pool},
    {SY_OP_BLOCKED_GLOBAL_POOL, expand_pool},
    {SY_OP_BLOCKED_UPSAMPLE, expand_upsample},
    {0}};

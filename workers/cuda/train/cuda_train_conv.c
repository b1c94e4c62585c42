/* Convolutions and pools: forward and backward. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"

#define FLOP_PER_NS 20000.0

/* ---- windows ------------------------------------------------------------------------------------------ */

struct window {
    int spatial;
    int64_t in[SY_MATH_SPATIAL], out[SY_MATH_SPATIAL], kernel[SY_MATH_SPATIAL],
        strides[SY_MATH_SPATIAL], dilations[SY_MATH_SPATIAL], left[SY_MATH_SPATIAL],
        right[SY_MATH_SPATIAL]; /* right: what the output's size needs; may be negative */
};

/* A single spatial dimension is given as the second of two, as device_math.h requires. kernel NULL: all of the input. */
static int read_window(const struct sy_trainer *t, const struct sy_node *node,
                       const int64_t *kernel, struct window *w)
{
    int64_t in[SY_MAX_RANK], out[SY_MAX_RANK];
    const struct sy_attr *pad = sy_node_attr(node, "auto_pad");
    bool lower = pad && pad->s && strcmp(pad->s, "SAME_LOWER") == 0;
    bool upper = pad && pad->s && strcmp(pad->s, "SAME_UPPER") == 0;
    int rank = sy_cutr_dims(t, node->inputs[0], in);
    SY_TRY(rank);
    SY_TRY(sy_cutr_dims(t, node->outputs[0], out));
    *w = (struct window){.spatial = rank - 2};
    for (int i = 0; i < SY_MATH_SPATIAL; i++)
        w->in[i] = w->out[i] = w->kernel[i] = w->strides[i] = w->dilations[i] = 1;
    for (int i = 0; i < w->spatial; i++) {
        int k = w->spatial == 1 ? 1 : i;
        w->in[k] = in[2 + i];
        w->out[k] = out[2 + i];
        w->kernel[k] = kernel ? kernel[i] : in[2 + i];
        w->strides[k] = kernel ? sy_node_int_at(node, "strides", i, 1) : 1;
        w->dilations[k] = kernel ? sy_node_int_at(node, "dilations", i, 1) : 1;
        if (w->kernel[k] < 1 || w->strides[k] < 1 || w->dilations[k] < 1)
            return sy_cutr_refuse(node, "a window of no size");
        int64_t total =
            (w->out[k] - 1) * w->strides[k] + (w->kernel[k] - 1) * w->dilations[k] + 1 - w->in[k];
        w->left[k] = kernel ? sy_node_int_at(node, "pads", i, 0) : 0;
        if (lower || upper)
            w->left[k] = total <= 0 ? 0 : upper ? total / 2 : total - total / 2;
        w->right[k] = total - w->left[k];
    }
    return SY_OK;
}

/* Whether equal padding on both sides gives the output's size. */
static bool is_symmetric(const struct window *w)
{
    for (int i = 0; i < SY_MATH_SPATIAL; i++) {
        int64_t room = w->in[i] + 2 * w->left[i] - (w->kernel[i] - 1) * w->dilations[i] - 1;
        if (w->left[i] < 0 || room < 0 || room / w->strides[i] + 1 != w->out[i])
            return false;
    }
    return true;
}

/* ---- convolutions ------------------------------------------------------------------------------------- */

static int describe_conv(struct sy_trainer *t, const struct sy_node *node, struct window *w,
                         struct sy_math_conv *c)
{
    int64_t in[SY_MAX_RANK], out[SY_MAX_RANK], weights[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, node->inputs[0], in);
    SY_TRY(rank);
    if (rank < 3 || rank > 5 || t->graph->tensors[node->inputs[1]].shape.rank != rank)
        return sy_cutr_refuse(node, "only 1 to 3 spatial dimensions");
    SY_TRY(sy_cutr_dims(t, node->inputs[1], weights));
    SY_TRY(sy_cutr_dims(t, node->outputs[0], out));
    SY_TRY(read_window(t, node, weights + 2, w));
    *c = (struct sy_math_conv){.type = sy_cutr_product_type(t),
                               .spatial = SY_MAX(w->spatial, 2),
                               .batch = in[0],
                               .in_channels = in[1],
                               .out_channels = out[1],
                               .groups = sy_node_int(node, "group", 1)};
    if (c->groups < 1 || weights[0] != out[1] || weights[1] * c->groups != in[1] ||
        out[1] % c->groups)
        return sy_cutr_refuse(node, "weights, channels and groups do not fit together");
    memcpy(c->in, w->in, sizeof c->in);
    memcpy(c->out, w->out, sizeof c->out);
    memcpy(c->kernel, w->kernel, sizeof c->kernel);
    memcpy(c->strides, w->strides, sizeof c->strides);
    memcpy(c->dilations, w->dilations, sizeof c->dilations);
    memcpy(c->pads, w->left, sizeof c->pads);
    return SY_OK;
}

/* The move between the input and the inside of its padded copy. */
static void inside_move(struct sy_trainer *t, const struct sy_cutr_node *record, int plain,
                        int padded, bool into, struct sy_math_move *m)
{
    const struct sy_cutr_value *a = &t->values[plain], *b = &t->values[padded];
    int64_t *plain_strides = into ? m->from_strides : m->to_strides;
    int64_t *padded_strides = into ? m->to_strides : m->from_strides;
    int64_t *offset = into ? &m->to_offset : &m->from_offset;
    m->rank = a->rank;
    memcpy(m->dims, a->dims, sizeof m->dims);
    sy_cutr_strides(a, plain_strides);
    sy_cutr_strides(b, padded_strides);
    for (int i = 0; i < a->rank - 2; i++)
        *offset += record->pad_left[a->rank == 3 ? 1 : i] * padded_strides[2 + i];
}

static int pad_source(struct sy_trainer *t, int n, const struct window *w)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_node *record = &t->nodes[n];
    struct sy_cutr_value v = t->values[record->source];
    struct sy_math_move move = {0};
    int plain = record->source, padded;
    for (int i = 0; i < w->spatial; i++) {
        int k = w->spatial == 1 ? 1 : i;
        if (w->left[k] < 0)
            return sy_cutr_refuse(node, "negative pads");
        v.dims[2 + i] += w->left[k] + SY_MAX(w->right[k], (int64_t)0);
        record->conv.in[k] = v.dims[2 + i];
        record->pad_left[k] = w->left[k];
        record->conv.pads[k] = 0;
    }
    record->padded = true;
    SY_TRY(sy_cutr_value_typed(t, v.dtype, v.rank, v.dims, true, false, &padded));
    SY_TRY(sy_cutr_fill(t, SY_CUTR_FORWARD, node->name, padded, 0));
    inside_move(t, record, plain, padded, true, &move);
    record->source = padded;
    return sy_cutr_move(t, SY_CUTR_FORWARD, node->name, &move, plain, padded);
}

/* args: a, b, bias, result */
static int run_conv(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->conv(t->math, step->plan, sy_cutr_pointer(t, step->args[0]),
                        sy_cutr_pointer(t, step->args[1]), sy_cutr_pointer(t, step->args[2]), NULL,
                        sy_cutr_pointer(t, step->args[3]), sy_cutr_scratch(t));
}

int sy_cutr_add_conv(struct sy_trainer *t, unsigned when, const char *name,
                     const struct sy_math_conv *conv, const int *args)
{
    struct sy_cutr_step *step;
    SY_TRY(sy_cutr_step_new(t, when, name, run_conv, args, 4, &step));
    int64_t group_channels = conv->in_channels / conv->groups;
    double flop = 2.0 * (double)conv->batch * (double)conv->out_channels * (double)group_channels;
    for (int i = 0; i < SY_MATH_SPATIAL; i++)
        flop *= (double)conv->out[i] * (double)conv->kernel[i];
    step->cost_ns += (uint64_t)(flop / FLOP_PER_NS);
    step->conv = *conv;
    step->plan_kind = SY_CUTR_CONV_PLAN;
    return SY_OK;
}

static int bias_of(const struct sy_node *node)
{
    return node->n_inputs > 2 ? node->inputs[2] : -1;
}

int sy_cutr_conv_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_node *record = &t->nodes[n];
    struct window w;
    int64_t dims[SY_MAX_RANK];
    int bias, out;
    SY_TRY(describe_conv(t, node, &w, &record->conv));
    int rank = sy_cutr_dims(t, node->outputs[0], dims), source, weights;
    SY_TRY(rank);
    bias = bias_of(node);
    if (bias >= 0 && sy_cutr_elements(t, bias) != record->conv.out_channels)
        return sy_cutr_refuse(node, "a bias that does not fit the channels");
    enum sy_dtype type = record->conv.type;
    SY_TRY(
        sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[1], SY_CUTR_LAST, type, &weights));
    if (bias >= 0)
        SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, bias, SY_CUTR_PLAIN, &bias));
    SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_LAST, type, &source));
    t->nodes[n].source = source;
    if (!is_symmetric(&w))
        SY_TRY(pad_source(t, n, &w));
    SY_TRY(sy_cutr_result_typed(t, node->outputs[0], true, type, &out));
    struct sy_math_conv conv = record->conv;
    conv.has_bias = bias >= 0;
    conv.wide_scratch = true;
    return sy_cutr_add_conv(t, SY_CUTR_FORWARD, node->name, &conv,
                            (int[]){record->source, weights, bias, out});
}

static int run_columns(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->columns(t->math, &step->columns, sy_cutr_pointer(t, step->args[0]), NULL, NULL,
                           sy_cutr_pointer(t, step->args[1]), sy_cutr_scratch(t));
}

int sy_cutr_bias_gradient(struct sy_trainer *t, const char *name, int tensor, int gradient,
                          int64_t columns)
{
    struct sy_cutr_step *step;
    int row;
    SY_TRY(sy_cutr_diff_begin(t, tensor, false, &row));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, name, run_columns, (int[]){gradient, row}, 2, &step));
    step->columns = (struct sy_math_columns){.kind = SY_COLUMNS_SUM,
                                             .rows = sy_cutr_count(&t->values[gradient]) / columns,
                                             .columns = columns,
                                             .a_type = t->values[gradient].dtype};
    return sy_cutr_diff_end(t, tensor, row);
}

static int conv_backward_data(struct sy_trainer *t, int n, int dy)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_cutr_node *record = &t->nodes[n];
    struct sy_math_conv conv = record->conv;
    struct sy_cutr_value v = t->values[record->source];
    struct sy_math_move move = {0};
    int dx, weights, plain;
    conv.direction = SY_MATH_DATA;
    SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_TRAIN, node->inputs[1], SY_CUTR_LAST, conv.type,
                                 &weights));
    if (!record->padded)
        SY_TRY(sy_cutr_diff_begin_typed(t, node->inputs[0], true, conv.type, &dx));
    else
        SY_TRY(sy_cutr_value_typed(t, conv.type, v.rank, v.dims, true, false, &dx));
    SY_TRY(sy_cutr_add_conv(t, SY_CUTR_TRAIN, node->name, &conv, (int[]){dy, weights, -1, dx}));
    if (!record->padded)
        return sy_cutr_diff_end(t, node->inputs[0], dx);
    SY_TRY(sy_cutr_diff_begin_typed(t, node->inputs[0], true, conv.type, &plain));
    inside_move(t, record, plain, dx, false, &move);
    SY_TRY(sy_cutr_move(t, SY_CUTR_TRAIN, node->name, &move, dx, plain));
    return sy_cutr_diff_end(t, node->inputs[0], plain);
}

int sy_cutr_conv_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_cutr_node *record = &t->nodes[n];
    struct sy_math_conv conv = record->conv;
    int dy, dw, bias = bias_of(node);
    SY_TRY(sy_cutr_as_typed(t, SY_CUTR_TRAIN, gradient, true, conv.type, &dy));
    if (sy_cutr_needs(t, bias))
        SY_TRY(sy_cutr_bias_gradient(t, node->name, bias, dy, conv.out_channels));
    if (sy_cutr_needs(t, node->inputs[1])) {
        SY_TRY(sy_cutr_diff_begin_typed(t, node->inputs[1], true, conv.type, &dw));
        conv.direction = SY_MATH_WEIGHTS;
        SY_TRY(sy_cutr_add_conv(t, SY_CUTR_TRAIN, node->name, &conv,
                                (int[]){record->source, dy, -1, dw}));
        SY_TRY(sy_cutr_diff_end(t, node->inputs[1], dw));
    }
    return sy_cutr_needs(t, node->inputs[0]) ? conv_backward_data(t, n, dy) : SY_OK;
}

/* ---- pools -------------------------------------------------------------------------------------------- */

static int run_pool(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->pool(t->math, &step->pool, sy_cutr_pointer(t, step->args[0]),
                        sy_cutr_pointer(t, step->args[1]));
}

static int run_pool_gradient(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->pool_gradient(t->math, &step->pool, sy_cutr_pointer(t, step->args[0]),
                                 sy_cutr_pointer(t, step->args[1]),
                                 sy_cutr_pointer(t, step->args[2]));
}

/* Strides as device_math.h has them: batch, channel, spatial; a single spatial dimension is the second. */
static void pool_strides(const struct sy_cutr_value *v, int64_t *out)
{
    int64_t strides[SY_MAX_RANK];
    sy_cutr_strides(v, strides);
    memset(out, 0, (2 + SY_MATH_SPATIAL) * sizeof *out);
    out[0] = strides[0];
    out[1] = strides[1];
    for (int i = 0; i < v->rank - 2; i++)
        out[2 + (v->rank == 3 ? 1 : i)] = strides[2 + i];
}

static int describe_pool(struct sy_trainer *t, const struct sy_node *node, struct sy_math_pool *p)
{
    struct window w;
    int64_t dims[SY_MAX_RANK], kernel[SY_MATH_SPATIAL];
    bool global = node->op == SY_OP_GLOBAL_AVERAGE_POOL || node->op == SY_OP_GLOBAL_MAX_POOL;
    int rank = sy_cutr_dims(t, node->inputs[0], dims);
    SY_TRY(rank);
    if (rank < 3 || rank > 5)
        return sy_cutr_refuse(node, "only 1 to 3 spatial dimensions");
    for (int i = 0; i < rank - 2; i++)
        kernel[i] = sy_node_int_at(node, "kernel_shape", i, 1);
    SY_TRY(read_window(t, node, global ? NULL : kernel, &w));
    *p = (struct sy_math_pool){.max =
                                   node->op == SY_OP_MAX_POOL || node->op == SY_OP_GLOBAL_MAX_POOL,
                               .count_padding = node->op == SY_OP_AVERAGE_POOL &&
                                                sy_node_int(node, "count_include_pad", 0),
                               .batch = dims[0],
                               .channels = dims[1]};
    memcpy(p->in, w.in, sizeof p->in);
    memcpy(p->out, w.out, sizeof p->out);
    memcpy(p->kernel, w.kernel, sizeof p->kernel);
    memcpy(p->strides, w.strides, sizeof p->strides);
    memcpy(p->dilations, w.dilations, sizeof p->dilations);
    memcpy(p->pads, w.left, sizeof p->pads);
    for (int i = 0; p->count_padding && i < w.spatial; i++)
        if (w.right[w.spatial == 1 ? 1 : i] > sy_node_int_at(node, "pads", w.spatial + i, 0) &&
            !sy_node_attr(node, "auto_pad"))
            return sy_cutr_refuse(node, "ceil_mode together with count_include_pad");
    return SY_OK;
}

int sy_cutr_pool_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_node *record = &t->nodes[n];
    struct sy_cutr_step *step;
    int out;
    SY_TRY(describe_pool(t, node, &record->pool));
    SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_LAST, SY_DTYPE_NONE,
                                 &record->source));
    record->pool.type = t->values[record->source].dtype;
    SY_TRY(sy_cutr_result_typed(t, node->outputs[0], true, record->pool.type, &out));
    pool_strides(&t->values[record->source], record->pool.in_strides);
    pool_strides(&t->values[out], record->pool.out_strides);
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_FORWARD, node->name, run_pool, (int[]){record->source, out},
                            2, &step));
    step->pool = record->pool;
    return SY_OK;
}

int sy_cutr_pool_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_cutr_node *record = &t->nodes[n];
    struct sy_cutr_step *step;
    int dy, dx;
    SY_TRY(sy_cutr_as_typed(t, SY_CUTR_TRAIN, gradient, true, record->pool.type, &dy));
    SY_TRY(sy_cutr_diff_begin_typed(t, node->inputs[0], true, record->pool.type, &dx));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_pool_gradient,
                            (int[]){record->source, dy, dx}, 3, &step));
    step->pool = record->pool;
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

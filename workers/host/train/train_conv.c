/* Convolution and linear layers: Conv, Gemm, MatMul with constant weights. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

/* A primitive descriptor from an operation descriptor, or the node's refusal. */
static int make_pd(struct sy_trainer *t, const struct sy_node *node, const void *desc,
                   dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint, const char *what,
                   dnnl_primitive_desc_t *out)
{
    return sy_tr_check(dnnl_primitive_desc_create(out, desc, attr, t->engine, hint), what,
                       node->name);
}

/* Index of the bias input; for a MatMul where the pass put it. */
static int bias_of(const struct sy_node *node)
{
    int at = node->op == SY_OP_MATMUL ? node->bias_input : 2;
    return at >= 0 && node->n_inputs > at ? node->inputs[at] : -1;
}

static int use_bias(struct sy_trainer *t, int n, int64_t n_outputs, int *value)
{
    int bias = bias_of(&t->graph->nodes[n]);
    *value = -1;
    if (bias < 0)
        return SY_OK;
    dnnl_memory_desc_t md = sy_tr_plain(1, &n_outputs);
    return sy_tr_param_use(t, bias, &md, &md, true, &t->nodes[n].bias, value);
}

/* An activation that was fused computes into this node's output; the activation's node passes it on. */
static int add_forward_step(struct sy_trainer *t, int n, int source, int weights, int bias,
                            int *out)
{
    struct sy_tr_node *record = &t->nodes[n];
    SY_TRY(sy_tr_value_new(t, sy_tr_query(record->forward, dnnl_query_dst_md), false, out));
    struct sy_tr_arg args[] = {{DNNL_ARG_SRC, source},
                               {DNNL_ARG_WEIGHTS, weights},
                               {DNNL_ARG_BIAS, bias},
                               {DNNL_ARG_DST, *out}};
    return sy_tr_add_primitive(t, SY_TR_FORWARD, t->graph->nodes[n].name, record->forward, args, 4);
}

/* ---- convolution -------------------------------------------------------------------------------- */

struct conv {
    struct sy_tr_window window;
    int rank, weights_rank;
    dnnl_dims_t in, out, weights; /* weights: with groups if there are any */
    int64_t groups;
    dnnl_memory_desc_t source, filter, bias, destination; /* layout any */
    dnnl_memory_desc_t gradient;                          /* of the filter: float32 always */
};

/* Layout of activations between convolutions: oneDNN's preference, unless configured otherwise. */
static dnnl_memory_desc_t activations_md(const struct sy_trainer *t, int rank, const int64_t *dims)
{
    static const dnnl_format_tag_t last[] = {dnnl_nwc, dnnl_nhwc, dnnl_ndhwc};
    dnnl_memory_desc_t md = sy_tr_any_product(t, rank, dims);
    if (t->is_channels_last)
        dnnl_memory_desc_init_by_tag(&md, rank, dims, md.data_type, last[rank - 3]);
    return md;
}

static int conv_weights_dims(const struct sy_trainer *t, const struct sy_node *node, struct conv *c)
{
    int64_t dims[SY_MAX_RANK];
    SY_TRY(sy_tr_dims(t, node->inputs[1], dims));
    c->groups = sy_node_int(node, "group", 1);
    if (c->groups < 1 || dims[0] % c->groups || dims[1] * c->groups != c->in[1] || c->rank < 3 ||
        c->rank > 5)
        return sy_tr_refuse(node, "weights, channels and groups do not fit together");
    int at = 0;
    if (c->groups > 1)
        c->weights[at++] = c->groups;
    c->weights[at++] = dims[0] / c->groups;
    for (int i = 1; i < c->rank; i++)
        c->weights[at++] = dims[i];
    c->weights_rank = at;
    return sy_tr_window(t, node, dims + 2, &c->window);
}

static int conv_describe(const struct sy_trainer *t, int n, struct conv *c)
{
    const struct sy_node *node = &t->graph->nodes[n];
    memset(c, 0, sizeof *c);
    SY_TRY(c->rank = sy_tr_dims(t, node->inputs[0], c->in));
    SY_TRY(sy_tr_dims(t, node->outputs[0], c->out));
    SY_TRY(conv_weights_dims(t, node, c));
    c->source = activations_md(t, c->rank, c->in);
    c->filter = sy_tr_any_product(t, c->weights_rank, c->weights);
    c->gradient = sy_tr_any(c->weights_rank, c->weights);
    c->bias = bias_of(node) >= 0 ? sy_tr_any(1, &c->out[1]) : (dnnl_memory_desc_t){0};
    c->destination = activations_md(t, c->rank, c->out);
    return SY_OK;
}

static int conv_forward_pd(struct sy_trainer *t, int n, const struct conv *c)
{
    const struct sy_node *node = &t->graph->nodes[n];
    dnnl_convolution_desc_t desc;
    dnnl_primitive_attr_t attr;
    SY_TRY(sy_tr_check(dnnl_dilated_convolution_forward_desc_init(
                           &desc, dnnl_forward_training, dnnl_convolution_direct, &c->source,
                           &c->filter, c->bias.ndims ? &c->bias : NULL, &c->destination,
                           c->window.stride, c->window.dilation, c->window.before, c->window.after),
                       "convolution", node->name));
    SY_TRY(sy_tr_fused_attr(t, n, &attr));
    int status = make_pd(t, node, &desc, attr, NULL, "convolution", &t->nodes[n].forward);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

int sy_tr_conv_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_node *record = &t->nodes[n];
    struct conv c;
    int weights, bias;
    SY_TRY(conv_describe(t, n, &c));
    SY_TRY(conv_forward_pd(t, n, &c));
    SY_TRY(sy_tr_as(t, SY_TR_FORWARD, t->tensors[node->inputs[0]].value,
                    sy_tr_query(record->forward, dnnl_query_src_md), &record->source));
    dnnl_memory_desc_t plain = sy_tr_plain(c.weights_rank, c.weights);
    SY_TRY(sy_tr_param_use(t, node->inputs[1], &plain,
                           sy_tr_query(record->forward, dnnl_query_weights_md), true,
                           &record->weights, &weights));
    SY_TRY(use_bias(t, n, c.out[1], &bias));
    return add_forward_step(t, n, record->source, weights, bias,
                            &t->tensors[node->outputs[0]].value);
}

/* Steps shared by convolution and inner product: the descriptors differ, the arguments do not. */
static int add_backward_weights(struct sy_trainer *t, int n, int gradient, int source,
                                dnnl_primitive_desc_t pd)
{
    struct sy_tr_node *record = &t->nodes[n];
    int diff, from, weights, bias = -1;
    if (t->params[record->weights].gradient < 0)
        return record->bias < 0 || t->params[record->bias].gradient < 0
                   ? SY_OK
                   : sy_tr_refuse(&t->graph->nodes[n], "a trained bias with frozen weights");
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, gradient, sy_tr_query(pd, dnnl_query_diff_dst_md), &diff));
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, source, sy_tr_query(pd, dnnl_query_src_md), &from));
    SY_TRY(sy_tr_param_gradient(t, record->weights, sy_tr_query(pd, dnnl_query_diff_weights_md),
                                &weights));
    if (record->bias >= 0)
        SY_TRY(sy_tr_param_gradient(t, record->bias,
                                    dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 1),
                                    &bias));
    struct sy_tr_arg args[] = {{DNNL_ARG_SRC, from},
                               {DNNL_ARG_DIFF_DST, diff},
                               {DNNL_ARG_DIFF_WEIGHTS, weights},
                               {DNNL_ARG_DIFF_BIAS, bias}};
    SY_TRY(sy_tr_add_primitive(t, SY_TR_TRAIN, t->graph->nodes[n].name, pd, args, 4));
    SY_TRY(sy_tr_param_commit(t, record->weights, weights));
    return record->bias >= 0 ? sy_tr_param_commit(t, record->bias, bias) : SY_OK;
}

static int add_backward_data(struct sy_trainer *t, int n, int gradient, dnnl_primitive_desc_t pd,
                             int *out)
{
    int diff, weights;
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, gradient, sy_tr_query(pd, dnnl_query_diff_dst_md), &diff));
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, t->params[t->nodes[n].weights].value,
                    sy_tr_query(pd, dnnl_query_weights_md), &weights));
    SY_TRY(sy_tr_value_new(t, sy_tr_query(pd, dnnl_query_diff_src_md), false, out));
    struct sy_tr_arg args[] = {
        {DNNL_ARG_DIFF_DST, diff}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DIFF_SRC, *out}};
    return sy_tr_add_primitive(t, SY_TR_TRAIN, t->graph->nodes[n].name, pd, args, 3);
}

static int conv_backward_weights(struct sy_trainer *t, int n, int gradient, const struct conv *c)
{
    const struct sy_node *node = &t->graph->nodes[n];
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd;
    SY_TRY(sy_tr_check(dnnl_dilated_convolution_backward_weights_desc_init(
                           &desc, dnnl_convolution_direct, &c->source, &c->gradient,
                           c->bias.ndims ? &c->bias : NULL, &c->destination, c->window.stride,
                           c->window.dilation, c->window.before, c->window.after),
                       "convolution backward weights", node->name));
    SY_TRY(
        make_pd(t, node, &desc, t->attr, t->nodes[n].forward, "convolution backward weights", &pd));
    int status = add_backward_weights(t, n, gradient, t->nodes[n].source, pd);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static int conv_backward_data(struct sy_trainer *t, int n, int gradient, const struct conv *c)
{
    const struct sy_node *node = &t->graph->nodes[n];
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd;
    int diff_source;
    SY_TRY(sy_tr_check(dnnl_dilated_convolution_backward_data_desc_init(
                           &desc, dnnl_convolution_direct, &c->source, &c->filter, &c->destination,
                           c->window.stride, c->window.dilation, c->window.before, c->window.after),
                       "convolution backward data", node->name));
    SY_TRY(make_pd(t, node, &desc, t->attr, t->nodes[n].forward, "convolution backward data", &pd));
    int status = add_backward_data(t, n, gradient, pd, &diff_source);
    dnnl_primitive_desc_destroy(pd);
    SY_TRY(status);
    return sy_tr_gradient_add(t, node->inputs[0], diff_source);
}

int sy_tr_conv_backward(struct sy_trainer *t, int n, int gradient)
{
    struct conv c;
    SY_TRY(conv_describe(t, n, &c));
    SY_TRY(conv_backward_weights(t, n, gradient, &c));
    if (!t->tensors[t->graph->nodes[n].inputs[0]].needs_gradient)
        return SY_OK;
    return conv_backward_data(t, n, gradient, &c);
}

/* ---- linear ------------------------------------------------------------------------------------- */

struct linear {
    int64_t rows, in, out;
    dnnl_memory_desc_t source, weights, bias, destination; /* layout any, two-dimensional */
    dnnl_memory_desc_t plain_weights;                      /* as the model has them */
    dnnl_memory_desc_t gradient;                           /* of the weights: float32 always */
};

static int linear_describe(const struct sy_trainer *t, int n, struct linear *l)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int64_t in[SY_MAX_RANK], weights[SY_MAX_RANK];
    memset(l, 0, sizeof *l);
    int rank = sy_tr_dims(t, node->inputs[0], in);
    SY_TRY(rank);
    if (rank < 2 || t->graph->tensors[node->inputs[1]].shape.rank != 2)
        return sy_tr_refuse(node, "weights must be a constant matrix");
    SY_TRY(sy_tr_dims(t, node->inputs[1], weights));
    bool is_out_first = node->op == SY_OP_GEMM && sy_node_int(node, "transB", 0);
    l->in = weights[is_out_first ? 1 : 0];
    l->out = weights[is_out_first ? 0 : 1];
    l->rows = 1;
    for (int i = 0; i < rank - 1; i++)
        l->rows *= in[i];
    if (in[rank - 1] != l->in)
        return sy_tr_refuse(node, "input and weights do not fit together");
    int64_t source[] = {l->rows, l->in}, matrix[] = {l->out, l->in},
            destination[] = {l->rows, l->out};
    l->source = sy_tr_any_product(t, 2, source);
    l->weights = sy_tr_any_product(t, 2, matrix);
    l->gradient = sy_tr_any(2, matrix);
    l->bias = bias_of(node) >= 0 ? sy_tr_any(1, &l->out) : (dnnl_memory_desc_t){0};
    l->destination = sy_tr_any_product(t, 2, destination);
    const dnnl_dims_t dims = {l->out, l->in},
                      strides = {is_out_first ? l->in : 1, is_out_first ? 1 : l->out};
    return sy_tr_check(
        dnnl_memory_desc_init_by_strides(&l->plain_weights, 2, dims, dnnl_f32, strides), "weights",
        node->name);
}

/* Rows and columns: a matrix over a plain tensor of any rank. */
static int as_matrix(struct sy_trainer *t, unsigned when, int value, int64_t rows, int64_t columns,
                     int *out)
{
    int64_t dims[] = {rows, columns};
    if (t->values[value].md.ndims == 2) {
        *out = value;
        return SY_OK;
    }
    int plain;
    SY_TRY(sy_tr_as_plain(t, when, value, &plain));
    dnnl_memory_desc_t md = sy_tr_plain(2, dims);
    return sy_tr_value_view(t, plain, &md, out);
}

static int from_matrix(struct sy_trainer *t, unsigned when, int value, int tensor, int *out)
{
    int64_t dims[SY_MAX_RANK];
    int rank = sy_tr_dims(t, tensor, dims), plain;
    SY_TRY(rank);
    *out = value;
    if (rank == 2)
        return SY_OK;
    SY_TRY(sy_tr_as_plain(t, when, value, &plain));
    dnnl_memory_desc_t md = sy_tr_plain(rank, dims);
    return sy_tr_value_view(t, plain, &md, out);
}

static int linear_forward_pd(struct sy_trainer *t, int n, const struct linear *l)
{
    const struct sy_node *node = &t->graph->nodes[n];
    dnnl_inner_product_desc_t desc;
    dnnl_primitive_attr_t attr;
    SY_TRY(sy_tr_check(
        dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, &l->source, &l->weights,
                                             l->bias.ndims ? &l->bias : NULL, &l->destination),
        "inner product", node->name));
    SY_TRY(sy_tr_fused_attr(t, n, &attr));
    int status = make_pd(t, node, &desc, attr, NULL, "inner product", &t->nodes[n].forward);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

int sy_tr_linear_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_node *record = &t->nodes[n];
    struct linear l;
    int weights, bias, matrix, out;
    SY_TRY(linear_describe(t, n, &l));
    SY_TRY(linear_forward_pd(t, n, &l));
    SY_TRY(as_matrix(t, SY_TR_FORWARD, t->tensors[node->inputs[0]].value, l.rows, l.in, &matrix));
    SY_TRY(sy_tr_as(t, SY_TR_FORWARD, matrix, sy_tr_query(record->forward, dnnl_query_src_md),
                    &record->source));
    SY_TRY(sy_tr_param_use(t, node->inputs[1], &l.plain_weights,
                           sy_tr_query(record->forward, dnnl_query_weights_md), true,
                           &record->weights, &weights));
    SY_TRY(use_bias(t, n, l.out, &bias));
    SY_TRY(add_forward_step(t, n, record->source, weights, bias, &out));
    return from_matrix(t, SY_TR_FORWARD, out, node->outputs[0],
                       &t->tensors[node->outputs[0]].value);
}

static int linear_backward_weights(struct sy_trainer *t, int n, int matrix, const struct linear *l)
{
    const struct sy_node *node = &t->graph->nodes[n];
    dnnl_inner_product_desc_t desc;
    dnnl_primitive_desc_t pd;
    SY_TRY(sy_tr_check(
        dnnl_inner_product_backward_weights_desc_init(
            &desc, &l->source, &l->gradient, l->bias.ndims ? &l->bias : NULL, &l->destination),
        "inner product backward weights", node->name));
    SY_TRY(make_pd(t, node, &desc, t->attr, t->nodes[n].forward, "inner product backward weights",
                   &pd));
    int status = add_backward_weights(t, n, matrix, t->nodes[n].source, pd);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static int linear_backward_data(struct sy_trainer *t, int n, int matrix, const struct linear *l)
{
    const struct sy_node *node = &t->graph->nodes[n];
    dnnl_inner_product_desc_t desc;
    dnnl_primitive_desc_t pd;
    int diff_source, shaped;
    SY_TRY(sy_tr_check(
        dnnl_inner_product_backward_data_desc_init(&desc, &l->source, &l->weights, &l->destination),
        "inner product backward data", node->name));
    SY_TRY(
        make_pd(t, node, &desc, t->attr, t->nodes[n].forward, "inner product backward data", &pd));
    int status = add_backward_data(t, n, matrix, pd, &diff_source);
    dnnl_primitive_desc_destroy(pd);
    SY_TRY(status);
    SY_TRY(from_matrix(t, SY_TR_TRAIN, diff_source, node->inputs[0], &shaped));
    return sy_tr_gradient_add(t, node->inputs[0], shaped);
}

int sy_tr_linear_backward(struct sy_trainer *t, int n, int gradient)
{
    struct linear l;
    int matrix;
    SY_TRY(linear_describe(t, n, &l));
    SY_TRY(as_matrix(t, SY_TR_TRAIN, gradient, l.rows, l.out, &matrix));
    SY_TRY(linear_backward_weights(t, n, matrix, &l));
    if (!t->tensors[t->graph->nodes[n].inputs[0]].needs_gradient)
        return SY_OK;
    return linear_backward_data(t, n, matrix, &l);
}

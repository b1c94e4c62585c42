/* ConvTranspose. */
#include <string.h>

#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

struct deconv {
    int rank, weights_rank;
    dnnl_dims_t in, out, weights, stride, dilation, before, after;
    dnnl_memory_desc_t source, filter, bias, destination; /* layout any */
    dnnl_memory_desc_t plain; /* the model's weights: [in, out / groups, window...] */
};

static void describe_weights(struct deconv *d, const int64_t *dims, int64_t groups)
{
    int at = 0;
    int64_t window = 1;
    dnnl_dims_t strides;
    for (int i = 2; i < d->rank; i++)
        window *= dims[i];
    if (groups > 1) {
        d->weights[at] = groups;
        strides[at++] = dims[0] / groups * dims[1] * window;
    }
    d->weights[at] = dims[1];
    strides[at++] = window;
    d->weights[at] = dims[0] / groups;
    strides[at++] = dims[1] * window;
    for (int i = 2; i < d->rank; i++) {
        window /= dims[i];
        d->weights[at] = dims[i];
        strides[at++] = window;
    }
    d->weights_rank = at;
    memset(&d->plain, 0, sizeof d->plain);
    dnnl_memory_desc_init_by_strides(&d->plain, at, d->weights, dnnl_f32, strides);
}

static int describe(const struct sy_trainer *t, const struct sy_node *node, struct deconv *d)
{
    int64_t dims[SY_MAX_RANK], groups = sy_node_int(node, "group", 1);
    memset(d, 0, sizeof *d);
    SY_TRY(d->rank = sy_tr_dims(t, node->inputs[0], d->in));
    SY_TRY(sy_tr_dims(t, node->outputs[0], d->out));
    SY_TRY(sy_tr_dims(t, node->inputs[1], dims));
    if (d->rank < 3 || d->rank > 5 || groups < 1 || d->in[1] % groups || dims[0] != d->in[1])
        return sy_tr_refuse(node, "weights, channels and groups do not fit together");
    for (int i = 0; i < d->rank - 2; i++) {
        int64_t stride = sy_node_int_at(node, "strides", i, 1),
                dilation = sy_node_int_at(node, "dilations", i, 1);
        int64_t all = (d->in[i + 2] - 1) * stride + (dims[i + 2] - 1) * dilation + 1;
        d->stride[i] = stride;
        d->dilation[i] = dilation - 1;
        d->before[i] = sy_node_int_at(node, "pads", i, 0);
        d->after[i] = all - d->before[i] - d->out[i + 2];
    }
    describe_weights(d, dims, groups);
    d->source = sy_tr_any(d->rank, d->in);
    d->filter = sy_tr_any(d->weights_rank, d->weights);
    d->destination = sy_tr_any(d->rank, d->out);
    if (sy_node_input(node, 2) >= 0)
        d->bias = sy_tr_any(1, &d->out[1]);
    return SY_OK;
}

int sy_tr_deconv_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_node *record = &t->nodes[n];
    struct deconv d;
    dnnl_deconvolution_desc_t desc;
    int weights, bias = -1, *out = &t->tensors[node->outputs[0]].value;
    SY_TRY(describe(t, node, &d));
    SY_TRY(sy_tr_check(dnnl_dilated_deconvolution_forward_desc_init(
                           &desc, dnnl_forward_training, dnnl_deconvolution_direct, &d.source,
                           &d.filter, d.bias.ndims ? &d.bias : NULL, &d.destination, d.stride,
                           d.dilation, d.before, d.after),
                       "deconvolution", node->name));
    SY_TRY(
        sy_tr_check(dnnl_primitive_desc_create(&record->forward, &desc, t->attr, t->engine, NULL),
                    "deconvolution", node->name));
    SY_TRY(sy_tr_as(t, SY_TR_FORWARD, t->tensors[node->inputs[0]].value,
                    sy_tr_query(record->forward, dnnl_query_src_md), &record->source));
    SY_TRY(sy_tr_param_use(t, node->inputs[1], &d.plain,
                           sy_tr_query(record->forward, dnnl_query_weights_md), true,
                           &record->weights, &weights));
    dnnl_memory_desc_t row = sy_tr_plain(1, &d.out[1]);
    if (sy_node_input(node, 2) >= 0)
        SY_TRY(sy_tr_param_use(t, node->inputs[2], &row, &row, true, &record->bias, &bias));
    SY_TRY(sy_tr_value_new(t, sy_tr_query(record->forward, dnnl_query_dst_md), false, out));
    struct sy_tr_arg args[] = {{DNNL_ARG_SRC, record->source},
                               {DNNL_ARG_WEIGHTS, weights},
                               {DNNL_ARG_BIAS, bias},
                               {DNNL_ARG_DST, *out}};
    return sy_tr_add_primitive(t, SY_TR_FORWARD, node->name, record->forward, args, 4);
}

static int backward_weights(struct sy_trainer *t, int n, const struct deconv *d, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_node *record = &t->nodes[n];
    dnnl_deconvolution_desc_t desc;
    dnnl_primitive_desc_t pd;
    int diff, from, weights, bias = -1, status;
    SY_TRY(sy_tr_check(dnnl_dilated_deconvolution_backward_weights_desc_init(
                           &desc, dnnl_deconvolution_direct, &d->source, &d->filter,
                           d->bias.ndims ? &d->bias : NULL, &d->destination, d->stride, d->dilation,
                           d->before, d->after),
                       "deconvolution backward weights", node->name));
    SY_TRY(sy_tr_check(dnnl_primitive_desc_create(&pd, &desc, t->attr, t->engine, record->forward),
                       "deconvolution backward weights", node->name));
    SY_TRY_GOTO(sy_tr_as(t, SY_TR_TRAIN, gradient, sy_tr_query(pd, dnnl_query_diff_dst_md), &diff),
                done);
    SY_TRY_GOTO(sy_tr_as(t, SY_TR_TRAIN, record->source, sy_tr_query(pd, dnnl_query_src_md), &from),
                done);
    SY_TRY_GOTO(sy_tr_param_gradient(t, record->weights,
                                     sy_tr_query(pd, dnnl_query_diff_weights_md), &weights),
                done);
    if (record->bias >= 0)
        SY_TRY_GOTO(sy_tr_param_gradient(
                        t, record->bias,
                        dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 1), &bias),
                    done);
    struct sy_tr_arg args[] = {{DNNL_ARG_SRC, from},
                               {DNNL_ARG_DIFF_DST, diff},
                               {DNNL_ARG_DIFF_WEIGHTS, weights},
                               {DNNL_ARG_DIFF_BIAS, bias}};
    SY_TRY_GOTO(sy_tr_add_primitive(t, SY_TR_TRAIN, node->name, pd, args, 4), done);
    SY_TRY_GOTO(sy_tr_param_commit(t, record->weights, weights), done);
    if (record->bias >= 0)
        SY_TRY_GOTO(sy_tr_param_commit(t, record->bias, bias), done);
done:
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static int backward_data(struct sy_trainer *t, int n, const struct deconv *d, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_node *record = &t->nodes[n];
    dnnl_deconvolution_desc_t desc;
    dnnl_primitive_desc_t pd;
    int diff, weights, out, status;
    SY_TRY(sy_tr_check(dnnl_dilated_deconvolution_backward_data_desc_init(
                           &desc, dnnl_deconvolution_direct, &d->source, &d->filter,
                           &d->destination, d->stride, d->dilation, d->before, d->after),
                       "deconvolution backward data", node->name));
    SY_TRY(sy_tr_check(dnnl_primitive_desc_create(&pd, &desc, t->attr, t->engine, record->forward),
                       "deconvolution backward data", node->name));
    SY_TRY_GOTO(sy_tr_as(t, SY_TR_TRAIN, gradient, sy_tr_query(pd, dnnl_query_diff_dst_md), &diff),
                done);
    SY_TRY_GOTO(sy_tr_as(t, SY_TR_TRAIN, t->params[record->weights].value,
                         sy_tr_query(pd, dnnl_query_weights_md), &weights),
                done);
    SY_TRY_GOTO(sy_tr_value_new(t, sy_tr_query(pd, dnnl_query_diff_src_md), false, &out), done);
    struct sy_tr_arg args[] = {
        {DNNL_ARG_DIFF_DST, diff}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DIFF_SRC, out}};
    SY_TRY_GOTO(sy_tr_add_primitive(t, SY_TR_TRAIN, node->name, pd, args, 3), done);
    SY_TRY_GOTO(sy_tr_gradient_add(t, node->inputs[0], out), done);
done:
    dnnl_primitive_desc_destroy(pd);
    return status;
}

int sy_tr_deconv_backward(struct sy_trainer *t, int n, int gradient)
{
    struct deconv d;
    SY_TRY(describe(t, &t->graph->nodes[n], &d));
    SY_TRY(backward_weights(t, n, &d, gradient));
    return sy_tr_needs(t, t->graph->nodes[n].inputs[0]) ? backward_data(t, n, &d, gradient) : SY_OK;
}

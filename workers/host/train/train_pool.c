/* Pools and batch normalization, and the window arithmetic that pools share with convolutions. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/train/train_internal.h"

/* ---- windows ------------------------------------------------------------------------------------ */

static bool pads_are_automatic(const struct sy_node *node, bool *lower)
{
    const struct sy_attr *attr = sy_node_attr(node, "auto_pad");
    *lower = attr && attr->s && !strcmp(attr->s, "SAME_LOWER");
    return *lower || (attr && attr->s && !strcmp(attr->s, "SAME_UPPER"));
}

/* The padding behind follows from the output's size, which also covers ceil_mode. It may be negative when the window
 * does not reach the end. */
int sy_tr_window(const struct sy_trainer *t, const struct sy_node *node, const int64_t *kernel,
                 struct sy_tr_window *out)
{
    int64_t in[SY_MAX_RANK], size[SY_MAX_RANK];
    int rank = sy_tr_dims(t, node->inputs[0], in);
    SY_TRY(rank);
    SY_TRY(sy_tr_dims(t, node->outputs[0], size));
    bool lower, is_automatic = pads_are_automatic(node, &lower);
    memset(out, 0, sizeof *out);
    out->n = rank - 2;
    for (int i = 0; i < out->n; i++) {
        int64_t stride = sy_node_int_at(node, "strides", i, 1),
                dilation = sy_node_int_at(node, "dilations", i, 1);
        int64_t all = (size[i + 2] - 1) * stride + (kernel[i] - 1) * dilation + 1 - in[i + 2];
        int64_t half = SY_MAX(all, 0) / 2, before = sy_node_int_at(node, "pads", i, 0);
        if (is_automatic)
            before = lower ? SY_MAX(all, 0) - half : half;
        out->kernel[i] = kernel[i];
        out->stride[i] = stride;
        out->dilation[i] = dilation - 1;
        out->before[i] = before;
        out->after[i] = all - before;
    }
    return SY_OK;
}

/* ---- pools -------------------------------------------------------------------------------------- */

static dnnl_alg_kind_t pool_kind(const struct sy_node *node)
{
    if (node->op == SY_OP_MAX_POOL || node->op == SY_OP_GLOBAL_MAX_POOL)
        return dnnl_pooling_max;
    return sy_node_int(node, "count_include_pad", 0) ? dnnl_pooling_avg_include_padding
                                                     : dnnl_pooling_avg_exclude_padding;
}

static int pool_window(const struct sy_trainer *t, const struct sy_node *node,
                       struct sy_tr_window *out)
{
    int64_t in[SY_MAX_RANK], kernel[SY_MAX_RANK];
    int rank = sy_tr_dims(t, node->inputs[0], in);
    SY_TRY(rank);
    if (rank < 3 || rank > 5)
        return sy_tr_refuse(node, "pools want rank 3 to 5");
    for (int i = 2; i < rank; i++)
        kernel[i - 2] = node->op == SY_OP_GLOBAL_AVERAGE_POOL || node->op == SY_OP_GLOBAL_MAX_POOL
                            ? in[i]
                            : sy_node_int_at(node, "kernel_shape", i - 2, 1);
    return sy_tr_window(t, node, kernel, out);
}

static int pool_forward_pd(struct sy_trainer *t, int n, const dnnl_memory_desc_t *source)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_window w;
    dnnl_pooling_v2_desc_t desc;
    int64_t dims[SY_MAX_RANK];
    SY_TRY(pool_window(t, node, &w));
    int rank = sy_tr_dims(t, node->outputs[0], dims);
    SY_TRY(rank);
    dnnl_memory_desc_t destination = sy_tr_any(rank, dims);
    destination.data_type = source->data_type;
    SY_TRY(sy_tr_check(dnnl_pooling_v2_forward_desc_init(
                           &desc, dnnl_forward_training, pool_kind(node), source, &destination,
                           w.stride, w.kernel, w.dilation, w.before, w.after),
                       "pool", node->name));
    return sy_tr_check(
        dnnl_primitive_desc_create(&t->nodes[n].forward, &desc, t->attr, t->engine, NULL), "pool",
        node->name);
}

int sy_tr_pool_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_node *record = &t->nodes[n];
    dnnl_memory_desc_t md = t->values[t->tensors[node->inputs[0]].value].md;
    SY_TRY(pool_forward_pd(t, n, &md));
    int *out = &t->tensors[node->outputs[0]].value;
    record->source = t->tensors[node->inputs[0]].value;
    SY_TRY(sy_tr_value_new(t, sy_tr_query(record->forward, dnnl_query_dst_md), false, out));
    const dnnl_memory_desc_t *workspace = sy_tr_query(record->forward, dnnl_query_workspace_md);
    if (workspace && dnnl_memory_desc_get_size(workspace) > 0)
        SY_TRY(sy_tr_value_new(t, workspace, false, &record->workspace));
    struct sy_tr_arg args[] = {{DNNL_ARG_SRC, record->source},
                               {DNNL_ARG_DST, *out},
                               {DNNL_ARG_WORKSPACE, record->workspace}};
    return sy_tr_add_primitive(t, SY_TR_FORWARD, node->name, record->forward, args, 3);
}

static int pool_backward_pd(struct sy_trainer *t, int n, const dnnl_memory_desc_t *diff_destination,
                            dnnl_primitive_desc_t *out)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_window w;
    dnnl_pooling_v2_desc_t desc;
    SY_TRY(pool_window(t, node, &w));
    dnnl_memory_desc_t diff_source = t->values[t->nodes[n].source].md;
    SY_TRY(sy_tr_check(dnnl_pooling_v2_backward_desc_init(&desc, pool_kind(node), &diff_source,
                                                          diff_destination, w.stride, w.kernel,
                                                          w.dilation, w.before, w.after),
                       "pool backward", node->name));
    return sy_tr_check(
        dnnl_primitive_desc_create(out, &desc, t->attr, t->engine, t->nodes[n].forward),
        "pool backward", node->name);
}

int sy_tr_pool_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    dnnl_primitive_desc_t pd;
    int diff, out;
    if (!t->tensors[node->inputs[0]].needs_gradient)
        return SY_OK;
    dnnl_memory_desc_t md = *sy_tr_query(t->nodes[n].forward, dnnl_query_dst_md);
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, gradient, &md, &diff));
    SY_TRY(sy_tr_value_new(t, &t->values[t->nodes[n].source].md, false, &out));
    SY_TRY(pool_backward_pd(t, n, &md, &pd));
    struct sy_tr_arg args[] = {{DNNL_ARG_DIFF_DST, diff},
                               {DNNL_ARG_DIFF_SRC, out},
                               {DNNL_ARG_WORKSPACE, t->nodes[n].workspace}};
    int status = sy_tr_add_primitive(t, SY_TR_TRAIN, node->name, pd, args, 3);
    dnnl_primitive_desc_destroy(pd);
    SY_TRY(status);
    return sy_tr_gradient_add(t, node->inputs[0], out);
}

/* ---- batch normalization ------------------------------------------------------------------------ */

#define NORM_FLAGS (dnnl_use_scale | dnnl_use_shift)

static int norm_pd(struct sy_trainer *t, const struct sy_node *node, const dnnl_memory_desc_t *md,
                   dnnl_prop_kind_t kind, unsigned flags, dnnl_primitive_desc_t *out)
{
    dnnl_batch_normalization_desc_t desc;
    float epsilon = sy_node_float(node, "epsilon", 1e-5f);
    SY_TRY(sy_tr_check(dnnl_batch_normalization_forward_desc_init(&desc, kind, md, epsilon, flags),
                       "batch normalization", node->name));
    return sy_tr_check(dnnl_primitive_desc_create(out, &desc, t->attr, t->engine, NULL),
                       "batch normalization", node->name);
}

/* A Relu that alone reads the result is part of both directions: the forward pass leaves a mask. */
static unsigned norm_flags(struct sy_trainer *t, int n)
{
    const struct sy_tr_tensor *result = &t->tensors[t->graph->nodes[n].outputs[0]];
    if (result->n_consumers != 1 || result->consumer < 0 ||
        t->graph->nodes[result->consumer].op != SY_OP_RELU)
        return NORM_FLAGS;
    t->nodes[result->consumer].fused_into_producer = true;
    t->nodes[result->consumer].masked_by_producer = true;
    return NORM_FLAGS | dnnl_fuse_norm_relu;
}

/* Scale, shift: trained. Mean, variance: follow the batches' in the update phase. */
static int norm_params(struct sy_trainer *t, int n, int values[4])
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_node *record = &t->nodes[n];
    int64_t dims[SY_MAX_RANK];
    if (node->n_inputs < 5)
        return sy_tr_refuse(node, "it has no running statistics");
    SY_TRY(sy_tr_dims(t, node->inputs[0], dims));
    dnnl_memory_desc_t row = sy_tr_plain(1, &dims[1]);
    float keep = sy_node_float(node, "momentum", 0.9f);
    SY_TRY(sy_tr_value_new(t, &row, false, &record->mean));
    SY_TRY(sy_tr_value_new(t, &row, false, &record->variance));
    SY_TRY(sy_tr_param_use(t, node->inputs[1], &row, &row, true, &record->weights, &values[0]));
    SY_TRY(sy_tr_param_use(t, node->inputs[2], &row, &row, true, &record->bias, &values[1]));
    for (int i = 0; i < 2; i++) {
        int param;
        SY_TRY(sy_tr_param_use(t, node->inputs[3 + i], &row, &row, false, &param, &values[2 + i]));
        t->params[param].batch_statistic = i ? record->variance : record->mean;
        t->params[param].keep = keep;
    }
    return SY_OK;
}

static int norm_steps(struct sy_trainer *t, int n, int source, const int values[4],
                      dnnl_primitive_desc_t evaluate)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_node *record = &t->nodes[n];
    int out = t->tensors[node->outputs[0]].value;
    struct sy_tr_arg train[] = {{DNNL_ARG_SRC, source},
                                {DNNL_ARG_DST, out},
                                {DNNL_ARG_SCALE, values[0]},
                                {DNNL_ARG_SHIFT, values[1]},
                                {DNNL_ARG_MEAN, record->mean},
                                {DNNL_ARG_VARIANCE, record->variance},
                                {DNNL_ARG_WORKSPACE, record->workspace}};
    const dnnl_memory_desc_t *mask = sy_tr_query(record->forward, dnnl_query_workspace_md);
    if (mask && dnnl_memory_desc_get_size(mask) > 0) {
        SY_TRY(sy_tr_value_new(t, mask, false, &record->workspace));
        train[6].value = record->workspace;
    }
    struct sy_tr_arg test[] = {{DNNL_ARG_SRC, source},      {DNNL_ARG_DST, out},
                               {DNNL_ARG_SCALE, values[0]}, {DNNL_ARG_SHIFT, values[1]},
                               {DNNL_ARG_MEAN, values[2]},  {DNNL_ARG_VARIANCE, values[3]}};
    SY_TRY(sy_tr_add_primitive(t, SY_TR_TRAIN, node->name, record->forward, train, 7));
    return sy_tr_add_primitive(t, SY_TR_EVALUATE, node->name, evaluate, test, 6);
}

int sy_tr_norm_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int source = t->tensors[node->inputs[0]].value, values[4];
    dnnl_memory_desc_t md = t->values[source].md;
    dnnl_primitive_desc_t evaluate;
    unsigned flags = norm_flags(t, n);
    SY_TRY(norm_params(t, n, values));
    t->nodes[n].source = source;
    SY_TRY(sy_tr_value_new(t, &md, false, &t->tensors[node->outputs[0]].value));
    SY_TRY(norm_pd(t, node, &md, dnnl_forward_training, flags, &t->nodes[n].forward));
    SY_TRY(norm_pd(t, node, &md, dnnl_forward_inference, flags | dnnl_use_global_stats, &evaluate));
    int status = norm_steps(t, n, source, values, evaluate);
    dnnl_primitive_desc_destroy(evaluate);
    return status;
}

static int norm_backward_step(struct sy_trainer *t, int n, int diff, int out,
                              dnnl_primitive_desc_t pd)
{
    struct sy_tr_node *record = &t->nodes[n];
    dnnl_memory_desc_t row = t->params[record->weights].plain;
    int scale, shift;
    int with_shift = SY_DNNL_BACKWARD_TAKES_SHIFT ? t->params[record->bias].value : -1;
    SY_TRY(sy_tr_param_gradient(t, record->weights, &row, &scale));
    SY_TRY(sy_tr_param_gradient(t, record->bias, &row, &shift));
    struct sy_tr_arg args[] = {{DNNL_ARG_SRC, record->source},
                               {DNNL_ARG_DIFF_DST, diff},
                               {DNNL_ARG_SCALE, t->params[record->weights].value},
                               {DNNL_ARG_SHIFT, with_shift},
                               {DNNL_ARG_MEAN, record->mean},
                               {DNNL_ARG_VARIANCE, record->variance},
                               {DNNL_ARG_DIFF_SRC, out},
                               {DNNL_ARG_DIFF_SCALE, scale},
                               {DNNL_ARG_DIFF_SHIFT, shift},
                               {DNNL_ARG_WORKSPACE, record->workspace}};
    SY_TRY(sy_tr_add_primitive(t, SY_TR_TRAIN, t->graph->nodes[n].name, pd, args, 10));
    SY_TRY(sy_tr_param_commit(t, record->weights, scale));
    return sy_tr_param_commit(t, record->bias, shift);
}

int sy_tr_norm_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    dnnl_memory_desc_t md = t->values[t->nodes[n].source].md;
    dnnl_batch_normalization_desc_t desc;
    dnnl_primitive_desc_t pd;
    unsigned flags = norm_flags(t, n);
    int diff, out;
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, gradient, &md, &diff));
    SY_TRY(sy_tr_value_new(t, &md, false, &out));
    SY_TRY(sy_tr_check(
        dnnl_batch_normalization_backward_desc_init(&desc, dnnl_backward, &md, &md,
                                                    sy_node_float(node, "epsilon", 1e-5f), flags),
        "batch normalization backward", node->name));
    SY_TRY(
        sy_tr_check(dnnl_primitive_desc_create(&pd, &desc, t->attr, t->engine, t->nodes[n].forward),
                    "batch normalization backward", node->name));
    int status = norm_backward_step(t, n, diff, out, pd);
    dnnl_primitive_desc_destroy(pd);
    SY_TRY(status);
    return t->tensors[node->inputs[0]].needs_gradient ? sy_tr_gradient_add(t, node->inputs[0], out)
                                                      : SY_OK;
}

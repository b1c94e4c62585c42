/* From the graph to the list of steps: forward in the graph's order, loss, backward in reverse. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/train_choice.h"
#include "workers/engine/train_rules.h"
#include "workers/host/train/train_internal.h"

int sy_tr_refuse(const struct sy_node *node, const char *why)
{
    return sy_error_set(SY_EUNSUPPORTED, "node '%s' (%s): cannot be trained: %s",
                        node->name ? node->name : "", sy_op_name(node->op), why);
}

/* ---- parameters --------------------------------------------------------------------------------- */

static int n_slots_of(const struct sy_train_options *options)
{
    if (options->optimizer != SY_OPTIMIZER_SGD)
        return 2;
    return options->momentum != 0.0 ? 1 : 0;
}

static int add_param(struct sy_trainer *t, int tensor, const dnnl_memory_desc_t *plain,
                     const dnnl_memory_desc_t *layout, bool trained)
{
    struct sy_tr_param param = {
        .tensor = tensor, .plain = *plain, .gradient = -1, .alias_of = -1, .batch_statistic = -1};
    dnnl_memory_desc_t master = *layout; /* float32, whatever its first user computes in */
    master.data_type = dnnl_f32;
    layout = &master;
    SY_TRY(sy_tr_value_new(t, layout, true, &param.value));
    if (trained) {
        SY_TRY(sy_tr_value_new(t, layout, true, &param.gradient));
        param.n_slots = n_slots_of(&t->options);
        for (int i = 0; i < param.n_slots; i++)
            SY_TRY(sy_tr_value_new(t, layout, true, &param.slots[i]));
    }
    struct sy_tr_param *added = sy_append(&t->params, &t->n_params, sizeof *added);
    if (!added)
        return SY_ENOMEM_HOST;
    *added = param;
    t->tensors[tensor].param = t->n_params - 1;
    return SY_OK;
}

int sy_tr_param_find(const struct sy_trainer *t, int tensor, const dnnl_memory_desc_t *plain)
{
    for (int p = 0; p < t->n_params; p++)
        if (t->params[p].tensor == tensor && dnnl_memory_desc_equal(&t->params[p].plain, plain))
            return p;
    return -1;
}

/* Another view of a parameter, such as the transposed table at a language model's end. Its gradient joins the parameter's. */
static int add_alias(struct sy_trainer *t, int tensor, const dnnl_memory_desc_t *plain,
                     const dnnl_memory_desc_t *layout)
{
    int of = t->tensors[tensor].param;
    struct sy_tr_param param = {
        .tensor = tensor, .plain = *plain, .gradient = -1, .alias_of = of, .batch_statistic = -1};
    dnnl_memory_desc_t own = t->params[of].plain;
    SY_TRY(sy_tr_as(t, SY_TR_FORWARD, t->params[of].value, &own, &param.value));
    SY_TRY(sy_tr_value_view(t, param.value, plain, &param.value));
    dnnl_memory_desc_t master = *layout;
    master.data_type = dnnl_f32;
    if (t->params[of].gradient >= 0)
        SY_TRY(sy_tr_value_new(t, &master, false, &param.gradient));
    struct sy_tr_param *added = sy_append(&t->params, &t->n_params, sizeof *added);
    if (!added)
        return SY_ENOMEM_HOST;
    *added = param;
    return SY_OK;
}

static int join_alias(struct sy_trainer *t, int alias)
{
    struct sy_tr_param p = t->params[alias];
    dnnl_memory_desc_t own = t->params[p.alias_of].plain;
    int value;
    if (p.gradient < 0 || p.n_contributions == 0)
        return SY_OK;
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, p.gradient, &p.plain, &value));
    SY_TRY(sy_tr_value_view(t, value, &own, &value));
    return sy_tr_param_commit(t, p.alias_of, value);
}

int sy_tr_param_use(struct sy_trainer *t, int tensor, const dnnl_memory_desc_t *plain,
                    const dnnl_memory_desc_t *layout, bool trained, int *param, int *value)
{
    const struct sy_tensor *x = &t->graph->tensors[tensor];
    trained = trained && t->tensors[tensor].needs_gradient;
    if (!x->data || x->dtype != SY_DTYPE_F32)
        return sy_error_set(SY_EUNSUPPORTED,
                            "tensor '%s': a parameter must be a float32 constant of the model",
                            x->name);
    if (x->data_bytes != (size_t)sy_tr_elements(plain) * sizeof(float))
        return sy_error_set(SY_EARG,
                            "tensor '%s': %zu bytes of data where its node wants %lld elements",
                            x->name, x->data_bytes, (long long)sy_tr_elements(plain));
    if (t->tensors[tensor].param < 0)
        SY_TRY(add_param(t, tensor, plain, layout, trained));
    if ((*param = sy_tr_param_find(t, tensor, plain)) < 0) {
        SY_TRY(add_alias(t, tensor, plain, layout));
        *param = t->n_params - 1;
    }
    if (trained != (t->params[*param].gradient >= 0))
        return sy_error_set(SY_EUNSUPPORTED,
                            "tensor '%s': shared by nodes that read it in different ways", x->name);
    return sy_tr_as(t, SY_TR_FORWARD, t->params[*param].value, layout, value);
}

int sy_tr_param_gradient(struct sy_trainer *t, int param, const dnnl_memory_desc_t *md, int *value)
{
    struct sy_tr_param *p = &t->params[param];
    if (p->n_contributions == 0 && dnnl_memory_desc_equal(md, &t->values[p->gradient].md)) {
        *value = p->gradient;
        return SY_OK;
    }
    return sy_tr_value_new(t, md, false, value);
}

static int copy_to_gradient(struct sy_trainer *t, int from, int to)
{
    dnnl_primitive_desc_t pd;
    SY_TRY(sy_tr_check(dnnl_reorder_primitive_desc_create(&pd, &t->values[from].md, t->engine,
                                                          &t->values[to].md, t->engine, t->attr),
                       "reorder", "gradient"));
    struct sy_tr_arg args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    int status = sy_tr_add_primitive(t, SY_TR_TRAIN, "gradient", pd, args, 2);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

int sy_tr_param_commit(struct sy_trainer *t, int param, int value)
{
    int gradient = t->params[param].gradient;
    if (t->params[param].n_contributions++ == 0)
        return value == gradient ? SY_OK : copy_to_gradient(t, value, gradient);
    int same;
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, value, &t->values[gradient].md, &same));
    return sy_tr_add_kernel(t, SY_TR_TRAIN, SY_TR_SUM, "gradient", gradient, gradient, same);
}

/* Never in place: the earlier contribution may be another tensor's gradient too (both inputs of a residual add). */
int sy_tr_gradient_add(struct sy_trainer *t, int tensor, int value)
{
    int before = t->tensors[tensor].gradient, same, sum;
    if (before < 0) {
        t->tensors[tensor].gradient = value;
        return SY_OK;
    }
    dnnl_memory_desc_t md = t->values[before].md;
    SY_TRY(sy_tr_as(t, SY_TR_TRAIN, value, &md, &same));
    SY_TRY(sy_tr_value_new(t, &md, false, &sum));
    SY_TRY(sy_tr_add_kernel(t, SY_TR_TRAIN, SY_TR_SUM, "gradient", sum, before, same));
    t->tensors[tensor].gradient = sum;
    return SY_OK;
}

/* ---- the loss ----------------------------------------------------------------------------------- */

static int build_loss(struct sy_trainer *t, int tensor)
{
    struct sy_tr_tensor *logits = &t->tensors[tensor];
    int64_t batch = t->options.batch, dims[SY_MAX_RANK];
    bool has_classes = t->options.loss == SY_LOSS_SOFTMAX_CROSS_ENTROPY;
    t->node = -1;
    t->is_backward = true;
    if (logits->value < 0 || !logits->needs_gradient)
        return sy_error_set(SY_EUNSUPPORTED, "output '%s' depends on no trainable parameter",
                            t->graph->tensors[tensor].name);
    int rank = sy_tr_dims(t, tensor, dims);
    SY_TRY(rank);
    if (rank < 1 || dims[0] % batch || (has_classes && rank < 2))
        return sy_error_set(SY_EUNSUPPORTED,
                            "output '%s': rank %d with %lld rows; the loss wants [batch, ...%s] "
                            "with batch %lld",
                            t->graph->tensors[tensor].name, rank, (long long)dims[0],
                            has_classes ? ", classes" : "", (long long)batch);
    SY_TRY(sy_tr_as_plain(t, SY_TR_FORWARD, logits->value, &t->logits));
    dnnl_memory_desc_t md = t->values[t->logits].md;
    t->n_outputs = has_classes ? dims[rank - 1] : sy_tr_elements(&md) / batch;
    t->n_positions = sy_tr_elements(&md) / t->n_outputs;
    /* int32 takes four bytes as well */
    int64_t n_labels = has_classes ? t->n_positions : t->n_positions * t->n_outputs;
    dnnl_memory_desc_t label_md = sy_tr_plain(1, &n_labels);
    SY_TRY(sy_tr_value_new(t, &label_md, false, &t->labels));
    int gradient;
    SY_TRY(sy_tr_value_new(t, &md, false, &gradient));
    SY_TRY(sy_tr_add_kernel(t, SY_TR_TRAIN, SY_TR_LOSS, "loss", gradient, t->logits, t->labels));
    return sy_tr_gradient_add(t, tensor, gradient);
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static int count_consumers(struct sy_trainer *t)
{
    const struct sy_graph *g = t->graph;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_inputs; i++)
            if (g->nodes[n].inputs[i] >= 0) {
                t->tensors[g->nodes[n].inputs[i]].n_consumers++;
                t->tensors[g->nodes[n].inputs[i]].consumer = n;
            }
    for (int i = 0; i < g->n_outputs; i++)
        t->tensors[g->outputs[i]].n_consumers++;
    return SY_OK;
}

static int build_inputs(struct sy_trainer *t)
{
    const struct sy_graph *g = t->graph;
    if (g->n_inputs < 1 || g->n_outputs < 1 || g->n_nodes < 1)
        return sy_error_set(SY_EUNSUPPORTED,
                            "model '%s': training wants an input and an output, this has %d and %d",
                            g->name, g->n_inputs, g->n_outputs);
    for (int i = 0; i < g->n_inputs; i++) {
        int64_t dims[SY_MAX_RANK];
        int tensor = g->inputs[i], rank = sy_tr_shape(t, tensor, dims);
        if (rank < 1 || dims[0] != t->options.batch)
            return sy_error_set(SY_EUNSUPPORTED,
                                "input '%s': its first dimension is %lld and not the batch",
                                g->tensors[tensor].name, rank < 1 ? 1 : (long long)dims[0]);
        SY_TRY(sy_tr_result(t, tensor, &t->tensors[tensor].value));
    }
    return SY_OK;
}

static void choose_trained(struct sy_trainer *t)
{
    const struct sy_graph *g = t->graph;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_inputs; i++)
            if (sy_train_is_trained(g, n, i, t->options.frozen))
                t->tensors[g->nodes[n].inputs[i]].needs_gradient = true;
}

static bool reads_gradient(const struct sy_trainer *t, const struct sy_node *node)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (sy_tr_needs(t, node->inputs[i]))
            return true;
    return false;
}

static int build_node(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_gradient_steps *op = sy_tr_gradient_of(node->op);
    bool needs = reads_gradient(t, node) && !(op && op->backward == sy_tr_no_backward);
    if (!op && needs)
        return sy_tr_refuse(node, "the operator has no backward here");
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && t->tensors[node->inputs[i]].value < 0 &&
            !t->graph->tensors[node->inputs[i]].data)
            return sy_tr_refuse(node, "it reads an output of a node that training does not make");
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0)
            t->tensors[node->outputs[i]].needs_gradient =
                needs && t->graph->tensors[node->outputs[i]].dtype == SY_DTYPE_F32;
    t->node = n;
    return op ? op->forward(t, n) : sy_tr_plain_forward(t, n);
}

static int build_forward(struct sy_trainer *t, int n_nodes)
{
    for (int n = 0; n < n_nodes; n++)
        SY_TRY(build_node(t, n));
    return SY_OK;
}

static int build_backward(struct sy_trainer *t, int n_nodes)
{
    for (int n = n_nodes - 1; n >= 0; n--) {
        const struct sy_node *node = &t->graph->nodes[n];
        bool has_gradient = false;
        for (int i = 0; i < node->n_outputs; i++)
            has_gradient |= node->outputs[i] >= 0 && t->tensors[node->outputs[i]].gradient >= 0;
        t->node = n;
        if (has_gradient && sy_tr_needs(t, node->outputs[0]))
            SY_TRY(
                sy_tr_gradient_of(node->op)->backward(t, n, t->tensors[node->outputs[0]].gradient));
    }
    for (int p = 0; p < t->n_params; p++)
        if (t->params[p].alias_of >= 0)
            SY_TRY(join_alias(t, p));
    for (int p = 0; p < t->n_params; p++)
        if (t->params[p].gradient >= 0 && t->params[p].alias_of < 0 &&
            t->params[p].n_contributions == 0)
            return sy_error_set(SY_EUNSUPPORTED, "parameter '%s' has no path to the loss",
                                t->graph->tensors[t->params[p].tensor].name);
    return SY_OK;
}

int sy_tr_build(struct sy_trainer *t)
{
    int n_nodes;
    t->node = -1;
    SY_TRY(count_consumers(t));
    choose_trained(t);
    SY_TRY(build_inputs(t));
    int logits = sy_train_logits(t->graph, t->options.loss, &n_nodes);
    SY_TRY(build_forward(t, n_nodes));
    SY_TRY(build_loss(t, logits));
    SY_TRY(build_backward(t, n_nodes));
    t->node = -1;
    SY_TRY(sy_tr_add_totals(t));
    if (t->options.recomputes)
        SY_TRY(sy_tr_recompute(t));
    return sy_tr_finish_plan(t);
}

/* From the graph to the list of steps: forward in the graph's order, loss, backward in reverse. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/train_choice.h"
#include "workers/engine/train_rules.h"
#include "workers/host/train/train_internal.h"

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
    for (int i = 0; i < g->n_outputs; i++) {
        t->tensors[g->outputs[i]].n_consumers++;
        t->tensors[g->outputs[i]].consumer = -1;
    }
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
            SY_TRY(sy_tr_param_join(t, p));
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

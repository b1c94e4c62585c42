/* From the graph to the list of steps: the batch, forward in the graph's order, loss, backward in reverse; and where buffers lie. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"
#include "workers/engine/train_choice.h"
#include "workers/engine/train_rules.h"
#include "workers/engine/workspace_plan.h"

/* ---- batch and loss ----------------------------------------------------------------------------------- */

static int run_fetch(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->to_device(t->math, t->batch + step->first, sy_cutr_pointer(t, step->args[0]),
                             (uint64_t)step->n);
}

/* A value that the host fills in at offset *at of the batch, which advances behind it. */
static int add_fetch(struct sy_trainer *t, unsigned when, int value, uint64_t *at)
{
    struct sy_cutr_step *step;
    uint64_t bytes = sy_cutr_value_bytes(t, value);
    SY_TRY(sy_cutr_step_new(t, when, "batch", run_fetch, &value, 1, &step));
    step->is_fetch = true;
    step->n = (int64_t)bytes;
    step->first = *at;
    step->cost_ns += bytes / 25; /* a link of 25 GB/s */
    *at += SY_ALIGN_UP(bytes, (uint64_t)SY_CUTR_ALIGN);
    return SY_OK;
}

static int build_inputs(struct sy_trainer *t)
{
    const struct sy_graph *g = t->graph;
    int64_t dims[SY_MAX_RANK];
    int value;
    if (g->n_inputs < 1 || g->n_outputs < 1 || g->n_nodes < 1)
        return sy_error_set(SY_EUNSUPPORTED,
                            "model '%s': training wants an input and an output, this has %d and %d",
                            g->name, g->n_inputs, g->n_outputs);
    for (int i = 0; i < g->n_inputs; i++) {
        int rank = sy_cutr_dims(t, g->inputs[i], dims);
        SY_TRY(rank);
        if (rank < 1 || dims[0] != t->options.batch)
            return sy_error_set(SY_EUNSUPPORTED,
                                "input '%s': its first dimension is not the batch of %lld",
                                g->tensors[g->inputs[i]].name, (long long)t->options.batch);
        SY_TRY(sy_cutr_result(t, g->inputs[i], false, &value));
        t->host_inputs[i] = t->host_labels;
        SY_TRY(add_fetch(t, SY_CUTR_FORWARD, value, &t->host_labels));
    }
    t->batch_bytes = t->host_labels;
    return SY_OK;
}

static int64_t count_labels(const struct sy_trainer *t)
{
    const int32_t *labels = (const int32_t *)(const void *)(t->batch + t->host_labels);
    int64_t n = 0;
    for (int64_t r = 0; r < t->n_positions; r++)
        n += labels[r] >= 0;
    return SY_MAX(n, 1);
}

/* args: logits, labels, diff, loss. The loss leaves at once; it is there long before the backward pass has ended. */
static int run_loss(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    void *loss = sy_cutr_pointer(t, step->args[3]);
    struct sy_math_loss l = step->loss;
    if (l.kind == SY_MATH_CLASSES)
        l.counted = count_labels(t);
    SY_TRY(t->ops->loss(t->math, &l, sy_cutr_pointer(t, step->args[0]),
                        sy_cutr_pointer(t, step->args[1]), sy_cutr_pointer(t, step->args[2]), loss,
                        sy_cutr_scratch(t)));
    SY_TRY(t->ops->to_host(t->math, loss,
                           t->host + t->host_loss + offsetof(struct sy_cutr_news, loss),
                           sizeof(float)));
    SY_TRY(t->ops->mark(t->math, SY_MATH_MARKS - 1));
    t->loss_marked = true;
    return SY_OK;
}

static int build_loss(struct sy_trainer *t, int tensor)
{
    const char *name = t->graph->tensors[tensor].name;
    int64_t batch = t->options.batch;
    bool has_classes = t->options.loss == SY_LOSS_SOFTMAX_CROSS_ENTROPY;
    struct sy_cutr_step *step;
    int diff;
    if (t->tensors[tensor].value < 0 || !t->tensors[tensor].needs_gradient)
        return sy_error_set(SY_EUNSUPPORTED, "output '%s' depends on no trainable parameter", name);
    SY_TRY(sy_cutr_as(t, SY_CUTR_FORWARD, t->tensors[tensor].value, false, &t->logits));
    const struct sy_cutr_value v = t->values[t->logits];
    if (v.rank < 1 || v.dims[0] % batch || (has_classes && v.rank < 2))
        return sy_error_set(SY_EUNSUPPORTED,
                            "output '%s': rank %d with %lld rows; the loss wants [batch, ...%s] "
                            "with batch %lld",
                            name, v.rank, v.rank < 1 ? 1 : (long long)v.dims[0],
                            has_classes ? ", classes" : "", (long long)batch);
    t->n_outputs = has_classes ? v.dims[v.rank - 1] : sy_cutr_count(&v) / batch;
    t->n_positions = sy_cutr_count(&v) / t->n_outputs;
    int64_t n_labels = has_classes ? t->n_positions : sy_cutr_count(&v);
    SY_TRY(
        sy_cutr_value_new(t, 1, &n_labels, false, false, &t->labels)); /* int32: four bytes too */
    SY_TRY(add_fetch(t, SY_CUTR_TRAIN, t->labels, &t->batch_bytes));
    SY_TRY(sy_cutr_value_new(t, v.rank, v.dims, false, false, &diff));
    SY_TRY(sy_cutr_value_new(t, 1, (int64_t[]){1}, false, false, &t->loss_value));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, "loss", run_loss,
                            (int[]){t->logits, t->labels, diff, t->loss_value}, 4, &step));
    step->n_results = 2;
    t->loss_step = t->n_steps - 1;
    step->loss = (struct sy_math_loss){.kind = has_classes                      ? SY_MATH_CLASSES
                                               : t->options.loss == SY_LOSS_BCE ? SY_MATH_LOGITS
                                                                                : SY_MATH_SQUARE,
                                       .rows = t->n_positions,
                                       .columns = t->n_outputs};
    return sy_cutr_diff_end(t, tensor, diff);
}

/* ---- forward and backward ----------------------------------------------------------------------------- */

static void choose_trained(struct sy_trainer *t)
{
    const struct sy_graph *g = t->graph;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_inputs; i++)
            if (sy_train_is_trained(g, n, i, t->options.frozen))
                t->tensors[g->nodes[n].inputs[i]].needs_gradient = true;
}

/* Nodes that the operator's own steps do not support, of other types perhaps, and that no gradient passes, are computed by formula. */
static int forward(struct sy_trainer *t, const struct sy_gradient_steps *op, int n, bool needs)
{
    int n_steps = t->n_steps;
    int status = op ? op->forward(t, n) : SY_EUNSUPPORTED;
    if (status != SY_EUNSUPPORTED || needs)
        return status;
    t->n_steps = n_steps;
    return sy_cutr_formula_forward(t, n);
}

static int build_node(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_gradient_steps *op = sy_cutr_gradient_of(node->op);
    bool needs = false, stops = op && op->backward == sy_cutr_no_backward;
    for (int i = 0; i < node->n_inputs; i++) {
        int tensor = node->inputs[i];
        needs |= !stops && sy_cutr_needs(t, tensor);
        if (tensor >= 0 && t->tensors[tensor].value < 0 && !t->graph->tensors[tensor].data)
            return sy_cutr_refuse(node, "it reads an output that training does not compute");
    }
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0)
            t->tensors[node->outputs[i]].needs_gradient =
                needs && t->graph->tensors[node->outputs[i]].dtype == SY_DTYPE_F32;
    if (!op && needs)
        return sy_cutr_refuse(node, "the operator has no backward here");
    return forward(t, op, n, needs);
}

static int build_backward(struct sy_trainer *t, int n_nodes)
{
    for (int n = n_nodes - 1; n >= 0; n--) {
        const struct sy_node *node = &t->graph->nodes[n];
        bool has_gradient = false, needs = false;
        for (int i = 0; i < node->n_outputs; i++)
            has_gradient |= node->outputs[i] >= 0 && t->tensors[node->outputs[i]].gradient >= 0;
        for (int i = 0; i < node->n_inputs; i++)
            needs |= sy_cutr_needs(t, node->inputs[i]);
        if (has_gradient && needs)
            SY_TRY(sy_cutr_gradient_of(node->op)->backward(t, n,
                                                           t->tensors[node->outputs[0]].gradient));
    }
    for (int p = 0; p < t->n_params; p++)
        if (t->params[p].kind == SY_CUTR_TRAINED && t->params[p].n_contributions == 0)
            return sy_error_set(SY_EUNSUPPORTED, "parameter '%s' has no path to the loss",
                                t->graph->tensors[t->params[p].tensor].name);
    return SY_OK;
}

/* ---- where buffers lie -------------------------------------------------------------------------------- */

static void place(struct sy_trainer *t, int value, uint64_t *at)
{
    struct sy_cutr_buffer *b = &t->buffers[t->values[value].buffer];
    b->offset = *at;
    *at += b->bytes;
}

static bool is_decayed(const struct sy_trainer *t, const struct sy_cutr_param *p)
{
    return !t->options.spares_vectors || t->graph->tensors[p->tensor].shape.rank > 1;
}

/* One of the stretches that an optimizer walks side by side: the decayed in front. */
static uint64_t place_stretch(struct sy_trainer *t, size_t field, int slot, uint64_t at)
{
    for (int decayed = 1; decayed >= 0; decayed--) {
        for (int i = 0; i < t->n_params; i++) {
            const struct sy_cutr_param *p = &t->params[i];
            int value =
                slot >= 0 ? p->slots[slot] : *(const int *)(const void *)((const char *)p + field);
            if (p->kind == SY_CUTR_TRAINED && is_decayed(t, p) == (decayed == 1))
                place(t, value, &at);
        }
        if (decayed && slot < 0 && field == offsetof(struct sy_cutr_param, value))
            t->decayed_bytes = at;
    }
    return at;
}

static void place_persistent(struct sy_trainer *t)
{
    int n_slots = 0;
    uint64_t at = place_stretch(t, offsetof(struct sy_cutr_param, value), -1, 0);
    t->trained_bytes = t->total_offset = at;
    at = place_stretch(t, offsetof(struct sy_cutr_param, gradient), -1, at);
    if (t->options.accumulate > 1) {
        t->total_offset = at;
        at = place_stretch(t, offsetof(struct sy_cutr_param, total), -1, at);
    }
    t->slot_offset = at;
    for (int p = 0; p < t->n_params; p++)
        n_slots = SY_MAX(n_slots, t->params[p].n_slots);
    for (int slot = 0; slot < n_slots; slot++)
        at = place_stretch(t, 0, slot, at);
    for (int p = 0; p < t->n_params; p++) {
        if (t->params[p].kind == SY_CUTR_TRAINED)
            continue;
        place(t, t->params[p].value, &at);
        if (t->params[p].kind == SY_CUTR_STATISTIC && t->options.accumulate > 1)
            place(t, t->params[p].total, &at);
    }
    t->persistent_bytes = at;
}

/* The update phase comes behind the last step and reads the batch's statistics and the gradient's norm. */
static void keep_statistics(struct sy_trainer *t)
{
    for (int p = 0; p < t->n_params; p++)
        if (t->params[p].batch_statistic >= 0)
            t->buffers[t->values[t->params[p].batch_statistic].buffer].last = t->n_steps;
    t->buffers[t->values[t->norm].buffer].last = t->n_steps;
}

static uint64_t scratch_bytes(const struct sy_trainer *t)
{
    for (int s = 0; s < t->n_steps; s++)
        if (t->steps[s].plan_kind == SY_CUTR_CONV_PLAN &&
            (t->steps[s].conv.direction != SY_MATH_FORWARD || t->steps[s].conv.wide_scratch))
            return t->ops->back_scratch_bytes;
    return t->ops->scratch_bytes;
}

static int place_ephemeral(struct sy_trainer *t)
{
    struct sy_interval *intervals = calloc((size_t)t->n_buffers + 1, sizeof *intervals);
    uint64_t bytes = 0;
    int n = 0;
    SY_TRY_ALLOC(intervals, "no memory to place %d buffers", t->n_buffers);
    for (int b = 0; b < t->n_buffers; b++)
        if (!t->buffers[b].persistent && t->buffers[b].first >= 0)
            intervals[n++] = (struct sy_interval){.id = b,
                                                  .first = t->buffers[b].first,
                                                  .last = t->buffers[b].last,
                                                  .bytes = t->buffers[b].bytes};
    int status = sy_workspace_plan(intervals, n, &bytes);
    for (int i = 0; i < n; i++)
        t->buffers[intervals[i].id].offset = intervals[i].offset;
    free(intervals);
    t->scratch_offset = SY_ALIGN_UP(bytes, (uint64_t)SY_CUTR_ALIGN);
    t->ephemeral_bytes = t->scratch_offset + scratch_bytes(t);
    return status;
}

/* ---- lists -------------------------------------------------------------------------------------------- */

static int add_states(struct sy_trainer *t, int param)
{
    const char *name = t->graph->tensors[t->params[param].tensor].name;
    return sy_train_add_states(&t->states, &t->n_states, param, name, t->options.optimizer,
                               t->params[param].n_slots);
}

static int make_lists(struct sy_trainer *t)
{
    for (int s = 0; s < t->n_steps; s++) {
        int *at;
        if (t->steps[s].when & SY_CUTR_TRAIN) {
            if (!(at = sy_append(&t->train_steps, &t->n_train, sizeof *at)))
                return SY_ENOMEM_HOST;
            *at = s;
        }
        if (t->steps[s].when & SY_CUTR_EVALUATE) {
            if (!(at = sy_append(&t->evaluate_steps, &t->n_evaluate, sizeof *at)))
                return SY_ENOMEM_HOST;
            *at = s;
        }
    }
    for (int p = 0; p < t->n_params; p++)
        if (t->params[p].kind != SY_CUTR_FIXED)
            SY_TRY(add_states(t, p));
    return SY_OK;
}

static int make_plans(struct sy_trainer *t)
{
    for (int s = 0; s < t->n_steps; s++) {
        struct sy_cutr_step *step = &t->steps[s];
        int status = SY_OK;
        if (step->plan_kind == SY_CUTR_CONV_PLAN)
            status = t->ops->conv_plan(t->math, &step->conv, &step->plan);
        else if (step->plan_kind == SY_CUTR_MATMUL_PLAN)
            status = t->ops->matmul_plan(t->math, &step->matmul, &step->plan);
        if (status < 0)
            return sy_error_prefix(status, "node %s: ", step->name);
    }
    return SY_OK;
}

static int take_host_memory(struct sy_trainer *t)
{
    void *host;
    t->host_loss = SY_CUTR_BATCHES * t->batch_bytes;
    SY_TRY(t->ops->host_take(
        t->math, t->host_loss + SY_CUTR_ALIGN + SY_CUTR_HEADERS * SY_CUTR_HEADER_BYTES, &host));
    t->host = t->batch = host;
    memset(t->host + t->host_loss, 0, sizeof(struct sy_cutr_news));
    return SY_OK;
}

int sy_cutr_build(struct sy_trainer *t)
{
    int n_nodes;
    choose_trained(t);
    SY_TRY(build_inputs(t));
    int logits = sy_train_logits(t->graph, t->options.loss, &n_nodes);
    for (int n = 0; n < n_nodes; n++)
        SY_TRY(build_node(t, n));
    SY_TRY(build_loss(t, logits));
    SY_TRY(build_backward(t, n_nodes));
    SY_TRY(sy_cutr_add_totals(t));
    if (t->options.recomputes)
        SY_TRY(sy_cutr_recompute(t));
    sy_cutr_find_lifetimes(t);
    keep_statistics(t);
    place_persistent(t);
    SY_TRY(place_ephemeral(t));
    SY_TRY(make_lists(t));
    SY_TRY(make_plans(t));
    return take_host_memory(t);
}

/* Inference: applies the rules in order, folds, and checks the result. */
#include "loader/shape/graph_infer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "loader/graph/graph_bind.h"
#include "loader/graph/string_tensor.h"
#include "loader/infer/deferred.h"
#include "loader/infer/explain.h"
#include "loader/infer/one_batch.h"
#include "loader/infer/sequence_ends.h"
#include "loader/shape/size_facts.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MOST_BYTES (1ll << 40) /* of one tensor: more than any supported machine holds */

/* Reserves room for the constants that rules add, at most one per node. */
static int open_infer(struct sy_infer *in, struct sy_graph *graph)
{
    int *uses;
    *in = (struct sy_infer){.graph = graph, .capacity = graph->n_tensors + graph->n_nodes};
    SY_TRY(sy_graph_alloc((size_t)in->capacity, sizeof(struct sy_dim *), &in->values));
    SY_TRY(sy_graph_alloc((size_t)in->capacity, sizeof *in->fractions, &in->fractions));
    SY_TRY(sy_graph_alloc((size_t)in->capacity, sizeof *in->uses, &in->uses));
    SY_TRY(sy_graph_alloc((size_t)in->capacity, sizeof *in->sequences, &in->sequences));
    SY_TRY(sy_graph_alloc((size_t)in->capacity, sizeof *in->is_dynamic, &in->is_dynamic));
    SY_TRY(sy_graph_use_counts(graph, &uses));
    memcpy(in->uses, uses, (size_t)graph->n_tensors * sizeof *uses);
    free(uses);
    return SY_OK;
}

static void close_infer(struct sy_infer *in)
{
    for (int t = 0; in->values && t < in->capacity; t++)
        free(in->values[t]);
    for (int t = 0; in->fractions && t < in->capacity; t++)
        free(in->fractions[t]);
    for (int t = 0; in->sequences && t < in->capacity; t++)
        sy_sequence_free(in->sequences[t]);
    free(in->values);
    free(in->fractions);
    free(in->uses);
    free(in->sequences);
    free(in->is_dynamic);
}

/* Bytes at batch 1, a dimension of 0 counted as 1: strides are computed even where there is nothing to step over. -1: a dimension or the
 * product is no size that a machine could hold. */
static int64_t extent(const struct sy_tensor *tensor)
{
    int64_t bytes = (int64_t)sy_dtype_bytes(tensor->dtype);
    for (int i = 0; i < tensor->shape.rank; i++) {
        if (sy_dim_is_expr(tensor->shape.dims[i])) /* checked where it gets a number */
            continue;
        int64_t dim = sy_dim_at(tensor->shape.dims[i], 1);
        if (tensor->shape.dims[i].per_batch < 0 || dim < 0 ||
            __builtin_mul_overflow(bytes, SY_MAX(dim, 1), &bytes))
            return -1;
    }
    return bytes <= MOST_BYTES ? bytes : -1;
}

static int check_input(const struct sy_tensor *input)
{
    char text[160];
    if (extent(input) < 0)
        return sy_error_set(SY_ECORRUPT, "input '%.100s' of shape %s: more than 1 TiB", input->name,
                            sy_shape_text(&input->shape, text, sizeof text));
    return SY_OK;
}

static int check_output(const struct sy_node *node, const struct sy_tensor *tensor)
{
    char text[160];
    bool open = sy_shape_is_open(&tensor->shape);
    if ((!open && sy_shape_elements(&tensor->shape, 1) < 0) || sy_dtype_bytes(tensor->dtype) == 0)
        return sy_infer_fail(node, SY_ECORRUPT, "result '%.80s' of shape %s", tensor->name,
                             sy_shape_text(&tensor->shape, text, sizeof text));
    if (extent(tensor) < 0)
        return sy_infer_fail(node, SY_ECORRUPT, "result '%.80s' of shape %s: more than 1 TiB",
                             tensor->name, sy_shape_text(&tensor->shape, text, sizeof text));
    return SY_OK;
}

static int set_numbers(struct sy_node *node, int64_t n, const struct sy_dim *values)
{
    int64_t *numbers;
    for (int64_t i = 0; i < n; i++)
        if (sy_dim_is_expr(values[i]))
            return sy_node_set_sizes(node, "values", (int)n, values);
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *numbers, &numbers));
    for (int64_t i = 0; i < n; i++)
        numbers[i] = values[i].fixed;
    int status = sy_node_set_ints(node, "fixed", (int)n, numbers);
    for (int64_t i = 0; i < n; i++)
        numbers[i] = values[i].per_batch;
    if (status == SY_OK)
        status = sy_node_set_ints(node, "per_batch", (int)n, numbers);
    free(numbers);
    return status;
}

/* Trainable constants are not folded: float tensors of the file with more than one number. */
static bool reads_parameter(const struct sy_infer *in, const struct sy_node *node)
{
    for (int i = 0; i < node->n_inputs; i++) {
        const struct sy_tensor *t =
            node->inputs[i] >= 0 ? &in->graph->tensors[node->inputs[i]] : NULL;
        if (t && t->data && !t->is_derived && t->dtype == SY_DTYPE_F32 &&
            t->data_bytes > sizeof(float))
            return true;
    }
    return false;
}

/* A node whose result is linear in N becomes those numbers: readers that were not folded read them as data, for the run's batch size. */
static int become_numbers(struct sy_infer *in, struct sy_node *node)
{
    int out = node->outputs[0];
    node->op = SY_OP_NUMBERS;
    node->n_inputs = 0;
    for (int i = 0; i < node->n_attrs; i++)
        sy_attr_finish(&node->attrs[i]);
    node->n_attrs = 0;
    return set_numbers(node, sy_shape_elements(&in->graph->tensors[out].shape, 0), in->values[out]);
}

static int refuse_sequences(const struct sy_infer *in, const struct sy_node *node)
{
    for (int i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] < 0 || !in->sequences[node->inputs[i]])
            continue;
        const char *name = in->graph->tensors[node->inputs[i]].name;
        if (node->op == SY_OP_LOOP || node->op == SY_OP_IF)
            return sy_infer_defer(in, node, "input %d, '%.80s', is a sequence", i, name);
        return sy_infer_fail(node, SY_EUNSUPPORTED, "input %d, '%.80s', is a sequence", i, name);
    }
    return SY_OK;
}

static int run_rule(struct sy_infer *in, struct sy_node *node)
{
    sy_infer_rule *rule = sy_infer_rule_of(node->op);
    if (!rule)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "this operator is not supported");
    SY_TRY(refuse_sequences(in, node));
    return rule(in, node);
}

/* A Loop whose body changes between iterations is unrolled, if their number is known. */
static int infer_loop(struct sy_infer *in, int n, bool *replaced)
{
    struct sy_graph *spare;
    SY_TRY(sy_expand_spare_body(in, &in->graph->nodes[n], &spare));
    int status = run_rule(in, &in->graph->nodes[n]);
    if (status == SY_EUNSUPPORTED && spare) {
        *replaced = true;
        return sy_expand_loop(in, n, spare);
    }
    sy_graph_free(spare);
    return status;
}

static int infer_node(struct sy_infer *in, int n)
{
    bool folded = false, replaced;
    SY_TRY(sy_expand_node(in, n, &replaced));
    if (!replaced && in->graph->nodes[n].op == SY_OP_LOOP)
        SY_TRY(infer_loop(in, n, &replaced));
    else if (!replaced)
        SY_TRY(run_rule(in, &in->graph->nodes[n]));
    if (replaced) /* the replacement is inferred next */
        return SY_OK;
    struct sy_node *node = &in->graph->nodes[n];
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0)
            SY_TRY(check_output(node, &in->graph->tensors[node->outputs[i]]));
    if (!in->for_training || !reads_parameter(in, node))
        SY_TRY(sy_fold_node(in, node, &folded));
    if (folded && in->graph->tensors[node->outputs[0]].data)
        sy_node_finish(node);
    else if (folded)
        return become_numbers(in, node);
    return SY_OK;
}

/* A body cannot return sequences. */
static int refuse_sequence_outputs(const struct sy_infer *in)
{
    for (int i = 0; i < in->graph->n_outputs; i++)
        if (in->sequences[in->graph->outputs[i]]) {
            *in->puts_off = true;
            return sy_error_set(SY_EUNSUPPORTED, "output '%.120s' is a sequence",
                                in->graph->tensors[in->graph->outputs[i]].name);
        }
    return SY_OK;
}

/* Outputs that are constants become copies of one, so that a layer produces them. */
static int give_constants_makers(struct sy_graph *graph)
{
    for (int i = 0; i < graph->n_outputs; i++) {
        int out = graph->outputs[i], constant;
        struct sy_tensor *t = &graph->tensors[out];
        if (!t->data)
            continue;
        struct sy_shape shape = t->shape; /* t moves */
        SY_TRY(sy_graph_add_tensor(graph, t->name, t->dtype, &shape, &constant));
        SY_TRY(sy_graph_add_node(graph, SY_OP_IDENTITY, 13, graph->tensors[out].name, 1, &constant,
                                 1, &out, NULL));
        for (int n = 0; n + 1 < graph->n_nodes; n++)
            for (int k = 0; k < graph->nodes[n].n_inputs; k++)
                if (graph->nodes[n].inputs[k] == out)
                    graph->nodes[n].inputs[k] = constant;
        graph->tensors[constant].data = graph->tensors[out].data;
        graph->tensors[constant].data_bytes = graph->tensors[out].data_bytes;
        graph->tensors[constant].is_borrowed = graph->tensors[out].is_borrowed;
        graph->tensors[out].data = NULL;
        graph->tensors[out].data_bytes = 0;
        graph->tensors[out].is_borrowed = false;
    }
    return SY_OK;
}

/* ---- what only the run knows --------------------------------------------------------------------- */

static bool reads_dynamic(const struct sy_infer *in, const struct sy_node *node)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && in->is_dynamic[node->inputs[i]])
            return true;
    return false;
}

static void defer(struct sy_infer *in, const struct sy_node *node)
{
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0)
            in->is_dynamic[node->outputs[i]] = true;
}

/* Restores node n and removes what an expander had added; the node is deferred to the run. */
static int restore(struct sy_infer *in, int n, int n_nodes, const struct sy_node *was)
{
    for (int i = n_nodes; i < in->graph->n_nodes; i++)
        sy_node_finish(&in->graph->nodes[i]);
    in->graph->n_nodes = n_nodes;
    sy_node_finish(&in->graph->nodes[n]);
    in->graph->nodes[n] = *was;
    defer(in, &in->graph->nodes[n]);
    return sy_expand_grow(in); /* what was begun left tensors */
}

static bool is_for_run(const struct sy_infer *in, int status, bool needs_run)
{
    return (status == SY_EUNSUPPORTED && needs_run) ||
           ((in->is_bound || in->is_trial) && (status == SY_EUNSUPPORTED || status == SY_ECORRUPT));
}

/* As infer_node, but a node that needs values known at run only stays as read, and so do the nodes that read its results. */
static int infer_or_defer(struct sy_infer *in, int n)
{
    struct sy_node was;
    struct sy_facts known = {0};
    bool needs_run = false;
    int n_nodes = in->graph->n_nodes;
    if (reads_dynamic(in, &in->graph->nodes[n])) {
        defer(in, &in->graph->nodes[n]);
        return SY_OK;
    }
    if (in->facts)
        SY_TRY(sy_facts_save(in->facts, &known));
    int status = sy_node_clone(&in->graph->nodes[n], &was);
    if (status < 0) {
        free(known.rewrites);
        return status;
    }
    in->puts_off = &needs_run;
    status = infer_node(in, n);
    in->puts_off = NULL;
    if (!is_for_run(in, status, needs_run)) {
        free(known.rewrites);
        sy_node_finish(&was);
        return status;
    }
    if (in->facts) /* nothing was computed that they would be for */
        sy_facts_restore(in->facts, &known);
    if (!in->is_bound && !in->is_trial)
        SY_TRY(sy_explain_note(in, &was));
    return restore(in, n, n_nodes, &was);
}

static int infer_nodes(struct sy_infer *in, bool puts_off)
{
    struct sy_graph *graph = in->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        SY_TRY(puts_off ? infer_or_defer(in, n) : infer_node(in, n));
        if (in->facts && !in->is_body)
            SY_TRY(sy_facts_apply(in));
    }
    if (in->is_bound || in->is_trial)
        return SY_OK;
    SY_TRY(in->is_body ? refuse_sequence_outputs(in) : sy_sequence_outputs(in));
    if (!in->is_body)
        SY_TRY(sy_check_ends(graph));
    if (puts_off)
        SY_TRY(sy_dynamic_gather(in));
    sy_graph_compact(graph);
    SY_TRY(sy_graph_remove_dead(graph));
    return give_constants_makers(graph);
}

static int infer(struct sy_graph *graph, bool for_training, bool *puts_off, struct sy_facts *facts)
{
    struct sy_infer in;
    int status;
    SY_TRY_GOTO(open_infer(&in, graph), out);
    in.for_training = for_training;
    in.puts_off = puts_off;
    in.facts = facts;
    in.is_body = puts_off != NULL;
    status = infer_nodes(&in, !for_training && !puts_off);
    if (status == SY_OK && facts && !in.is_body)
        status = sy_facts_commit(&in);
out:
    close_infer(&in);
    return status;
}

int sy_infer_bound(struct sy_graph *graph, bool *is_dynamic)
{
    struct sy_infer in;
    int status;
    SY_TRY_GOTO(open_infer(&in, graph), out);
    in.is_bound = true;
    status = infer_nodes(&in, true);
    for (int i = 0; status == SY_OK && i < graph->n_outputs; i++)
        is_dynamic[i] = in.is_dynamic[graph->outputs[i]] || in.sequences[graph->outputs[i]];
out:
    close_infer(&in);
    return status;
}

int sy_graph_infer_ready(struct sy_graph *graph, bool **waits)
{
    struct sy_infer in;
    int status;
    SY_TRY_GOTO(open_infer(&in, graph), out);
    in.is_trial = in.is_body = true;
    SY_TRY_GOTO(infer_nodes(&in, true), out);
    SY_TRY_GOTO(sy_graph_alloc((size_t)graph->n_tensors, sizeof **waits, waits), out);
    for (int t = 0; t < graph->n_tensors && t < in.capacity; t++)
        (*waits)[t] = in.is_dynamic[t] || in.sequences[t];
out:
    close_infer(&in);
    return status;
}

int sy_infer_hand_down(const struct sy_infer *in, int outer, struct sy_graph *body, int input)
{
    const struct sy_tensor *from = &in->graph->tensors[outer];
    const struct sy_dim *values = in->values[outer];
    struct sy_shape shape = from->shape;
    int tensor;
    void *data;
    if (!sy_dtype_is_integer(from->dtype) || from->data_bytes > 4096 || (!from->data && !values))
        return SY_OK;
    if (from->data) {
        SY_TRY(sy_graph_alloc(from->data_bytes, 1, &data));
        if (from->data_bytes > 0)
            memcpy(data, from->data, from->data_bytes);
        SY_TRY(sy_graph_add_constant(body, from->name, from->dtype, &shape, data, from->data_bytes,
                                     &tensor));
    } else {
        struct sy_node *numbers;
        SY_TRY(sy_graph_add_tensor(body, from->name, from->dtype, &shape, &tensor));
        SY_TRY(
            sy_graph_add_node(body, SY_OP_NUMBERS, 13, from->name, 0, NULL, 1, &tensor, &numbers));
        SY_TRY(set_numbers(numbers, sy_shape_elements(&shape, 0), values));
    }
    for (int n = 0; n < body->n_nodes; n++)
        for (int i = 0; i < body->nodes[n].n_inputs; i++)
            if (body->nodes[n].inputs[i] == input)
                body->nodes[n].inputs[i] = tensor;
    return SY_OK;
}

int sy_infer_body(struct sy_infer *in, struct sy_node *node, const char *name, int formal,
                  const struct sy_tensor *given, struct sy_graph **body)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    int64_t first = sy_node_int(node, "formal", node->n_inputs);
    if (!attr || attr->kind != SY_ATTR_GRAPH)
        return sy_infer_fail(node, SY_ECORRUPT, "no body '%s'", name);
    struct sy_graph *graph = attr->graph;
    if (first < 0 || first > node->n_inputs || graph->n_inputs != formal + node->n_inputs - first)
        return sy_infer_fail(node, SY_ECORRUPT, "body '%s' has %d inputs", name, graph->n_inputs);
    for (int i = 0; i < graph->n_inputs; i++) {
        int tensor = graph->inputs[i];
        const struct sy_tensor *from = &given[i];
        if (i >= formal) {
            int outer = node->inputs[first + i - formal];
            from = &in->graph->tensors[outer];
            SY_TRY(sy_infer_hand_down(in, outer, graph, tensor));
        }
        graph->tensors[tensor].dtype = from->dtype;
        graph->tensors[tensor].shape = from->shape;
    }
    SY_TRY(sy_graph_sort(graph));
    bool ignored = false;
    int status = infer(graph, in->for_training, in->puts_off ? in->puts_off : &ignored, in->facts);
    if (status < 0)
        return sy_error_prefix(status, "in the body of node '%.80s' (%s, opset %d)", node->name,
                               sy_op_name(node->op), node->opset);
    *body = graph;
    return SY_OK;
}

static int check_inputs(const struct sy_graph *graph)
{
    for (int i = 0; i < graph->n_inputs; i++)
        SY_TRY(check_input(&graph->tensors[graph->inputs[i]]));
    return SY_OK;
}

/* With open sizes: assumptions made about them become the graph's conditions; then chooses usual sizes that satisfy them. */
static int infer_open(struct sy_graph *graph, struct sy_branches *choices)
{
    struct sy_facts facts = {.choices = choices};
    int status = infer(graph, false, NULL, &facts);
    sy_facts_finish(&facts);
    if (status == SY_OK)
        status = sy_dynamic_open_rooms(graph);
    if (status == SY_OK)
        status = sy_graph_find_usual_sizes(graph);
    if (status == SY_EUNSUPPORTED && graph->n_symbols > 0) {
        char text[512];
        snprintf(text, sizeof text, "%s", sy_error_text());
        return sy_error_set(status,
                            "%s (a number for open sizes may help: import --dim %.80s=SIZE)", text,
                            graph->symbols[0].name);
    }
    return status;
}

int sy_infer_one_way(struct sy_graph *graph, struct sy_branches *choices)
{
    SY_TRY(check_inputs(graph));
    if (graph->n_symbols > 0) {
        SY_TRY(infer_open(graph, choices));
    } else {
        SY_TRY(infer(graph, false, NULL, NULL));
        SY_TRY(sy_dynamic_open_rooms(graph));
    }
    return sy_graph_open_strings(graph);
}

int sy_graph_infer_now(struct sy_graph *graph, bool *needs_values)
{
    *needs_values = false;
    SY_TRY(check_inputs(graph));
    return infer(graph, false, needs_values, NULL);
}

int sy_graph_infer_training(struct sy_graph *graph)
{
    SY_TRY(sy_graph_join_batches(graph));
    SY_TRY(check_inputs(graph));
    if (graph->n_symbols > 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "size '%.100s' of an input is open: only the first dimension may be "
                            "when a model is trained (--dim %.100s=SIZE)",
                            graph->symbols[0].name, graph->symbols[0].name);
    return infer(graph, true, NULL, NULL);
}

/* Bodies that are written out where they stand: an If whose condition is known, a Loop that runs a known number of times and carries what a
 * program cannot (sequences, shapes that change), Scan as a Loop. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "loader/graph/loop_condition.h"
#include "loader/shape/branch_choices.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_TRIPS = 512 };

/* ---- If --------------------------------------------------------------------------------------- */

/* Which branch is executed: 1 is `then`. False: known at run only. */
static bool find_branch(const struct sy_infer *in, const struct sy_node *node, int *taken)
{
    int condition = sy_node_input(node, 0);
    const struct sy_tensor *t = condition < 0 ? NULL : &in->graph->tensors[condition];
    if (!t || !t->data || t->dtype != SY_DTYPE_BOOL || t->data_bytes != 1)
        return sy_branches_find(in, node, taken);
    *taken = *(const unsigned char *)t->data != 0;
    return true;
}

bool sy_expand_is_decided(const struct sy_infer *in, const struct sy_node *node)
{
    int taken;
    return find_branch(in, node, &taken);
}

/* Makes the condition's outcome a condition on the open sizes: others are rejected. */
static int assume_branch(struct sy_expand *e, int taken)
{
    const struct sy_dim *truth = e->in->values[e->node->inputs[0]];
    struct sy_dim given;
    if (!truth)
        return SY_OK;
    given = truth[0];
    if (!sy_infer_same_size(e->in, e->node, &given, (struct sy_dim){taken, 0}))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "no sizes take this branch");
    return SY_OK;
}

static int expand_if(struct sy_expand *e)
{
    int taken = 0;
    if (find_branch(e->in, e->node, &taken))
        SY_TRY(assume_branch(e, taken));
    const struct sy_attr *attr = sy_node_attr(e->node, taken ? "then_branch" : "else_branch");
    int formal = (int)sy_node_int(e->node, "formal", 1), *results;
    const struct sy_graph *body = attr && attr->kind == SY_ATTR_GRAPH ? attr->graph : NULL;
    if (!body || formal != 1 || body->n_inputs != e->node->n_inputs - 1 ||
        body->n_outputs != e->node->n_outputs)
        return sy_expand_fail(e, SY_ECORRUPT, "a branch with other inputs or results");
    SY_TRY(sy_graph_alloc((size_t)body->n_outputs, sizeof *results, &results));
    sy_expand_body(e, body, e->node->inputs + 1, NULL, results);
    for (int i = 0; e->status == SY_OK && i < body->n_outputs; i++)
        sy_expand_result(e, i, results[i]);
    free(results);
    return e->status;
}

/* ---- Loop ------------------------------------------------------------------------------------- */

/* Number of iterations; -1: not known, or too many to unroll. */
static int64_t count_trips(const struct sy_infer *in, const struct sy_node *node,
                           const struct sy_graph *body)
{
    int count = sy_node_input(node, 0), condition = sy_node_input(node, 1);
    const struct sy_tensor *t = count < 0 ? NULL : &in->graph->tensors[count];
    if (!t || !t->data || !sy_dtype_is_integer(t->dtype) ||
        t->data_bytes != sy_dtype_bytes(t->dtype) ||
        (condition >= 0 && !sy_tensor_is_true(&in->graph->tensors[condition])) ||
        !sy_loop_stays_true(body))
        return -1;
    int64_t trips = sy_load_integer(t->dtype, t->data);
    if (trips > MAX_TRIPS || SY_MAX(trips, 0) * sy_expand_nodes_of(body) > SY_EXPAND_MAX_NODES)
        return -1;
    return SY_MAX(trips, 0);
}

static const struct sy_graph *loop_body(const struct sy_node *node)
{
    const struct sy_attr *attr = sy_node_attr(node, "body");
    int formal = (int)sy_node_int(node, "formal", 0);
    const struct sy_graph *body = attr && attr->kind == SY_ATTR_GRAPH ? attr->graph : NULL;
    bool fits = body && formal >= 2 && formal <= node->n_inputs && body->n_outputs >= 1 &&
                body->n_inputs == node->n_inputs && body->n_outputs == node->n_outputs + 1 &&
                formal - 2 <= node->n_outputs;
    return fits ? body : NULL;
}

int sy_expand_spare_body(const struct sy_infer *in, const struct sy_node *node,
                         struct sy_graph **out)
{
    const struct sy_graph *body = loop_body(node);
    *out = NULL;
    if (!body || count_trips(in, node, body) < 0)
        return SY_OK;
    return sy_graph_clone(body, out);
}

/* Concatenates the results of all iterations. `each`: trips lists of n_results. */
static void join_scans(struct sy_expand *e, const int *each, int n_results, int64_t trips,
                       int n_carried)
{
    int64_t zero = 0;
    int *rows = NULL;
    if (e->status == SY_OK)
        e->status = sy_graph_alloc((size_t)trips, sizeof *rows, &rows);
    for (int i = n_carried; i < n_results - 1 && e->status == SY_OK; i++) {
        if (!sy_expand_wanted(e, i))
            continue;
        if (trips == 0) {
            sy_expand_fail(e, SY_EUNSUPPORTED, "it never runs, and result %d is used", i);
            break;
        }
        int axis = sy_expand_ints(e, &zero, 1);
        for (int64_t t = 0; t < trips; t++)
            rows[t] = SY_EXPAND(e, UNSQUEEZE, each[t * n_results + 1 + i], axis);
        int all = sy_expand_op(e, SY_OP_CONCAT, rows, (int)trips);
        sy_expand_set_int(e, "axis", 0);
        sy_expand_result(e, i, all);
    }
    free(rows);
}

static void run_turns(struct sy_expand *e, const struct sy_graph *body, int64_t trips, int *given,
                      int *map, int *each)
{
    int n_carried = (int)sy_node_int(e->node, "formal", 0) - 2;
    struct sy_shape scalar = {.rank = 0};
    for (int i = 2; i < e->node->n_inputs; i++)
        given[i] = e->node->inputs[i];
    for (int64_t t = 0; t < trips && e->status == SY_OK; t++) {
        int *results = each + t * body->n_outputs;
        unsigned char *yes;
        given[0] = sy_expand_int(e, t);
        if (t == 0 && e->status == SY_OK) {
            e->status = sy_graph_alloc(1, sizeof *yes, &yes);
            if (e->status == SY_OK) {
                *yes = 1;
                e->status = sy_graph_add_constant(e->graph, e->node->name, SY_DTYPE_BOOL, &scalar,
                                                  yes, 1, &given[1]);
            }
        }
        sy_expand_body(e, body, given, map, results);
        for (int i = 0; i < n_carried; i++)
            given[2 + i] = results[1 + i];
    }
    for (int i = 0; i < n_carried; i++)
        sy_expand_result(e, i, given[2 + i]);
}

static int write_out(struct sy_expand *e)
{
    const struct sy_graph *body = loop_body(e->node);
    int64_t trips = body ? count_trips(e->in, e->node, body) : -1;
    int *given = NULL, *map = NULL, *each = NULL, status;
    if (trips < 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "it cannot be written out");
    SY_TRY_GOTO(sy_graph_alloc((size_t)body->n_inputs, sizeof *given, &given), out);
    SY_TRY_GOTO(sy_expand_new_map(body, &map), out);
    SY_TRY_GOTO(sy_graph_alloc((size_t)(trips * body->n_outputs), sizeof *each, &each), out);
    run_turns(e, body, trips, given, map, each);
    join_scans(e, each, body->n_outputs, trips, (int)sy_node_int(e->node, "formal", 0) - 2);
    status = e->status;
out:
    free(given);
    free(map);
    free(each);
    return status;
}

int sy_expand_loop(struct sy_infer *in, int n, struct sy_graph *body)
{
    struct sy_node *node = &in->graph->nodes[n];
    for (int i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].kind == SY_ATTR_GRAPH) {
            sy_graph_free(node->attrs[i].graph);
            node->attrs[i].graph = body;
            return sy_expand_by(in, n, write_out);
        }
    sy_graph_free(body);
    return sy_infer_fail(node, SY_ECORRUPT, "no body");
}

/* ---- Scan as a Loop --------------------------------------------------------------------------- */

/* The Loop takes the states and captures what is scanned; its body begins by picking this turn's slices. */
struct scan {
    struct sy_expand *e;
    struct sy_graph *body; /* taken over */
    int n_states, n_scanned, n_captured, n_results;
};

static int open_scan(struct scan *s)
{
    struct sy_expand *e = s->e;
    int formal = (int)sy_node_int(e->node, "formal", e->node->n_inputs);
    int64_t scanned = sy_node_int(e->node, "num_scan_inputs", 0);
    for (int i = 0; i < e->node->n_attrs && !s->body; i++)
        if (e->node->attrs[i].kind == SY_ATTR_GRAPH) {
            s->body = e->node->attrs[i].graph;
            e->node->attrs[i].graph = NULL;
        }
    s->n_captured = e->node->n_inputs - formal;
    s->n_results = e->node->n_outputs;
    bool are_scanned = scanned >= 1 && scanned <= formal;
    s->n_states = are_scanned ? (int)(formal - scanned) : 0;
    s->n_scanned = are_scanned ? (int)scanned : 0;
    if (!s->body || !are_scanned || s->n_captured < 0 || s->body->n_inputs != e->node->n_inputs ||
        s->body->n_outputs != s->n_results || s->n_states > s->n_results)
        return sy_expand_fail(e, SY_ECORRUPT, "a body with other inputs or results");
    for (int i = 0; i < formal; i++)
        if (e->node->inputs[i] < 0 || e->in->sequences[e->node->inputs[i]])
            return sy_expand_fail(e, SY_EUNSUPPORTED, "input %d is not a tensor", i);
    return SY_OK;
}

/* slice = Gather(all, turn), or of the turn from the end. */
static int add_pick(struct scan *s, int k, int all, int turn)
{
    struct sy_graph *b = s->body;
    const char *name = s->e->node->name;
    struct sy_node *pick;
    int axis = (int)sy_node_int_at(s->e->node, "scan_input_axes", k, 0),
        slice = b->inputs[s->n_states + k];
    int at = turn, from_end;
    if (sy_node_int_at(s->e->node, "scan_input_directions", k, 0)) { /* -1 - turn */
        struct sy_shape scalar = {.rank = 0};
        int64_t *minus;
        int one;
        SY_TRY(sy_graph_alloc(1, sizeof *minus, &minus));
        *minus = -1;
        SY_TRY(sy_graph_add_constant(b, name, SY_DTYPE_I64, &scalar, minus, sizeof *minus, &one));
        SY_TRY(sy_graph_add_tensor(b, name, SY_DTYPE_NONE, NULL, &from_end));
        SY_TRY(sy_graph_add_node(b, SY_OP_SUB, SY_EXPAND_OPSET, name, 2, (int[]){one, turn}, 1,
                                 &from_end, NULL));
        at = from_end;
    }
    SY_TRY(sy_graph_add_node(b, SY_OP_GATHER, SY_EXPAND_OPSET, name, 2, (int[]){all, at}, 1, &slice,
                             &pick));
    return sy_node_set_int(pick, "axis", axis);
}

/* Inputs: turn, condition, states, all that is scanned, captures. Results: the condition, and what there was. */
static int change_body(struct scan *s)
{
    struct sy_graph *b = s->body;
    const char *name = s->e->node->name;
    int n = 2 + s->n_states + s->n_scanned + s->n_captured, *inputs, *outputs = NULL, still;
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *inputs, &inputs));
    int status = sy_graph_alloc((size_t)s->n_results + 1, sizeof *outputs, &outputs);
    for (int i = 0; status == SY_OK && i < 2; i++)
        status = sy_graph_add_tensor(b, name, SY_DTYPE_NONE, NULL, &inputs[i]);
    for (int i = 0; i < s->n_states; i++)
        inputs[2 + i] = b->inputs[i];
    for (int k = 0; status == SY_OK && k < s->n_scanned; k++) {
        int *all = &inputs[2 + s->n_states + k];
        status = sy_graph_add_tensor(b, name, SY_DTYPE_NONE, NULL, all);
        if (status == SY_OK)
            status = add_pick(s, k, *all, inputs[0]);
    }
    for (int i = n - s->n_captured; i < n; i++)
        inputs[i] = b->inputs[i - 2];
    if (status == SY_OK)
        status = sy_graph_add_tensor(b, name, SY_DTYPE_NONE, NULL, &still);
    if (status == SY_OK)
        status = sy_graph_add_node(b, SY_OP_IDENTITY, SY_EXPAND_OPSET, name, 1, &inputs[1], 1,
                                   &still, NULL);
    if (status < 0) {
        free(inputs);
        free(outputs);
        return status;
    }
    outputs[0] = still;
    memcpy(outputs + 1, b->outputs, (size_t)s->n_results * sizeof *outputs);
    free(b->inputs);
    free(b->outputs);
    b->inputs = inputs;
    b->n_inputs = n;
    b->outputs = outputs;
    b->n_outputs = s->n_results + 1;
    return sy_graph_sort(b);
}

/* Number of iterations: the extent of the first scanned input. */
static int scan_trips(struct scan *s)
{
    struct sy_expand *e = s->e;
    const struct sy_tensor *t = sy_expand_tensor(e, s->n_states);
    int axis;
    if (e->status == SY_OK)
        e->status = sy_infer_axis(e->node, sy_node_int_at(e->node, "scan_input_axes", 0, 0),
                                  t->shape.rank, &axis);
    if (e->status < 0)
        return -1;
    for (int k = 1; k < s->n_scanned; k++) {
        const struct sy_tensor *other = sy_expand_tensor(e, s->n_states + k);
        int place;
        e->status = sy_infer_axis(e->node, sy_node_int_at(e->node, "scan_input_axes", k, 0),
                                  other->shape.rank, &place);
        struct sy_dim length = t->shape.dims[axis];
        if (e->status == SY_OK &&
            !sy_infer_same_size(e->in, e->node, &length, other->shape.dims[place]))
            sy_expand_fail(e, SY_ECORRUPT, "inputs of different lengths");
        if (e->status < 0)
            return -1;
    }
    return SY_EXPAND(e, GATHER, SY_EXPAND(e, SHAPE, sy_expand_input(e, s->n_states)),
                     sy_expand_int(e, axis));
}

/* Loop stacks iterations first and in order; nodes after it produce other layouts. */
static void scan_results(struct scan *s, const int *made)
{
    struct sy_expand *e = s->e;
    for (int i = 0; i < s->n_results && e->status == SY_OK; i++) {
        int k = i - s->n_states, x = made[i];
        if (k >= 0 && sy_node_int_at(e->node, "scan_output_directions", k, 0)) {
            int64_t last = -1, before = INT64_MIN + 1, zero = 0;
            int a = sy_expand_ints(e, &last, 1), b = sy_expand_ints(e, &before, 1),
                c = sy_expand_ints(e, &zero, 1), d = sy_expand_ints(e, &last, 1);
            x = SY_EXPAND(e, SLICE, x, a, b, c, d);
        }
        if (k >= 0 && sy_node_int_at(e->node, "scan_output_axes", k, 0) != 0) {
            x = SY_EXPAND(e, MOVE_FIRST, x);
            sy_expand_set_int(e, "axis", sy_node_int_at(e->node, "scan_output_axes", k, 0));
        }
        sy_expand_result(e, i, x);
    }
}

static void add_loop(struct scan *s, int *ids)
{
    struct sy_expand *e = s->e;
    int n = 2 + e->node->n_inputs, *made = ids + n;
    struct sy_attr *attr;
    ids[0] = scan_trips(s);
    ids[1] = -1;
    memcpy(ids + 2, e->node->inputs, (size_t)e->node->n_inputs * sizeof *ids);
    sy_expand_op_many(e, SY_OP_LOOP, ids, n, made, s->n_results);
    sy_expand_set_int(e, "formal", 2 + s->n_states);
    if (e->status == SY_OK)
        e->status = sy_node_attr_slot(&e->graph->nodes[e->graph->n_nodes - 1], "body", &attr);
    if (e->status == SY_OK) {
        attr->kind = SY_ATTR_GRAPH;
        attr->graph = s->body;
        s->body = NULL;
    }
    scan_results(s, made);
}

static int expand_scan(struct sy_expand *e)
{
    struct scan s = {.e = e};
    int *ids = NULL, status;
    if (e->node->opset < 9)
        return sy_expand_batch_scan(e);
    SY_TRY_GOTO(open_scan(&s), out);
    SY_TRY_GOTO(change_body(&s), out);
    SY_TRY_GOTO(sy_graph_alloc((size_t)(2 + e->node->n_inputs + s.n_results), sizeof *ids, &ids),
                out);
    add_loop(&s, ids);
    status = e->status;
out:
    free(ids);
    sy_graph_free(s.body);
    return status;
}

/* Moves the first dimension to position `axis`. */
static int expand_move_first(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    int64_t perm[SY_MAX_RANK];
    int axis, rank = x ? x->shape.rank : 0;
    SY_TRY(sy_infer_axis(e->node, sy_node_int(e->node, "axis", 0), rank, &axis));
    for (int i = 0; i < rank; i++)
        perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
    sy_expand_result(e, 0, sy_expand_transpose(e, sy_expand_input(e, 0), perm, rank));
    return e->status;
}

const struct sy_expander_line sy_expanders_control[] = {
    {SY_OP_IF, expand_if}, {SY_OP_SCAN, expand_scan}, {SY_OP_MOVE_FIRST, expand_move_first}, {0}};

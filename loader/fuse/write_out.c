/* If and Loop for engines that have no bodies, after inference: all operators are pure, so both branches of an If may run, and each result is
 * chosen by the condition; a Loop becomes its turns, of which those behind its end leave everything as it was.
 *
 *   y = If(c) {then} {else}        y = Where(c, then, else)
 *   v = Loop(3, c, v) {body}       going = c;  three times:  v' = body(v);  v = Where(going, v', v);  going = going and body's condition
 *
 * What does not count must not end the run: indices there are replaced by 0; a body with an operator that compares data with a shape is
 * left as it is, and so is what would become too large. */
#include <stdlib.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "loader/fuse/write_out.h"
#include "loader/graph/loop_condition.h"
#include "loader/shape/graph_infer.h"
#include "loader/shape/loop_trips.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_NODES = 20000 };
#define MOST_REPEATED_BYTES (64 << 20) /* constants that a body reads, once a turn */

static int both(struct sy_graph *g, const char *name, int a, int b, int *out)
{
    return sy_write_op(g, name, SY_OP_AND, 2, (int[]){a, b}, SY_DTYPE_BOOL, &sy_write_scalar, out);
}

static int negated(struct sy_graph *g, const char *name, int a, int *out)
{
    return sy_write_op(g, name, SY_OP_NOT, 1, &a, SY_DTYPE_BOOL, &sy_write_scalar, out);
}

/* ---- what may fail where it does not count --------------------------------------------------------------- */

/* The first of the inputs that are compared with the result's shape; -1: none. */
static int checked_input(enum sy_op op)
{
    switch (op) {
    case SY_OP_NON_ZERO:
    case SY_OP_COMPRESS:
    case SY_OP_UNIQUE:
    case SY_OP_NON_MAX_SUPPRESSION:
    case SY_OP_RANGE:
    case SY_OP_HANN_WINDOW:
    case SY_OP_HAMMING_WINDOW:
    case SY_OP_BLACKMAN_WINDOW:
    case SY_OP_IF:
    case SY_OP_LOOP:
    case SY_OP_DYNAMIC:
        return 0;
    case SY_OP_RUN_RESHAPE:
    case SY_OP_RUN_SQUEEZE:
    case SY_OP_RUN_UNSQUEEZE:
    case SY_OP_RUN_EXPAND:
    case SY_OP_RUN_SLICE:
    case SY_OP_RUN_SPLIT:
    case SY_OP_RUN_PAD:
    case SY_OP_TILE:
    case SY_OP_TOP_K:
    case SY_OP_RESIZE:
    case SY_OP_DFT:
    case SY_OP_REDUCE_MEAN:
    case SY_OP_REDUCE_SUM:
    case SY_OP_REDUCE_MAX:
    case SY_OP_REDUCE_MIN:
    case SY_OP_REDUCE_PROD:
    case SY_OP_REDUCE_L1:
    case SY_OP_REDUCE_L2:
    case SY_OP_REDUCE_LOG_SUM:
    case SY_OP_REDUCE_LOG_SUM_EXP:
    case SY_OP_REDUCE_SUM_SQUARE:
        return 1;
    default:
        return -1;
    }
}

static bool may_run_in_vain(const struct sy_graph *body)
{
    for (int n = 0; n < body->n_nodes; n++) {
        const struct sy_node *node = &body->nodes[n];
        int first = node->op == SY_OP_ONE_HOT ? 1 : checked_input(node->op),
            end = node->op == SY_OP_ONE_HOT ? SY_MIN(2, node->n_inputs) : node->n_inputs;
        for (int i = first; first >= 0 && i < end; i++)
            if (node->inputs[i] >= 0 && !body->tensors[node->inputs[i]].data)
                return false;
    }
    return true;
}

static bool has_bodies(const struct sy_graph *graph)
{
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_attrs; i++)
            if (graph->nodes[n].attrs[i].kind == SY_ATTR_GRAPH)
                return true;
    return false;
}

/* ---- If ------------------------------------------------------------------------------------------------- */

static const struct sy_graph *body_of(const struct sy_node *node, const char *name, int n_inputs,
                                      int n_outputs)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    const struct sy_graph *body = attr && attr->kind == SY_ATTR_GRAPH ? attr->graph : NULL;
    return body && body->n_inputs == n_inputs && body->n_outputs == n_outputs ? body : NULL;
}

static int copy_branch(struct sy_graph *g, const struct sy_node *node, const char *name, int counts,
                       int *results)
{
    struct sy_body_copy c;
    const struct sy_graph *body = body_of(node, name, node->n_inputs - 1, node->n_outputs);
    SY_TRY(sy_write_open(g, body, node->name, counts, &c));
    int status = sy_write_body(&c, node->inputs + 1, results);
    free(c.map);
    return status;
}

static bool is_plain_if(const struct sy_node *node)
{
    static const char *const names[] = {"then_branch", "else_branch"};
    bool plain = sy_node_int(node, "formal", 0) == 1 && node->n_inputs >= 1;
    for (int i = 0; plain && i < 2; i++) {
        const struct sy_graph *body = body_of(node, names[i], node->n_inputs - 1, node->n_outputs);
        plain = body && !has_bodies(body) && may_run_in_vain(body);
    }
    return plain;
}

/* `node` is not part of the graph any more. */
static int write_if(struct sy_graph *g, const struct sy_node *node)
{
    int is, is_not, *results, n = node->n_outputs, status;
    SY_TRY(sy_write_as_scalar(g, node->name, node->inputs[0], &is));
    SY_TRY(negated(g, node->name, is, &is_not));
    SY_TRY(sy_graph_alloc(2 * (size_t)n, sizeof *results, &results));
    status = copy_branch(g, node, "then_branch", is, results);
    if (status == SY_OK)
        status = copy_branch(g, node, "else_branch", is_not, results + n);
    for (int i = 0; i < n && status == SY_OK; i++)
        if (node->outputs[i] >= 0)
            status = sy_write_into(g, node->name, SY_OP_WHERE, 3,
                                   (int[]){is, results[i], results[n + i]}, node->outputs[i]);
    free(results);
    return status;
}

/* ---- Loop ----------------------------------------------------------------------------------------------- */

struct loop {
    struct sy_graph *graph;
    const struct sy_node *node; /* no longer the graph's */
    const struct sy_graph *body;
    int n_carried, n_scans;
    int64_t turns;
    bool is_certain; /* the number of runs does not depend on data */
    int trips;       /* a scalar that is compared with the turn; -1: none */
    int going, ran;  /* the next turn runs; the last one did */
    int *given, *results;
    int *rows; /* of all turns: n_scans each */
};

/* Upper bound of the iterations: the declared number of scan results, or the trip count, or the limit of a counter; -1: none of these. */
static int64_t most_turns(const struct sy_graph *g, const struct sy_node *node, int n_carried)
{
    const struct sy_tensor *count = node->inputs[0] < 0 ? NULL : &g->tensors[node->inputs[0]];
    int64_t turns = -1;
    for (int i = n_carried; i < node->n_outputs; i++) {
        if (node->outputs[i] < 0)
            continue;
        struct sy_dim rows = g->tensors[node->outputs[i]].shape.dims[0];
        if (rows.per_batch != 0 || sy_dim_is_expr(rows) || (turns >= 0 && rows.fixed != turns))
            return -1;
        turns = rows.fixed;
    }
    if (turns >= 0)
        return turns;
    int64_t most = sy_node_int(node, "most_trips", -1);
    if (count && count->data) {
        turns = SY_MAX(sy_load_integer(count->dtype, count->data), 0);
        return most < 0 ? turns : SY_MIN(turns, most);
    }
    return most;
}

static bool is_small(const struct sy_graph *g, const struct loop *l)
{
    double bytes = 0;
    for (int i = 2 + l->n_carried; i < l->node->n_inputs; i++)
        bytes += l->node->inputs[i] < 0 ? 0 : (double)g->tensors[l->node->inputs[i]].data_bytes;
    return l->turns <= SY_MOST_TURNS_WRITTEN && l->turns * (l->body->n_nodes + 1) <= MAX_NODES &&
           (double)l->turns * bytes <= MOST_REPEATED_BYTES;
}

static bool plan_loop(const struct sy_graph *g, const struct sy_node *node, struct loop *l)
{
    int formal = (int)sy_node_int(node, "formal", 0);
    *l = (struct loop){.node = node, .n_carried = formal - 2, .trips = -1};
    l->n_scans = node->n_outputs - l->n_carried;
    l->body = body_of(node, "body", node->n_inputs, node->n_outputs + 1);
    if (!l->body || formal < 2 || formal > node->n_inputs || l->n_scans < 0 || has_bodies(l->body))
        return false;
    l->turns = most_turns(g, node, l->n_carried);
    bool starts = node->inputs[1] < 0 || sy_tensor_is_true(&g->tensors[node->inputs[1]]),
         counts = node->inputs[0] >= 0 && g->tensors[node->inputs[0]].data;
    l->is_certain = starts && counts && sy_loop_stays_true(l->body);
    for (int i = 0; i < formal - 2; i++)
        if (node->inputs[2 + i] < 0)
            return false;
    return l->turns >= (l->n_scans > 0) && is_small(g, l) &&
           (l->is_certain || may_run_in_vain(l->body));
}

/* Makes the condition and the trip count scalars. */
static int begin(struct loop *l)
{
    int count = l->node->inputs[0], condition = l->node->inputs[1];
    if (l->is_certain || condition < 0)
        SY_TRY(sy_write_number(l->graph, l->node->name, SY_DTYPE_BOOL, 1, &l->going));
    else
        SY_TRY(sy_write_as_scalar(l->graph, l->node->name, condition, &l->going));
    if (count >= 0 && !l->is_certain)
        SY_TRY(sy_write_as_scalar(l->graph, l->node->name, count, &l->trips));
    return SY_OK;
}

/* going = going and turn < trips */
static int count_down(struct loop *l, int turn)
{
    int less;
    if (l->trips < 0)
        return SY_OK;
    SY_TRY(sy_write_op(l->graph, l->node->name, SY_OP_LESS, 2, (int[]){turn, l->trips},
                       SY_DTYPE_BOOL, &sy_write_scalar, &less));
    return both(l->graph, l->node->name, l->going, less, &l->going);
}

/* Carried values keep their value in iterations that do not count. */
static int carry(struct loop *l)
{
    for (int i = 0; i < l->n_carried; i++) {
        int *held = &l->given[2 + i], fresh = l->results[1 + i];
        if (l->is_certain)
            *held = fresh;
        else
            SY_TRY(sy_write_where(l->graph, l->node->name, l->going, fresh, *held, held));
    }
    l->ran = l->going;
    if (l->is_certain)
        return SY_OK;
    int next;
    SY_TRY(sy_write_as_scalar(l->graph, l->node->name, l->results[0], &next));
    return both(l->graph, l->node->name, l->going, next, &l->going);
}

/* [1, ...] of what the turn gives. */
static int add_rows(struct loop *l, int64_t turn)
{
    for (int i = 0; i < l->n_scans; i++) {
        int each = l->results[1 + l->n_carried + i];
        const struct sy_tensor *t = &l->graph->tensors[each];
        struct sy_shape shape = {.rank = t->shape.rank + 1, .dims = {{.fixed = 1}}};
        memcpy(&shape.dims[1], t->shape.dims, (size_t)t->shape.rank * sizeof *shape.dims);
        SY_TRY(sy_write_op(l->graph, l->node->name, SY_OP_RESHAPE, 1, &each, t->dtype, &shape,
                           &l->rows[i * l->turns + turn]));
    }
    return SY_OK;
}

static int run_turns(struct loop *l, struct sy_body_copy *c)
{
    for (int64_t turn = 0; turn < l->turns; turn++) {
        SY_TRY(sy_write_number(l->graph, l->node->name, SY_DTYPE_I64, turn, &l->given[0]));
        SY_TRY(count_down(l, l->given[0]));
        l->given[1] = l->going;
        c->counts = l->is_certain ? -1 : l->going;
        SY_TRY(sy_write_body(c, l->given, l->results));
        SY_TRY(add_rows(l, turn));
        SY_TRY(carry(l));
    }
    return SY_OK;
}

/* A list of int64: the rows, then the dimensions as they are. */
static int add_shape(struct loop *l, int64_t rows, int rank, int *out)
{
    const struct sy_shape list = {.rank = 1, .dims = {{.fixed = rank}}};
    int64_t dims[SY_MAX_RANK] = {rows};
    return sy_write_bytes(l->graph, l->node->name, SY_DTYPE_I64, &list, dims,
                          (size_t)rank * sizeof *dims, out);
}

/* Scan results exist only if the loop ran exactly this often: otherwise a shape mismatch fails the run. */
static int check_turns(struct loop *l, int all, int result)
{
    const char *name = l->node->name;
    int over, good, right, wrong, shape, last, rank = l->graph->tensors[all].shape.rank;
    SY_TRY(sy_write_number(l->graph, name, SY_DTYPE_I64, l->turns, &last));
    SY_TRY(count_down(l, last));
    SY_TRY(negated(l->graph, name, l->going, &over));
    SY_TRY(both(l->graph, name, l->ran, over, &good));
    SY_TRY(add_shape(l, l->turns, rank, &right));
    SY_TRY(add_shape(l, l->turns + 1, rank, &wrong));
    SY_TRY(sy_write_where(l->graph, name, good, right, wrong, &shape));
    return sy_write_into(l->graph, name, SY_OP_RUN_RESHAPE, 2, (int[]){all, shape}, result);
}

static int join_rows(struct loop *l)
{
    for (int i = 0; i < l->n_scans; i++) {
        int result = l->node->outputs[l->n_carried + i], all = result;
        if (result < 0)
            continue;
        const struct sy_tensor *t = &l->graph->tensors[result];
        if (!l->is_certain) {
            struct sy_shape shape = t->shape;
            SY_TRY(sy_graph_add_tensor(l->graph, l->node->name, t->dtype, &shape, &all));
        }
        SY_TRY(sy_write_into(l->graph, l->node->name, SY_OP_CONCAT, (int)l->turns,
                             l->rows + i * l->turns, all));
        SY_TRY(sy_node_set_int(&l->graph->nodes[l->graph->n_nodes - 1], "axis", 0));
        if (!l->is_certain)
            SY_TRY(check_turns(l, all, result));
    }
    return SY_OK;
}

static int write_turns(struct loop *l)
{
    struct sy_body_copy c;
    SY_TRY(begin(l));
    for (int i = 2; i < l->node->n_inputs; i++)
        l->given[i] = l->node->inputs[i];
    SY_TRY(sy_write_open(l->graph, l->body, l->node->name, -1, &c));
    int status = run_turns(l, &c);
    free(c.map);
    SY_TRY(status);
    for (int i = 0; i < l->n_carried; i++)
        if (l->node->outputs[i] >= 0)
            SY_TRY(sy_write_into(l->graph, l->node->name, SY_OP_IDENTITY, 1, &l->given[2 + i],
                                 l->node->outputs[i]));
    return join_rows(l);
}

static int write_loop(struct sy_graph *g, struct loop *l)
{
    int n_rows = (int)l->turns * l->n_scans, n_results = l->body->n_outputs, status;
    l->graph = g;
    SY_TRY(sy_graph_alloc((size_t)(l->node->n_inputs + n_results + n_rows), sizeof *l->given,
                          &l->given));
    l->results = l->given + l->node->n_inputs;
    l->rows = l->results + n_results;
    status = write_turns(l);
    free(l->given);
    return status;
}

/* ---- the graph -------------------------------------------------------------------------------------------- */

/* Inlines node n, if it is an If or Loop that can be inlined; the new nodes are appended. */
static int write_node(struct sy_graph *g, int n, bool *changed)
{
    struct sy_node node = g->nodes[n]; /* the nodes move */
    struct loop l;
    int status;
    bool is_if = node.op == SY_OP_IF && is_plain_if(&node);
    if (!is_if && !(node.op == SY_OP_LOOP && plan_loop(g, &node, &l)))
        return SY_OK;
    memset(&g->nodes[n], 0, sizeof g->nodes[n]);
    *changed = true;
    status = is_if ? write_if(g, &node) : write_loop(g, &l);
    sy_node_finish(&node);
    return status;
}

int sy_graph_write_out(struct sy_graph *graph, bool *changed)
{
    int n_nodes = graph->n_nodes;
    bool here = false;
    for (int n = 0; n < n_nodes; n++) {
        bool inside = false;
        for (int i = 0; i < graph->nodes[n].n_attrs; i++)
            if (graph->nodes[n].op != SY_OP_DYNAMIC &&
                graph->nodes[n].attrs[i].kind == SY_ATTR_GRAPH)
                SY_TRY(sy_graph_write_out(graph->nodes[n].attrs[i].graph, &inside));
        SY_TRY(write_node(graph, n, &here));
    }
    *changed = *changed || here;
    if (!here)
        return SY_OK;
    sy_graph_compact(graph);
    SY_TRY(sy_graph_sort(graph));
    return sy_graph_remove_dead(graph);
}

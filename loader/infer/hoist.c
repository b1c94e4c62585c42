#include "loader/infer/hoist.h"

#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_DEPTH = 8 };

/* Moves, and arithmetic that cannot fail: computing them when the body would not have run does no harm. */
static bool may_leave(const struct sy_node *node)
{
    static const enum sy_op ops[] = {SY_OP_IDENTITY,  SY_OP_RESHAPE,   SY_OP_FLATTEN, SY_OP_SQUEEZE,
                                     SY_OP_UNSQUEEZE, SY_OP_CONCAT,    SY_OP_SLICE,   SY_OP_GATHER,
                                     SY_OP_CAST,      SY_OP_TRANSPOSE, SY_OP_ADD,     SY_OP_SUB,
                                     SY_OP_MUL,       SY_OP_NEG};
    for (size_t i = 0; i < SY_ARRAY_LEN(ops); i++)
        if (ops[i] == node->op)
            return node->n_outputs == 1 && node->outputs[0] >= 0;
    return false;
}

/* Whether all inputs of the node are known, and it has any. */
static bool is_known(const struct sy_node *node, const bool *known)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && !known[node->inputs[i]])
            return false;
    return sy_node_input(node, 0) >= 0;
}

/* ---- one node out of one body ------------------------------------------------------------------- */

/* A node of `outer`, by index, and one of its bodies. */
struct place {
    struct sy_graph *outer, *body;
    int node;
    int n_formal; /* inputs of the body that are not captured */
};

/* The node's input that the body has as its input `tensor`; -1: it is not captured. */
static int captured(const struct place *p, int tensor)
{
    const struct sy_node *node = &p->outer->nodes[p->node];
    for (int i = p->n_formal; i < p->body->n_inputs; i++)
        if (p->body->inputs[i] == tensor)
            return node->inputs[node->n_inputs - (p->body->n_inputs - i)];
    return -1;
}

/* The outer graph's counterpart of a tensor of the body: the captured tensor, or a copy of its constant. */
static int bring_out(const struct place *p, int tensor, int *out)
{
    const struct sy_tensor *t = tensor < 0 ? NULL : &p->body->tensors[tensor];
    void *data;
    *out = tensor < 0 ? -1 : captured(p, tensor);
    if (!t || *out >= 0)
        return SY_OK;
    SY_TRY(sy_graph_alloc(t->data_bytes, 1, &data));
    if (t->data_bytes > 0)
        memcpy(data, t->data, t->data_bytes);
    SY_TRY(sy_graph_add_constant(p->outer, t->name, t->dtype, &t->shape, data, t->data_bytes, out));
    p->outer->tensors[*out].is_derived = t->is_derived;
    return SY_OK;
}

static int add_body_input(struct sy_graph *body, int tensor)
{
    int *grown = realloc(body->inputs, (size_t)(body->n_inputs + 1) * sizeof *grown);
    SY_TRY_ALLOC(grown, "no memory for %d inputs", body->n_inputs + 1);
    body->inputs = grown;
    body->inputs[body->n_inputs++] = tensor;
    return SY_OK;
}

/* All bodies of a node capture the same tensors; a body may have captured inputs that it does not read. */
static int capture(const struct place *p, int outer_tensor, int own)
{
    struct sy_node *node = &p->outer->nodes[p->node];
    SY_TRY(sy_node_add_input(node, outer_tensor));
    for (int i = 0; i < node->n_attrs; i++) {
        struct sy_graph *body = node->attrs[i].graph;
        int tensor = own;
        if (!body)
            continue;
        if (body != p->body)
            SY_TRY(sy_graph_add_tensor(body, p->outer->tensors[outer_tensor].name, SY_DTYPE_NONE,
                                       NULL, &tensor));
        SY_TRY(add_body_input(body, tensor));
    }
    return SY_OK;
}

/* Moves node k of the body to the end of the outer graph; the body captures its result. */
static int move_out(const struct place *p, int k)
{
    struct sy_node moved = p->body->nodes[k];
    int result;
    p->body->nodes[k] = (struct sy_node){.bias_input = -1, .residual_input = -1};
    int own = moved.outputs[0], status = SY_OK;
    for (int i = 0; i < moved.n_inputs && status == SY_OK; i++)
        status = bring_out(p, moved.inputs[i], &moved.inputs[i]);
    if (status == SY_OK)
        status =
            sy_graph_add_tensor(p->outer, p->body->tensors[own].name, SY_DTYPE_NONE, NULL, &result);
    struct sy_node *to = NULL;
    if (status == SY_OK)
        status =
            sy_graph_add_node(p->outer, moved.op, moved.opset, moved.name, 0, NULL, 0, NULL, &to);
    if (status < 0) {
        sy_node_finish(&moved);
        return status;
    }
    sy_node_finish(to);
    *to = moved;
    to->outputs[0] = result;
    return capture(p, result, own);
}

/* ---- graphs ------------------------------------------------------------------------------------- */

static int hoist(struct sy_graph *graph, const bool *known_inputs, int depth);

/* Per tensor: a constant, an input known outside, or computed from such. */
static int find_known(const struct sy_graph *graph, const bool *known_inputs, bool **out)
{
    SY_TRY(sy_graph_alloc((size_t)graph->n_tensors, sizeof **out, out));
    for (int t = 0; t < graph->n_tensors; t++)
        (*out)[t] = graph->tensors[t].data != NULL;
    for (int i = 0; known_inputs && i < graph->n_inputs; i++)
        (*out)[graph->inputs[i]] = known_inputs[i];
    for (int n = 0; n < graph->n_nodes; n++)
        if (may_leave(&graph->nodes[n]) && is_known(&graph->nodes[n], *out))
            (*out)[graph->nodes[n].outputs[0]] = true;
    return SY_OK;
}

/* Which of the body's inputs are known in the outer graph; as many as it has. */
static int known_captures(const struct place *p, const bool *known, bool **out)
{
    SY_TRY(sy_graph_alloc((size_t)p->body->n_inputs, sizeof **out, out));
    for (int i = p->n_formal; i < p->body->n_inputs; i++) {
        int outer = captured(p, p->body->inputs[i]);
        (*out)[i] = outer >= 0 && known[outer];
    }
    return SY_OK;
}

/* A result that is an output of the body stays inside. */
static bool leaves(const struct place *p, int k, const bool *known)
{
    const struct sy_node *node = &p->body->nodes[k];
    return may_leave(node) && is_known(node, known) &&
           !sy_graph_is_output(p->body, node->outputs[0]);
}

static int empty_body(const struct place *p, const bool *known_inputs)
{
    bool *known;
    SY_TRY(find_known(p->body, known_inputs, &known));
    int status = SY_OK;
    for (int k = 0; k < p->body->n_nodes && status == SY_OK; k++) {
        const struct sy_node *node = &p->body->nodes[k];
        if (leaves(p, k, known))
            status = move_out(p, k);
        else if (may_leave(node))
            known[node->outputs[0]] = false; /* so its readers stay, too */
    }
    free(known);
    sy_graph_compact(p->body);
    return status;
}

static int hoist_body(const struct place *p, const bool *known, int depth)
{
    bool *known_inputs;
    SY_TRY(sy_graph_sort(p->body));
    SY_TRY(known_captures(p, known, &known_inputs));
    int status = hoist(p->body, known_inputs, depth + 1);
    if (status == SY_OK)
        status = empty_body(p, known_inputs);
    free(known_inputs);
    return status;
}

/* Hoists from attribute i of node n, if it is a body. *known may grow. */
static int hoist_attr(struct sy_graph *graph, int n, int i, const bool *known_inputs, int depth)
{
    const struct sy_node *node = &graph->nodes[n];
    int64_t first = sy_node_int(node, "formal", node->n_inputs);
    struct place p = {.outer = graph, .body = node->attrs[i].graph, .node = n};
    bool *known;
    if (!p.body || first < 0 || first > node->n_inputs)
        return SY_OK;
    p.n_formal = p.body->n_inputs - (int)(node->n_inputs - first);
    if (p.n_formal < 0) /* rejected where it is called */
        return SY_OK;
    SY_TRY(find_known(graph, known_inputs, &known));
    int status = hoist_body(&p, known, depth);
    free(known);
    return status;
}

/* Nodes moved out of bodies are appended, and sorted in at the end. */
static int hoist(struct sy_graph *graph, const bool *known_inputs, int depth)
{
    int n_before = graph->n_nodes;
    if (depth > MAX_DEPTH)
        return SY_OK;
    for (int n = 0; n < n_before; n++)
        for (int i = 0; i < graph->nodes[n].n_attrs; i++)
            SY_TRY(hoist_attr(graph, n, i, known_inputs, depth));
    return graph->n_nodes > n_before ? sy_graph_sort(graph) : SY_OK;
}

int sy_hoist_constants(struct sy_graph *graph)
{
    return hoist(graph, NULL, 0);
}

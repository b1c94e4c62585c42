/* Scan as opset 8 had it: its operands begin with a batch dimension, whose rows are scanned independently. */
#include <stdlib.h>

#include "loader/expand/expand.h"
#include "runtime/base/status.h"

enum { MAX_ROWS = 256 };

struct batch_scan {
    struct sy_expand *e;
    const struct sy_graph *body;
    int formal, n_results;
    int64_t rows;
    int *given; /* of one row: its operands, and what the body captures */
    int *made;  /* per result and row */
};

static int open_rows(struct batch_scan *s)
{
    struct sy_expand *e = s->e;
    const struct sy_tensor *last;
    s->formal = (int)sy_node_int(e->node, "formal", e->node->n_inputs);
    s->n_results = e->node->n_outputs;
    for (int i = 0; i < e->node->n_attrs; i++)
        if (e->node->attrs[i].kind == SY_ATTR_GRAPH)
            s->body = e->node->attrs[i].graph;
    if (!s->body || s->formal < 2 || s->formal > e->node->n_inputs)
        return sy_expand_fail(e, SY_ECORRUPT, "no body, or nothing to scan");
    if (e->node->inputs[0] >= 0)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "Scan of opset 8 with lengths for its rows");
    for (int i = 1; i < s->formal; i++)
        if (e->node->inputs[i] < 0 || e->in->sequences[e->node->inputs[i]])
            return sy_expand_fail(e, SY_ECORRUPT, "input %d is not a tensor", i);
    last = sy_expand_tensor(e, s->formal - 1);
    SY_TRY(sy_infer_fixed(e->in, e->node, &last->shape, 0, &s->rows));
    if (s->rows < 1 || s->rows > MAX_ROWS)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%lld rows, 1 to %d", (long long)s->rows,
                              MAX_ROWS);
    return sy_expand_room_for(e, s->body, s->rows);
}

/* A Scan of row b; its body is a copy. */
static void scan_row(struct batch_scan *s, int64_t b, int *made)
{
    struct sy_expand *e = s->e;
    const struct sy_attr *directions = sy_node_attr(e->node, "directions");
    struct sy_attr *attr;
    int64_t first = 0;
    for (int i = 1; i < e->node->n_inputs; i++) {
        int x = e->node->inputs[i];
        if (i < s->formal)
            x = SY_EXPAND(e, SQUEEZE, sy_expand_slice(e, x, 0, b, b + 1),
                          sy_expand_ints(e, &first, 1));
        s->given[i - 1] = x;
    }
    sy_expand_op_many(e, SY_OP_SCAN, s->given, e->node->n_inputs - 1, made, s->n_results);
    sy_expand_set_int(e, "formal", s->formal - 1);
    sy_expand_pass(e, "num_scan_inputs");
    if (e->status < 0)
        return;
    struct sy_node *node = &e->graph->nodes[e->graph->n_nodes - 1];
    if (directions && directions->kind == SY_ATTR_INTS)
        e->status =
            sy_node_set_ints(node, "scan_input_directions", directions->n, directions->ints);
    if (e->status == SY_OK)
        e->status = sy_node_attr_slot(node, "body", &attr);
    if (e->status == SY_OK) {
        attr->kind = SY_ATTR_GRAPH;
        e->status = sy_graph_clone(s->body, &attr->graph);
    }
}

static int expand_rows(struct batch_scan *s)
{
    struct sy_expand *e = s->e;
    int *parts = s->made + s->rows * s->n_results;
    for (int64_t b = 0; b < s->rows; b++)
        scan_row(s, b, s->made + b * s->n_results);
    for (int i = 0; i < s->n_results && e->status == SY_OK; i++) {
        for (int64_t b = 0; b < s->rows; b++)
            parts[b] = sy_expand_unsqueeze(e, s->made[b * s->n_results + i], 0);
        int all = sy_expand_op(e, SY_OP_CONCAT, parts, (int)s->rows);
        sy_expand_set_int(e, "axis", 0);
        sy_expand_result(e, i, all);
    }
    return e->status;
}

int sy_expand_batch_scan(struct sy_expand *e)
{
    struct batch_scan s = {.e = e};
    SY_TRY(open_rows(&s));
    SY_TRY(sy_graph_alloc((size_t)e->node->n_inputs, sizeof *s.given, &s.given));
    int status = sy_graph_alloc((size_t)(s.rows * (s.n_results + 1)), sizeof *s.made, &s.made);
    if (status == SY_OK)
        status = expand_rows(&s);
    free(s.given);
    free(s.made);
    return status;
}

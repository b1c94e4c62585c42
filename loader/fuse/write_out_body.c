#include "loader/fuse/write_out.h"

#include <stdlib.h>
#include <string.h>

#include "loader/shape/graph_infer.h"
#include "runtime/base/status.h"

enum { OPSET = 17 };

const struct sy_shape sy_write_scalar = {.rank = 0};

/* ---- nodes and constants ------------------------------------------------------------------------------- */

int sy_write_bytes(struct sy_graph *g, const char *name, enum sy_dtype dtype,
                   const struct sy_shape *shape, const void *from, size_t bytes, int *out)
{
    struct sy_shape own = *shape;
    void *data;
    SY_TRY(sy_graph_alloc(bytes, 1, &data));
    if (bytes > 0)
        memcpy(data, from, bytes);
    return sy_graph_add_constant(g, name, dtype, &own, data, bytes, out);
}

int sy_write_number(struct sy_graph *g, const char *name, enum sy_dtype dtype, int64_t value,
                    int *out)
{
    return sy_write_bytes(g, name, dtype, &sy_write_scalar, &value, sy_dtype_bytes(dtype), out);
}

int sy_write_into(struct sy_graph *g, const char *name, enum sy_op op, int n, const int *inputs,
                  int result)
{
    return sy_graph_add_node(g, op, OPSET, name, n, inputs, 1, &result, NULL);
}

int sy_write_op(struct sy_graph *g, const char *name, enum sy_op op, int n, const int *inputs,
                enum sy_dtype dtype, const struct sy_shape *shape, int *out)
{
    struct sy_shape own = *shape;
    SY_TRY(sy_graph_add_tensor(g, name, dtype, &own, out));
    return sy_write_into(g, name, op, n, inputs, *out);
}

int sy_write_as_scalar(struct sy_graph *g, const char *name, int tensor, int *out)
{
    *out = tensor;
    if (g->tensors[tensor].shape.rank == 0)
        return SY_OK;
    return sy_write_op(g, name, SY_OP_RESHAPE, 1, &tensor, g->tensors[tensor].dtype,
                       &sy_write_scalar, out);
}

int sy_write_where(struct sy_graph *g, const char *name, int pick, int a, int b, int *out)
{
    const struct sy_tensor *t = &g->tensors[a];
    return sy_write_op(g, name, SY_OP_WHERE, 3, (int[]){pick, a, b}, t->dtype, &t->shape, out);
}

/* ---- indices that do not count ---- */

/* Input of indices, each of which may be 0; -1: none. */
static int index_input(enum sy_op op)
{
    switch (op) {
    case SY_OP_GATHER:
    case SY_OP_GATHER_ELEMENTS:
    case SY_OP_GATHER_ND:
    case SY_OP_SCATTER_ELEMENTS:
    case SY_OP_SCATTER_ND:
    case SY_OP_REVERSE_SEQUENCE:
    case SY_OP_MAX_UNPOOL:
    case SY_OP_CUM_SUM:
    case SY_OP_MAX_ROI_POOL:
    case SY_OP_NLL_LOSS:
    case SY_OP_SOFTMAX_LOSS:
        return 1;
    case SY_OP_ROI_ALIGN:
        return 2;
    default:
        return -1;
    }
}

/* ---- a body's nodes in the graph ------------------------------------------------------------------------- */

static int mapped(struct sy_body_copy *c, int tensor, int *out)
{
    *out = -1;
    if (tensor < 0)
        return SY_OK;
    const struct sy_tensor *t = &c->body->tensors[tensor];
    if (c->map[tensor] < 0 && t->data) {
        SY_TRY(sy_write_bytes(c->graph, t->name, t->dtype, &t->shape, t->data, t->data_bytes,
                              &c->map[tensor]));
        c->graph->tensors[c->map[tensor]].is_derived = t->is_derived;
    }
    *out = c->map[tensor];
    return *out >= 0 ? SY_OK
                     : sy_error_set(SY_ECORRUPT, "node %s: a body reads '%.80s' before it is made",
                                    c->name, t->name);
}

/* Constant indices of a Gather that are known to be inside. */
static bool is_inside(const struct sy_graph *g, const struct sy_node *node, const int *inputs)
{
    if (node->op != SY_OP_GATHER)
        return false;
    const struct sy_tensor *x = &g->tensors[inputs[0]], *at = &g->tensors[inputs[1]];
    int64_t axis = sy_node_int(node, "axis", 0);
    if (!at->data || axis < 0 || axis >= x->shape.rank || x->shape.dims[axis].per_batch != 0)
        return false;
    int64_t extent = x->shape.dims[axis].fixed;
    size_t each = sy_dtype_bytes(at->dtype);
    for (size_t i = 0; i < at->data_bytes / each; i++) {
        int64_t index = sy_load_integer(at->dtype, (const char *)at->data + i * each);
        if (index < -extent || index >= extent)
            return false;
    }
    return true;
}

/* Indices that do not count become 0. */
static int guard(struct sy_body_copy *c, const struct sy_node *node, int *inputs)
{
    int i = index_input(node->op), zero;
    if (c->counts < 0 || i < 0 || i >= node->n_inputs || inputs[i] < 0 || inputs[0] < 0 ||
        is_inside(c->graph, node, inputs))
        return SY_OK;
    SY_TRY(sy_write_number(c->graph, c->name, c->graph->tensors[inputs[i]].dtype, 0, &zero));
    return sy_write_where(c->graph, c->name, c->counts, inputs[i], zero, &inputs[i]);
}

static int copy_results(struct sy_body_copy *c, const struct sy_node *node, int *outputs)
{
    for (int i = 0; i < node->n_outputs; i++) {
        outputs[i] = -1;
        if (node->outputs[i] < 0)
            continue;
        const struct sy_tensor *t = &c->body->tensors[node->outputs[i]];
        struct sy_shape shape = t->shape;
        SY_TRY(sy_graph_add_tensor(c->graph, t->name, t->dtype, &shape, &outputs[i]));
        c->map[node->outputs[i]] = outputs[i];
    }
    return SY_OK;
}

/* Takes the attributes of `own`, a copy of the node. */
static int place(struct sy_body_copy *c, struct sy_node *own, const int *inputs, const int *outputs)
{
    struct sy_node *to;
    for (int i = 0; i < own->n_attrs; i++)
        if (own->attrs[i].kind == SY_ATTR_TENSOR)
            SY_TRY(mapped(c, own->attrs[i].tensor, &own->attrs[i].tensor));
    SY_TRY(sy_graph_add_node(c->graph, own->op, own->opset, own->name, own->n_inputs, inputs,
                             own->n_outputs, outputs, &to));
    to->attrs = own->attrs;
    to->n_attrs = own->n_attrs;
    own->attrs = NULL;
    own->n_attrs = 0;
    to->activation = own->activation;
    to->act_alpha = own->act_alpha;
    to->act_beta = own->act_beta;
    to->bias_input = own->bias_input;
    to->residual_input = own->residual_input;
    return SY_OK;
}

static int copy_node(struct sy_body_copy *c, const struct sy_node *node)
{
    struct sy_node own;
    int *ids, status = SY_OK;
    SY_TRY(sy_graph_alloc((size_t)node->n_inputs + (size_t)node->n_outputs, sizeof *ids, &ids));
    for (int i = 0; i < node->n_inputs && status == SY_OK; i++)
        status = mapped(c, node->inputs[i], &ids[i]);
    if (status == SY_OK)
        status = guard(c, node, ids);
    if (status == SY_OK)
        status = copy_results(c, node, ids + node->n_inputs);
    if (status == SY_OK && (status = sy_node_clone(node, &own)) == SY_OK) {
        status = place(c, &own, ids, ids + node->n_inputs);
        sy_node_finish(&own);
    }
    free(ids);
    return status;
}

int sy_write_body(struct sy_body_copy *c, const int *given, int *results)
{
    for (int t = 0; t < c->body->n_tensors; t++)
        if (!c->body->tensors[t].data)
            c->map[t] = -1;
    for (int i = 0; i < c->body->n_inputs; i++)
        c->map[c->body->inputs[i]] = given[i];
    for (int n = 0; n < c->body->n_nodes; n++)
        SY_TRY(copy_node(c, &c->body->nodes[n]));
    for (int i = 0; i < c->body->n_outputs; i++)
        SY_TRY(mapped(c, c->body->outputs[i], &results[i]));
    return SY_OK;
}

int sy_write_open(struct sy_graph *graph, const struct sy_graph *body, const char *name, int counts,
                  struct sy_body_copy *c)
{
    *c = (struct sy_body_copy){.graph = graph, .body = body, .name = name, .counts = counts};
    SY_TRY(sy_graph_alloc((size_t)body->n_tensors + 1, sizeof *c->map, &c->map));
    for (int t = 0; t < body->n_tensors; t++)
        c->map[t] = -1;
    return SY_OK;
}

/* Bodies of If and Loop: graphs that read tensors of the graph around them. Those become the last inputs of the node, and of each body. */
#include <stdlib.h>
#include <string.h>

#include "loader/onnx/onnx_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_DEPTH = 4 }; /* a package holds no more: SY_MSGPACK_MAX_DEPTH */

/* Bodies keep small constants of their own, which shapes may depend on; what they capture else becomes an input of the node. */
static bool is_small_constant(const struct sy_tensor *t)
{
    return t->data && t->data_bytes <= 1024 && (t->dtype != SY_DTYPE_F32 || t->data_bytes <= 64);
}

static int copy_constant(struct sy_graph *to, const struct sy_tensor *t, int *out)
{
    void *data;
    struct sy_shape shape = t->shape;
    SY_TRY(sy_graph_alloc(t->data_bytes, 1, &data));
    if (t->data_bytes > 0)
        memcpy(data, t->data, t->data_bytes);
    const bool fours = t->is_four_bits;
    SY_TRY(sy_graph_add_constant(to, t->name, t->dtype, &shape, data, t->data_bytes, out));
    to->tensors[*out].is_four_bits = fours;
    return SY_OK;
}

static int capture(struct sy_onnx_reader *r, int outer, const char *name, int *out)
{
    struct sy_onnx_captures *c = r->captures;
    int k = 0;
    while (k < c->n && c->outer[k] != outer)
        k++;
    if (k == c->n) {
        int **lists[1 + SY_ONNX_MAX_BODIES] = {&c->outer, &c->local[0], &c->local[1]};
        for (int i = 0; i < 1 + SY_ONNX_MAX_BODIES; i++) {
            int *grown = realloc(*lists[i], ((size_t)k + 1) * sizeof *grown);
            if (!grown)
                return sy_error_set(SY_ENOMEM_HOST, "no memory for captured tensors");
            grown[k] = -1;
            *lists[i] = grown;
        }
        c->outer[c->n++] = outer;
    }
    SY_TRY(sy_graph_add_tensor(r->graph, name, SY_DTYPE_NONE, NULL, out));
    c->local[r->body][k] = *out;
    return SY_OK;
}

/* The tensor of that name here or around; -1 if there is none. */
int sy_onnx_find_tensor(struct sy_onnx_reader *r, const char *name, int *out)
{
    int outer;
    *out = sy_name_map_get(&r->map, name);
    if (*out >= 0 || !r->outer)
        return SY_OK;
    SY_TRY(sy_onnx_find_tensor(r->outer, name, &outer));
    if (outer < 0)
        return SY_OK;
    const struct sy_tensor *t = &r->outer->graph->tensors[outer];
    if (is_small_constant(t))
        SY_TRY(copy_constant(r->graph, t, out));
    else
        SY_TRY(capture(r, outer, name, out));
    return sy_name_map_set(&r->map, name, *out);
}
/* Large constants of a body become the node's inputs, so that they are parameters like others: packed once, moved with their group. */
static int hoist_constants(struct sy_onnx_reader *r)
{
    for (int t = 0; t < r->graph->n_tensors; t++) {
        struct sy_tensor *from = &r->graph->tensors[t];
        int outer, k;
        if (!from->data || is_small_constant(from))
            continue;
        struct sy_shape shape = from->shape;
        void *data = from->data;
        size_t bytes = from->data_bytes;
        from->data = NULL;
        from->data_bytes = 0;
        SY_TRY(sy_graph_add_constant(r->outer->graph, from->name, from->dtype, &shape, data, bytes,
                                     &outer));
        SY_TRY(capture(r, outer, from->name, &k)); /* makes a tensor more, which nobody reads */
        r->captures->local[r->body][r->captures->n - 1] = t;
    }
    return SY_OK;
}

/* Outputs that no node makes become copies, so that a layer writes them. */
static int copy_passed_through(struct sy_graph *graph)
{
    int *producer;
    for (int i = 0; i < graph->n_outputs; i++) {
        int from = graph->outputs[i], to;
        SY_TRY(sy_graph_producers(graph, &producer));
        bool made = producer[from] >= 0;
        free(producer);
        if (made)
            continue;
        SY_TRY(sy_graph_add_tensor(graph, graph->tensors[from].name, SY_DTYPE_NONE, NULL, &to));
        SY_TRY(sy_graph_add_node(graph, SY_OP_IDENTITY, 13, graph->tensors[from].name, 1, &from, 1,
                                 &to, NULL));
        graph->outputs[i] = to;
    }
    return SY_OK;
}

static int read_body(struct sy_onnx_reader *r, const Onnx__AttributeProto *from,
                     struct sy_onnx_captures *captures, int body, struct sy_graph **out)
{
    struct sy_onnx_reader inner = {.path = r->path,
                                   .model = r->model,
                                   .proto = from->g,
                                   .outer = r,
                                   .captures = captures,
                                   .body = body,
                                   .depth = r->depth + 1,
                                   .opset = r->opset};
    if (inner.depth > MAX_DEPTH)
        return sy_error_set(SY_EUNSUPPORTED, "bodies nested deeper than %d", MAX_DEPTH);
    int status = sy_onnx_read_graph(&inner);
    if (status == SY_OK)
        status = hoist_constants(&inner);
    if (status == SY_OK)
        status = copy_passed_through(inner.graph);
    if (status == SY_OK) {
        *out = inner.graph;
        inner.graph = NULL;
    }
    sy_graph_free(inner.graph);
    sy_name_map_finish(&inner.map);
    sy_name_map_finish(&inner.declared);
    return status;
}

/* All captures are inputs of each body, read or not, so that one list serves the node. */
static int add_captured_inputs(struct sy_graph *body, const struct sy_onnx_captures *c,
                               const int *local)
{
    int *grown = realloc(body->inputs, ((size_t)body->n_inputs + (size_t)c->n + 1) * sizeof *grown);
    if (!grown)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for captured tensors");
    body->inputs = grown;
    for (int k = 0; k < c->n; k++) {
        int tensor = local[k];
        if (tensor < 0)
            SY_TRY(sy_graph_add_tensor(body, "unread", SY_DTYPE_NONE, NULL, &tensor));
        body->inputs[body->n_inputs++] = tensor;
    }
    return SY_OK;
}

static bool takes_bodies(enum sy_op op)
{
    return op == SY_OP_IF || op == SY_OP_LOOP || op == SY_OP_SCAN || op == SY_OP_SEQUENCE_MAP;
}

static int read_bodies_into(struct sy_onnx_reader *r, const Onnx__NodeProto *from,
                            struct sy_node *node, struct sy_onnx_captures *c)
{
    struct sy_graph *bodies[SY_ONNX_MAX_BODIES] = {NULL};
    int n = 0;
    for (size_t i = 0; i < from->n_attribute; i++) {
        struct sy_attr *attr;
        if (from->attribute[i]->type != ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)
            continue;
        if (n == SY_ONNX_MAX_BODIES || !takes_bodies(node->op))
            return sy_error_set(SY_EUNSUPPORTED, "attribute '%.60s' is a graph",
                                sy_onnx_text(from->attribute[i]->name));
        struct sy_graph *body = NULL;
        SY_TRY(read_body(r, from->attribute[i], c, n, &body));
        bodies[n++] = body;
        int status = sy_node_attr_slot(node, sy_onnx_text(from->attribute[i]->name), &attr);
        if (status < 0) {
            sy_graph_free(body);
            return status;
        }
        attr->kind = SY_ATTR_GRAPH;
        attr->graph = body;
    }
    if (n == 0)
        return SY_OK;
    SY_TRY(sy_node_set_int(node, "formal", node->n_inputs));
    for (int k = 0; k < c->n; k++)
        SY_TRY(sy_node_add_input(node, c->outer[k]));
    for (int i = 0; i < n; i++)
        SY_TRY(add_captured_inputs(bodies[i], c, c->local[i]));
    return SY_OK;
}

int sy_onnx_read_bodies(struct sy_onnx_reader *r, const Onnx__NodeProto *from, struct sy_node *node)
{
    struct sy_onnx_captures c = {0};
    int status = read_bodies_into(r, from, node, &c);
    free(c.outer);
    for (int i = 0; i < SY_ONNX_MAX_BODIES; i++)
        free(c.local[i]);
    return status;
}

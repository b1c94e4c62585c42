/* Bodies of If and Loop: graphs that read tensors of the graph around them. Those become the last inputs of the node, and of each body. */
#include <stdlib.h>
#include <string.h>

#include "loader/onnx/onnx_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_DEPTH = 4 }; /* a package holds no more: SY_MSGPACK_MAX_DEPTH */

int sy_onnx_copy_passed_through(struct sy_graph *graph)
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
                                   .opset = r->opset,
                                   .versions = r->versions,
                                   .dense_bytes = r->dense_bytes};
    if (inner.depth > MAX_DEPTH)
        return sy_error_set(SY_EUNSUPPORTED, "bodies nested deeper than %d", MAX_DEPTH);
    int status = sy_onnx_read_graph(&inner);
    if (status == SY_OK)
        status = sy_onnx_hoist_constants(&inner);
    if (status == SY_OK)
        status = sy_onnx_copy_passed_through(inner.graph);
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
    SY_TRY_ALLOC(grown, "no memory for captured tensors");
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
    return op == SY_OP_IF || op == SY_OP_LOOP || op == SY_OP_SCAN || op == SY_OP_SEQUENCE_MAP ||
           op == SY_OP_FLEX_ATTENTION;
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

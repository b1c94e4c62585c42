/* Types, operators, shapes, attributes, and building a graph piece by piece. */
#include "loader/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "loader/graph/size_expr.h"
#include "loader/graph/string_tensor.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- element types ---------------------------------------------------------------------------- */

size_t sy_dtype_bytes(enum sy_dtype dtype)
{
    switch (dtype) {
#define X(name, value, bytes, wire, npy) \
    case SY_DTYPE_##name:                \
        return bytes;
        SY_DTYPE_TABLE(X)
#undef X
    case SY_DTYPE_STRING:
        return sizeof(struct sy_string);
    default:
        return 0;
    }
}

const char *sy_precision_name(enum sy_precision precision)
{
    return precision == SY_PRECISION_BF16 ? "bf16" : precision == SY_PRECISION_F16 ? "f16" : "f32";
}

int sy_precision_from_name(const char *name, enum sy_precision *out)
{
    for (int i = SY_PRECISION_F32; i <= SY_PRECISION_F16; i++)
        if (strcmp(name, sy_precision_name((enum sy_precision)i)) == 0) {
            *out = (enum sy_precision)i;
            return SY_OK;
        }
    return sy_error_set(SY_EARG, "precision %.40s: f32, bf16 and f16 are known", name);
}

const char *sy_dtype_wire_name(enum sy_dtype dtype)
{
    switch (dtype) {
#define X(name, value, bytes, wire, npy) \
    case SY_DTYPE_##name:                \
        return wire;
        SY_DTYPE_TABLE(X)
#undef X
    case SY_DTYPE_STRING:
        return "BYTES";
    default:
        return "NONE";
    }
}

enum sy_dtype sy_dtype_from_wire_name(const char *name)
{
#define X(dtype, value, bytes, wire, npy) \
    if (strcmp(name, wire) == 0)          \
        return SY_DTYPE_##dtype;
    SY_DTYPE_TABLE(X)
#undef X
    return strcmp(name, "BYTES") == 0 ? SY_DTYPE_STRING : SY_DTYPE_NONE;
}

/* ---- operators -------------------------------------------------------------------------------- */

static const struct sy_op_facts facts[] = {
#define X(id, name, shape, rows, fold, narrow, gradient, least, most, outputs, attributes) \
    {name, SY_FOLD_##fold, SY_NARROW_##narrow, SY_GRADIENT_##gradient, least,              \
     most, outputs,        attributes},
    SY_OP_TABLE(X)
#undef X
};

const struct sy_op_facts *sy_op_facts(enum sy_op op)
{
    return &facts[op];
}

const char *sy_op_name(enum sy_op op)
{
    return (unsigned)op < SY_OP_COUNT ? facts[op].name : "?";
}

int sy_op_from_name(const char *onnx_name, enum sy_op *out)
{
    for (int i = 0; i < SY_OP_COUNT; i++) {
        if (strcmp(facts[i].name, onnx_name) == 0) {
            *out = (enum sy_op)i;
            return SY_OK;
        }
    }
    return sy_error_set(SY_EUNSUPPORTED, "operator '%.100s' is not supported", onnx_name);
}

/* ---- shapes ----------------------------------------------------------------------------------- */

int64_t sy_dim_at(struct sy_dim dim, int64_t batch)
{
    return dim.fixed + dim.per_batch * batch;
}

int64_t sy_shape_elements(const struct sy_shape *shape, int64_t batch)
{
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++) {
        int64_t dim;
        if (sy_dim_is_expr(shape->dims[i]) ||
            __builtin_mul_overflow(shape->dims[i].per_batch, batch, &dim) ||
            __builtin_add_overflow(dim, shape->dims[i].fixed, &dim) || dim < 0 ||
            __builtin_mul_overflow(n, dim, &n))
            return -1;
    }
    return n;
}

bool sy_shape_is_open(const struct sy_shape *shape)
{
    for (int i = 0; i < shape->rank; i++)
        if (sy_dim_is_expr(shape->dims[i]))
            return true;
    return false;
}

bool sy_shape_equal(const struct sy_shape *a, const struct sy_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i].fixed != b->dims[i].fixed || a->dims[i].per_batch != b->dims[i].per_batch)
            return false;
    return true;
}

static int dim_text(struct sy_dim dim, char *buffer, size_t bytes)
{
    long long fixed = dim.fixed, per_batch = dim.per_batch;
    if (sy_dim_is_expr(dim))
        return sy_size_text(dim, buffer, bytes);
    if (per_batch == 0)
        return snprintf(buffer, bytes, "%lld", fixed);
    char factor[32] = "";
    if (per_batch != 1)
        snprintf(factor, sizeof factor, "%lld", per_batch);
    if (fixed == 0)
        return snprintf(buffer, bytes, "%sN", factor);
    return snprintf(buffer, bytes, "%sN%+lld", factor, fixed);
}

const char *sy_shape_text(const struct sy_shape *shape, char *buffer, size_t bytes)
{
    size_t used = (size_t)snprintf(buffer, bytes, "[");
    for (int i = 0; i < shape->rank && used < bytes; i++) {
        if (i > 0)
            used += (size_t)snprintf(buffer + used, bytes - used, ", ");
        if (used < bytes)
            used += (size_t)dim_text(shape->dims[i], buffer + used, bytes - used);
    }
    if (used < bytes)
        snprintf(buffer + used, bytes - used, "]");
    return buffer;
}

/* ---- memory ----------------------------------------------------------------------------------- */

int sy_graph_alloc(size_t n, size_t bytes, void *out)
{
    void *block = calloc(n ? n : 1, bytes ? bytes : 1);
    SY_TRY_ALLOC(block, "graph: no memory for %zu elements of %zu bytes", n, bytes);
    memcpy(out, &block, sizeof block);
    return SY_OK;
}

int sy_graph_strdup(const char *text, char **out)
{
    char *copy = strdup(text ? text : "");
    SY_TRY_ALLOC(copy, "graph: no memory for a name");
    *out = copy;
    return SY_OK;
}

/* Makes room for one more element; the count is the caller's to raise. */
static int grow(void *array, int n, size_t bytes)
{
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, ((size_t)n + 1) * bytes);
    SY_TRY_ALLOC(grown, "graph: no memory for %d elements of %zu bytes", n + 1, bytes);
    memset((char *)grown + (size_t)n * bytes, 0, bytes);
    memcpy(array, &grown, sizeof grown);
    return SY_OK;
}

/* ---- attributes ------------------------------------------------------------------------------- */

const struct sy_attr *sy_node_attr(const struct sy_node *node, const char *name)
{
    for (int i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, name) == 0)
            return &node->attrs[i];
    return NULL;
}

int64_t sy_node_int(const struct sy_node *node, const char *name, int64_t otherwise)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    return attr && attr->kind == SY_ATTR_INT ? attr->i : otherwise;
}

int64_t sy_node_int_at(const struct sy_node *node, const char *name, int i, int64_t otherwise)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    return attr && attr->kind == SY_ATTR_INTS && i < attr->n ? attr->ints[i] : otherwise;
}

float sy_node_float(const struct sy_node *node, const char *name, float otherwise)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    return attr && attr->kind == SY_ATTR_FLOAT ? attr->f : otherwise;
}

const char *sy_attr_string(const struct sy_attr *attr, int i, size_t *bytes)
{
    *bytes = (size_t)(attr->ints[i + 1] - attr->ints[i]) - 1;
    return attr->s + attr->ints[i];
}

void sy_attr_finish(struct sy_attr *attr)
{
    free(attr->name);
    free(attr->s);
    free(attr->ints);
    free(attr->floats);
    free(attr->sizes);
    sy_graph_free(attr->graph);
    *attr = (struct sy_attr){.tensor = -1};
}

int sy_node_attr_slot(struct sy_node *node, const char *name, struct sy_attr **out)
{
    char *copy;
    SY_TRY(sy_graph_strdup(name, &copy));
    struct sy_attr *attr = (struct sy_attr *)sy_node_attr(node, name);
    if (!attr) {
        int status = grow(&node->attrs, node->n_attrs, sizeof *node->attrs);
        if (status < 0) {
            free(copy);
            return status;
        }
        attr = &node->attrs[node->n_attrs++];
    }
    sy_attr_finish(attr);
    attr->name = copy;
    *out = attr;
    return SY_OK;
}

int sy_node_set_int(struct sy_node *node, const char *name, int64_t value)
{
    struct sy_attr *attr;
    SY_TRY(sy_node_attr_slot(node, name, &attr));
    attr->kind = SY_ATTR_INT;
    attr->i = value;
    return SY_OK;
}

int sy_node_set_float(struct sy_node *node, const char *name, float value)
{
    struct sy_attr *attr;
    SY_TRY(sy_node_attr_slot(node, name, &attr));
    attr->kind = SY_ATTR_FLOAT;
    attr->f = value;
    return SY_OK;
}

/* The slot of `name` with `copy` for its list. Takes over `copy`, also when it fails. */
static int set_list(struct sy_node *node, const char *name, enum sy_attr_kind kind, int n,
                    void *copy, struct sy_attr **out)
{
    int status = sy_node_attr_slot(node, name, out);
    if (status < 0) {
        free(copy);
        return status;
    }
    (*out)->kind = kind;
    (*out)->n = n;
    return SY_OK;
}

/* Made before the slot is: that may free `values`. */
static int copy_list(int n, size_t element_bytes, const void *values, void *out)
{
    void *copy;
    SY_TRY(sy_graph_alloc((size_t)n, element_bytes, &copy));
    if (n > 0)
        memcpy(copy, values, (size_t)n * element_bytes);
    memcpy(out, &copy, sizeof copy);
    return SY_OK;
}

int sy_node_set_ints(struct sy_node *node, const char *name, int n, const int64_t *values)
{
    struct sy_attr *attr;
    int64_t *copy;
    SY_TRY(copy_list(n, sizeof *values, values, &copy));
    SY_TRY(set_list(node, name, SY_ATTR_INTS, n, copy, &attr));
    attr->ints = copy;
    return SY_OK;
}

int sy_node_set_floats(struct sy_node *node, const char *name, int n, const float *values)
{
    struct sy_attr *attr;
    float *copy;
    SY_TRY(copy_list(n, sizeof *values, values, &copy));
    SY_TRY(set_list(node, name, SY_ATTR_FLOATS, n, copy, &attr));
    attr->floats = copy;
    return SY_OK;
}

static bool are_numbers(int n, const struct sy_dim *values)
{
    for (int i = 0; i < n; i++)
        if (!sy_dim_is_number(values[i]))
            return false;
    return true;
}

int sy_node_set_sizes(struct sy_node *node, const char *name, int n, const struct sy_dim *values)
{
    struct sy_attr *attr;
    struct sy_dim *copy;
    int64_t *numbers;
    if (!are_numbers(n, values)) {
        SY_TRY(copy_list(n, sizeof *values, values, &copy));
        SY_TRY(set_list(node, name, SY_ATTR_SIZES, n, copy, &attr));
        attr->sizes = copy;
        return SY_OK;
    }
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *numbers, &numbers));
    for (int i = 0; i < n; i++)
        numbers[i] = values[i].fixed;
    SY_TRY(set_list(node, name, SY_ATTR_INTS, n, numbers, &attr));
    attr->ints = numbers;
    return SY_OK;
}

/* ---- graphs ----------------------------------------------------------------------------------- */

int sy_graph_create(const char *name, struct sy_graph **out)
{
    struct sy_graph *graph;
    SY_TRY(sy_graph_alloc(1, sizeof *graph, &graph));
    int status = sy_graph_strdup(name, &graph->name);
    if (status < 0) {
        free(graph);
        return status;
    }
    *out = graph;
    return SY_OK;
}

void sy_node_finish(struct sy_node *node)
{
    for (int i = 0; i < node->n_attrs; i++)
        sy_attr_finish(&node->attrs[i]);
    free(node->attrs);
    free(node->name);
    free(node->inputs);
    free(node->outputs);
    *node = (struct sy_node){.bias_input = -1, .residual_input = -1};
}

void sy_run_reason_finish(struct sy_run_reason *reason)
{
    free(reason->result);
    free(reason->why);
    free(reason->input);
    free(reason->maker);
    *reason = (struct sy_run_reason){0};
}

void sy_graph_free(struct sy_graph *graph)
{
    if (!graph)
        return;
    for (int i = 0; i < graph->n_nodes; i++)
        sy_node_finish(&graph->nodes[i]);
    for (int i = 0; i < graph->n_tensors; i++) {
        free(graph->tensors[i].name);
        if (!graph->borrows_data && !graph->tensors[i].is_borrowed)
            free(graph->tensors[i].data);
    }
    for (int i = 0; i < graph->n_symbols; i++)
        free(graph->symbols[i].name);
    for (int i = 0; i < graph->n_conditions; i++)
        free(graph->conditions[i].where);
    for (int i = 0; i < graph->n_reasons; i++)
        sy_run_reason_finish(&graph->reasons[i]);
    free(graph->reasons);
    free(graph->symbols);
    free(graph->conditions);
    free(graph->nodes);
    free(graph->tensors);
    free(graph->inputs);
    free(graph->outputs);
    free(graph->batch_name);
    free(graph->name);
    free(graph);
}

int sy_graph_add_tensor(struct sy_graph *graph, const char *name, enum sy_dtype dtype,
                        const struct sy_shape *shape, int *out)
{
    char *copy;
    /* `shape` may belong to a tensor of this graph, which moves when the list grows. */
    struct sy_shape own_shape = shape ? *shape : (struct sy_shape){0};
    SY_TRY(sy_graph_strdup(name, &copy));
    int status = grow(&graph->tensors, graph->n_tensors, sizeof *graph->tensors);
    if (status < 0) {
        free(copy);
        return status;
    }
    struct sy_tensor *tensor = &graph->tensors[graph->n_tensors];
    tensor->name = copy;
    tensor->dtype = dtype;
    tensor->shape = own_shape;
    *out = graph->n_tensors++;
    return SY_OK;
}

/* Text and features, images, videos. */
static int64_t usual_size(int rank, int i)
{
    return rank == 4 && i >= 2 ? 224 : rank == 5 && i >= 2 ? 16 : rank > 5 ? 8 : 128;
}

int sy_graph_add_symbol(struct sy_graph *graph, const char *name, int rank, int i,
                        struct sy_dim *out)
{
    char *copy;
    SY_TRY(sy_size_symbol(name, out));
    for (int k = 0; k < graph->n_symbols; k++)
        if (strcmp(graph->symbols[k].name, name) == 0)
            return SY_OK;
    if (graph->n_symbols == SY_SIZE_MOST_SYMBOLS)
        return sy_error_set(SY_EUNSUPPORTED,
                            "more than %d open sizes; give some their numbers (import --dim "
                            "%.80s=SIZE)",
                            SY_SIZE_MOST_SYMBOLS, name);
    SY_TRY(sy_graph_strdup(name, &copy));
    int status = grow(&graph->symbols, graph->n_symbols, sizeof *graph->symbols);
    if (status < 0) {
        free(copy);
        return status;
    }
    graph->symbols[graph->n_symbols++] = (struct sy_symbol){copy, usual_size(rank, i)};
    return SY_OK;
}

int sy_graph_add_constant(struct sy_graph *graph, const char *name, enum sy_dtype dtype,
                          const struct sy_shape *shape, void *data, size_t data_bytes, int *out)
{
    int status = sy_graph_add_tensor(graph, name, dtype, shape, out);
    if (status < 0) {
        free(data);
        return status;
    }
    graph->tensors[*out].data = data;
    graph->tensors[*out].data_bytes = data_bytes;
    return SY_OK;
}

static int copy_ints(int n, const int *values, int **out)
{
    SY_TRY(sy_graph_alloc((size_t)n, sizeof **out, out));
    if (n > 0)
        memcpy(*out, values, (size_t)n * sizeof **out);
    return SY_OK;
}

int sy_graph_add_node(struct sy_graph *graph, enum sy_op op, int opset, const char *name,
                      int n_inputs, const int *inputs, int n_outputs, const int *outputs,
                      struct sy_node **out)
{
    struct sy_node node = {.op = op,
                           .opset = opset,
                           .n_inputs = n_inputs,
                           .n_outputs = n_outputs,
                           .bias_input = -1,
                           .residual_input = -1};
    int status;
    SY_TRY_GOTO(sy_graph_strdup(name, &node.name), fail);
    SY_TRY_GOTO(copy_ints(n_inputs, inputs, &node.inputs), fail);
    SY_TRY_GOTO(copy_ints(n_outputs, outputs, &node.outputs), fail);
    SY_TRY_GOTO(grow(&graph->nodes, graph->n_nodes, sizeof *graph->nodes), fail);
    graph->nodes[graph->n_nodes] = node;
    if (out)
        *out = &graph->nodes[graph->n_nodes];
    graph->n_nodes++;
    return SY_OK;
fail:
    sy_node_finish(&node);
    return status;
}

int sy_node_add_input(struct sy_node *node, int tensor)
{
    SY_TRY(grow(&node->inputs, node->n_inputs, sizeof *node->inputs));
    node->inputs[node->n_inputs++] = tensor;
    return SY_OK;
}

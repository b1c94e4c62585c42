/* ONNX files into graphs: with its sisters (onnx_internal.h) the first to see untrusted bytes;
 * nesting is bounded before protobuf-c (which recurses) sees the file, every size is checked against what is there. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "loader/graph/list_ends.h"
#include "loader/graph/string_tensor.h"
#include "loader/onnx/name_map.h"
#include "loader/onnx/onnx_internal.h"
#include "loader/onnx/protobuf_nesting.h"
#include "loader/package/file_bytes.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_NESTING = 32, MAX_FIELDS = 1 << 24 };

/* Operators that have not changed since opset 1; for others, opsets before SY_ONNX_MIN_OPSET are rejected. */
static const enum sy_op unchanged[] = {
    SY_OP_GLOBAL_AVERAGE_POOL, SY_OP_GLOBAL_MAX_POOL, SY_OP_NOT, SY_OP_SOFTPLUS, SY_OP_SOFTSIGN,
    SY_OP_TRANSPOSE,           SY_OP_FLATTEN};

static int unpack(struct sy_onnx_reader *r)
{
    unsigned char *bytes;
    size_t n;
    SY_TRY(sy_file_read_range(r->path, 0, UINT64_MAX, &bytes, &n));
    int status = sy_protobuf_check_nesting(&onnx__model_proto__descriptor, bytes, n, MAX_NESTING,
                                           MAX_FIELDS);
    if (status == SY_OK)
        r->model = onnx__model_proto__unpack(NULL, n, bytes);
    free(bytes);
    if (status == SY_EUNSUPPORTED)
        return sy_error_set(status, "%s: messages nested deeper than %d, or more than %d fields",
                            r->path, MAX_NESTING, MAX_FIELDS);
    if (!r->model)
        return sy_error_set(SY_ECORRUPT, "%s (%zu bytes) is not an ONNX file, or is cut short",
                            r->path, n);
    if (!r->model->graph)
        return sy_error_set(SY_ECORRUPT, "%s has no graph", r->path);
    return SY_OK;
}

/* ---- nodes ------------------------------------------------------------------------------------ */

static int read_string(const ProtobufCBinaryData *from, char **out)
{
    SY_TRY(sy_graph_alloc(from->len + 1, 1, out));
    if (from->len > 0)
        memcpy(*out, from->data, from->len);
    return SY_OK;
}

static int read_floats(const Onnx__AttributeProto *from, struct sy_attr *attr)
{
    if (from->n_floats > INT_MAX)
        return sy_error_set(SY_ECORRUPT, "attribute with %zu numbers", from->n_floats);
    SY_TRY(sy_graph_alloc(from->n_floats, sizeof(float), &attr->floats));
    attr->n = (int)from->n_floats;
    if (attr->n > 0)
        memcpy(attr->floats, from->floats, from->n_floats * sizeof(float));
    return SY_OK;
}

/* Joins a list of strings (activations) with commas. */
static int read_strings(const Onnx__AttributeProto *from, char **out)
{
    size_t n = 1, used = 0;
    for (size_t i = 0; i < from->n_strings; i++)
        n += from->strings[i].len + 1;
    SY_TRY(sy_graph_alloc(n, 1, out));
    for (size_t i = 0; i < from->n_strings; i++) {
        if (i > 0)
            (*out)[used++] = ',';
        if (from->strings[i].len > 0)
            memcpy(*out + used, from->strings[i].data, from->strings[i].len);
        used += from->strings[i].len;
    }
    return SY_OK;
}

static int read_string_list(const Onnx__AttributeProto *from, struct sy_attr *attr)
{
    struct sy_text_list list = {0};
    if (from->n_strings > INT_MAX - 1)
        return sy_error_set(SY_ECORRUPT, "attribute '%.60s' has %zu strings",
                            sy_onnx_text(from->name), from->n_strings);
    for (size_t i = 0; i < from->n_strings; i++)
        SY_TRY(sy_text_list_add(&list, from->strings[i].data, from->strings[i].len));
    return sy_text_list_take(&list, attr);
}

static int read_attribute(struct sy_onnx_reader *r, int node, Onnx__AttributeProto *from)
{
    const char *name = sy_onnx_text(from->name);
    struct sy_attr *attr;
    int tensor;
    switch (from->type) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
        return sy_node_set_int(&r->graph->nodes[node], name, from->i);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
        return sy_node_set_float(&r->graph->nodes[node], name, from->f);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
        if (from->n_ints > INT_MAX)
            break;
        return sy_node_set_ints(&r->graph->nodes[node], name, (int)from->n_ints, from->ints);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
        SY_TRY(sy_node_attr_slot(&r->graph->nodes[node], name, &attr));
        attr->kind = SY_ATTR_FLOATS;
        return read_floats(from, attr);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
        SY_TRY(sy_node_attr_slot(&r->graph->nodes[node], name, &attr));
        attr->kind = SY_ATTR_STRING;
        return read_string(&from->s, &attr->s);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS:
        SY_TRY(sy_node_attr_slot(&r->graph->nodes[node], name, &attr));
        if (strcmp(name, "activations") == 0) {
            attr->kind = SY_ATTR_STRING;
            return read_strings(from, &attr->s);
        }
        return read_string_list(from, attr);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
        if (!from->t)
            break;
        SY_TRY(sy_onnx_read_tensor(r, from->t, name, &tensor));
        SY_TRY(sy_node_attr_slot(&r->graph->nodes[node], name, &attr));
        attr->kind = SY_ATTR_TENSOR;
        attr->tensor = tensor;
        return SY_OK;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH: /* when all names around it are known: read_bodies */
        if (from->g)
            return SY_OK;
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO: /* of an Optional, whose readers know what they take */
        return SY_OK;
    default:
        break;
    }
    return sy_error_set(SY_EUNSUPPORTED, "attribute '%.60s' has kind %d, which is not supported",
                        name, (int)from->type);
}

/* An initializer with the value of a Constant node's attribute: value, sparse_value, value_float(s), value_int(s). */
static int constant_tensor(struct sy_onnx_reader *r, Onnx__AttributeProto *from, const char *name,
                           int *out)
{
    Onnx__TensorProto proto = ONNX__TENSOR_PROTO__INIT;
    int64_t count = 0;
    proto.has_data_type = 1;
    proto.dims = &count;
    proto.data_type = SY_DTYPE_I64;
    switch (from->type) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
        if (from->t)
            return sy_onnx_read_tensor(r, from->t, name, out);
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR:
        if (from->sparse_tensor)
            return sy_onnx_read_sparse(r, from->sparse_tensor, name, out);
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
        proto.n_dims = 1; /* fall through */
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
        proto.data_type = SY_DTYPE_F32;
        proto.n_float_data = proto.n_dims ? from->n_floats : 1;
        proto.float_data = proto.n_dims ? from->floats : &from->f;
        count = (int64_t)proto.n_float_data;
        return sy_onnx_read_tensor(r, &proto, name, out);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
        proto.n_dims = 1; /* fall through */
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
        proto.n_int64_data = proto.n_dims ? from->n_ints : 1;
        proto.int64_data = proto.n_dims ? from->ints : &from->i;
        count = (int64_t)proto.n_int64_data;
        return sy_onnx_read_tensor(r, &proto, name, out);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS:
        proto.n_dims = 1; /* fall through */
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
        proto.data_type = SY_DTYPE_STRING;
        proto.n_string_data = proto.n_dims ? from->n_strings : 1;
        proto.string_data = proto.n_dims ? from->strings : &from->s;
        count = (int64_t)proto.n_string_data;
        return sy_onnx_read_tensor(r, &proto, name, out);
    default:
        break;
    }
    return sy_error_set(SY_EUNSUPPORTED, "constant '%.120s': attribute '%.60s' is not supported",
                        name, sy_onnx_text(from->name));
}

static int read_constant_node(struct sy_onnx_reader *r, const Onnx__NodeProto *node)
{
    int tensor;
    if (node->n_output != 1 || node->n_attribute != 1)
        return sy_error_set(SY_ECORRUPT, "a Constant has one output and one value");
    if (sy_name_map_get(&r->map, sy_onnx_text(node->output[0])) >= 0)
        return sy_error_set(SY_ECORRUPT, "'%.120s' is made twice", sy_onnx_text(node->output[0]));
    SY_TRY(constant_tensor(r, node->attribute[0], sy_onnx_text(node->output[0]), &tensor));
    r->graph->tensors[tensor].is_derived = true;
    sy_name_map_set(&r->map, sy_onnx_text(node->output[0]), tensor);
    return SY_OK;
}

static bool is_constant_node(const Onnx__NodeProto *node)
{
    return strcmp(sy_onnx_text(node->op_type), "Constant") == 0;
}

/* The shape that the file declares for result `name`, if it is a tensor, symbolic dimensions as -1: a hint for data-dependent shapes. */
static bool declared_type(const struct sy_onnx_reader *r, const char *name, enum sy_dtype *dtype,
                          struct sy_shape *shape)
{
    const Onnx__GraphProto *graph = r->proto;
    int i = sy_name_map_get(&r->declared, name);
    if (i < 0)
        return false;
    const Onnx__ValueInfoProto *info = (size_t)i < graph->n_value_info
                                           ? graph->value_info[i]
                                           : graph->output[(size_t)i - graph->n_value_info];
    if (!info->type || info->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
        !info->type->tensor_type)
        return false;
    const Onnx__TensorShapeProto *from = info->type->tensor_type->shape;
    *shape = (struct sy_shape){.rank = 1, .dims = {{-1, 0}}}; /* a type without a shape */
    if (from && from->n_dim <= SY_MAX_RANK)
        shape->rank = (int)from->n_dim;
    for (int d = 0; from && from->n_dim <= SY_MAX_RANK && d < shape->rank; d++) {
        bool number =
            from->dim[d]->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        shape->dims[d].fixed =
            number && from->dim[d]->dim_value >= 0 ? from->dim[d]->dim_value : -1;
    }
    *dtype = (enum sy_dtype)info->type->tensor_type->elem_type;
    return sy_dtype_bytes(*dtype) > 0;
}

static int note_declared(struct sy_onnx_reader *r)
{
    const Onnx__GraphProto *graph = r->proto;
    if (graph->n_value_info > INT_MAX / 4 || graph->n_output > INT_MAX / 4)
        return sy_error_set(SY_EUNSUPPORTED, "%s declares too many tensors", r->path);
    SY_TRY(sy_name_map_init(&r->declared, graph->n_value_info + graph->n_output));
    for (size_t i = 0; i < graph->n_value_info; i++)
        sy_name_map_set(&r->declared, sy_onnx_text(graph->value_info[i]->name), (int)i);
    for (size_t i = 0; i < graph->n_output; i++)
        sy_name_map_set(&r->declared, sy_onnx_text(graph->output[i]->name),
                        (int)(graph->n_value_info + i));
    return SY_OK;
}

static int node_outputs(struct sy_onnx_reader *r, const Onnx__NodeProto *from, int *outputs)
{
    for (size_t i = 0; i < from->n_output; i++) {
        outputs[i] = -1;
        if (!*sy_onnx_text(from->output[i]))
            continue;
        if (sy_name_map_get(&r->map, from->output[i]) >= 0)
            return sy_error_set(SY_ECORRUPT, "'%.120s' is made twice", from->output[i]);
        struct sy_shape shape;
        enum sy_dtype dtype;
        bool known = declared_type(r, from->output[i], &dtype, &shape);
        SY_TRY(sy_graph_add_tensor(r->graph, from->output[i], known ? dtype : SY_DTYPE_NONE,
                                   known ? &shape : NULL, &outputs[i]));
        sy_name_map_set(&r->map, from->output[i], outputs[i]);
    }
    return SY_OK;
}

static int check_age(int opset, enum sy_op op)
{
    for (size_t i = 0; opset < SY_ONNX_MIN_OPSET && i < SY_ARRAY_LEN(unchanged); i++)
        if (unchanged[i] == op)
            return SY_OK;
    if (opset >= SY_ONNX_MIN_OPSET ||
        strchr(sy_op_name(op), '.')) /* other domains have their own versions */
        return SY_OK;
    return sy_error_set(SY_EUNSUPPORTED, "opsets below %d are not supported, export it again",
                        SY_ONNX_MIN_OPSET);
}

static bool is_known_domain(const char *domain)
{
    static const char *const known[] = {"com.microsoft", "com.microsoft.nchwc", "ai.onnx.ml",
                                        "ai.onnx.preview", "ai.onnx.preview.training"};
    for (size_t i = 0; i < SY_ARRAY_LEN(known); i++)
        if (strcmp(domain, known[i]) == 0)
            return true;
    return false;
}

/* Operators of other domains are called by domain and name. LayerNormalization was ONNX Runtime's before it was ONNX's. */
static int find_operator(const Onnx__NodeProto *from, enum sy_op *op)
{
    const char *domain = sy_onnx_text(from->domain), *type = sy_onnx_text(from->op_type);
    char name[160];
    bool norm = strcmp(type, "LayerNormalization") == 0 ||
                strcmp(type, "SimplifiedLayerNormalization") == 0;
    /* Operators that only passes make are refused in a file: their operands are not checked. */
    if (strchr(type, '.'))
        return sy_error_set(SY_EUNSUPPORTED, "operator '%.100s' is not supported", type);
    if (!*domain || strcmp(domain, "ai.onnx") == 0 ||
        (norm && strcmp(domain, "com.microsoft") == 0))
        return sy_op_from_name(type, op);
    if (!is_known_domain(domain))
        return sy_error_set(SY_EUNSUPPORTED, "operators of domain '%.60s' are not supported",
                            domain);
    snprintf(name, sizeof name, "%.40s.%.100s", domain, type);
    return sy_op_from_name(name, op);
}

static int read_node(struct sy_onnx_reader *r, const Onnx__NodeProto *from)
{
    enum sy_op op;
    int *outputs;
    SY_TRY(find_operator(from, &op));
    int opset = sy_onnx_node_opset(r->versions, from, r->opset);
    SY_TRY(check_age(opset, op));
    SY_TRY(sy_onnx_check_node(op, from));
    if (from->n_output < 1 || from->n_output > INT_MAX || from->n_input > INT_MAX)
        return sy_error_set(SY_ECORRUPT, "%zu inputs, %zu outputs", from->n_input, from->n_output);
    SY_TRY(sy_graph_alloc(from->n_output, sizeof *outputs, &outputs));
    int status = node_outputs(r, from, outputs);
    if (status == SY_OK)
        status = sy_graph_add_node(r->graph, op, opset,
                                   *sy_onnx_text(from->name) ? from->name
                                                             : sy_onnx_text(from->output[0]),
                                   0, NULL, (int)from->n_output, outputs, NULL);
    free(outputs);
    for (size_t i = 0; status == SY_OK && i < from->n_attribute; i++)
        status = read_attribute(r, r->graph->n_nodes - 1, from->attribute[i]);
    return status;
}

/* An attribute names the tensor to differentiate; as the node's last input, it is computed before the node. */
static int connect_gradient(struct sy_onnx_reader *r, struct sy_node *node)
{
    const struct sy_attr *y = sy_node_attr(node, "y");
    int tensor = -1;
    if (y && y->kind == SY_ATTR_STRING && y->s)
        SY_TRY(sy_onnx_find_tensor(r, y->s, &tensor));
    if (tensor < 0)
        return sy_error_set(SY_ECORRUPT, "nothing makes its 'y'");
    return sy_node_add_input(node, tensor);
}

/* Runs after all outputs are known, since nodes may come in any order. */
/* A small type that a constant says: copies of bodies keep attributes, not what a tensor was in the file. */
static int name_small_type(const struct sy_onnx_reader *r, struct sy_node *node)
{
    bool is_cast = node->op == SY_OP_CAST_LIKE;
    int tensor = sy_node_input(node, is_cast ? 1 : 2);
    if ((!is_cast && node->op != SY_OP_QUANTIZE_LINEAR) || tensor < 0 ||
        r->graph->tensors[tensor].small_type == 0)
        return SY_OK;
    return sy_node_set_int(node, is_cast ? "to" : "output_dtype",
                           r->graph->tensors[tensor].small_type);
}

static int connect_node(struct sy_onnx_reader *r, const Onnx__NodeProto *from, struct sy_node *node)
{
    for (size_t i = 0; i < from->n_input; i++) {
        int tensor = -1;
        if (*sy_onnx_text(from->input[i]))
            SY_TRY(sy_onnx_find_tensor(r, from->input[i], &tensor));
        if (tensor < 0 && *sy_onnx_text(from->input[i]))
            return sy_error_set(SY_ECORRUPT, "nothing makes its input '%.120s'", from->input[i]);
        SY_TRY(sy_node_add_input(node, tensor));
    }
    SY_TRY(name_small_type(r, node));
    return node->op == SY_OP_GRADIENT ? connect_gradient(r, node) : SY_OK;
}

static int name_node(const struct sy_onnx_reader *r, const Onnx__NodeProto *node, int status)
{
    const char *name = *sy_onnx_text(node->name) ? node->name
                       : node->n_output          ? sy_onnx_text(node->output[0])
                                                 : "";
    return sy_error_prefix(status, "node '%.120s' (%.60s, opset %d)", name,
                           sy_onnx_text(node->op_type),
                           sy_onnx_node_opset(r->versions, node, r->opset));
}

static int read_nodes(struct sy_onnx_reader *r)
{
    const Onnx__GraphProto *graph = r->proto;
    int n = r->graph->n_nodes; /* list inputs have nodes already */
    for (size_t i = 0; i < graph->n_node; i++) {
        int status = is_constant_node(graph->node[i]) ? read_constant_node(r, graph->node[i])
                                                      : read_node(r, graph->node[i]);
        if (status < 0)
            return name_node(r, graph->node[i], status);
    }
    for (size_t i = 0; i < graph->n_node; i++) {
        if (is_constant_node(graph->node[i]))
            continue;
        int status = connect_node(r, graph->node[i], &r->graph->nodes[n]);
        if (status == SY_OK)
            status = sy_onnx_read_bodies(r, graph->node[i], &r->graph->nodes[n]);
        n++;
        if (status < 0)
            return name_node(r, graph->node[i], status);
    }
    return SY_OK;
}

/* ---- the file --------------------------------------------------------------------------------- */

static int find_opset(struct sy_onnx_reader *r)
{
    int64_t version = 1;
    for (size_t i = 0; i < r->model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *import = r->model->opset_import[i];
        if (!*sy_onnx_text(import->domain) || strcmp(import->domain, "ai.onnx") == 0)
            version = import->version;
    }
    if (version < 1 || version > SY_ONNX_MAX_OPSET)
        return sy_error_set(
            SY_EUNSUPPORTED,
            "%s uses opset %lld; %d to %d are supported, export it again with one of "
            "those",
            r->path, (long long)version, SY_ONNX_MIN_OPSET, SY_ONNX_MAX_OPSET);
    r->opset = (int)version;
    return SY_OK;
}

static int name_constant(struct sy_onnx_reader *r, const char *name, int tensor)
{
    if (sy_name_map_get(&r->map, name) >= 0)
        return sy_error_set(SY_ECORRUPT, "constant '%.120s' occurs twice", name);
    sy_name_map_set(&r->map, name, tensor);
    return SY_OK;
}

static int read_initializers(struct sy_onnx_reader *r)
{
    const Onnx__GraphProto *graph = r->proto;
    int tensor;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const char *name = sy_onnx_text(graph->initializer[i]->name);
        SY_TRY(sy_onnx_read_tensor(r, graph->initializer[i], name, &tensor));
        SY_TRY(name_constant(r, name, tensor));
    }
    for (size_t i = 0; i < graph->n_sparse_initializer; i++) {
        Onnx__SparseTensorProto *sparse = graph->sparse_initializer[i];
        const char *name = sparse->values ? sy_onnx_text(sparse->values->name) : "";
        SY_TRY(sy_onnx_read_sparse(r, sparse, name, &tensor));
        SY_TRY(name_constant(r, name, tensor));
    }
    return SY_OK;
}

static bool returns_input(const struct sy_graph *graph)
{
    bool found = false;
    for (int i = 0; i < graph->n_outputs; i++)
        found |= !graph->tensors[graph->outputs[i]].data;
    return found && graph->n_nodes == 0;
}

int sy_onnx_read_graph(struct sy_onnx_reader *r)
{
    const Onnx__GraphProto *graph = r->proto;
    size_t n_names = graph->n_initializer + graph->n_sparse_initializer + graph->n_input;
    for (size_t i = 0; i < graph->n_node; i++)
        n_names += graph->node[i]->n_output;
    if (n_names > INT_MAX / 4 || graph->n_node > INT_MAX / 4)
        return sy_error_set(SY_EUNSUPPORTED, "%s has %zu tensors", r->path, n_names);
    SY_TRY(sy_name_map_init(&r->map, n_names));
    SY_TRY(note_declared(r));
    SY_TRY(sy_graph_create(graph->name, &r->graph));
    SY_TRY(read_initializers(r));
    SY_TRY(sy_graph_alloc(graph->n_input * SY_LIST_PARTS, sizeof *r->graph->inputs,
                          &r->graph->inputs));
    for (size_t i = 0; i < graph->n_input; i++)
        SY_TRY(sy_onnx_read_input(r, graph->input[i]));
    SY_TRY(read_nodes(r));
    SY_TRY(sy_onnx_read_outputs(r));
    if (!r->outer &&
        returns_input(r->graph)) /* a package has layers; inference gives constants theirs */
        SY_TRY(sy_onnx_copy_passed_through(r->graph));
    SY_TRY(sy_graph_sort(r->graph));
    return sy_graph_check(r->graph);
}

static int check_dims_used(const struct sy_onnx_reader *r)
{
    for (int i = 0; i < r->n_dims; i++)
        if (!r->dims_used[i])
            return sy_error_set(SY_EARG, "no input has a symbolic dimension '%.100s'",
                                r->dims[i].name);
    return SY_OK;
}

int sy_onnx_read_sized(const char *path, const struct sy_onnx_dim *dims, int n_dims,
                       struct sy_graph **out)
{
    struct sy_onnx_versions versions = {0};
    size_t dense_bytes = 0;
    struct sy_onnx_reader r = {.path = path,
                               .dims = dims,
                               .n_dims = n_dims,
                               .versions = &versions,
                               .dense_bytes = &dense_bytes};
    int status;
    SY_TRY(sy_graph_alloc((size_t)n_dims, sizeof *r.dims_used, &r.dims_used));
    SY_TRY_GOTO(unpack(&r), out);
    SY_TRY_GOTO(find_opset(&r), out);
    r.proto = r.model->graph;
    status = sy_onnx_inline_functions(r.model, &versions);
    if (status == SY_OK)
        status = sy_onnx_find_ranks(&r);
    if (status == SY_OK)
        status = sy_onnx_read_graph(&r);
    if (status == SY_OK)
        status = check_dims_used(&r);
    if (status < 0) {
        sy_error_prefix(status, "%s", path);
        goto out;
    }
    *out = r.graph;
    r.graph = NULL;
out:
    sy_graph_free(r.graph);
    free(r.dims_used);
    free(versions.of);
    if (r.model)
        onnx__model_proto__free_unpacked(r.model, NULL);
    sy_name_map_finish(&r.map);
    sy_name_map_finish(&r.declared);
    return status;
}

int sy_onnx_read(const char *path, struct sy_graph **out)
{
    return sy_onnx_read_sized(path, NULL, 0, out);
}

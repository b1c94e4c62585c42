/* Inputs and outputs of a file that are sequences or optionals, and inputs that are maps, by their parts (list_ends.h). */
#include <stdio.h>
#include <string.h>

#include "loader/graph/list_ends.h"
#include "loader/onnx/onnx_internal.h"
#include "runtime/base/status.h"

enum { MAX_PART_NAME = 1100 };

struct list_type {
    bool is_optional, is_sequence;
    const Onnx__TypeProto__Tensor *tensor;
};

static bool is_sequence(const Onnx__TypeProto *type)
{
    return type && type->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE && type->sequence_type;
}

static bool is_optional(const Onnx__TypeProto *type)
{
    return type && type->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE && type->optional_type;
}

/* The type that ZipMap produces: a sequence of maps. The graph has the tensor of its values instead, a column for each key (expand_learn.c). */
static bool is_of_maps(const Onnx__TypeProto *sequence)
{
    const Onnx__TypeProto *each = sequence->sequence_type->elem_type;
    return each && each->value_case == ONNX__TYPE_PROTO__VALUE_MAP_TYPE;
}

bool sy_onnx_is_list(const Onnx__ValueInfoProto *info)
{
    return is_optional(info->type) || (is_sequence(info->type) && !is_of_maps(info->type));
}

static int read_type(const char *kind, const Onnx__ValueInfoProto *info, struct list_type *out)
{
    const Onnx__TypeProto *type = info->type;
    const char *name = sy_onnx_text(info->name);
    *out = (struct list_type){.is_optional = is_optional(type)};
    if (out->is_optional)
        type = type->optional_type->elem_type;
    out->is_sequence = is_sequence(type);
    if (out->is_sequence)
        type = type->sequence_type->elem_type;
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !type->tensor_type)
        return sy_error_set(
            SY_EUNSUPPORTED,
            "%s '%.120s' is neither a tensor nor a sequence or an optional of tensors", kind, name);
    out->tensor = type->tensor_type;
    if (sy_dtype_bytes((enum sy_dtype)out->tensor->elem_type) == 0)
        return sy_error_set(SY_EUNSUPPORTED, "%s '%.120s' has element type %d, which is not known",
                            kind, name, (int)out->tensor->elem_type);
    return SY_OK;
}

/* Its tensors' declared rank; -1: none. A shape without dimensions counts as unknown: exporters write it so. */
static int declared_rank(const struct list_type *type)
{
    const Onnx__TensorShapeProto *shape = type->tensor->shape;
    return shape && shape->n_dim > 0 && shape->n_dim <= SY_MAX_RANK ? (int)shape->n_dim : -1;
}

static void part_name(const char *name, const char *end, char *out)
{
    snprintf(out, MAX_PART_NAME, "%s%s", name, end);
}

/* Adds a size that each request chooses, or uses the number that the caller gave for it. */
static int add_open(struct sy_onnx_reader *r, const char *name, const char *end, int64_t usual,
                    struct sy_dim *out)
{
    char text[MAX_PART_NAME];
    struct sy_graph *graph = r->graph;
    int n = graph->n_symbols;
    part_name(name, end, text);
    for (int k = 0; k < r->n_dims; k++)
        if (r->dims[k].size >= 0 && strcmp(r->dims[k].name, text) == 0) {
            r->dims_used[k] = true;
            *out = (struct sy_dim){.fixed = r->dims[k].size};
            return SY_OK;
        }
    SY_TRY(sy_graph_add_symbol(graph, text, 1, 0, out));
    if (graph->n_symbols > n)
        graph->symbols[n].usual = usual;
    return SY_OK;
}

/* ---- inputs ------------------------------------------------------------------------------------- */

static int add_input(struct sy_onnx_reader *r, const char *list, const char *end,
                     enum sy_dtype dtype, const struct sy_shape *shape, int *out)
{
    char name[MAX_PART_NAME];
    part_name(list, end, name);
    for (size_t i = 0; *end && i < r->proto->n_input; i++)
        if (strcmp(sy_onnx_text(r->proto->input[i]->name), name) == 0)
            return sy_error_set(SY_EUNSUPPORTED,
                                "input '%.120s' has the name of a part of input '%.120s'", name,
                                list);
    SY_TRY(sy_graph_add_tensor(r->graph, name, dtype, shape, out));
    r->graph->inputs[r->graph->n_inputs++] = *out;
    return SY_OK;
}

/* Adds an input for each part of the list; returns their number. */
static int add_input_parts(struct sy_onnx_reader *r, const char *name, const struct list_type *type,
                           int *parts)
{
    static const struct sy_shape one = {.rank = 1, .dims = {{1, 0}}};
    struct sy_shape elements = {.rank = 1}, shapes = {.rank = 2};
    int rank = declared_rank(type);
    SY_TRY(add_open(r, name, ".elements", 0, &elements.dims[0]));
    SY_TRY(add_open(r, name, ".length", 1, &shapes.dims[0]));
    if (rank > 0)
        shapes.dims[1].fixed = rank;
    else
        SY_TRY(add_open(r, name, ".rank", 1, &shapes.dims[1]));
    SY_TRY(add_input(r, name, "", (enum sy_dtype)type->tensor->elem_type, &elements, &parts[0]));
    SY_TRY(add_input(r, name, SY_LIST_SHAPES, SY_DTYPE_I64, &shapes, &parts[1]));
    if (!type->is_optional || !type->is_sequence)
        return 2;
    SY_TRY(add_input(r, name, SY_LIST_HAS, SY_DTYPE_BOOL, &one, &parts[2]));
    return 3;
}

static int set_kind(struct sy_node *node, const struct list_type *type)
{
    SY_TRY(sy_node_set_int(node, "sequence", type->is_sequence));
    return sy_node_set_int(node, "optional", type->is_optional);
}

static int set_dims(struct sy_node *node, const struct list_type *type)
{
    int64_t dims[SY_MAX_RANK];
    int rank = declared_rank(type);
    for (int i = 0; i < rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = type->tensor->shape->dim[i];
        bool is_number = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        dims[i] = is_number && dim->dim_value >= 0 ? dim->dim_value : -1;
    }
    return rank > 0 ? sy_node_set_ints(node, "dims", rank, dims) : SY_OK;
}

int sy_onnx_read_list_input(struct sy_onnx_reader *r, const Onnx__ValueInfoProto *info)
{
    const char *name = sy_onnx_text(info->name);
    struct list_type type;
    struct sy_node *node;
    int parts[SY_LIST_PARTS], list;
    SY_TRY(read_type("input", info, &type));
    int n = add_input_parts(r, name, &type, parts);
    SY_TRY(n);
    SY_TRY(sy_graph_add_tensor(r->graph, name, SY_DTYPE_NONE, NULL, &list));
    SY_TRY(sy_graph_add_node(r->graph, SY_OP_LIST_OF_PARTS, r->opset, name, n, parts, 1, &list,
                             &node));
    SY_TRY(set_kind(node, &type));
    SY_TRY(set_dims(node, &type));
    sy_name_map_set(&r->map, sy_onnx_text(info->name), list);
    return SY_OK;
}

/* ---- maps --------------------------------------------------------------------------------------- */

bool sy_onnx_is_map(const Onnx__ValueInfoProto *info)
{
    return info->type && info->type->value_case == ONNX__TYPE_PROTO__VALUE_MAP_TYPE &&
           info->type->map_type;
}

int sy_onnx_read_map_input(struct sy_onnx_reader *r, const Onnx__ValueInfoProto *info)
{
    const char *name = sy_onnx_text(info->name);
    const Onnx__TypeProto__Map *type = info->type->map_type;
    const Onnx__TypeProto *value = type->value_type;
    struct sy_shape shape = {.rank = 1};
    struct sy_node *node;
    int parts[2], map;
    enum sy_dtype key = (enum sy_dtype)type->key_type;
    if (!value || value->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !value->tensor_type ||
        sy_dtype_bytes((enum sy_dtype)value->tensor_type->elem_type) == 0 ||
        (key != SY_DTYPE_I64 && key != SY_DTYPE_STRING))
        return sy_error_set(SY_EUNSUPPORTED,
                            "input '%.120s' is a map from element type %d to other than a number "
                            "or a text; keys are int64 or string",
                            name, (int)key);
    SY_TRY(add_open(r, name, ".length", 1, &shape.dims[0]));
    SY_TRY(add_input(r, name, SY_MAP_KEYS, key, &shape, &parts[0]));
    SY_TRY(add_input(r, name, SY_MAP_VALUES, (enum sy_dtype)value->tensor_type->elem_type, &shape,
                     &parts[1]));
    SY_TRY(sy_graph_add_tensor(r->graph, name, SY_DTYPE_NONE, NULL, &map));
    SY_TRY(sy_graph_add_node(r->graph, SY_OP_SEQUENCE_CONSTRUCT, r->opset, name, 2, parts, 1, &map,
                             &node));
    sy_name_map_set(&r->map, sy_onnx_text(info->name), map);
    return SY_OK;
}

/* ---- outputs ------------------------------------------------------------------------------------ */

int sy_onnx_add_list_output(struct sy_onnx_reader *r, const Onnx__ValueInfoProto *info, int tensor)
{
    static const char *const ends[] = {"", SY_LIST_SHAPES, SY_LIST_HAS};
    static const struct sy_shape shapes[] = {{.rank = 1, .dims = {{1, 0}}},
                                             {.rank = 2, .dims = {{1, 0}, {1, 0}}},
                                             {.rank = 1, .dims = {{1, 0}}}};
    const char *name = sy_onnx_text(info->name);
    enum sy_dtype dtypes[] = {SY_DTYPE_NONE, SY_DTYPE_I64, SY_DTYPE_BOOL};
    struct list_type type;
    struct sy_node *node;
    int parts[SY_LIST_PARTS];
    SY_TRY(read_type("output", info, &type));
    dtypes[0] = (enum sy_dtype)type.tensor->elem_type;
    int n = type.is_optional && type.is_sequence ? 3 : 2;
    for (int i = 0; i < n; i++) {
        char text[MAX_PART_NAME];
        part_name(name, ends[i], text);
        SY_TRY(sy_graph_add_tensor(r->graph, text, dtypes[i], &shapes[i], &parts[i]));
        r->graph->outputs[r->graph->n_outputs++] = parts[i];
    }
    SY_TRY(sy_graph_add_node(r->graph, SY_OP_PARTS_OF_LIST, r->opset, name, 1, &tensor, n, parts,
                             &node));
    SY_TRY(sy_node_set_int(node, "dtype", dtypes[0]));
    return set_kind(node, &type);
}

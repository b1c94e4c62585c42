/* A graph's inputs with their shapes, which dimension of them is the batch and which stay open, and its outputs. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "loader/graph/list_ends.h"
#include "loader/graph/small_types.h"
#include "loader/onnx/onnx_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"

enum { MAX_NAME = 1024, MAX_SYMBOL_NAME = 256, MOST_BATCHES = 4, MOST_NUMBERED = 8 };

/* A negative number (Paddle writes -1) means an unknown size. */
static bool is_open(const Onnx__TensorShapeProto__Dimension *dim)
{
    return dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE ||
           dim->dim_value < 0;
}

/* "" if it has none, or one without a letter: "?" (Paddle's) or "-1" of two dimensions does not say that they are equal. */
static const char *name_of(const Onnx__TensorShapeProto__Dimension *dim)
{
    const char *name = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                           ? sy_onnx_text(dim->dim_param)
                           : "";
    for (const char *c = name; *c; c++)
        if (isalpha((unsigned char)*c) || (unsigned char)*c >= 0x80)
            return name;
    return "";
}

/* Whether the caller has a number for dimension i of the input. */
static bool given_size(const struct sy_onnx_reader *r, const char *input, int i,
                       const Onnx__TensorShapeProto__Dimension *dim, int64_t *size)
{
    const char *name = name_of(dim);
    char place[256];
    snprintf(place, sizeof place, "%.200s.%d", input, i);
    for (int k = 0; k < r->n_dims; k++) {
        if (r->dims[k].size < 0 ||
            (strcmp(r->dims[k].name, place) != 0 && (!*name || strcmp(r->dims[k].name, name) != 0)))
            continue;
        r->dims_used[k] = true;
        *size = r->dims[k].size;
        return true;
    }
    return false;
}

static const Onnx__TensorShapeProto *shape_of(const Onnx__ValueInfoProto *info)
{
    return info->type && info->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
                   info->type->tensor_type
               ? info->type->tensor_type->shape
               : NULL;
}

static bool says_batch(const char *name)
{
    return strcasestr(name, "batch") != NULL;
}

/* Whether some input has an open dimension of that name that is not its first. */
static bool is_not_first(const struct sy_onnx_reader *r, const char *name)
{
    for (size_t i = 0; i < r->proto->n_input; i++) {
        const Onnx__TensorShapeProto *shape = shape_of(r->proto->input[i]);
        for (size_t d = 1; shape && d < shape->n_dim; d++)
            if (strcmp(name_of(shape->dim[d]), name) == 0)
                return true;
    }
    return false;
}

/* The first dimension is time if the input has its batch elsewhere; or it is a size that other inputs have in another place, beside their own batch. */
static bool first_is_other(const struct sy_onnx_reader *r, const Onnx__TensorShapeProto *own)
{
    const char *name = name_of(own->dim[0]);
    if (name[0] == '\0' || says_batch(name))
        return false;
    for (size_t d = 1; d < own->n_dim; d++)
        if (says_batch(name_of(own->dim[d])))
            return true;
    for (size_t i = 0; i < r->proto->n_input; i++) {
        const Onnx__TensorShapeProto *shape = shape_of(r->proto->input[i]);
        if (shape && shape->n_dim > 0 && says_batch(name_of(shape->dim[0])) &&
            is_not_first(r, name))
            return true;
    }
    return false;
}

/* Exporters without names number every open dimension: each is a separate open size. */
static bool is_numbered(const char *name)
{
    return name[0] == '\0' || strstr(name, "_dynamic_axes_") || strncmp(name, "unk__", 5) == 0;
}

/* Whether a first dimension has another name than the first input's: two batches, as texts and images have. Where they meet they are found to be
 * one. Of numbers that an exporter gave, and of no name, each is another. */
static bool is_other_batch(const struct sy_onnx_reader *r, const char *input, const char *name)
{
    const char *first = NULL, *first_input = NULL;
    int n_others = 0, n_open = 0;
    for (size_t i = 0; i < r->proto->n_input; i++) {
        const Onnx__ValueInfoProto *info = r->proto->input[i];
        const Onnx__TensorShapeProto *shape = shape_of(info);
        for (size_t d = 1; shape && d < shape->n_dim; d++)
            n_open += is_open(shape->dim[d]) && is_numbered(name_of(shape->dim[d]));
        if (!shape || shape->n_dim == 0 || !is_open(shape->dim[0]) || first_is_other(r, shape))
            continue;
        const char *own = name_of(shape->dim[0]);
        first = first ? first : own;
        first_input = first_input ? first_input : sy_onnx_text(info->name);
        n_others += strcmp(own, first) != 0 || own[0] == '\0';
    }
    if (!first || n_others > MOST_BATCHES || n_others + n_open > MOST_NUMBERED)
        return false;
    return name[0] == '\0' ? strcmp(first_input, input) != 0 : strcmp(first, name) != 0;
}

/* Whether an open dimension is N: the first dimensions, those of the same name, and those named as a batch. */
static bool is_batch(const struct sy_onnx_reader *r, const char *input,
                     const Onnx__TensorShapeProto *own, int i)
{
    const char *name = name_of(own->dim[i]);
    if (is_other_batch(r, input, name) && (i == 0 || says_batch(name)))
        return false;
    if (i == 0)
        return !first_is_other(r, own);
    if (says_batch(name))
        return true;
    for (size_t k = 0; name[0] != '\0' && k < r->proto->n_input; k++) {
        const Onnx__TensorShapeProto *shape = shape_of(r->proto->input[k]);
        if (shape && shape->n_dim > 0 && strcmp(name_of(shape->dim[0]), name) == 0)
            return !first_is_other(r, shape) && !is_other_batch(r, input, name);
    }
    return false;
}

/* Dimension i of an input without a number: N, or a symbol. */
static int open_dim(const struct sy_onnx_reader *r, const char *input,
                    const Onnx__TensorShapeProto *shape, int i, struct sy_dim *out)
{
    char place[256];
    const char *name = name_of(shape->dim[i]);
    snprintf(place, sizeof place, "%.200s.%d", input, i);
    bool is_n = is_batch(r, input, shape, i);
    name = name[0] != '\0' ? name : place;
    if (strlen(name) > MAX_SYMBOL_NAME || sy_printable_length(name) != strlen(name))
        return sy_error_set(SY_EUNSUPPORTED,
                            "input '%.120s': the name of dimension %d is not short plain text",
                            input, i);
    if (is_n) {
        out->per_batch = 1;
        return r->graph->batch_name ? SY_OK : sy_graph_strdup(name, &r->graph->batch_name);
    }
    int n_before = r->graph->n_symbols;
    SY_TRY(sy_graph_add_symbol(r->graph, name, (int)shape->n_dim, i, out));
    bool is_rows = i == 0 && shape->n_dim > 1 && is_other_batch(r, input, name_of(shape->dim[0]));
    if (is_rows && r->graph->n_symbols > n_before)
        r->graph->symbols[n_before].usual = 1; /* as N */
    return SY_OK;
}

static int input_shape(const struct sy_onnx_reader *r, const char *name,
                       const Onnx__TypeProto__Tensor *type, struct sy_shape *shape)
{
    if (!type->shape)
        return sy_error_set(SY_EUNSUPPORTED,
                            "input '%.120s' has no shape, and no reader tells how many dimensions "
                            "it has; say it (import --dim %.120s.rank=N)",
                            name, name);
    if (type->shape->n_dim > SY_MAX_RANK)
        return sy_error_set(SY_EUNSUPPORTED,
                            "input '%.120s' has %zu dimensions, at most %d are supported", name,
                            type->shape->n_dim, SY_MAX_RANK);
    *shape = (struct sy_shape){.rank = (int)type->shape->n_dim};
    for (int i = 0; i < shape->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = type->shape->dim[i];
        if (!is_open(dim))
            shape->dims[i].fixed = dim->dim_value;
        else if (!given_size(r, name, i, dim, &shape->dims[i].fixed))
            SY_TRY(open_dim(r, name, type->shape, i, &shape->dims[i]));
    }
    return SY_OK;
}

/* Names of inputs and outputs are used and shown by clients, so they must be printable. */
static int check_name(const char *kind, const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > MAX_NAME)
        return sy_error_set(SY_EUNSUPPORTED, "%s '%.60s' has a name of %zu bytes; 1 to %d", kind,
                            name, n, MAX_NAME);
    if (sy_printable_length(name) != n)
        return sy_error_set(SY_EUNSUPPORTED,
                            "%s '%.120s': its name is not text without control characters", kind,
                            name);
    return SY_OK;
}

/* An input of a small type comes in a wider one, from which it is rounded. */
static int round_input(struct sy_onnx_reader *r, const char *name, int type, int *tensor)
{
    struct sy_node *node;
    int from = *tensor;
    SY_TRY(sy_graph_add_tensor(r->graph, name, SY_DTYPE_NONE, NULL, tensor));
    SY_TRY(sy_graph_add_node(r->graph, SY_OP_CAST, SY_MAX(r->opset, 13), name, 1, &from, 1, tensor,
                             &node));
    return sy_node_set_int(node, "to", type);
}

int sy_onnx_read_input(struct sy_onnx_reader *r, const Onnx__ValueInfoProto *info)
{
    const char *name = sy_onnx_text(info->name);
    struct sy_shape shape;
    int tensor = sy_name_map_get(&r->map, name);
    if (tensor >= 0 && r->graph->tensors[tensor].data)
        return SY_OK; /* up to IR version 3 initializers are listed as inputs too */
    if (tensor >= 0)
        return sy_error_set(SY_ECORRUPT, "input '%.120s' is declared twice", name);
    if (r->outer) { /* a body's inputs get their types where it is called */
        SY_TRY(sy_graph_add_tensor(r->graph, name, SY_DTYPE_NONE, NULL, &tensor));
        sy_name_map_set(&r->map, sy_onnx_text(info->name), tensor);
        r->graph->inputs[r->graph->n_inputs++] = tensor;
        return SY_OK;
    }
    SY_TRY(check_name("input", name));
    if (sy_onnx_is_map(info))
        return sy_onnx_read_map_input(r, info);
    if (!info->type || info->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
        !info->type->tensor_type)
        return sy_onnx_read_list_input(r, info);
    int small_type = info->type->tensor_type->elem_type;
    enum sy_dtype carrier = sy_small_carrier(small_type),
                  dtype = carrier != SY_DTYPE_NONE ? carrier : (enum sy_dtype)small_type;
    if (sy_dtype_bytes(dtype) == 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "input '%.120s' has element type %d, which is not supported", name,
                            (int)dtype);
    SY_TRY(input_shape(r, name, info->type->tensor_type, &shape));
    SY_TRY(sy_graph_add_tensor(r->graph, name, dtype, &shape, &tensor));
    r->graph->inputs[r->graph->n_inputs++] = tensor;
    if (carrier != SY_DTYPE_NONE)
        SY_TRY(round_input(r, name, small_type, &tensor));
    sy_name_map_set(&r->map, info->name ? info->name : "", tensor);
    return SY_OK;
}

/* If a name is declared twice, the map has the last declaration. */
static int check_output(const struct sy_onnx_reader *r, size_t i)
{
    const char *name = sy_onnx_text(r->proto->output[i]->name);
    SY_TRY(check_name("output", name));
    if (sy_name_map_get(&r->declared, name) != (int)(r->proto->n_value_info + i))
        return sy_error_set(SY_ECORRUPT, "output '%.120s' is declared twice", name);
    return SY_OK;
}

int sy_onnx_read_outputs(struct sy_onnx_reader *r)
{
    const Onnx__GraphProto *graph = r->proto;
    if (graph->n_output == 0)
        return sy_error_set(SY_ECORRUPT, "the graph has no outputs");
    SY_TRY(sy_graph_alloc(graph->n_output * SY_LIST_PARTS, sizeof *r->graph->outputs,
                          &r->graph->outputs));
    for (size_t i = 0; i < graph->n_output; i++) {
        int tensor;
        if (!r->outer)
            SY_TRY(check_output(r, i));
        SY_TRY(sy_onnx_find_tensor(r, sy_onnx_text(graph->output[i]->name), &tensor));
        if (tensor < 0)
            return sy_error_set(SY_ECORRUPT, "no node makes output '%.120s'",
                                sy_onnx_text(graph->output[i]->name));
        if (!r->outer && sy_onnx_is_list(graph->output[i]))
            SY_TRY(sy_onnx_add_list_output(r, graph->output[i], tensor));
        else
            r->graph->outputs[r->graph->n_outputs++] = tensor;
    }
    return SY_OK;
}

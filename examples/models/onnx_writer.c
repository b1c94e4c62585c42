#include "examples/models/onnx_writer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPSET = 13, IR_VERSION = 7 };

struct onnx_writer {
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset;
    Onnx__OperatorSetIdProto *opsets[1];
    void **owned; /* every block the graph points to */
    size_t n_owned, capacity;
};

static void *check(void *p)
{
    if (!p) {
        fprintf(stderr, "make-models: out of memory\n");
        exit(1);
    }
    return p;
}

static void *own(struct onnx_writer *w, void *p)
{
    check(p);
    if (w->n_owned == w->capacity) {
        w->capacity = w->capacity ? 2 * w->capacity : 1024;
        w->owned = check(realloc(w->owned, w->capacity * sizeof *w->owned));
    }
    w->owned[w->n_owned++] = p;
    return p;
}

static void *allocate(struct onnx_writer *w, size_t bytes)
{
    return own(w, calloc(1, bytes ? bytes : 1));
}

/* Appends to a pointer array of the graph. Grown at powers of two, and freed as a whole in close. */
static void append(void ***array, size_t *n, void *item)
{
    if ((*n & (*n - 1)) == 0)
        *array = check(realloc(*array, (*n ? 2 * *n : 1) * sizeof **array));
    (*array)[(*n)++] = item;
}

#define APPEND(owner, list, item) append((void ***)&(owner)->list, &(owner)->n_##list, (item))

struct onnx_writer *onnx_writer_open(const char *graph_name)
{
    struct onnx_writer *w = check(calloc(1, sizeof *w));
    onnx__model_proto__init(&w->model);
    onnx__graph_proto__init(&w->graph);
    onnx__operator_set_id_proto__init(&w->opset);
    w->opset.domain = (char *)"";
    w->opset.has_version = 1;
    w->opset.version = OPSET;
    w->opsets[0] = &w->opset;
    w->model.has_ir_version = 1;
    w->model.ir_version = IR_VERSION;
    w->model.producer_name = (char *)"switchyard-make-models";
    w->model.n_opset_import = 1;
    w->model.opset_import = w->opsets;
    w->model.graph = &w->graph;
    w->graph.name = (char *)onnx_name(w, "%s", graph_name);
    return w;
}

void onnx_writer_close(struct onnx_writer *w)
{
    for (size_t i = 0; i < w->graph.n_node; i++) {
        for (size_t k = 0; k < w->graph.node[i]->n_attribute; k++)
            free(w->graph.node[i]->attribute[k]->ints);
        free(w->graph.node[i]->attribute);
        free(w->graph.node[i]->input);
        free(w->graph.node[i]->output);
    }
    free(w->graph.node);
    free(w->graph.initializer);
    free(w->graph.input);
    free(w->graph.output);
    for (size_t i = 0; i < w->n_owned; i++)
        free(w->owned[i]);
    free(w->owned);
    free(w);
}

const char *onnx_name(struct onnx_writer *w, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    return own(w, text);
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

static Onnx__TensorShapeProto__Dimension *dimension(struct onnx_writer *w, int64_t value)
{
    Onnx__TensorShapeProto__Dimension *dim = allocate(w, sizeof *dim);
    onnx__tensor_shape_proto__dimension__init(dim);
    if (value == ONNX_BATCH) {
        dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        dim->dim_param = (char *)"N";
    } else {
        dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        dim->dim_value = value;
    }
    return dim;
}

static Onnx__ValueInfoProto *value_info(struct onnx_writer *w, const char *name, int elem_type,
                                        int rank, const int64_t *dims)
{
    Onnx__ValueInfoProto *info = allocate(w, sizeof *info);
    Onnx__TypeProto *type = allocate(w, sizeof *type);
    Onnx__TypeProto__Tensor *tensor = allocate(w, sizeof *tensor);
    Onnx__TensorShapeProto *shape = allocate(w, sizeof *shape);
    onnx__value_info_proto__init(info);
    onnx__type_proto__init(type);
    onnx__type_proto__tensor__init(tensor);
    onnx__tensor_shape_proto__init(shape);
    shape->dim = allocate(w, (size_t)rank * sizeof *shape->dim);
    for (int i = 0; i < rank; i++)
        shape->dim[shape->n_dim++] = dimension(w, dims[i]);
    tensor->has_elem_type = 1;
    tensor->elem_type = elem_type;
    tensor->shape = shape;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    info->name = (char *)name;
    info->type = type;
    return info;
}

const char *onnx_input(struct onnx_writer *w, const char *name, int elem_type, int rank,
                       const int64_t *dims)
{
    name = onnx_name(w, "%s", name);
    APPEND(&w->graph, input, value_info(w, name, elem_type, rank, dims));
    return name;
}

static void rename_all(char **names, size_t n, const char *from, const char *to)
{
    for (size_t i = 0; i < n; i++)
        if (names[i] == from)
            names[i] = (char *)to;
}

void onnx_output(struct onnx_writer *w, const char *tensor, const char *name, int elem_type,
                 int rank, const int64_t *dims)
{
    name = onnx_name(w, "%s", name);
    for (size_t i = 0; i < w->graph.n_node; i++) {
        rename_all(w->graph.node[i]->input, w->graph.node[i]->n_input, tensor, name);
        rename_all(w->graph.node[i]->output, w->graph.node[i]->n_output, tensor, name);
    }
    APPEND(&w->graph, output, value_info(w, name, elem_type, rank, dims));
}

/* ---- constants ------------------------------------------------------------------------------- */

static void *add_initializer(struct onnx_writer *w, const char *name, int elem_type,
                             size_t element_bytes, int rank, const int64_t *dims,
                             size_t *n_elements)
{
    Onnx__TensorProto *tensor = allocate(w, sizeof *tensor);
    onnx__tensor_proto__init(tensor);
    tensor->dims = allocate(w, (size_t)rank * sizeof *tensor->dims);
    tensor->n_dims = (size_t)rank;
    size_t n = 1;
    for (int i = 0; i < rank; i++) {
        tensor->dims[i] = dims[i];
        n *= (size_t)dims[i];
    }
    tensor->has_data_type = 1;
    tensor->data_type = elem_type;
    tensor->name = (char *)name;
    tensor->has_raw_data = 1;
    tensor->raw_data.len = n * element_bytes;
    tensor->raw_data.data = own(w, malloc(n * element_bytes + 1));
    APPEND(&w->graph, initializer, tensor);
    *n_elements = n;
    return tensor->raw_data.data;
}

/* splitmix64: element i of a stream is mix(seed + i * golden), so no element depends on another. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t name_seed(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3ull;
    return mix(hash);
}

/* Sum of four uniform 16-bit numbers, centred: close to normal, and exact in integers, so that the one
 * multiplication that follows gives the same float everywhere. Its deviation is 65536 / sqrt(3). */
static int bell(uint64_t bits)
{
    return (int)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48)) -
           2 * 0xffff;
}

const char *onnx_random(struct onnx_writer *w, const char *name, int rank, const int64_t *dims,
                        double mean, double deviation)
{
    const double bell_deviation = 65536 / 1.7320508075688772;
    size_t n;
    name = onnx_name(w, "%s", name);
    float *values = add_initializer(w, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, sizeof *values,
                                    rank, dims, &n);
    uint64_t seed = name_seed(name);
    double scale = deviation / bell_deviation;
    for (size_t i = 0; i < n; i++) {
        double noise = bell(mix(seed + (i + 1) * 0x9e3779b97f4a7c15ull)) * scale;
        values[i] = (float)(mean + noise);
    }
    return name;
}

const char *onnx_scalar(struct onnx_writer *w, const char *name, float value)
{
    size_t n;
    name = onnx_name(w, "%s", name);
    float *values =
        add_initializer(w, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, sizeof *values, 0, NULL, &n);
    values[0] = value;
    return name;
}

const char *onnx_int64s(struct onnx_writer *w, const char *name, int rank, int n,
                        const int64_t *values)
{
    size_t n_elements;
    const int64_t dims[1] = {n};
    name = onnx_name(w, "%s", name);
    int64_t *to = add_initializer(w, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, sizeof *to, rank,
                                  dims, &n_elements);
    memcpy(to, values, n_elements * sizeof *to);
    return name;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

const char *onnx_node(struct onnx_writer *w, const char *op, const char *scope, ...)
{
    Onnx__NodeProto *node = allocate(w, sizeof *node);
    onnx__node_proto__init(node);
    node->op_type = (char *)onnx_name(w, "%s", op);
    node->name = (char *)onnx_name(w, "/%s/%s_%zu", scope, op, w->graph.n_node);
    va_list args;
    va_start(args, scope);
    for (const char *input; (input = va_arg(args, const char *)) != NULL;)
        APPEND(node, input, (void *)input);
    va_end(args);
    const char *output = onnx_name(w, "%s_output_0", node->name);
    APPEND(node, output, (void *)output);
    APPEND(&w->graph, node, node);
    return output;
}

static Onnx__NodeProto *last_node(struct onnx_writer *w)
{
    return w->graph.node[w->graph.n_node - 1];
}

void onnx_add_input(struct onnx_writer *w, const char *tensor)
{
    APPEND(last_node(w), input, (void *)tensor);
}

static Onnx__AttributeProto *add_attribute(struct onnx_writer *w, const char *name,
                                           Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *attribute = allocate(w, sizeof *attribute);
    onnx__attribute_proto__init(attribute);
    attribute->name = (char *)onnx_name(w, "%s", name);
    attribute->has_type = 1;
    attribute->type = type;
    APPEND(last_node(w), attribute, attribute);
    return attribute;
}

void onnx_int(struct onnx_writer *w, const char *attribute, int64_t value)
{
    Onnx__AttributeProto *a =
        add_attribute(w, attribute, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    a->has_i = 1;
    a->i = value;
}

void onnx_float(struct onnx_writer *w, const char *attribute, float value)
{
    Onnx__AttributeProto *a =
        add_attribute(w, attribute, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    a->has_f = 1;
    a->f = value;
}

void onnx_string(struct onnx_writer *w, const char *attribute, const char *value)
{
    Onnx__AttributeProto *a =
        add_attribute(w, attribute, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    a->has_s = 1;
    a->s.data = (uint8_t *)onnx_name(w, "%s", value);
    a->s.len = strlen(value);
}

void onnx_ints(struct onnx_writer *w, const char *attribute, int n, const int64_t *values)
{
    Onnx__AttributeProto *a =
        add_attribute(w, attribute, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    a->n_ints = (size_t)n;
    a->ints = check(malloc((size_t)n * sizeof *a->ints));
    memcpy(a->ints, values, (size_t)n * sizeof *a->ints);
}

/* ---- the file -------------------------------------------------------------------------------- */

struct file_buffer {
    ProtobufCBuffer base;
    FILE *file;
    int failed;
};

static void append_to_file(ProtobufCBuffer *base, size_t bytes, const uint8_t *data)
{
    struct file_buffer *buffer = (struct file_buffer *)base;
    if (fwrite(data, 1, bytes, buffer->file) != bytes)
        buffer->failed = 1;
}

int onnx_writer_save(struct onnx_writer *w, const char *path)
{
    const char *temporary = onnx_name(w, "%s.%d.tmp", path, (int)getpid());
    struct file_buffer buffer = {.base = {append_to_file}, .file = fopen(temporary, "wb")};
    if (!buffer.file)
        return -1;
    onnx__model_proto__pack_to_buffer(&w->model, &buffer.base);
    int closed = fclose(buffer.file);
    if (closed != 0 || buffer.failed || rename(temporary, path) != 0) {
        int why = errno;
        unlink(temporary);
        errno = why;
        return -1;
    }
    return 0;
}

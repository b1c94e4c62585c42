#include "tests/nets/model_edit.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph.h"
#include "runtime/base/assert.h"

struct edit {
    const struct edit_choices *choices;
    Onnx__GraphProto *graph; /* the model's, or a body's */
    char *text;
    size_t text_bytes;
};

static size_t below(const struct edit *e, size_t n)
{
    return n ? (size_t)(e->choices->draw(e->choices->ctx) % n) : 0;
}

static void say(struct edit *e, const char *what, const char *which, long long value)
{
    snprintf(e->text, e->text_bytes, "%s of '%s' (%lld)", what, which ? which : "", value);
}

static int64_t whole(const struct edit *e)
{
    static const int64_t values[] = {0,
                                     1,
                                     2,
                                     3,
                                     -1,
                                     -2,
                                     7,
                                     8,
                                     64,
                                     1000,
                                     65536,
                                     INT32_MAX,
                                     1ll << 31,
                                     INT32_MIN,
                                     1ll << 40,
                                     1ll << 62,
                                     INT64_MAX,
                                     INT64_MIN,
                                     4,
                                     5,
                                     -(1ll << 40),
                                     16,
                                     INT64_MAX - 63};
    return values[below(e, SY_ARRAY_LEN(values))];
}

static float real(const struct edit *e)
{
    static const float values[] = {0,     1,        -1,        0.5f, 2,     1e-30f, 1e9f,
                                   1e30f, INFINITY, -INFINITY, NAN,  -0.0f, 3.7f};
    return values[below(e, SY_ARRAY_LEN(values))];
}

static char *copy_text(const char *s)
{
    char *copy = strdup(s ? s : "");
    if (!copy)
        abort();
    return copy;
}

static void *grown(void *old, size_t n, size_t bytes)
{
    void *block = realloc(old, (n ? n : 1) * bytes);
    if (!block)
        abort();
    return block;
}

/* ---- what there is to change ---------------------------------------------------------------------- */

static Onnx__NodeProto *some_node(const struct edit *e)
{
    return e->graph->n_node ? e->graph->node[below(e, e->graph->n_node)] : NULL;
}

/* Of a node that has some, if one of eight tries finds one. */
static Onnx__AttributeProto *some_attribute(const struct edit *e, Onnx__NodeProto **of)
{
    for (int i = 0; i < 8; i++) {
        *of = some_node(e);
        if (*of && (*of)->n_attribute)
            return (*of)->attribute[below(e, (*of)->n_attribute)];
    }
    return NULL;
}

static Onnx__TensorProto *some_tensor(const struct edit *e)
{
    Onnx__NodeProto *node;
    if (e->graph->n_initializer && below(e, 3))
        return e->graph->initializer[below(e, e->graph->n_initializer)];
    Onnx__AttributeProto *attr = some_attribute(e, &node);
    return attr ? attr->t : NULL;
}

static Onnx__TypeProto__Tensor *some_type(const struct edit *e, const char **name)
{
    size_t n = e->graph->n_input + e->graph->n_output + e->graph->n_value_info, i = below(e, n);
    if (n == 0)
        return NULL;
    const Onnx__ValueInfoProto *info =
        i < e->graph->n_input ? e->graph->input[i]
        : i < e->graph->n_input + e->graph->n_output
            ? e->graph->output[i - e->graph->n_input]
            : e->graph->value_info[i - e->graph->n_input - e->graph->n_output];
    *name = info->name;
    return info->type && info->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE
               ? info->type->tensor_type
               : NULL;
}

static const char *some_name(const struct edit *e)
{
    const Onnx__NodeProto *node = some_node(e);
    switch (below(e, 5)) {
    case 0:
        return "";
    case 1:
        return e->graph->n_initializer
                   ? e->graph->initializer[below(e, e->graph->n_initializer)]->name
                   : "no";
    case 2:
        return e->graph->n_input ? e->graph->input[below(e, e->graph->n_input)]->name : "no";
    default:
        return node && node->n_output ? node->output[below(e, node->n_output)] : "no";
    }
}

/* ---- changes ---------------------------------------------------------------------------------------- */

static void attribute_value(struct edit *e)
{
    Onnx__NodeProto *node;
    Onnx__AttributeProto *attr = some_attribute(e, &node);
    if (!attr)
        return;
    say(e, "attribute value", attr->name, (long long)attr->i);
    switch (attr->type) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
        attr->i = whole(e);
        say(e, "attribute value", attr->name, (long long)attr->i);
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
        attr->f = real(e);
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
        if (attr->n_ints)
            attr->ints[below(e, attr->n_ints)] = whole(e);
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
        if (attr->n_floats)
            attr->floats[below(e, attr->n_floats)] = real(e);
        break;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
        if (attr->s.len)
            attr->s.data[below(e, attr->s.len)] = (uint8_t)below(e, 256);
        break;
    default:
        break;
    }
}

static void attribute_length(struct edit *e)
{
    Onnx__NodeProto *node;
    Onnx__AttributeProto *attr = some_attribute(e, &node);
    if (!attr || attr->type != ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS)
        return;
    size_t n = below(e, 4) ? attr->n_ints + 1 - 2 * below(e, 2) : 2 * attr->n_ints;
    n = attr->n_ints == 0 && n > 2 ? 1 : n;
    attr->ints = grown(attr->ints, n, sizeof *attr->ints);
    for (size_t i = attr->n_ints; i < n; i++)
        attr->ints[i] = below(e, 2) ? 1 : whole(e);
    attr->n_ints = n;
    say(e, "length of attribute", attr->name, (long long)n);
}

static void attribute_type(struct edit *e)
{
    Onnx__NodeProto *node;
    Onnx__AttributeProto *attr = some_attribute(e, &node);
    if (!attr)
        return;
    attr->type = (Onnx__AttributeProto__AttributeType)below(e, 15);
    say(e, "type of attribute", attr->name, (long long)attr->type);
}

static void attribute_name(struct edit *e)
{
    Onnx__NodeProto *node, *other;
    Onnx__AttributeProto *attr = some_attribute(e, &node), *from = some_attribute(e, &other);
    if (!attr || !from || attr == from)
        return;
    say(e, "name of attribute", attr->name, 0);
    char *name = copy_text(from->name);
    free(attr->name);
    attr->name = name;
}

static void attribute_removed(struct edit *e)
{
    Onnx__NodeProto *node;
    Onnx__AttributeProto *attr = some_attribute(e, &node);
    for (size_t i = 0; attr && i < node->n_attribute; i++) {
        if (node->attribute[i] != attr)
            continue;
        say(e, "removed attribute", attr->name, 0);
        node->attribute[i] = node->attribute[--node->n_attribute];
        onnx__attribute_proto__free_unpacked(attr, NULL);
        return;
    }
}

static void declared_dim(struct edit *e)
{
    const char *name;
    Onnx__TypeProto__Tensor *type = some_type(e, &name);
    if (!type || !type->shape || !type->shape->n_dim)
        return;
    Onnx__TensorShapeProto__Dimension *dim = type->shape->dim[below(e, type->shape->n_dim)];
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM)
        free(dim->dim_param);
    dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    dim->dim_value = whole(e);
    say(e, "declared dimension", name, (long long)dim->dim_value);
}

static void declared_rank(struct edit *e)
{
    const char *name;
    Onnx__TypeProto__Tensor *type = some_type(e, &name);
    if (!type || !type->shape || !type->shape->n_dim)
        return;
    protobuf_c_message_free_unpacked(&type->shape->dim[--type->shape->n_dim]->base, NULL);
    say(e, "declared rank", name, (long long)type->shape->n_dim);
}

static void declared_type(struct edit *e)
{
    const char *name;
    Onnx__TypeProto__Tensor *type = some_type(e, &name);
    if (!type)
        return;
    type->elem_type = (int32_t)below(e, 18);
    say(e, "declared type", name, type->elem_type);
}

static void constant_dim(struct edit *e)
{
    Onnx__TensorProto *t = some_tensor(e);
    if (!t || !t->n_dims)
        return;
    int64_t value = whole(e);
    t->dims[below(e, t->n_dims)] = value;
    say(e, "constant's dimension", t->name, (long long)value);
}

/* Another shape of as many elements: one dimension less, or two changed places. */
static void constant_shape(struct edit *e)
{
    Onnx__TensorProto *t = some_tensor(e);
    if (!t || t->n_dims < 2)
        return;
    size_t last = --t->n_dims;
    if (below(e, 2))
        t->dims[last - 1] *= t->dims[last] > 0 && t->dims[last] < 65536 ? t->dims[last] : 1;
    else {
        t->n_dims++;
        int64_t first = t->dims[0];
        t->dims[0] = t->dims[last];
        t->dims[last] = first;
    }
    say(e, "constant's shape", t->name, (long long)t->n_dims);
}

static void constant_type(struct edit *e)
{
    Onnx__TensorProto *t = some_tensor(e);
    if (!t)
        return;
    t->data_type = (int32_t)below(e, 18);
    say(e, "constant's type", t->name, t->data_type);
}

static void constant_value(struct edit *e)
{
    Onnx__TensorProto *t = some_tensor(e);
    if (!t)
        return;
    int64_t value = whole(e);
    float number = real(e);
    if (t->n_int64_data)
        t->int64_data[below(e, t->n_int64_data)] = value;
    else if (t->n_int32_data)
        t->int32_data[below(e, t->n_int32_data)] = (int32_t)value;
    else if (t->n_float_data)
        t->float_data[below(e, t->n_float_data)] = number;
    else if (t->data_type == SY_DTYPE_I64 && t->raw_data.len >= 8)
        memcpy(t->raw_data.data + 8 * below(e, t->raw_data.len / 8), &value, 8);
    else if (t->raw_data.len >= 4)
        memcpy(t->raw_data.data + 4 * below(e, t->raw_data.len / 4),
               t->data_type == SY_DTYPE_F32 ? (void *)&number : (void *)&value, 4);
    say(e, "constant's value", t->name, (long long)value);
}

static void rewire(struct edit *e)
{
    Onnx__NodeProto *node = some_node(e);
    if (!node || !node->n_input)
        return;
    size_t i = below(e, node->n_input);
    char *name = copy_text(some_name(e));
    free(node->input[i]);
    node->input[i] = name;
    say(e, "input rewired", node->op_type, (long long)i);
}

static void input_count(struct edit *e)
{
    Onnx__NodeProto *node = some_node(e);
    if (!node)
        return;
    if (node->n_input && below(e, 2)) {
        free(node->input[--node->n_input]);
    } else {
        node->input = grown(node->input, node->n_input + 1, sizeof *node->input);
        node->input[node->n_input++] = copy_text(some_name(e));
    }
    say(e, "number of inputs", node->op_type, (long long)node->n_input);
}

static void output_count(struct edit *e)
{
    Onnx__NodeProto *node = some_node(e);
    if (!node)
        return;
    if (node->n_output && below(e, 3) == 0) {
        free(node->output[--node->n_output]);
    } else {
        node->output = grown(node->output, node->n_output + 1, sizeof *node->output);
        node->output[node->n_output++] = copy_text(below(e, 4) ? "one more" : some_name(e));
    }
    say(e, "number of outputs", node->op_type, (long long)node->n_output);
}

static void graph_output(struct edit *e)
{
    if (!e->graph->n_output)
        return;
    Onnx__ValueInfoProto *output = e->graph->output[below(e, e->graph->n_output)];
    char *name = copy_text(some_name(e));
    say(e, "graph output", output->name, 0);
    free(output->name);
    output->name = name;
}

static void operator_type(struct edit *e)
{
    Onnx__NodeProto *node = some_node(e);
    if (!node)
        return;
    const char *other = sy_op_name((enum sy_op)below(e, SY_OP_COUNT));
    say(e, "operator", node->op_type, 0);
    free(node->op_type);
    node->op_type = copy_text(other);
}

/* ---- one change --------------------------------------------------------------------------------------- */

static Onnx__GraphProto *some_body(const struct edit *e)
{
    Onnx__NodeProto *node;
    Onnx__AttributeProto *attr = some_attribute(e, &node);
    return attr ? attr->g : NULL;
}

void model_edit(Onnx__ModelProto *model, const struct edit_choices *choices, char *text,
                size_t text_bytes)
{
    static void (*const changes[])(struct edit *) = {
        attribute_value,   attribute_value, attribute_value, attribute_length, attribute_type,
        attribute_removed, attribute_name,  declared_dim,    declared_dim,     declared_rank,
        declared_type,     constant_dim,    constant_shape,  constant_type,    constant_value,
        constant_value,    rewire,          rewire,          input_count,      output_count,
        graph_output,      operator_type};
    struct edit e = {choices, model->graph, text, text_bytes};
    snprintf(text, text_bytes, "nothing");
    if (!e.graph)
        return;
    for (int depth = 0; depth < 3 && below(&e, 2); depth++) {
        Onnx__GraphProto *body = some_body(&e);
        e.graph = body ? body : e.graph;
    }
    size_t which = below(&e, SY_ARRAY_LEN(changes) + 1);
    if (which < SY_ARRAY_LEN(changes)) {
        changes[which](&e);
    } else if (model->n_opset_import) {
        model->opset_import[0]->version = 1 + (int64_t)below(&e, 22);
        say(&e, "opset", "", (long long)model->opset_import[0]->version);
    }
}

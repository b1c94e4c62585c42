/* Bytes to a graph: loader/graph/graph_codec.h. */
#include <limits.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_codec.h"
#include "loader/graph/graph_internal.h"
#include "loader/graph/size_expr.h"
#include "loader/graph/string_tensor.h"
#include "runtime/base/assert.h"
#include "runtime/base/msgpack_scan.h"
#include "runtime/base/status.h"

enum { MAX_ELEMENTS = 16 * 1000 * 1000 };

static int corrupt(const char *what)
{
    return sy_error_set(SY_ECORRUPT, "graph: %s is not what was written", what);
}

/* The n elements of an array object (n -1: any number); NULL otherwise. */
static const msgpack_object *get_array(const msgpack_object *o, int n)
{
    static const msgpack_object none;
    if (o->type != MSGPACK_OBJECT_ARRAY || (n >= 0 && o->via.array.size != (uint32_t)n) ||
        o->via.array.size > MAX_ELEMENTS)
        return NULL;
    return o->via.array.ptr ? o->via.array.ptr : &none;
}

static int get_int64(const msgpack_object *o, int64_t *out)
{
    if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
        *out = o->via.i64;
    else if (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER && o->via.u64 <= INT64_MAX)
        *out = (int64_t)o->via.u64;
    else
        return corrupt("a number");
    return SY_OK;
}

static int get_int(const msgpack_object *o, int low, int high, int *out)
{
    int64_t value;
    SY_TRY(get_int64(o, &value));
    if (value < low || value > high)
        return corrupt("a number");
    *out = (int)value;
    return SY_OK;
}

static int get_float(const msgpack_object *o, float *out)
{
    if (o->type != MSGPACK_OBJECT_FLOAT32 && o->type != MSGPACK_OBJECT_FLOAT64)
        return corrupt("a float");
    *out = (float)o->via.f64;
    return SY_OK;
}

static int get_text(const msgpack_object *o, char **out)
{
    if (o->type != MSGPACK_OBJECT_STR)
        return corrupt("a name");
    SY_TRY(sy_graph_alloc((size_t)o->via.str.size + 1, 1, out));
    if (o->via.str.size > 0) /* the library gives NULL for "" */
        memcpy(*out, o->via.str.ptr, o->via.str.size);
    return SY_OK;
}

/* *out is the caller's, whatever happens. */
static int get_ints(const msgpack_object *o, int *n, int **out)
{
    const msgpack_object *items = get_array(o, -1);
    if (!items)
        return corrupt("a list");
    SY_TRY(sy_graph_alloc(o->via.array.size, sizeof **out, out));
    *n = (int)o->via.array.size;
    for (int i = 0; i < *n; i++)
        SY_TRY(get_int(&items[i], -1, INT_MAX, &(*out)[i]));
    return SY_OK;
}

static int get_sum(const msgpack_object *o, struct sy_dim *out);

static int get_atom(const msgpack_object *o, struct sy_dim *out)
{
    struct sy_dim a, b;
    if (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER) {
        *out = (struct sy_dim){0, 1};
        return SY_OK;
    }
    if (o->type == MSGPACK_OBJECT_STR) {
        char *name;
        SY_TRY(get_text(o, &name));
        int status = sy_size_symbol(name, out);
        free(name);
        return status < 0 ? corrupt("the name of a size") : SY_OK;
    }
    const msgpack_object *parts = get_array(o, -1);
    if (!parts || o->via.array.size < 1 || o->via.array.size > 2)
        return corrupt("a size");
    SY_TRY(get_sum(&parts[0], &a));
    if (o->via.array.size == 1)
        return sy_size_min(a, (struct sy_dim){0, 0}, out) < 0 ? corrupt("a size") : SY_OK;
    SY_TRY(get_sum(&parts[1], &b));
    return sy_size_floor_div(a, b, out) < 0 ? corrupt("a size") : SY_OK;
}

/* Made anew, so that it has the one form of this process whatever was written. */
static int get_sum(const msgpack_object *o, struct sy_dim *out)
{
    const msgpack_object *terms = get_array(o, -1);
    *out = (struct sy_dim){0, 0};
    if (!terms || o->via.array.size > SY_SIZE_MAX_TERMS)
        return corrupt("a size");
    for (uint32_t i = 0; i < o->via.array.size; i++) {
        const msgpack_object *items = get_array(&terms[i], -1);
        struct sy_dim product = {0, 0}, factor;
        if (!items || terms[i].via.array.size < 1 ||
            terms[i].via.array.size > SY_SIZE_MAX_DEGREE + 1)
            return corrupt("a size");
        SY_TRY(get_int64(&items[0], &product.fixed));
        for (uint32_t k = 1; k < terms[i].via.array.size; k++) {
            SY_TRY(get_atom(&items[k], &factor));
            if (sy_size_mul(product, factor, &product) < 0)
                return corrupt("a size");
        }
        if (sy_size_add(*out, product, out) < 0)
            return corrupt("a size");
    }
    return SY_OK;
}

static int get_shape(const msgpack_object *o, struct sy_shape *shape)
{
    const msgpack_object *items = get_array(o, -1);
    if (!items || o->via.array.size % 2 != 0 || o->via.array.size > 2 * SY_MAX_RANK)
        return corrupt("a shape");
    shape->rank = (int)o->via.array.size / 2;
    for (int i = 0; i < shape->rank; i++) {
        if (items[2 * i].type == MSGPACK_OBJECT_ARRAY) {
            SY_TRY(get_sum(&items[2 * i], &shape->dims[i]));
            continue;
        }
        SY_TRY(get_int64(&items[2 * i], &shape->dims[i].fixed));
        SY_TRY(get_int64(&items[2 * i + 1], &shape->dims[i].per_batch));
        if (sy_dim_is_expr(shape->dims[i]))
            return corrupt("a dimension");
    }
    return SY_OK;
}

static int get_tensor(const msgpack_object *o, struct sy_tensor *t)
{
    const msgpack_object *f = get_array(o, 4);
    int dtype;
    if (!f)
        return corrupt("a tensor");
    SY_TRY(get_text(&f[0], &t->name));
    SY_TRY(get_int(&f[1], 0, INT_MAX, &dtype));
    SY_TRY(get_shape(&f[2], &t->shape));
    t->dtype = (enum sy_dtype)dtype;
    if (t->dtype != SY_DTYPE_NONE && sy_dtype_bytes(t->dtype) == 0)
        return corrupt("an element type");
    if (f[3].type == MSGPACK_OBJECT_NIL)
        return SY_OK;
    int64_t n = sy_shape_elements(&t->shape, 0);
    if (f[3].type != MSGPACK_OBJECT_BIN || n < 0 || t->dtype == SY_DTYPE_NONE ||
        (uint64_t)n > UINT32_MAX ||
        (t->dtype == SY_DTYPE_STRING
             ? !sy_string_block_is_valid(f[3].via.bin.ptr, f[3].via.bin.size, n)
             : (uint64_t)n * sy_dtype_bytes(t->dtype) != f[3].via.bin.size))
        return corrupt("a constant");
    SY_TRY(sy_graph_alloc(f[3].via.bin.size, 1, &t->data));
    t->data_bytes = f[3].via.bin.size;
    if (t->data_bytes > 0)
        memcpy(t->data, f[3].via.bin.ptr, t->data_bytes);
    return SY_OK;
}

static int get_attr_numbers(const msgpack_object *o, struct sy_attr *attr)
{
    const msgpack_object *items = get_array(o, -1);
    if (!items)
        return corrupt("a list of numbers");
    if (attr->kind == SY_ATTR_INTS)
        SY_TRY(sy_graph_alloc(o->via.array.size, sizeof *attr->ints, &attr->ints));
    else
        SY_TRY(sy_graph_alloc(o->via.array.size, sizeof *attr->floats, &attr->floats));
    attr->n = (int)o->via.array.size;
    for (int i = 0; i < attr->n; i++)
        SY_TRY(attr->kind == SY_ATTR_INTS ? get_int64(&items[i], &attr->ints[i])
                                          : get_float(&items[i], &attr->floats[i]));
    return SY_OK;
}

static int get_attr_sizes(const msgpack_object *o, struct sy_attr *attr)
{
    const msgpack_object *items = get_array(o, -1);
    if (!items)
        return corrupt("a list of sizes");
    SY_TRY(sy_graph_alloc(o->via.array.size, sizeof *attr->sizes, &attr->sizes));
    attr->n = (int)o->via.array.size;
    for (int i = 0; i < attr->n; i++)
        SY_TRY(get_sum(&items[i], &attr->sizes[i]));
    return SY_OK;
}

static int get_attr_strings(const msgpack_object *o, struct sy_attr *attr)
{
    const msgpack_object *items = get_array(o, -1);
    struct sy_text_list list = {0};
    if (!items || o->via.array.size > INT_MAX - 1)
        return corrupt("a list of strings");
    for (uint32_t i = 0; i < o->via.array.size; i++) {
        if (items[i].type != MSGPACK_OBJECT_BIN) {
            sy_text_list_finish(&list);
            return corrupt("a string");
        }
        SY_TRY(sy_text_list_add(&list, items[i].via.bin.ptr, items[i].via.bin.size));
    }
    return sy_text_list_take(&list, attr);
}

static int get_graph(const msgpack_object *o, uint32_t most_symbols, struct sy_graph *graph);

static int get_attr(const msgpack_object *o, struct sy_attr *attr)
{
    const msgpack_object *f = get_array(o, 3);
    int kind;
    attr->tensor = -1;
    if (!f)
        return corrupt("an attribute");
    SY_TRY(get_text(&f[0], &attr->name));
    SY_TRY(get_int(&f[1], SY_ATTR_INT, SY_ATTR_STRINGS, &kind));
    attr->kind = (enum sy_attr_kind)kind;
    switch (attr->kind) {
    case SY_ATTR_INT:
        return get_int64(&f[2], &attr->i);
    case SY_ATTR_FLOAT:
        return get_float(&f[2], &attr->f);
    case SY_ATTR_STRING:
        return get_text(&f[2], &attr->s);
    case SY_ATTR_TENSOR:
        return get_int(&f[2], 0, INT_MAX, &attr->tensor);
    case SY_ATTR_SIZES:
        return get_attr_sizes(&f[2], attr);
    case SY_ATTR_STRINGS:
        return get_attr_strings(&f[2], attr);
    case SY_ATTR_GRAPH: /* as deep as the scan let it be */
        SY_TRY(sy_graph_alloc(1, sizeof *attr->graph, &attr->graph));
        return get_graph(&f[2], SY_MAX_SYMBOLS, attr->graph);
    default:
        return get_attr_numbers(&f[2], attr);
    }
}

static int get_attrs(const msgpack_object *o, struct sy_node *node)
{
    const msgpack_object *items = get_array(o, -1);
    if (!items)
        return corrupt("a list of attributes");
    SY_TRY(sy_graph_alloc(o->via.array.size, sizeof *node->attrs, &node->attrs));
    for (uint32_t i = 0; i < o->via.array.size; i++) {
        node->n_attrs++;
        SY_TRY(get_attr(&items[i], &node->attrs[i]));
    }
    return SY_OK;
}

static int get_op(const msgpack_object *o, enum sy_op *op)
{
    char *name;
    SY_TRY(get_text(o, &name));
    int status = sy_op_from_name(name, op);
    free(name);
    return status;
}

static int get_node(const msgpack_object *o, struct sy_node *node)
{
    const msgpack_object *f = get_array(o, 11);
    int activation;
    if (!f)
        return corrupt("a node");
    SY_TRY(get_op(&f[0], &node->op));
    SY_TRY(get_int(&f[1], 0, INT_MAX, &node->opset));
    SY_TRY(get_text(&f[2], &node->name));
    SY_TRY(get_ints(&f[3], &node->n_inputs, &node->inputs));
    SY_TRY(get_ints(&f[4], &node->n_outputs, &node->outputs));
    SY_TRY(get_attrs(&f[5], node));
    SY_TRY(get_int(&f[6], SY_ACT_NONE, SY_ACT_HARD_SWISH, &activation));
    node->activation = (enum sy_activation)activation;
    SY_TRY(get_float(&f[7], &node->act_alpha));
    SY_TRY(get_float(&f[8], &node->act_beta));
    SY_TRY(get_int(&f[9], -1, INT_MAX, &node->bias_input));
    return get_int(&f[10], -1, INT_MAX, &node->residual_input);
}

static int get_tensors(const msgpack_object *o, struct sy_graph *graph)
{
    const msgpack_object *items = get_array(o, -1);
    if (!items)
        return corrupt("the list of tensors");
    SY_TRY(sy_graph_alloc(o->via.array.size, sizeof *graph->tensors, &graph->tensors));
    for (uint32_t i = 0; i < o->via.array.size; i++) {
        graph->n_tensors++;
        SY_TRY(get_tensor(&items[i], &graph->tensors[i]));
    }
    return SY_OK;
}

static int get_nodes(const msgpack_object *o, struct sy_graph *graph)
{
    const msgpack_object *items = get_array(o, -1);
    if (!items)
        return corrupt("the list of nodes");
    SY_TRY(sy_graph_alloc(o->via.array.size, sizeof *graph->nodes, &graph->nodes));
    for (uint32_t i = 0; i < o->via.array.size; i++) {
        graph->n_nodes++;
        SY_TRY(get_node(&items[i], &graph->nodes[i]));
    }
    return SY_OK;
}

static int get_symbols(const msgpack_object *o, uint32_t most, struct sy_graph *graph)
{
    const msgpack_object *items = get_array(o, -1);
    if (!items || o->via.array.size < 2 || o->via.array.size > 2 * most ||
        o->via.array.size % 2 != 0)
        return corrupt("the list of sizes");
    SY_TRY(sy_graph_alloc(most, sizeof *graph->symbols, &graph->symbols));
    for (uint32_t i = 0; i < o->via.array.size / 2; i++) {
        struct sy_symbol *s = &graph->symbols[graph->n_symbols++];
        SY_TRY(get_text(&items[2 * i], &s->name));
        SY_TRY(get_int64(&items[2 * i + 1], &s->usual));
        if (s->name[0] == '\0' || s->usual < 0 || s->usual > INT32_MAX)
            return corrupt("a size");
    }
    return SY_OK;
}

static int get_conditions(const msgpack_object *o, struct sy_graph *graph)
{
    const msgpack_object *items = get_array(o, -1);
    if (!items)
        return corrupt("the list of conditions");
    SY_TRY(sy_graph_alloc(o->via.array.size, sizeof *graph->conditions, &graph->conditions));
    for (uint32_t i = 0; i < o->via.array.size; i++) {
        const msgpack_object *f = get_array(&items[i], 4);
        struct sy_condition *c = &graph->conditions[graph->n_conditions++];
        int at_most;
        if (!f)
            return corrupt("a condition");
        SY_TRY(get_sum(&f[0], &c->left));
        SY_TRY(get_sum(&f[1], &c->right));
        SY_TRY(get_int(&f[2], 0, 1, &at_most));
        SY_TRY(get_text(&f[3], &c->where));
        c->at_most = at_most != 0;
    }
    return SY_OK;
}

static int get_graph(const msgpack_object *o, uint32_t most_symbols, struct sy_graph *graph)
{
    const msgpack_object *f = get_array(o, -1);
    int version, precision = 0;
    if (!f || o->via.array.size < 6 || (o->via.array.size > 7 && o->via.array.size != 9))
        return corrupt("the outermost list");
    SY_TRY(get_int(&f[0], 0, INT_MAX, &version));
    if (version != (o->via.array.size == 9 ? SY_GRAPH_CODEC_OPEN_VERSION : SY_GRAPH_CODEC_VERSION))
        return sy_error_set(
            SY_EUNSUPPORTED,
            "graph: format %d, this program reads %d and %d; import the model again", version,
            SY_GRAPH_CODEC_VERSION, SY_GRAPH_CODEC_OPEN_VERSION);
    SY_TRY(get_text(&f[1], &graph->name));
    SY_TRY(get_tensors(&f[2], graph));
    SY_TRY(get_nodes(&f[3], graph));
    SY_TRY(get_ints(&f[4], &graph->n_inputs, &graph->inputs));
    SY_TRY(get_ints(&f[5], &graph->n_outputs, &graph->outputs));
    if (o->via.array.size > 6)
        SY_TRY(get_int(&f[6], 0, SY_PRECISION_F16, &precision));
    graph->precision = (enum sy_precision)precision;
    if (o->via.array.size == 9) {
        SY_TRY(get_symbols(&f[7], most_symbols, graph));
        SY_TRY(get_conditions(&f[8], graph));
    }
    return sy_graph_check(graph);
}

static int decode(const void *bytes, size_t n_bytes, uint32_t most_symbols, struct sy_graph **out)
{
    struct sy_msgpack_scan scan;
    msgpack_unpacked unpacked;
    struct sy_graph *graph;
    size_t at = 0;
    sy_msgpack_scan_init(&scan, n_bytes, MAX_ELEMENTS);
    if (sy_msgpack_scan(&scan, bytes, n_bytes) != 1 || scan.at != n_bytes)
        return corrupt("the encoding");
    SY_TRY(sy_graph_alloc(1, sizeof *graph, &graph));
    msgpack_unpacked_init(&unpacked);
    int status = msgpack_unpack_next(&unpacked, bytes, n_bytes, &at) == MSGPACK_UNPACK_SUCCESS
                     ? get_graph(&unpacked.data, most_symbols, graph)
                     : corrupt("the encoding");
    msgpack_unpacked_destroy(&unpacked);
    if (status < 0) {
        sy_graph_free(graph);
        return status;
    }
    *out = graph;
    return SY_OK;
}

int sy_graph_decode(const void *bytes, size_t n_bytes, struct sy_graph **out)
{
    return decode(bytes, n_bytes, SY_MAX_SYMBOLS, out);
}

int sy_graph_decode_copy(const void *bytes, size_t n_bytes, struct sy_graph **out)
{
    return decode(bytes, n_bytes, SY_SIZE_MOST_SYMBOLS, out);
}

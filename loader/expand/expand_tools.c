/* Building blocks of expanders: inputs, new nodes and their attributes, constants, results. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

void sy_sequence_free(struct sy_sequence *s)
{
    if (s)
        free(s->tensors);
    free(s);
}

int sy_expand_fail(struct sy_expand *e, int status, const char *format, ...)
{
    char text[256];
    va_list args;
    if (e->status < 0)
        return e->status;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    e->status = sy_infer_fail(e->node, status, "%s", text);
    return e->status;
}

int sy_expand_defer(struct sy_expand *e, const char *format, ...)
{
    char text[256];
    va_list args;
    if (e->status < 0)
        return e->status;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    e->status = sy_infer_defer(e->in, e->node, "%s", text);
    return e->status;
}

int sy_expand_input(const struct sy_expand *e, int i)
{
    return sy_node_input(e->node, i);
}

const struct sy_tensor *sy_expand_tensor(const struct sy_expand *e, int i)
{
    int tensor = sy_node_input(e->node, i);
    return tensor < 0 ? NULL : &e->graph->tensors[tensor];
}

enum sy_dtype sy_expand_dtype(const struct sy_expand *e, int i)
{
    const struct sy_tensor *t = sy_expand_tensor(e, i);
    return t ? t->dtype : SY_DTYPE_F32;
}

bool sy_expand_wanted(const struct sy_expand *e, int i)
{
    return i < e->node->n_outputs && e->node->outputs[i] >= 0 &&
           e->in->uses[e->node->outputs[i]] > 0;
}

static struct sy_node *last_node(struct sy_expand *e)
{
    return e->status < 0 || e->graph->n_nodes == e->first ? NULL
                                                          : &e->graph->nodes[e->graph->n_nodes - 1];
}

void sy_expand_op_many(struct sy_expand *e, enum sy_op op, const int *inputs, int n, int *out,
                       int n_out)
{
    for (int i = 0; i < n_out; i++) {
        out[i] = -1;
        if (e->status == SY_OK)
            e->status = sy_graph_add_tensor(e->graph, e->node->name, SY_DTYPE_NONE, NULL, &out[i]);
    }
    if (e->status == SY_OK)
        e->status = sy_graph_add_node(e->graph, op, SY_EXPAND_OPSET, e->node->name, n, inputs,
                                      n_out, out, NULL);
}

int sy_expand_op(struct sy_expand *e, enum sy_op op, const int *inputs, int n)
{
    int out;
    sy_expand_op_many(e, op, inputs, n, &out, 1);
    return out;
}

void sy_expand_set_int(struct sy_expand *e, const char *name, int64_t value)
{
    struct sy_node *node = last_node(e);
    if (node)
        e->status = sy_node_set_int(node, name, value);
}

void sy_expand_set_float(struct sy_expand *e, const char *name, float value)
{
    struct sy_node *node = last_node(e);
    if (node)
        e->status = sy_node_set_float(node, name, value);
}

void sy_expand_set_floats(struct sy_expand *e, const char *name, const float *values, int n)
{
    struct sy_node *node = last_node(e);
    if (node)
        e->status = sy_node_set_floats(node, name, n, values);
}

void sy_expand_set_text(struct sy_expand *e, const char *name, const char *value)
{
    struct sy_node *node = last_node(e);
    struct sy_attr *attr;
    if (!node)
        return;
    e->status = sy_node_attr_slot(node, name, &attr);
    if (e->status < 0)
        return;
    attr->kind = SY_ATTR_STRING;
    e->status = sy_graph_strdup(value, &attr->s);
}

void sy_expand_pass(struct sy_expand *e, const char *name)
{
    struct sy_node *node = last_node(e);
    const struct sy_attr *attr = sy_node_attr(e->node, name);
    if (!node || !attr)
        return;
    if (attr->kind == SY_ATTR_INT)
        sy_expand_set_int(e, name, attr->i);
    else if (attr->kind == SY_ATTR_FLOAT)
        sy_expand_set_float(e, name, attr->f);
    else if (attr->kind == SY_ATTR_STRING)
        sy_expand_set_text(e, name, attr->s);
    else if (attr->kind == SY_ATTR_INTS)
        e->status = sy_node_set_ints(node, name, attr->n, attr->ints);
    else if (attr->kind == SY_ATTR_FLOATS)
        sy_expand_set_floats(e, name, attr->floats, attr->n);
    else
        sy_expand_fail(e, SY_ECORRUPT, "attribute '%.60s' is of another kind", name);
}

/* Takes a copy of `data`. */
static int add_shaped(struct sy_expand *e, enum sy_dtype dtype, const struct sy_shape *shape,
                      int64_t n, const void *data)
{
    size_t bytes = (size_t)n * sy_dtype_bytes(dtype);
    void *copy;
    int out = -1;
    if (e->status < 0)
        return -1;
    e->status = sy_graph_alloc(bytes, 1, &copy);
    if (e->status < 0)
        return -1;
    if (bytes > 0)
        memcpy(copy, data, bytes);
    e->status = sy_graph_add_constant(e->graph, e->node->name, dtype, shape, copy, bytes, &out);
    if (e->status < 0)
        return -1;
    e->graph->tensors[out].is_derived = true;
    return out;
}

static int add_constant(struct sy_expand *e, enum sy_dtype dtype, int rank, int64_t n,
                        const void *data)
{
    const struct sy_shape shape = {.rank = rank, .dims = {{n, 0}}};
    return add_shaped(e, dtype, &shape, n, data);
}

int sy_expand_float_array(struct sy_expand *e, const float *values, int rank, const int64_t *dims)
{
    struct sy_shape shape = {.rank = rank};
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        shape.dims[i].fixed = dims[i];
        n *= dims[i];
    }
    return add_shaped(e, SY_DTYPE_F32, &shape, n, values);
}

int sy_expand_ints(struct sy_expand *e, const int64_t *values, int n)
{
    return add_constant(e, SY_DTYPE_I64, 1, n, values);
}

int sy_expand_int(struct sy_expand *e, int64_t value)
{
    return add_constant(e, SY_DTYPE_I64, 0, 1, &value);
}

int sy_expand_floats(struct sy_expand *e, const float *values, int n)
{
    return add_constant(e, SY_DTYPE_F32, 1, n, values);
}

int sy_expand_number(struct sy_expand *e, enum sy_dtype dtype, double value)
{
    float narrow = (float)value;
    if (dtype == SY_DTYPE_F64)
        return add_constant(e, dtype, 0, 1, &value);
    int number = add_constant(e, SY_DTYPE_F32, 0, 1, &narrow);
    return dtype == SY_DTYPE_F32 ? number : sy_expand_cast(e, number, dtype);
}

int sy_expand_reshape(struct sy_expand *e, int x, const int64_t *dims, int n)
{
    return SY_EXPAND(e, RESHAPE, x, sy_expand_ints(e, dims, n));
}

int sy_expand_transpose(struct sy_expand *e, int x, const int64_t *perm, int n)
{
    int out = SY_EXPAND(e, TRANSPOSE, x);
    struct sy_node *node = last_node(e);
    if (node)
        e->status = sy_node_set_ints(node, "perm", n, perm);
    return out;
}

int sy_expand_cast(struct sy_expand *e, int x, enum sy_dtype to)
{
    int out = SY_EXPAND(e, CAST, x);
    sy_expand_set_int(e, "to", to);
    return out;
}

int sy_expand_unsqueeze(struct sy_expand *e, int x, int64_t axis)
{
    return SY_EXPAND(e, UNSQUEEZE, x, sy_expand_ints(e, &axis, 1));
}

int sy_expand_join(struct sy_expand *e, int a, int b, int axis)
{
    int all = SY_EXPAND(e, CONCAT, a, b);
    sy_expand_set_int(e, "axis", axis);
    return all;
}

int sy_expand_heads_first(struct sy_expand *e, int x)
{
    static const int64_t perm[] = {0, 2, 1, 3};
    return sy_expand_transpose(e, x, perm, 4);
}

int sy_expand_size(struct sy_expand *e, struct sy_dim dim, int tensor, int axis)
{
    if (dim.per_batch == 0)
        return sy_expand_int(e, dim.fixed);
    return SY_EXPAND(e, GATHER, SY_EXPAND(e, SHAPE, tensor), sy_expand_int(e, axis));
}

int sy_expand_shape(struct sy_expand *e, const int *sizes, int n)
{
    int parts[SY_MAX_RANK];
    for (int i = 0; i < n; i++)
        parts[i] = sy_expand_unsqueeze(e, sizes[i], 0);
    int shape = sy_expand_op(e, SY_OP_CONCAT, parts, n);
    sy_expand_set_int(e, "axis", 0);
    return shape;
}

int sy_expand_count(struct sy_expand *e, int end)
{
    return SY_EXPAND(e, RANGE, sy_expand_int(e, 0), end, sy_expand_int(e, 1));
}

int sy_expand_slice(struct sy_expand *e, int x, int axis, int64_t first, int64_t end)
{
    int64_t place = axis;
    int a = sy_expand_ints(e, &first, 1), b = sy_expand_ints(e, &end, 1);
    return SY_EXPAND(e, SLICE, x, a, b, sy_expand_ints(e, &place, 1));
}

/* A copy, which later passes take away. */
void sy_expand_result(struct sy_expand *e, int i, int tensor)
{
    if (e->status < 0 || i >= e->node->n_outputs || e->node->outputs[i] < 0)
        return;
    int out = e->node->outputs[i];
    e->status = sy_graph_add_node(e->graph, SY_OP_IDENTITY, SY_EXPAND_OPSET, e->node->name, 1,
                                  &tensor, 1, &out, NULL);
}

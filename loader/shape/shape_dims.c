/* Shared by the shape rules: errors, inputs, attributes, broadcasting. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/size_expr.h"
#include "loader/shape/graph_infer.h"
#include "loader/shape/size_facts.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* A size that is 1 unless another size is 0 (the first of a list) broadcasts as 1 against any other size. */
static void take_for_one(struct sy_infer *in, const struct sy_node *node, struct sy_dim *dim,
                         struct sy_dim beside)
{
    int64_t least, most;
    if (!sy_dim_is_expr(*dim) || sy_dim_equal(*dim, beside) || sy_dim_is(beside, 1))
        return;
    sy_size_bounds(*dim, &least, &most);
    if (most == 1)
        sy_infer_same_size(in, node, dim, (struct sy_dim){1, 0});
}

int sy_infer_broadcast(struct sy_infer *in, const struct sy_node *node, struct sy_shape *shape,
                       const struct sy_shape *other)
{
    int rank = SY_MAX(shape->rank, other->rank);
    struct sy_shape result = {.rank = rank};
    for (int i = 1; i <= rank; i++) {
        struct sy_dim a = i <= shape->rank ? shape->dims[shape->rank - i] : (struct sy_dim){1, 0};
        struct sy_dim b = i <= other->rank ? other->dims[other->rank - i] : (struct sy_dim){1, 0};
        take_for_one(in, node, &a, b);
        take_for_one(in, node, &b, a);
        if (!sy_dim_is(a, 1) && !sy_dim_is(b, 1) && !sy_infer_same_size(in, node, &a, b))
            return SY_EUNSUPPORTED;
        result.dims[rank - i] = sy_dim_is(a, 1) ? b : a;
    }
    *shape = result;
    return SY_OK;
}

int sy_infer_fail(const struct sy_node *node, int status, const char *format, ...)
{
    char head[256], tail[256];
    va_list args;
    va_start(args, format);
    vsnprintf(tail, sizeof tail, format, args);
    va_end(args);
    return sy_error_set(status, "%s: %s", sy_node_text(node, head, sizeof head), tail);
}

int sy_infer_defer(const struct sy_infer *in, const struct sy_node *node, const char *format, ...)
{
    char head[256], tail[256];
    va_list args;
    va_start(args, format);
    vsnprintf(tail, sizeof tail, format, args);
    va_end(args);
    if (in->puts_off)
        *in->puts_off = true;
    return sy_error_set(SY_EUNSUPPORTED, "%s: %s", sy_node_text(node, head, sizeof head), tail);
}

int sy_infer_no_product(const struct sy_infer *in, const struct sy_node *node, int n_growing)
{
    if (n_growing < 2)
        return sy_infer_fail(node, SY_ECORRUPT, "sizes whose product is over 2^63");
    return sy_infer_defer(in, node, "a size that is not linear in the batch size");
}

int sy_infer_need(const struct sy_infer *in, const struct sy_node *node, int i,
                  const struct sy_tensor **out)
{
    int tensor = sy_node_input(node, i);
    if (tensor < 0)
        return sy_infer_fail(node, SY_ECORRUPT, "input %d is missing", i);
    *out = &in->graph->tensors[tensor];
    return SY_OK;
}

void sy_infer_set(struct sy_infer *in, const struct sy_node *node, int i, enum sy_dtype dtype,
                  const struct sy_shape *shape)
{
    if (i >= node->n_outputs || node->outputs[i] < 0)
        return;
    in->graph->tensors[node->outputs[i]].dtype = dtype;
    in->graph->tensors[node->outputs[i]].shape = *shape;
}

int sy_infer_same(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x = NULL;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    sy_infer_set(in, node, 0, x->dtype, &shape);
    return SY_OK;
}

static int tensor_dims(const struct sy_infer *in, const struct sy_node *node, int tensor, int *n,
                       struct sy_dim **out)
{
    const struct sy_tensor *t = &in->graph->tensors[tensor];
    int64_t count = sy_shape_elements(&t->shape, 0);
    if (!t->data && !in->values[tensor])
        return sy_infer_defer(
            in, node, "'%.100s' must be known at import (constant, or made from shapes)", t->name);
    if (!sy_dtype_is_integer(t->dtype) || count < 0 || count > SY_MAX_VALUES)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "'%.100s' must be a short list of integers",
                             t->name);
    SY_TRY(sy_graph_alloc((size_t)count, sizeof **out, out));
    for (int64_t i = 0; i < count; i++) {
        if (t->data)
            (*out)[i].fixed = sy_load_integer(t->dtype, (const char *)t->data +
                                                            (size_t)i * sy_dtype_bytes(t->dtype));
        else
            (*out)[i] = in->values[tensor][i];
    }
    *n = (int)count;
    return SY_OK;
}

int sy_infer_dims(const struct sy_infer *in, const struct sy_node *node, int i, const char *attr,
                  int *n, struct sy_dim **out)
{
    *out = NULL;
    *n = -1;
    if (sy_node_input(node, i) >= 0)
        return tensor_dims(in, node, node->inputs[i], n, out);
    const struct sy_attr *list = sy_node_attr(node, attr);
    if (!list || (list->kind != SY_ATTR_INTS && list->kind != SY_ATTR_SIZES))
        return SY_OK;
    SY_TRY(sy_graph_alloc((size_t)list->n, sizeof **out, out));
    for (int k = 0; k < list->n; k++)
        (*out)[k] = list->sizes ? list->sizes[k] : (struct sy_dim){list->ints[k], 0};
    *n = list->n;
    return SY_OK;
}

int sy_infer_ints(const struct sy_infer *in, const struct sy_node *node, int i, const char *attr,
                  int max, int *n, int64_t *out)
{
    struct sy_dim *dims;
    SY_TRY(sy_infer_dims(in, node, i, attr, n, &dims));
    int status = SY_OK;
    if (*n > max)
        status =
            sy_infer_fail(node, SY_ECORRUPT, "'%s' has %d entries, at most %d fit", attr, *n, max);
    for (int k = 0; status == SY_OK && k < *n; k++) {
        if (!sy_dim_is_number(dims[k]))
            status = sy_infer_defer(in, node, "'%s' depends on the %s", attr,
                                    sy_dim_is_expr(dims[k]) ? "open sizes" : "batch size");
        out[k] = dims[k].fixed;
    }
    free(dims);
    return status;
}

int sy_infer_float(const struct sy_infer *in, const struct sy_node *node, int i, const char *attr,
                   float otherwise, float *out)
{
    *out = sy_node_float(node, attr, otherwise);
    int tensor = sy_node_input(node, i);
    if (tensor < 0 || sy_graph_scalar(in->graph, tensor, out))
        return SY_OK;
    if (!in->graph->tensors[tensor].data)
        return sy_infer_defer(in, node, "'%s' must be known at import", attr);
    return sy_infer_fail(node, SY_EUNSUPPORTED, "'%s' must be a constant float", attr);
}

bool sy_infer_is_known(const struct sy_infer *in, const struct sy_node *node, int i)
{
    int tensor = sy_node_input(node, i);
    return tensor < 0 || in->graph->tensors[tensor].data || in->values[tensor];
}

/* A symbolic dimension of a declaration is -1. */
static bool has_numbers(const struct sy_shape *shape)
{
    for (int i = 0; i < shape->rank; i++)
        if (sy_dim_is_expr(shape->dims[i]) || shape->dims[i].fixed < 0)
            return false;
    return true;
}

int sy_infer_declared(const struct sy_infer *in, const struct sy_node *node, int i,
                      struct sy_shape *out)
{
    const struct sy_tensor *t =
        i < node->n_outputs && node->outputs[i] >= 0 ? &in->graph->tensors[node->outputs[i]] : NULL;
    if (!t || t->dtype == SY_DTYPE_NONE || !has_numbers(&t->shape))
        return sy_infer_defer(in, node,
                              "the size of its result '%.80s' depends on data that is known at run "
                              "only, and the file does not declare it",
                              t ? t->name : "");
    *out = t->shape;
    return SY_OK;
}

const char *sy_infer_text(const struct sy_node *node, const char *name, const char *otherwise)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    return attr && attr->kind == SY_ATTR_STRING && attr->s ? attr->s : otherwise;
}

int sy_infer_axis(const struct sy_node *node, int64_t axis, int rank, int *out)
{
    if (axis < -rank || axis >= rank)
        return sy_infer_fail(node, SY_ECORRUPT, "axis %lld of a tensor with %d dimensions",
                             (long long)axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return SY_OK;
}

int sy_infer_keep_outputs(const struct sy_infer *in, struct sy_node *node, int n)
{
    for (int i = n; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0 && in->uses[node->outputs[i]] > 0)
            return sy_infer_fail(node, SY_EUNSUPPORTED,
                                 "output %d is used, only the first %d are supported", i, n);
    if (node->n_outputs > n)
        node->n_outputs = n;
    return SY_OK;
}

void sy_infer_keep_inputs(struct sy_node *node, int n)
{
    if (node->n_inputs > n)
        node->n_inputs = n;
}

int sy_infer_fixed(const struct sy_infer *in, const struct sy_node *node,
                   const struct sy_shape *shape, int i, int64_t *out)
{
    char text[160];
    if (i < shape->rank && sy_dim_is_expr(shape->dims[i]))
        return sy_infer_defer(in, node, "dimension %d of %s must be a number", i,
                              sy_shape_text(shape, text, sizeof text));
    if (i >= shape->rank || shape->dims[i].per_batch != 0 || shape->dims[i].fixed > INT32_MAX)
        return sy_infer_fail(node, SY_EUNSUPPORTED,
                             "dimension %d of %s must be a number below 2^31", i,
                             sy_shape_text(shape, text, sizeof text));
    *out = shape->dims[i].fixed;
    return SY_OK;
}

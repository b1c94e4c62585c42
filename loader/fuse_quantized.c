/* Models that are quantised already, as float32 products of whole numbers: exact up to sums of 2^24, and the factors (at most 255 in
 * size) also fit bf16, so that an engine may multiply them there ("whole" on the product says so).
 *
 *   DequantizeLinear of a constant                       a float32 constant
 *   QLinearConv with constant weights, QLinearMatMul     DequantizeLinear (scale 1) -> Conv, MatMul -> QuantizeLinear (y / (a * b))
 *   ConvInteger with constant weights, MatMulInteger,    DequantizeLinear (scale 1) -> Conv, MatMul
 *   then perhaps Add of int32, then Cast to float32
 *
 * Everything else keeps its operator. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/fuse.h"
#include "loader/graph_infer.h"
#include "runtime/base/status.h"

/* Tensor indices, -1 where there is none; `linear`: with scales and a quantised result. */
struct quantized {
    bool linear, conv;
    int a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, bias;
};

static const struct sy_tensor *at(const struct sy_graph *graph, int tensor)
{
    return tensor < 0 ? NULL : &graph->tensors[tensor];
}

static int64_t elements(const struct sy_tensor *t)
{
    return sy_shape_elements(&t->shape, 1);
}

static bool is_integers(const struct sy_tensor *t)
{
    return t->dtype == SY_DTYPE_I8 || t->dtype == SY_DTYPE_U8 || t->dtype == SY_DTYPE_I32;
}

/* Element i of a constant of integers or float32 that is one number or many; 0 where there is none. */
static double element(const struct sy_tensor *t, int64_t i)
{
    if (!t)
        return 0;
    i = elements(t) == 1 ? 0 : i;
    if (t->dtype == SY_DTYPE_F32)
        return (double)((const float *)t->data)[i];
    const unsigned char *data = t->data;
    return (double)sy_load_integer(t->dtype, data + (size_t)i * sy_dtype_bytes(t->dtype));
}

/* Left out, or a constant of one element or `n`. */
static bool is_known(const struct sy_tensor *t, int64_t n)
{
    return !t || (t->data && (is_integers(t) || t->dtype == SY_DTYPE_F32) &&
                  (elements(t) == 1 || elements(t) == n));
}

/* ---- constants ---------------------------------------------------------------------------------- */

/* Products remember what a step of their weights was (attribute `steps`: one, or one for each of their columns), for engines that multiply
 * 8 bits. */
static int tell_products(struct sy_fuse *f, const struct sy_node *from, int64_t axis)
{
    const struct sy_tensor *scale = at(f->graph, from->inputs[1]);
    for (int i = 0; i < f->graph->n_nodes; i++) {
        struct sy_node *node = &f->graph->nodes[i];
        bool conv = node->op == SY_OP_CONV;
        if ((!conv && node->op != SY_OP_MATMUL && node->op != SY_OP_GEMM) ||
            sy_node_input(node, 1) != from->outputs[0])
            continue;
        int64_t columns =
            conv || (node->op == SY_OP_GEMM && sy_node_int(node, "transB", 0) != 0) ? 0 : 1;
        if (axis < 0 || axis == columns)
            SY_TRY(sy_node_set_floats(node, "steps", (int)elements(scale), scale->data));
    }
    return SY_OK;
}

static int fold_constant(struct sy_fuse *f, struct sy_node *node)
{
    const struct sy_tensor *x = at(f->graph, node->inputs[0]),
                           *scale = at(f->graph, node->inputs[1]),
                           *zero = at(f->graph, sy_node_input(node, 2));
    const struct sy_shape shape = x->shape;
    int64_t axis = sy_node_int(node, "axis", 1), inner = 1, channels;
    axis += axis < 0 ? shape.rank : 0;
    bool along = elements(scale) != 1;
    if (along && (axis < 0 || axis >= shape.rank))
        return SY_OK;
    channels = along ? shape.dims[axis].fixed : 1;
    if (!x->data || !is_integers(x) || !scale->data || scale->dtype != SY_DTYPE_F32 ||
        !is_known(scale, channels) || !is_known(zero, channels))
        return SY_OK;
    for (int64_t d = axis + 1; along && d < shape.rank; d++)
        inner *= shape.dims[d].fixed;
    int made;
    float *to;
    SY_TRY(sy_fuse_constant(f, f->graph->tensors[node->outputs[0]].name, &shape, &made, &to));
    x = at(f->graph, node->inputs[0]); /* the list of tensors may have moved */
    scale = at(f->graph, node->inputs[1]);
    zero = at(f->graph, sy_node_input(node, 2));
    for (int64_t i = 0; i < elements(x); i++) {
        int64_t k = along ? i / inner % channels : 0;
        double whole = element(x, elements(x) == 1 ? 0 : i) - element(zero, k);
        to[i] = (float)(whole * element(scale, k));
    }
    int out = node->outputs[0];
    SY_TRY(tell_products(f, node, along ? axis : -1));
    sy_node_finish(node);
    sy_graph_replace_uses(f->graph, out, made);
    return SY_OK;
}

int sy_fuse_dequantized(struct sy_fuse *f)
{
    for (int i = 0; i < f->graph->n_nodes; i++) {
        struct sy_node *node = &f->graph->nodes[i];
        if (node->op == SY_OP_DEQUANTIZE_LINEAR && node->n_inputs >= 2 && node->inputs[0] >= 0 &&
            node->inputs[1] >= 0 && !sy_graph_is_output(f->graph, node->outputs[0]) &&
            f->graph->tensors[node->outputs[0]].dtype == SY_DTYPE_F32)
            SY_TRY(fold_constant(f, node));
    }
    return SY_OK;
}

/* ---- products ----------------------------------------------------------------------------------- */

static void read_node(const struct sy_node *node, struct quantized *q)
{
    q->linear = node->op == SY_OP_QLINEAR_CONV || node->op == SY_OP_QLINEAR_MATMUL;
    q->conv = node->op == SY_OP_QLINEAR_CONV || node->op == SY_OP_CONV_INTEGER;
    bool l = q->linear;
    q->a = sy_node_input(node, 0);
    q->a_scale = l ? sy_node_input(node, 1) : -1;
    q->a_zero = sy_node_input(node, 2);
    q->b = sy_node_input(node, l ? 3 : 1);
    q->b_scale = l ? sy_node_input(node, 4) : -1;
    q->b_zero = sy_node_input(node, l ? 5 : 3);
    q->y_scale = l ? sy_node_input(node, 6) : -1;
    q->y_zero = l ? sy_node_input(node, 7) : -1;
    q->bias = node->op == SY_OP_QLINEAR_CONV ? sy_node_input(node, 8) : -1;
}

/* A product of two computed matrices, one scale and zero point each. */
static bool is_computed(const struct sy_graph *graph, const struct quantized *q)
{
    const struct sy_tensor *a = at(graph, q->a), *b = at(graph, q->b),
                           *y_zero = at(graph, q->y_zero);
    const int zeros[] = {q->a_zero, q->b_zero}, scales[] = {q->a_scale, q->b_scale, q->y_scale};
    if (q->conv || !a || !b || b->data || a->dtype == SY_DTYPE_I32 || b->dtype == SY_DTYPE_I32 ||
        !is_integers(a) || !is_integers(b) || a->shape.rank < 2 || b->shape.rank < 2)
        return false;
    for (int i = 0; i < 2; i++)
        if (at(graph, zeros[i]) && elements(at(graph, zeros[i])) != 1)
            return false;
    for (int i = 0; i < 3 && q->linear; i++) {
        const struct sy_tensor *scale = at(graph, scales[i]);
        if (!scale || !scale->data || scale->dtype != SY_DTYPE_F32 || elements(scale) != 1)
            return false;
    }
    return !y_zero || elements(y_zero) == 1;
}

/* Weights known, a's numbers one for all. */
static bool can_lower(const struct sy_graph *graph, const struct quantized *q)
{
    const struct sy_tensor *a = at(graph, q->a), *b = at(graph, q->b),
                           *a_zero = at(graph, q->a_zero), *y_zero = at(graph, q->y_zero),
                           *bias = at(graph, q->bias);
    if (!a || !b || !b->data || a->dtype == SY_DTYPE_I32 || b->dtype == SY_DTYPE_I32 ||
        !is_integers(a) || !is_integers(b) || b->shape.rank < 2 || a->shape.rank < 2 ||
        (!q->conv && b->shape.rank != 2))
        return false;
    int64_t columns = b->shape.dims[q->conv ? 0 : 1].fixed;
    if ((a_zero && elements(a_zero) != 1) || !is_known(at(graph, q->b_zero), columns))
        return false;
    if (!q->linear)
        return true;
    const struct sy_tensor *scales[] = {at(graph, q->a_scale), at(graph, q->b_scale),
                                        at(graph, q->y_scale)};
    for (int i = 0; i < 3; i++)
        if (!scales[i] || !is_known(scales[i], i == 1 ? columns : 1) ||
            scales[i]->dtype != SY_DTYPE_F32)
            return false;
    return (!y_zero || elements(y_zero) == 1) &&
           (!bias || (bias->data && elements(bias) == columns));
}

static int make_weights(struct sy_fuse *f, const struct quantized *q, int *out)
{
    const struct sy_shape shape = f->graph->tensors[q->b].shape;
    int64_t n = sy_shape_elements(&shape, 1), columns = shape.dims[q->conv ? 0 : 1].fixed;
    float *to;
    SY_TRY(sy_fuse_constant(f, f->graph->tensors[q->b].name, &shape, out, &to));
    const struct sy_tensor *b = at(f->graph, q->b), *zero = at(f->graph, q->b_zero);
    for (int64_t i = 0; i < n; i++) {
        int64_t column = q->conv ? i / (n / columns) : i % columns;
        to[i] = (float)(element(b, n == 1 ? 0 : i) - element(zero, column));
    }
    return SY_OK;
}

/* A list of float32: of the bias, or what a result is divided by. */
static int make_list(struct sy_fuse *f, const struct quantized *q, bool of_bias, int *out)
{
    const struct sy_tensor *b_scale = at(f->graph, q->b_scale);
    int64_t n = of_bias ? elements(at(f->graph, q->bias)) : elements(b_scale);
    struct sy_shape shape = {.rank = n == 1 && !of_bias ? 0 : 1, .dims = {{n, 0}}};
    float *to;
    SY_TRY(sy_fuse_constant(f, of_bias ? "bias" : "scale", &shape, out, &to));
    for (int64_t i = 0; i < n; i++)
        to[i] = of_bias ? (float)element(at(f->graph, q->bias), i)
                        : (float)(element(at(f->graph, q->y_scale), 0) /
                                  (element(at(f->graph, q->a_scale), 0) *
                                   element(at(f->graph, q->b_scale), i)));
    return SY_OK;
}

static int make_tensor(struct sy_graph *graph, const char *name, const char *part, int like,
                       int *out)
{
    char text[256];
    const struct sy_shape shape = graph->tensors[like].shape;
    snprintf(text, sizeof text, "%.200s/%s", name, part);
    return sy_graph_add_tensor(graph, text, SY_DTYPE_F32, &shape, out);
}

/* a - a_zero as float32; or b's. */
static int add_centred(struct sy_fuse *f, int a, int a_zero, const char *name, int opset, int *out)
{
    const struct sy_shape scalar = {.rank = 0};
    int one;
    float *to;
    SY_TRY(sy_fuse_constant(f, "one", &scalar, &one, &to));
    *to = 1;
    SY_TRY(make_tensor(f->graph, name, "centred", a, out));
    return sy_graph_add_node(f->graph, SY_OP_DEQUANTIZE_LINEAR, opset, name, a_zero >= 0 ? 3 : 2,
                             (int[]){a, one, a_zero}, 1, out, NULL);
}

static int add_quantize(struct sy_fuse *f, const struct quantized *q, const char *name, int opset,
                        int from, int to)
{
    int scale;
    struct sy_node *node;
    SY_TRY(make_list(f, q, false, &scale));
    SY_TRY(sy_graph_add_node(f->graph, SY_OP_QUANTIZE_LINEAR, opset, name, q->y_zero >= 0 ? 3 : 2,
                             (int[]){from, scale, q->y_zero}, 1, &to, &node));
    return sy_node_set_int(node, "axis", q->conv ? 1 : f->graph->tensors[to].shape.rank - 1);
}

/* Node i becomes the product of float32; `y` is its result, of float32 too. computed: b as float32, -1: it is constant. */
static int become_product(struct sy_fuse *f, int i, const struct quantized *q, int x, int computed,
                          int y)
{
    int weights = computed, bias = -1, *inputs;
    if (computed < 0)
        SY_TRY(make_weights(f, q, &weights));
    if (q->bias >= 0)
        SY_TRY(make_list(f, q, true, &bias));
    SY_TRY(sy_graph_alloc(3, sizeof *inputs, &inputs));
    memcpy(inputs, (int[]){x, weights, bias}, 3 * sizeof *inputs);
    struct sy_node *node = &f->graph->nodes[i];
    free(node->inputs);
    node->inputs = inputs;
    node->n_inputs = bias >= 0 ? 3 : 2;
    node->op = q->conv ? SY_OP_CONV : SY_OP_MATMUL;
    node->outputs[0] = y;
    return computed < 0 ? sy_node_set_int(node, "whole", 1) : SY_OK;
}

/* Sums of int32 plus others, then as float32, become floats before they are added: exact up to 2^24 as the product itself. Node `add` adds, `cast`
 * behind it casts; *sums is the product's new result. */
static int add_as_floats(struct sy_fuse *f, const char *name, int out, int add, int cast, int *sums)
{
    struct sy_node *node = &f->graph->nodes[add];
    int other = node->inputs[node->inputs[0] == out], wide, opset = node->opset;
    SY_TRY(make_tensor(f->graph, name, "sum", out, sums));
    SY_TRY(make_tensor(f->graph, name, "added", other, &wide));
    SY_TRY(sy_graph_add_node(f->graph, SY_OP_CAST, opset, name, 1, &other, 1, &wide, NULL));
    node = &f->graph->nodes[add];
    node->inputs[0] = *sums;
    node->inputs[1] = wide;
    node->outputs[0] = f->graph->nodes[cast].outputs[0];
    sy_node_finish(&f->graph->nodes[cast]);
    return SY_OK;
}

/* add: a node that adds to the sums before they are cast, or -1. */
static int lower(struct sy_fuse *f, int i, const struct quantized *q, int add, int cast)
{
    char name[256];
    int x, b = -1, y, opset = f->graph->nodes[i].opset, out = f->graph->nodes[i].outputs[0];
    snprintf(name, sizeof name, "%.200s", f->graph->nodes[i].name);
    SY_TRY(add_centred(f, q->a, q->a_zero, name, opset, &x));
    if (!at(f->graph, q->b)->data)
        SY_TRY(add_centred(f, q->b, q->b_zero, name, opset, &b));
    if (add >= 0) {
        SY_TRY(add_as_floats(f, name, out, add, cast, &y));
    } else if (cast >= 0) {
        y = f->graph->nodes[cast].outputs[0];
        sy_node_finish(&f->graph->nodes[cast]);
    } else {
        SY_TRY(make_tensor(f->graph, name, "sum", out, &y));
    }
    SY_TRY(become_product(f, i, q, x, b, y));
    return cast >= 0 ? SY_OK : add_quantize(f, q, name, opset, y, out);
}

/* The node that alone reads `tensor`, if it makes float32 of it. */
static int cast_of(const struct sy_fuse *f, int tensor)
{
    for (int i = 0; f->uses[tensor] == 1 && i < f->graph->n_nodes; i++) {
        const struct sy_node *node = &f->graph->nodes[i];
        if (node->op == SY_OP_CAST && node->n_inputs == 1 && node->inputs[0] == tensor)
            return f->graph->tensors[node->outputs[0]].dtype == SY_DTYPE_F32 ? i : -1;
    }
    return -1;
}

/* The node that alone reads `tensor`, if it adds another to each of its elements and keeps its shape. */
static int addition_to(const struct sy_fuse *f, int tensor)
{
    for (int i = 0; f->uses[tensor] == 1 && i < f->graph->n_nodes; i++) {
        const struct sy_node *node = &f->graph->nodes[i];
        if (node->op == SY_OP_ADD && node->n_inputs == 2 &&
            (node->inputs[0] == tensor) != (node->inputs[1] == tensor))
            return sy_shape_equal(&f->graph->tensors[node->outputs[0]].shape,
                                  &f->graph->tensors[tensor].shape)
                       ? i
                       : -1;
    }
    return -1;
}

int sy_fuse_quantized(struct sy_fuse *f)
{
    const int n = f->graph->n_nodes;
    bool changed = false;
    for (int i = 0; i < n; i++) {
        const struct sy_node *node = &f->graph->nodes[i];
        struct quantized q;
        if (node->op != SY_OP_QLINEAR_CONV && node->op != SY_OP_QLINEAR_MATMUL &&
            node->op != SY_OP_CONV_INTEGER && node->op != SY_OP_MATMUL_INTEGER)
            continue;
        read_node(node, &q);
        int add = q.linear ? -1 : addition_to(f, node->outputs[0]),
            cast = q.linear ? -1 : cast_of(f, (add < 0 ? node : &f->graph->nodes[add])->outputs[0]);
        if ((!can_lower(f->graph, &q) && !is_computed(f->graph, &q)) || (!q.linear && cast < 0))
            continue;
        SY_TRY(lower(f, i, &q, add, cast));
        changed = true;
    }
    sy_graph_compact(f->graph);
    return changed ? sy_graph_sort(f->graph) : SY_OK;
}

/* Operators between products of 8-bit numbers that can be computed in 8 bits:
 *
 *   DequantizeLinear (two, or one) -> Add or Mul, or nothing [-> Relu, Clip] -> QuantizeLinear     QuantizedSum
 *   DequantizeLinear -> MaxPool, Reshape, Transpose, Concat ... -> QuantizeLinear (the same scale)   the operator on 8 bits */
#include <math.h>
#include <stdlib.h>

#include "loader/fuse/fuse_int8.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_PARTS = 32 };

/* ---- scales ---------------------------------------------------------------------------------------- */

bool sy_quantization_zero(const struct sy_fuse *f, const struct sy_node *node, int narrow,
                          int64_t *out)
{
    int zero = sy_node_input(node, 2);
    enum sy_dtype dtype = sy_fuse_tensor(f, narrow)->dtype;
    *out = 0;
    if (dtype != SY_DTYPE_U8 && dtype != SY_DTYPE_I8)
        return false;
    if (zero < 0)
        return true;
    const struct sy_tensor *t = sy_fuse_tensor(f, zero);
    int64_t n = sy_shape_elements(&t->shape, 1);
    if (!t->data || t->dtype != dtype || n < 1)
        return false;
    const unsigned char *data = t->data;
    *out = sy_load_integer(dtype, data);
    for (int64_t i = 1; i < n; i++)
        if (data[i] != data[0])
            return false;
    return true;
}

bool sy_quantization_read(const struct sy_fuse *f, const struct sy_node *node, int narrow,
                          struct sy_quantization *out)
{
    return node->n_inputs >= 2 && node->inputs[1] >= 0 &&
           sy_graph_scalar(f->graph, node->inputs[1], &out->scale) && out->scale > 0 &&
           isfinite(out->scale) && sy_quantization_zero(f, node, narrow, &out->zero);
}

/* The DequantizeLinear that makes `tensor` (float32) of 8 bits with one scale, and that scale. */
static const struct sy_node *dequantized(const struct sy_fuse *f, int tensor,
                                         struct sy_quantization *q)
{
    const struct sy_node *node =
        tensor < 0 ? NULL : sy_fuse_maker(f, tensor, SY_OP_DEQUANTIZE_LINEAR);
    return node && sy_fuse_tensor(f, tensor)->dtype == SY_DTYPE_F32 &&
                   !sy_fuse_tensor(f, node->inputs[0])->data &&
                   sy_quantization_read(f, node, node->inputs[0], q)
               ? node
               : NULL;
}

/* The QuantizeLinear with one scale that alone reads `tensor`. */
static struct sy_node *quantized(const struct sy_fuse_int8 *s, int tensor,
                                 struct sy_quantization *q)
{
    struct sy_node *node = sy_fuse_int8_reader(s, tensor);
    return node && node->op == SY_OP_QUANTIZE_LINEAR && node->inputs[0] == tensor &&
                   sy_fuse_tensor(s->f, tensor)->dtype == SY_DTYPE_F32 &&
                   sy_quantization_read(s->f, node, node->outputs[0], q)
               ? node
               : NULL;
}

struct sy_node *sy_fuse_int8_reader(const struct sy_fuse_int8 *s, int tensor)
{
    int n = tensor < s->f->n_tensors && s->f->uses[tensor] == 1 ? s->reader[tensor] : -1;
    struct sy_node *node = n < 0 ? NULL : &s->f->graph->nodes[n];
    return node && node->n_outputs == 1 && !sy_graph_is_output(s->f->graph, tensor) ? node : NULL;
}

int sy_fuse_int8_run(struct sy_fuse *f, int (*pass)(struct sy_fuse_int8 *s))
{
    struct sy_fuse_int8 s = {.f = f};
    SY_TRY(sy_graph_alloc((size_t)f->n_tensors + 1, sizeof *s.reader, &s.reader));
    for (int t = 0; t < f->n_tensors; t++)
        s.reader[t] = -1;
    for (int n = 0; n < f->graph->n_nodes; n++)
        for (int i = 0; i < f->graph->nodes[n].n_inputs; i++)
            if (f->graph->nodes[n].inputs[i] >= 0)
                s.reader[f->graph->nodes[n].inputs[i]] = n;
    int status = pass(&s);
    free(s.reader);
    return status;
}

/* ---- sums ------------------------------------------------------------------------------------------ */

/* `late`, a QuantizeLinear, becomes it. */
static int become_sum(struct sy_fuse *f, struct sy_node *late, int n, const int *inputs,
                      const struct sy_quantization *of, const struct sy_quantization *y,
                      const struct sy_node *activation, bool product)
{
    float factors[2] = {of[0].scale, n > 1 ? of[1].scale : 0};
    int64_t zeros[2] = {of[0].zero, n > 1 ? of[1].zero : 0};
    enum sy_activation kind = activation ? sy_fuse_activation_of(activation) : SY_ACT_NONE;
    float low = kind == SY_ACT_CLIP ? sy_node_float(activation, "min", 0) : 0,
          high = kind == SY_ACT_CLIP ? sy_node_float(activation, "max", 0) : 0;
    SY_TRY(sy_fuse_become(f, late, SY_OP_QUANTIZED_SUM, n, inputs));
    late->activation = kind;
    late->act_alpha = low;
    late->act_beta = high;
    SY_TRY(sy_node_set_floats(late, "factors", n, factors));
    SY_TRY(sy_node_set_ints(late, "zeros", n, zeros));
    SY_TRY(sy_node_set_int(late, "product", product));
    SY_TRY(sy_node_set_float(late, "y_scale", y->scale));
    return sy_node_set_int(late, "y_zero", y->zero);
}

/* From the QuantizeLinear back. */
static int rewrite_sum(struct sy_fuse_int8 *s, struct sy_node *late)
{
    struct sy_fuse *f = s->f;
    struct sy_quantization y, of[2];
    int from = late->inputs[0], inputs[2], n = 0;
    if (quantized(s, from, &y) != late)
        return SY_OK;
    const struct sy_node *activation = sy_fuse_inner(f, from, SY_OP_RELU);
    if (!activation)
        activation = sy_fuse_inner(f, from, SY_OP_CLIP);
    if (activation)
        from = activation->inputs[0];
    const struct sy_node *pair = sy_fuse_inner(f, from, SY_OP_ADD);
    if (!pair)
        pair = sy_fuse_inner(f, from, SY_OP_MUL);
    int parts[2] = {pair ? pair->inputs[0] : from, pair ? pair->inputs[1] : -1};
    for (; n < 1 + (pair != NULL); n++) {
        const struct sy_node *part = dequantized(f, parts[n], &of[n]);
        if (!part || !sy_shape_equal(&sy_fuse_tensor(f, parts[n])->shape,
                                     &sy_fuse_tensor(f, late->outputs[0])->shape))
            return SY_OK;
        inputs[n] = part->inputs[0];
    }
    return become_sum(f, late, n, inputs, of, &y, activation, pair && pair->op == SY_OP_MUL);
}

static int rewrite_sums(struct sy_fuse_int8 *s)
{
    for (int n = 0; n < s->f->graph->n_nodes; n++)
        if (s->f->graph->nodes[n].op == SY_OP_QUANTIZE_LINEAR)
            SY_TRY(rewrite_sum(s, &s->f->graph->nodes[n]));
    return SY_OK;
}

int sy_fuse_int8_sums(struct sy_fuse *f)
{
    return sy_fuse_int8_run(f, rewrite_sums);
}

/* ---- moves ----------------------------------------------------------------------------------------- */

/* How many inputs, from the first on, are moved as they are; 0: it is none of these. */
static int moved_inputs(const struct sy_node *node)
{
    switch (node->op) {
    case SY_OP_RESHAPE:
    case SY_OP_FLATTEN:
    case SY_OP_SQUEEZE:
    case SY_OP_UNSQUEEZE:
    case SY_OP_TRANSPOSE:
    case SY_OP_MAX_POOL:
    case SY_OP_SLICE:
    case SY_OP_EXPAND:
    case SY_OP_DEPTH_TO_SPACE:
    case SY_OP_SPACE_TO_DEPTH:
        return 1;
    case SY_OP_CONCAT:
        return node->n_inputs;
    default:
        return 0;
    }
}

static bool is_same(const struct sy_quantization *a, const struct sy_quantization *b)
{
    return a->scale == b->scale && a->zero == b->zero;
}

/* An input of Concat in another scale: QuantizedSum of one, in front. */
static int in_scale(struct sy_fuse *f, const struct sy_node *like, int opset, int from,
                    const struct sy_quantization *of, const struct sy_quantization *y,
                    enum sy_dtype dtype, int *out)
{
    const struct sy_shape shape = sy_fuse_tensor(f, from)->shape;
    struct sy_node *node;
    float factor = of->scale;
    int64_t zero = of->zero;
    SY_TRY(sy_graph_add_tensor(f->graph, like->name, dtype, &shape, out));
    SY_TRY(
        sy_graph_add_node(f->graph, SY_OP_QUANTIZED_SUM, opset, "scaled", 1, &from, 1, out, &node));
    SY_TRY(sy_node_set_floats(node, "factors", 1, &factor));
    SY_TRY(sy_node_set_ints(node, "zeros", 1, &zero));
    SY_TRY(sy_node_set_float(node, "y_scale", y->scale));
    return sy_node_set_int(node, "y_zero", y->zero);
}

/* Node n. *added: nodes were appended to the graph that belong before it. */
static int rewrite_move(struct sy_fuse_int8 *s, int n, bool *added)
{
    struct sy_fuse *f = s->f;
    struct sy_graph *graph = f->graph;
    struct sy_quantization y, of[MAX_PARTS];
    int inputs[MAX_PARTS], moved = moved_inputs(&graph->nodes[n]);
    struct sy_node *late = moved ? quantized(s, graph->nodes[n].outputs[0], &y) : NULL;
    if (!late || moved > MAX_PARTS || graph->nodes[n].n_outputs != 1)
        return SY_OK;
    int out = late->outputs[0], last = (int)(late - graph->nodes), opset = graph->nodes[n].opset;
    enum sy_dtype dtype = sy_fuse_tensor(f, out)->dtype;
    for (int i = 0; i < moved; i++) {
        const struct sy_node *from = dequantized(f, graph->nodes[n].inputs[i], &of[i]);
        if (!from)
            return SY_OK;
        inputs[i] = from->inputs[0];
        bool same = is_same(&of[i], &y) && sy_fuse_tensor(f, inputs[i])->dtype == dtype;
        if (!same && graph->nodes[n].op != SY_OP_CONCAT)
            return SY_OK;
    }
    for (int i = 0; i < moved; i++) {
        if (is_same(&of[i], &y) && sy_fuse_tensor(f, inputs[i])->dtype == dtype)
            continue;
        SY_TRY(in_scale(f, &graph->nodes[n], opset, inputs[i], &of[i], &y, dtype, &inputs[i]));
        *added = true;
    }
    struct sy_node *node = &graph->nodes[n];
    for (int i = 0; i < moved; i++)
        node->inputs[i] = inputs[i];
    sy_fuse_absorb(f, node, &graph->nodes[last]);
    return SY_OK;
}

static int rewrite_moves(struct sy_fuse_int8 *s)
{
    const int n = s->f->graph->n_nodes;
    bool added = false;
    for (int i = 0; i < n; i++)
        SY_TRY(rewrite_move(s, i, &added));
    sy_graph_compact(s->f->graph);
    return added ? sy_graph_sort(s->f->graph) : SY_OK;
}

int sy_fuse_int8_moves(struct sy_fuse *f)
{
    return sy_fuse_int8_run(f, rewrite_moves);
}

/* Products of 8-bit numbers for engines that multiply them as such (graph.h: QuantizedConv, QuantizedMatMul):
 *
 *   DequantizeLinear -> Conv, MatMul, Gemm (weights of whole numbers times steps) [-> QuantizeLinear]
 *   DequantizeLinear (zero point of the run) -> Conv, MatMul [-> Mul by a scale of the run] [-> Add] [-> activation]
 *
 * Weights are written back to 8 bits; `steps` on the product (fuse_quantized.c) says what one is worth, and each is checked. What does not
 * come out as whole numbers of 8 signed bits stays as it is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "loader/fuse/fuse_int8.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define LEAST_FACTOR 1e-30f /* engines divide by factors */

struct product {
    struct sy_node *node; /* of float32 */
    bool conv;
    int64_t columns, depth; /* of the weights: number of results, and of factors per result */
    bool columns_first;     /* in memory */
    int x, bias;            /* 8 bits; float32 constant or -1 */
    int run_zero;           /* -1: `zero` */
    int64_t zero;
    float x_scale;
    float *factors; /* of each column */
    float *sums;    /* sums of each column's weights */
    int8_t *weights;
};

static const float *steps_of(const struct sy_node *node, int *n)
{
    static const float one = 1;
    const struct sy_attr *steps = sy_node_attr(node, "steps");
    *n = steps ? steps->n : 1;
    if (steps && steps->kind == SY_ATTR_FLOATS)
        return steps->floats;
    return sy_node_int(node, "whole", 0) != 0 ? &one : NULL;
}

/* ---- what a product reads -------------------------------------------------------------------------- */

static bool read_weights(const struct sy_fuse *f, struct product *p)
{
    const struct sy_node *node = p->node;
    const struct sy_tensor *w = node->inputs[1] < 0 ? NULL : sy_fuse_tensor(f, node->inputs[1]);
    if (!w || !w->data || w->dtype != SY_DTYPE_F32)
        return false;
    p->conv = node->op == SY_OP_CONV;
    p->columns_first = p->conv || (node->op == SY_OP_GEMM && sy_node_int(node, "transB", 0) != 0);
    if (p->conv ? w->shape.rank < 3 || w->shape.rank > 5 : w->shape.rank != 2)
        return false;
    int64_t n = sy_shape_elements(&w->shape, 1);
    p->columns = w->shape.dims[p->columns_first ? 0 : 1].fixed;
    if (n < 1 || (node->op == SY_OP_GEMM && sy_node_int(node, "transA", 0) != 0))
        return false;
    p->depth = n / p->columns;
    return true;
}

/* A constant for each column, or none. */
static bool read_bias(const struct sy_fuse *f, struct product *p)
{
    const struct sy_node *node = p->node;
    p->bias = node->op == SY_OP_MATMUL
                  ? (node->bias_input < 0 ? -1 : node->inputs[node->bias_input])
                  : sy_node_input(node, 2);
    if (p->bias < 0)
        return true;
    const struct sy_tensor *t = sy_fuse_tensor(f, p->bias);
    return t->data && t->dtype == SY_DTYPE_F32 && t->shape.rank > 0 &&
           sy_shape_elements(&t->shape, 1) == p->columns &&
           t->shape.dims[p->conv ? 0 : t->shape.rank - 1].fixed == p->columns;
}

static bool read_input(const struct sy_fuse *f, struct product *p)
{
    const struct sy_node *from = sy_fuse_maker(f, p->node->inputs[0], SY_OP_DEQUANTIZE_LINEAR);
    struct sy_quantization q;
    if (!from || sy_fuse_tensor(f, p->node->inputs[0])->shape.rank < 2)
        return false;
    p->run_zero = -1;
    if (!sy_quantization_read(f, from, from->inputs[0], &q)) {
        int zero = sy_node_input(from, 2);
        const struct sy_tensor *t = zero < 0 ? NULL : sy_fuse_tensor(f, zero);
        if (!t || t->data || t->dtype != SY_DTYPE_U8 || sy_shape_elements(&t->shape, 1) != 1 ||
            !sy_graph_scalar(f->graph, from->inputs[1], &q.scale) ||
            sy_fuse_tensor(f, from->inputs[0])->dtype != SY_DTYPE_U8)
            return false;
        q.zero = 0;
        p->run_zero = zero;
    }
    p->x = from->inputs[0];
    p->x_scale = q.scale;
    p->zero = q.zero;
    return true;
}

/* Fills weights, sums and factors. *fits: they are whole. */
static int take_apart(const struct sy_fuse *f, struct product *p, bool *fits)
{
    int n_steps;
    const float *steps = steps_of(p->node, &n_steps),
                *w = sy_fuse_tensor(f, p->node->inputs[1])->data,
                alpha = p->conv ? 1 : sy_node_float(p->node, "alpha", 1);
    *fits = steps && (n_steps == 1 || n_steps == p->columns);
    if (!*fits)
        return SY_OK;
    size_t columns = (size_t)p->columns;
    SY_TRY(sy_graph_alloc(columns * (size_t)p->depth, 1, &p->weights));
    SY_TRY(sy_graph_alloc(columns, sizeof *p->factors, &p->factors));
    SY_TRY(sy_graph_alloc(columns, sizeof *p->sums, &p->sums));
    for (int64_t c = 0; c < p->columns; c++) {
        float step = steps[n_steps == 1 ? 0 : c];
        p->factors[c] = p->x_scale * step * alpha;
        *fits = *fits && fabsf(p->factors[c]) > LEAST_FACTOR && isfinite(p->factors[c]);
        for (int64_t k = 0; k < p->depth && *fits; k++) {
            int64_t from = p->columns_first ? c * p->depth + k : k * p->columns + c;
            float value = w[from] / step, whole = rintf(value);
            *fits = fabsf(value - whole) < 1e-3f && whole >= -128 && whole <= 127;
            if (!*fits)
                break;
            p->weights[p->conv ? from : k * p->columns + c] = (int8_t)whole;
            p->sums[c] += whole;
        }
    }
    return SY_OK;
}

/* ---- what follows it ------------------------------------------------------------------------------- */

/* The scales of a QuantizeLinear behind go into the factors where they are one for each column. */
static bool takes_columns(const struct sy_fuse *f, const struct product *p,
                          const struct sy_node *late)
{
    const struct sy_tensor *scale = sy_fuse_tensor(f, late->inputs[1]);
    int rank = sy_fuse_tensor(f, late->inputs[0])->shape.rank;
    int64_t axis = sy_node_int(late, "axis", 1);
    axis += axis < 0 ? rank : 0;
    if (p->node->activation != SY_ACT_NONE || p->run_zero >= 0 || !scale->data ||
        scale->dtype != SY_DTYPE_F32 || sy_shape_elements(&scale->shape, 1) != p->columns ||
        axis != (p->conv ? 1 : rank - 1))
        return false;
    const float *s = scale->data;
    for (int64_t c = 0; c < p->columns; c++)
        if (!(s[c] > LEAST_FACTOR) || !isfinite(s[c]) ||
            !(fabsf(p->factors[c] / s[c]) > LEAST_FACTOR))
            return false;
    return true;
}

/* A scale of the run behind (and one of each column beside it): Mul(x, s), or s = Mul(run, columns). */
static int take_run_scale(struct sy_fuse *f, struct product *p, struct sy_node *mul, int scale,
                          int *run_scale)
{
    const struct sy_node *both = sy_fuse_maker(f, scale, SY_OP_MUL);
    for (int i = 0; both && i < 2 && both->n_inputs == 2; i++) {
        const struct sy_tensor *run = sy_fuse_tensor(f, both->inputs[1 - i]),
                               *columns = sy_fuse_tensor(f, both->inputs[i]);
        int64_t n = sy_shape_elements(&columns->shape, 1);
        if (!columns->data || columns->dtype != SY_DTYPE_F32 || run->data || p->conv ||
            sy_shape_elements(&run->shape, 1) != 1 || columns->shape.rank > 1 ||
            run->shape.rank > 1 || (n != 1 && n != p->columns))
            continue;
        const float *of = columns->data;
        for (int64_t c = 0; c < p->columns; c++)
            p->factors[c] *= of[n == 1 ? 0 : c];
        *run_scale = both->inputs[1 - i];
        sy_fuse_absorb(f, p->node, mul);
        p->node = mul;
        return SY_OK;
    }
    const struct sy_tensor *run = sy_fuse_tensor(f, scale);
    if (run->data || run->dtype != SY_DTYPE_F32 || sy_shape_elements(&run->shape, 1) != 1)
        return SY_OK;
    *run_scale = scale;
    sy_fuse_absorb(f, p->node, mul);
    p->node = mul;
    return SY_OK;
}

static struct sy_node *reader(const struct sy_fuse_int8 *s, const struct product *p)
{
    return sy_fuse_int8_reader(s, p->node->outputs[0]);
}

static bool is_same_shape(const struct sy_fuse *f, int a, int b)
{
    return sy_shape_equal(&sy_fuse_tensor(f, a)->shape, &sy_fuse_tensor(f, b)->shape);
}

/* Scale, bias and activation behind a product whose input is quantised in the run. */
static int take_run_tail(struct sy_fuse_int8 *s, struct product *p, int *run_scale)
{
    struct sy_fuse *f = s->f;
    struct sy_node *late = reader(s, p);
    int y = p->node->outputs[0];
    if (late && late->op == SY_OP_MUL && late->n_inputs == 2 && p->bias < 0 &&
        p->node->activation == SY_ACT_NONE && is_same_shape(f, y, late->outputs[0]))
        SY_TRY(take_run_scale(f, p, late, late->inputs[late->inputs[0] == y], run_scale));
    if (*run_scale < 0)
        return SY_OK;
    late = reader(s, p);
    y = p->node->outputs[0];
    for (int i = 0; late && late->op == SY_OP_ADD && late->n_inputs == 2 && i < 2; i++) {
        const struct sy_tensor *bias = sy_fuse_tensor(f, late->inputs[1 - i]);
        int axis = p->conv ? 1 : bias->shape.rank - 1;
        if (late->inputs[i] != y || !bias->data || bias->dtype != SY_DTYPE_F32 ||
            bias->shape.rank < 1 || (p->conv && bias->shape.rank != 4) ||
            sy_shape_elements(&bias->shape, 1) != p->columns ||
            bias->shape.dims[axis].fixed != p->columns || !is_same_shape(f, y, late->outputs[0]))
            continue;
        p->bias = late->inputs[1 - i];
        sy_fuse_absorb(f, p->node, late);
        p->node = late;
        break;
    }
    late = reader(s, p);
    enum sy_activation activation = late ? sy_fuse_activation_of(late) : SY_ACT_NONE;
    if (activation != SY_ACT_NONE && p->node->activation == SY_ACT_NONE) {
        p->node->activation = activation;
        p->node->act_alpha = activation == SY_ACT_CLIP ? sy_node_float(late, "min", 0) : 0;
        p->node->act_beta = activation == SY_ACT_CLIP ? sy_node_float(late, "max", 0) : 0;
        sy_fuse_absorb(f, p->node, late);
        p->node = late;
    }
    return SY_OK;
}

/* QuantizeLinear behind. Per column: scales go into factors, *columns has them. */
static int take_quantize(struct sy_fuse_int8 *s, struct product *p, struct sy_quantization *y,
                         const float **columns)
{
    struct sy_fuse *f = s->f;
    struct sy_node *late = reader(s, p);
    *y = (struct sy_quantization){0};
    *columns = NULL;
    if (!late || late->op != SY_OP_QUANTIZE_LINEAR || late->inputs[0] != p->node->outputs[0])
        return SY_OK;
    if (!sy_quantization_read(f, late, late->outputs[0], y)) {
        *y = (struct sy_quantization){.scale = 1};
        if (!takes_columns(f, p, late) ||
            !sy_quantization_zero(f, late, late->outputs[0], &y->zero)) {
            y->scale = 0;
            return SY_OK;
        }
        *columns = sy_fuse_tensor(f, late->inputs[1])->data;
    }
    sy_fuse_absorb(f, p->node, late);
    p->node = late;
    return SY_OK;
}

/* ---- the new node ---------------------------------------------------------------------------------- */

static int add_weights(struct sy_fuse *f, struct product *p, int *out)
{
    const struct sy_tensor *w = sy_fuse_tensor(f, p->node->inputs[1]);
    struct sy_shape shape = w->shape;
    if (!p->conv)
        shape = (struct sy_shape){.rank = 2, .dims = {{p->depth, 0}, {p->columns, 0}}};
    int8_t *data = p->weights;
    p->weights = NULL;
    return sy_graph_add_constant(f->graph, w->name, SY_DTYPE_I8, &shape, data,
                                 (size_t)(p->columns * p->depth), out);
}

/* bias - zero * factor * sum of the weights, in steps of the result where there is one for each column; -1 where it is nothing. */
static int add_bias(struct sy_fuse *f, const struct product *p, const float *columns, int *out)
{
    const struct sy_shape shape = {.rank = 1, .dims = {{p->columns, 0}}};
    const struct sy_tensor *x = sy_fuse_tensor(f, p->x);
    int64_t zero = p->zero + (x->dtype == SY_DTYPE_I8 ? 128 : 0);
    float *to, beta = p->node->op == SY_OP_GEMM ? sy_node_float(p->node, "beta", 1) : 1;
    *out = -1;
    if (p->bias < 0 && (zero == 0 || p->run_zero >= 0))
        return SY_OK;
    SY_TRY(sy_fuse_constant(f, "bias", &shape, out, &to));
    const float *bias = p->bias < 0 ? NULL : f->graph->tensors[p->bias].data;
    for (int64_t c = 0; c < p->columns; c++) {
        double moved =
            p->run_zero >= 0 ? 0 : (double)zero * (double)p->factors[c] * (double)p->sums[c];
        double value = (bias ? (double)bias[c] * (double)beta : 0) - moved;
        to[c] = (float)(columns ? value / (double)columns[c] : value);
    }
    return SY_OK;
}

static int add_sums(struct sy_fuse *f, const struct product *p, int *out)
{
    const struct sy_shape shape = {.rank = 1, .dims = {{p->columns, 0}}};
    float *to;
    *out = -1;
    if (p->run_zero < 0)
        return SY_OK;
    SY_TRY(sy_fuse_constant(f, "sums", &shape, out, &to));
    memcpy(to, p->sums, (size_t)p->columns * sizeof *to);
    return SY_OK;
}

static int set_inputs(struct sy_node *node, const int *inputs, int n)
{
    int *copy;
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *copy, &copy));
    memcpy(copy, inputs, (size_t)n * sizeof *copy);
    free(node->inputs);
    node->inputs = copy;
    node->n_inputs = n;
    node->bias_input = node->residual_input = -1;
    return SY_OK;
}

static int replace_by_int8(struct sy_fuse *f, struct product *p, const struct sy_quantization *y,
                           const float *columns, int run_scale)
{
    int weights, bias, sums;
    SY_TRY(add_weights(f, p, &weights));
    SY_TRY(add_bias(f, p, columns, &bias));
    SY_TRY(add_sums(f, p, &sums));
    const int inputs[] = {p->x, weights, bias, p->run_zero, run_scale, sums};
    for (int64_t c = 0; columns && c < p->columns; c++)
        p->factors[c] /= columns[c];
    SY_TRY(set_inputs(p->node, inputs, SY_ARRAY_LEN(inputs)));
    p->node->op = p->conv ? SY_OP_QUANTIZED_CONV : SY_OP_QUANTIZED_MATMUL;
    SY_TRY(sy_node_set_floats(p->node, "factors", (int)p->columns, p->factors));
    SY_TRY(sy_node_set_floats(p->node, "steps", 0, NULL));
    SY_TRY(sy_node_set_int(p->node, "zero", p->zero));
    SY_TRY(sy_node_set_float(p->node, "y_scale", y->scale));
    return sy_node_set_int(p->node, "y_zero", y->zero);
}

static int rewrite(struct sy_fuse_int8 *s, struct product *p)
{
    struct sy_quantization y;
    const float *columns;
    int run_scale = -1;
    bool fits;
    SY_TRY(take_apart(s->f, p, &fits));
    if (!fits)
        return SY_OK;
    if (p->run_zero >= 0)
        SY_TRY(take_run_tail(s, p, &run_scale));
    SY_TRY(take_quantize(s, p, &y, &columns));
    return replace_by_int8(s->f, p, &y, columns, run_scale);
}

static int rewrite_products(struct sy_fuse_int8 *s)
{
    for (int n = 0; n < s->f->graph->n_nodes; n++) {
        struct sy_node *node = &s->f->graph->nodes[n];
        struct product p = {.node = node};
        if (node->n_outputs == 0 ||
            (node->op != SY_OP_CONV && node->op != SY_OP_MATMUL && node->op != SY_OP_GEMM))
            continue;
        if (node->residual_input >= 0 || !read_weights(s->f, &p) || !read_bias(s->f, &p) ||
            !read_input(s->f, &p))
            continue;
        int status = rewrite(s, &p);
        free(p.weights);
        free(p.factors);
        free(p.sums);
        SY_TRY(status);
    }
    return SY_OK;
}

int sy_fuse_int8_products(struct sy_fuse *f)
{
    return sy_fuse_int8_run(f, rewrite_products);
}

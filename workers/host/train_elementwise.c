/* Operators of one element: curves of one input, and two or three inputs with numpy's broadcasting. */
#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/clones.h"
#include "workers/host/elementwise.h"
#include "workers/host/train_internal.h"

#define PARALLEL_FROM 16384

/* ---- one input ---------------------------------------------------------------------------------- */

struct curve {
    enum sy_op op;
    int64_t n;
    float a, b; /* what the attributes say */
    bool is_tanh_gelu;
};

static const float root_2_pi = 0.797884560802865f;

static float gelu(float x)
{
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

static float gelu_slope(float x)
{
    return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
}

static float softplus(float x)
{
    return x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float clamp(float x, float low, float high)
{
    return fminf(fmaxf(x, low), high);
}

static float bend(const struct curve *c, float x)
{
    switch (c->op) {
    case SY_OP_RELU:
        return x > 0.0f ? x : 0.0f;
    case SY_OP_LEAKY_RELU:
        return x > 0.0f ? x : c->a * x;
    case SY_OP_THRESHOLDED_RELU:
        return x > c->a ? x : 0.0f;
    case SY_OP_ELU:
        return x > 0.0f ? x : c->a * expm1f(x);
    case SY_OP_CELU:
        return x > 0.0f ? x : c->a * expm1f(x / c->a);
    case SY_OP_SELU:
        return c->b * (x > 0.0f ? x : c->a * expm1f(x));
    case SY_OP_SIGMOID:
        return sigmoid(x);
    case SY_OP_TANH:
        return tanhf(x);
    case SY_OP_GELU:
        return c->is_tanh_gelu ? 0.5f * x * (1.0f + tanhf(root_2_pi * (x + 0.044715f * x * x * x)))
                               : gelu(x);
    case SY_OP_HARD_SWISH:
        return x * clamp(x / 6.0f + 0.5f, 0.0f, 1.0f);
    case SY_OP_HARD_SIGMOID:
        return clamp(c->a * x + c->b, 0.0f, 1.0f);
    case SY_OP_SOFTPLUS:
        return softplus(x);
    case SY_OP_SOFTSIGN:
        return x / (1.0f + fabsf(x));
    case SY_OP_MISH:
        return x * tanhf(softplus(x));
    case SY_OP_SHRINK:
        return x < -c->a ? x + c->b : x > c->a ? x - c->b : 0.0f;
    case SY_OP_CLIP:
        return clamp(x, c->a, c->b);
    case SY_OP_ERF:
        return erff(x);
    case SY_OP_EXP:
        return expf(x);
    case SY_OP_LOG:
        return logf(x);
    case SY_OP_SQRT:
        return sqrtf(x);
    case SY_OP_NEG:
        return -x;
    case SY_OP_ABS:
        return fabsf(x);
    case SY_OP_RECIPROCAL:
        return 1.0f / x;
    case SY_OP_SIN:
        return sinf(x);
    case SY_OP_COS:
        return cosf(x);
    case SY_OP_TAN:
        return tanf(x);
    case SY_OP_ATAN:
        return atanf(x);
    case SY_OP_ASIN:
        return asinf(x);
    case SY_OP_ACOS:
        return acosf(x);
    case SY_OP_SINH:
        return sinhf(x);
    case SY_OP_COSH:
        return coshf(x);
    case SY_OP_ASINH:
        return asinhf(x);
    case SY_OP_ACOSH:
        return acoshf(x);
    case SY_OP_ATANH:
        return atanhf(x);
    default:
        return x;
    }
}

static float tanh_gelu_slope(float x)
{
    float t = tanhf(root_2_pi * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) +
           0.5f * x * (1.0f - t * t) * root_2_pi * (1.0f + 3.0f * 0.044715f * x * x);
}

static float mish_slope(float x)
{
    float t = tanhf(softplus(x));
    return t + x * (1.0f - t * t) * sigmoid(x);
}

/* At x, with result y. */
static float slope(const struct curve *c, float x, float y)
{
    switch (c->op) {
    case SY_OP_RELU:
        return x > 0.0f ? 1.0f : 0.0f;
    case SY_OP_LEAKY_RELU:
        return x > 0.0f ? 1.0f : c->a;
    case SY_OP_THRESHOLDED_RELU:
        return x > c->a ? 1.0f : 0.0f;
    case SY_OP_ELU:
        return x > 0.0f ? 1.0f : y + c->a;
    case SY_OP_CELU:
        return x > 0.0f ? 1.0f : expf(x / c->a);
    case SY_OP_SELU:
        return x > 0.0f ? c->b : y + c->a * c->b;
    case SY_OP_SIGMOID:
        return y * (1.0f - y);
    case SY_OP_TANH:
        return 1.0f - y * y;
    case SY_OP_GELU:
        return c->is_tanh_gelu ? tanh_gelu_slope(x) : gelu_slope(x);
    case SY_OP_HARD_SWISH:
        return x <= -3.0f ? 0.0f : x >= 3.0f ? 1.0f : x / 3.0f + 0.5f;
    case SY_OP_HARD_SIGMOID:
        return y > 0.0f && y < 1.0f ? c->a : 0.0f;
    case SY_OP_SOFTPLUS:
        return sigmoid(x);
    case SY_OP_SOFTSIGN:
        return 1.0f / ((1.0f + fabsf(x)) * (1.0f + fabsf(x)));
    case SY_OP_MISH:
        return mish_slope(x);
    case SY_OP_SHRINK:
        return x < -c->a || x > c->a ? 1.0f : 0.0f;
    case SY_OP_CLIP:
        return x >= c->a && x <= c->b ? 1.0f : 0.0f;
    case SY_OP_ERF:
        return 1.12837917f * expf(-x * x);
    case SY_OP_EXP:
        return y;
    case SY_OP_LOG:
        return 1.0f / x;
    case SY_OP_SQRT:
        return 0.5f / y;
    case SY_OP_NEG:
        return -1.0f;
    case SY_OP_ABS:
        return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f;
    case SY_OP_RECIPROCAL:
        return -y * y;
    case SY_OP_SIN:
        return cosf(x);
    case SY_OP_COS:
        return -sinf(x);
    case SY_OP_TAN:
        return 1.0f + y * y;
    case SY_OP_ATAN:
        return 1.0f / (1.0f + x * x);
    case SY_OP_ASIN:
        return 1.0f / sqrtf(1.0f - x * x);
    case SY_OP_ACOS:
        return -1.0f / sqrtf(1.0f - x * x);
    case SY_OP_SINH:
        return coshf(x);
    case SY_OP_COSH:
        return sinhf(x);
    case SY_OP_ASINH:
        return 1.0f / sqrtf(1.0f + x * x);
    case SY_OP_ACOSH:
        return 1.0f / sqrtf(x * x - 1.0f);
    case SY_OP_ATANH:
        return 1.0f / (1.0f - x * x);
    default:
        return 1.0f;
    }
}

static void read_curve(const struct sy_node *node, struct curve *c)
{
    const struct sy_attr *kind = sy_node_attr(node, "approximate");
    c->op = node->op;
    c->is_tanh_gelu = kind && kind->kind == SY_ATTR_STRING && kind->s && !strcmp(kind->s, "tanh");
    switch (node->op) {
    case SY_OP_LEAKY_RELU:
        c->a = sy_node_float(node, "alpha", 0.01f);
        break;
    case SY_OP_SELU:
        c->a = sy_node_float(node, "alpha", 1.67326319f);
        c->b = sy_node_float(node, "gamma", 1.05070102f);
        break;
    case SY_OP_HARD_SIGMOID:
        c->a = sy_node_float(node, "alpha", 0.2f);
        c->b = sy_node_float(node, "beta", 0.5f);
        break;
    case SY_OP_SHRINK:
        c->a = sy_node_float(node, "lambd", 0.5f);
        c->b = sy_node_float(node, "bias", 0.0f);
        break;
    case SY_OP_CLIP:
        c->a = sy_node_float(node, "min", -INFINITY);
        c->b = sy_node_float(node, "max", INFINITY);
        break;
    default:
        c->a = sy_node_float(node, "alpha", 1.0f);
        break;
    }
}

static int run_unary(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct curve *c = step->data;
    float *y = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1);
#pragma omp parallel for schedule(static) if (c->n > PARALLEL_FROM)
    for (int64_t i = 0; i < c->n; i++)
        y[i] = bend(c, x[i]);
    return SY_OK;
}

static int run_unary_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct curve *c = step->data;
    float *dx = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1), *y = sy_tr_at(t, step, 2), *dy = sy_tr_at(t, step, 3);
#pragma omp parallel for schedule(static) if (c->n > PARALLEL_FROM)
    for (int64_t i = 0; i < c->n; i++)
        dx[i] = dy[i] * slope(c, x[i], y[i]);
    return SY_OK;
}

static int add_unary(struct sy_trainer *t, unsigned when, int n, sy_tr_fn *fn, int n_values,
                     const int *values)
{
    struct curve *c;
    SY_TRY(sy_tr_alloc(sizeof *c, &c));
    read_curve(&t->graph->nodes[n], c);
    c->n = sy_tr_count(t, t->graph->nodes[n].outputs[0]);
    return sy_tr_add_call(t, when, fn, 1, n_values, values, c);
}

int sy_tr_unary_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x, y;
    if (t->graph->tensors[node->inputs[0]].dtype != SY_DTYPE_F32)
        return sy_tr_plain_forward(t, n);
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[0], &x));
    SY_TRY(sy_tr_result(t, node->outputs[0], &y));
    return add_unary(t, SY_TR_FORWARD, n, run_unary, 2, (const int[]){y, x});
}

int sy_tr_unary_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x, dx, dy, y = t->tensors[node->outputs[0]].value;
    (void)gradient;
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[0], &x));
    SY_TRY(sy_tr_diff_of(t, node->outputs[0], &dy));
    SY_TRY(sy_tr_diff_begin(t, node->inputs[0], &dx));
    SY_TRY(add_unary(t, SY_TR_TRAIN, n, run_unary_back, 4, (const int[]){dx, x, y, dy}));
    return sy_tr_diff_end(t, node->inputs[0], dx);
}

/* ---- two inputs --------------------------------------------------------------------------------- */

struct pair {
    struct sy_broadcast forward;
    int which;       /* input whose gradient this is */
    int64_t n_which; /* its elements */
    bool is_spread;  /* it is repeated: its gradient is a sum */
};

/* Neighbouring dimensions that all operands step through evenly become one. */
static void collapse(struct sy_broadcast *b, int n_operands)
{
    int64_t to = b->rank - 1;
    for (int64_t d = b->rank - 2; d >= 0; d--) {
        bool even = true;
        for (int i = 0; i < n_operands; i++)
            even &= b->strides[i][d] == b->strides[i][to] * b->dims[to];
        if (even || b->dims[d] == 1) {
            b->dims[to] *= b->dims[d];
            continue;
        }
        to--;
        b->dims[to] = b->dims[d];
        for (int i = 0; i < n_operands; i++)
            b->strides[i][to] = b->strides[i][d];
    }
    for (int64_t d = to; d < b->rank; d++) {
        b->dims[d - to] = b->dims[d];
        for (int i = 0; i < n_operands; i++)
            b->strides[i][d - to] = b->strides[i][d];
    }
    b->rank -= to;
}

static void describe(const struct sy_trainer *t, const struct sy_node *node, int n_inputs,
                     struct sy_broadcast *b)
{
    int64_t dims[SY_MAX_RANK];
    memset(b, 0, sizeof *b);
    b->op = node->op;
    b->n_inputs = n_inputs;
    b->dtype = t->graph->tensors[node->outputs[0]].dtype;
    b->rank = sy_tr_shape(t, node->outputs[0], b->dims);
    if (b->rank == 0)
        b->dims[b->rank++] = 1;
    for (int i = 0; i < n_inputs; i++) {
        int64_t stride = 1;
        int rank = sy_tr_shape(t, node->inputs[i], dims), skip = (int)b->rank - rank;
        for (int d = rank - 1; d >= 0; d--) {
            b->strides[i][d + skip] = dims[d] == 1 ? 0 : stride;
            stride *= dims[d];
        }
    }
    collapse(b, n_inputs);
}

static float combine(enum sy_op op, float a, float b)
{
    switch (op) {
    case SY_OP_ADD:
        return a + b;
    case SY_OP_SUB:
        return a - b;
    case SY_OP_MUL:
        return a * b;
    case SY_OP_DIV:
        return a / b;
    case SY_OP_POW:
        return powf(a, b);
    case SY_OP_MIN:
        return fminf(a, b);
    case SY_OP_MAX:
        return fmaxf(a, b);
    default: /* PRelu */
        return a > 0.0f ? a : a * b;
    }
}

static float power_slope(float a, float b, int which)
{
    if (which == 0)
        return b == 2.0f ? 2.0f * a : b == 0.0f ? 0.0f : b * powf(a, b - 1.0f);
    return a > 0.0f ? powf(a, b) * logf(a) : 0.0f;
}

/* Two that are equal share the gradient of Min and Max. */
static float extreme_slope(float mine, float other)
{
    return mine > other ? 1.0f : mine == other ? 0.5f : 0.0f;
}

static inline float pair_slope(enum sy_op op, int which, float a, float b)
{
    switch (op) {
    case SY_OP_ADD:
        return 1.0f;
    case SY_OP_SUB:
        return which ? -1.0f : 1.0f;
    case SY_OP_MUL:
        return which ? a : b;
    case SY_OP_DIV:
        return which ? -a / (b * b) : 1.0f / b;
    case SY_OP_POW:
        return power_slope(a, b, which);
    case SY_OP_MAX:
        return which ? extreme_slope(b, a) : extreme_slope(a, b);
    case SY_OP_MIN:
        return which ? extreme_slope(a, b) : extreme_slope(b, a);
    default:
        return which ? (a > 0.0f ? 0.0f : a) : (a > 0.0f ? 1.0f : b);
    }
}

static void row_offsets(const struct sy_broadcast *b, int64_t row, int n, int64_t *at)
{
    for (int i = 0; i < n; i++)
        at[i] = 0;
    for (int64_t d = b->rank - 2; d >= 0; d--) {
        for (int i = 0; i < n; i++)
            at[i] += row % b->dims[d] * b->strides[i][d];
        row /= b->dims[d];
    }
}

static int64_t rows_of(const struct sy_broadcast *b)
{
    int64_t rows = 1;
    for (int64_t d = 0; d + 1 < b->rank; d++)
        rows *= b->dims[d];
    return rows;
}

SY_CLONES static void forward_row(const struct sy_broadcast *b, const float *x, const float *y,
                                  float *to)
{
    int64_t n = b->dims[b->rank - 1], sx = b->strides[0][b->rank - 1],
            sy = b->strides[1][b->rank - 1];
    enum sy_op op = (enum sy_op)b->op;
    if (op == SY_OP_ADD)
        for (int64_t i = 0; i < n; i++)
            to[i] = x[i * sx] + y[i * sy];
    else if (op == SY_OP_MUL)
        for (int64_t i = 0; i < n; i++)
            to[i] = x[i * sx] * y[i * sy];
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = combine(op, x[i * sx], y[i * sy]);
}

static int run_pair(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct pair *p = step->data;
    const struct sy_broadcast *b = &p->forward;
    float *to = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1), *y = sy_tr_at(t, step, 2);
    int64_t rows = rows_of(b), n = b->dims[b->rank - 1];
    if (rows == 1 && n > PARALLEL_FROM && b->strides[0][0] && b->strides[1][0]) {
        struct pair part = *p; /* same shapes: cut the one row */
        part.forward.rank = 2;
        part.forward.dims[1] = 4096;
#pragma omp parallel for schedule(static) firstprivate(part)
        for (int64_t i = 0; i < n; i += 4096) {
            part.forward.dims[1] = SY_MIN(4096, n - i);
            part.forward.strides[0][1] = part.forward.strides[1][1] = 1;
            forward_row(&part.forward, x + i, y + i, to + i);
        }
        return SY_OK;
    }
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_FROM)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at[2];
        row_offsets(b, row, 2, at);
        forward_row(b, x + at[0], y + at[1], to + row * n);
    }
    return SY_OK;
}

SY_CLONES static void add_row_sum(float *to, const float *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += g[i];
}

/* One row of the gradient of one input; stride 0: all into one number. */
static void back_row(const struct pair *p, const float *x, const float *y, const float *g,
                     float *to)
{
    const struct sy_broadcast *b = &p->forward;
    enum sy_op op = (enum sy_op)b->op;
    int64_t last = b->rank - 1, n = b->dims[last], sx = b->strides[0][last],
            sy = b->strides[1][last], st = b->strides[p->which][last];
    if (op == SY_OP_ADD && st == 1 && p->is_spread) {
        add_row_sum(to, g, n);
        return;
    }
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        float d = g[i] * pair_slope(op, p->which, x[i * sx], y[i * sy]);
        if (st == 0)
            sum += (double)d;
        else if (p->is_spread)
            to[i * st] += d;
        else
            to[i * st] = d;
    }
    if (st == 0)
        *to = p->is_spread ? (float)((double)*to + sum) : (float)sum;
}

/* A sum is made by one thread in one order. */
static int run_pair_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct pair *p = step->data;
    const struct sy_broadcast *b = &p->forward;
    float *to = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1), *y = sy_tr_at(t, step, 2), *g = sy_tr_at(t, step, 3);
    int64_t rows = rows_of(b), n = b->dims[b->rank - 1];
    if (p->is_spread)
        memset(to, 0, (size_t)p->n_which * sizeof *to);
#pragma omp parallel for schedule(static) if (!p->is_spread && rows * n > PARALLEL_FROM)
    for (int64_t row = 0; row < rows; row++) {
        int64_t at[2];
        row_offsets(b, row, 2, at);
        back_row(p, x + at[0], y + at[1], g + row * n, to + at[p->which]);
    }
    return SY_OK;
}

static int add_pair(struct sy_trainer *t, unsigned when, const struct sy_node *node, int which,
                    sy_tr_fn *fn, int n_values, const int *values)
{
    struct pair *p;
    SY_TRY(sy_tr_alloc(sizeof *p, &p));
    describe(t, node, 2, &p->forward);
    p->which = which;
    p->n_which = sy_tr_count(t, node->inputs[which]);
    p->is_spread = p->n_which != sy_tr_count(t, node->outputs[0]);
    return sy_tr_add_call(t, when, fn, 1, n_values, values, p);
}

int sy_tr_broadcast_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int a, b, y;
    if (t->graph->tensors[node->outputs[0]].dtype != SY_DTYPE_F32 ||
        (node->n_inputs != 2 && !sy_tr_needs(t, node->outputs[0])))
        return sy_tr_plain_forward(t, n);
    if (node->n_inputs != 2)
        return sy_tr_refuse(node, "more or fewer than two inputs");
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[0], &a));
    SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[1], &b));
    SY_TRY(sy_tr_result(t, node->outputs[0], &y));
    return add_pair(t, SY_TR_FORWARD, node, 0, run_pair, 3, (const int[]){y, a, b});
}

int sy_tr_broadcast_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int a, b, dy, d;
    (void)gradient;
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[0], &a));
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[1], &b));
    SY_TRY(sy_tr_diff_of(t, node->outputs[0], &dy));
    for (int i = 0; i < 2; i++) {
        if (!sy_tr_needs(t, node->inputs[i]))
            continue;
        bool is_sum = node->op == SY_OP_ADD; /* needs no operands: they may be forgotten */
        SY_TRY(sy_tr_diff_begin(t, node->inputs[i], &d));
        SY_TRY(add_pair(t, SY_TR_TRAIN, node, i, run_pair_back, 4,
                        (const int[]){d, is_sum ? dy : a, is_sum ? dy : b, dy}));
        SY_TRY(sy_tr_diff_end(t, node->inputs[i], d));
    }
    return SY_OK;
}

/* ---- Where -------------------------------------------------------------------------------------- */

static int run_where(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct pair *p = step->data;
    const void *const inputs[] = {sy_tr_at(t, step, 1), sy_tr_at(t, step, 2), sy_tr_at(t, step, 3)};
    return sy_elementwise_broadcast(&p->forward, inputs, sy_tr_at(t, step, 0));
}

static int run_where_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct pair *p = step->data;
    const struct sy_broadcast *b = &p->forward;
    float *to = sy_tr_at(t, step, 0);
    const uint8_t *condition = sy_tr_at(t, step, 1);
    const float *g = sy_tr_at(t, step, 2);
    int64_t rows = rows_of(b), last = b->rank - 1, n = b->dims[last];
    memset(to, 0, (size_t)p->n_which * sizeof *to);
    for (int64_t row = 0; row < rows; row++) {
        int64_t at[3];
        row_offsets(b, row, 3, at);
        for (int64_t i = 0; i < n; i++)
            if ((condition[at[0] + i * b->strides[0][last]] != 0) == (p->which == 1))
                to[at[p->which] + i * b->strides[p->which][last]] += g[row * n + i];
    }
    return SY_OK;
}

static int add_where(struct sy_trainer *t, unsigned when, const struct sy_node *node, int which,
                     sy_tr_fn *fn, int n_values, const int *values)
{
    struct pair *p;
    SY_TRY(sy_tr_alloc(sizeof *p, &p));
    describe(t, node, 3, &p->forward);
    p->which = which;
    p->n_which = sy_tr_count(t, node->inputs[which]);
    return sy_tr_add_call(t, when, fn, 1, n_values, values, p);
}

int sy_tr_where_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int v[4];
    if (t->graph->tensors[node->outputs[0]].dtype != SY_DTYPE_F32)
        return sy_tr_plain_forward(t, n);
    for (int i = 0; i < 3; i++)
        SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[i], &v[1 + i]));
    SY_TRY(sy_tr_result(t, node->outputs[0], &v[0]));
    return add_where(t, SY_TR_FORWARD, node, 0, run_where, 4, v);
}

int sy_tr_where_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int condition, dy, d;
    (void)gradient;
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[0], &condition));
    SY_TRY(sy_tr_diff_of(t, node->outputs[0], &dy));
    for (int i = 1; i < 3; i++) {
        if (!sy_tr_needs(t, node->inputs[i]))
            continue;
        SY_TRY(sy_tr_diff_begin(t, node->inputs[i], &d));
        SY_TRY(
            add_where(t, SY_TR_TRAIN, node, i, run_where_back, 3, (const int[]){d, condition, dy}));
        SY_TRY(sy_tr_diff_end(t, node->inputs[i], d));
    }
    return SY_OK;
}

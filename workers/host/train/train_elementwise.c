/* Operators of one element: curves of one input, and two or three inputs with numpy's broadcasting. */
#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/train_formulas.h"
#include "workers/host/base/clones.h"
#include "workers/host/rows/elementwise.h"
#include "workers/host/train/train_curve_rows.h"
#include "workers/host/train/train_internal.h"
#include "workers/host/train/train_parts.h"

#define PARALLEL_FROM 16384

/* ---- one input ---------------------------------------------------------------------------------- */

struct curve {
    struct sy_curve of;
    int64_t n;
};

static int run_unary(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct curve *c = step->data;
    float *y = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1);
    IN_PARTS((uint64_t)c->n, sy_curve_row(&c->of, x + from, y + from, count))
    return SY_OK;
}

static int run_unary_back(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct curve *c = step->data;
    float *dx = sy_tr_at(t, step, 0);
    const float *x = sy_tr_at(t, step, 1), *y = sy_tr_at(t, step, 2), *dy = sy_tr_at(t, step, 3);
    IN_PARTS((uint64_t)c->n,
             sy_curve_row_back(&c->of, x + from, y + from, dy + from, dx + from, count))
    return SY_OK;
}

static int add_unary(struct sy_trainer *t, unsigned when, int n, sy_tr_fn *fn, int n_values,
                     const int *values)
{
    struct curve *c;
    SY_TRY(sy_tr_alloc(sizeof *c, &c));
    sy_curve_read(&t->graph->nodes[n], &c->of);
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
            to[i] = sy_pair_of(op, x[i * sx], y[i * sy]);
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
        float d = g[i] * sy_pair_slope(op, p->which, x[i * sx], y[i * sy]);
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

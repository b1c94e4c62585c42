/* LSTM, GRU and RNN in all directions, float32. Each row of gates is computed by one thread, in one order. */
#include <stdlib.h>

#include "runtime/base/status.h"
#include "workers/engine/recurrent_node.h"
#include "workers/host/base/clones.h"
#include "workers/host/reference/kernel.h"

#define PARALLEL_FROM 32768 /* multiplications of one step */

enum { MAX_GATES = 4 };

struct cell {
    const struct sy_call *call;
    int gates;
    int64_t steps, batch, input, hidden, directions;
    bool batch_first, reverse;
    int direction;
    struct sy_cell_rules rules;
    const float *w, *r, *wb, *rb, *peep;
    float *h, *c, *from_x, *from_h, *reset; /* scratch: [batch][...] */
};

static int gates_of(enum sy_op op)
{
    return op == SY_OP_LSTM ? 4 : op == SY_OP_GRU ? 3 : 1;
}

/* Reads what both directions have in common. */
static struct cell read_cell(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    struct cell c = {.call = call,
                     .gates = gates_of(call->node->op),
                     .batch_first = sy_node_int(call->node, "layout", 0) != 0,
                     .input = x->dims[2],
                     .directions = call->in[1].dims[0],
                     .hidden = call->in[2].dims[2]};
    c.steps = x->dims[c.batch_first];
    c.batch = x->dims[!c.batch_first];
    c.h = call->scratch;
    c.c = c.h + c.batch * c.hidden;
    c.from_x = c.c + c.batch * c.hidden;
    c.from_h = c.from_x + c.batch * c.gates * c.hidden;
    c.reset = c.from_h + c.batch * c.gates * c.hidden;
    return c;
}

static const float *data_of(const struct sy_call *call, int i, int64_t offset)
{
    const struct sy_array *a = sy_call_in(call, i);
    return a ? (const float *)a->data + offset : NULL;
}

/* State element: [d][b][h], or [b][d][h] with the batch first. */
static int64_t state_at(const struct cell *c, int64_t b)
{
    return (c->batch_first ? b * c->directions + c->direction : c->direction * c->batch + b) *
           c->hidden;
}

static void start_direction(struct cell *c, int direction)
{
    const struct sy_attr *way = sy_node_attr(c->call->node, "direction");
    int64_t rows = c->gates * c->hidden, d = direction;
    c->direction = direction;
    c->reverse = direction == 1 || (way && way->s && strcmp(way->s, "reverse") == 0);
    c->w = data_of(c->call, 1, d * rows * c->input);
    c->r = data_of(c->call, 2, d * rows * c->hidden);
    c->wb = data_of(c->call, 3, d * 2 * rows);
    c->rb = c->wb ? c->wb + rows : NULL;
    c->peep = data_of(c->call, 7, d * 3 * c->hidden);
    (void)sy_recurrent_node_rules(c->call->node, direction, &c->rules); /* checked */
    for (int64_t b = 0; b < c->batch; b++) {
        const float *h = data_of(c->call, 5, state_at(c, b)),
                    *cell = data_of(c->call, 6, state_at(c, b));
        for (int64_t i = 0; i < c->hidden; i++) {
            c->h[b * c->hidden + i] = h ? h[i] : 0;
            c->c[b * c->hidden + i] = cell && c->gates == 4 ? cell[i] : 0;
        }
    }
}

SY_CLONES static float dot(const float *a, const float *b, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static int64_t length_of(const struct cell *c, int64_t b)
{
    const struct sy_array *lengths = sy_call_in(c->call, 4);
    int64_t n = lengths ? sy_get_int(lengths, b) : c->steps;
    return n < 0 ? 0 : n > c->steps ? c->steps : n;
}

/* Which time the s-th step of sequence b is; -1: it has ended. */
static int64_t time_of(const struct cell *c, int64_t b, int64_t s)
{
    int64_t n = length_of(c, b);
    return s >= n ? -1 : c->reverse ? n - 1 - s : s;
}

static const float *input_at(const struct cell *c, int64_t b, int64_t t)
{
    int64_t row = c->batch_first ? b * c->steps + t : t * c->batch + b;
    return (const float *)c->call->in[0].data + row * c->input;
}

/* Gates of all sequences before their curves: W x + b and R h + b. */
static void linear_parts(const struct cell *c, int64_t s)
{
    int64_t rows = c->gates * c->hidden;
    bool parallel = rows * c->batch * (c->input + c->hidden) > PARALLEL_FROM;
#pragma omp parallel for schedule(static) if (parallel)
    for (int64_t row = 0; row < rows; row++)
        for (int64_t b = 0; b < c->batch; b++) {
            int64_t t = time_of(c, b, s);
            if (t < 0)
                continue;
            c->from_x[b * rows + row] =
                dot(c->w + row * c->input, input_at(c, b, t), c->input) + (c->wb ? c->wb[row] : 0);
            c->from_h[b * rows + row] =
                dot(c->r + row * c->hidden, c->h + b * c->hidden, c->hidden) +
                (c->rb ? c->rb[row] : 0);
        }
}

static float bent(const struct cell *c, int which, float x)
{
    return sy_cell_bent(&c->rules, which, x);
}

/* Gates in the order input, output, forget, cell. */
static void lstm_step(const struct cell *c, int64_t b)
{
    int64_t n = c->hidden;
    const float *x = c->from_x + b * 4 * n, *r = c->from_h + b * 4 * n, *p = c->peep;
    float *h = c->h + b * n, *cell = c->c + b * n;
    for (int64_t i = 0; i < n; i++) {
        float in = bent(c, 0, x[i] + r[i] + (p ? p[i] * cell[i] : 0));
        float forget = bent(c, 0, x[2 * n + i] + r[2 * n + i] + (p ? p[2 * n + i] * cell[i] : 0));
        float fresh = bent(c, 1, x[3 * n + i] + r[3 * n + i]);
        cell[i] = (c->rules.couples ? 1 - in : forget) * cell[i] + in * fresh;
        float out = bent(c, 0, x[n + i] + r[n + i] + (p ? p[n + i] * cell[i] : 0));
        h[i] = out * sy_cell_curve_at(&c->rules.curves[2], cell[i]);
    }
}

/* Gates in the order update, reset, hidden. */
static void gru_step(const struct cell *c, int64_t b)
{
    int64_t n = c->hidden;
    const float *x = c->from_x + b * 3 * n, *bias = c->rb;
    float *r = c->from_h + b * 3 * n, *h = c->h + b * n, *reset = c->reset + b * n;
    bool late = sy_node_int(c->call->node, "linear_before_reset", 0) != 0;
    for (int64_t i = 0; i < n; i++) {
        float gate = bent(c, 0, x[n + i] + r[n + i]);
        reset[i] = late ? gate : gate * h[i];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t row = 2 * n + i;
        r[row] = late ? reset[i] * r[row] : dot(c->r + row * n, reset, n) + (bias ? bias[row] : 0);
    }
    for (int64_t i = 0; i < n; i++) {
        float update = bent(c, 0, x[i] + r[i]);
        h[i] = (1 - update) * bent(c, 1, x[2 * n + i] + r[2 * n + i]) + update * h[i];
    }
}

static void rnn_step(const struct cell *c, int64_t b)
{
    for (int64_t i = 0; i < c->hidden; i++)
        c->h[b * c->hidden + i] =
            bent(c, 0, c->from_x[b * c->hidden + i] + c->from_h[b * c->hidden + i]);
}

/* y is [t][d][b][h], or [b][t][d][h]; zero where a sequence has ended. */
static void put_step(const struct cell *c, int64_t b, int64_t t, const float *h)
{
    const struct sy_array *y = sy_call_out(c->call, 0);
    if (!y)
        return;
    int64_t row = c->batch_first ? (b * c->steps + t) * c->directions + c->direction
                                 : (t * c->directions + c->direction) * c->batch + b;
    memcpy((float *)y->data + row * c->hidden, h, (size_t)c->hidden * sizeof *h);
}

static void run_direction(struct cell *c)
{
    for (int64_t s = 0; s < c->steps; s++) {
        linear_parts(c, s);
        for (int64_t b = 0; b < c->batch; b++) {
            int64_t t = time_of(c, b, s);
            if (t < 0)
                continue;
            if (c->gates == 4)
                lstm_step(c, b);
            else if (c->gates == 3)
                gru_step(c, b);
            else
                rnn_step(c, b);
            put_step(c, b, t, c->h + b * c->hidden);
        }
    }
    for (int o = 1; o < 3; o++)
        for (int64_t b = 0; sy_call_out(c->call, o) && b < c->batch; b++)
            memcpy((float *)c->call->out[o].data + state_at(c, b),
                   (o == 1 ? c->h : c->c) + b * c->hidden, (size_t)c->hidden * sizeof(float));
}

static int run_recurrent(const struct sy_call *call)
{
    struct cell c = read_cell(call);
    if (sy_call_out(call, 0))
        memset(call->out[0].data, 0, (size_t)call->out[0].n * sizeof(float));
    if (c.batch == 0 ||
        c.hidden == 0) /* nothing is stored of steps, of which there may be any number */
        return SY_OK;
    for (int d = 0; d < c.directions; d++) {
        start_direction(&c, d);
        run_direction(&c);
    }
    return SY_OK;
}

static int64_t scratch_recurrent(const struct sy_call *call)
{
    struct cell c = read_cell(call);
    return (c.batch * c.hidden * (3 + 2 * c.gates) + 1) * (int64_t)sizeof(float);
}

/* Elements that each input must have; -1: any. */
static bool sizes_fit(const struct sy_call *call, const struct cell *c)
{
    int64_t rows = c->directions * c->gates * c->hidden,
            state = c->directions * c->batch * c->hidden;
    const int64_t sizes[] = {-1,
                             rows * c->input,
                             rows * c->hidden,
                             2 * rows,
                             c->batch,
                             state,
                             state,
                             3 * c->directions * c->hidden};
    for (int i = 1; i < call->n_in; i++)
        if (sy_call_in(call, i) && (i > 7 || call->in[i].n != sizes[i]))
            return false;
    for (int o = 1; o < call->n_out; o++)
        if (sy_call_out(call, o) && (o > (c->gates == 4 ? 2 : 1) || call->out[o].n != state))
            return false;
    return !sy_call_out(call, 0) || call->out[0].n == c->steps * state;
}

static int check_recurrent(const struct sy_call *call)
{
    const struct sy_attr *way = sy_node_attr(call->node, "direction");
    bool both = way && way->s && strcmp(way->s, "bidirectional") == 0;
    for (int i = 0; i < 3; i++)
        if (call->n_in < 3 || !sy_call_in(call, i) || call->in[i].rank != 3)
            return sy_kernel_refuse(call, "inputs that do not fit");
    struct cell c = read_cell(call);
    /* Weights that are there bound the sizes whose products are then taken. */
    const int64_t *w = call->in[1].dims, *r = call->in[2].dims;
    int64_t all;
    if (c.hidden < 1 || c.input < 1 || r[2] != c.hidden || r[1] / c.gates != c.hidden ||
        w[1] != r[1] || w[2] != c.input || __builtin_mul_overflow(c.batch, 2 * c.hidden, &all) ||
        __builtin_mul_overflow(c.steps, all, &all))
        return sy_kernel_refuse(call, "weights that do not fit");
    if (c.directions != (both ? 2 : 1) || !sizes_fit(call, &c))
        return sy_kernel_refuse(call, "weights, states or results that do not fit");
    for (int i = 0; i < call->n_in; i++)
        if (sy_call_in(call, i) && call->in[i].dtype != (i == 4 ? SY_DTYPE_I32 : SY_DTYPE_F32))
            return sy_kernel_refuse(call, "inputs that are not float32");
    for (int d = 0; d < c.directions; d++) {
        const char *why = sy_recurrent_node_rules(call->node, d, &c.rules);
        if (why)
            return sy_kernel_refuse(call, why);
    }
    return SY_OK;
}

#define RECURRENT(op)                                                                  \
    {                                                                                  \
        op, run_recurrent, {SY_BIT(F32) | SY_NO_OUTPUT, SY_ANY_TYPE}, check_recurrent, \
            scratch_recurrent                                                          \
    }
const struct sy_kernel sy_kernels_recurrent[] = {
    RECURRENT(SY_OP_LSTM), RECURRENT(SY_OP_GRU), RECURRENT(SY_OP_RNN), {0}};

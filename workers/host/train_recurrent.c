/* LSTM, GRU and RNN in all directions, with their gradients. One step a direction.
 *
 * Everything is kept in the order of steps, not of time: step s of sequence b reads time s, or from the sequence's end in the
 * reverse direction; behind a sequence's end the state is carried. So both directions are the same loops:
 *
 *   inputs [S, B, I]  --W-->  gates [S, B, G H]  --curves-->  states h, c [S + 1, B, H], the first is the initial one
 *   backward: d gates [S, B, G H] step by step, then each weight's gradient in one product */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/clones.h"
#include "workers/host/train_curves.h"
#include "workers/host/train_internal.h"

struct cell {
    enum sy_op op;
    int64_t steps, batch, input, hidden, gates, directions;
    int direction;
    bool is_reverse, resets_late; /* GRU: linear_before_reset */
    bool clears;                  /* the first direction makes the input's gradient, others add */
};

/* Positions of values in the steps: forward. */
enum { F_Y, F_YH, F_YC, F_SAVED, F_X, F_W, F_R, F_B, F_LENGTHS, F_STATE, F_COUNT };

/* Of one direction, in floats: gates, h, c (LSTM) or what reset made (GRU), inputs, and the gates' gradients twice. */
struct room {
    float *gates, *h, *c, *x, *dgates, *dgates_h, *dh, *dc, *swap;
};

static int64_t room_floats(const struct cell *c)
{
    int64_t rows = c->steps * c->batch, state = (c->steps + 1) * c->batch * c->hidden;
    return 3 * rows * c->gates * c->hidden + 2 * state + rows * c->input +
           c->batch * c->hidden * (2 + c->gates);
}

static struct room room_of(const struct cell *c, float *memory)
{
    struct room r;
    int64_t rows = c->steps * c->batch, state = (c->steps + 1) * c->batch * c->hidden;
    r.gates = memory;
    r.dgates = r.gates + rows * c->gates * c->hidden;
    r.dgates_h = r.dgates + rows * c->gates * c->hidden;
    r.h = r.dgates_h + rows * c->gates * c->hidden;
    r.c = r.h + state;
    r.x = r.c + state;
    r.dh = r.x + rows * c->input;
    r.dc = r.dh + c->batch * c->hidden;
    r.swap = r.dc + c->batch * c->hidden;
    return r;
}

/* ---- order ------------------------------------------------------------------------------------------ */

static int64_t length_of(const struct cell *c, const int32_t *lengths, int64_t b)
{
    int64_t n = lengths ? lengths[b] : c->steps;
    return n < 0 ? 0 : n > c->steps ? c->steps : n;
}

/* The row of [time, batch] that step s of sequence b is; -1: behind its end. */
static int64_t row_of(const struct cell *c, const int32_t *lengths, int64_t s, int64_t b)
{
    int64_t n = length_of(c, lengths, b);
    return s >= n ? -1 : (c->is_reverse ? n - 1 - s : s) * c->batch + b;
}

static void put_in_order(const struct cell *c, const int32_t *lengths, const float *x, float *to)
{
    for (int64_t s = 0; s < c->steps; s++)
        for (int64_t b = 0; b < c->batch; b++, to += c->input) {
            int64_t row = row_of(c, lengths, s, b);
            if (row < 0)
                memset(to, 0, (size_t)c->input * sizeof *to);
            else
                memcpy(to, x + row * c->input, (size_t)c->input * sizeof *to);
        }
}

/* c = alpha * a b (+ c): row-major, m x n. */
static int product(char ta, char tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                   const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    return sy_tr_check(dnnl_sgemm(ta, tb, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc), "sgemm",
                       "recurrence");
}

/* ---- forward ------------------------------------------------------------------------------------------ */

SY_CLONES static void lstm_forward(float *g, const float *c, float *c_new, float *h, int64_t n)
{
    float *in = g, *out = g + n, *forget = g + 2 * n, *fresh = g + 3 * n;
    for (int64_t i = 0; i < n; i++) {
        in[i] = sy_curve_sigmoid(in[i]);
        out[i] = sy_curve_sigmoid(out[i]);
        forget[i] = sy_curve_sigmoid(forget[i]);
        fresh[i] = sy_curve_tanh(fresh[i]);
        c_new[i] = forget[i] * c[i] + in[i] * fresh[i];
        h[i] = out[i] * sy_curve_tanh(c_new[i]);
    }
}

/* late[i] is what the hidden state gives the third gate, before the reset: it is kept for backward. */
SY_CLONES static void gru_late(float *g, const float *late, const float *h, float *h_new, int64_t n)
{
    float *update = g, *reset = g + n, *fresh = g + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        update[i] = sy_curve_sigmoid(update[i]);
        reset[i] = sy_curve_sigmoid(reset[i]);
        fresh[i] = sy_curve_tanh(fresh[i] + reset[i] * late[i]);
        h_new[i] = (1.0f - update[i]) * fresh[i] + update[i] * h[i];
    }
}

SY_CLONES static void gru_gates(float *g, const float *h, float *reset_h, int64_t n)
{
    float *update = g, *reset = g + n;
    for (int64_t i = 0; i < n; i++) {
        update[i] = sy_curve_sigmoid(update[i]);
        reset[i] = sy_curve_sigmoid(reset[i]);
        reset_h[i] = reset[i] * h[i];
    }
}

SY_CLONES static void gru_end(float *g, const float *h, float *h_new, int64_t n)
{
    float *update = g, *fresh = g + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        fresh[i] = sy_curve_tanh(fresh[i]);
        h_new[i] = (1.0f - update[i]) * fresh[i] + update[i] * h[i];
    }
}

SY_CLONES static void rnn_forward(float *g, float *h, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        h[i] = g[i] = sy_curve_tanh(g[i]);
}

/* Gates of step s of all sequences from the state before it. */
static int gru_step(const struct cell *c, const struct room *r, int64_t s, const float *weights,
                    const float *bias_h)
{
    int64_t n = c->hidden, row = c->batch * n;
    float *g = r->gates + s * 3 * row, *h = r->h + s * row, *extra = r->c + s * row;
    const float *third = weights + 2 * n * n;
    SY_TRY(product('N', 'T', c->batch, 2 * n, n, h, n, weights, n, 1.0f, g, 3 * n));
    if (c->resets_late) {
        SY_TRY(product('N', 'T', c->batch, n, n, h, n, third, n, 0.0f, extra, n));
        for (int64_t b = 0; b < c->batch; b++) {
            for (int64_t i = 0; bias_h && i < n; i++)
                extra[b * n + i] += bias_h[i];
            gru_late(g + b * 3 * n, extra + b * n, h + b * n, h + row + b * n, n);
        }
        return SY_OK;
    }
    for (int64_t b = 0; b < c->batch; b++)
        gru_gates(g + b * 3 * n, h + b * n, extra + b * n, n);
    SY_TRY(product('N', 'T', c->batch, n, n, extra, n, third, n, 1.0f, g + 2 * n, 3 * n));
    for (int64_t b = 0; b < c->batch; b++)
        gru_end(g + b * 3 * n, h + b * n, h + row + b * n, n);
    return SY_OK;
}

static int forward_step(const struct cell *c, const struct room *r, int64_t s, const float *weights,
                        const float *bias_h)
{
    int64_t n = c->hidden, row = c->batch * n, width = c->gates * n;
    float *g = r->gates + s * c->gates * row, *h = r->h + s * row, *cell = r->c + s * row;
    if (c->op == SY_OP_GRU)
        return gru_step(c, r, s, weights, bias_h);
    SY_TRY(product('N', 'T', c->batch, width, n, h, n, weights, n, 1.0f, g, width));
    for (int64_t b = 0; b < c->batch; b++) {
        if (c->op == SY_OP_LSTM)
            lstm_forward(g + b * width, cell + b * n, cell + row + b * n, h + row + b * n, n);
        else
            rnn_forward(g + b * width, h + row + b * n, n);
    }
    return SY_OK;
}

/* All inputs' share of the gates, with the biases; GRU's third of the hidden side comes later if it resets late. */
static int input_share(const struct cell *c, const struct room *r, const float *weights,
                       const float *bias)
{
    int64_t width = c->gates * c->hidden, rows = c->steps * c->batch;
    SY_TRY(product('N', 'T', rows, width, c->input, r->x, c->input, weights, c->input, 0.0f,
                   r->gates, width));
    if (!bias)
        return SY_OK;
    int64_t both = c->op == SY_OP_GRU && c->resets_late ? 2 * c->hidden : width;
#pragma omp parallel for schedule(static) if (rows * width > 65536)
    for (int64_t k = 0; k < rows; k++) {
        for (int64_t i = 0; i < both; i++)
            r->gates[k * width + i] += bias[i] + bias[width + i];
        for (int64_t i = both; i < width; i++)
            r->gates[k * width + i] += bias[i];
    }
    return SY_OK;
}

/* Sequences that have ended keep their state; results go to their time, zero behind the end. */
static void carry(const struct cell *c, const struct room *r, const int32_t *lengths, int64_t s,
                  float *y)
{
    int64_t n = c->hidden, row = c->batch * n;
    for (int64_t b = 0; b < c->batch; b++) {
        int64_t at = row_of(c, lengths, s, b);
        float *h = r->h + s * row + b * n, *cell = r->c + s * row + b * n;
        if (at < 0) {
            memcpy(h + row, h, (size_t)n * sizeof *h);
            if (c->op == SY_OP_LSTM)
                memcpy(cell + row, cell, (size_t)n * sizeof *h);
        }
        int64_t time = at < 0 ? s : at / c->batch;
        float *to = y ? y + ((time * c->directions + c->direction) * c->batch + b) * n : NULL;
        if (to && at < 0)
            memset(to, 0, (size_t)n * sizeof *to);
        else if (to)
            memcpy(to, h + row, (size_t)n * sizeof *to);
    }
}

static void start_state(float *to, const float *from, const struct cell *c)
{
    size_t bytes = (size_t)(c->batch * c->hidden) * sizeof *to;
    if (from)
        memcpy(to, from + c->direction * c->batch * c->hidden, bytes);
    else
        memset(to, 0, bytes);
}

/* The states are two values in one: initial h and c, packed by the builder as one list. */
static int run_forward(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct cell *c = step->data;
    int64_t n = c->hidden, d = c->direction, width = c->gates * n, state = c->batch * n;
    struct room r = room_of(c, sy_tr_at(t, step, F_SAVED));
    const float *w = (const float *)sy_tr_at(t, step, F_W) + d * width * c->input;
    const float *weights = (const float *)sy_tr_at(t, step, F_R) + d * width * n;
    const float *bias = sy_tr_at(t, step, F_B);
    const int32_t *lengths = sy_tr_at(t, step, F_LENGTHS);
    const float *states = sy_tr_at(t, step, F_STATE);
    float *yh = sy_tr_at(t, step, F_YH), *yc = sy_tr_at(t, step, F_YC);
    bias = bias ? bias + d * 2 * width : NULL;
    put_in_order(c, lengths, sy_tr_at(t, step, F_X), r.x);
    start_state(r.h, states, c);
    if (c->op == SY_OP_LSTM)
        start_state(r.c, states ? states + c->directions * state : NULL, c);
    SY_TRY(input_share(c, &r, w, bias));
    for (int64_t s = 0; s < c->steps; s++) {
        SY_TRY(forward_step(c, &r, s, weights, bias ? bias + width + 2 * n : NULL));
        carry(c, &r, lengths, s, sy_tr_at(t, step, F_Y));
    }
    if (yh)
        memcpy(yh + d * state, r.h + c->steps * state, (size_t)state * sizeof *yh);
    if (yc)
        memcpy(yc + d * state, r.c + c->steps * state, (size_t)state * sizeof *yc);
    return SY_OK;
}

/* ---- backward ----------------------------------------------------------------------------------------- */

enum {
    B_DX,
    B_DW,
    B_DR,
    B_DB,
    B_DSTATE,
    B_SAVED,
    B_DY,
    B_DYH,
    B_DYC,
    B_W,
    B_R,
    B_LENGTHS,
    B_COUNT
};

SY_CLONES static void lstm_backward(const float *g, const float *c, const float *c_new,
                                    const float *dh, float *dc, float *dg, int64_t n)
{
    const float *in = g, *out = g + n, *forget = g + 2 * n, *fresh = g + 3 * n;
    for (int64_t i = 0; i < n; i++) {
        float bent = sy_curve_tanh(c_new[i]), d = dc[i] + dh[i] * out[i] * (1.0f - bent * bent);
        dg[i] = d * fresh[i] * in[i] * (1.0f - in[i]);
        dg[n + i] = dh[i] * bent * out[i] * (1.0f - out[i]);
        dg[2 * n + i] = d * c[i] * forget[i] * (1.0f - forget[i]);
        dg[3 * n + i] = d * in[i] * (1.0f - fresh[i] * fresh[i]);
        dc[i] = d * forget[i];
    }
}

/* dh becomes what passes straight to the state before. */
SY_CLONES static void gru_backward(const float *g, const float *h, const float *extra, float *dh,
                                   float *dg, float *dg_h, int64_t n, bool resets_late)
{
    const float *update = g, *reset = g + n, *fresh = g + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        float third = dh[i] * (1.0f - update[i]) * (1.0f - fresh[i] * fresh[i]);
        dg[i] = dg_h[i] = dh[i] * (h[i] - fresh[i]) * update[i] * (1.0f - update[i]);
        dg[2 * n + i] = third;
        dg[n + i] = dg_h[n + i] =
            resets_late ? third * extra[i] * reset[i] * (1.0f - reset[i]) : 0.0f;
        dg_h[2 * n + i] = resets_late ? third * reset[i] : third;
        dh[i] *= update[i];
    }
}

/* The reset in front of the third product: its gradient d(reset * h) is there. */
SY_CLONES static void gru_early(const float *g, const float *h, const float *d, float *dh,
                                float *dg, float *dg_h, int64_t n)
{
    const float *reset = g + n;
    for (int64_t i = 0; i < n; i++) {
        dg[n + i] = dg_h[n + i] = d[i] * h[i] * reset[i] * (1.0f - reset[i]);
        dh[i] += d[i] * reset[i];
    }
}

static int gru_back_step(const struct cell *c, const struct room *r, int64_t s,
                         const float *weights)
{
    int64_t n = c->hidden, row = c->batch * n, width = 3 * n;
    const float *g = r->gates + s * 3 * row, *h = r->h + s * row, *extra = r->c + s * row;
    float *dg = r->dgates + s * 3 * row, *dg_h = r->dgates_h + s * 3 * row;
    for (int64_t b = 0; b < c->batch; b++)
        gru_backward(g + b * width, h + b * n, extra + b * n, r->dh + b * n, dg + b * width,
                     dg_h + b * width, n, c->resets_late);
    if (c->resets_late)
        return product('N', 'N', c->batch, n, width, dg_h, width, weights, n, 1.0f, r->dh, n);
    SY_TRY(product('N', 'N', c->batch, n, n, dg + 2 * n, width, weights + 2 * n * n, n, 0.0f,
                   r->swap, n));
    for (int64_t b = 0; b < c->batch; b++)
        gru_early(g + b * width, h + b * n, r->swap + b * n, r->dh + b * n, dg + b * width,
                  dg_h + b * width, n);
    return product('N', 'N', c->batch, n, 2 * n, dg_h, width, weights, n, 1.0f, r->dh, n);
}

static int back_step(const struct cell *c, const struct room *r, int64_t s, const float *weights)
{
    int64_t n = c->hidden, row = c->batch * n, width = c->gates * n;
    const float *g = r->gates + s * c->gates * row, *cell = r->c + s * row;
    float *dg = r->dgates + s * c->gates * row;
    if (c->op == SY_OP_GRU)
        return gru_back_step(c, r, s, weights);
    for (int64_t b = 0; b < c->batch; b++)
        if (c->op == SY_OP_LSTM)
            lstm_backward(g + b * width, cell + b * n, cell + row + b * n, r->dh + b * n,
                          r->dc + b * n, dg + b * width, n);
        else
            for (int64_t i = 0; i < n; i++)
                dg[b * n + i] = r->dh[b * n + i] * (1.0f - g[b * n + i] * g[b * n + i]);
    return product('N', 'N', c->batch, n, width, dg, width, weights, n, 0.0f, r->dh, n);
}

/* Before step s: the result's gradient joins; sequences that have ended are put aside, for their state passes through. */
static void join_step(const struct cell *c, const struct room *r, const int32_t *lengths, int64_t s,
                      const float *dy)
{
    int64_t n = c->hidden;
    for (int64_t b = 0; b < c->batch; b++) {
        int64_t at = row_of(c, lengths, s, b);
        float *kept = r->swap + (c->batch + b) * n; /* the first batch rows are GRU's */
        if (at < 0)
            memcpy(kept, r->dh + b * n, (size_t)n * sizeof *kept);
        const float *from =
            dy && at >= 0 ? dy + ((at / c->batch * c->directions + c->direction) * c->batch + b) * n
                          : NULL;
        for (int64_t i = 0; from && i < n; i++)
            r->dh[b * n + i] += from[i];
    }
}

static void pass_ended(const struct cell *c, const struct room *r, const int32_t *lengths,
                       int64_t s, const float *dc_before)
{
    int64_t n = c->hidden, width = c->gates * n;
    for (int64_t b = 0; b < c->batch; b++) {
        if (row_of(c, lengths, s, b) >= 0)
            continue;
        int64_t at = (s * c->batch + b) * width;
        memcpy(r->dh + b * n, r->swap + (c->batch + b) * n, (size_t)n * sizeof(float));
        memcpy(r->dc + b * n, dc_before + b * n, (size_t)n * sizeof(float));
        memset(r->dgates + at, 0, (size_t)width * sizeof(float));
        memset(r->dgates_h + at, 0, (size_t)width * sizeof(float));
    }
}

SY_CLONES static void column_sums(const float *x, int64_t rows, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = 0.0f;
    for (int64_t k = 0; k < rows; k++)
        for (int64_t i = 0; i < n; i++)
            to[i] += x[k * n + i];
}

static int weight_gradients(const struct cell *c, const struct room *r, float *dw, float *dr,
                            float *db)
{
    int64_t n = c->hidden, rows = c->steps * c->batch, width = c->gates * n;
    const float *hidden = c->op == SY_OP_GRU ? r->dgates_h : r->dgates;
    bool is_early = c->op == SY_OP_GRU && !c->resets_late;
    if (dw)
        SY_TRY(product('T', 'N', width, c->input, rows, r->dgates, width, r->x, c->input, 0.0f, dw,
                       c->input));
    if (dr)
        SY_TRY(product('T', 'N', is_early ? 2 * n : width, n, rows, hidden, width, r->h, n, 0.0f,
                       dr, n));
    if (dr && is_early)
        SY_TRY(
            product('T', 'N', n, n, rows, hidden + 2 * n, width, r->c, n, 0.0f, dr + 2 * n * n, n));
    if (db) {
        column_sums(r->dgates, rows, width, db);
        column_sums(hidden, rows, width, db + width);
    }
    return SY_OK;
}

static int input_gradient(const struct cell *c, const struct room *r, const int32_t *lengths,
                          const float *w, float *dx)
{
    int64_t rows = c->steps * c->batch, width = c->gates * c->hidden;
    if (!dx)
        return SY_OK;
    if (c->clears)
        memset(dx, 0, (size_t)(rows * c->input) * sizeof *dx);
    SY_TRY(product('N', 'N', rows, c->input, width, r->dgates, width, w, c->input, 0.0f, r->x,
                   c->input)); /* the inputs are not needed any more */
    for (int64_t s = 0; s < c->steps; s++)
        for (int64_t b = 0; b < c->batch; b++) {
            int64_t row = row_of(c, lengths, s, b);
            const float *from = r->x + (s * c->batch + b) * c->input;
            for (int64_t i = 0; row >= 0 && i < c->input; i++)
                dx[row * c->input + i] += from[i];
        }
    return SY_OK;
}

static int run_backward(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct cell *c = step->data;
    int64_t n = c->hidden, d = c->direction, width = c->gates * n, state = c->batch * n;
    struct room r = room_of(c, sy_tr_at(t, step, B_SAVED));
    const float *weights = (const float *)sy_tr_at(t, step, B_R) + d * width * n;
    const float *w = (const float *)sy_tr_at(t, step, B_W) + d * width * c->input;
    const int32_t *lengths = sy_tr_at(t, step, B_LENGTHS);
    float *dw = sy_tr_at(t, step, B_DW), *dr = sy_tr_at(t, step, B_DR),
          *db = sy_tr_at(t, step, B_DB), *ds = sy_tr_at(t, step, B_DSTATE);
    float *dc_before = r.swap + 2 * state;
    start_state(r.dh, sy_tr_at(t, step, B_DYH), c);
    start_state(r.dc, sy_tr_at(t, step, B_DYC), c);
    for (int64_t s = c->steps - 1; s >= 0; s--) {
        join_step(c, &r, lengths, s, sy_tr_at(t, step, B_DY));
        if (lengths)
            memcpy(dc_before, r.dc, (size_t)state * sizeof *dc_before);
        SY_TRY(back_step(c, &r, s, weights));
        if (lengths)
            pass_ended(c, &r, lengths, s, dc_before);
    }
    SY_TRY(weight_gradients(c, &r, dw ? dw + d * width * c->input : NULL,
                            dr ? dr + d * width * n : NULL, db ? db + d * 2 * width : NULL));
    if (ds) {
        memcpy(ds + d * state, r.dh, (size_t)state * sizeof *ds);
        if (c->op == SY_OP_LSTM)
            memcpy(ds + (c->directions + d) * state, r.dc, (size_t)state * sizeof *ds);
    }
    return input_gradient(c, &r, lengths, w, sy_tr_at(t, step, B_DX));
}

/* ---- building ----------------------------------------------------------------------------------------- */

static bool has_default_curves(const struct sy_node *node)
{
    static const char *const lists[] = {"sigmoid,tanh,tanh", "sigmoid,tanh", "tanh"};
    const struct sy_attr *attr = sy_node_attr(node, "activations");
    const char *list = lists[node->op == SY_OP_LSTM ? 0 : node->op == SY_OP_GRU ? 1 : 2];
    if (!attr || !attr->s || !*attr->s)
        return true;
    size_t n = strlen(list);
    return strncasecmp(attr->s, list, n) == 0 &&
           (!attr->s[n] || (attr->s[n] == ',' && strcasecmp(attr->s + n + 1, list) == 0));
}

static int input_of(const struct sy_node *node, int i)
{
    return i < node->n_inputs ? node->inputs[i] : -1;
}

static int output_of(const struct sy_node *node, int i)
{
    return i < node->n_outputs ? node->outputs[i] : -1;
}

static int describe(const struct sy_trainer *t, const struct sy_node *node, struct cell *c)
{
    int64_t x[SY_MAX_RANK], r[SY_MAX_RANK];
    const struct sy_attr *way = sy_node_attr(node, "direction");
    int rank = sy_tr_dims(t, node->inputs[0], x);
    SY_TRY(rank);
    SY_TRY(sy_tr_dims(t, node->inputs[2], r));
    if (rank != 3 || sy_node_int(node, "layout", 0) || sy_node_attr(node, "clip") ||
        sy_node_int(node, "input_forget", 0) || input_of(node, 7) >= 0 || !has_default_curves(node))
        return sy_tr_refuse(node, "layout 1, clip, input_forget, peepholes, or activations other "
                                  "than the usual ones");
    *c = (struct cell){.op = node->op,
                       .steps = x[0],
                       .batch = x[1],
                       .input = x[2],
                       .hidden = r[2],
                       .gates = node->op == SY_OP_LSTM  ? 4
                                : node->op == SY_OP_GRU ? 3
                                                        : 1,
                       .directions = r[0],
                       .is_reverse = way && way->s && !strcmp(way->s, "reverse"),
                       .resets_late = sy_node_int(node, "linear_before_reset", 0) != 0};
    return SY_OK;
}

/* Initial h and c behind each other, so that a step has one value for both. */
static int run_join_states(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const int64_t *n = step->data;
    float *to = sy_tr_at(t, step, 0);
    for (int i = 0; i < 2; i++) {
        const float *from = sy_tr_at(t, step, 1 + i);
        if (from)
            memcpy(to + i * *n, from, (size_t)*n * sizeof *to);
        else
            memset(to + i * *n, 0, (size_t)*n * sizeof *to);
    }
    return SY_OK;
}

static int add_states(struct sy_trainer *t, const struct sy_node *node, const struct cell *c,
                      int *value)
{
    int h = input_of(node, 5), cell = node->op == SY_OP_LSTM ? input_of(node, 6) : -1;
    int64_t n = c->directions * c->batch * c->hidden, both = 2 * n, *data;
    *value = -1;
    if (h < 0 && cell < 0)
        return SY_OK;
    if (h >= 0)
        SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, h, &h));
    if (cell >= 0)
        SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, cell, &cell));
    dnnl_memory_desc_t md = sy_tr_plain(1, &both);
    SY_TRY(sy_tr_value_new(t, &md, false, value));
    SY_TRY(sy_tr_alloc(sizeof *data, &data));
    *data = n;
    return sy_tr_add_call(t, SY_TR_FORWARD, run_join_states, 1, 3, (const int[]){*value, h, cell},
                          data);
}

static int forward_values(struct sy_trainer *t, const struct sy_node *node, const struct cell *c,
                          int *v)
{
    for (int i = 0; i < F_COUNT; i++)
        v[i] = -1;
    for (int i = 0; i < 3; i++)
        if (output_of(node, i) >= 0)
            SY_TRY(sy_tr_result(t, node->outputs[i], &v[F_Y + i]));
    for (int i = 0; i < 4; i++)
        if (input_of(node, i) >= 0)
            SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[i], &v[F_X + i]));
    if (input_of(node, 4) >= 0)
        SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[4], &v[F_LENGTHS]));
    return add_states(t, node, c, &v[F_STATE]);
}

int sy_tr_recurrent_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_node *record = &t->nodes[n];
    struct cell c, *copy;
    int v[F_COUNT];
    SY_TRY(describe(t, node, &c));
    SY_TRY(forward_values(t, node, &c, v));
    for (int d = 0; d < c.directions; d++) {
        int64_t floats = room_floats(&c) + 3 * c.batch * c.hidden;
        dnnl_memory_desc_t md = sy_tr_plain(1, &floats);
        SY_TRY(sy_tr_value_new(t, &md, false, &v[F_SAVED]));
        *(d ? &record->variance : &record->mean) = v[F_SAVED];
        SY_TRY(sy_tr_alloc(sizeof *copy, &copy));
        c.direction = d;
        *copy = c;
        copy->is_reverse |= d == 1;
        SY_TRY(sy_tr_add_call(t, SY_TR_FORWARD, run_forward, F_SAVED + 1, F_COUNT, v, copy));
    }
    record->source = v[F_LENGTHS];
    record->workspace = v[F_STATE];
    return SY_OK;
}

/* Half of the joined gradient. */
static int run_take_state(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const int64_t *part = step->data; /* elements, which half */
    const float *from = sy_tr_at(t, step, 1);
    memcpy(sy_tr_at(t, step, 0), from + part[0] * part[1], (size_t)part[0] * sizeof *from);
    return SY_OK;
}

static int state_gradients(struct sy_trainer *t, const struct sy_node *node, const struct cell *c,
                           int joined)
{
    for (int i = 0; i < 2 && joined >= 0; i++) {
        int tensor = input_of(node, 5 + i), d;
        int64_t *part;
        if (!sy_tr_needs(t, tensor))
            continue;
        SY_TRY(sy_tr_diff_begin(t, tensor, &d));
        SY_TRY(sy_tr_alloc(2 * sizeof *part, &part));
        part[0] = c->directions * c->batch * c->hidden;
        part[1] = i;
        SY_TRY(
            sy_tr_add_call(t, SY_TR_TRAIN, run_take_state, 1, 2, (const int[]){d, joined}, part));
        SY_TRY(sy_tr_diff_end(t, tensor, d));
    }
    return SY_OK;
}

static int backward_values(struct sy_trainer *t, const struct sy_node *node, const struct cell *c,
                           int *v)
{
    for (int i = 0; i < B_COUNT; i++)
        v[i] = -1;
    for (int i = 0; i < 4; i++)
        if (sy_tr_needs(t, input_of(node, i)))
            SY_TRY(sy_tr_diff_begin(t, node->inputs[i], &v[B_DX + i]));
    if (sy_tr_needs(t, input_of(node, 5)) || sy_tr_needs(t, input_of(node, 6))) {
        int64_t both = 2 * c->directions * c->batch * c->hidden;
        dnnl_memory_desc_t md = sy_tr_plain(1, &both);
        SY_TRY(sy_tr_value_new(t, &md, false, &v[B_DSTATE]));
    }
    for (int i = 0; i < 3; i++)
        if (output_of(node, i) >= 0 && t->tensors[node->outputs[i]].gradient >= 0)
            SY_TRY(sy_tr_diff_of(t, node->outputs[i], &v[B_DY + i]));
    return SY_OK;
}

static int add_backward(struct sy_trainer *t, int n, const struct cell *c, int d, int *v)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct cell *copy;
    v[B_SAVED] = d ? t->nodes[n].variance : t->nodes[n].mean;
    v[B_LENGTHS] = t->nodes[n].source;
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[1], &v[B_W]));
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[2], &v[B_R]));
    SY_TRY(sy_tr_alloc(sizeof *copy, &copy));
    *copy = *c;
    copy->direction = d;
    copy->is_reverse |= d == 1;
    copy->clears = d == 0;
    return sy_tr_add_call(t, SY_TR_TRAIN, run_backward, B_SAVED + 1, B_COUNT, v, copy);
}

int sy_tr_recurrent_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct cell c;
    int v[B_COUNT];
    (void)gradient;
    SY_TRY(describe(t, node, &c));
    SY_TRY(backward_values(t, node, &c, v));
    for (int d = 0; d < c.directions; d++)
        SY_TRY(add_backward(t, n, &c, d, v));
    for (int i = 0; i < 4; i++)
        if (v[B_DX + i] >= 0)
            SY_TRY(sy_tr_diff_end(t, node->inputs[i], v[B_DX + i]));
    return state_gradients(t, node, &c, v[B_DSTATE]);
}

#include <omp.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/products/packed_product.h"
#include "workers/host/train/train_cells.h"
#include "workers/host/train/train_recurrent.h"

/* ---- room ------------------------------------------------------------------------------------------- */

int64_t sy_tr_recurrent_first(const struct cell *c)
{
    return (c->op == SY_OP_GRU ? 2 : c->gates) * c->hidden;
}

/* Floats for both directions of the pass, which are not needed at once. GRU's third gate is a separate matrix. */
static int64_t packed_floats(const struct cell *c)
{
    int64_t n = c->hidden, first = sy_tr_recurrent_first(c);
    int64_t most = SY_MAX(sy_packed_floats(first, n), sy_packed_floats(n, first));
    return most + (c->op == SY_OP_GRU ? sy_packed_floats(n, n) : 0);
}

int64_t sy_tr_recurrent_floats(const struct cell *c)
{
    int64_t rows = c->steps * c->batch, state = (c->steps + 1) * c->batch * c->hidden;
    int64_t sets = c->op == SY_OP_GRU ? 3 : 2;
    return sets * rows * c->gates * c->hidden + 2 * state + rows * c->input +
           c->batch * c->hidden * 5 + packed_floats(c);
}

struct room sy_tr_recurrent_room(const struct cell *c, float *memory)
{
    struct room r;
    int64_t rows = c->steps * c->batch, state = (c->steps + 1) * c->batch * c->hidden;
    int64_t set = rows * c->gates * c->hidden;
    r.packed = memory; /* aligned as the value is */
    r.gates = r.packed + packed_floats(c);
    r.dgates = r.gates + set;
    r.dgates_h = c->op == SY_OP_GRU ? r.dgates + set : r.dgates;
    r.h = r.dgates_h + set;
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

int64_t sy_tr_recurrent_row(const struct cell *c, const int32_t *lengths, int64_t s, int64_t b)
{
    int64_t n = length_of(c, lengths, b);
    return s >= n ? -1 : (c->is_reverse ? n - 1 - s : s) * c->batch + b;
}

int64_t sy_tr_recurrent_split_floats = 1 << 18; /* 20 us on one core */

struct share sy_tr_recurrent_share(const struct cell *c)
{
    int64_t part = omp_get_thread_num(), parts = omp_get_num_threads();
    int64_t width = (c->batch + parts - 1) / parts;
    if (2 * c->batch <= parts &&
        sy_tr_recurrent_first(c) * c->hidden >= sy_tr_recurrent_split_floats)
        return (struct share){.to = c->batch, .own = part ? 0 : c->batch, .splits = true};
    if (c->batch >= 4 * parts)
        width = SY_ALIGN_UP(width, 4); /* as products take them */
    int64_t from = SY_MIN(part * width, c->batch), to = SY_MIN(from + width, c->batch);
    return (struct share){from, to, to, false};
}

void sy_tr_recurrent_step_product(bool splits, bool adds, int64_t rows, int64_t n, int64_t k,
                                  const float *a, int64_t lda, const float *packed, float *c,
                                  int64_t ldc)
{
    if (!splits) {
        sy_packed_product(adds, rows, n, k, a, lda, packed, c, ldc);
        return;
    }
    int64_t parts = omp_get_num_threads();
    int64_t width = SY_ALIGN_UP((n + parts - 1) / parts, SY_PACKED_COLUMNS);
    int64_t from = omp_get_thread_num() * width, to = SY_MIN(from + width, n);
#pragma omp barrier
    if (from < to)
        sy_packed_product(adds, rows, to - from, k, a, lda, packed + sy_packed_floats(from, k),
                          c + from, ldc);
#pragma omp barrier
}

int sy_tr_recurrent_product(char ta, char tb, int64_t m, int64_t n, int64_t k, const float *a,
                            int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                            int64_t ldc)
{
    return sy_tr_check(dnnl_sgemm(ta, tb, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc), "sgemm",
                       "recurrence");
}

void sy_tr_recurrent_start(float *to, const float *from, const struct cell *c)
{
    size_t bytes = (size_t)(c->batch * c->hidden) * sizeof *to;
    if (from)
        memcpy(to, from + c->direction * c->batch * c->hidden, bytes);
    else
        memset(to, 0, bytes);
}

/* ---- what comes from the inputs ----------------------------------------------------------------------- */

/* Rows of [steps, batch] from `first`; the rest of a piece's work is that of the steps. */
struct stretch {
    int64_t begin, end; /* steps */
};

static void put_in_order(const struct cell *c, const int32_t *lengths, struct stretch at,
                         const float *x, float *to)
{
#pragma omp parallel for schedule(static) if ((at.end - at.begin) * c->batch * c->input > 65536)
    for (int64_t s = at.begin; s < at.end; s++)
        for (int64_t b = 0; b < c->batch; b++) {
            int64_t row = sy_tr_recurrent_row(c, lengths, s, b);
            float *out = to + (s * c->batch + b) * c->input;
            if (row < 0)
                memset(out, 0, (size_t)c->input * sizeof *out);
            else
                memcpy(out, x + row * c->input, (size_t)c->input * sizeof *out);
        }
}

/* The gates begin as the biases, to which the products add; GRU's third of the hidden side comes later if it resets late. */
static void put_biases(const struct cell *c, struct stretch at, const float *bias, float *gates)
{
    int64_t width = c->gates * c->hidden, first = at.begin * c->batch, last = at.end * c->batch;
    int64_t both = c->op == SY_OP_GRU && c->resets_late ? 2 * c->hidden : width;
#pragma omp parallel for schedule(static) if ((last - first) * width > 65536)
    for (int64_t k = first; k < last; k++) {
        for (int64_t i = 0; i < both; i++)
            gates[k * width + i] = bias[i] + bias[width + i];
        for (int64_t i = both; i < width; i++)
            gates[k * width + i] = bias[i];
    }
}

static int input_share(const struct cell *c, const struct room *r, struct stretch at,
                       const float *weights, const float *bias)
{
    int64_t width = c->gates * c->hidden, first = at.begin * c->batch;
    if (bias)
        put_biases(c, at, bias, r->gates);
    return sy_tr_recurrent_product('N', 'T', at.end * c->batch - first, width, c->input,
                                   r->x + first * c->input, c->input, weights, c->input,
                                   bias ? 1.0f : 0.0f, r->gates + first * width, width);
}

/* ---- steps -------------------------------------------------------------------------------------------- */

struct pass {
    const struct cell *c;
    const struct room *r;
    const int32_t *lengths;
    const float *bias_h; /* GRU's third gate's, or NULL */
    float *y;
};

/* Gates of step s of sequences [from, to) from the state before it. */
static void gru_step(const struct pass *p, int64_t s, const struct share *q)
{
    const struct cell *c = p->c;
    const struct room *r = p->r;
    int64_t n = c->hidden, at = s * c->batch + q->from, next = at + c->batch;
    int64_t rows = q->to - q->from, own = q->own - q->from;
    float *g = r->gates + at * 3 * n, *h = r->h + at * n, *extra = r->c + at * n;
    const float *third = r->packed + sy_packed_floats(2 * n, n);
    sy_tr_recurrent_step_product(q->splits, true, rows, 2 * n, n, h, n, r->packed, g, 3 * n);
    if (c->resets_late)
        sy_tr_recurrent_step_product(q->splits, false, rows, n, n, h, n, third, extra, n);
    for (int64_t b = 0; b < own; b++) {
        if (!c->resets_late) {
            sy_cell_gru_gates(g + b * 3 * n, h + b * n, extra + b * n, n);
            continue;
        }
        for (int64_t i = 0; p->bias_h && i < n; i++)
            extra[b * n + i] += p->bias_h[i];
        sy_cell_gru_late(g + b * 3 * n, extra + b * n, h + b * n, r->h + (next + b) * n, n);
    }
    if (c->resets_late)
        return;
    sy_tr_recurrent_step_product(q->splits, true, rows, n, n, extra, n, third, g + 2 * n, 3 * n);
    for (int64_t b = 0; b < own; b++)
        sy_cell_gru_end(g + b * 3 * n, h + b * n, r->h + (next + b) * n, n);
}

static void forward_step(const struct pass *p, int64_t s, const struct share *q)
{
    const struct cell *c = p->c;
    const struct room *r = p->r;
    int64_t n = c->hidden, width = c->gates * n, at = s * c->batch + q->from, next = at + c->batch;
    float *g = r->gates + at * width, *h = r->h + at * n;
    if (c->op == SY_OP_GRU) {
        gru_step(p, s, q);
        return;
    }
    sy_tr_recurrent_step_product(q->splits, true, q->to - q->from, width, n, h, n, r->packed, g,
                                 width);
    for (int64_t b = 0; b < q->own - q->from; b++) {
        if (c->op == SY_OP_LSTM)
            sy_cell_lstm(g + b * width, r->c + (at + b) * n, r->c + (next + b) * n,
                         r->h + (next + b) * n, n);
        else
            sy_cell_rnn(g + b * width, r->h + (next + b) * n, n);
    }
}

/* Sequences that have ended keep their state; results go to their time, zero behind the end. */
static void carry(const struct pass *p, int64_t s, int64_t from, int64_t to)
{
    const struct cell *c = p->c;
    int64_t n = c->hidden, row = c->batch * n;
    for (int64_t b = from; b < to; b++) {
        int64_t at = sy_tr_recurrent_row(c, p->lengths, s, b);
        float *h = p->r->h + s * row + b * n, *cell = p->r->c + s * row + b * n;
        if (at < 0) {
            memcpy(h + row, h, (size_t)n * sizeof *h);
            if (c->op == SY_OP_LSTM)
                memcpy(cell + row, cell, (size_t)n * sizeof *h);
        }
        int64_t time = at < 0 ? s : at / c->batch;
        float *out =
            p->y ? p->y + ((time * c->directions + c->direction) * c->batch + b) * n : NULL;
        if (out && at < 0)
            memset(out, 0, (size_t)n * sizeof *out);
        else if (out)
            memcpy(out, h + row, (size_t)n * sizeof *out);
    }
}

static void run_steps(const struct pass *p, struct stretch at)
{
#pragma omp parallel
    {
        struct share q = sy_tr_recurrent_share(p->c);
        for (int64_t s = at.begin; q.from < q.to && s < at.end; s++) {
            forward_step(p, s, &q);
            carry(p, s, q.from, q.own);
        }
    }
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

static void begin(const struct cell *c, const struct room *r, const float *weights,
                  const float *states)
{
    int64_t n = c->hidden, first = sy_tr_recurrent_first(c), all = c->batch * n * c->directions;
    sy_tr_recurrent_start(r->h, states, c);
    if (c->op == SY_OP_LSTM)
        sy_tr_recurrent_start(r->c, states ? states + all : NULL, c);
    sy_packed_make(first, n, weights, 1, n, r->packed);
    if (c->op == SY_OP_GRU)
        sy_packed_make(n, n, weights + first * n, 1, n, r->packed + sy_packed_floats(first, n));
}

/* The states are two values in one: initial h and c, packed by the builder as one list. */
int sy_tr_recurrent_run_forward(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct cell *c = step->data;
    int64_t n = c->hidden, d = c->direction, width = c->gates * n, state = c->batch * n;
    struct room r = sy_tr_recurrent_room(c, sy_tr_at(t, step, F_SAVED));
    const float *w = (const float *)sy_tr_at(t, step, F_W) + d * width * c->input;
    const float *bias = sy_tr_at(t, step, F_B);
    struct stretch at = {.begin = t->piece * c->piece_steps};
    struct pass p = {
        .c = c, .r = &r, .lengths = sy_tr_at(t, step, F_LENGTHS), .y = sy_tr_at(t, step, F_Y)};
    float *yh = sy_tr_at(t, step, F_YH), *yc = sy_tr_at(t, step, F_YC);
    at.end = SY_MIN(at.begin + c->piece_steps, c->steps);
    bias = bias ? bias + d * 2 * width : NULL;
    p.bias_h = bias ? bias + width + 2 * n : NULL;
    if (t->piece == 0)
        begin(c, &r, (const float *)sy_tr_at(t, step, F_R) + d * width * n,
              sy_tr_at(t, step, F_STATE));
    put_in_order(c, p.lengths, at, sy_tr_at(t, step, F_X), r.x);
    SY_TRY(input_share(c, &r, at, w, bias));
    run_steps(&p, at);
    if (at.end < c->steps)
        return SY_OK;
    if (yh)
        memcpy(yh + d * state, r.h + c->steps * state, (size_t)state * sizeof *yh);
    if (yc)
        memcpy(yc + d * state, r.c + c->steps * state, (size_t)state * sizeof *yc);
    return SY_OK;
}

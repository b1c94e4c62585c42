#include <omp.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/products/packed_product.h"
#include "workers/host/train/train_cells.h"
#include "workers/host/train/train_recurrent.h"

struct stretch {
    int64_t begin, end; /* steps */
};

struct pass {
    const struct cell *c;
    const struct room *r;
    const int32_t *lengths;
    const float *dy;
    float *kept_dh, *kept_dc; /* before a step, of sequences that have ended */
};

/* ---- steps -------------------------------------------------------------------------------------------- */

static void gru_back_step(const struct pass *p, int64_t s, const struct share *q)
{
    const struct cell *c = p->c;
    const struct room *r = p->r;
    int64_t n = c->hidden, width = 3 * n, at = s * c->batch + q->from, rows = q->to - q->from;
    int64_t own = q->own - q->from;
    const float *g = r->gates + at * width, *h = r->h + at * n, *extra = r->c + at * n;
    const float *third = r->packed + sy_packed_floats(n, 2 * n);
    float *dg = r->dgates + at * width, *dg_h = r->dgates_h + at * width;
    float *dh = r->dh + q->from * n, *d = r->swap + q->from * n;
    for (int64_t b = 0; b < own; b++)
        sy_cell_gru_back(g + b * width, h + b * n, extra + b * n, dh + b * n, dg + b * width,
                         dg_h + b * width, n, c->resets_late);
    if (c->resets_late)
        sy_tr_recurrent_step_product(q->splits, true, rows, n, n, dg_h + 2 * n, width, third, dh,
                                     n);
    else
        sy_tr_recurrent_step_product(q->splits, false, rows, n, n, dg + 2 * n, width, third, d, n);
    for (int64_t b = 0; !c->resets_late && b < own; b++)
        sy_cell_gru_back_early(g + b * width, h + b * n, d + b * n, dh + b * n, dg + b * width,
                               dg_h + b * width, n);
    sy_tr_recurrent_step_product(q->splits, true, rows, n, 2 * n, dg_h, width, r->packed, dh, n);
}

static void back_step(const struct pass *p, int64_t s, const struct share *q)
{
    const struct cell *c = p->c;
    const struct room *r = p->r;
    int64_t n = c->hidden, width = c->gates * n, at = s * c->batch + q->from, next = at + c->batch;
    const float *g = r->gates + at * width;
    float *dg = r->dgates + at * width, *dh = r->dh + q->from * n, *dc = r->dc + q->from * n;
    if (c->op == SY_OP_GRU) {
        gru_back_step(p, s, q);
        return;
    }
    for (int64_t b = 0; b < q->own - q->from; b++)
        if (c->op == SY_OP_LSTM)
            sy_cell_lstm_back(g + b * width, r->c + (at + b) * n, r->c + (next + b) * n, dh + b * n,
                              dc + b * n, dg + b * width, n);
        else
            sy_cell_rnn_back(g + b * n, dh + b * n, dg + b * n, n);
    sy_tr_recurrent_step_product(q->splits, false, q->to - q->from, n, width, dg, width, r->packed,
                                 dh, n);
}

/* Before step s: the result's gradient joins; what a sequence that has ended passes through is put aside. */
static void join_step(const struct pass *p, int64_t s, int64_t from, int64_t to)
{
    const struct cell *c = p->c;
    int64_t n = c->hidden;
    for (int64_t b = from; b < to; b++) {
        int64_t at = sy_tr_recurrent_row(c, p->lengths, s, b);
        float *dh = p->r->dh + b * n;
        if (at < 0) {
            memcpy(p->kept_dh + b * n, dh, (size_t)n * sizeof *dh);
            memcpy(p->kept_dc + b * n, p->r->dc + b * n, (size_t)n * sizeof *dh);
        } else if (p->dy) {
            const float *dy =
                p->dy + ((at / c->batch * c->directions + c->direction) * c->batch + b) * n;
            for (int64_t i = 0; i < n; i++)
                dh[i] += dy[i];
        }
    }
}

static void pass_ended(const struct pass *p, int64_t s, int64_t from, int64_t to)
{
    const struct cell *c = p->c;
    const struct room *r = p->r;
    int64_t n = c->hidden, width = c->gates * n;
    for (int64_t b = from; p->lengths && b < to; b++) {
        if (sy_tr_recurrent_row(c, p->lengths, s, b) >= 0)
            continue;
        int64_t at = (s * c->batch + b) * width;
        memcpy(r->dh + b * n, p->kept_dh + b * n, (size_t)n * sizeof(float));
        memcpy(r->dc + b * n, p->kept_dc + b * n, (size_t)n * sizeof(float));
        memset(r->dgates + at, 0, (size_t)width * sizeof(float));
        memset(r->dgates_h + at, 0, (size_t)width * sizeof(float));
    }
}

static void run_steps(const struct pass *p, struct stretch at)
{
#pragma omp parallel
    {
        struct share q = sy_tr_recurrent_share(p->c);
        for (int64_t s = at.end - 1; q.from < q.to && s >= at.begin; s--) {
            join_step(p, s, q.from, q.own);
            back_step(p, s, &q);
            pass_ended(p, s, q.from, q.own);
        }
    }
}

/* ---- what the steps of a piece give to the weights and the inputs ----------------------------------------- */

SY_CLONES static void sum_columns(const float *x, int64_t rows, int64_t n, int64_t stride,
                                  float *restrict to)
{
    for (int64_t k = 0; k < rows; k++)
        for (int64_t i = 0; i < n; i++)
            to[i] += x[k * stride + i];
}

static void column_sums(const float *x, int64_t rows, int64_t n, float *to)
{
#pragma omp parallel if (rows * n > 65536)
    {
        int64_t parts = omp_get_num_threads(), width = SY_ALIGN_UP((n + parts - 1) / parts, 16);
        int64_t from = SY_MIN(omp_get_thread_num() * width, n);
        sum_columns(x + from, rows, SY_MIN(width, n - from), n, to + from);
    }
}

struct weights {
    float *dw, *dr, *db; /* of this direction, or NULL */
};

static int weight_gradients(const struct cell *c, const struct room *r, struct stretch at,
                            bool is_first, struct weights to)
{
    int64_t n = c->hidden, width = c->gates * n, begin = at.begin * c->batch;
    int64_t rows = at.end * c->batch - begin, first = sy_tr_recurrent_first(c);
    const float *dg = r->dgates + begin * width, *dg_h = r->dgates_h + begin * width;
    const float *h = r->h + begin * n, *third = c->resets_late ? h : r->c + begin * n;
    float beta = is_first ? 0.0f : 1.0f;
    if (to.dw)
        SY_TRY(sy_tr_recurrent_product('T', 'N', width, c->input, rows, dg, width,
                                       r->x + begin * c->input, c->input, beta, to.dw, c->input));
    if (to.dr)
        SY_TRY(
            sy_tr_recurrent_product('T', 'N', first, n, rows, dg_h, width, h, n, beta, to.dr, n));
    if (to.dr && first < width)
        SY_TRY(sy_tr_recurrent_product('T', 'N', n, n, rows, dg_h + first, width, third, n, beta,
                                       to.dr + first * n, n));
    if (to.db && is_first)
        memset(to.db, 0, (size_t)(2 * width) * sizeof *to.db);
    if (to.db) {
        column_sums(dg, rows, width, to.db);
        if (dg_h == dg)
            memcpy(to.db + width, to.db, (size_t)width * sizeof *to.db);
        else
            column_sums(dg_h, rows, width, to.db + width);
    }
    return SY_OK;
}

/* The inputs of these steps are not needed any more: their gradient is made in their place, then goes to its time. */
static int input_gradient(const struct pass *p, struct stretch at, bool is_first, const float *w,
                          float *dx)
{
    const struct cell *c = p->c;
    int64_t width = c->gates * c->hidden, begin = at.begin * c->batch, end = at.end * c->batch;
    float *x = p->r->x;
    if (!dx)
        return SY_OK;
    if (c->clears && is_first)
        memset(dx, 0, (size_t)(c->steps * c->batch * c->input) * sizeof *dx);
    SY_TRY(sy_tr_recurrent_product('N', 'N', end - begin, c->input, width,
                                   p->r->dgates + begin * width, width, w, c->input, 0.0f,
                                   x + begin * c->input, c->input));
#pragma omp parallel for schedule(static) if ((end - begin) * c->input > 65536)
    for (int64_t k = begin; k < end; k++) {
        int64_t row = sy_tr_recurrent_row(c, p->lengths, k / c->batch, k % c->batch);
        for (int64_t i = 0; row >= 0 && i < c->input; i++)
            dx[row * c->input + i] += x[k * c->input + i];
    }
    return SY_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

static void begin(struct sy_trainer *t, const struct sy_tr_step *step, const struct room *r)
{
    const struct cell *c = step->data;
    int64_t n = c->hidden, first = sy_tr_recurrent_first(c);
    const float *weights = (const float *)sy_tr_at(t, step, B_R) + c->direction * c->gates * n * n;
    sy_tr_recurrent_start(r->dh, sy_tr_at(t, step, B_DYH), c);
    sy_tr_recurrent_start(r->dc, sy_tr_at(t, step, B_DYC), c);
    sy_packed_make(n, first, weights, n, 1, r->packed);
    if (c->op == SY_OP_GRU)
        sy_packed_make(n, n, weights + first * n, n, 1, r->packed + sy_packed_floats(n, first));
}

static void end(struct sy_trainer *t, const struct sy_tr_step *step, const struct room *r)
{
    const struct cell *c = step->data;
    int64_t state = c->batch * c->hidden;
    float *ds = sy_tr_at(t, step, B_DSTATE);
    if (!ds)
        return;
    memcpy(ds + c->direction * state, r->dh, (size_t)state * sizeof *ds);
    if (c->op == SY_OP_LSTM)
        memcpy(ds + (c->directions + c->direction) * state, r->dc, (size_t)state * sizeof *ds);
}

int sy_tr_recurrent_run_backward(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const struct cell *c = step->data;
    int64_t n = c->hidden, d = c->direction, width = c->gates * n, state = c->batch * n;
    struct room r = sy_tr_recurrent_room(c, sy_tr_at(t, step, B_SAVED));
    const float *w = (const float *)sy_tr_at(t, step, B_W) + d * width * c->input;
    struct weights to = {.dw = sy_tr_at(t, step, B_DW),
                         .dr = sy_tr_at(t, step, B_DR),
                         .db = sy_tr_at(t, step, B_DB)};
    struct pass p = {.c = c,
                     .r = &r,
                     .lengths = sy_tr_at(t, step, B_LENGTHS),
                     .dy = sy_tr_at(t, step, B_DY),
                     .kept_dh = r.swap + state,
                     .kept_dc = r.swap + 2 * state};
    struct stretch at = {.end = c->steps - t->piece * c->piece_steps};
    bool is_first = t->piece == 0;
    at.begin = SY_MAX(at.end - c->piece_steps, 0);
    to.dw = to.dw ? to.dw + d * width * c->input : NULL;
    to.dr = to.dr ? to.dr + d * width * n : NULL;
    to.db = to.db ? to.db + d * 2 * width : NULL;
    if (is_first)
        begin(t, step, &r);
    run_steps(&p, at);
    SY_TRY(weight_gradients(c, &r, at, is_first, to));
    SY_TRY(input_gradient(&p, at, is_first, w, sy_tr_at(t, step, B_DX)));
    if (at.begin == 0)
        end(t, step, &r);
    return SY_OK;
}

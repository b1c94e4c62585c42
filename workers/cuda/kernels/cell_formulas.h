/* One unit of a recurrent cell at one time: what the CUDA kernels run, and their tests. Everything lies in the order of time; behind the end
 * of a sequence the state is carried, whichever way time runs. */
#ifndef SY_WORKERS_CUDA_KERNELS_CELL_FORMULAS_H
#define SY_WORKERS_CUDA_KERNELS_CELL_FORMULAS_H

#include "workers/cuda/math/device_math_train.h"
#include "workers/engine/train_formulas.h"

struct sy_cell_unit {
    int64_t at, gate,
        n; /* in [batch, hidden]; of the first gate in [batch, gates, hidden]; to the next gate */
    bool ended;
};

SY_FORMULA struct sy_cell_unit sy_cell_unit_of(const struct sy_math_cell *c, void *const *at,
                                               int64_t k)
{
    struct sy_cell_unit u;
    const int32_t *lengths = (const int32_t *)at[SY_CELL_LENGTHS];
    int64_t b = k / c->hidden, gates = c->op == SY_OP_LSTM ? 4 : c->op == SY_OP_GRU ? 3 : 1;
    u.at = k;
    u.n = c->hidden;
    u.gate = b * gates * c->hidden + k % c->hidden;
    u.ended = lengths && c->time >= lengths[b];
    return u;
}

SY_FORMULA float sy_cell_float(void *const *at, enum sy_cell_role role, int64_t i)
{
    return at[role] ? ((const float *)at[role])[i] : 0.0f;
}

SY_FORMULA void sy_cell_put(void *const *at, enum sy_cell_role role, int64_t i, float x)
{
    if (at[role])
        ((float *)at[role])[i] = x;
}

/* The input's and the state's bias of gate q. */
SY_FORMULA float sy_cell_bias(const struct sy_math_cell *c, void *const *at, int64_t k, int q,
                              bool of_state)
{
    int64_t gates = c->op == SY_OP_LSTM ? 4 : c->op == SY_OP_GRU ? 3 : 1;
    return sy_cell_float(at, SY_CELL_BIAS,
                         (q + (of_state ? gates : 0)) * c->hidden + k % c->hidden);
}

/* The sum of gate q: of input, state (rec: gate q of `width`) and biases. */
SY_FORMULA float sy_cell_sum(const struct sy_math_cell *c, void *const *at,
                             const struct sy_cell_unit *u, int q, int width)
{
    int64_t rec = u->at / u->n * width * u->n + (width > 1 ? q : 0) * u->n + u->at % u->n;
    return sy_cell_float(at, SY_CELL_G, u->gate + q * u->n) + sy_cell_float(at, SY_CELL_REC, rec) +
           (sy_cell_bias(c, at, u->at, q, false) + sy_cell_bias(c, at, u->at, q, true));
}

SY_FORMULA void sy_cell_leave(void *const *at, const struct sy_cell_unit *u, float h)
{
    sy_cell_put(at, SY_CELL_H_NEW, u->at, u->ended ? sy_cell_float(at, SY_CELL_H, u->at) : h);
    sy_cell_put(at, SY_CELL_Y, u->at, u->ended ? 0.0f : h);
}

/* Which of the rows of peepholes gate q has, by a state; 0 without. */
SY_FORMULA float sy_cell_peep(const struct sy_math_cell *c, void *const *at, int64_t k, int q,
                              float state)
{
    return sy_cell_float(at, SY_CELL_PEEPS, q * c->hidden + k % c->hidden) * state;
}

/* Gates: input, output, forget, cell. */
SY_FORMULA void sy_cell_lstm_unit(const struct sy_math_cell *c, void *const *at,
                                  const struct sy_cell_unit *u)
{
    float gates[4], before = sy_cell_float(at, SY_CELL_C, u->at), after;
    bool peeps = at[SY_CELL_PEEPS] != NULL;
    for (int q = 0; q < 4; q++) {
        gates[q] = sy_cell_sum(c, at, u, q, 4);
        if (peeps && q % 2 == 0)
            gates[q] += sy_cell_peep(c, at, u->at, q, before);
        if (q != 1)
            gates[q] = sy_cell_bent(&c->rules, q == 3, gates[q]);
    }
    after = (c->rules.couples ? 1.0f - gates[0] : gates[2]) * before + gates[0] * gates[3];
    if (peeps)
        gates[1] += sy_cell_peep(c, at, u->at, 1, after);
    gates[1] = sy_cell_bent(&c->rules, 0, gates[1]);
    for (int q = 0; q < 4; q++)
        sy_cell_put(at, SY_CELL_G, u->gate + q * u->n, gates[q]);
    sy_cell_put(at, SY_CELL_EXTRA, u->at, u->ended ? before : after);
    sy_cell_leave(at, u, gates[1] * sy_cell_curve_at(&c->rules.curves[2], after));
}

/* Gates: update, reset, new. Behind them the state is a mean of the new and the old. */
SY_FORMULA void sy_cell_gru_leave(void *const *at, const struct sy_cell_unit *u, float fresh)
{
    float update = sy_cell_float(at, SY_CELL_G, u->gate), h = sy_cell_float(at, SY_CELL_H, u->at);
    sy_cell_put(at, SY_CELL_G, u->gate + 2 * u->n, fresh);
    sy_cell_leave(at, u, (1.0f - update) * fresh + update * h);
}

SY_FORMULA void sy_cell_gru_unit(const struct sy_math_cell *c, void *const *at,
                                 const struct sy_cell_unit *u)
{
    if (c->part == SY_CELL_PART_END) {
        sy_cell_gru_leave(at, u, sy_cell_bent(&c->rules, 1, sy_cell_sum(c, at, u, 2, 1)));
        return;
    }
    int width = c->resets_late ? 3 : 2;
    float update = sy_cell_bent(&c->rules, 0, sy_cell_sum(c, at, u, 0, width)),
          reset = sy_cell_bent(&c->rules, 0, sy_cell_sum(c, at, u, 1, width));
    sy_cell_put(at, SY_CELL_G, u->gate, update);
    sy_cell_put(at, SY_CELL_G, u->gate + u->n, reset);
    if (!c->resets_late) {
        sy_cell_put(at, SY_CELL_EXTRA, u->at, reset * sy_cell_float(at, SY_CELL_H, u->at));
        return;
    }
    float late = sy_cell_float(at, SY_CELL_REC, u->at / u->n * 3 * u->n + 2 * u->n + u->at % u->n) +
                 sy_cell_bias(c, at, u->at, 2, true);
    float own =
        sy_cell_float(at, SY_CELL_G, u->gate + 2 * u->n) + sy_cell_bias(c, at, u->at, 2, false);
    sy_cell_put(at, SY_CELL_EXTRA, u->at, late);
    sy_cell_gru_leave(at, u, sy_cell_bent(&c->rules, 1, own + reset * late));
}

/* ---- backward ------------------------------------------------------------------------------------------- */

SY_FORMULA void sy_cell_lstm_back_unit(void *const *at, const struct sy_cell_unit *u, float d)
{
    float gates[4], bent = tanhf(sy_cell_float(at, SY_CELL_EXTRA, u->at));
    for (int q = 0; q < 4; q++)
        gates[q] = sy_cell_float(at, SY_CELL_G, u->gate + q * u->n);
    float dc = sy_cell_float(at, SY_CELL_DC, u->at) + d * gates[1] * (1.0f - bent * bent);
    sy_cell_put(at, SY_CELL_DG, u->gate, dc * gates[3] * gates[0] * (1.0f - gates[0]));
    sy_cell_put(at, SY_CELL_DG, u->gate + u->n, d * bent * gates[1] * (1.0f - gates[1]));
    sy_cell_put(at, SY_CELL_DG, u->gate + 2 * u->n,
                dc * sy_cell_float(at, SY_CELL_C, u->at) * gates[2] * (1.0f - gates[2]));
    sy_cell_put(at, SY_CELL_DG, u->gate + 3 * u->n, dc * gates[0] * (1.0f - gates[3] * gates[3]));
    sy_cell_put(at, SY_CELL_DC, u->at, dc * gates[2]);
    sy_cell_put(at, SY_CELL_DH, u->at, 0.0f);
}

SY_FORMULA void sy_cell_gru_back_unit(const struct sy_math_cell *c, void *const *at,
                                      const struct sy_cell_unit *u, float d)
{
    float update = sy_cell_float(at, SY_CELL_G, u->gate),
          reset = sy_cell_float(at, SY_CELL_G, u->gate + u->n),
          fresh = sy_cell_float(at, SY_CELL_G, u->gate + 2 * u->n);
    float third = d * (1.0f - update) * (1.0f - fresh * fresh),
          first = d * (sy_cell_float(at, SY_CELL_H, u->at) - fresh) * update * (1.0f - update),
          second = c->resets_late
                       ? third * sy_cell_float(at, SY_CELL_EXTRA, u->at) * reset * (1.0f - reset)
                       : 0.0f;
    const float dg[3] = {first, second, third},
                dg_h[3] = {first, second, c->resets_late ? third * reset : 0.0f};
    for (int q = 0; q < 3; q++) {
        sy_cell_put(at, SY_CELL_DG, u->gate + q * u->n, dg[q]);
        sy_cell_put(at, SY_CELL_DG_H, u->gate + q * u->n, dg_h[q]);
    }
    sy_cell_put(at, SY_CELL_THIRD, u->at, third);
    sy_cell_put(at, SY_CELL_DH, u->at, d * update);
}

/* The part of the state that the reset gate passes to its product. */
SY_FORMULA void sy_cell_gru_back_end(void *const *at, const struct sy_cell_unit *u)
{
    float reset = sy_cell_float(at, SY_CELL_G, u->gate + u->n),
          d = sy_cell_float(at, SY_CELL_D, u->at);
    float second = d * sy_cell_float(at, SY_CELL_H, u->at) * reset * (1.0f - reset);
    sy_cell_put(at, SY_CELL_DG, u->gate + u->n, second);
    sy_cell_put(at, SY_CELL_DG_H, u->gate + u->n, second);
    sy_cell_put(at, SY_CELL_DH, u->at, sy_cell_float(at, SY_CELL_DH, u->at) + d * reset);
}

SY_FORMULA void sy_cell_back_unit(const struct sy_math_cell *c, void *const *at,
                                  const struct sy_cell_unit *u)
{
    int gates = c->op == SY_OP_LSTM ? 4 : c->op == SY_OP_GRU ? 3 : 1;
    float d = sy_cell_float(at, SY_CELL_DH, u->at) + sy_cell_float(at, SY_CELL_DY, u->at);
    if (u->ended) { /* dh and dc stay */
        for (int q = 0; q < gates; q++) {
            sy_cell_put(at, SY_CELL_DG, u->gate + q * u->n, 0.0f);
            sy_cell_put(at, SY_CELL_DG_H, u->gate + q * u->n, 0.0f);
        }
        sy_cell_put(at, SY_CELL_THIRD, u->at, 0.0f);
        return;
    }
    if (c->op == SY_OP_LSTM) {
        sy_cell_lstm_back_unit(at, u, d);
    } else if (c->op == SY_OP_GRU) {
        sy_cell_gru_back_unit(c, at, u, d);
    } else {
        float h = sy_cell_float(at, SY_CELL_G, u->gate);
        sy_cell_put(at, SY_CELL_DG, u->gate, d * (1.0f - h * h));
        sy_cell_put(at, SY_CELL_DH, u->at, 0.0f);
    }
}

/* Element k of [batch, hidden]. */
SY_FORMULA void sy_cell_run(const struct sy_math_cell *c, void *const *at, int64_t k)
{
    struct sy_cell_unit u = sy_cell_unit_of(c, at, k);
    if (c->part == SY_CELL_PART_BACK) {
        sy_cell_back_unit(c, at, &u);
    } else if (c->part == SY_CELL_PART_BACK_END) {
        if (!u.ended)
            sy_cell_gru_back_end(at, &u);
    } else if (c->op == SY_OP_LSTM) {
        sy_cell_lstm_unit(c, at, &u);
    } else if (c->op == SY_OP_GRU) {
        sy_cell_gru_unit(c, at, &u);
    } else {
        float h = sy_cell_bent(&c->rules, 0, sy_cell_sum(c, at, &u, 0, 1));
        sy_cell_put(at, SY_CELL_G, u.gate, h);
        sy_cell_leave(at, &u, h);
    }
}

#endif

/* One step of a block of 16 units of an LSTM in 8 bits; included once for each width of vectors, after LANES. */
#include "workers/host/products/recurrence_block.h"

enum { UNITS = SY_RECURRENCE_MOST_UNITS, HALVES = UNITS / LANES, COLUMNS = SY_INT8_COLUMNS };

_Static_assert(COLUMNS == MAX_GATES * UNITS, "a panel is the gates of a block");

/* LANES units of one gate, columns from `at` on. `sums`: NULL, the states are 0. In ONNX Runtime's order: inputs, states, bias. */
INLINE void gate_of(const struct place *p, const struct int8_state *state, const int32_t *sums,
                    const float *from_x, int64_t at, lanes *gate)
{
    const struct sy_recurrence_int8 *q = p->r->int8;
    const struct sy_int8_matrix *m = &q->weights[p->direction];
    *gate = *(const lanes *)(const void *)(from_x + at);
    if (sums) {
        const uints of_column = *(const uints *)(const void *)(m->sums + at),
                    zeros = *(const uints *)(const void *)(m->zeros + at);
        uints sum = *(const uints *)(const void *)sums;
        sum -= (uint32_t)state->zero * of_column + (uint32_t)state->sum * zeros;
        *gate += __builtin_convertvector((ints)sum, lanes) *
                 (state->scale * *(const lanes *)(const void *)(m->steps + at));
    }
    if (q->bias)
        *gate += *(const lanes *)(const void *)(q->bias + p->direction * m->blocks * COLUMNS + at);
}

/* Sequence b: curves and the new state; `sums` of its panel. */
INLINE void finish_int8(const struct place *p, int64_t block, int64_t b, const int32_t *sums)
{
    const struct sy_recurrence *r = p->r;
    const struct sy_int8_matrix *m = &r->int8->weights[p->direction];
    const float *from_x =
        r->from_x + ((p->time * r->batch + b) * r->directions + p->direction) * m->blocks * COLUMNS;
    struct int8_state state = {0};
    if (sums)
        memcpy(&state, p->states + b * recurrence_int8_stride(r->hidden), sizeof state);
    for (int half = 0; half < HALVES; half++) {
        lanes gate[MAX_GATES];
        if (block * UNITS + half * LANES >= r->hidden)
            break;
        for (int g = 0; g < MAX_GATES; g++) {
            int at = g * UNITS + half * LANES;
            gate_of(p, &state, sums ? sums + at : NULL, from_x, block * COLUMNS + at, &gate[g]);
        }
        finish_lstm(p, b, block * HALVES + half, gate);
    }
}

#define INT8_BLOCK(compiled, name)                                                               \
    compiled void name(const struct place *p, int64_t block)                                     \
    {                                                                                            \
        int32_t sums[SY_INT8_TILE_ROWS * COLUMNS];                                               \
        int64_t n = p->r->batch, most = sy_int8_panel_most(),                                    \
                stride = recurrence_int8_stride(p->r->hidden);                                   \
        for (int64_t b = 0; b < n; b += most) {                                                  \
            int some = (int)SY_MIN(n - b, most);                                                 \
            if (p->states)                                                                       \
                sy_int8_panel(&p->r->int8->weights[p->direction], block, some,                   \
                              p->states + b * stride + sizeof(struct int8_state), stride, sums); \
            for (int i = 0; i < some; i++)                                                       \
                finish_int8(p, block, b + i, p->states ? sums + i * COLUMNS : NULL);             \
        }                                                                                        \
    }

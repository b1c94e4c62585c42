/* Internals of recurrence.c and the compiled forms of its inner loop. */
#ifndef SY_WORKERS_HOST_PRODUCTS_RECURRENCE_INTERNAL_H
#define SY_WORKERS_HOST_PRODUCTS_RECURRENCE_INTERNAL_H

#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/products/recurrence.h"

struct place {
    const struct sy_recurrence *r;
    int64_t direction, step, time, before; /* time before, -1: the first step */
    const uint8_t *states;                 /* int8: this thread's, of this step; NULL: all are 0 */
};

/* A sequence's state in 8 bits: this, then its numbers, to a multiple of 64 bytes together. */
struct int8_state {
    float scale;
    int32_t zero, sum; /* the sum is of all numbers, less the zero point each */
    int32_t unused;
};

static inline int64_t recurrence_int8_stride(int64_t hidden)
{
    return SY_ALIGN_UP((int64_t)sizeof(struct int8_state) + hidden, (int64_t)64);
}

/* One step of a block of units, for all sequences; the name gives the number of units. */
typedef void sy_recurrence_block(const struct place *p, int64_t block);
sy_recurrence_block sy_lstm_block_8, sy_gru_block_8, sy_lstm_block_16, sy_gru_block_16,
    sy_narrow_lstm_block, sy_narrow_gru_block, sy_int8_lstm_block_8, sy_int8_lstm_block_16;

/* recurrence_int8.c: the form for this CPU. Each thread quantises the states before p's step for itself: they are few, and another barrier per step would take
 * longer. */
sy_recurrence_block *sy_recurrence_int8_block(void);
void sy_recurrence_int8_start(struct place *p, int thread);

/* Rows of a block of packed weights: states that are multiplied together. */
static inline int64_t recurrence_rows(int64_t hidden, bool narrow)
{
    return narrow ? (hidden + 1) / 2 : hidden;
}

/* Offset of a block's weights, in elements (pairs, if narrow). */
static inline int64_t recurrence_weights_at(const struct sy_recurrence *r, int64_t direction,
                                            int64_t block)
{
    int64_t blocks = (r->hidden + r->units - 1) / r->units;
    return (direction * blocks + block) * recurrence_rows(r->hidden, r->narrow) * r->gates *
           r->units;
}

/* The state of sequence b before p's step, [hidden]; NULL: it is 0. */
static inline const float *recurrence_state_before(const struct place *p, int64_t b)
{
    const struct sy_recurrence *r = p->r;
    int64_t row = p->direction * r->batch + b;
    if (p->before < 0)
        return r->h0 ? r->h0 + row * r->hidden : NULL;
    return r->y + (p->before * r->directions * r->batch + row) * r->hidden;
}

/* The state before step `step` as bf16; two of them in turns, as it is read while the next is written. */
static inline uint16_t *recurrence_narrow_state(const struct sy_recurrence *r, int64_t direction,
                                                int64_t step, int64_t b)
{
    return r->narrow_states +
           ((direction * 2 + step % 2) * r->batch + b) * 2 * recurrence_rows(r->hidden, true);
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline uint16_t recurrence_as_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#endif

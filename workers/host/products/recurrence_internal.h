/* What recurrence.c and the compiled forms of its inner loop share. */
#ifndef SY_WORKERS_HOST_PRODUCTS_RECURRENCE_INTERNAL_H
#define SY_WORKERS_HOST_PRODUCTS_RECURRENCE_INTERNAL_H

#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/products/recurrence.h"

struct place {
    const struct sy_recurrence *r;
    int64_t direction, step, time, before; /* time before, -1: the first step */
};

/* One step of a block of units, for all sequences; of so many units as the name says. */
typedef void sy_recurrence_block(const struct place *p, int64_t block);
sy_recurrence_block sy_lstm_block_8, sy_gru_block_8, sy_lstm_block_16, sy_gru_block_16,
    sy_narrow_lstm_block, sy_narrow_gru_block;

/* Rows of a block of packed weights: states that are multiplied with at once. */
static inline int64_t recurrence_rows(int64_t hidden, bool narrow)
{
    return narrow ? (hidden + 1) / 2 : hidden;
}

/* Where a block's weights begin, in elements (pairs, if narrow). */
static inline int64_t recurrence_weights_at(const struct sy_recurrence *r, int64_t direction,
                                            int64_t block)
{
    int64_t blocks = (r->hidden + r->units - 1) / r->units;
    return (direction * blocks + block) * recurrence_rows(r->hidden, r->narrow) * r->gates *
           r->units;
}

/* The state before step `step` as bf16; two of them in turns, as it is read while the next is written. */
static inline uint16_t *recurrence_narrow_state(const struct sy_recurrence *r, int64_t direction,
                                                int64_t step, int64_t b)
{
    return r->narrow_states +
           ((direction * 2 + step % 2) * r->batch + b) * 2 * recurrence_rows(r->hidden, true);
}

/* Rounded to nearest, ties to even; not a number stays one. */
static inline uint16_t recurrence_as_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#endif

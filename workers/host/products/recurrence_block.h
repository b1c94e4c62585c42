/* Curves and sums of one block of LANES units: vectors as wide as the instructions that they are compiled for, since GCC keeps wider ones in
 * memory (with 16 floats on AVX2 an LSTM took ten times as long). Included once by a file for each width. */
#ifndef LANES
#define LANES 8
#endif
#include "workers/host/products/recurrence_internal.h"

enum { MAX_GATES = 4, MAX_SEQUENCES = 4 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));
typedef int32_t ints __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t uints __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

#define INLINE static inline __attribute__((always_inline))

/* ---- curves --------------------------------------------------------------------------------------------------- */

/* A macro, not a function: wide vectors are not passed in registers everywhere. */
#define CHOOSE(mask, a, b) ((lanes)(((mask) & (ints)(a)) | (~(mask) & (ints)(b))))

/* e^x to 2 units in the last place, x cut to where it is finite and not denormal. */
INLINE void exponential(lanes *value)
{
    const lanes zero = {0}, high = zero + 88.0f, low = zero - 87.0f;
    lanes x = *value;
    x = CHOOSE(x > high, high, x);
    x = CHOOSE(x < low, low, x);
    lanes n = x * 1.44269504f + 12582912.0f - 12582912.0f; /* rounded to an integer */
    lanes r = x - n * 0.693359375f + n * 2.12194440e-4f;
    lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    ints power = (__builtin_convertvector(n, ints) + 127) << 23;
    *value = p * (lanes)power;
}

INLINE void sigmoid(lanes *x)
{
    lanes e = -*x;
    exponential(&e);
    *x = 1.0f / (1.0f + e);
}

INLINE void tangent(lanes *x)
{
    lanes e = *x * 2.0f;
    exponential(&e);
    *x = 1.0f - 2.0f / (1.0f + e);
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

/* `n` floats; the rest is zero. */
INLINE void load(lanes *to, const float *from, int64_t n)
{
    if (n == LANES) {
        *to = *(const lanes *)from;
        return;
    }
    *to = (lanes){0};
    memcpy(to, from, (size_t)n * sizeof *from);
}

/* The first `n`. Of a whole block without a call, which would put all curves' constants out of their registers. */
INLINE void store(float *to, const lanes *from, int64_t n)
{
    if (n == LANES) {
        *(lanes *)to = *from;
        return;
    }
    memcpy(to, from, (size_t)n * sizeof(float));
}

/* `n` states of a block that step p->step made. */
INLINE void put_state(const struct place *p, int64_t b, int64_t block, const lanes *value,
                      int64_t n)
{
    const struct sy_recurrence *r = p->r;
    int64_t row = (p->time * r->directions + p->direction) * r->batch + b;
    store(r->y + row * r->hidden + block * LANES, value, n);
    if (!r->narrow)
        return;
    float h[LANES];
    memcpy(h, value, sizeof h);
    uint16_t *to = recurrence_narrow_state(r, p->direction, p->step + 1, b) + block * LANES;
    for (int64_t i = 0; i < n; i++)
        to[i] = recurrence_as_bf16(h[i]);
}

INLINE void finish_lstm(const struct place *p, int64_t b, int64_t block, lanes *gate)
{
    const struct sy_recurrence *r = p->r;
    int64_t n = SY_MIN(r->hidden - block * LANES, LANES);
    int64_t at = (p->direction * r->batch + b) * r->hidden + block * LANES;
    lanes cell;
    load(&cell, r->cell + at, n);
    sigmoid(&gate[0]);
    sigmoid(&gate[1]);
    sigmoid(&gate[2]);
    tangent(&gate[3]);
    cell = gate[2] * cell + gate[0] * gate[3];
    store(r->cell + at, &cell, n);
    tangent(&cell);
    cell = gate[1] * cell;
    put_state(p, b, block, &cell, n);
}

/* `fresh`: the hidden gate's part from the inputs; gate[2]: from the state. */
INLINE void finish_gru(const struct place *p, int64_t b, int64_t block, lanes *gate, lanes *fresh)
{
    const struct sy_recurrence *r = p->r;
    int64_t n = SY_MIN(r->hidden - block * LANES, LANES);
    const float *h = recurrence_state_before(p, b);
    lanes before = {0}, bias = {0};
    if (h)
        load(&before, h + block * LANES, n);
    if (r->late_bias)
        load(&bias, r->late_bias + p->direction * r->hidden + block * LANES, n);
    sigmoid(&gate[0]);
    sigmoid(&gate[1]);
    lanes value = *fresh + gate[1] * (gate[2] + bias);
    tangent(&value);
    value = (1.0f - gate[0]) * value + gate[0] * before;
    put_state(p, b, block, &value, n);
}

/* Prefetches the inputs' part for the next block of these sequences: rows too far apart for the CPU's own prefetcher. */
INLINE void fetch_next(const struct place *p, int64_t block, int64_t b, int gates, int count)
{
    const struct sy_recurrence *r = p->r;
    if ((block + 1) * LANES >= r->hidden)
        return;
    for (int s = 0; s < count; s++) {
        int64_t row = ((p->time * r->batch + b + s) * r->directions + p->direction) * gates;
        for (int g = 0; g < gates; g++)
            __builtin_prefetch(r->from_x + (row + g) * r->hidden + (block + 1) * LANES);
    }
}

/* Sums of sequences [b, b + count): what comes from the inputs. `fresh` is the GRU's hidden gate, whose sum is of the state alone. */
INLINE void start_sums(const struct place *p, int64_t block, int64_t b, int gates, int count,
                       lanes (*sum)[MAX_GATES], lanes *fresh, const float **h)
{
    const struct sy_recurrence *r = p->r;
    int64_t hidden = r->hidden, n = SY_MIN(hidden - block * LANES, LANES);
    for (int s = 0; s < count; s++) {
        int64_t row = ((p->time * r->batch + b + s) * r->directions + p->direction) * gates;
        for (int g = 0; g < gates; g++)
            load(&sum[s][g], r->from_x + (row + g) * hidden + block * LANES, n);
        if (gates == 3) {
            fresh[s] = sum[s][2];
            sum[s][2] = (lanes){0};
        }
        h[s] = recurrence_state_before(p, b + s);
    }
}

INLINE void finish_sums(const struct place *p, int64_t block, int64_t b, int gates, int count,
                        lanes (*sum)[MAX_GATES], lanes *fresh)
{
    for (int s = 0; s < count; s++) {
        if (gates == 4)
            finish_lstm(p, b + s, block, sum[s]);
        else
            finish_gru(p, b + s, block, sum[s], &fresh[s]);
    }
}

/* `count` and `gates` are known to the compiler: the sums stay in registers. */
INLINE void some_sequences(const struct place *p, int64_t block, int64_t b, int gates, int count)
{
    lanes sum[MAX_SEQUENCES][MAX_GATES], fresh[MAX_SEQUENCES];
    const float *h[MAX_SEQUENCES];
    const lanes *w = (const lanes *)((const float *)p->r->weights +
                                     recurrence_weights_at(p->r, p->direction, block));
    start_sums(p, block, b, gates, count, sum, fresh, h);
    fetch_next(p, block, b, gates, count);
    for (int64_t k = 0; k < p->r->hidden && h[0]; k++)
        for (int g = 0; g < gates; g++)
            for (int s = 0; s < count; s++)
                sum[s][g] += w[k * gates + g] * h[s][k];
    finish_sums(p, block, b, gates, count, sum, fresh);
}

/* All sequences, `most` at once: as many sums as fit the registers. */
#define BLOCK(compiled, name, some, gates, most)             \
    compiled void name(const struct place *p, int64_t block) \
    {                                                        \
        int64_t b = 0, n = p->r->batch;                      \
        for (; b + (most) <= n; b += (most))                 \
            some(p, block, b, gates, most);                  \
        for (; b + 2 <= n; b += 2)                           \
            some(p, block, b, gates, 2);                     \
        for (; b < n; b++)                                   \
            some(p, block, b, gates, 1);                     \
    }

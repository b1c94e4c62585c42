#include "workers/host/recurrence.h"

#include <immintrin.h>
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/clones.h"

enum { UNITS = SY_RECURRENCE_UNITS, MAX_GATES = 4, MAX_DIRECTIONS = 2, SPINS = 4096 };

typedef float lanes __attribute__((vector_size(UNITS * sizeof(float)), aligned(4)));
typedef int32_t ints __attribute__((vector_size(UNITS * sizeof(float))));

#define NARROW __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define INLINE static inline __attribute__((always_inline))

/* ---- packing ----------------------------------------------------------------------------------------------- */

static int64_t blocks_of(int64_t hidden)
{
    return (hidden + UNITS - 1) / UNITS;
}

/* Rows of a block of packed weights: states that are multiplied with at once. */
static int64_t rows_of(int64_t hidden, bool narrow)
{
    return narrow ? (hidden + 1) / 2 : hidden;
}

int64_t sy_recurrence_packed(int64_t directions, int64_t gates, int64_t hidden, bool narrow)
{
    return directions * blocks_of(hidden) * rows_of(hidden, narrow) * gates * UNITS *
           (narrow ? 2 : 1);
}

void sy_recurrence_pack(int64_t directions, int64_t gates, int64_t hidden, bool narrow,
                        const float *r, float *out)
{
    int64_t each = narrow ? 2 : 1, n = sy_recurrence_packed(directions, gates, hidden, narrow);
    for (int64_t at = 0; at < n; at++) {
        int64_t k = at % each, i = at / each % UNITS, g = at / each / UNITS % gates;
        int64_t row = at / each / UNITS / gates, rows = rows_of(hidden, narrow);
        int64_t unit = row / rows % blocks_of(hidden) * UNITS + i;
        int64_t d = row / rows / blocks_of(hidden);
        k += row % rows * each;
        out[at] =
            unit < hidden && k < hidden ? r[((d * gates + g) * hidden + unit) * hidden + k] : 0;
    }
}

/* ---- curves --------------------------------------------------------------------------------------------------- */

/* Macros, not functions: 64-byte vectors are not passed in registers everywhere. */
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

/* ---- one block of units of some sequences ---------------------------------------------------------------------- */

struct place {
    const struct sy_recurrence *r;
    int64_t direction, step, time, before; /* time before, -1: the first step */
};

/* The state before step `step` as bf16; two of them in turns, as it is read while the next is written. */
static uint16_t *narrow_state(const struct sy_recurrence *r, int64_t direction, int64_t step,
                              int64_t b)
{
    return r->narrow_states +
           ((direction * 2 + step % 2) * r->batch + b) * 2 * rows_of(r->hidden, true);
}

/* Rounded to nearest, ties to even; not a number stays one. */
static uint16_t as_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* `n` states of a block that step p->step made. */
static inline void put_state(const struct place *p, int64_t b, int64_t block, const lanes *value,
                             int64_t n)
{
    const struct sy_recurrence *r = p->r;
    float h[UNITS];
    memcpy(h, value, sizeof h);
    int64_t row = (p->time * r->directions + p->direction) * r->batch + b;
    memcpy(r->y + row * r->hidden + block * UNITS, h, (size_t)n * sizeof(float));
    if (!r->narrow)
        return;
    uint16_t *to = narrow_state(r, p->direction, p->step + 1, b) + block * UNITS;
    for (int64_t i = 0; i < n; i++)
        to[i] = as_bf16(h[i]);
}

static const float *state_before(const struct place *p, int64_t b)
{
    const struct sy_recurrence *r = p->r;
    int64_t row = p->direction * r->batch + b;
    if (p->before < 0)
        return r->h0 ? r->h0 + row * r->hidden : NULL;
    return r->y + (p->before * r->directions * r->batch + row) * r->hidden;
}

/* `n` floats; the rest is zero. */
INLINE void load(lanes *to, const float *from, int64_t n)
{
    if (n == UNITS) {
        *to = *(const lanes *)from;
        return;
    }
    *to = (lanes){0};
    memcpy(to, from, (size_t)n * sizeof *from);
}

INLINE void finish_lstm(const struct place *p, int64_t b, int64_t block, lanes *gate)
{
    const struct sy_recurrence *r = p->r;
    int64_t n = SY_MIN(r->hidden - block * UNITS, UNITS);
    int64_t at = (p->direction * r->batch + b) * r->hidden + block * UNITS;
    lanes cell;
    load(&cell, r->cell + at, n);
    sigmoid(&gate[0]);
    sigmoid(&gate[1]);
    sigmoid(&gate[2]);
    tangent(&gate[3]);
    cell = gate[2] * cell + gate[0] * gate[3];
    memcpy(r->cell + at, &cell, (size_t)n * sizeof(float));
    tangent(&cell);
    cell = gate[1] * cell;
    put_state(p, b, block, &cell, n);
}

/* `fresh`: the hidden gate's part from the inputs; gate[2]: from the state. */
INLINE void finish_gru(const struct place *p, int64_t b, int64_t block, lanes *gate, lanes *fresh)
{
    const struct sy_recurrence *r = p->r;
    int64_t n = SY_MIN(r->hidden - block * UNITS, UNITS);
    const float *h = state_before(p, b);
    lanes before = {0}, bias = {0};
    if (h)
        load(&before, h + block * UNITS, n);
    if (r->late_bias)
        load(&bias, r->late_bias + p->direction * r->hidden + block * UNITS, n);
    sigmoid(&gate[0]);
    sigmoid(&gate[1]);
    lanes value = *fresh + gate[1] * (gate[2] + bias);
    tangent(&value);
    value = (1.0f - gate[0]) * value + gate[0] * before;
    put_state(p, b, block, &value, n);
}

/* Sums of sequences [b, b + count): what comes from the inputs. `fresh` is the GRU's hidden gate, whose sum is of the state alone. */
INLINE void start_sums(const struct place *p, int64_t block, int64_t b, int gates, int count,
                       lanes (*sum)[MAX_GATES], lanes *fresh, const float **h)
{
    const struct sy_recurrence *r = p->r;
    int64_t hidden = r->hidden, n = SY_MIN(hidden - block * UNITS, UNITS);
    for (int s = 0; s < count; s++) {
        int64_t row = ((p->time * r->batch + b + s) * r->directions + p->direction) * gates;
        for (int g = 0; g < gates; g++)
            load(&sum[s][g], r->from_x + (row + g) * hidden + block * UNITS, n);
        if (gates == 3) {
            fresh[s] = sum[s][2];
            sum[s][2] = (lanes){0};
        }
        h[s] = state_before(p, b + s);
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

static int64_t weights_at(const struct sy_recurrence *r, int64_t direction, int64_t block)
{
    return (direction * blocks_of(r->hidden) + block) * rows_of(r->hidden, r->narrow) * r->gates *
           UNITS;
}

/* `count` and `gates` are known to the compiler: the sums stay in registers. */
INLINE void some_sequences(const struct place *p, int64_t block, int64_t b, int gates, int count)
{
    lanes sum[4][MAX_GATES], fresh[4];
    const float *h[4];
    const lanes *w =
        (const lanes *)((const float *)p->r->weights + weights_at(p->r, p->direction, block));
    start_sums(p, block, b, gates, count, sum, fresh, h);
    for (int64_t k = 0; k < p->r->hidden && h[0]; k++)
        for (int g = 0; g < gates; g++)
            for (int s = 0; s < count; s++)
                sum[s][g] += w[k * gates + g] * h[s][k];
    finish_sums(p, block, b, gates, count, sum, fresh);
}

/* The same with weights and states in bf16, two states at once. */
NARROW INLINE void some_narrow(const struct place *p, int64_t block, int64_t b, int gates,
                               int count)
{
    lanes sum[4][MAX_GATES], fresh[4];
    const float *h[4];
    const uint32_t *pairs[4];
    int64_t rows = rows_of(p->r->hidden, true);
    const __m512i *w =
        (const __m512i *)((const uint32_t *)p->r->weights + weights_at(p->r, p->direction, block));
    start_sums(p, block, b, gates, count, sum, fresh, h);
    for (int s = 0; s < count; s++)
        pairs[s] = (const uint32_t *)narrow_state(p->r, p->direction, p->step, b + s);
    for (int64_t k = 0; k < rows && h[0]; k++)
        for (int g = 0; g < gates; g++)
            for (int s = 0; s < count; s++)
                sum[s][g] = (lanes)_mm512_dpbf16_ps(
                    (__m512)sum[s][g], (__m512bh)_mm512_set1_epi32((int)pairs[s][k]),
                    (__m512bh)_mm512_loadu_si512(&w[k * gates + g]));
    finish_sums(p, block, b, gates, count, sum, fresh);
}

#define BLOCK(compiled, name, some, gates)                          \
    compiled static void name(const struct place *p, int64_t block) \
    {                                                               \
        int64_t b = 0, n = p->r->batch;                             \
        for (; b + 4 <= n; b += 4)                                  \
            some(p, block, b, gates, 4);                            \
        for (; b + 2 <= n; b += 2)                                  \
            some(p, block, b, gates, 2);                            \
        for (; b < n; b++)                                          \
            some(p, block, b, gates, 1);                            \
    }
BLOCK(SY_CLONES, lstm_block, some_sequences, 4)
BLOCK(SY_CLONES, gru_block, some_sequences, 3)
BLOCK(NARROW, narrow_lstm_block, some_narrow, 4)
BLOCK(NARROW, narrow_gru_block, some_narrow, 3)

/* ---- steps and threads ------------------------------------------------------------------------------------------- */

struct meeting {
    _Alignas(64) atomic_long arrived;
};

/* All `n` threads of a direction have come so often. They spin: a step takes some 10 us; then they yield, if another is not running. */
static void meet(struct meeting *m, int n, long times)
{
    if (n < 2)
        return;
    atomic_fetch_add_explicit(&m->arrived, 1, memory_order_acq_rel);
    for (int spins = 0; atomic_load_explicit(&m->arrived, memory_order_acquire) < times * n;)
        if (++spins > SPINS)
            sched_yield();
        else
            _mm_pause();
}

/* The share of thread `part` of `parts` in one direction. */
static void one_direction(const struct sy_recurrence *r, int64_t direction, int part, int parts,
                          struct meeting *meeting)
{
    bool reverse = direction == 1 || r->first_is_reverse;
    int64_t blocks = blocks_of(r->hidden);
    struct place p = {.r = r, .direction = direction, .before = -1};
    for (int64_t s = 0; s < r->steps; s++) {
        p.step = s;
        p.time = reverse ? r->steps - 1 - s : s;
        for (int64_t block = blocks * part / parts; block < blocks * (part + 1) / parts; block++) {
            if (r->gates == 4)
                r->narrow ? narrow_lstm_block(&p, block) : lstm_block(&p, block);
            else
                r->narrow ? narrow_gru_block(&p, block) : gru_block(&p, block);
        }
        p.before = p.time;
        meet(meeting, parts, (long)s + 1);
    }
}

/* Directions that thread `t` of `n` works on: all of them if it is alone, else every second thread takes the same. */
static void share(const struct sy_recurrence *r, int t, int n, struct meeting *meetings)
{
    for (int64_t d = 0; d < r->directions; d++) {
        if (n == 1 || r->directions == 1)
            one_direction(r, d, t, n, &meetings[d]);
        else if (t % 2 == d)
            one_direction(r, d, t / 2, (n - (int)d + 1) / 2, &meetings[d]);
    }
}

int64_t sy_recurrence_narrow_states(int64_t directions, int64_t batch, int64_t hidden)
{
    return directions * 2 * batch * 2 * rows_of(hidden, true);
}

/* The first states; zero where there is no unit. */
static void start_narrow(const struct sy_recurrence *r)
{
    memset(r->narrow_states, 0,
           (size_t)sy_recurrence_narrow_states(r->directions, r->batch, r->hidden) *
               sizeof *r->narrow_states);
    for (int64_t row = 0; r->h0 && row < r->directions * r->batch; row++)
        for (int64_t i = 0; i < r->hidden; i++)
            narrow_state(r, row / r->batch, 0, row % r->batch)[i] =
                as_bf16(r->h0[row * r->hidden + i]);
}

void sy_recurrence_run(const struct sy_recurrence *r)
{
    struct meeting meetings[MAX_DIRECTIONS] = {0};
    size_t state = (size_t)(r->batch * r->hidden);
    if (r->gates == 4 && r->c0)
        memcpy(r->cell, r->c0, (size_t)r->directions * state * sizeof(float));
    else if (r->gates == 4)
        memset(r->cell, 0, (size_t)r->directions * state * sizeof(float));
    if (r->narrow)
        start_narrow(r);
#pragma omp parallel
    share(r, omp_get_thread_num(), omp_get_num_threads(), meetings);
    for (int64_t d = 0; r->last_h && d < r->directions; d++) {
        int64_t last = d == 1 || r->first_is_reverse ? 0 : r->steps - 1;
        memcpy(r->last_h + (size_t)d * state, r->y + (size_t)(last * r->directions + d) * state,
               state * sizeof(float));
    }
}

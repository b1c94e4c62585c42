#include "workers/host/products/recurrence.h"

#include <immintrin.h>
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/products/recurrence_internal.h"

enum {
    MAX_DIRECTIONS = 2,
    SPINS = 4096,
    CACHED_BYTES = 1 << 20, /* of weights that a core keeps */
};

/* ---- packing ----------------------------------------------------------------------------------------------- */

static int64_t blocks_of(int64_t hidden, int units)
{
    return (hidden + units - 1) / units;
}

int64_t sy_recurrence_packed(int64_t directions, int64_t gates, int64_t hidden, int units,
                             bool narrow)
{
    return directions * blocks_of(hidden, units) * recurrence_rows(hidden, narrow) * gates * units *
           (narrow ? 2 : 1);
}

void sy_recurrence_pack(int64_t directions, int64_t gates, int64_t hidden, int units, bool narrow,
                        const float *r, float *out)
{
    int64_t each = narrow ? 2 : 1,
            n = sy_recurrence_packed(directions, gates, hidden, units, narrow);
    for (int64_t at = 0; at < n; at++) {
        int64_t k = at % each, i = at / each % units, g = at / each / units % gates;
        int64_t row = at / each / units / gates, rows = recurrence_rows(hidden, narrow);
        int64_t unit = row / rows % blocks_of(hidden, units) * units + i;
        int64_t d = row / rows / blocks_of(hidden, units);
        k += row % rows * each;
        out[at] =
            unit < hidden && k < hidden ? r[((d * gates + g) * hidden + unit) * hidden + k] : 0;
    }
}

/* ---- steps and threads ------------------------------------------------------------------------------------------- */

struct meeting {
    _Alignas(64) atomic_long arrived;
};

/* Barrier of the `n` threads of a direction. They spin, since a step takes some 10 us; then they yield, in case another one is not running. */
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

static sy_recurrence_block *block_of(const struct sy_recurrence *r)
{
    bool lstm = r->gates == 4;
    if (r->int8)
        return sy_recurrence_int8_block();
    if (r->narrow)
        return lstm ? sy_narrow_lstm_block : sy_narrow_gru_block;
    if (r->units == SY_RECURRENCE_MOST_UNITS)
        return lstm ? sy_lstm_block_16 : sy_gru_block_16;
    return lstm ? sy_lstm_block_8 : sy_gru_block_8;
}

/* The share of thread `part` of `parts` in one direction. `thread`: of all. Every second step goes through the blocks from the end, where the weights are
 * that the step before left in the cache. */
static void one_direction(const struct sy_recurrence *r, int64_t direction, int part, int parts,
                          int thread, struct meeting *meeting)
{
    bool reverse = direction == 1 || r->first_is_reverse;
    int64_t blocks = blocks_of(r->hidden, r->units), first = blocks * part / parts,
            end = blocks * (part + 1) / parts;
    sy_recurrence_block *run_block = block_of(r);
    struct place p = {.r = r, .direction = direction, .before = -1};
    for (int64_t s = 0; s < r->steps; s++) {
        p.step = s;
        p.time = reverse ? r->steps - 1 - s : s;
        if (r->int8)
            sy_recurrence_int8_start(&p, thread);
        for (int64_t i = 0, n = end - first; i < n; i++)
            run_block(&p, s % 2 ? end - 1 - i : first + i);
        p.before = p.time;
        meet(meeting, parts, (long)s + 1);
    }
}

/* Whether the weights of one direction stay in the second caches of half of the threads from step to step. */
static bool stays_in_half(const struct sy_recurrence *r, int threads)
{
    int64_t bytes = r->int8     ? 1
                    : r->narrow ? 2
                                : (int64_t)sizeof(float),
            rows = blocks_of(r->hidden, r->units) * r->units;
    return r->gates * rows * r->hidden * bytes <= (int64_t)CACHED_BYTES * (threads / 2);
}

/* What thread `t` of `n` does. Two directions run beside each other, every second thread has the same one, unless their weights would then come from
 * memory in each step: one after the other, each core sees half as many. */
static void share(const struct sy_recurrence *r, int t, int n, struct meeting *meetings)
{
    bool beside = n > 1 && r->directions == 2 && stays_in_half(r, n);
    for (int64_t d = 0; d < r->directions; d++) {
        if (!beside)
            one_direction(r, d, t, n, t, &meetings[d]);
        else if (t % 2 == d)
            one_direction(r, d, t / 2, (n - (int)d + 1) / 2, t, &meetings[d]);
    }
}

int64_t sy_recurrence_narrow_states(int64_t directions, int64_t batch, int64_t hidden)
{
    return directions * 2 * batch * 2 * recurrence_rows(hidden, true);
}

/* Copies the initial states; zero where there is no unit. */
static void start_narrow(const struct sy_recurrence *r)
{
    memset(r->narrow_states, 0,
           (size_t)sy_recurrence_narrow_states(r->directions, r->batch, r->hidden) *
               sizeof *r->narrow_states);
    for (int64_t row = 0; r->h0 && row < r->directions * r->batch; row++)
        for (int64_t i = 0; i < r->hidden; i++)
            recurrence_narrow_state(r, row / r->batch, 0, row % r->batch)[i] =
                recurrence_as_bf16(r->h0[row * r->hidden + i]);
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

#include "workers/host/rows/top_rows.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"

#define BLOCK         128   /* elements that are passed over at once */
#define PARALLEL_FROM 16384 /* elements; below it waking the threads costs more than they save */
#define PARTS         64    /* of the lines, one after the other in each */

/* A number that is the smaller the earlier a float comes: the least for infinity (or its opposite), the most for NaN. Zeros are equal. */
static inline __attribute__((always_inline)) uint32_t rank_of(const float *x, uint32_t sign)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    uint32_t size = bits & 0x7fffffffu, turned = size == 0 ? 0 : bits ^ sign;
    uint32_t rank = turned & 0x80000000u ? turned : 0x7fffffffu - turned;
    return size > 0x7f800000u ? UINT32_MAX : rank;
}

/* Ranks of up to BLOCK elements; the least of them. `sign`: turned round, for the smallest. */
SY_CLONES static uint32_t rank_block(uint32_t sign, int64_t n, int64_t step,
                                     const float *restrict in, uint32_t *restrict ranks)
{
    uint32_t least = UINT32_MAX;
    for (int64_t i = 0; step != 1 && i < n; i++)
        ranks[i] = rank_of(in + i * step, sign);
#pragma omp simd
    for (int64_t i = 0; i < (step == 1 ? n : 0); i++)
        ranks[i] = rank_of(in + i, sign);
#pragma omp simd reduction(min : least)
    for (int64_t i = 0; i < n; i++)
        least = ranks[i] < least ? ranks[i] : least;
    return least;
}

/* A heap of keys, the largest on top: puts `key` in the place `at` of n, or below it. */
static void sink(uint64_t *heap, int64_t n, int64_t at, uint64_t key)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && heap[child + 1] > heap[child];
        if (heap[child] <= key)
            break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

/* A key is a rank and a place: no two are equal. The k smallest keys of a line, sorted. */
static void best_of_line(const struct sy_top *t, const float *in, uint64_t *best)
{
    uint32_t ranks[BLOCK], sign = t->smallest ? 0x80000000u : 0;
    int64_t have = 0;
    for (int64_t from = 0; from < t->n; from += BLOCK) {
        int64_t n = SY_MIN(t->n - from, BLOCK);
        uint32_t least = rank_block(sign, n, t->step, in + from * t->step, ranks);
        if (have == t->k && least >= best[0] >> 32) /* equal ones come later */
            continue;
        for (int64_t i = 0; i < n; i++) {
            uint64_t key = (uint64_t)ranks[i] << 32 | (uint64_t)(from + i);
            if (have < t->k) {
                best[have++] = key;
                for (int64_t at = t->k / 2 - 1; have == t->k && at >= 0; at--)
                    sink(best, t->k, at, best[at]);
            } else if (key < best[0]) {
                sink(best, t->k, 0, key);
            }
        }
    }
    for (int64_t n = t->k - 1; n > 0; n--) {
        uint64_t last = best[n];
        best[n] = best[0];
        sink(best, n, 0, last);
    }
}

static void top_of_line(const struct sy_top *t, const float *in, int64_t line, uint64_t *best,
                        float *values, int64_t *places)
{
    const float *x = in + line / t->step * t->step * t->n + line % t->step;
    int64_t out = line / t->step * t->step * t->k + line % t->step;
    best_of_line(t, x, best);
    for (int64_t i = 0; i < t->k; i++) {
        int64_t place = (int64_t)(best[i] & UINT32_MAX);
        values[out + i * t->step] = x[place * t->step];
        if (places)
            places[out + i * t->step] = place;
    }
}

int64_t sy_top_scratch(int64_t lines, int64_t k)
{
    return SY_MIN(lines, PARTS) * k;
}

void sy_top_rows(const struct sy_top *t, const float *in, uint64_t *scratch, float *values,
                 int64_t *places)
{
    int64_t parts = SY_MIN(t->lines, PARTS);
    if (t->k == 0)
        return;
#pragma omp parallel for schedule(static) if (t->lines * t->n > PARALLEL_FROM)
    for (int64_t part = 0; part < parts; part++)
        for (int64_t line = part * t->lines / parts; line < (part + 1) * t->lines / parts; line++)
            top_of_line(t, in, line, scratch + part * t->k, values, places);
}

#include "workers/host/rows/resize_rows.h"

#include <stdbool.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"

/* ---- rows above each other --------------------------------------------------------------------------------- */

SY_CLONES static void weigh_row(int64_t n, const float *restrict from, float weight,
                                float *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = weight * from[i];
}

SY_CLONES static void weigh_two(int64_t n, const float *restrict a, float of_a,
                                const float *restrict b, float of_b, float *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = of_a * a[i] + of_b * b[i];
}

SY_CLONES static void add_row(int64_t n, const float *restrict from, float weight,
                              float *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += weight * from[i];
}

void sy_row_mix(int64_t n, const float *from, const struct sy_row_source *sources, int n_sources,
                float *to)
{
    const struct sy_row_source *s = sources;
    if (n_sources > 1)
        weigh_two(n, from + s[0].offset, (float)s[0].weight, from + s[1].offset, (float)s[1].weight,
                  to);
    else
        weigh_row(n, from + s[0].offset, (float)s[0].weight, to);
    for (int k = 2; k < n_sources; k++)
        add_row(n, from + s[k].offset, (float)s[k].weight, to);
}

/* ---- along a row ------------------------------------------------------------------------------------------- */

/* Results 2q and 2q + 1 of an even start: the same steps and weights as those before them. */
static bool goes_on(const struct sy_row_taps *t, int64_t q)
{
    bool same = true;
    for (int64_t i = 2 * q; i < 2 * q + 2; i++)
        for (int k = 0; k < t->n; k++)
            same = same && t->at[k][i] == t->at[k][i - 2] + 1 &&
                   t->weights[k][i] == t->weights[k][i - 2] && t->weights[k][i] != 0;
    return same;
}

void sy_row_find_pairs(struct sy_row_taps *t)
{
    int64_t q = 1, middle = t->length / 4;
    t->first = t->behind = 0;
    if (t->n > 2 || middle < 1 || !goes_on(t, middle))
        return;
    for (q = middle; q > 1 && goes_on(t, q - 1); q--)
        ;
    t->first = q;
    for (q = middle + 1; 2 * q + 1 < t->length && goes_on(t, q); q++)
        ;
    t->behind = q;
}

SY_CLONES static void spread_pairs_of_one(int64_t n, const float *restrict even,
                                          const float *restrict odd, const float *weights,
                                          float *restrict to)
{
    float of_even = weights[0], of_odd = weights[1];
    for (int64_t q = 0; q < n; q++) {
        to[2 * q] = of_even * even[q];
        to[2 * q + 1] = of_odd * odd[q];
    }
}

/* even, odd: what the first of them takes; the second element of each is weighed by what follows in `more`. */
SY_CLONES static void spread_pairs_of_two(int64_t n, const float *const *from, const float *weights,
                                          float *restrict to)
{
    const float *restrict even = from[0], *restrict odd = from[1], *restrict more_even = from[2],
                          *restrict more_odd = from[3];
    float w0 = weights[0], w1 = weights[1], w2 = weights[2], w3 = weights[3];
    for (int64_t q = 0; q < n; q++) {
        to[2 * q] = w0 * even[q] + w2 * more_even[q];
        to[2 * q + 1] = w1 * odd[q] + w3 * more_odd[q];
    }
}

SY_CLONES static void pick_row(int64_t n, const int32_t *restrict at, const float *restrict weights,
                               const float *restrict from, float *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = weights[i] != 0 ? weights[i] * from[at[i]] : 0;
}

SY_CLONES static void pick_add(int64_t n, const int32_t *restrict at, const float *restrict weights,
                               const float *restrict from, float factor, float *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += weights[i] != 0 ? factor * weights[i] * from[at[i]] : 0;
}

static void pick_part(const struct sy_row_taps *t, int64_t first, int64_t end, const float *from,
                      float *to)
{
    int64_t n = end - first;
    pick_row(n, t->at[0] + first, t->weights[0] + first, from, to + first);
    for (int k = 1; k < t->n; k++)
        pick_add(n, t->at[k] + first, t->weights[k] + first, from, 1, to + first);
}

static void spread_pairs(const struct sy_row_taps *t, const float *from, float *to)
{
    int64_t n = t->behind - t->first, i = 2 * t->first;
    const float *sources[4];
    float weights[4];
    for (int k = 0; k < 2 * t->n; k++) {
        sources[k] = from + t->at[k / 2][i + k % 2];
        weights[k] = t->weights[k / 2][i + k % 2];
    }
    if (t->n == 1)
        spread_pairs_of_one(n, sources[0], sources[1], weights, to + i);
    else
        spread_pairs_of_two(n, sources, weights, to + i);
}

void sy_row_spread(const struct sy_row_taps *t, const float *from, float *to)
{
    pick_part(t, 0, 2 * t->first, from, to);
    if (t->behind > t->first)
        spread_pairs(t, from, to);
    pick_part(t, 2 * t->behind, t->length, from, to);
}

void sy_row_spread_add(const struct sy_row_taps *t, const float *from, float weight, float *to)
{
    for (int k = 0; k < t->n; k++)
        pick_add(t->length, t->at[k], t->weights[k], from, weight, to);
}

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
static bool continues(const struct sy_row_taps *t, int64_t q)
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
    if (t->n > 2 || middle < 1 || !continues(t, middle))
        return;
    for (q = middle; q > 1 && continues(t, q - 1); q--)
        ;
    t->first = q;
    for (q = middle + 1; 2 * q + 1 < t->length && continues(t, q); q++)
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

/* ---- pixels, channels last --------------------------------------------------------------------------------- */

#define INLINE static inline __attribute__((always_inline))

/* `n` channels of one pixel: what its sources have, weighed. */
INLINE void mix_some(int64_t n, int n_sources, const float *const *from, const float *weights,
                     float *to)
{
    for (int64_t c = 0; c < n; c++) {
        float sum = weights[0] * from[0][c];
        for (int k = 1; k < n_sources; k++)
            sum += weights[k] * from[k][c];
        to[c] = sum;
    }
}

/* In pieces of constant width: with a dozen channels a loop's vector prologue and tail cost more than its body. */
INLINE void mix_pixel(int64_t channels, int n_sources, const float *const *from,
                      const float *weights, float *to)
{
    const float *at[4];
    for (int k = 0; k < n_sources; k++)
        at[k] = from[k];
    for (int64_t left = channels, done = 0; left > 0; left = channels - done) {
        int64_t n = left >= 16 ? 16 : left >= 8 ? 8 : left >= 4 ? 4 : 1;
        if (n == 16)
            mix_some(16, n_sources, at, weights, to + done);
        else if (n == 8)
            mix_some(8, n_sources, at, weights, to + done);
        else if (n == 4)
            mix_some(4, n_sources, at, weights, to + done);
        else
            mix_some(1, n_sources, at, weights, to + done);
        for (int k = 0; k < n_sources; k++)
            at[k] += n;
        done += n;
    }
}

/* Collects its sources in every line at each tap, without those of weight 0. Returns their number. */
INLINE int pixel_sources(const struct sy_row_taps *t, int64_t i, int64_t channels,
                         const float *from, const struct sy_row_source *lines, int n_lines,
                         const float **at, float *weights)
{
    int n = 0;
    for (int line = 0; line < n_lines; line++)
        for (int k = 0; k < t->n; k++) {
            if (t->weights[k][i] == 0)
                continue;
            at[n] = from + lines[line].offset + t->at[k][i] * channels;
            weights[n++] = (float)lines[line].weight * t->weights[k][i];
        }
    return n;
}

SY_CLONES static void mix_pixels(const struct sy_row_taps *t, int64_t channels, const float *from,
                                 const struct sy_row_source *lines, int n_lines, float *to)
{
    const float *at[4];
    float weights[4];
    for (int64_t i = 0; i < t->length; i++, to += channels) {
        int n = pixel_sources(t, i, channels, from, lines, n_lines, at, weights);
        if (n == 4)
            mix_pixel(channels, 4, at, weights, to);
        else if (n == 2)
            mix_pixel(channels, 2, at, weights, to);
        else if (n == 1 && weights[0] != 1)
            mix_pixel(channels, 1, at, weights, to);
        else if (n == 1)
            memcpy(to, at[0], (size_t)channels * sizeof *to);
        else
            memset(to, 0, (size_t)channels * sizeof *to);
    }
}

void sy_row_mix_pixels(const struct sy_row_taps *t, int64_t channels, const float *from,
                       const struct sy_row_source *lines, int n_lines, float *to)
{
    assert(t->n <= 2 && n_lines <= 2);
    mix_pixels(t, channels, from, lines, n_lines, to);
}

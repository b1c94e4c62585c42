/* Rows of float32 resampled: rows above each other are weighed and summed, results along a row take a few weighted elements each, in
 * loops that vectorise. */
#ifndef SY_WORKERS_HOST_ROWS_RESIZE_ROWS_H
#define SY_WORKERS_HOST_ROWS_RESIZE_ROWS_H

#include <stdint.h>

#define SY_ROW_TAPS 4

/* A row of the input that counts for a row of the result: where it begins. */
struct sy_row_source {
    int64_t offset;
    double weight;
};

/* Taps of each result along a row. */
struct sy_row_taps {
    int64_t length; /* results */
    int n;          /* elements that a result takes, at most; the others weigh 0 and are not read */
    int32_t *at[SY_ROW_TAPS];
    float *weights[SY_ROW_TAPS];
    int64_t first, behind; /* of sy_row_find_pairs */
};

/* Once the rest is filled in: which pairs of results, 2q and 2q + 1, take one element further on what the pair before takes, with its
 * weights, as most do in a row that becomes twice as long. */
void sy_row_find_pairs(struct sy_row_taps *t);
/* to[i] = the sum of from[source's offset + i], at least one source. */
void sy_row_mix(int64_t n, const float *from, const struct sy_row_source *sources, int n_sources,
                float *to);
/* to[i] = the sum of what it takes of `from`. */
void sy_row_spread(const struct sy_row_taps *t, const float *from, float *to);
/* Adds to to[i] the sum that sy_row_spread writes, times `weight`. */
void sy_row_spread_add(const struct sy_row_taps *t, const float *from, float weight, float *to);
/* A row of pixels, channels last: to[i * channels ...] = the sum of what pixel i takes of at most two lines that begin at from[line's offset]. At most two
 * taps. A single one that weighs 1 is copied as it is. */
void sy_row_mix_pixels(const struct sy_row_taps *t, int64_t channels, const float *from,
                       const struct sy_row_source *lines, int n_lines, float *to);

#endif

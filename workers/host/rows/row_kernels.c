#include "workers/host/rows/row_kernels.h"

#include <math.h>
#include <omp.h>
#include <stdbool.h>

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"
#include "workers/host/rows/elementwise.h"

#define PARALLEL_FROM 16384 /* elements; below it waking the threads costs more than they save */

SY_CLONES static float row_sum(const float *x, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* Sums of the distances from `mean` and of their squares. The first would be 0 if `mean` were exact: among almost equal numbers its rounding
 * is as large as the deviations are, so it is taken off again after the subtraction, which is exact there. */
struct distances {
    float sum, squares;
};

SY_CLONES static struct distances row_distances(const float *x, float mean, int64_t n)
{
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum, squares)
    for (int64_t i = 0; i < n; i++) {
        float d = x[i] - mean;
        sum += d;
        squares += d * d;
    }
    return (struct distances){sum, squares};
}

#define STRETCH \
    4096 /* floats that are summed as floats; their sums as doubles: a group may be a whole picture */

static double long_sum(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i += STRETCH)
        sum += (double)row_sum(x + i, SY_MIN(n - i, STRETCH));
    return sum;
}

/* rest: what the mean lacks; square: the mean square of the distances from it. */
struct spread {
    double rest, square;
};

static struct spread spread_around(const float *x, float mean, int64_t n)
{
    struct spread s = {0, 0};
    for (int64_t i = 0; i < n; i += STRETCH) {
        struct distances d = row_distances(x + i, mean, SY_MIN(n - i, STRETCH));
        s.rest += (double)d.sum / (double)n;
        s.square += (double)d.squares / (double)n;
    }
    return s;
}

static double variance_of(const struct spread *s)
{
    double variance = s->square - s->rest * s->rest;
    return variance < 0 ? 0 : variance; /* NaN goes on */
}

/* If the mean's error exceeds the deviation, cancellation leaves hardly a digit: computes again around a better mean. */
static struct spread spread_of(const float *x, float *mean, int64_t n)
{
    struct spread s = spread_around(x, *mean, n);
    if (s.rest * s.rest > variance_of(&s)) {
        *mean += (float)s.rest;
        s = spread_around(x, *mean, n);
    }
    return s;
}

static float rate_of(double variance, float epsilon)
{
    return (float)(1 / sqrt(variance + (double)epsilon));
}

SY_CLONES static void row_normalise(const struct sy_layer_norm *n, const float *x, float mean,
                                    float rest, float rate, float *out)
{
    const float *scale = n->scale, *bias = n->bias;
    for (int64_t i = 0; i < n->columns; i++)
        out[i] = (x[i] - mean - rest) * rate * scale[i] + (bias ? bias[i] : 0);
}

SY_CLONES static void row_add(const float *a, const float *b, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

static void one_row(const struct sy_layer_norm *n, int64_t row)
{
    int64_t columns = n->columns;
    const float *x = n->x + row * columns;
    float *out = n->out + row * columns;
    if (n->skip) {
        float *sum = n->sum ? n->sum + row * columns : out;
        row_add(x, n->skip + row * columns, sum, columns);
        x = sum;
    }
    float mean = n->root ? 0 : (float)(long_sum(x, columns) / (double)columns);
    struct spread s = n->root ? spread_around(x, 0, columns) : spread_of(x, &mean, columns);
    if (n->root)
        row_normalise(n, x, 0, 0, rate_of(s.square, n->epsilon), out);
    else
        row_normalise(n, x, mean, (float)s.rest, rate_of(variance_of(&s), n->epsilon), out);
    if (n->narrow)
        sy_elementwise_narrow(columns, out, n->narrow + row * columns);
}

void sy_row_layer_norm(const struct sy_layer_norm *n)
{
#pragma omp parallel for schedule(static) if (n->rows * n->columns > PARALLEL_FROM)
    for (int64_t row = 0; row < n->rows; row++)
        one_row(n, row);
}

/* ---- group norm ------------------------------------------------------------------------------------------ */

SY_CLONES static void scale_row(const float *x, float mean, float rest, float rate, float shift,
                                float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (x[i] - mean - rest) * rate + shift;
}

/* A group's parts, each summed by one thread; joined in order, so that their number of threads changes no bit. */
enum { GROUP_PARTS = 32 };

static int64_t part_of_group(int64_t n)
{
    return (n + GROUP_PARTS * STRETCH - 1) / (GROUP_PARTS * STRETCH) * STRETCH;
}

static double group_sum(const float *x, int64_t n, bool together)
{
    double sums[GROUP_PARTS], sum = 0;
    int64_t part = part_of_group(n), parts = (n + part - 1) / part;
#pragma omp parallel for schedule(static) if (together)
    for (int64_t k = 0; k < parts; k++)
        sums[k] = long_sum(x + k * part, SY_MIN(part, n - k * part));
    for (int64_t k = 0; k < parts; k++)
        sum += sums[k];
    return sum;
}

static struct spread group_spread_around(const float *x, float mean, int64_t n, bool together)
{
    struct spread spreads[GROUP_PARTS], s = {0, 0};
    int64_t part = part_of_group(n), parts = (n + part - 1) / part;
#pragma omp parallel for schedule(static) if (together)
    for (int64_t k = 0; k < parts; k++)
        spreads[k] = spread_around(x + k * part, mean, SY_MIN(part, n - k * part));
    for (int64_t k = 0; k < parts; k++) { /* each is over the part's own count */
        double share = (double)SY_MIN(part, n - k * part) / (double)n;
        s.rest += spreads[k].rest * share;
        s.square += spreads[k].square * share;
    }
    return s;
}

static struct spread group_spread(const float *x, float *mean, int64_t n, bool together)
{
    struct spread s = group_spread_around(x, *mean, n, together);
    if (s.rest * s.rest > variance_of(&s)) {
        *mean += (float)s.rest;
        s = group_spread_around(x, *mean, n, together);
    }
    return s;
}

/* Rows of all channels. */
SY_CLONES static void scale_pixels(const struct sy_group_norm *n, int64_t pixels, const float *x,
                                   float mean, float rest, float rate, float *out)
{
    for (int64_t i = 0; i < pixels; i++, x += n->channels, out += n->channels)
        for (int64_t c = 0; c < n->channels; c++)
            out[c] = (x[c] - mean - rest) * (rate * n->scale[c]) + n->bias[c];
}

/* together: by all threads, else by the caller's. */
static void one_group(const struct sy_group_norm *n, int64_t k, bool together)
{
    int64_t channels = n->channels / n->groups, group = k % n->groups;
    int64_t first = k * channels * n->spatial, count = channels * n->spatial;
    if (count == 0)
        return;
    float mean = (float)(group_sum(n->x + first, count, together) / (double)count);
    struct spread s = group_spread(n->x + first, &mean, count, together);
    float rate = rate_of(variance_of(&s), n->epsilon);
    if (n->channels_last) {
        int64_t pixels = SY_MAX(1, STRETCH / channels);
#pragma omp parallel for schedule(static) if (together)
        for (int64_t i = 0; i < n->spatial; i += pixels)
            scale_pixels(n, SY_MIN(pixels, n->spatial - i), n->x + first + i * channels, mean,
                         (float)s.rest, rate, n->out + first + i * channels);
        return;
    }
#pragma omp parallel for schedule(static) if (together)
    for (int64_t c = 0; c < channels; c++) {
        int64_t at = n->per_group ? group : group * channels + c, row = first + c * n->spatial;
        scale_row(n->x + row, mean, (float)s.rest, rate * n->scale[at], n->bias[at], n->out + row,
                  n->spatial);
    }
}

/* Where there are fewer groups than threads, all of them compute each: one of 192 channels of 2000 took one thread 0.5 ms. */
void sy_row_group_norm(const struct sy_group_norm *n)
{
    int64_t all = n->images * n->groups, floats = n->images * n->channels * n->spatial;
    if (all < omp_get_max_threads()) {
        for (int64_t k = 0; k < all; k++)
            one_group(n, k, floats > PARALLEL_FROM);
        return;
    }
#pragma omp parallel for schedule(static) if (floats > PARALLEL_FROM)
    for (int64_t k = 0; k < all; k++)
        one_group(n, k, false);
}

/* ---- mean and variance ----------------------------------------------------------------------------------- */

SY_CLONES static double row_sum_double(const float *x, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return sum;
}

SY_CLONES static double row_square_distance_double(const float *x, double mean, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    return sum;
}

SY_CLONES static void scale_row_double(const float *x, double mean, double rate, float *out,
                                       int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(((double)x[i] - mean) * rate);
}

void sy_row_mean_variance(int64_t images, int64_t groups, int64_t inner, const float *x, float *out)
{
    double n = (double)(images * inner);
#pragma omp parallel for schedule(static) if (images * groups * inner > PARALLEL_FROM)
    for (int64_t g = 0; g < groups; g++) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < images; i++)
            sum += row_sum_double(x + (i * groups + g) * inner, inner);
        double mean = sum / n;
        for (int64_t i = 0; i < images; i++)
            squares += row_square_distance_double(x + (i * groups + g) * inner, mean, inner);
        double rate = 1 / (sqrt(squares / n) + 1e-9);
        for (int64_t i = 0; i < images; i++) {
            int64_t at = (i * groups + g) * inner;
            scale_row_double(x + at, mean, rate, out + at, inner);
        }
    }
}

/* ---- batch norm ------------------------------------------------------------------------------------------ */

/* A row of channels: in [rows, channels] each channel has its scale. */
SY_CLONES static void scale_channels(int64_t n, const float *x, const float *scale,
                                     const float *shift, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] * scale[i] + shift[i];
}

/* Without dimensions behind the channels. The scales of CHANNELS_AT_ONCE are computed once for all rows of a piece. */
static void batch_norm_rows(int64_t rows, int64_t channels, float epsilon, const float *const *in,
                            float *out)
{
    enum { CHANNELS_AT_ONCE = 512, ROWS_AT_ONCE = 64 };
    int64_t parts = (channels + CHANNELS_AT_ONCE - 1) / CHANNELS_AT_ONCE,
            pieces = (rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
#pragma omp parallel for schedule(static) if (rows * channels > PARALLEL_FROM)
    for (int64_t piece = 0; piece < pieces * parts; piece++) {
        float scale[CHANNELS_AT_ONCE], shift[CHANNELS_AT_ONCE];
        int64_t first = piece % parts * CHANNELS_AT_ONCE, row = piece / parts * ROWS_AT_ONCE;
        int64_t n = SY_MIN(channels - first, CHANNELS_AT_ONCE);
        for (int64_t i = 0; i < n; i++) {
            scale[i] = in[1][first + i] / sqrtf(in[4][first + i] + epsilon);
            shift[i] = in[2][first + i] - in[3][first + i] * scale[i];
        }
        for (int64_t end = SY_MIN(rows, row + ROWS_AT_ONCE); row < end; row++)
            scale_channels(n, in[0] + row * channels + first, scale, shift,
                           out + row * channels + first);
    }
}

void sy_row_batch_norm(int64_t batch, int64_t channels, int64_t spatial, float epsilon,
                       const float *const *in, float *out)
{
    if (spatial == 1) {
        batch_norm_rows(batch, channels, epsilon, in, out);
        return;
    }
#pragma omp parallel for schedule(static) if (batch * channels * spatial > PARALLEL_FROM)
    for (int64_t row = 0; row < batch * channels; row++) {
        int64_t c = row % channels;
        float rate = in[1][c] / sqrtf(in[4][c] + epsilon), shift = in[2][c] - in[3][c] * rate;
        for (int64_t i = 0; i < spatial; i++)
            out[row * spatial + i] = in[0][row * spatial + i] * rate + shift;
    }
}

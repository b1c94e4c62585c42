#include "workers/host/rows/int8_rows.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"

#define PIECE 16384

SY_CLONES static void copy_flipped(int64_t n, uint8_t flip, const uint8_t *from, uint8_t *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i] ^ flip;
}

/* Row (d, h) of the larger image; NULL: all border. */
static void border_row(const struct sy_border *b, uint8_t zero, const uint8_t *from, uint8_t *to)
{
    int64_t c = b->channels, before = b->before[2] * c, after = SY_MAX(b->after[2], (int64_t)0) * c,
            row = (b->size[2] + SY_MIN(b->after[2], (int64_t)0)) * c;
    if (!from) {
        memset(to, zero, (size_t)(before + row + after));
        return;
    }
    memset(to, zero, (size_t)before);
    copy_flipped(row, (uint8_t)b->flip, from, to + before);
    memset(to + before + row, zero, (size_t)after);
}

void sy_int8_border(const struct sy_border *b, uint8_t zero, const uint8_t *from, uint8_t *to)
{
    int64_t large[3], row = b->size[2] * b->channels;
    for (int i = 0; i < 3; i++)
        large[i] = b->before[i] + b->size[i] + b->after[i];
    int64_t rows = b->images * large[0] * large[1];
#pragma omp parallel for schedule(static) if (rows * large[2] * b->channels > 2 * PIECE)
    for (int64_t i = 0; i < rows; i++) {
        int64_t h = i % large[1] - b->before[1], d = i / large[1] % large[0] - b->before[0],
                image = i / (large[1] * large[0]);
        bool inside = h >= 0 && h < b->size[1] && d >= 0 && d < b->size[0];
        const uint8_t *x = from + ((image * b->size[0] + d) * b->size[1] + h) * row;
        border_row(b, zero, inside ? x : NULL, to + i * large[2] * b->channels);
    }
}

SY_CLONES void sy_int8_range_of(int64_t n, const float *x, float *low, float *high)
{
    enum { LANES = 64 }; /* several vectors, which do not wait for each other */
    float least[LANES] = {0}, largest[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            least[k] = x[i + k] < least[k] ? x[i + k] : least[k];
            largest[k] = x[i + k] > largest[k] ? x[i + k] : largest[k];
        }
    for (; i < n; i++) {
        least[0] = x[i] < least[0] ? x[i] : least[0];
        largest[0] = x[i] > largest[0] ? x[i] : largest[0];
    }
    for (int k = 1; k < LANES; k++) {
        least[0] = SY_MIN(least[0], least[k]);
        largest[0] = SY_MAX(largest[0], largest[k]);
    }
    *low = least[0];
    *high = largest[0];
}

void sy_int8_range(int64_t n, const float *x, float *low, float *high)
{
    float least = 0, largest = 0;
    int64_t pieces = (n + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) reduction(min                    \
                                                    : least) reduction(max \
                                                                       : largest) if (pieces > 1)
    for (int64_t i = 0; i < pieces; i++) {
        float a, b;
        sy_int8_range_of(SY_MIN((int64_t)PIECE, n - i * PIECE), x + i * PIECE, &a, &b);
        least = SY_MIN(least, a);
        largest = SY_MAX(largest, b);
    }
    *low = least;
    *high = largest;
}

void sy_int8_scale_of(float low, float high, float *scale, float *zero)
{
    *scale = (high - low) / 255;
    *scale = *scale == 0 ? 1 : *scale;
    *zero = nearbyintf(fmaxf(0, fminf(255, -low / *scale)));
}

SY_CLONES void sy_int8_quantize(int64_t n, const float *x, float scale, float zero, float low,
                                float high, uint8_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        float value = nearbyintf(x[i] / scale) + zero;
        value = value > high ? high : value >= low ? value : low;
        y[i] = (uint8_t)(int32_t)value;
    }
}

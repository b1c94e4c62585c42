#include "workers/host/rows/channel_rows.h"

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"

enum { PIECE_FLOATS = 4096, SMALL_FLOATS = 16384 };

struct limits {
    float low, high;
};

#define INLINE static inline __attribute__((always_inline))

INLINE float between(float y, struct limits l)
{
    y = y < l.low ? l.low : y;
    return y > l.high ? l.high : y;
}

/* `n` rows of `block` channels. */
INLINE void rows(int64_t n, int64_t block, const float *x, int64_t step, const float *scale,
                 const float *shift, struct limits l, float *out)
{
    for (int64_t p = 0; p < n; p++)
        for (int64_t c = 0; c < block; c++)
            out[p * block + c] = between(x[p * step + c] * scale[c] + shift[c], l);
}

/* Blocks of known width stay in registers. */
SY_CLONES static void some_rows(int64_t n, int64_t block, const float *x, int64_t step,
                                const float *scale, const float *shift, struct limits l, float *out)
{
    if (block == 8)
        rows(n, 8, x, step, scale, shift, l, out);
    else if (block == 16)
        rows(n, 16, x, step, scale, shift, l, out);
    else
        rows(n, block, x, step, scale, shift, l, out);
}

/* One channel, whose pixels follow each other. */
SY_CLONES static void one_channel(int64_t n, const float *x, float scale, float shift,
                                  struct limits l, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = between(x[i] * scale + shift, l);
}

void sy_channel_rows_run(const struct sy_channel_rows *r, const float *x, const float *scale,
                         const float *shift, float low, float high, float *out)
{
    const int64_t piece = SY_MAX(1, PIECE_FLOATS / r->block),
                  pieces = (r->pixels + piece - 1) / piece, n = r->images * r->blocks * pieces;
    const struct limits l = {low, high};
#pragma omp parallel for schedule(static) if (r->images * r->blocks * r->pixels * r->block > \
                                              SMALL_FLOATS)
    for (int64_t i = 0; i < n; i++) {
        int64_t first = i % pieces * piece, b = i / pieces % r->blocks,
                image = i / pieces / r->blocks;
        int64_t some = SY_MIN(piece, r->pixels - first), c = b * r->block;
        const float *from = x + image * r->from_image + b * r->from_block + first * r->from_pixel;
        float *to = out + ((image * r->blocks + b) * r->pixels + first) * r->block;
        if (r->block == 1 && r->from_pixel == 1)
            one_channel(some, from, scale[c], shift[c], l, to);
        else
            some_rows(some, r->block, from, r->from_pixel, scale + c, shift + c, l, to);
    }
}

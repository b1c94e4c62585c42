#include "workers/host/rows/channel_rows.h"

#include <stdbool.h>
#include <string.h>

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
INLINE void rows(int64_t n, int64_t block, const float *x, int64_t from, const float *scale,
                 const float *shift, struct limits l, float *out, int64_t to)
{
    for (int64_t p = 0; p < n; p++)
        for (int64_t c = 0; c < block; c++)
            out[p * to + c] = between(x[p * from + c] * scale[c] + shift[c], l);
}

/* Blocks of known width stay in registers. */
SY_CLONES static void some_rows(int64_t n, int64_t block, const float *x, int64_t from,
                                const float *scale, const float *shift, struct limits l, float *out,
                                int64_t to)
{
    if (block == 8)
        rows(n, 8, x, from, scale, shift, l, out, to);
    else if (block == 16)
        rows(n, 16, x, from, scale, shift, l, out, to);
    else
        rows(n, block, x, from, scale, shift, l, out, to);
}

/* One channel, whose pixels follow each other. */
SY_CLONES static void one_channel(int64_t n, const float *x, float scale, float shift,
                                  struct limits l, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = between(x[i] * scale + shift, l);
}

/* Some pixels of a block of an image, small enough for a core's first cache; n_pieces of them are all. */
struct piece {
    int64_t from, to, n, channel;
};

static int64_t piece_pixels(const struct sy_channel_rows *r)
{
    return SY_MAX(1, PIECE_FLOATS / r->block);
}

static int64_t n_pieces(const struct sy_channel_rows *r)
{
    int64_t pixels = piece_pixels(r);
    return r->images * r->blocks * ((r->pixels + pixels - 1) / pixels);
}

static bool is_large(const struct sy_channel_rows *r)
{
    return r->images * r->blocks * r->pixels * r->block > SMALL_FLOATS;
}

static struct piece piece_at(const struct sy_channel_rows *r, int64_t i)
{
    int64_t pixels = piece_pixels(r), pieces = (r->pixels + pixels - 1) / pixels;
    int64_t first = i % pieces * pixels, b = i / pieces % r->blocks, image = i / pieces / r->blocks;
    return (struct piece){.from = image * r->from_image + b * r->from_block + first * r->from_pixel,
                          .to = image * r->to_image + b * r->to_block + first * r->to_pixel,
                          .n = SY_MIN(pixels, r->pixels - first),
                          .channel = b * r->block};
}

/* A matrix, or images of one pixel: row-major is channels last too, and a channel by itself would be a loop of one. */
static struct sy_channel_rows without_pixels(const struct sy_channel_rows *r)
{
    if (r->block != 1 || r->pixels != 1 || r->from_block != 1 || r->to_block != 1)
        return *r;
    return (struct sy_channel_rows){.images = 1,
                                    .blocks = 1,
                                    .pixels = r->images,
                                    .block = r->blocks,
                                    .from_pixel = r->from_image,
                                    .to_pixel = r->to_image};
}

void sy_channel_rows_run(const struct sy_channel_rows *as_given, const float *x, const float *scale,
                         const float *shift, float low, float high, float *out)
{
    const struct limits l = {low, high};
    const struct sy_channel_rows seen = without_pixels(as_given), *r = &seen;
#pragma omp parallel for schedule(static) if (is_large(r))
    for (int64_t i = 0; i < n_pieces(r); i++) {
        const struct piece p = piece_at(r, i);
        const float *by = scale + p.channel, *plus = shift + p.channel;
        if (r->block == 1 && r->from_pixel == 1 && r->to_pixel == 1)
            one_channel(p.n, x + p.from, *by, *plus, l, out + p.to);
        else
            some_rows(p.n, r->block, x + p.from, r->from_pixel, by, plus, l, out + p.to,
                      r->to_pixel);
    }
}

void sy_channel_rows_copy(const struct sy_channel_rows *as_given, const float *x, float *out)
{
    const struct sy_channel_rows seen = without_pixels(as_given), *r = &seen;
    bool whole = r->from_pixel == r->block && r->to_pixel == r->block;
    const size_t row = (size_t)r->block * sizeof *x;
#pragma omp parallel for schedule(static) if (is_large(r))
    for (int64_t i = 0; i < n_pieces(r); i++) {
        const struct piece p = piece_at(r, i);
        if (whole)
            memcpy(out + p.to, x + p.from, (size_t)p.n * row);
        for (int64_t k = 0; k < p.n && !whole; k++)
            memcpy(out + p.to + k * r->to_pixel, x + p.from + k * r->from_pixel, row);
    }
}

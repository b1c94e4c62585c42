#include "workers/host/products/depthwise.h"

#include <immintrin.h>

#include "runtime/base/assert.h"
#include "workers/host/rows/curve_rows.h"

#define AVX512   __attribute__((target("avx512f")))
#define UNROLLED _Pragma("GCC unroll 4") /* otherwise the sums would be in memory */
#define INLINE   static inline __attribute__((always_inline, target("avx512f")))

enum { LANES = SY_DEPTHWISE_LANES, PIXELS = 4, VECTORS = 4 };
/* Floats of the result per piece: with its source rows in the second-level cache, and few reads of the weights. */
enum { FLOATS_AT_ONCE = 16 << 10 };

/* Source of a tile: taps [from, to) of rows and columns, and the position of the first of each. */
struct window {
    int64_t rows[2], columns[2];
    const float *src; /* position of tap (0, 0), perhaps outside */
    int64_t row_step, column_step,
        pixel_step; /* in floats: between taps, between pixels of the result */
    const float *weights;
    int64_t weights_columns; /* taps of a row of the window */
    int64_t block_step;      /* in floats: weights of a block of 16 channels */
    int64_t vector_step, dst_vector_step, dst_pixel_step; /* to the next 16 channels */
};

/* Floats from a pixel to the next, and from 16 channels to the next. */
static int64_t pixel_step(const struct sy_depthwise *d)
{
    return d->is_blocked ? LANES : d->channels;
}

static int64_t vector_step(const struct sy_depthwise *d, int64_t height, int64_t width)
{
    return d->is_blocked ? height * width * LANES : LANES;
}

INLINE __m512 load(__mmask16 mask, const float *from)
{
    return mask == 0xffff ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(mask, from);
}

/* `pixels` and `vectors` are known to the compiler: the sums stay in registers. The mask is that of the last vector. */
INLINE void tile(int pixels, int vectors, __mmask16 mask, const struct window *w, const float *bias,
                 float *dst)
{
    __m512 sum[PIXELS][VECTORS];
    UNROLLED
    for (int v = 0; v < vectors; v++) {
        __mmask16 m = v + 1 == vectors ? mask : 0xffff;
        __m512 start = bias ? load(m, bias + v * LANES) : _mm512_setzero_ps();
        UNROLLED
        for (int x = 0; x < pixels; x++)
            sum[x][v] = start;
    }
    for (int64_t r = w->rows[0]; r < w->rows[1]; r++)
        for (int64_t c = w->columns[0]; c < w->columns[1]; c++) {
            const float *src = w->src + r * w->row_step + c * w->column_step;
            const float *weights = w->weights + (r * w->weights_columns + c) * LANES;
            UNROLLED
            for (int v = 0; v < vectors; v++) {
                __mmask16 m = v + 1 == vectors ? mask : 0xffff;
                __m512 factor = _mm512_load_ps(weights + v * w->block_step);
                UNROLLED
                for (int x = 0; x < pixels; x++)
                    sum[x][v] = _mm512_fmadd_ps(
                        factor, load(m, src + x * w->pixel_step + v * w->vector_step), sum[x][v]);
            }
        }
    UNROLLED
    for (int x = 0; x < pixels; x++)
        UNROLLED
    for (int v = 0; v < vectors; v++)
        _mm512_mask_storeu_ps(dst + x * w->dst_pixel_step + v * w->dst_vector_step,
                              v + 1 == vectors ? mask : 0xffff, sum[x][v]);
}

INLINE void tile_of(int pixels, int64_t vectors, __mmask16 mask, const struct window *w,
                    const float *bias, float *dst)
{
    if (mask != 0xffff)
        tile(pixels, 1, mask, w, bias, dst);
    else if (vectors == 4)
        tile(pixels, 4, 0xffff, w, bias, dst);
    else if (vectors == 2)
        tile(pixels, 2, 0xffff, w, bias, dst);
    else
        tile(pixels, 1, 0xffff, w, bias, dst);
}

/* Taps [from, to) of the `kernel` that lie within [0, size) if the first one lies at `first`. */
static void clip_taps(int64_t first, int64_t dilation, int64_t kernel, int64_t size, int64_t *taps)
{
    taps[0] = first < 0 ? (-first + dilation - 1) / dilation : 0;
    taps[1] = first >= size ? 0 : SY_MIN(kernel, (size - 1 - first) / dilation + 1);
    taps[0] = SY_MIN(taps[0], kernel);
    taps[1] = SY_MAX(taps[1], taps[0]);
}

/* Computes a row of some channels: `vectors` of 16, or as many as the mask has. */
AVX512 static void row_of(const struct sy_depthwise *d, struct window *w, int64_t vectors,
                          __mmask16 mask, const float *bias, const float *src, float *dst)
{
    int64_t extent = (d->kernel[1] - 1) * d->dilations[1] + 1;
    for (int64_t x = 0; x < d->out_width;) {
        int64_t first = x * d->strides[1] - d->pad_left;
        w->src = src + first * pixel_step(d);
        clip_taps(first, d->dilations[1], d->kernel[1], d->width, w->columns);
        bool is_whole = first >= 0 && x + PIXELS <= d->out_width &&
                        first + (PIXELS - 1) * d->strides[1] + extent <= d->width;
        if (is_whole)
            tile_of(PIXELS, vectors, mask, w, bias, dst + x * w->dst_pixel_step);
        else
            tile_of(1, vectors, mask, w, bias, dst + x * w->dst_pixel_step);
        x += is_whole ? PIXELS : 1;
    }
}

/* Computes all rows of channels from `channel` on, as many vectors as a tile has. Returns the number of channels. */
AVX512 static int64_t channels_of(const struct sy_depthwise *d, int64_t channel,
                                  const struct sy_depthwise_rows *rows)
{
    int64_t left = d->channels - channel, taps = d->kernel[0] * d->kernel[1];
    int64_t vectors = left >= 4 * LANES ? 4 : left >= 2 * LANES ? 2 : 1;
    __mmask16 mask = left < LANES ? (__mmask16)((1u << left) - 1) : 0xffff;
    int64_t pixel = pixel_step(d), row = d->width * pixel;
    struct window w = {.row_step = d->dilations[0] * row,
                       .column_step = d->dilations[1] * pixel,
                       .pixel_step = d->strides[1] * pixel,
                       .vector_step = vector_step(d, d->height, d->width),
                       .weights = rows->weights + channel * taps,
                       .weights_columns = d->kernel[1],
                       .block_step = taps * LANES,
                       .dst_pixel_step = pixel,
                       .dst_vector_step = vector_step(d, d->out_height, d->out_width)};
    const float *src = rows->src + channel / LANES * w.vector_step;
    float *dst = rows->dst + channel / LANES * w.dst_vector_step;
    for (int64_t y = 0; y < rows->n; y++) {
        int64_t first = y * d->strides[0] - rows->pad_top;
        clip_taps(first, d->dilations[0], d->kernel[0], rows->n_src, w.rows);
        row_of(d, &w, vectors, mask, rows->bias ? rows->bias + channel : NULL, src + first * row,
               dst + y * d->out_width * pixel);
    }
    return SY_MIN(vectors * LANES, left);
}

static void curve(const struct sy_depthwise *d, float *dst, int64_t n)
{
    int64_t floats = n * d->out_width * pixel_step(d);
    int64_t parts = d->is_blocked ? d->channels / LANES : 1;
    for (int64_t i = 0; i < parts; i++) {
        float *at = dst + i * vector_step(d, d->out_height, d->out_width);
        sy_curve_rows_here(&d->curve, floats, at, at);
    }
}

void sy_depthwise_run(const struct sy_depthwise *d, const struct sy_depthwise_rows *rows)
{
    int64_t step = SY_MAX(1, FLOATS_AT_ONCE / (d->out_width * d->channels));
    for (int64_t y = 0; y < rows->n; y += step) {
        struct sy_depthwise_rows some = *rows;
        int64_t first = y * d->strides[0] - rows->pad_top, above = SY_MAX(first, 0);
        some.n = SY_MIN(step, rows->n - y);
        some.src = rows->src + above * d->width * pixel_step(d);
        some.n_src = rows->n_src - above;
        some.pad_top = SY_MAX(-first, 0);
        some.dst = rows->dst + y * d->out_width * pixel_step(d);
        for (int64_t channel = 0; channel < d->channels;)
            channel += channels_of(d, channel, &some);
        if (d->is_curved)
            curve(d, some.dst, some.n);
    }
}

/* Winograd's loops with vectors of LANES floats, as wide as the instructions that they are compiled for, since GCC keeps wider ones in memory.
 * Included once by a file for each width, which says LANES, ROWS, COMPILED (the attribute) and the name of the KERNELS. */
#ifndef LANES
#define LANES 8
#define ROWS  6
#define COMPILED
#define KERNELS winograd_kernels_8
#endif
#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/products/winograd_internal.h"

enum { SIDE = WINOGRAD_SIDE, PLACES = WINOGRAD_PLACES, VECTORS = 2, PANEL = LANES * VECTORS };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));
typedef int32_t mask __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef uint16_t halves __attribute__((vector_size(LANES * sizeof(uint16_t)), aligned(2)));

#define INLINE static inline __attribute__((always_inline))

/* ---- transforms ------------------------------------------------------------------------------------------- */

/* By reference: vectors as arguments are not the same in all CPU classes. */
INLINE void load(lanes *x, const float *from, int64_t n)
{
    if (n >= LANES) {
        memcpy(x, from, sizeof *x);
    } else {
        *x = (lanes){0};
        memcpy(x, from, (size_t)n * sizeof *from);
    }
}

INLINE void load_narrow(lanes *x, const uint16_t *from, int64_t n)
{
    halves h = {0};
    memcpy(&h, from, n >= LANES ? sizeof h : (size_t)n * sizeof *from);
    mask bits = __builtin_convertvector(h, mask) << 16;
    memcpy(x, &bits, sizeof *x);
}

INLINE void store(float *to, const lanes *x, int64_t n)
{
    if (n >= LANES)
        memcpy(to, x, sizeof *x);
    else
        memcpy(to, x, (size_t)n * sizeof *to);
}

INLINE void weights_line(const lanes *g, int step, lanes *u, int to_step)
{
    lanes ends = (g[0] + g[2 * step]) * 0.5f, middle = g[step] * 0.5f;
    u[0] = g[0];
    u[to_step] = ends + middle;
    u[2 * to_step] = ends - middle;
    u[3 * to_step] = g[2 * step];
}

/* Filters from `f` on of channel `c`: 3x3 -> 4x4, places lie `place` apart. */
INLINE void some_weights(const struct sy_winograd_plain *plain, int64_t f, int64_t n, int64_t c,
                         int64_t place, float *to)
{
    int64_t at = f / plain->filters * plain->filter_step + f % plain->filters +
                 c / plain->channels * plain->channel_step + c % plain->channels * plain->filters;
    lanes g[9], half[SIDE * 3], u[PLACES];
    const char *from = (const char *)plain->at;
    const int64_t bytes = plain->narrow ? sizeof(uint16_t) : sizeof(float);
    for (int i = 0; i < 9; i++, at += plain->tap_step) {
        __builtin_prefetch(from + (at + plain->channel_step) * bytes); /* the next block's */
        if (plain->narrow)
            load_narrow(&g[i], (const uint16_t *)plain->at + at, n);
        else
            load(&g[i], (const float *)plain->at + at, n);
    }
    for (int x = 0; x < 3; x++)
        weights_line(g + x, 3, half + x, 3);
    for (int y = 0; y < SIDE; y++)
        weights_line(half + 3 * y, 1, u + SIDE * y, 1);
    for (int e = 0; e < PLACES; e++)
        store(to + e * place, &u[e], LANES);
}

COMPILED static void panel_weights(const struct sy_winograd *w,
                                   const struct sy_winograd_plain *plain, int64_t panel,
                                   int64_t first, int64_t n, int64_t place, float *to)
{
    for (int64_t c = first; c < first + n; c++)
        for (int64_t v = 0; v < PANEL; v += LANES) {
            int64_t f = SY_MIN(panel * PANEL + v, w->filters), left = w->filters - f;
            if (left >= LANES)
                some_weights(plain, f, LANES, c, place, to + c * PANEL + v);
            else
                some_weights(plain, f, left, c, place, to + c * PANEL + v);
        }
}

INLINE void source_line(const lanes *d, int step, lanes *v)
{
    v[0] = d[0] - d[2 * step];
    v[step] = d[step] + d[2 * step];
    v[2 * step] = d[2 * step] - d[step];
    v[3 * step] = d[step] - d[3 * step];
}

/* The first pixel of tile `t`, in the result. */
struct place {
    int64_t image, y, x;
};

INLINE struct place tile_place(const struct sy_winograd *w, int64_t t)
{
    int64_t across = (w->out_width + 1) / 2, down = (w->out_height + 1) / 2;
    return (struct place){t / across / down, t / across % down * 2, t % across * 2};
}

/* Channels [c, c + n), at most LANES. Pixels that are NULL are zero. */
INLINE void some_channels(const struct sy_winograd *w, const float *const *pixels, int64_t c,
                          int64_t n, float *v, int64_t place)
{
    int64_t at = w->blocked ? c * w->height * w->width : c;
    lanes d[PLACES], half[PLACES], out[PLACES];
    for (int i = 0; i < PLACES; i++)
        if (pixels[i])
            load(&d[i], pixels[i] + at, n);
        else
            d[i] = (lanes){0};
    for (int x = 0; x < SIDE; x++)
        source_line(d + x, SIDE, half + x);
    for (int y = 0; y < SIDE; y++)
        source_line(half + SIDE * y, 1, out + SIDE * y);
    for (int e = 0; e < PLACES; e++)
        store(v + e * place + c, &out[e], LANES);
}

INLINE void tile_in(const struct sy_winograd *w, const float *const *pixels, float *v,
                    int64_t place)
{
    int64_t c = 0;
    for (; c + LANES <= w->channels; c += LANES)
        some_channels(w, pixels, c, LANES, v, place);
    if (c < w->channels)
        some_channels(w, pixels, c, w->channels - c, v, place);
}

COMPILED static void tiles_in(const struct sy_winograd *w, const float *src, int64_t first,
                              int64_t n, int64_t row, float *v)
{
    int64_t pixel = w->blocked ? LANES : w->channels;
    for (int64_t t = 0; t < n; t++) {
        struct place p = tile_place(w, first + t);
        const float *image = src + p.image * w->height * w->width * w->channels;
        const float *pixels[PLACES];
        for (int i = 0; i < PLACES; i++) {
            int64_t y = p.y - w->pad_top + i / SIDE, x = p.x - w->pad_left + i % SIDE;
            bool inside = y >= 0 && y < w->height && x >= 0 && x < w->width;
            pixels[i] = inside ? image + (y * w->width + x) * pixel : NULL;
        }
        tile_in(w, pixels, v + t * row, n * row);
    }
}

INLINE void result_line(const lanes *m, int step, lanes *out, int to_step)
{
    lanes sum = m[step] + m[2 * step], difference = m[step] - m[2 * step];
    out[0] = m[0] + sum;
    out[to_step] = difference - m[3 * step];
}

INLINE void finish(const struct sy_winograd *w, lanes *x, const float *dst, int64_t n)
{
    lanes before = {0}, low = w->low - (lanes){0}, high = w->high - (lanes){0};
    if (w->adds)
        load(&before, dst, n);
    *x += before;
    mask less = *x<low, more = *x> high; /* NaN stays NaN */
    *x = (lanes)((less & (mask)low) | (more & (mask)high) | (~(less | more) & (mask)*x));
}

/* Filters [f, f + n) of one tile, at most LANES. */
INLINE void tile_out(const struct sy_winograd *w, struct place p, int64_t f, int64_t n,
                     const float *m, int64_t place, const float *bias, float *dst)
{
    int64_t pixels = w->out_height * w->out_width;
    int64_t pixel = w->blocked ? LANES : w->filters;
    dst += p.image * pixels * w->filters + (w->blocked ? f * pixels : f);
    lanes in[PLACES], half[2 * SIDE], out[4], plus = {0};
    if (bias)
        load(&plus, bias + f, n);
    for (int e = 0; e < PLACES; e++)
        load(&in[e], m + e * place, LANES);
    for (int x = 0; x < SIDE; x++)
        result_line(in + x, SIDE, half + x, SIDE);
    for (int y = 0; y < 2; y++)
        result_line(half + SIDE * y, 1, out + 2 * y, 1);
    for (int i = 0; i < 4; i++) {
        int64_t y = p.y + i / 2, x = p.x + i % 2;
        float *to = dst + (y * w->out_width + x) * pixel;
        if (y >= w->out_height || x >= w->out_width)
            continue;
        out[i] += plus;
        finish(w, &out[i], to, n);
        store(to, &out[i], n);
    }
}

COMPILED static void tiles_out(const struct sy_winograd *w, int64_t first, int64_t n, int64_t f,
                               const float *m, const float *bias, float *dst)
{
    for (int64_t t = 0; t < n; t++) {
        struct place p = tile_place(w, first + t);
        for (int64_t v = 0; v < PANEL && f + v < w->filters; v += LANES) {
            const float *from = m + t * PANEL + v;
            int64_t left = w->filters - f - v;
            if (left >= LANES)
                tile_out(w, p, f + v, LANES, from, n * PANEL, bias, dst);
            else
                tile_out(w, p, f + v, left, from, n * PANEL, bias, dst);
        }
    }
}

/* ---- products --------------------------------------------------------------------------------------------- */

/* `rows` is known to the compiler: the sums stay in registers. */
INLINE void some_rows(int rows, int64_t k, const float *a, int64_t lda, const lanes *b, float *c)
{
    lanes sum[ROWS][VECTORS] = {0};
    for (int64_t i = 0; i < k; i++) {
        lanes x = b[i * VECTORS], y = b[i * VECTORS + 1];
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            sum[r][0] += x * a[r * lda + i];
            sum[r][1] += y * a[r * lda + i];
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        memcpy(c + r * PANEL, sum[r], sizeof sum[r]);
}

#define SOME_ROWS(rows)                   \
    case rows:                            \
        some_rows(rows, k, a, lda, b, c); \
        break;

INLINE void up_to_rows(int64_t rows, int64_t k, const float *a, int64_t lda, const lanes *b,
                       float *c)
{
    switch (rows) {
        SOME_ROWS(1)
        SOME_ROWS(2)
        SOME_ROWS(3)
        SOME_ROWS(4)
        SOME_ROWS(5)
        SOME_ROWS(6)
#if ROWS > 6
        SOME_ROWS(7)
        SOME_ROWS(8)
        SOME_ROWS(9)
        SOME_ROWS(10)
        SOME_ROWS(11)
        SOME_ROWS(12)
#endif
    }
}

/* Rows in groups of nearly the same size. */
COMPILED static void product(int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                             float *c)
{
    int64_t groups = (n + ROWS - 1) / ROWS;
    for (int64_t g = 0; g < groups; g++) {
        int64_t from = n * g / groups, to = n * (g + 1) / groups;
        up_to_rows(to - from, k, a + from * lda, lda, (const lanes *)b, c + from * PANEL);
    }
}

const struct winograd_kernels KERNELS = {.lanes = LANES,
                                         .panel = PANEL,
                                         .rows = ROWS,
                                         .weights = panel_weights,
                                         .tiles_in = tiles_in,
                                         .tiles_out = tiles_out,
                                         .product = product};

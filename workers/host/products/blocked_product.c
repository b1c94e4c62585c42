#include "workers/host/products/blocked_product.h"

#include <omp.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "workers/host/rows/elementwise.h"

/* CACHED_BYTES: bytes of x that stay in the second-level cache while weights stream through it. */
enum { LANES = 8, COLUMNS = 2 * LANES, ROWS = 6, DEPTH = 384, CACHED_BYTES = 512 << 10 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

#define INLINE static inline __attribute__((always_inline))
#define AVX2   __attribute__((target("avx2,fma")))

int64_t sy_blocked_elements(int64_t k, int64_t n)
{
    return SY_ALIGN_UP(n, (int64_t)COLUMNS) * k;
}

void sy_blocked_pack(int64_t k, int64_t n, const float *w, float *to)
{
    for (int64_t first = 0; first < n; first += COLUMNS)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = first; j < first + COLUMNS; j++)
                *to++ = j < n ? w[i * n + j] : 0.0f;
}

void sy_blocked_unpack(int64_t k, int64_t n, const void *w, bool narrow, float *to)
{
    int64_t panels = (n + COLUMNS - 1) / COLUMNS, bytes = narrow ? sizeof(uint16_t) : sizeof(float);
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < panels; p++) {
        int64_t first = p * COLUMNS, width = SY_MIN(n - first, (int64_t)COLUMNS);
        const char *from = (const char *)w + p * k * COLUMNS * bytes;
        for (int64_t i = 0; i < k; i++, from += COLUMNS * bytes)
            if (narrow)
                sy_elementwise_widen(width, (const void *)from, to + i * n + first);
            else
                memcpy(to + i * n + first, from, (size_t)width * sizeof *to);
    }
}

/* ---- rows of x ------------------------------------------------------------------------------------------------- */

/* Tile `t` of x is rows [tile_row(t), tile_row(t + 1)): tiles are as even as they can be. */
static int64_t n_tiles(const struct sy_blocked_product *b)
{
    return (b->m + ROWS - 1) / ROWS;
}

static int64_t tile_row(const struct sy_blocked_product *b, int64_t t)
{
    return b->m * t / n_tiles(b);
}

/* Gathers a tile in the scratch memory: [k][rows]. */
static void put_together(const struct sy_blocked_product *b, int64_t t)
{
    int64_t row = tile_row(b, t), rows = tile_row(b, t + 1) - row;
    const float *from = b->x + row * b->x_row;
    float *to = b->scratch + row * b->k;
    for (int64_t i = 0; i < b->k; i++)
        for (int64_t r = 0; r < rows; r++)
            *to++ = from[r * b->x_row + i * b->x_column];
}

/* ---- a tile and a block -------------------------------------------------------------------------------------------- */

/* Destination of the sums: y, `width` columns of it, to which y times a scale and the bias are added. */
struct corner {
    float *y;
    int64_t stride, width;
    const float *bias; /* or NULL */
    float y_scale;
};

INLINE void finish_row(const struct corner *to, int r, const lanes *sum)
{
    float edge[COLUMNS], *y = to->y + r * to->stride;
    lanes total[2];
    memcpy(total, sum, sizeof total);
    if (to->width == COLUMNS) {
        for (int v = 0; v < 2; v++) {
            if (to->y_scale != 0)
                total[v] += to->y_scale * *(const lanes *)(y + v * LANES);
            if (to->bias)
                total[v] += *(const lanes *)(to->bias + v * LANES);
            *(lanes *)(y + v * LANES) = total[v];
        }
        return;
    }
    memcpy(edge, total, sizeof edge);
    for (int64_t j = 0; j < to->width; j++)
        y[j] =
            (edge[j] + (to->y_scale != 0 ? to->y_scale * y[j] : 0)) + (to->bias ? to->bias[j] : 0);
}

/* `rows` is known to the compiler: the sums stay in registers. */
INLINE void multiply_rows(int rows, int64_t k, const float *x, const float *w,
                          const struct corner *to)
{
    lanes sum[ROWS][2];
    for (int r = 0; r < rows; r++)
        __builtin_prefetch(to->y + r * to->stride, 1);
    for (int r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = (lanes){0};
    for (int64_t i = 0; i < k; i++) {
        lanes left = *(const lanes *)(w + i * COLUMNS);
        lanes right = *(const lanes *)(w + i * COLUMNS + LANES);
        for (int r = 0; r < rows; r++) {
            sum[r][0] += left * x[i * rows + r];
            sum[r][1] += right * x[i * rows + r];
        }
    }
    for (int r = 0; r < rows; r++)
        finish_row(to, r, sum[r]);
}

AVX2 static void multiply(int64_t rows, int64_t k, const float *x, const float *w,
                          const struct corner *to)
{
    switch (rows) {
    case 6:
        multiply_rows(6, k, x, w, to);
        return;
    case 5:
        multiply_rows(5, k, x, w, to);
        return;
    case 4:
        multiply_rows(4, k, x, w, to);
        return;
    case 3:
        multiply_rows(3, k, x, w, to);
        return;
    case 2:
        multiply_rows(2, k, x, w, to);
        return;
    default:
        multiply_rows(1, k, x, w, to);
    }
}

/* ---- a thread's share ------------------------------------------------------------------------------------------------ */

struct share {
    const struct sy_blocked_product *b;
    int64_t tile, end_tile, panel, end_panel;
};

/* The panel's rows from k = `first` on. */
static const char *block_at(const struct sy_blocked_product *b, int64_t panel, int64_t first)
{
    int64_t bytes = b->narrow ? sizeof(uint16_t) : sizeof(float);
    return (const char *)b->w + (panel * b->k + first) * COLUMNS * bytes;
}

/* As floats. */
static const float *block_of(const struct sy_blocked_product *b, int64_t panel, int64_t first,
                             int64_t depth, float *room)
{
    const void *at = block_at(b, panel, first);
    if (!b->narrow)
        return at;
    sy_elementwise_widen(depth * COLUMNS, at, room);
    return room;
}

/* Prefetches bytes [from, to) of the next block into the second-level cache. */
static void fetch(const char *next, int64_t from, int64_t to)
{
    for (int64_t at = from; at < to; at += 64)
        __builtin_prefetch(next + at, 0, 2);
}

/* `next`: the address of the following block, or NULL. */
static void multiply_block(const struct share *s, int64_t panel, int64_t first, const char *next)
{
    const struct sy_blocked_product *b = s->b;
    _Alignas(64) float room[DEPTH * COLUMNS];
    int64_t depth = SY_MIN(b->k - first, (int64_t)DEPTH), column = panel * COLUMNS;
    const float *w = block_of(b, panel, first, depth, room);
    struct corner to = {.stride = b->n,
                        .width = SY_MIN(b->n - column, (int64_t)COLUMNS),
                        .bias = b->bias && first == 0 ? b->bias + column : NULL,
                        .y_scale = first > 0 ? 1 : b->y_scale};
    int64_t tiles = s->end_tile - s->tile, bytes = next ? depth * COLUMNS * (b->narrow ? 2 : 4) : 0;
    for (int64_t t = s->tile; t < s->end_tile; t++) {
        int64_t row = tile_row(b, t), rows = tile_row(b, t + 1) - row;
        to.y = b->y + row * b->n + column;
        fetch(next, bytes * (t - s->tile) / tiles / 64 * 64,
              bytes * (t + 1 - s->tile) / tiles / 64 * 64);
        multiply(rows, depth, b->scratch + row * b->k + first * rows, w, &to);
    }
}

/* Multiplies tiles that stay in the cache: with the whole k if it fits, so that w is read in one pass; else block by block. */
static void multiply_tiles(const struct share *s, bool whole)
{
    const struct sy_blocked_product *b = s->b;
    int64_t k = b->k, last = s->end_panel - 1;
    for (int64_t panel = s->panel; whole && panel <= last; panel++)
        for (int64_t first = 0; first < k; first += DEPTH)
            multiply_block(s, panel, first,
                           panel < last ? block_at(b, panel, first + DEPTH) : NULL);
    for (int64_t first = 0; !whole && first < k; first += DEPTH)
        for (int64_t panel = s->panel; panel <= last; panel++)
            multiply_block(s, panel, first, panel < last ? block_at(b, panel + 1, first) : NULL);
}

static void multiply_share(const struct share *s)
{
    int64_t k = s->b->k, tiles = s->end_tile - s->tile;
    int64_t tile_bytes = ROWS * (int64_t)sizeof(float);
    bool whole = tiles * tile_bytes * k <= CACHED_BYTES;
    int64_t most = whole ? tiles : CACHED_BYTES / (tile_bytes * DEPTH);
    for (int64_t t = s->tile; t < s->end_tile; t += most) {
        struct share some = *s;
        some.tile = t;
        some.end_tile = SY_MIN(t + most, s->end_tile);
        multiply_tiles(&some, whole);
    }
}

/* Threads divide the panels among them; if there are too few, the rows. */
static void multiply_part(const struct sy_blocked_product *b, int64_t part, int64_t parts)
{
    int64_t tiles = n_tiles(b), panels = (b->n + COLUMNS - 1) / COLUMNS;
    struct share s = {.b = b, .end_tile = tiles, .end_panel = panels};
    if (panels >= parts) {
        s.panel = panels * part / parts;
        s.end_panel = panels * (part + 1) / parts;
    } else {
        s.tile = tiles * part / parts;
        s.end_tile = tiles * (part + 1) / parts;
    }
    if (s.tile < s.end_tile)
        multiply_share(&s);
}

void sy_blocked_product_run(const struct sy_blocked_product *b)
{
    const int64_t least = 1 << 18; /* multiplications that justify waking the other threads */
    int64_t tiles = n_tiles(b);
#pragma omp parallel if (b->m * b->k * b->n >= least)
    {
#pragma omp for schedule(static)
        for (int64_t t = 0; t < tiles; t++)
            put_together(b, t);
        multiply_part(b, omp_get_thread_num(), omp_get_num_threads());
    }
}

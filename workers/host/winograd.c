#include "workers/host/winograd.h"

#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "workers/host/clones.h"

/* PLACES of a transformed tile; a panel: so many filters, their sums for ROWS tiles are in registers. */
enum { SIDE = 4, PLACES = SIDE * SIDE, LANES = 16, VECTORS = 2, PANEL = LANES * VECTORS };
enum { ROWS = 12, MOST_TILES = 10 * ROWS };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));
typedef int32_t mask __attribute__((vector_size(LANES * sizeof(int32_t))));

#define INLINE static inline __attribute__((always_inline))

/* Measured on a core with AVX-512, in its multiplications (57 a nanosecond): a tile's channel takes 4 ns where images pass the caches; a weight 16 ns, and
 * products with weights that pass them take longer. With 32 channels it was slower. */
struct sy_winograd_limits sy_winograd_limits = {
    .least_channels = 64, .a_weight = 1300, .a_channel = 220};

static int64_t n_tiles(const struct sy_winograd *w)
{
    return w->images * ((w->out_height + 1) / 2) * ((w->out_width + 1) / 2);
}

bool sy_winograd_is_gain(const struct sy_winograd *w)
{
    const struct sy_winograd_limits *l = &sy_winograd_limits;
    double pairs = (double)w->channels * (double)w->filters, tiles = (double)n_tiles(w);
    double plain = 9.0 * (double)(w->images * w->out_height * w->out_width) * pairs;
    double ours = PLACES * tiles * pairs + (double)l->a_weight * pairs +
                  (double)l->a_channel * tiles * (double)(w->channels + w->filters);
    __builtin_cpu_init();
    return l->always || (SY_MIN(w->channels, w->filters) >= l->least_channels &&
                         ours < 0.95 * plain && __builtin_cpu_supports("avx512f"));
}

/* ---- sizes ------------------------------------------------------------------------------------------------ */

/* Of a transformed tile's row of channels. Not a power of two: twelve of them are read beside each other. */
static int64_t row_floats(const struct sy_winograd *w)
{
    return SY_ALIGN_UP(w->channels, LANES) + LANES;
}

/* Of a block: what is transformed takes half of the second cache, and the weights pass by. */
static int64_t block_tiles(const struct sy_winograd *w)
{
    long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    int64_t bytes = cache > 0 ? cache / 2 : 256 << 10;
    int64_t tiles = bytes / (PLACES * (int64_t)sizeof(float) * (row_floats(w) + PANEL));
    return SY_MAX(ROWS, SY_MIN(tiles / ROWS * ROWS, MOST_TILES));
}

static int64_t n_panels(const struct sy_winograd *w)
{
    return (w->filters + PANEL - 1) / PANEL;
}

int64_t sy_winograd_weights_floats(const struct sy_winograd *w)
{
    return n_panels(w) * PLACES * w->channels * PANEL;
}

int64_t sy_winograd_scratch_floats(const struct sy_winograd *w, int n_threads)
{
    return n_threads * PLACES * block_tiles(w) * (row_floats(w) + PANEL);
}

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

/* One channel: [3][3][filters] -> of each panel [16][channels][PANEL]; places lie `place` apart, panels PLACES of them. */
SY_CLONES static void channel_weights(const struct sy_winograd *w, const float *plain, float *to)
{
    int64_t step = w->channels * w->filters, place = w->channels * PANEL;
    for (int64_t f = 0; f < n_panels(w) * PANEL; f += LANES) {
        int64_t n = SY_MAX(SY_MIN(w->filters - f, LANES), 0);
        float *out = to + f / PANEL * PLACES * place + f % PANEL;
        lanes g[9], half[SIDE * 3], u[PLACES];
        for (int i = 0; i < 9; i++)
            load(&g[i], plain + i * step + SY_MIN(f, w->filters), n);
        for (int x = 0; x < 3; x++)
            weights_line(g + x, 3, half + x, 3);
        for (int y = 0; y < SIDE; y++)
            weights_line(half + 3 * y, 1, u + SIDE * y, 1);
        for (int e = 0; e < PLACES; e++)
            store(out + e * place, &u[e], LANES);
    }
}

void sy_winograd_weights(const struct sy_winograd *w, int n_threads, const float *plain, float *to)
{
#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t c = 0; c < w->channels; c++)
        channel_weights(w, plain + c * w->filters, to + c * PANEL);
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

/* Pixels that are NULL are zero. */
INLINE void tile_in(const struct sy_winograd *w, const float *const *pixels, float *v,
                    int64_t place)
{
    for (int64_t c = 0; c < w->channels; c += LANES) {
        lanes d[PLACES], half[PLACES], out[PLACES];
        for (int i = 0; i < PLACES; i++)
            if (pixels[i])
                load(&d[i], pixels[i] + c, w->channels - c);
            else
                d[i] = (lanes){0};
        for (int x = 0; x < SIDE; x++)
            source_line(d + x, SIDE, half + x);
        for (int y = 0; y < SIDE; y++)
            source_line(half + SIDE * y, 1, out + SIDE * y);
        for (int e = 0; e < PLACES; e++)
            store(v + e * place + c, &out[e], LANES);
    }
}

/* Tiles [first, first + n) -> v [16][n][row]. */
SY_CLONES static void tiles_in(const struct sy_winograd *w, const float *src, int64_t first,
                               int64_t n, float *v)
{
    int64_t row = row_floats(w);
    for (int64_t t = 0; t < n; t++) {
        struct place p = tile_place(w, first + t);
        const float *pixels[PLACES];
        for (int i = 0; i < PLACES; i++) {
            int64_t y = p.y - w->pad_top + i / SIDE, x = p.x - w->pad_left + i % SIDE;
            bool inside = y >= 0 && y < w->height && x >= 0 && x < w->width;
            pixels[i] =
                inside ? src + ((p.image * w->height + y) * w->width + x) * w->channels : NULL;
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
    mask less = *x<low, more = *x> high; /* what is no number stays so */
    *x = (lanes)((less & (mask)low) | (more & (mask)high) | (~(less | more) & (mask)*x));
}

/* LANES filters from `f` on of one tile. */
INLINE void tile_out(const struct sy_winograd *w, struct place p, int64_t f, const float *m,
                     int64_t place, const float *bias, float *dst)
{
    int64_t n = SY_MIN(w->filters - f, LANES);
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
        float *to = dst + ((p.image * w->out_height + y) * w->out_width + x) * w->filters + f;
        if (y >= w->out_height || x >= w->out_width)
            continue;
        out[i] += plus;
        finish(w, &out[i], to, n);
        store(to, &out[i], n);
    }
}

/* m [16][n][PANEL] -> the filters of a panel, from `f` on. */
SY_CLONES static void tiles_out(const struct sy_winograd *w, int64_t first, int64_t n, int64_t f,
                                const float *m, const float *bias, float *dst)
{
    for (int64_t t = 0; t < n; t++) {
        struct place p = tile_place(w, first + t);
        for (int v = 0; v < VECTORS && f + v * LANES < w->filters; v++)
            tile_out(w, p, f + v * LANES, m + t * PANEL + v * LANES, n * PANEL, bias, dst);
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
        SOME_ROWS(7)
        SOME_ROWS(8)
        SOME_ROWS(9)
        SOME_ROWS(10)
        SOME_ROWS(11)
        SOME_ROWS(12)
    }
}

/* c [n, PANEL] = a [n, k] times b [k, PANEL]; rows in groups of nearly the same size. */
SY_CLONES static void product(int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                              float *c)
{
    int64_t groups = (n + ROWS - 1) / ROWS;
    for (int64_t g = 0; g < groups; g++) {
        int64_t from = n * g / groups, to = n * (g + 1) / groups;
        up_to_rows(to - from, k, a + from * lda, lda, (const lanes *)b, c + from * PANEL);
    }
}

/* ---- run -------------------------------------------------------------------------------------------------- */

struct operands {
    const float *src, *weights, *bias;
    float *dst;
};

static void run_block(const struct sy_winograd *w, const struct operands *o, int64_t first,
                      int64_t n, float *scratch)
{
    int64_t row = row_floats(w), k = w->channels;
    float *v = scratch, *m = scratch + PLACES * n * row;
    tiles_in(w, o->src, first, n, v);
    for (int64_t p = 0; p < n_panels(w); p++) {
        const float *weights = o->weights + p * PLACES * k * PANEL;
        for (int e = 0; e < PLACES; e++)
            product(n, k, v + e * n * row, row, weights + e * k * PANEL, m + e * n * PANEL);
        tiles_out(w, first, n, p * PANEL, m, o->bias, o->dst);
    }
}

void sy_winograd_run(const struct sy_winograd *w, int n_threads, const float *src,
                     const float *weights, const float *bias, float *dst, float *scratch)
{
    const struct operands o = {src, weights, bias, dst};
    int64_t tiles = n_tiles(w), each = sy_winograd_scratch_floats(w, 1);
#pragma omp parallel for schedule(static, 1) num_threads(n_threads)
    for (int thread = 0; thread < n_threads; thread++) {
        int64_t from = tiles * thread / n_threads, n = tiles * (thread + 1) / n_threads - from;
        int64_t blocks = (n + block_tiles(w) - 1) / block_tiles(w);
        for (int64_t b = 0; b < blocks; b++) {
            int64_t begin = n * b / blocks, end = n * (b + 1) / blocks;
            run_block(w, &o, from + begin, end - begin, scratch + thread * each);
        }
    }
}

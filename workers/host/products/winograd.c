#include "workers/host/products/winograd.h"

#include <unistd.h>

#include "runtime/base/assert.h"
#include "workers/host/products/winograd_internal.h"

/* Maximum number of tiles processed together. */
enum { PLACES = WINOGRAD_PLACES, MOST_TILES = 120 };

static const struct winograd_kernels *kernels(void)
{
    return __builtin_cpu_supports("avx512f") ? &winograd_kernels_16 : &winograd_kernels_8;
}

/* Measured. oneDNN's plain convolution does 100 to 125 multiplications a nanosecond on a core with AVX-512 (Granite Rapids), 44 on one with AVX2; our products
 * 75 with 64 channels, 50 with 512, and 44. A channel of a tile takes 6 ns of a core, a weight 12 to 16 from memory. With 32 channels it was slower.
 * So on AVX-512, with ten thousand pixels, about 150 to 400 channels are a gain; from about 430 on nothing is. */
struct sy_winograd_limits sy_winograd_limits = {
    .least_channels = 64,
    .avx2 = {.a_product = 1, .a_weight = 900, .a_channel = 220},
    .avx512 = {.a_product = 1.3, .a_channels_product = 0.0015, .a_weight = 1300, .a_channel = 670}};

static int64_t n_tiles(const struct sy_winograd *w)
{
    return w->images * ((w->out_height + 1) / 2) * ((w->out_width + 1) / 2);
}

bool sy_winograd_is_gain(const struct sy_winograd *w)
{
    const struct sy_winograd_limits *l = &sy_winograd_limits;
    double pairs = (double)w->channels * (double)w->filters, tiles = (double)n_tiles(w);
    double plain = 9.0 * (double)(w->images * w->out_height * w->out_width) * pairs;
    __builtin_cpu_init();
    bool has_avx512 = __builtin_cpu_supports("avx512f"),
         has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const struct sy_winograd_costs *cost = has_avx512 ? &l->avx512 : &l->avx2;
    double product = cost->a_product + cost->a_channels_product * (double)w->channels;
    double ours = product * PLACES * tiles * pairs + (double)cost->a_weight * pairs +
                  (double)cost->a_channel * tiles * (double)(w->channels + w->filters);
    return l->always || (SY_MIN(w->channels, w->filters) >= l->least_channels &&
                         ours < 0.95 * plain && (has_avx512 || has_avx2));
}

/* ---- sizes ------------------------------------------------------------------------------------------------ */

/* Stride of a transformed tile's row of channels. Not a power of two, since six or twelve such rows are read together. */
static int64_t row_floats(const struct sy_winograd *w)
{
    return SY_ALIGN_UP(w->channels, kernels()->lanes) + kernels()->lanes;
}

/* Size of a block: its transformed tiles take half of the second cache; weights stream through the rest. */
static int64_t block_tiles(const struct sy_winograd *w)
{
    long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    int64_t bytes = cache > 0 ? cache / 2 : 256 << 10;
    int64_t rows = kernels()->rows, panel = kernels()->panel;
    int64_t tiles = bytes / (PLACES * (int64_t)sizeof(float) * (row_floats(w) + panel));
    return SY_MAX(rows, SY_MIN(tiles / rows * rows, MOST_TILES));
}

static int64_t n_panels(const struct sy_winograd *w)
{
    return (w->filters + kernels()->panel - 1) / kernels()->panel;
}

int64_t sy_winograd_lanes(void)
{
    return kernels()->lanes;
}

/* From one of a panel's places to the next: not a power of two, as sixteen of them are written beside each other. */
static int64_t place_floats(const struct sy_winograd *w)
{
    return (w->channels + 1) * kernels()->panel;
}

int64_t sy_winograd_weights_floats(const struct sy_winograd *w)
{
    return n_panels(w) * PLACES * place_floats(w);
}

/* Floats per thread: its tiles and their products. */
static int64_t thread_floats(const struct sy_winograd *w)
{
    return PLACES * block_tiles(w) * (row_floats(w) + kernels()->panel);
}

int64_t sy_winograd_scratch_floats(const struct sy_winograd *w, int n_threads)
{
    return n_threads * thread_floats(w);
}

/* ---- weights ---------------------------------------------------------------------------------------------- */

/* A piece is a few channels of a panel: its threads write lines of their own. */
void sy_winograd_weights(const struct sy_winograd *w, int n_threads,
                         const struct sy_winograd_plain *plain, float *to)
{
    const struct winograd_kernels *k = kernels();
    const int64_t some = 16, pieces = (w->channels + some - 1) / some, place = place_floats(w);
#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t i = 0; i < n_panels(w) * pieces; i++) {
        int64_t first = i % pieces * some;
        k->weights(w, plain, i / pieces, first, SY_MIN(some, w->channels - first), place,
                   to + i / pieces * PLACES * place);
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
    const struct winograd_kernels *kernel = kernels();
    int64_t row = row_floats(w), k = w->channels, panel = kernel->panel, place = place_floats(w);
    float *v = scratch, *m = scratch + PLACES * n * row;
    kernel->tiles_in(w, o->src, first, n, row, v);
    for (int64_t p = 0; p < n_panels(w); p++) {
        const float *weights = o->weights + p * PLACES * place;
        for (int e = 0; e < PLACES; e++)
            kernel->product(n, k, v + e * n * row, row, weights + e * place, m + e * n * panel);
        kernel->tiles_out(w, first, n, p * panel, m, o->bias, o->dst);
    }
}

void sy_winograd_run(const struct sy_winograd *w, int n_threads, const float *src,
                     const float *weights, const float *bias, float *dst, float *scratch)
{
    const struct operands o = {src, weights, bias, dst};
    int64_t tiles = n_tiles(w), each = thread_floats(w);
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

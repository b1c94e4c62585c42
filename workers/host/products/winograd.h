/* Convolutions of 3x3 with stride 1 by Winograd's F(2x2, 3x3): four neighbouring results take 16 products a channel instead of 36. Channels
 * last or in blocks of 8, float32; weights also of bf16, which are made wide where they are transformed. Only sums and halves are in the
 * transforms, so the errors are those of the plain sum (tests/workers/kernels/test_winograd.c).
 *
 *   weights  3x3 of each (channel, filter) ──> 4x4                                           once a run
 *   source   4x4 pixels of each tile       ──> 4x4  ─┐ for each of the 16 places one product
 *   result   2x2 pixels of each tile       <── 4x4 <─┘ of matrices: tiles x channels, channels x filters
 *
 * Tiles go through in blocks that stay in a core's second cache; each thread takes its share of them. A tile's bits do not depend on the
 * others, nor on the number of threads. A value that is not finite reaches all four results of a tile. */
#ifndef SY_WORKERS_HOST_PRODUCTS_WINOGRAD_H
#define SY_WORKERS_HOST_PRODUCTS_WINOGRAD_H

#include <stdbool.h>
#include <stdint.h>

struct sy_winograd {
    int64_t images, height, width, channels; /* of the source */
    int64_t out_height, out_width, filters;
    int64_t pad_top, pad_left; /* 0 or more; beyond the source's end there are zeros, too */
    bool blocked;    /* channels and filters lie in whole blocks of sy_winograd_lanes, else last */
    bool adds;       /* adds to the previous content of the result */
    float low, high; /* limits of the results; -INFINITY, INFINITY: none */
};

/* What it costs, in multiplications of the plain convolution. */
struct sy_winograd_costs {
    /* One of ours: the second for each channel, since blocks have fewer tiles then, and each reads all weights. */
    double a_product, a_channels_product;
    int64_t a_weight;  /* transforming one (channel, filter) */
    int64_t a_channel; /* transforming a tile's channel, there and back */
};
/* When it is used instead of the plain convolution: estimated time. Tests lower the limits. */
struct sy_winograd_limits {
    int64_t least_channels; /* of source and result */
    struct sy_winograd_costs avx2, avx512;
    bool always; /* always use it, on any CPU */
};
extern struct sy_winograd_limits sy_winograd_limits;
bool sy_winograd_is_gain(const struct sy_winograd *w);

/* Weights as stored: blocks of `filters`, in them blocks of `channels`, in them the 3x3 places, in them [channels][filters]. */
struct sy_winograd_plain {
    const void *at;
    bool narrow;                       /* bf16, else float32 */
    int64_t filters, channels;         /* a block's; of filters: a multiple of the lanes, or all */
    int64_t filter_step, channel_step; /* from block to block, in elements */
    int64_t tap_step;                  /* from place to place */
};
/* Floats per vector: 8, or 16 with AVX-512. */
int64_t sy_winograd_lanes(void);

int64_t sy_winograd_weights_floats(const struct sy_winograd *w);
int64_t sy_winograd_scratch_floats(const struct sy_winograd *w, int n_threads);
/* to: sy_winograd_weights_floats floats. */
void sy_winograd_weights(const struct sy_winograd *w, int n_threads,
                         const struct sy_winograd_plain *plain, float *to);
/* bias: a number for each filter, or NULL. */
void sy_winograd_run(const struct sy_winograd *w, int n_threads, const float *src,
                     const float *weights, const float *bias, float *dst, float *scratch);

#endif

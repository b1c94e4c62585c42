/* Depthwise convolutions: the loops against the sum that defines them, in both layouts, with the rows cut anywhere; and a package's Conv. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/products/depthwise.h"

enum { LANES = SY_DEPTHWISE_LANES, ROUNDS = 300 };

static uint64_t seed;

struct image {
    struct sy_depthwise d;
    int64_t pad_top, n_src, n_dst, n_weights;
    float *src, *weights, *bias, *want, *got;
};

static float *numbers(int64_t n)
{
    float *x = aligned_alloc(64, SY_ALIGN_UP((size_t)n * sizeof *x + 64, 64));
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rig_int(&seed, -1000, 1000) / 1000;
    return x;
}

/* Where channel c of a pixel lies. */
static int64_t at(const struct sy_depthwise *d, int64_t height, int64_t width, int64_t c, int64_t y,
                  int64_t x)
{
    return d->is_blocked ? ((c / LANES * height + y) * width + x) * LANES + c % LANES
                         : (y * width + x) * d->channels + c;
}

static double sum_at(const struct image *m, int64_t c, int64_t y, int64_t x)
{
    const struct sy_depthwise *d = &m->d;
    int64_t taps = d->kernel[0] * d->kernel[1];
    double sum = m->bias ? (double)m->bias[c] : 0;
    for (int64_t r = 0; r < d->kernel[0]; r++)
        for (int64_t k = 0; k < d->kernel[1]; k++) {
            int64_t row = y * d->strides[0] - m->pad_top + r * d->dilations[0],
                    column = x * d->strides[1] - d->pad_left + k * d->dilations[1];
            if (row < 0 || row >= d->height || column < 0 || column >= d->width)
                continue;
            sum +=
                (double)m->src[at(d, d->height, d->width, c, row, column)] *
                (double)m->weights[(c / LANES * taps + r * d->kernel[1] + k) * LANES + c % LANES];
        }
    return sum;
}

static int64_t size_after(int64_t size, int64_t kernel, int64_t stride, int64_t dilation)
{
    int64_t room = size - (kernel - 1) * dilation - 1;
    return room < 0 ? 0 : room / stride + 1;
}

/* False: there is no result. */
static bool random_image(struct image *m)
{
    bool blocked = rig_int(&seed, 0, 1);
    struct sy_depthwise *d = &m->d;
    *m = (struct image){
        .d = {.is_blocked = blocked,
              .channels = blocked ? LANES * rig_int(&seed, 1, 8) : rig_int(&seed, 1, 150),
              .height = rig_int(&seed, 1, 12),
              .width = rig_int(&seed, 1, 20)}};
    for (int i = 0; i < 2; i++) {
        d->kernel[i] = rig_int(&seed, 1, 5);
        d->strides[i] = rig_int(&seed, 1, 3);
        d->dilations[i] = rig_int(&seed, 1, 2);
    }
    d->pad_left = rig_int(&seed, 0, 4);
    m->pad_top = rig_int(&seed, 0, 4);
    d->out_height = size_after(d->height + m->pad_top + rig_int(&seed, 0, 4), d->kernel[0],
                               d->strides[0], d->dilations[0]);
    d->out_width = size_after(d->width + d->pad_left + rig_int(&seed, 0, 4), d->kernel[1],
                              d->strides[1], d->dilations[1]);
    d->is_curved = rig_int(&seed, 0, 1);
    d->curve = (struct sy_curve){.op = rig_int(&seed, 0, 1) ? SY_OP_SWISH : SY_OP_CLIP,
                                 .a = rig_int(&seed, 0, 1) ? 1.0f : -0.5f,
                                 .b = 0.5f};
    m->n_src = d->channels * d->height * d->width;
    m->n_dst = d->channels * d->out_height * d->out_width;
    m->n_weights =
        (int64_t)SY_ALIGN_UP((uint64_t)d->channels, (uint64_t)LANES) * d->kernel[0] * d->kernel[1];
    return m->n_dst > 0;
}

static void fill(struct image *m)
{
    m->src = numbers(m->n_src);
    m->weights = numbers(m->n_weights);
    m->bias = rig_int(&seed, 0, 1) ? numbers(m->d.channels) : NULL;
    m->want = numbers(m->n_dst);
    m->got = numbers(m->n_dst);
}

static void drop(struct image *m)
{
    free(m->src);
    free(m->weights);
    free(m->bias);
    free(m->want);
    free(m->got);
}

/* In calls of up to `most` rows. */
static void run(const struct image *m, int64_t most, float *dst)
{
    const struct sy_depthwise *d = &m->d;
    int64_t pixel = d->is_blocked ? LANES : d->channels;
    for (int64_t y = 0, n; y < d->out_height; y += n) {
        n = rig_int(&seed, 1, SY_MIN(most, d->out_height - y));
        int64_t first = y * d->strides[0] - m->pad_top, above = SY_MAX(first, 0);
        sy_depthwise_run(d, &(struct sy_depthwise_rows){.weights = m->weights,
                                                        .bias = m->bias,
                                                        .src = m->src + above * d->width * pixel,
                                                        .n_src = d->height - above,
                                                        .pad_top = above - first,
                                                        .dst = dst + y * d->out_width * pixel,
                                                        .n = n});
    }
}

static void check(const struct image *m)
{
    const struct sy_depthwise *d = &m->d;
    for (int64_t c = 0; c < d->channels; c++)
        for (int64_t y = 0; y < d->out_height; y++)
            for (int64_t x = 0; x < d->out_width; x++) {
                double want = sum_at(m, c, y, x);
                float got = m->got[at(d, d->out_height, d->out_width, c, y, x)];
                want = d->is_curved && d->curve.op == SY_OP_SWISH
                           ? want / (1 + exp(-(double)d->curve.a * want))
                       : d->is_curved ? sy_curve_bent(&d->curve, want)
                                      : want;
                assert_true(fabs((double)got - want) <= 1e-5 + 1e-5 * fabs(want));
            }
}

static void random_windows(void **state)
{
    int checked = 0;
    (void)state;
    if (!__builtin_cpu_supports("avx512f"))
        skip();
    for (int i = 0; i < ROUNDS; i++) {
        struct image m;
        if (!random_image(&m))
            continue;
        fill(&m);
        run(&m, m.d.out_height, m.got);
        check(&m);
        run(&m, 3, m.want);
        assert_memory_equal(m.want, m.got,
                            (size_t)m.n_dst * sizeof(float)); /* any cut, equal bits */
        drop(&m);
        checked++;
    }
    assert_true(checked > ROUNDS / 3);
}

/* relu -> Conv of as many groups as channels -> Swish -> 1x1 Conv, so that the layouts between are the engine's choice. */
static struct sy_graph *random_network(void)
{
    struct sy_graph *g = gb_new("depthwise");
    int64_t c = rig_int(&seed, 2, 70), h = rig_int(&seed, 3, 12), w = rig_int(&seed, 3, 12);
    const int64_t kernel = 3, pads[] = {1, 1, 1, 1}, kernels[] = {kernel, kernel};
    const int64_t dims[] = {1, c, h, w}, weights[] = {c, 1, kernel, kernel}, mix[] = {c, c, 1, 1},
                  ones[] = {1, 1};
    int x = gb_input(g, 4, dims);
    x = gb_node(g, SY_OP_CONV, INPUTS(x, gb_constant(g, "m", 4, mix, &seed, -0.3, 0.3)), 4, dims);
    gb_ints(g, "kernel_shape", 2, ones);
    x = gb_node(g, SY_OP_CONV,
                INPUTS(x, gb_constant(g, "w", 4, weights, &seed, -0.5, 0.5),
                       gb_constant(g, "b", 1, &c, &seed, -0.5, 0.5)),
                4, dims);
    gb_ints(g, "kernel_shape", 2, kernels);
    gb_ints(g, "pads", 4, pads);
    gb_int(g, "group", c);
    int gate = gb_node(g, SY_OP_SIGMOID, 1, &x, 4, dims);
    x = gb_node(g, SY_OP_MUL, INPUTS(x, gate), 4, dims);
    gb_output(g, x);
    return g;
}

static void networks(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct engine_case c = {.graph = random_network(), .optimize = true};
        rig_check(&c, &seed);
    }
}

int main(void)
{
    seed = rig_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_windows),
        cmocka_unit_test(networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

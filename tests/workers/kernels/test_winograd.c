/* Winograd's convolutions: random shapes against the definition, how large their errors are, and when they are taken. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/products/winograd.h"

static uint64_t seed;

/* ---- through the engine ----------------------------------------------------------------------------------- */

struct conv {
    int64_t channels, filters, height, width, pads[4];
    bool bias, residual;
    int activation; /* 0: none */
};

static struct conv random_conv(void)
{
    struct conv c = {.channels = rig_int(&seed, 1, 40),
                     .filters = rig_int(&seed, 1, 70),
                     .height = rig_int(&seed, 3, 13),
                     .width = rig_int(&seed, 3, 13),
                     .bias = rig_int(&seed, 0, 1),
                     .activation = (int)rig_int(&seed, 0, 3)};
    for (int i = 0; i < 4; i++)
        c.pads[i] = rig_int(&seed, 0, 2);
    if (rig_int(&seed, 0, 1)) { /* channels in blocks, where there are such */
        c.channels = (c.channels + 7) / 8 * 8;
        c.filters = (c.filters + 7) / 8 * 8;
    }
    c.residual = rig_int(&seed, 0, 1);
    if (c.residual) {
        c.filters = c.channels;
        for (int i = 0; i < 4; i++)
            c.pads[i] = 1;
    }
    return c;
}

static int activation(struct sy_graph *g, int kind, int x, const int64_t *dims)
{
    static const enum sy_op ops[] = {SY_OP_RELU, SY_OP_HARD_SWISH};
    if (kind == 0)
        return x;
    if (kind < 3)
        return gb_node(g, ops[kind - 1], 1, &x, 4, dims);
    x = gb_node(g, SY_OP_CLIP, 1, &x, 4, dims);
    gb_float(g, "min", -0.25);
    gb_float(g, "max", 0.5);
    return x;
}

static struct sy_graph *conv_graph(const struct conv *c)
{
    struct sy_graph *g = gb_new("winograd");
    const int64_t in[] = {1, c->channels, c->height, c->width},
                  weights[] = {c->filters, c->channels, 3, 3},
                  out[] = {1, c->filters, c->height + c->pads[0] + c->pads[2] - 2,
                           c->width + c->pads[1] + c->pads[3] - 2};
    int x = gb_input(g, 4, in), before;
    x = before = gb_node(g, SY_OP_SIGMOID, 1, &x, 4, in);
    int inputs[3] = {x, gb_constant(g, "w", 4, weights, &seed, -0.5, 0.5), -1};
    if (c->bias)
        inputs[2] = gb_constant(g, "b", 1, &c->filters, &seed, -0.5, 0.5);
    x = gb_node(g, SY_OP_CONV, c->bias ? 3 : 2, inputs, 4, out);
    gb_ints(g, "kernel_shape", 2, (const int64_t[]){3, 3});
    gb_ints(g, "pads", 4, c->pads);
    if (c->residual)
        x = gb_node(g, SY_OP_ADD, INPUTS(x, before), 4, out);
    x = activation(g, c->activation, x, out);
    gb_output(g, x);
    return g;
}

static void test_random_convolutions(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct conv shape = random_conv();
        struct engine_case c = {.graph = conv_graph(&shape), .optimize = true};
        rig_check(&c, &seed);
    }
}

/* Weights in bf16, from where they are stored. */
static void test_stored_as_bf16(void **state)
{
    (void)state;
    if (!rig_only_stores_bf16())
        skip();
    for (int i = 0; i < 30; i++) {
        struct conv shape = random_conv();
        struct engine_case c = {.graph = conv_graph(&shape), .optimize = true};
        gb_round_weights(c.graph);
        c.graph->precision = SY_PRECISION_BF16;
        rig_check(&c, &seed);
    }
}

/* ---- by itself -------------------------------------------------------------------------------------------- */

static float *random_floats(int64_t n, float low, float high)
{
    float *x = aligned_alloc(64, ((size_t)n + 15) / 16 * 64 + 64);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = low + (high - low) * (float)rig_int(&seed, 0, 1 << 20) / (1 << 20);
    return x;
}

struct operands {
    struct sy_winograd w;
    float *src, *plain, *weights, *bias, *dst, *scratch;
};

static int64_t results(const struct sy_winograd *w)
{
    return w->images * w->out_height * w->out_width * w->filters;
}

/* What OpenMP's library orders, ThreadSanitizer does not see: then it is one. */
static int threads(int n)
{
#ifdef __SANITIZE_THREAD__
    n = 1;
#endif
    return n;
}

static void take(struct operands *o, int n_threads)
{
    const struct sy_winograd *w = &o->w;
    o->src = random_floats(w->images * w->height * w->width * w->channels, -0.2f, 1);
    o->plain = random_floats(9 * w->channels * w->filters, -0.1f, 0.1f);
    o->weights = random_floats(sy_winograd_weights_floats(w), 7, 8);
    o->bias = random_floats(w->filters, -1, 1);
    o->dst = random_floats(results(w), -1, 1);
    o->scratch = random_floats(sy_winograd_scratch_floats(w, threads(n_threads)), 7, 8);
    const struct sy_winograd_plain form = {.at = o->plain,
                                           .filters = w->filters,
                                           .channels = w->channels,
                                           .tap_step = w->channels * w->filters};
    sy_winograd_weights(w, threads(n_threads), &form, o->weights);
}

static void drop(struct operands *o)
{
    float *all[] = {o->src, o->plain, o->weights, o->bias, o->dst, o->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Result `at` in double and, summed one after the other, in float. */
static void define(const struct operands *o, int64_t at, double *exact, float *plain)
{
    const struct sy_winograd *w = &o->w;
    int64_t f = at % w->filters, x = at / w->filters % w->out_width,
            y = at / w->filters / w->out_width % w->out_height,
            image = at / w->filters / w->out_width / w->out_height;
    *exact = *plain = o->bias[f];
    for (int64_t k = 0; k < 9 * w->channels; k++) {
        int64_t c = k % w->channels, sy = y + k / w->channels / 3 - w->pad_top,
                sx = x + k / w->channels % 3 - w->pad_left;
        if (sy < 0 || sy >= w->height || sx < 0 || sx >= w->width)
            continue;
        float a = o->src[((image * w->height + sy) * w->width + sx) * w->channels + c],
              b = o->plain[k * w->filters + f];
        *exact += (double)a * (double)b;
        *plain += a * b;
    }
}

/* The largest error is below that of the plain sum in float32, which is what it stands for. */
static void test_errors_are_those_of_a_sum(void **state)
{
    static const struct sy_winograd shapes[] = {{.images = 1,
                                                 .height = 14,
                                                 .width = 14,
                                                 .channels = 256,
                                                 .out_height = 14,
                                                 .out_width = 14,
                                                 .filters = 64,
                                                 .pad_top = 1,
                                                 .pad_left = 1,
                                                 .low = -INFINITY,
                                                 .high = INFINITY},
                                                {.images = 2,
                                                 .height = 9,
                                                 .width = 20,
                                                 .channels = 40,
                                                 .out_height = 7,
                                                 .out_width = 18,
                                                 .filters = 33,
                                                 .low = -INFINITY,
                                                 .high = INFINITY}};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct operands o = {.w = shapes[s]};
        double ours = 0, sums = 0;
        take(&o, 1);
        sy_winograd_run(&o.w, 1, o.src, o.weights, o.bias, o.dst, o.scratch);
        for (int64_t i = 0; i < results(&o.w); i++) {
            double exact;
            float plain;
            define(&o, i, &exact, &plain);
            ours = fmax(ours, fabs((double)o.dst[i] - exact));
            sums = fmax(sums, fabs((double)plain - exact));
        }
        assert_true(ours < 2 * sums);
        drop(&o);
    }
}

/* Bits of a tile do not depend on how tiles are cut into blocks and threads. */
static void test_threads_give_equal_bits(void **state)
{
    (void)state;
    struct operands o = {.w = {.images = 3,
                               .height = 17,
                               .width = 11,
                               .channels = 48,
                               .out_height = 17,
                               .out_width = 11,
                               .filters = 80,
                               .pad_top = 1,
                               .pad_left = 1,
                               .low = 0,
                               .high = INFINITY}};
    take(&o, 3);
    size_t bytes = (size_t)results(&o.w) * sizeof(float);
    float *first = malloc(bytes);
    sy_winograd_run(&o.w, 1, o.src, o.weights, o.bias, o.dst, o.scratch);
    memcpy(first, o.dst, bytes);
    for (int n = 2; n <= 3; n++) {
        sy_winograd_run(&o.w, threads(n), o.src, o.weights, o.bias, o.dst, o.scratch);
        assert_memory_equal(first, o.dst, bytes);
    }
    free(first);
    drop(&o);
}

static void test_not_for_few_pixels_or_channels(void **state)
{
    struct sy_winograd_limits tests = sy_winograd_limits;
    struct sy_winograd w = {.images = 8,
                            .height = 28,
                            .width = 28,
                            .channels = 256,
                            .out_height = 28,
                            .out_width = 28,
                            .filters = 256};
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        skip();
    sy_winograd_limits = *(const struct sy_winograd_limits *)*state;
    assert_true(sy_winograd_is_gain(&w));
    w.out_height = w.out_width = 1;
    assert_false(sy_winograd_is_gain(&w)); /* three of four results are nobody's */
    w.out_height = w.out_width = 4;
    w.images = 1;
    assert_false(sy_winograd_is_gain(&w)); /* the weights' transform is not made up for */
    w.images = 1000;
    assert_true(sy_winograd_is_gain(&w));
    w.channels = 8;
    assert_false(sy_winograd_is_gain(&w));
    sy_winograd_limits = tests;
}

/* Where the plain products are fast (AVX-512), it is no gain for few channels, by its transforms, nor for many, by its products. */
static void test_channels_must_pay_for_transforms(void **state)
{
    struct sy_winograd_limits tests = sy_winograd_limits;
    struct sy_winograd w = {.images = 8,
                            .height = 56,
                            .width = 56,
                            .channels = 64,
                            .out_height = 56,
                            .out_width = 56,
                            .filters = 64};
    if (!__builtin_cpu_supports("avx512f"))
        skip();
    sy_winograd_limits = *(const struct sy_winograd_limits *)*state;
    assert_false(sy_winograd_is_gain(&w));
    w.channels = w.filters = 256;
    assert_true(sy_winograd_is_gain(&w));
    w.channels = w.filters = 512;
    assert_false(sy_winograd_is_gain(&w));
    sy_winograd_limits = tests;
}

int main(void)
{
    static struct sy_winograd_limits usual;
    static void *state = &usual;
    seed = rig_start();
    usual = sy_winograd_limits;
    sy_winograd_limits = (struct sy_winograd_limits){.always = true};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_convolutions),
        cmocka_unit_test(test_stored_as_bf16),
        cmocka_unit_test(test_errors_are_those_of_a_sum),
        cmocka_unit_test(test_threads_give_equal_bits),
        cmocka_unit_test_prestate(test_not_for_few_pixels_or_channels, state),
        cmocka_unit_test_prestate(test_channels_must_pay_for_transforms, state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

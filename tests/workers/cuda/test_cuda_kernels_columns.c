/* Convolutions and their gradients as products of unrolled windows: the plan and its kernels, run on the CPU, against the definition in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/on_cpu/kernel_rig.h"
#include "workers/cuda/kernels/kernels_columns.h"
#include "workers/cuda/math/conv_columns.h"

#define ROUNDS 60

/* Of two or three dimensions, with strides, dilations and padding. */
static void random_conv(enum sy_math_direction direction, enum sy_dtype type,
                        struct sy_math_conv *c)
{
    *c = (struct sy_math_conv){.direction = direction,
                               .type = type,
                               .spatial = 3,
                               .batch = kernel_between(1, 6),
                               .in_channels = kernel_between(1, 9),
                               .out_channels = kernel_between(1, 9),
                               .groups = 1};
    for (int d = 0; d < 3; d++) {
        bool flat = d == 2 && kernel_between(0, 1);
        c->kernel[d] = flat ? 1 : kernel_between(1, 3);
        c->strides[d] = flat ? 1 : kernel_between(1, 3);
        c->dilations[d] = flat ? 1 : kernel_between(1, 2);
        c->pads[d] = flat ? 0 : kernel_between(0, 1);
        int64_t width = (c->kernel[d] - 1) * c->dilations[d] + 1;
        int64_t least = width - 2 * c->pads[d], in = kernel_between(1, 6);
        c->in[d] = flat ? 1 : SY_MAX(least, in);
        c->out[d] = (c->in[d] + 2 * c->pads[d] - width) / c->strides[d] + 1;
    }
}

static int64_t area_of(const int64_t *dims)
{
    return dims[0] * dims[1] * dims[2];
}

/* What window element e at output o reads, as an offset of the image in positions; -1: padding. */
static int64_t read_at(const struct sy_math_conv *c, int64_t o, int64_t e)
{
    const int64_t os[3] = {o / c->out[2] / c->out[1], o / c->out[2] % c->out[1], o % c->out[2]};
    const int64_t es[3] = {e / c->kernel[2] / c->kernel[1], e / c->kernel[2] % c->kernel[1],
                           e % c->kernel[2]};
    int64_t at = 0;
    for (int d = 0; d < 3; d++) {
        int64_t in = os[d] * c->strides[d] - c->pads[d] + es[d] * c->dilations[d];
        if (in < 0 || in >= c->in[d])
            return -1;
        at = at * c->in[d] + in;
    }
    return at;
}

/* ---- by definition ------------------------------------------------------------------------------------ */

struct sizes {
    int64_t x, w, y;
};

static struct sizes sizes_of(const struct sy_math_conv *c)
{
    return (struct sizes){c->batch * area_of(c->in) * c->in_channels,
                          c->out_channels * area_of(c->kernel) * c->in_channels,
                          c->batch * area_of(c->out) * c->out_channels};
}

static double *result_of(const struct sy_math_conv *c, const struct kernel_tensor *a,
                         const struct kernel_tensor *b)
{
    struct sizes s = sizes_of(c);
    int64_t ins = c->in_channels, outs = c->out_channels, area = area_of(c->kernel);
    double *got = calloc((size_t)(s.x + s.w + s.y), sizeof *got);
    assert_non_null(got);
    for (int64_t row = 0; row < c->batch * area_of(c->out); row++)
        for (int64_t e = 0; e < area; e++) {
            int64_t image = row / area_of(c->out), at = read_at(c, row % area_of(c->out), e);
            for (int64_t k = 0; at >= 0 && k < outs * ins; k++) {
                int64_t x = (image * area_of(c->in) + at) * ins + k % ins,
                        w = (k / ins * area + e) * ins + k % ins, y = row * outs + k / ins;
                if (c->direction == SY_MATH_FORWARD)
                    got[y] += kernel_get(a, x) * kernel_get(b, w);
                else if (c->direction == SY_MATH_DATA)
                    got[x] += kernel_get(a, y) * kernel_get(b, w);
                else
                    got[w] += kernel_get(a, x) * kernel_get(b, y);
            }
        }
    return got;
}

/* ---- by products -------------------------------------------------------------------------------------- */

struct launch {
    const struct sy_math_conv *conv;
    const struct sy_conv_columns *columns;
    const void *from;
    void *to;
};

static int launch_unroll(void *arg)
{
    struct launch *l = arg;
    return sy_kernel_unroll(kernel_stream, l->conv, l->columns->images, l->columns->columns,
                            l->from, l->to);
}

static int launch_roll(void *arg)
{
    struct launch *l = arg;
    return sy_kernel_roll(kernel_stream, l->conv, l->columns->images, l->from, l->to);
}

static int launch_add_parts(void *arg)
{
    struct launch *l = arg;
    return sy_kernel_add_parts(kernel_stream, l->conv, l->columns->parts, l->columns->columns,
                               l->from, l->to);
}

static int unroll(void *ctx, const struct sy_math_conv *conv, const struct sy_conv_columns *columns,
                  const void *x, void *u)
{
    (void)ctx;
    struct launch l = {conv, columns, x, u};
    kernel_run(launch_unroll, &l);
    return SY_OK;
}

static int roll(void *ctx, const struct sy_math_conv *conv, const struct sy_conv_columns *columns,
                const void *u, void *dx)
{
    (void)ctx;
    struct launch l = {conv, columns, u, dx};
    kernel_run(launch_roll, &l);
    return SY_OK;
}

static int add_parts(void *ctx, const struct sy_math_conv *conv,
                     const struct sy_conv_columns *columns, const void *parts, void *dw)
{
    (void)ctx;
    struct launch l = {conv, columns, parts, dw};
    kernel_run(launch_add_parts, &l);
    return SY_OK;
}

/* The tensor that has this address, from which element on. */
struct operands {
    struct kernel_tensor *all[5];
    int n_products, n_sums;
};

static struct kernel_tensor *tensor_at(struct operands *o, const void *at, int64_t *first)
{
    for (int i = 0; i < 5; i++) {
        struct kernel_tensor *t = o->all[i];
        int64_t bytes = (const char *)at - (const char *)t->device;
        *first = bytes / (int64_t)sy_dtype_bytes(t->type);
        if (bytes >= 0 && *first < t->n)
            return t;
    }
    fail_msg("no tensor lies there");
    return NULL;
}

static int product(void *ctx, const struct sy_conv_columns *columns, bool adds, const void *a,
                   const void *b, void *y)
{
    const struct sy_math_matmul *m = &columns->product;
    struct operands *o = ctx;
    int64_t fa, fb, fy;
    struct kernel_tensor *ta = tensor_at(o, a, &fa), *tb = tensor_at(o, b, &fb),
                         *ty = tensor_at(o, y, &fy);
    assert_int_equal((uintptr_t)a % (uintptr_t)m->align_bytes % sy_dtype_bytes(ta->type), 0);
    for (int64_t k = 0; k < m->count * m->m * m->n; k++) {
        int64_t part = k / m->n / m->m, row = k / m->n % m->m, column = k % m->n;
        double sum = adds ? kernel_get(ty, fy + part * m->y_stride + row * m->n + column) : 0;
        for (int64_t i = 0; i < m->k; i++)
            sum += kernel_get(ta, fa + part * m->a_stride +
                                      (m->a_transposed ? i * m->m + row : row * m->k + i)) *
                   kernel_get(tb, fb + part * m->b_stride +
                                      (m->b_transposed ? column * m->k + i : i * m->n + column));
        kernel_put(ty, fy + part * m->y_stride + row * m->n + column, sum);
    }
    o->n_products++;
    o->n_sums += adds;
    return SY_OK;
}

static const struct sy_conv_columns_ops ops = {
    .unroll = unroll, .roll = roll, .product = product, .add_parts = add_parts};

/* u of the bytes that are allowed, or of one image. */
static void check(const struct sy_math_conv *c, uint64_t u_bytes, int *n_sums, int *n_parts)
{
    struct sy_conv_columns columns;
    struct sizes s = sizes_of(c);
    assert_true(sy_conv_columns_of(c, u_bytes, 1 << 20, &columns));
    assert_int_equal(c->batch % columns.images, 0);
    int64_t rows = columns.images * area_of(c->out);
    const int64_t of[][3] = {[SY_MATH_FORWARD] = {s.x, s.w, s.y},
                             [SY_MATH_DATA] = {s.y, s.w, s.x},
                             [SY_MATH_WEIGHTS] = {s.x, s.y, s.w}};
    const int64_t *n = of[c->direction];
    enum sy_dtype u_type = c->direction == SY_MATH_DATA ? SY_DTYPE_F32 : c->type;
    struct kernel_tensor *a = kernel_random(c->type, n[0]), *b = kernel_random(c->type, n[1]),
                         *result = kernel_tensor(c->type, n[2]),
                         *u = kernel_tensor(u_type, rows * columns.columns),
                         *parts = kernel_tensor(SY_DTYPE_F32,
                                                columns.parts * c->out_channels * columns.columns);
    assert_true((uint64_t)u->n * sy_dtype_bytes(u->type) <= u_bytes);
    struct operands o = {.all = {a, b, u, parts, result}};
    double *want = result_of(c, a, b);
    assert_int_equal(sy_conv_columns_run(&ops, &o, c, &columns, a->device, b->device,
                                         result->device, u->device, parts->device),
                     SY_OK);
    for (int64_t i = 0; i < result->n; i++)
        kernel_compare(result, i, want[i], 4);
    assert_int_equal(o.n_products, c->batch / columns.images);
    *n_sums += o.n_sums;
    *n_parts += columns.parts > 1;
    free(want);
    kernel_end(NULL);
}

static uint64_t image_bytes(const struct sy_math_conv *c)
{
    int64_t columns = area_of(c->kernel) * c->in_channels;
    return (uint64_t)(area_of(c->out) * SY_ALIGN_UP(columns, (int64_t)8)) *
           (c->direction == SY_MATH_DATA ? 4u : sy_dtype_bytes(c->type));
}

static void test_weights(void **state)
{
    (void)state;
    int n_sums = 0, n_parts = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct sy_math_conv c;
        random_conv(SY_MATH_WEIGHTS, kernel_float_type(), &c);
        check(&c, image_bytes(&c) * (uint64_t)kernel_between(1, c.batch), &n_sums, &n_parts);
    }
    assert_true(n_sums > 0 && n_parts > 0);
}

static void test_data(void **state)
{
    (void)state;
    int unused = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct sy_math_conv c;
        random_conv(SY_MATH_DATA, kernel_float_type(), &c);
        check(&c, image_bytes(&c) * (uint64_t)kernel_between(1, c.batch), &unused, &unused);
    }
}

static void test_forward(void **state)
{
    (void)state;
    int unused = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct sy_math_conv c;
        random_conv(SY_MATH_FORWARD, kernel_float_type(), &c);
        c.in_channels = 8; /* rows of w are aligned */
        check(&c, image_bytes(&c) * (uint64_t)kernel_between(1, c.batch), &unused, &unused);
    }
}

/* ---- plans -------------------------------------------------------------------------------------------- */

/* The second convolution of ResNet-50, a batch of 32. */
static struct sy_math_conv wide_conv(enum sy_math_direction direction)
{
    return (struct sy_math_conv){.direction = direction,
                                 .type = SY_DTYPE_BF16,
                                 .spatial = 2,
                                 .batch = 32,
                                 .in_channels = 64,
                                 .out_channels = 64,
                                 .groups = 1,
                                 .in = {56, 56, 1},
                                 .out = {56, 56, 1},
                                 .kernel = {3, 3, 1},
                                 .strides = {1, 1, 1},
                                 .dilations = {1, 1, 1},
                                 .pads = {1, 1, 0}};
}

static void test_plans(void **state)
{
    (void)state;
    struct sy_conv_columns u;
    struct sy_math_conv c = wide_conv(SY_MATH_WEIGHTS);
    assert_true(sy_conv_columns_of(&c, 64 << 20, 32 << 20, &u));
    assert_int_equal(u.images, 16); /* of 3.6 MB each */
    assert_int_equal(u.columns, 576);
    assert_int_equal(u.parts, 16); /* 9 tiles each: 28 are wanted */
    assert_int_equal(u.product.k, 56 * 56);
    assert_int_equal(u.product.align_bytes, 16);
    c.in_channels = 3;
    assert_true(sy_conv_columns_of(&c, 64 << 20, 32 << 20, &u));
    assert_int_equal(u.columns, 32); /* 27, padded */
    c = wide_conv(SY_MATH_DATA);
    c.in_channels = 3;
    assert_true(sy_conv_columns_of(&c, 64 << 20, 32 << 20, &u));
    assert_int_equal(u.columns, 27); /* w lies so */
    assert_int_equal(u.product.align_bytes, 2);
}

static void test_refused(void **state)
{
    (void)state;
    struct sy_conv_columns u;
    struct sy_math_conv c = wide_conv(SY_MATH_FORWARD);
    assert_true(sy_conv_columns_of(&c, 64 << 20, 32 << 20, &u));
    c.activation = SY_ACT_RELU;
    assert_false(sy_conv_columns_of(&c, 64 << 20, 32 << 20, &u));
    c = wide_conv(SY_MATH_FORWARD);
    c.has_residual = true;
    assert_false(sy_conv_columns_of(&c, 64 << 20, 32 << 20, &u));
    c = wide_conv(SY_MATH_FORWARD);
    c.in_channels = 3; /* rows of w of 54 bytes */
    assert_false(sy_conv_columns_of(&c, 64 << 20, 32 << 20, &u));
    c = wide_conv(SY_MATH_DATA);
    assert_false(sy_conv_columns_of(&c, 1 << 20, 32 << 20, &u)); /* an image of 7.2 MB */
    c.groups = 2;
    assert_false(sy_conv_columns_of(&c, 64 << 20, 32 << 20, &u));
    c = wide_conv(SY_MATH_WEIGHTS);
    assert_false(sy_conv_columns_of(&c, 64 << 20, 64 << 10, &u)); /* a result of 147 KB */
    c.batch = 0;
    assert_false(sy_conv_columns_of(&c, 64 << 20, 32 << 20, &u));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_weights, kernel_end),
        cmocka_unit_test_teardown(test_data, kernel_end),
        cmocka_unit_test_teardown(test_forward, kernel_end),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

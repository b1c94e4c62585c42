/* The CUDA kernels of inference, run on the CPU, against their definitions in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/on_cpu/kernel_rig.h"
#include "workers/cuda/kernels/kernels.h"

#define ROUNDS 60

/* ---- choices ----------------------------------------------------------------------------------------- */

struct choice_case {
    struct sy_math_choice choice;
    struct kernel_tensor *pick, *a, *b, *out;
};

static int launch_where(void *arg)
{
    struct choice_case *c = arg;
    return sy_kernel_where(kernel_stream, &c->choice, c->pick->device, c->a->device, c->b->device,
                           c->out->device);
}

static int launch_equal(void *arg)
{
    struct choice_case *c = arg;
    return sy_kernel_equal(kernel_stream, &c->choice, c->a->device, c->b->device, c->out->device);
}

static void test_choices(void **state)
{
    static const enum sy_dtype types[] = {SY_DTYPE_F32,  SY_DTYPE_I32, SY_DTYPE_I64,
                                          SY_DTYPE_BOOL, SY_DTYPE_F16, SY_DTYPE_BF16};
    for (int round = 0; round < 2 * ROUNDS; round++) {
        bool equals = round % 2;
        struct choice_case c = {.choice = {.dtype = types[kernel_between(0, equals ? 3 : 5)]}};
        struct sy_math_choice *m = &c.choice;
        int64_t n[3];
        kernel_dims(m->rank = (int)kernel_between(0, 4), 7, m->dims);
        kernel_dense(m->rank, m->dims, m->out_strides);
        for (int i = 0; i < 3; i++)
            n[i] = kernel_broadcast(m->rank, m->dims, m->in_strides[i]);
        c.pick = kernel_random(SY_DTYPE_BOOL, n[0]);
        c.a = kernel_odd(m->dtype, n[1]);
        c.b = kernel_random(m->dtype, n[2]);
        for (int64_t i = 0; i < n[2] && i < n[1]; i += 2)
            kernel_put(c.b, i, kernel_get(c.a, i));
        c.out = kernel_tensor(equals ? SY_DTYPE_BOOL : m->dtype, kernel_elements(m->rank, m->dims));
        kernel_run(equals ? launch_equal : launch_where, &c);
        for (int64_t k = 0; k < c.out->n; k++) {
            int64_t at[3];
            for (int i = 0; i < 3; i++)
                at[i] = kernel_offset(k, m->rank, m->dims, m->in_strides[i]);
            double a = kernel_get(c.a, at[1]), b = kernel_get(c.b, at[2]);
            if (equals)
                assert_int_equal(kernel_get(c.out, k), a == b);
            else
                kernel_compare(c.out, k, kernel_get(c.pick, at[0]) != 0 ? a : b, 0);
        }
        kernel_end(state);
    }
}

/* ---- casts ------------------------------------------------------------------------------------------- */

struct cast_case {
    struct kernel_tensor *from, *to;
};

static int launch_cast(void *arg)
{
    struct cast_case *c = arg;
    return sy_kernel_cast(kernel_stream, c->from->type, c->to->type, c->from->n, c->from->device,
                          c->to->device);
}

static bool is_float(enum sy_dtype type)
{
    return type == SY_DTYPE_F32 || sy_math_is_narrow(type);
}

static void check_cast(const struct cast_case *c, int64_t i)
{
    double x = kernel_get(c->from, i);
    if (is_float(c->to->type)) {
        kernel_compare(c->to, i, x, 0);
    } else if (c->to->type == SY_DTYPE_BOOL) {
        assert_int_equal(((uint8_t *)c->to->at)[i], x != 0);
    } else {
        int64_t whole = c->from->type == SY_DTYPE_I64 ? ((int64_t *)c->from->at)[i]
                        : x > -9.2e18 && x < 9.2e18   ? (int64_t)x
                                                      : 0;
        if (c->to->type == SY_DTYPE_I32)
            assert_int_equal(((int32_t *)c->to->at)[i], (int32_t)whole);
        else
            assert_int_equal(((int64_t *)c->to->at)[i], whole);
    }
}

static void test_casts(void **state)
{
    static const enum sy_dtype types[] = {SY_DTYPE_F32, SY_DTYPE_F16, SY_DTYPE_BF16,
                                          SY_DTYPE_I32, SY_DTYPE_I64, SY_DTYPE_BOOL};
    static const int64_t sizes[] = {0, 1, 255, 256, 257, 1000};
    for (int k = 0; k < 6 * 6 * 6; k++) {
        int64_t n = sizes[k / 36];
        struct cast_case c = {kernel_odd(types[k % 6], n), kernel_tensor(types[k / 6 % 6], n)};
        kernel_run(launch_cast, &c);
        for (int64_t i = 0; i < n; i++)
            check_cast(&c, i);
        kernel_end(state);
    }
}

/* ---- moves ------------------------------------------------------------------------------------------- */

struct move_case {
    struct sy_math_move move;
    struct kernel_tensor *from, *to;
};

static int launch_move(void *arg)
{
    struct move_case *c = arg;
    return sy_kernel_move(kernel_stream, &c->move, c->from->device, c->to->device);
}

/* Strides of a box of these dims, transposed or not, in a larger one; returns the larger one's elements. */
static int64_t box(int rank, const int64_t *dims, int64_t *strides, int64_t *offset)
{
    bool transposed = kernel_between(0, 2) == 0, even = kernel_between(0, 1);
    int64_t n = 1, first[SY_MAX_RANK] = {0};
    *offset = 0;
    for (int k = 0; k < rank; k++) {
        int d = transposed ? k : rank - 1 - k;
        int64_t more = kernel_between(0, 2) * (even ? 2 : 1);
        first[d] = more > 0 ? (even ? 2 : 1) : 0;
        strides[d] = n;
        *offset += first[d] * n;
        n *= dims[d] + more;
    }
    return n;
}

static void test_moves(void **state)
{
    static const enum sy_dtype types[] = {SY_DTYPE_BOOL, SY_DTYPE_BF16, SY_DTYPE_F32, SY_DTYPE_I64};
    for (int round = 0; round < 3 * ROUNDS; round++) {
        enum sy_dtype type = types[round % 4];
        size_t size = sy_dtype_bytes(type);
        struct move_case c = {.move = {.element_bytes = (int64_t)size}};
        struct sy_math_move *m = &c.move;
        kernel_dims(m->rank = (int)kernel_between(0, 4), 9, m->dims);
        if (m->rank > 0 && round % 3)
            m->dims[m->rank - 1] = m->dims[m->rank - 1] * 8;
        c.from = kernel_random(type, box(m->rank, m->dims, m->from_strides, &m->from_offset));
        c.to = kernel_tensor(type, box(m->rank, m->dims, m->to_strides, &m->to_offset));
        char *want = malloc((size_t)c.to->n * size + 1);
        memset(want, 0xff, (size_t)c.to->n * size);
        for (int64_t k = 0; k < kernel_elements(m->rank, m->dims); k++)
            memcpy(
                want + (size_t)(m->to_offset + kernel_offset(k, m->rank, m->dims, m->to_strides)) *
                           size,
                (char *)c.from->at +
                    (size_t)(m->from_offset + kernel_offset(k, m->rank, m->dims, m->from_strides)) *
                        size,
                size);
        kernel_run(launch_move, &c);
        assert_memory_equal(c.to->at, want, (size_t)c.to->n * size);
        free(want);
        kernel_end(state);
    }
}

static int launch_fill(void *arg)
{
    struct kernel_tensor *t = arg;
    return sy_kernel_fill(kernel_stream, t->device, t->n, 1.5f);
}

static void test_fill(void **state)
{
    for (int64_t n = 0; n < 600; n += 1 + n / 3) {
        struct kernel_tensor *t = kernel_tensor(SY_DTYPE_F32, n);
        kernel_run(launch_fill, t);
        for (int64_t i = 0; i < n; i++)
            assert_true(kernel_get(t, i) == 1.5);
        kernel_end(state);
    }
}

struct gather_case {
    struct sy_math_gather gather;
    struct kernel_tensor *from, *indices, *to, *fault;
};

static int launch_gather(void *arg)
{
    struct gather_case *c = arg;
    return sy_kernel_gather(kernel_stream, &c->gather, c->from->device, c->indices->device,
                            c->to->device, c->fault->device);
}

static void test_gather(void **state)
{
    for (int round = 0; round < 2 * ROUNDS; round++) {
        int64_t elements = kernel_between(1, 12);
        bool bad = round % 5 == 0;
        enum sy_dtype type = round % 2 ? SY_DTYPE_BF16 : SY_DTYPE_F32;
        struct gather_case c = {.gather = {.outer = kernel_between(1, 4),
                                           .extent = kernel_between(1, 30),
                                           .n_indices = kernel_between(0, 40),
                                           .inner_bytes = elements * (int64_t)sy_dtype_bytes(type),
                                           .wide = round % 3,
                                           .step = 17}};
        struct sy_math_gather *g = &c.gather;
        c.from = kernel_random(type, g->outer * g->extent * elements);
        c.indices = kernel_tensor(g->wide ? SY_DTYPE_I64 : SY_DTYPE_I32, g->n_indices);
        c.to = kernel_tensor(type, g->outer * g->n_indices * elements);
        c.fault = kernel_tensor(SY_DTYPE_I64, 2);
        memset(c.fault->at, 0, 16);
        for (int64_t k = 0; k < g->n_indices; k++)
            kernel_put(c.indices, k, (double)kernel_between(-g->extent, g->extent - 1));
        if (bad && g->n_indices > 0)
            kernel_put(c.indices, g->n_indices - 1, (double)g->extent);
        kernel_run(launch_gather, &c);
        for (int64_t i = 0; i < c.to->n; i++) {
            int64_t k = i / elements % g->n_indices, outer = i / elements / g->n_indices;
            int64_t row = (int64_t)kernel_get(c.indices, k);
            row = row == g->extent ? 0 : row < 0 ? row + g->extent : row;
            assert_true(kernel_get(c.to, i) ==
                        kernel_get(c.from, (outer * g->extent + row) * elements + i % elements));
        }
        assert_int_equal(((struct sy_math_fault *)c.fault->at)->step,
                         bad && g->n_indices > 0 ? 17 : 0);
        if (bad && g->n_indices > 0)
            assert_int_equal(((struct sy_math_fault *)c.fault->at)->index, g->extent);
        kernel_end(state);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------- */

struct softmax_case {
    struct sy_math_softmax softmax;
    struct kernel_tensor *x, *y;
};

static int launch_softmax(void *arg)
{
    struct softmax_case *c = arg;
    return sy_kernel_softmax(kernel_stream, &c->softmax, c->x->device, c->y->device);
}

static void check_softmax(const struct softmax_case *c, const double *x, int64_t first)
{
    const struct sy_math_softmax *s = &c->softmax;
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < s->extent; i++)
        largest = fmax(largest, x[first + i * s->inner]);
    for (int64_t i = 0; i < s->extent; i++)
        sum += exp(x[first + i * s->inner] - largest);
    for (int64_t i = 0; i < s->extent; i++) {
        double v = x[first + i * s->inner] - largest;
        kernel_compare(c->y, first + i * s->inner, s->logarithm ? v - log(sum) : exp(v) / sum, 4);
    }
}

static void test_softmax(void **state)
{
    static const int64_t extents[] = {1, 2, 31, 32, 255, 256, 257, 700};
    for (int round = 0; round < ROUNDS; round++) {
        bool in_place = round % 5 == 0;
        struct softmax_case c = {
            .softmax = {.outer = kernel_between(0, 5),
                        .extent = extents[round % 8],
                        .inner = round % 3 ? 1 : kernel_between(1, 9),
                        .logarithm = kernel_between(0, 1),
                        .out_type = in_place ? SY_DTYPE_F32 : kernel_float_type()}};
        int64_t n = c.softmax.outer * c.softmax.extent * c.softmax.inner;
        double *x = malloc((size_t)(n + 1) * sizeof *x);
        c.x = kernel_random(SY_DTYPE_F32, n);
        for (int64_t i = 0; i < n; i++) {
            kernel_put(c.x, i, kernel_between(0, 20) == 0 ? -INFINITY : 40 * kernel_get(c.x, i));
            if (i / c.softmax.inner % c.softmax.extent == 0)
                kernel_put(c.x, i, round % 11 ? 3 : NAN);
            x[i] = kernel_get(c.x, i);
        }
        c.y = in_place ? c.x : kernel_tensor(c.softmax.out_type, n);
        kernel_run(launch_softmax, &c);
        for (int64_t k = 0; k < c.softmax.outer * c.softmax.inner; k++)
            check_softmax(&c, x,
                          k / c.softmax.inner * c.softmax.extent * c.softmax.inner +
                              k % c.softmax.inner);
        free(x);
        kernel_end(state);
    }
}

struct norm_case {
    struct sy_math_layer_norm norm;
    struct kernel_tensor *x, *skip, *scale, *bias, *out, *sum;
};

static int launch_norm(void *arg)
{
    struct norm_case *c = arg;
    return sy_kernel_layer_norm(kernel_stream, &c->norm, c->x->device, KERNEL_AT(c->skip),
                                c->scale->device, KERNEL_AT(c->bias), c->out->device,
                                KERNEL_AT(c->sum));
}

static void check_norm_row(const struct norm_case *c, int64_t row)
{
    int64_t n = c->norm.columns;
    double mean = 0, variance = 0, v[1024];
    for (int64_t i = 0; i < n; i++) {
        v[i] = kernel_get(c->x, row * n + i) + (c->skip ? kernel_get(c->skip, row * n + i) : 0);
        mean += v[i] / (double)n;
        if (c->sum)
            kernel_compare(c->sum, row * n + i, v[i], 1);
    }
    for (int64_t i = 0; i < n; i++)
        variance += (v[i] - mean) * (v[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++)
        kernel_compare(c->out, row * n + i,
                       (v[i] - mean) / sqrt(variance + (double)c->norm.epsilon) *
                               kernel_get(c->scale, i) +
                           (c->bias ? kernel_get(c->bias, i) : 0),
                       8);
}

static void test_layer_norm(void **state)
{
    static const int64_t columns[] = {1, 3, 255, 256, 257, 768};
    for (int round = 0; round < ROUNDS; round++) {
        struct norm_case c = {.norm = {.rows = kernel_between(0, 6),
                                       .columns = columns[round % 6],
                                       .epsilon = 1e-3f,
                                       .out_type = kernel_float_type()}};
        int64_t n = c.norm.rows * c.norm.columns;
        c.x = kernel_random(SY_DTYPE_F32, n);
        c.skip = round & 1 ? kernel_random(SY_DTYPE_F32, n) : NULL;
        c.scale = kernel_random(SY_DTYPE_F32, c.norm.columns);
        c.bias = round & 2 ? kernel_random(SY_DTYPE_F32, c.norm.columns) : NULL;
        c.sum = round & 4 ? kernel_tensor(SY_DTYPE_F32, n) : NULL;
        c.out = kernel_tensor(c.norm.out_type, n);
        kernel_run(launch_norm, &c);
        for (int64_t row = 0; row < c.norm.rows; row++)
            check_norm_row(&c, row);
        kernel_end(state);
    }
}

struct reduce_case {
    struct sy_math_reduce reduce;
    struct kernel_tensor *x, *y;
};

static int launch_reduce(void *arg)
{
    struct reduce_case *c = arg;
    return sy_kernel_reduce(kernel_stream, &c->reduce, c->x->device, c->y->device);
}

static void test_reduce(void **state)
{
    for (int round = 0; round < 2 * ROUNDS; round++) {
        struct reduce_case c = {.reduce = {.mean = round % 2, .rank = (int)kernel_between(1, 4)}};
        struct sy_math_reduce *r = &c.reduce;
        int64_t kept[SY_MAX_RANK], n_kept = 1, offset;
        for (int d = 0; d < r->rank; d++)
            r->dims[d] = kernel_between(1, round % 3 ? 8 : 20);
        for (int d = r->rank - 1; d >= 0; d--) {
            r->reduced[d] = kernel_between(0, 1);
            kept[d] = r->reduced[d] ? 0 : n_kept;
            n_kept *= r->reduced[d] ? 1 : r->dims[d];
        }
        c.x = kernel_random(SY_DTYPE_F32, box(r->rank, r->dims, r->strides, &offset));
        c.y = kernel_tensor(SY_DTYPE_F32, n_kept);
        kernel_run(launch_reduce, &c);
        int64_t n = kernel_elements(r->rank, r->dims);
        double *sums = calloc((size_t)n_kept, sizeof *sums);
        for (int64_t k = 0; k < n; k++)
            sums[kernel_offset(k, r->rank, r->dims, kept)] +=
                kernel_get(c.x, kernel_offset(k, r->rank, r->dims, r->strides));
        for (int64_t k = 0; k < n_kept; k++)
            kernel_compare(c.y, k, r->mean ? sums[k] * (double)n_kept / (double)n : sums[k],
                           r->mean ? 4 : (double)(n / n_kept));
        free(sums);
        kernel_end(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_choices, kernel_end),
        cmocka_unit_test_teardown(test_casts, kernel_end),
        cmocka_unit_test_teardown(test_moves, kernel_end),
        cmocka_unit_test_teardown(test_fill, kernel_end),
        cmocka_unit_test_teardown(test_gather, kernel_end),
        cmocka_unit_test_teardown(test_softmax, kernel_end),
        cmocka_unit_test_teardown(test_layer_norm, kernel_end),
        cmocka_unit_test_teardown(test_reduce, kernel_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

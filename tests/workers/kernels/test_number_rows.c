/* Loops over float64, int32 and int64 (pair_rows.h, cast_rows.h, collect_rows.h) against the definition, element by element. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/rigs/seed.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/rows/cast_rows.h"
#include "workers/host/rows/elementwise.h"

enum { MOST = 1 << 16, ROUNDS = 400 };

static uint64_t seed;
static union {
    double f64[MOST];
    int64_t i64[MOST];
    int32_t i32[MOST];
    uint8_t u8[MOST];
} a, b, out, before;

static double rare_float(void)
{
    static const double rare[] = {INFINITY, -INFINITY, NAN,    0,   -0.0,
                                  1e300,    -9.3e18,   9.3e18, 0.5, -1.5};
    return rare[seed_below(&seed, SY_ARRAY_LEN(rare))];
}

static int64_t rare_integer(void)
{
    static const int64_t rare[] = {INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, 0, -1, 1, 256};
    return rare[seed_below(&seed, SY_ARRAY_LEN(rare))];
}

static void fill(enum sy_dtype dtype, void *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bool is_rare = seed_below(&seed, 12) == 0;
        int64_t small = (int64_t)seed_below(&seed, 17) - 8;
        if (dtype == SY_DTYPE_F64)
            ((double *)at)[i] = is_rare ? rare_float() : (double)small / 4;
        else if (dtype == SY_DTYPE_I64)
            ((int64_t *)at)[i] = is_rare ? rare_integer() : small;
        else if (dtype == SY_DTYPE_I32)
            ((int32_t *)at)[i] = (int32_t)(is_rare ? rare_integer() : small);
        else
            ((uint8_t *)at)[i] = (uint8_t)(small & (dtype == SY_DTYPE_BOOL ? 1 : 255));
    }
}

/* Which NaN it is aside. */
static bool same(double x, double y)
{
    return (isnan(x) && isnan(y)) || memcmp(&x, &y, sizeof x) == 0;
}

/* ---- pairs ---------------------------------------------------------------------------------------------- */

static double float_pair(enum sy_op op, double x, double y)
{
    switch (op) {
    case SY_OP_ADD:
        return x + y;
    case SY_OP_SUB:
        return x - y;
    case SY_OP_MUL:
        return x * y;
    case SY_OP_DIV:
        return x / y;
    case SY_OP_MAX:
        return isnan(x) || isnan(y) ? NAN : x > y ? x : y;
    case SY_OP_MIN:
        return isnan(x) || isnan(y) ? NAN : x < y ? x : y;
    case SY_OP_EQUAL:
        return x == y;
    case SY_OP_LESS:
        return x < y;
    default:
        return x >= y;
    }
}

/* The low 64 bits. */
static int64_t integer_pair(enum sy_op op, int64_t x, int64_t y)
{
    uint64_t p = (uint64_t)x, q = (uint64_t)y;
    switch (op) {
    case SY_OP_ADD:
        return (int64_t)(p + q);
    case SY_OP_SUB:
        return (int64_t)(p - q);
    case SY_OP_MUL:
        return (int64_t)(p * q);
    case SY_OP_DIV: /* toward zero; by zero it is 0 */
        return y == 0 ? 0 : y == -1 ? (int64_t)(0 - p) : x / y;
    case SY_OP_MAX:
        return x > y ? x : y;
    case SY_OP_MIN:
        return x < y ? x : y;
    case SY_OP_EQUAL:
        return x == y;
    case SY_OP_LESS:
        return x < y;
    default:
        return x >= y;
    }
}

/* Up to four dimensions; of each input some are 1, or all that lead. */
static int64_t random_broadcast(struct sy_broadcast *s)
{
    int64_t n = 1, stride[2] = {1, 1};
    bool is_long = seed_below(&seed, 4) == 0;
    s->rank = (int64_t)seed_below(&seed, 5);
    s->n_inputs = 2;
    for (int64_t d = s->rank - 1; d >= 0; d--) {
        s->dims[d] = 1 + (int64_t)seed_below(&seed, !is_long ? 9 : d == s->rank - 1 ? 900 : 4);
        n *= s->dims[d];
        for (int k = 0; k < 2; k++) {
            bool repeats = seed_below(&seed, 4) == 0;
            s->strides[k][d] = repeats ? 0 : stride[k];
            stride[k] *= repeats ? 1 : s->dims[d];
        }
    }
    return n;
}

static int64_t place(const struct sy_broadcast *s, int k, int64_t i)
{
    int64_t at = 0;
    for (int64_t d = s->rank - 1; d >= 0; i /= s->dims[d--])
        at += i % s->dims[d] * s->strides[k][d];
    return at;
}

static void check_pairs(const struct sy_broadcast *s, int64_t n)
{
    enum sy_op op = (enum sy_op)s->op;
    bool compares = sy_elementwise_compares(op);
    for (int64_t i = 0; i < n; i++) {
        int64_t p = place(s, 0, i), q = place(s, 1, i);
        if (s->dtype == SY_DTYPE_F64) {
            double want = float_pair(op, before.f64[p], b.f64[q]);
            assert_true(compares ? out.u8[i] == (want != 0)
                                 : same(out.f64[i], want) || (want == 0 && out.f64[i] == 0));
            continue;
        }
        int64_t want = s->dtype == SY_DTYPE_I64 ? integer_pair(op, before.i64[p], b.i64[q])
                                                : integer_pair(op, before.i32[p], b.i32[q]);
        assert_int_equal(compares                   ? out.u8[i]
                         : s->dtype == SY_DTYPE_I64 ? out.i64[i]
                                                    : out.i32[i],
                         s->dtype == SY_DTYPE_I64 ? want : (int32_t)want);
    }
}

static void test_pairs_are_their_definition(void **state)
{
    static const enum sy_op ops[] = {SY_OP_ADD,   SY_OP_SUB,  SY_OP_MUL,
                                     SY_OP_DIV,   SY_OP_MAX,  SY_OP_MIN,
                                     SY_OP_EQUAL, SY_OP_LESS, SY_OP_GREATER_OR_EQUAL};
    static const enum sy_dtype types[] = {SY_DTYPE_F64, SY_DTYPE_I64, SY_DTYPE_I32};
    (void)state;
    for (int round = 0; round < ROUNDS; round++)
        for (size_t k = 0; k < SY_ARRAY_LEN(ops) * 3; k++) {
            struct sy_broadcast s = {.op = ops[k / 3], .dtype = types[k % 3]};
            int64_t n = random_broadcast(&s);
            bool lies_over = !sy_elementwise_compares(ops[k / 3]) && seed_below(&seed, 3) == 0;
            fill(types[k % 3], &a, n);
            fill(types[k % 3], &b, n);
            for (int64_t d = 0; d < s.rank; d++)
                lies_over = lies_over && (s.strides[0][d] != 0 || s.dims[d] == 1);
            memcpy(&before, &a, (size_t)n * sizeof(double));
            assert_true(sy_elementwise_supports(&s));
            assert_int_equal(sy_elementwise_broadcast(&s, (const void *[]){&a, &b},
                                                      lies_over ? (void *)&a : &out),
                             SY_OK);
            if (lies_over)
                memcpy(&out, &a, (size_t)n * sizeof(double));
            check_pairs(&s, n);
        }
}

static void test_choices_of_eight_bytes(void **state)
{
    static uint8_t choice[MOST];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct sy_broadcast s = {.op = SY_OP_WHERE, .dtype = SY_DTYPE_I64};
        int64_t n = random_broadcast(&s);
        memcpy(s.strides[2], s.strides[1], sizeof s.strides[2]);
        s.n_inputs = 3;
        fill(SY_DTYPE_BOOL, choice, n);
        fill(SY_DTYPE_I64, &a, n);
        fill(SY_DTYPE_I64, &b, n);
        assert_int_equal(sy_elementwise_broadcast(&s, (const void *[]){choice, &a, &b}, &out),
                         SY_OK);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(out.i64[i], choice[place(&s, 0, i)] ? a.i64[place(&s, 1, i)]
                                                                 : b.i64[place(&s, 2, i)]);
    }
}

/* ---- casts ---------------------------------------------------------------------------------------------- */

static void test_casts_to_and_from_doubles(void **state)
{
    static const enum sy_dtype types[] = {SY_DTYPE_I64, SY_DTYPE_I32, SY_DTYPE_BOOL, SY_DTYPE_U8};
    (void)state;
    for (size_t k = 0; k < SY_ARRAY_LEN(types); k++) {
        enum sy_dtype type = types[k];
        int64_t n = 20000;
        fill(type, &a, n);
        assert_int_equal(sy_elementwise_cast(type, SY_DTYPE_F64, n, &a, &out), SY_OK);
        for (int64_t i = 0; i < n; i++)
            assert_true(out.f64[i] == (type == SY_DTYPE_I64   ? (double)a.i64[i]
                                       : type == SY_DTYPE_I32 ? (double)a.i32[i]
                                                              : (double)a.u8[i]));
        fill(SY_DTYPE_F64, &a, n);
        if (type == SY_DTYPE_U8) /* where kernels do it */
            continue;
        assert_int_equal(sy_elementwise_cast(SY_DTYPE_F64, type, n, &a, &out), SY_OK);
        for (int64_t i = 0; i < n; i++) {
            double x = a.f64[i];
            int64_t whole = fabs(x) < 9.2e18 ? (int64_t)x : 0; /* NaN and what is too far: 0 */
            assert_int_equal(type == SY_DTYPE_I64   ? out.i64[i]
                             : type == SY_DTYPE_I32 ? out.i32[i]
                                                    : out.u8[i],
                             type == SY_DTYPE_I64   ? whole
                             : type == SY_DTYPE_I32 ? (int32_t)whole
                                                    : x != 0);
        }
    }
}

/* ---- reductions ----------------------------------------------------------------------------------------- */

static double float_reduction(enum sy_op op, const double *x, int64_t n)
{
    double sum = op == SY_OP_REDUCE_MAX    ? -INFINITY
                 : op == SY_OP_REDUCE_MIN  ? INFINITY
                 : op == SY_OP_REDUCE_PROD ? 1
                                           : 0,
           top = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        top = isnan(x[i]) || isnan(top) ? NAN : fmax(top, x[i]);
    for (int64_t i = 0; i < n; i++)
        sum = op == SY_OP_REDUCE_MAX || op == SY_OP_REDUCE_MIN
                  ? float_pair(op == SY_OP_REDUCE_MAX ? SY_OP_MAX : SY_OP_MIN, sum, x[i])
              : op == SY_OP_REDUCE_PROD                       ? sum * x[i]
              : op == SY_OP_REDUCE_L1                         ? sum + fabs(x[i])
              : op == SY_OP_REDUCE_SUM_SQUARE                 ? sum + x[i] * x[i]
              : op == SY_OP_REDUCE_LOG_SUM_EXP && !isinf(top) ? sum + exp(x[i] - top)
                                                              : sum + x[i];
    if (op == SY_OP_REDUCE_LOG_SUM_EXP)
        return isinf(top) ? top : top + log(sum);
    return op == SY_OP_REDUCE_MEAN ? sum / (double)n : sum;
}

static int64_t integer_reduction(enum sy_op op, const int64_t *x, int64_t n)
{
    int64_t sum = op == SY_OP_REDUCE_SUM || op == SY_OP_REDUCE_MEAN || op == SY_OP_REDUCE_L1 ||
                          op == SY_OP_REDUCE_SUM_SQUARE
                      ? 0
                      : x[0];
    for (int64_t i =
             sum == 0 && op != SY_OP_REDUCE_PROD && op != SY_OP_REDUCE_MAX && op != SY_OP_REDUCE_MIN
                 ? 0
                 : 1;
         i < n; i++)
        sum = op == SY_OP_REDUCE_MAX    ? integer_pair(SY_OP_MAX, sum, x[i])
              : op == SY_OP_REDUCE_MIN  ? integer_pair(SY_OP_MIN, sum, x[i])
              : op == SY_OP_REDUCE_PROD ? integer_pair(SY_OP_MUL, sum, x[i])
              : op == SY_OP_REDUCE_L1   ? integer_pair(x[i] < 0 ? SY_OP_SUB : SY_OP_ADD, sum, x[i])
              : op == SY_OP_REDUCE_SUM_SQUARE
                  ? integer_pair(SY_OP_ADD, sum, integer_pair(SY_OP_MUL, x[i], x[i]))
                  : integer_pair(SY_OP_ADD, sum, x[i]);
    return op == SY_OP_REDUCE_MEAN ? sum / n : sum;
}

/* The elements of x that the result's element `i` is made of. */
static int64_t collect_elements(const struct sy_array *x, const bool *is_reduced, int64_t i,
                                int64_t *from)
{
    int64_t n = 0;
    for (int64_t k = 0; k < x->n; k++) {
        int64_t left = k, at = 0, stride = 1;
        for (int d = x->rank - 1; d >= 0; left /= x->dims[d--])
            if (!is_reduced[d]) {
                at += left % x->dims[d] * stride;
                stride *= x->dims[d];
            }
        if (at == i)
            from[n++] = k;
    }
    return n;
}

static void check_reduction(const struct sy_call *call, const bool *is_reduced)
{
    static int64_t from[MOST], whole[MOST];
    static double wide[MOST];
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    enum sy_op op = call->node->op;
    for (int64_t i = 0; i < y->n; i++) {
        int64_t n = collect_elements(x, is_reduced, i, from);
        for (int64_t k = 0; k < n; k++) {
            wide[k] = x->dtype == SY_DTYPE_F64 ? a.f64[from[k]] : 0;
            whole[k] = x->dtype == SY_DTYPE_I64 ? a.i64[from[k]] : a.i32[from[k]];
        }
        if (x->dtype == SY_DTYPE_F64) {
            double want = float_reduction(op, wide, n), got = out.f64[i];
            if (!same(got, want) && got != want && !(fabs(got - want) <= 1e-12 * fabs(want)))
                fail_msg("%s: element %lld is %g, not %g", sy_op_name(op), (long long)i, got, want);
        } else if (x->dtype == SY_DTYPE_I64) {
            assert_int_equal(out.i64[i], integer_reduction(op, whole, n));
        } else {
            assert_int_equal(out.i32[i], (int32_t)integer_reduction(op, whole, n));
        }
    }
}

/* Random dimensions, of which some are reduced and stay as 1, so that rows go into one sum or into many. */
static void reduce_once(enum sy_op op, enum sy_dtype type)
{
    int64_t axes[4];
    bool is_reduced[4] = {false};
    struct sy_attr attr = {.name = "axes", .kind = SY_ATTR_INTS, .ints = axes};
    struct sy_node node = {.op = op, .name = (char *)"node", .attrs = &attr, .n_attrs = 1};
    struct sy_call call = {.node = &node, .n_in = 1, .n_out = 1};
    struct sy_array *x = &call.in[0], *y = &call.out[0];
    *x = *y = (struct sy_array){.dtype = type, .rank = 1 + (int)seed_below(&seed, 4), .n = 1};
    x->data = &a;
    y->data = &out;
    x->n = y->n = 1;
    for (int d = 0; d < x->rank; d++) {
        is_reduced[d] = seed_below(&seed, 2) == 0;
        x->dims[d] =
            1 + (int64_t)seed_below(&seed, d == x->rank - 1 && seed_below(&seed, 4) == 0 ? 600 : 6);
        y->dims[d] = is_reduced[d] ? 1 : x->dims[d];
        x->n *= x->dims[d];
        y->n *= y->dims[d];
        if (is_reduced[d])
            axes[attr.n++] = d;
    }
    if (x->n > MOST || x->n * y->n > 1 << 20)
        return; /* the definition would take long */
    const struct sy_kernel *kernel = sy_kernel_find(op);
    fill(type, &a, x->n);
    assert_int_equal(kernel->check(&call), SY_OK);
    call.scratch = malloc((size_t)kernel->scratch(&call) + 1);
    assert_int_equal(kernel->run(&call), SY_OK);
    free(call.scratch);
    check_reduction(&call, is_reduced);
}

static void test_reductions_are_their_definition(void **state)
{
    static const enum sy_op ops[] = {
        SY_OP_REDUCE_SUM,  SY_OP_REDUCE_MEAN, SY_OP_REDUCE_MAX,        SY_OP_REDUCE_MIN,
        SY_OP_REDUCE_PROD, SY_OP_REDUCE_L1,   SY_OP_REDUCE_SUM_SQUARE, SY_OP_REDUCE_LOG_SUM_EXP};
    (void)state;
    for (int round = 0; round < ROUNDS / 4; round++)
        for (size_t k = 0; k < SY_ARRAY_LEN(ops); k++) {
            reduce_once(ops[k], SY_DTYPE_F64);
            if (ops[k] == SY_OP_REDUCE_LOG_SUM_EXP)
                continue; /* computed in double */
            reduce_once(ops[k], SY_DTYPE_I64);
            reduce_once(ops[k], SY_DTYPE_I32);
        }
}

static int group_setup(void **state)
{
    (void)state;
    seed = seed_of_run(1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_are_their_definition),
        cmocka_unit_test(test_choices_of_eight_bytes),
        cmocka_unit_test(test_casts_to_and_from_doubles),
        cmocka_unit_test(test_reductions_are_their_definition),
    };
    return cmocka_run_group_tests(tests, group_setup, NULL);
}

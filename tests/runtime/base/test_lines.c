/* Running sums, the largest k, softmax, norms and reductions over any dimensions against their definitions, NaN and infinities among the
 * data. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/rows/scan_rows.h"
#include "workers/host/rows/softmax_rows.h"
#include "workers/host/rows/top_rows.h"

enum { MOST = 1 << 17 };

static uint64_t seed;
static float x[MOST], y[MOST];
static int64_t whole[MOST], sums[MOST], places[MOST];
static int32_t ints[MOST], int_sums[MOST];
static uint64_t scratch[MOST];

struct shape {
    int64_t outer, n, inner;
};

/* Rows and columns, one element, more columns than a block, enough for the threads. */
static const struct shape shapes[] = {{1, 1, 1},     {3, 7, 1},    {2, 5, 3},
                                      {1, 9, 300},   {40, 1, 1},   {1, 40, 1},
                                      {20, 1000, 1}, {2, 61, 517}, {300, 77, 1}};

/* Few values, so that some are equal; special: one in so many is NaN, an infinity or -0; 0: none. */
static void fill(int64_t n, int64_t special)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f};
    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)rig_int(&seed, -50, 50) / 8;
        if (special && rig_int(&seed, 1, special) == 1)
            x[i] = specials[rig_int(&seed, 0, 4)];
    }
}

static void check(const char *what, int64_t i, double got, double want, double error)
{
    if (isnan(want) ? isnan(got) : got == want || fabs(got - want) <= error * (1 + fabs(want)))
        return;
    fail_msg("%s: element %lld is %.9g, not %.9g", what, (long long)i, got, want);
}

/* ---- running sums ---------------------------------------------------------------------------------------- */

static void check_scan(const struct sy_scan *s)
{
    for (int64_t line = 0; line < s->outer * s->inner; line++) {
        int64_t start = line / s->inner * s->n * s->inner + line % s->inner, total = 0;
        double sum = 0;
        for (int64_t k = 0; k < s->n; k++) {
            int64_t at = start + (s->backward ? s->n - 1 - k : k) * s->inner;
            double before = sum;
            int64_t total_before = total;
            sum += (double)x[at];
            total = (int64_t)((uint64_t)total + (uint64_t)whole[at]);
            check("sum", at, (double)y[at], s->exclusive ? before : sum, 1e-7);
            assert_int_equal(sums[at], s->exclusive ? total_before : total);
            assert_int_equal(int_sums[at], (int32_t)(s->exclusive ? total_before : total));
        }
    }
}

static void test_scan(void **state)
{
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(shapes); i++)
        for (int mode = 0; mode < 4; mode++) {
            struct sy_scan s = {shapes[i].outer, shapes[i].n, shapes[i].inner, mode & 1, mode & 2};
            int64_t n = s.outer * s.n * s.inner;
            fill(n, mode ? 0 : 50);
            for (int64_t k = 0; k < n; k++) {
                whole[k] = rig_int(&seed, INT32_MIN, INT32_MAX);
                ints[k] = (int32_t)whole[k];
            }
            sy_scan_floats(&s, x, y);
            sy_scan_int64s(&s, whole, sums);
            sy_scan_int32s(&s, ints, int_sums);
            check_scan(&s);
        }
}

/* ---- the largest k --------------------------------------------------------------------------------------- */

/* Whether element a comes before b: by definition, what is no number last. */
static bool goes_before(const float *line, int64_t step, bool smallest, int64_t a, int64_t b)
{
    float p = line[a * step], q = line[b * step];
    if (isnan(p) || isnan(q))
        return isnan(p) && isnan(q) ? a < b : isnan(q);
    return p == q ? a < b : (p > q) != smallest;
}

static void check_top(const struct sy_top *t)
{
    for (int64_t line = 0; line < t->lines; line++) {
        int64_t group = line / t->step * t->step, from = group * t->n + line % t->step,
                to = group * t->k + line % t->step;
        for (int64_t i = 0; i < t->n; i++) {
            int64_t earlier = 0;
            for (int64_t k = 0; k < t->n; k++)
                earlier += goes_before(x + from, t->step, t->smallest, k, i);
            if (earlier >= t->k)
                continue;
            assert_int_equal(places[to + earlier * t->step], i);
            assert_memory_equal(&y[to + earlier * t->step], &x[from + i * t->step], sizeof *x);
        }
    }
}

static void test_top(void **state)
{
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(shapes); i++)
        for (int mode = 0; mode < 6; mode++) {
            struct sy_top t = {.lines = shapes[i].outer * shapes[i].inner,
                               .n = shapes[i].n,
                               .step = shapes[i].inner,
                               .smallest = mode & 1};
            t.k = mode < 2 ? t.n : mode < 4 ? 1 : rig_int(&seed, 0, t.n);
            fill(t.lines * t.n, mode % 3 ? 9 : 0);
            assert_true(sy_top_scratch(t.lines, t.k) <= 64 * t.k);
            sy_top_rows(&t, x, scratch, y, places);
            check_top(&t);
            sy_top_rows(&t, x, scratch, y, NULL);
        }
}

/* ---- softmax and norms ----------------------------------------------------------------------------------- */

/* By the definition alone, so an infinity makes all of a line NaN. */
static void check_softmax(const struct sy_reduce_shape *s, bool logarithm)
{
    for (int64_t line = 0; line < s->outer * s->inner; line++) {
        int64_t start = line / s->inner * s->reduced * s->inner + line % s->inner;
        double top = -INFINITY, sum = 0;
        for (int64_t i = 0; i < s->reduced; i++)
            top = fmax(top, (double)x[start + i * s->inner]);
        for (int64_t i = 0; i < s->reduced; i++)
            sum += exp((double)x[start + i * s->inner] - top);
        for (int64_t i = 0; i < s->reduced; i++) {
            double value = (double)x[start + i * s->inner] - top;
            check("softmax", start + i * s->inner, (double)y[start + i * s->inner],
                  logarithm ? value - log(sum) : exp(value) / sum, 4e-7);
        }
    }
}

static void test_softmax(void **state)
{
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(shapes); i++)
        for (int mode = 0; mode < 4; mode++) {
            struct sy_reduce_shape s = {shapes[i].outer, shapes[i].n, shapes[i].inner};
            fill(s.outer * s.reduced * s.inner, mode & 2 ? 60 : 0);
            sy_softmax_rows(mode & 1, &s, x, y);
            check_softmax(&s, mode & 1);
            memcpy(places, x, sizeof x);
            sy_softmax_rows(mode & 1, &s, (float *)places, (float *)places);
            assert_memory_equal(places, y, (size_t)(s.outer * s.reduced * s.inner) * sizeof *y);
        }
}

static void test_norms(void **state)
{
    (void)state;
    for (size_t k = 0; k < SY_ARRAY_LEN(shapes); k++)
        for (int p = 1; p < 3; p++) {
            struct sy_reduce_shape s = {shapes[k].outer, shapes[k].n, shapes[k].inner};
            fill(s.outer * s.reduced * s.inner, 0);
            for (int64_t i = 0; i < s.reduced; i++)
                x[i * s.inner] = 0; /* the first line's norm */
            sy_lp_norm_rows(p, &s, x, y);
            for (int64_t line = 0; line < s.outer * s.inner; line++) {
                int64_t start = line / s.inner * s.reduced * s.inner + line % s.inner;
                double sum = 0;
                for (int64_t i = 0; i < s.reduced; i++)
                    sum += pow(fabs((double)x[start + i * s.inner]), p);
                for (int64_t i = 0; i < s.reduced; i++)
                    check("norm", start + i * s.inner, (double)y[start + i * s.inner],
                          sum == 0 ? 0 : (double)x[start + i * s.inner] / pow(sum, 1.0 / p), 2e-7);
            }
        }
}

/* ---- reductions ------------------------------------------------------------------------------------------ */

static double reduced(enum sy_op op, const double *v, int64_t n)
{
    double sum = 0, product = 1, squares = 0, sizes = 0, top = -INFINITY, least = INFINITY,
           none = 0, powers = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += v[i];
        product *= v[i];
        squares += v[i] * v[i];
        sizes += fabs(v[i]);
        top = v[i] > top ? v[i] : top;
        least = v[i] < least ? v[i] : least;
        none += isnan(v[i]);
    }
    for (int64_t i = 0; i < n; i++)
        powers += exp(v[i] - top);
    switch (op) {
    case SY_OP_REDUCE_SUM:
        return sum;
    case SY_OP_REDUCE_MEAN:
        return sum / (double)n;
    case SY_OP_REDUCE_PROD:
        return product;
    case SY_OP_REDUCE_L1:
        return sizes;
    case SY_OP_REDUCE_L2:
        return sqrt(squares);
    case SY_OP_REDUCE_SUM_SQUARE:
        return squares;
    case SY_OP_REDUCE_LOG_SUM:
        return log(sum);
    case SY_OP_REDUCE_MAX:
        return none > 0 ? (double)NAN : top;
    case SY_OP_REDUCE_MIN:
        return none > 0 ? (double)NAN : least;
    default:
        return none > 0 ? (double)NAN : isinf(top) ? top : top + log(powers);
    }
}

static const enum sy_op reductions[] = {
    SY_OP_REDUCE_SUM, SY_OP_REDUCE_MEAN,       SY_OP_REDUCE_PROD,    SY_OP_REDUCE_L1,
    SY_OP_REDUCE_L2,  SY_OP_REDUCE_SUM_SQUARE, SY_OP_REDUCE_LOG_SUM, SY_OP_REDUCE_MAX,
    SY_OP_REDUCE_MIN, SY_OP_REDUCE_LOG_SUM_EXP};

static void test_reductions(void **state)
{
    static double line[MOST];
    (void)state;
    for (size_t o = 0; o < SY_ARRAY_LEN(reductions); o++)
        for (size_t i = 0; i < 2 * SY_ARRAY_LEN(shapes); i++) {
            struct sy_reduce_shape s = {shapes[i / 2].outer, shapes[i / 2].n, shapes[i / 2].inner};
            fill(s.outer * s.reduced * s.inner, i % 2 ? 40 : 0);
            assert_true(sy_reduce_rows_has(reductions[o]));
            sy_reduce_rows(reductions[o], &s, x, y);
            for (int64_t k = 0; k < s.outer * s.inner; k++) {
                int64_t start = k / s.inner * s.reduced * s.inner + k % s.inner;
                for (int64_t e = 0; e < s.reduced; e++)
                    line[e] = (double)x[start + e * s.inner];
                check(sy_op_name(reductions[o]), k, (double)(double)y[k],
                      (double)(float)reduced(reductions[o], line, s.reduced), 4e-7);
            }
        }
}

/* log of sums of e^x where nothing or not all is finite. */
static void test_log_sum_exp_of_infinities(void **state)
{
    static const float rows[][4] = {
        {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {1, INFINITY, 2, 3},
        {INFINITY, INFINITY, 1, -INFINITY},           {NAN, 1, INFINITY, 2},
        {-INFINITY, 0, -INFINITY, -INFINITY},         {1000, 1000, -INFINITY, -INFINITY}};
    static const float want[] = {-INFINITY, INFINITY, INFINITY, NAN, 0, 1000.693147f};
    float columns[4][6], got[6];
    (void)state;
    for (int i = 0; i < 24; i++)
        columns[i % 4][i / 4] = rows[i / 4][i % 4];
    for (int way = 0; way < 2; way++) {
        struct sy_reduce_shape s = {way ? 1 : 6, 4, way ? 6 : 1};
        sy_reduce_rows(SY_OP_REDUCE_LOG_SUM_EXP, &s, way ? &columns[0][0] : &rows[0][0], got);
        for (int i = 0; i < 6; i++)
            check("log of a sum", i, (double)got[i], (double)want[i], 1e-7);
    }
}

/* Every choice of dimensions, some of them 1 or 0. */
static void check_any(enum sy_op op, const struct sy_reduction *r)
{
    static double line[MOST];
    int64_t strides[SY_MAX_RANK], n = 1, results = 1;
    for (int64_t d = r->rank - 1; d >= 0; d--) {
        strides[d] = r->reduced[d] ? 0 : results;
        results *= r->reduced[d] ? 1 : r->dims[d];
        n *= r->dims[d];
    }
    for (int64_t k = 0; k < results; k++) {
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t left = i, at = 0;
            for (int64_t d = r->rank - 1; d >= 0; d--) {
                at += left % r->dims[d] * strides[d];
                left /= r->dims[d];
            }
            if (at == k)
                line[count++] = (double)x[i];
        }
        check(sy_op_name(op), k, (double)y[k], (double)(float)reduced(op, line, count), 4e-7);
    }
}

static void test_any_dimensions(void **state)
{
    (void)state;
    for (int round = 0; round < 400; round++) {
        enum sy_op op = reductions[round % 9];
        struct sy_reduction r = {.rank = rig_int(&seed, 0, 5)};
        int64_t n = 1;
        for (int64_t d = 0; d < r.rank; d++) {
            r.dims[d] = rig_int(&seed, round % 7 ? 1 : 0, 5);
            r.reduced[d] = rig_int(&seed, 0, 1);
            n *= r.dims[d];
        }
        fill(n, round % 2 ? 0 : 40);
        assert_true(sy_reduce_any_has(op));
        sy_reduce_any(op, &r, x, y);
        check_any(op, &r);
    }
    struct sy_reduction wide = {3, {7, 3, 700}, {1, 0, 0}};
    fill(7 * 3 * 700, 0);
    sy_reduce_any(SY_OP_REDUCE_SUM, &wide, x, y);
    check_any(SY_OP_REDUCE_SUM, &wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scan),           cmocka_unit_test(test_top),
        cmocka_unit_test(test_softmax),        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_reductions),     cmocka_unit_test(test_log_sum_exp_of_infinities),
        cmocka_unit_test(test_any_dimensions),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

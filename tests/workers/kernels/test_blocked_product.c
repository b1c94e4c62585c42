/* Products of packed matrices on CPUs without AVX-512, against sums in double. */
#include "workers/host/products/blocked_product.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "workers/host/rows/elementwise.h"

struct numbers {
    int64_t m, k, n;
    float *x, *turned, *w, *packed, *bias, *before, *scratch;
    uint16_t *narrow;
};

static float number(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1 << 23) - 1;
}

static float *some(int64_t n, uint32_t *seed)
{
    float *out = malloc((size_t)n * sizeof *out);
    assert_non_null(out);
    for (int64_t i = 0; i < n; i++)
        out[i] = number(seed);
    return out;
}

/* Weights are numbers that bf16 holds. */
static struct numbers make(int64_t m, int64_t k, int64_t n)
{
    uint32_t seed = (uint32_t)(m * 7 + k * 3 + n);
    int64_t elements = sy_blocked_elements(k, n);
    struct numbers s = {m,
                        k,
                        n,
                        some(m * k, &seed),
                        malloc((size_t)(m * k) * sizeof(float)),
                        some(k * n, &seed),
                        malloc((size_t)elements * sizeof(float)),
                        some(n, &seed),
                        some(m * n, &seed),
                        malloc((size_t)(m * k) * sizeof(float)),
                        malloc((size_t)elements * sizeof(uint16_t))};
    for (int64_t i = 0; i < m * k; i++)
        s.turned[i % k * m + i / k] = s.x[i];
    sy_blocked_pack(k, n, s.w, s.packed);
    sy_elementwise_narrow(elements, s.packed, s.narrow);
    sy_elementwise_widen(elements, s.narrow, s.packed);
    for (int64_t i = 0; i < k * n; i++) {
        sy_elementwise_narrow(1, s.w + i, s.narrow);
        sy_elementwise_widen(1, s.narrow, s.w + i);
    }
    sy_elementwise_narrow(elements, s.packed, s.narrow);
    return s;
}

static void drop(struct numbers *s)
{
    free(s->x);
    free(s->turned);
    free(s->w);
    free(s->packed);
    free(s->bias);
    free(s->before);
    free(s->scratch);
    free(s->narrow);
}

/* The caller frees. */
/* What OpenMP's library orders, ThreadSanitizer does not see: then it is one. */
static void use_threads(int n)
{
#ifdef __SANITIZE_THREAD__
    n = 1;
#endif
    omp_set_num_threads(n);
}

static float *product(const struct numbers *s, int64_t m, bool narrow, bool turned, bool biased,
                      float y_scale)
{
    float *y = malloc((size_t)(m * s->n) * sizeof *y);
    assert_non_null(y);
    memcpy(y, s->before, (size_t)(m * s->n) * sizeof *y);
    for (int64_t i = 0; y_scale == 0 && i < m * s->n; i++)
        y[i] = NAN;
    struct sy_blocked_product b = {.m = m,
                                   .k = s->k,
                                   .n = s->n,
                                   .x = turned ? s->turned : s->x,
                                   .x_row = turned ? 1 : s->k,
                                   .x_column = turned ? s->m : 1,
                                   .w = narrow ? (const void *)s->narrow : s->packed,
                                   .narrow = narrow,
                                   .bias = biased ? s->bias : NULL,
                                   .y_scale = y_scale,
                                   .y = y,
                                   .scratch = s->scratch};
    sy_blocked_product_run(&b);
    return y;
}

static void check(const struct numbers *s, const float *y, bool biased, float y_scale)
{
    for (int64_t i = 0; i < s->m * s->n; i++) {
        int64_t row = i / s->n, column = i % s->n;
        double sum = biased ? (double)s->bias[column] : 0, size = 1;
        sum += (double)y_scale * (double)s->before[i];
        for (int64_t j = 0; j < s->k; j++) {
            double term = (double)s->x[row * s->k + j] * (double)s->w[j * s->n + column];
            sum += term;
            size += fabs(term);
        }
        if (!(fabs((double)y[i] - sum) <= 1e-6 * size))
            fail_msg("%lld x %lld x %lld: [%lld] is %.9g, not %.9g", (long long)s->m,
                     (long long)s->k, (long long)s->n, (long long)i, (double)y[i], sum);
    }
}

static void check_size(int64_t m, int64_t k, int64_t n)
{
    static const float scales[] = {0, 1, 0.5f};
    struct numbers s = make(m, k, n);
    for (int i = 0; i < 3; i++) {
        bool biased = i != 1;
        float *y = product(&s, m, false, i == 2, biased, scales[i]);
        float *same = product(&s, m, true, false, biased, scales[i]);
        check(&s, y, biased, scales[i]);
        assert_memory_equal(same, y, (size_t)(m * n) * sizeof *y);
        free(y);
        free(same);
    }
    for (int narrow = 0; narrow < 2; narrow++) {
        float *w = malloc((size_t)(k * n) * sizeof *w);
        assert_non_null(w);
        sy_blocked_unpack(k, n, narrow ? (const void *)s.narrow : s.packed, narrow, w);
        assert_memory_equal(w, s.w, (size_t)(k * n) * sizeof *w);
        free(w);
    }
    drop(&s);
}

static void test_sums(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 7, 16},   {2, 5, 17},    {3, 384, 33},
                                       {5, 385, 40}, {6, 769, 31}, {7, 100, 1},   {13, 64, 48},
                                       {29, 400, 5}, {64, 33, 90}, {400, 390, 40}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_size(sizes[i][0], sizes[i][1], sizes[i][2]);
}

/* For any number of threads, and whatever rows come after. */
static void test_same_bits(void **state)
{
    (void)state;
    struct numbers s = make(48, 800, 70);
    int threads = omp_get_max_threads();
    use_threads(1);
    float *alone = product(&s, 48, false, false, true, 0);
    for (int n = 2; n <= 7; n += 5) {
        use_threads(n);
        float *y = product(&s, 48, false, false, true, 0),
              *few = product(&s, 11, false, false, true, 0);
        assert_memory_equal(y, alone, 48 * 70 * sizeof *y);
        assert_memory_equal(few, alone, 11 * 70 * sizeof *y);
        free(y);
        free(few);
    }
    use_threads(threads);
    free(alone);
    drop(&s);
}

/* More cores than panels: rows are shared. */
static void test_few_columns(void **state)
{
    (void)state;
    int threads = omp_get_max_threads();
    use_threads(4);
    check_size(120, 300, 20);
    use_threads(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_few_columns),
    };
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 77;
    use_threads(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

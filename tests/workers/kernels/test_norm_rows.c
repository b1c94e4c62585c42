/* Layer and group norm of numbers that are almost equal, where what rounding does to the mean is as large as the deviations: against the
 * definition in double. */
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/rigs/engine_rig.h"
#include "workers/host/rows/row_kernels.h"

enum { ROWS = 4, CHANNELS = 4, SPATIAL = 5000, COLUMNS = 768 };

static const float epsilon = 1e-5f;
static uint64_t seed;

/* Numbers around `base`; every n of them have a mean and variance of their own. */
struct numbers {
    float base, noise;
};

static const struct numbers cases[] = {{5.3f, 0},         {5.3f, 1e-6f},   {5.3f, 1e-4f},
                                       {1000.1f, 1e-3f},  {-77.7f, 1e-2f}, {0.01f, 1e-6f},
                                       {123456.7f, 0.1f}, {0, 1}};

static void fill(const struct numbers *k, int64_t n, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = k->base + k->noise * (float)rig_int(&seed, -1000, 1000) / 1000;
}

static double mean_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return sum / (double)n;
}

/* root: of the mean square, nothing is subtracted. */
static void check(const float *x, int64_t n, bool root, const float *out)
{
    double mean = root ? 0 : mean_of(x, n), square = 0;
    for (int64_t i = 0; i < n; i++)
        square += ((double)x[i] - mean) * ((double)x[i] - mean);
    double rate = 1 / sqrt(square / (double)n + (double)epsilon);
    for (int64_t i = 0; i < n; i++) {
        double want = ((double)x[i] - mean) * rate;
        if (fabs((double)out[i] - want) > 2e-6 + 2e-5 * fabs(want))
            fail_msg("element %lld is %.9g, not %.9g (of numbers near %g)", (long long)i,
                     (double)out[i], want, (double)x[i]);
    }
}

static float *ones(int64_t n)
{
    float *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = 1;
    return x;
}

static void check_rows(const struct numbers *k, bool root)
{
    float *x = ones(ROWS * COLUMNS), *out = ones(ROWS * COLUMNS), *scale = ones(COLUMNS);
    struct sy_layer_norm n = {.rows = ROWS,
                              .columns = COLUMNS,
                              .epsilon = epsilon,
                              .x = x,
                              .scale = scale,
                              .out = out,
                              .root = root};
    fill(k, ROWS * COLUMNS, x);
    sy_row_layer_norm(&n);
    for (int64_t row = 0; row < ROWS; row++)
        check(x + row * COLUMNS, COLUMNS, root, out + row * COLUMNS);
    free(x);
    free(out);
    free(scale);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_rows(&cases[i], false);
        check_rows(&cases[i], true);
    }
}

static void check_groups(const struct numbers *k, int64_t groups)
{
    int64_t image = CHANNELS * SPATIAL;
    float *x = ones(2 * image), *out = ones(2 * image), *scale = ones(CHANNELS);
    float bias[CHANNELS] = {0};
    struct sy_group_norm n = {.images = 2,
                              .channels = CHANNELS,
                              .groups = groups,
                              .spatial = SPATIAL,
                              .epsilon = epsilon,
                              .x = x,
                              .scale = scale,
                              .bias = bias,
                              .out = out};
    fill(k, 2 * image, x);
    sy_row_group_norm(&n);
    for (int64_t g = 0; g < 2 * groups; g++)
        check(x + g * (image / groups), image / groups, false, out + g * (image / groups));
    free(x);
    free(out);
    free(scale);
}

static void test_groups(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_groups(&cases[i], 2);
        check_groups(&cases[i], CHANNELS);
    }
}

/* One NaN is the whole row's, or group's. */
static void test_nan_goes_on(void **state)
{
    (void)state;
    float *x = ones(COLUMNS), *out = ones(COLUMNS), *scale = ones(COLUMNS), bias[1] = {0};
    x[COLUMNS / 2] = NAN;
    for (int form = 0; form < 3; form++) {
        struct sy_layer_norm rows = {.rows = 1,
                                     .columns = COLUMNS,
                                     .epsilon = epsilon,
                                     .x = x,
                                     .scale = scale,
                                     .out = out,
                                     .root = form == 1};
        struct sy_group_norm group = {.images = 1,
                                      .channels = 1,
                                      .groups = 1,
                                      .spatial = COLUMNS,
                                      .epsilon = epsilon,
                                      .x = x,
                                      .scale = scale,
                                      .bias = bias,
                                      .out = out};
        if (form < 2)
            sy_row_layer_norm(&rows);
        else
            sy_row_group_norm(&group);
        for (int i = 0; i < COLUMNS; i++)
            assert_true(isnan(out[i]));
    }
    free(x);
    free(out);
    free(scale);
}

int main(void)
{
    seed = rig_start();
#ifdef __SANITIZE_THREAD__
    omp_set_num_threads(1); /* ThreadSanitizer does not see what OpenMP orders */
#endif
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_nan_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

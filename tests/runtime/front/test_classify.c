/* The best classes of each row, against sorting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/front/classify.h"
#include "tests/rigs/seed.h"

#define MOST 200

static uint64_t chance;
static double row[MOST]; /* that `order` compares */

static int order(const void *a, const void *b)
{
    int i = *(const int *)a, j = *(const int *)b;
    double x = isnan(row[i]) ? (double)-INFINITY : row[i],
           y = isnan(row[j]) ? (double)-INFINITY : row[j];

    return x > y ? -1 : x < y ? 1 : i - j;
}

/* A value as the dtype has it. */
static double put(enum sy_dtype dtype, char *to, int i)
{
    int64_t whole = (int64_t)seed_below(&chance, 100) - (dtype == SY_DTYPE_U8 ? 0 : 50);
    double value = seed_below(&chance, 20) == 0 ? (double)NAN : (double)whole / 8;
    float single = (float)value;
    uint16_t half = dtype == SY_DTYPE_F16 ? sy_float_to_half(single) : sy_float_to_bf16(single);
    size_t bytes = sy_dtype_bytes(dtype);

    switch (dtype) {
    case SY_DTYPE_F64:
        memcpy(to + (size_t)i * bytes, &value, bytes);
        return value;
    case SY_DTYPE_F32:
        memcpy(to + (size_t)i * bytes, &single, bytes);
        return value;
    case SY_DTYPE_F16:
    case SY_DTYPE_BF16:
        memcpy(to + (size_t)i * bytes, &half, bytes);
        return (double)(dtype == SY_DTYPE_F16 ? sy_half_to_float(half) : sy_bf16_to_float(half));
    default:
        memcpy(to + (size_t)i * bytes, &whole, bytes);
        return (double)whole;
    }
}

static void check_row(const struct sy_classes *classes, int64_t r, int n)
{
    int best[MOST];
    char wanted[SY_CLASSIFY_TEXT];

    for (int i = 0; i < n; i++)
        best[i] = i;
    qsort(best, (size_t)n, sizeof *best, order);
    for (int i = 0; i < classes->k; i++) {
        double value = isnan(row[best[i]]) ? (double)-INFINITY : row[best[i]];

        snprintf(wanted, sizeof wanted, "%.6f:%d", value, best[i]);
        assert_string_equal(classes->texts[r * classes->k + i], wanted);
    }
}

static void test_random(void **state)
{
    static const enum sy_dtype dtypes[] = {SY_DTYPE_F32, SY_DTYPE_F64, SY_DTYPE_F16, SY_DTYPE_BF16,
                                           SY_DTYPE_I8,  SY_DTYPE_U8,  SY_DTYPE_I32, SY_DTYPE_I64};
    static double values[10 * MOST];
    static char data[10 * MOST * 8];

    (void)state;
    for (int t = 0; t < 3000; t++) {
        enum sy_dtype dtype = dtypes[seed_below(&chance, 8)];
        int rows = (int)seed_below(&chance, 10), n = (int)seed_below(&chance, MOST);
        int64_t k = 1 + (int64_t)seed_below(&chance, 300);
        struct sy_front_tensor tensor = {
            .name = "y", .dtype = dtype, .rank = 2, .dims = {rows, n}, .data = data};
        struct sy_classes classes;

        for (int i = 0; i < rows * n; i++)
            values[i] = put(dtype, data, i);
        assert_int_equal(sy_classify(&tensor, 0, NULL, true, k, &classes), SY_OK);
        assert_int_equal(classes.rows, rows);
        assert_int_equal(classes.k, rows == 0 ? 0 : k < n ? k : n);
        for (int r = 0; r < rows; r++) {
            memcpy(row, values + (size_t)r * (size_t)n, (size_t)n * sizeof *row);
            check_row(&classes, r, n);
        }
        free(classes.texts);
    }
}

static void test_shapes(void **state)
{
    const float data[6] = {1, 3, 2, 6, 5, 4};
    struct sy_front_tensor tensor = {.name = "y", .dtype = SY_DTYPE_F32, .data = data};
    struct sy_classes classes;

    (void)state;
    tensor.rank = 3; /* what follows the rows is one row of classes */
    memcpy(tensor.dims, ((int64_t[]){2, 3, 1}), 24);
    assert_int_equal(sy_classify(&tensor, 0, NULL, true, 1, &classes), SY_OK);
    assert_true(classes.has_rows);
    assert_string_equal(classes.texts[0], "3.000000:1");
    assert_string_equal(classes.texts[1], "6.000000:0");
    free(classes.texts);
    assert_int_equal(sy_classify(&tensor, 0, NULL, false, 2, &classes), SY_OK);
    assert_false(classes.has_rows);
    assert_string_equal(classes.texts[0], "6.000000:3");
    assert_string_equal(classes.texts[1], "5.000000:4");
    free(classes.texts);
    tensor.rank = 0;
    assert_int_equal(sy_classify(&tensor, 0, NULL, true, 3, &classes), SY_OK);
    assert_int_equal(classes.k, 1);
    free(classes.texts);
}

static void test_refused(void **state)
{
    const char data[8] = {0};
    struct sy_front_tensor tensor = {
        .name = "y", .dtype = SY_DTYPE_BOOL, .rank = 1, .dims = {8}, .data = data};
    struct sy_classes classes;

    (void)state;
    assert_int_equal(sy_classify(&tensor, 0, NULL, false, 1, &classes), SY_EARG);
    tensor.dtype = SY_DTYPE_I8;
    assert_int_equal(sy_classify(&tensor, 0, NULL, false, 0, &classes), SY_EARG);
    assert_int_equal(sy_classify(&tensor, 0, NULL, false, -1, &classes), SY_EARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_refused),
    };

    chance = seed_of_run(5);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

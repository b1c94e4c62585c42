/* Small element types (small_types.h) against all numbers that they have: their bits' meaning, and the nearest of them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "loader/graph/small_types.h"
#include "tests/rigs/engine_rig.h"

static uint64_t seed;

static const struct {
    int type;
    double least, most; /* the smallest above 0, the largest; of ONNX's table */
    double beyond;      /* what a larger number becomes without saturation */
} floats[] = {{SY_SMALL_E4M3FN, 0x1p-9, 448, NAN},
              {SY_SMALL_E4M3FNUZ, 0x1p-10, 240, NAN},
              {SY_SMALL_E5M2, 0x1p-16, 57344, INFINITY},
              {SY_SMALL_E5M2FNUZ, 0x1p-17, 57344, NAN},
              {SY_SMALL_E2M1, 0.5, 6, 6}};
enum { N_FLOATS = sizeof floats / sizeof *floats };

static void test_range_of_floats(void **state)
{
    (void)state;
    for (int i = 0; i < N_FLOATS; i++) {
        double least = INFINITY, most = 0;
        for (unsigned bits = 0; bits < 1u << sy_small_bits(floats[i].type); bits++) {
            double value = sy_small_value(floats[i].type, bits);
            if (value > 0 && isfinite(value)) {
                least = fmin(least, value);
                most = fmax(most, value);
            }
        }
        assert_true(least == floats[i].least && most == floats[i].most);
    }
}

/* The distance to the nearest number of the type. */
static double nearest(int type, double x)
{
    double distance = INFINITY;
    for (unsigned bits = 0; bits < 1u << sy_small_bits(type); bits++) {
        double value = sy_small_value(type, bits);
        if (isfinite(value))
            distance = fmin(distance, fabs(x - value));
    }
    return distance;
}

static void test_rounding_finds_the_nearest(void **state)
{
    (void)state;
    for (int i = 0; i < N_FLOATS; i++)
        for (int k = 0; k < 2000; k++) {
            double x = ldexp(gb_uniform(&seed, -1, 1), (int)rig_int(&seed, -20, 17));
            double y = sy_small_round(floats[i].type, x, true, SY_SMALL_UP);
            if (fabs(x - y) != nearest(floats[i].type, x))
                fail_msg("type %d: %.17g became %.17g", floats[i].type, x, y);
        }
}

static void test_ties_go_to_even(void **state)
{
    (void)state;
    assert_true(sy_small_round(SY_SMALL_E4M3FN, 17, true, SY_SMALL_UP) == 16);
    assert_true(sy_small_round(SY_SMALL_E4M3FN, 19, true, SY_SMALL_UP) == 20);
    assert_true(sy_small_round(SY_SMALL_E2M1, 2.5, true, SY_SMALL_UP) == 2);
    assert_true(sy_small_round(SY_SMALL_E2M1, 3.5, true, SY_SMALL_UP) == 4);
}

static void test_beyond_the_largest(void **state)
{
    (void)state;
    for (int i = 0; i < N_FLOATS; i++) {
        double much = floats[i].most * 4;
        assert_true(sy_small_round(floats[i].type, much, true, SY_SMALL_UP) == floats[i].most);
        assert_true(sy_small_round(floats[i].type, -much, true, SY_SMALL_UP) == -floats[i].most);
        double loose = sy_small_round(floats[i].type, much, false, SY_SMALL_UP);
        assert_true(isnan(floats[i].beyond) ? isnan(loose) : loose == floats[i].beyond);
    }
    assert_true(isnan(sy_small_round(SY_SMALL_E4M3FN, NAN, true, SY_SMALL_UP)));
    assert_false(signbit(sy_small_round(SY_SMALL_E5M2FNUZ, -1e-9, true, SY_SMALL_UP)));
}

static void test_powers_of_two(void **state)
{
    (void)state;
    assert_true(sy_small_value(SY_SMALL_E8M0, 127) == 1 &&
                isnan(sy_small_value(SY_SMALL_E8M0, 255)));
    assert_true(sy_small_round(SY_SMALL_E8M0, 5, true, SY_SMALL_UP) == 8);
    assert_true(sy_small_round(SY_SMALL_E8M0, 5, true, SY_SMALL_DOWN) == 4);
    assert_true(sy_small_round(SY_SMALL_E8M0, 5, true, SY_SMALL_NEAREST) == 4);
    assert_true(sy_small_round(SY_SMALL_E8M0, 7, true, SY_SMALL_NEAREST) == 8);
    assert_true(sy_small_round(SY_SMALL_E8M0, 4, true, SY_SMALL_UP) == 4);
}

static void test_whole_numbers_keep_their_lowest_bits(void **state)
{
    static const struct {
        int type, from, to;
    } cases[] = {{SY_SMALL_INT4, 7, 7},    {SY_SMALL_INT4, 8, -8},  {SY_SMALL_INT4, -9, 7},
                 {SY_SMALL_UINT4, -1, 15}, {SY_SMALL_UINT4, 16, 0}, {SY_SMALL_INT2, 2, -2},
                 {SY_SMALL_INT2, -3, 1},   {SY_SMALL_UINT2, 5, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(sy_small_round(cases[i].type, cases[i].from, true, SY_SMALL_UP) == cases[i].to);
    assert_int_equal(sy_small_carrier(SY_SMALL_INT2), SY_DTYPE_I8);
    assert_int_equal(sy_small_carrier(SY_DTYPE_F32), SY_DTYPE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_range_of_floats),
        cmocka_unit_test(test_rounding_finds_the_nearest),
        cmocka_unit_test(test_ties_go_to_even),
        cmocka_unit_test(test_beyond_the_largest),
        cmocka_unit_test(test_powers_of_two),
        cmocka_unit_test(test_whole_numbers_keep_their_lowest_bits),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

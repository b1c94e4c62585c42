/* Conversions of the kernels' narrow floats against the compiler's own. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/half.h"

static uint16_t bits_of(_Float16 value)
{
    uint16_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void test_every_half_comes_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        _Float16 half;
        uint16_t bits = (uint16_t)i;
        memcpy(&half, &bits, sizeof half);
        float wide = sy_half_to_float(bits);
        if (isnan(wide)) {
            assert_true(isnan((float)half));
            continue;
        }
        assert_true(wide == (float)half && signbit(wide) == signbit((float)half));
        assert_int_equal(sy_float_to_half(wide), bits);
    }
}

/* Every float with 12 bits of mantissa from 2^-30 to 2^20: ties, their neighbours, subnormals, overflow. */
static void test_rounding_to_half(void **state)
{
    (void)state;
    for (int exponent = -42; exponent < 20; exponent++)
        for (int mantissa = 4096; mantissa < 8192; mantissa++)
            for (int nudge = -1; nudge <= 1; nudge++) {
                float value = ldexpf((float)mantissa, exponent - 12);
                value = nudge ? nextafterf(value, nudge > 0 ? INFINITY : 0) : value;
                assert_int_equal(sy_float_to_half(value), bits_of((_Float16)value));
                assert_int_equal(sy_float_to_half(-value), bits_of((_Float16)-value));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half_comes_back),
        cmocka_unit_test(test_rounding_to_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

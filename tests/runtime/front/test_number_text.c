/* Floats as text: fewest digits, the same value again, always a float's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/front/request/number_text.h"
#include "tests/rigs/seed.h"

static void test_known(void **state)
{
    static const struct {
        float value;
        const char *text;
    } known[] = {{0.1F, "0.1"},
                 {1, "1.0"},
                 {-0.0F, "-0.0"},
                 {16777216, "16777216.0"},
                 {1e20F, "1e+20"},
                 {1.5e-45F, "1e-45"},
                 {3.4028235e38F, "3.4028235e+38"}};
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(known); i++) {
        char text[SY_NUMBER_TEXT_BYTES + 1] = "";
        assert_int_equal(sy_number_text_f32(known[i].value, text), strlen(known[i].text));
        assert_string_equal(text, known[i].text);
    }
}

static int significant(const char *text)
{
    int digits = 0, zeros = 0;
    for (const char *c = text + strspn(text, "-0."); *c && *c != 'e'; c++) {
        zeros = *c == '0' ? zeros + 1 : *c == '.' ? zeros : 0;
        digits += *c != '.';
    }
    return digits - zeros;
}

/* How many digits printf needs for the same value. */
static int fewest_digits(float value)
{
    for (int n = 1;; n++) {
        char text[64];
        snprintf(text, sizeof text, "%.*e", n - 1, (double)value);
        float again = strtof(text, NULL);
        if (memcmp(&again, &value, sizeof value) == 0)
            return n;
    }
}

static void check_float(float value)
{
    char text[SY_NUMBER_TEXT_BYTES + 1] = "";
    assert_in_range(sy_number_text_f32(value, text), 3, SY_NUMBER_TEXT_BYTES);
    float again = strtof(text, NULL);
    assert_memory_equal(&again, &value, sizeof value);
    assert_non_null(strpbrk(text, ".e"));
    if (fabsf(value) < 1e6F) /* larger ones may be written out to the last digit */
        assert_in_range(significant(text), 0, fewest_digits(value));
}

static void test_random(void **state)
{
    uint64_t chance = seed_of_run(1);
    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint64_t bits = seed_next(&chance);
        float single;
        double wide, again;
        char text[SY_NUMBER_TEXT_BYTES + 1] = "";
        memcpy(&single, &bits, sizeof single);
        memcpy(&wide, &bits, sizeof wide);
        if (isfinite(single))
            check_float(single);
        if (!isfinite(wide))
            continue;
        assert_in_range(sy_number_text_f64(wide, text), 3, SY_NUMBER_TEXT_BYTES);
        again = strtod(text, NULL);
        assert_memory_equal(&again, &wide, sizeof wide);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Which bytes a Range header line asks for, by RFC 9110's rules, against a table and against a naive reading of random ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/front/http/http_package.h"
#include "tests/rigs/seed.h"

static void test_words(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t size, first, end;
        int what;
    } cases[] = {
        {NULL, 100, 0, 100, 0},
        {"", 100, 0, 100, 0},
        {"bytes=0-99", 100, 0, 100, 1},
        {"BYTES=5-", 100, 5, 100, 1},
        {"bytes=99-99", 100, 99, 100, 1},
        {"bytes=0-18446744073709551610", 100, 0, 100, 1},
        {"bytes=0-99999999999999999999999999", 100, 0, 100, 1},
        {"bytes=-99999999999999999999999999", 100, 0, 100, 1},
        {"bytes=0-999", 100, 0, 100, 1},
        {"bytes=-1", 100, 99, 100, 1},
        {"bytes=-100", 100, 0, 100, 1},
        {"bytes=-101", 100, 0, 100, 1},
        {"bytes=-0", 100, 100, 100, -1},
        {"bytes=100-", 100, 0, 100, -1},
        {"bytes=100-200", 100, 0, 100, -1},
        {"bytes=0-", 0, 0, 0, -1},
        {"bytes=-5", 0, 0, 0, 0},
        {"bytes=7-5", 100, 0, 100, 0},
        {"bytes=-", 100, 0, 100, 0},
        {"bytes=1-2,5-6", 100, 0, 100, 0},
        {"bytes=1-2x", 100, 0, 100, 0},
        {"bytes= 1-2", 100, 0, 100, 0},
        {"bytes=+1-2", 100, 0, 100, 0},
        {"bytes=99999999999999999999999999-", 100, 0, 100, -1},
        {"bytes=99999999999999999999999999-5", 100, 0, 100, 0},
        {"lines=1-2", 100, 0, 100, 0},
        {"bytes", 100, 0, 100, 0},
        {"bytes=", 100, 0, 100, 0},
    };
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        uint64_t first, end;
        int got = sy_http_range_parse(cases[i].text, cases[i].size, &first, &end);
        if (got != cases[i].what || (got >= 0 && (first != cases[i].first || end != cases[i].end)))
            fail_msg("'%s' of %llu: %d, [%llu, %llu)", cases[i].text ? cases[i].text : "",
                     (unsigned long long)cases[i].size, got, (unsigned long long)first,
                     (unsigned long long)end);
    }
}

static void test_random(void **state)
{
    (void)state;
    uint64_t chance = seed_of_run(20261127);
    for (int i = 0; i < 20000; i++) {
        uint64_t size = 1 + seed_below(&chance, 50), a = seed_below(&chance, 60),
                 b = seed_below(&chance, 60), first, end, n = 0;
        char text[64];
        snprintf(text, sizeof text, "bytes=%llu-%llu", (unsigned long long)a,
                 (unsigned long long)b);
        for (uint64_t at = 0; at < size; at++)
            n += at >= a && at <= b;
        int got = sy_http_range_parse(text, size, &first, &end);
        assert_int_equal(got, b < a ? 0 : n > 0 ? 1 : -1);
        if (got > 0) {
            assert_int_equal(first, a);
            assert_int_equal(end - first, n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words), cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

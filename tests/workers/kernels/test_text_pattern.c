/* Patterns (text_pattern.h): one that was given back is the same pattern again, also when many others were used between, and two in use are two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "workers/host/base/text_pattern.h"

static bool finds(struct sy_pattern *p, const char *text)
{
    bool found;
    size_t start, end;
    assert_int_equal(sy_pattern_find(p, text, strlen(text), 0, &found, &start, &end), SY_OK);
    return found;
}

static void check(const char *pattern, bool whole, const char *text, bool found)
{
    struct sy_pattern *p;
    assert_int_equal(sy_pattern_create(pattern, whole, &p), SY_OK);
    assert_int_equal(finds(p, text), found);
    sy_pattern_destroy(p);
}

static void patterns_stay_themselves(void **state)
{
    char pattern[16], text[16];
    (void)state;
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 40; i++) {
            snprintf(pattern, sizeof pattern, "a%d+", i % 25);
            snprintf(text, sizeof text, "xa%d", i % 25);
            check(pattern, false, text, true);
            check(pattern, true, text, false);
            check(pattern, true, text + 1, true);
            check(pattern, false, "b", false);
        }
}

static void two_in_use_are_two(void **state)
{
    struct sy_pattern *a, *b;
    (void)state;
    assert_int_equal(sy_pattern_create("[a-z]+", false, &a), SY_OK);
    assert_int_equal(sy_pattern_create("[a-z]+", false, &b), SY_OK);
    assert_ptr_not_equal(a, b);
    sy_pattern_destroy(a);
    assert_true(finds(b, "abc"));
    sy_pattern_destroy(b);
    sy_pattern_destroy(NULL);
}

static void no_pattern_is_refused(void **state)
{
    struct sy_pattern *p;
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sy_pattern_create("(a", false, &p), SY_EUNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_stay_themselves),
        cmocka_unit_test(two_in_use_are_two),
        cmocka_unit_test(no_pattern_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* W3C Trace Context: what is taken over, and what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/telemetry/trace_context.h"
#include "tests/rigs/seed.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"

static uint64_t seed = 1;

static void test_traceparents(void **state)
{
    static const struct {
        const char *text;
        bool is_valid;
        unsigned flags;
    } cases[] = {
        {"00-" TRACE "-" SPAN "-01", true, 1},
        {"00-" TRACE "-" SPAN "-00", true, 0},
        {"00-" TRACE "-" SPAN "-ff", true, 0xff},
        {"00-" TRACE "-" SPAN "-01-more", false, 0}, /* version 00 has no more */
        {"01-" TRACE "-" SPAN "-01", true, 1},       /* later versions may have */
        {"cc-" TRACE "-" SPAN "-01-what-the-future-will-be-like", true, 1},
        {"cc-" TRACE "-" SPAN "-01.what", false, 0},
        {"ff-" TRACE "-" SPAN "-01", false, 0},
        {"00-00000000000000000000000000000000-" SPAN "-01", false, 0},
        {"00-" TRACE "-0000000000000000-01", false, 0},
        {"00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01", false, 0}, /* small letters only */
        {"00-" TRACE "-" SPAN "-0", false, 0},
        {"00-" TRACE "-" SPAN, false, 0},
        {"0-" TRACE "-" SPAN "-01", false, 0},
        {"00_" TRACE "-" SPAN "-01", false, 0},
        {" 00-" TRACE "-" SPAN "-01", false, 0},
        {"00-" TRACE "-" SPAN "-0g", false, 0},
        {"", false, 0},
        {NULL, false, 0},
    };
    struct sy_trace_context context;

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        assert_int_equal(sy_trace_context_parse(cases[i].text, &context), cases[i].is_valid);
        assert_int_equal(context.is_given, cases[i].is_valid);
        assert_int_equal(context.flags, cases[i].flags);
        assert_int_equal(context.trace_id[0], cases[i].is_valid ? 0x4b : 0);
        assert_int_equal(context.parent_id[7], cases[i].is_valid ? 0xb7 : 0);
    }
}

/* One byte of a good one changed: it is taken exactly where the byte still is what its place asks for. */
static void test_each_place_asks_for_its_bytes(void **state)
{
    static const char good[] = "00-" TRACE "-" SPAN "-01";
    struct sy_trace_context context;

    (void)state;
    for (size_t at = 0; at < sizeof good - 1; at++)
        for (int byte = 1; byte < 256; byte++) {
            char text[sizeof good];
            bool is_dash = good[at] == '-';
            bool is_digit = strchr("0123456789abcdef", byte) != NULL;

            memcpy(text, good, sizeof good);
            text[at] = (char)byte;
            assert_int_equal(sy_trace_context_parse(text, &context),
                             is_dash ? byte == '-' : is_digit);
        }
}

static void test_ids_are_read_back(void **state)
{
    (void)state;
    for (int round = 0; round < 1000; round++) {
        unsigned char bytes[25];
        char text[64];
        size_t used = 0;
        struct sy_trace_context context;

        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (unsigned char)(1 + seed_below(&seed, 255));
        for (size_t i = 0; i < sizeof bytes; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%02x",
                                     i == 0               ? "00-"
                                     : i == 16 || i == 24 ? "-"
                                                          : "",
                                     bytes[i]);
        assert_true(sy_trace_context_parse(text, &context));
        assert_memory_equal(context.trace_id, bytes, 16);
        assert_memory_equal(context.parent_id, bytes + 16, 8);
        assert_int_equal(context.flags, bytes[24]);
    }
}

static void test_tracestates(void **state)
{
    static const char *const good[] = {"a=1",
                                       "congo=t61rcWkgMzE",
                                       "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
                                       "rojo=1 ,\tcongo=2",
                                       "fw529a3039@dt=FfffffffffffffffffffffA",
                                       "a=1,,b=2",
                                       "0a_-*/=x y",
                                       "a=b c"};
    static const char *const bad[] = {NULL,   "",       "a",         "a=",      "=1",
                                      "A=1",  "a=1=2",  "a b=1",     "a=1,a=2", "a@b@c=1",
                                      "a@=1", "a=\x80", "a=1;b\x01", ","};
    char text[700] = "";

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(good); i++)
        assert_true(sy_trace_state_is_valid(good[i]));
    for (size_t i = 0; i < SY_ARRAY_LEN(bad); i++)
        assert_false(sy_trace_state_is_valid(bad[i]));
    for (int i = 0; i < 33; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%sk%d=v", i ? "," : "", i);
        assert_int_equal(sy_trace_state_is_valid(text), i < 32);
    }
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "k=", 2);
    text[SY_TRACE_STATE_BYTES - 1] = '\0'; /* as long as may be, but its one value is too long */
    assert_false(sy_trace_state_is_valid(text));
    text[2 + 256] = '\0';
    assert_true(sy_trace_state_is_valid(text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traceparents),
        cmocka_unit_test(test_each_place_asks_for_its_bytes),
        cmocka_unit_test(test_ids_are_read_back),
        cmocka_unit_test(test_tracestates),
    };
    seed = seed_of_run(13);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The text of metrics: read back by a parser of its own, it says what was written; and which text a scraper wants. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/base/text_copy.h"
#include "runtime/metrics/exposition.h"
#include "tests/rigs/seed.h"

static uint64_t seed = 1;

static char *written(struct sy_exposition *e)
{
    char *text;
    size_t bytes;

    assert_int_equal(sy_exposition_end(e, &text, &bytes), SY_OK);
    char *copy = sy_text_copy(text, bytes);
    assert_int_equal(strlen(copy), bytes);
    free(text);
    sy_exposition_finish(e);
    return copy;
}

static void write_all_kinds(struct sy_exposition *e)
{
    struct sy_histogram h = {0};

    sy_exposition_family(e, SY_METRIC_COUNTER, "a_bytes", "Says \"a\\b\"\nand more.");
    sy_exposition_labels(e, (struct sy_label[]){{"x", "1"}, {"y", "q\"\\\n"}}, 2);
    sy_exposition_count(e, UINT64_MAX);
    sy_exposition_family(e, SY_METRIC_PLAIN_COUNTER, "plain", "p");
    sy_exposition_count(e, 0);
    sy_exposition_family(e, SY_METRIC_GAUGE, "g_seconds", "g");
    sy_exposition_seconds(e, 1500000001);
    sy_exposition_real(e, -INFINITY);
    sy_histogram_add(&h, 2 * SY_NS_PER_MS);
    sy_exposition_family(e, SY_METRIC_HISTOGRAM, "h", "h");
    sy_exposition_labels(e, &(struct sy_label){"m", "é"}, 1);
    sy_exposition_histogram(e, &h);
}

static void test_text_format(void **state)
{
    struct sy_exposition e;

    (void)state;
    sy_exposition_init(&e, SY_EXPOSITION_TEXT, 1 << 20);
    write_all_kinds(&e);
    char *text = written(&e);
    const char *start = "# HELP a_bytes_total Says \"a\\\\b\"\\nand more.\n"
                        "# TYPE a_bytes_total counter\n"
                        "a_bytes_total{x=\"1\",y=\"q\\\"\\\\\\n\"} 18446744073709551615\n"
                        "# HELP plain p\n# TYPE plain counter\nplain 0\n"
                        "# HELP g_seconds g\n# TYPE g_seconds gauge\n"
                        "g_seconds 1.500000001\ng_seconds -Inf\n"
                        "# HELP h h\n# TYPE h histogram\n"
                        "h_bucket{m=\"é\",le=\"0.0001\"} 0\n";
    assert_memory_equal(text, start, strlen(start));
    assert_non_null(strstr(text, "h_bucket{m=\"é\",le=\"0.001\"} 0\n"
                                 "h_bucket{m=\"é\",le=\"0.0025\"} 1\n"));
    assert_non_null(strstr(text,
                           "h_bucket{m=\"é\",le=\"60.0\"} 1\nh_bucket{m=\"é\",le=\"+Inf\"} 1\n"
                           "h_sum{m=\"é\"} 0.002\nh_count{m=\"é\"} 1\n"));
    assert_null(strstr(text, "# EOF"));
    free(text);
}

static void test_open_metrics(void **state)
{
    struct sy_exposition e;

    (void)state;
    sy_exposition_init(&e, SY_EXPOSITION_OPENMETRICS, 1 << 20);
    write_all_kinds(&e);
    char *text = written(&e);
    const char *start = "# HELP a_bytes Says \\\"a\\\\b\\\"\\nand more.\n"
                        "# TYPE a_bytes counter\n# UNIT a_bytes bytes\n"
                        "a_bytes_total{x=\"1\",y=\"q\\\"\\\\\\n\"} 18446744073709551615\n"
                        "# HELP plain p\n# TYPE plain unknown\nplain 0\n"
                        "# HELP g_seconds g\n# TYPE g_seconds gauge\n# UNIT g_seconds seconds\n";
    assert_memory_equal(text, start, strlen(start));
    assert_string_equal(text + strlen(text) - 6, "# EOF\n");
    free(text);
}

/* Reads a label's value as a scraper does; what it stands for goes to `to`. Returns behind the closing quote. */
static const char *read_value(const char *at, char *to)
{
    for (; *at != '"'; at++) {
        assert_true(*at != '\0' && *at != '\n');
        if (*at == '\\') {
            at++;
            assert_true(*at == '\\' || *at == '"' || *at == 'n');
            *to++ = *at == 'n' ? '\n' : *at;
        } else {
            *to++ = *at;
        }
    }
    *to = '\0';
    return at + 1;
}

/* What the value becomes: bytes that cannot be shown are U+FFFD. */
static void becomes(const char *value, char *to)
{
    while (*value) {
        size_t n = sy_printable_length(value);

        if (n == 0 && *value == '\n') {
            *to++ = '\n';
            value++;
        } else if (n == 0) {
            memcpy(to, "\xef\xbf\xbd", 3);
            to += 3;
            value++;
        } else {
            memcpy(to, value, n);
            to += n;
            value += n;
        }
    }
    *to = '\0';
}

static void any_text(char *to, size_t most)
{
    static const char special[] = "\\\"\n{},=\xc3\xa9\xff\x01 ";
    size_t n = seed_below(&seed, most);

    for (size_t i = 0; i < n; i++)
        to[i] = seed_below(&seed, 2) ? special[seed_below(&seed, sizeof special - 1)]
                                     : (char)(1 + seed_below(&seed, 255));
    to[n] = '\0';
}

static void test_any_label_value_is_read_back(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        char values[2][64], expected[256], got[256], *text;
        uint64_t number = seed_next(&seed) >> seed_below(&seed, 64), read;
        struct sy_exposition e;

        any_text(values[0], sizeof values[0]);
        any_text(values[1], sizeof values[1]);
        sy_exposition_init(&e, (enum sy_exposition_format)(round % 2), 1 << 20);
        sy_exposition_family(&e, SY_METRIC_GAUGE, "m", "h");
        sy_exposition_labels(&e, (struct sy_label[]){{"a", values[0]}, {"b", values[1]}}, 2);
        sy_exposition_count(&e, number);
        text = written(&e);
        const char *at = strstr(text, "\nm{a=\"");
        assert_non_null(at);
        at = read_value(at + 6, got);
        becomes(values[0], expected);
        assert_string_equal(got, expected);
        assert_memory_equal(at, ",b=\"", 4);
        at = read_value(at + 4, got);
        becomes(values[1], expected);
        assert_string_equal(got, expected);
        assert_int_equal(sscanf(at, "} %" SCNu64, &read), 1);
        assert_int_equal(read, number);
        free(text);
    }
}

static void test_seconds_and_reals_are_read_back(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        sy_ns ns = seed_next(&seed) >> seed_below(&seed, 64);
        uint64_t bits = seed_next(&seed), whole;
        double real, read;
        char digits[16], *text;
        struct sy_exposition e;

        memcpy(&real, &bits, sizeof real);
        sy_exposition_init(&e, SY_EXPOSITION_TEXT, 1 << 20);
        sy_exposition_family(&e, SY_METRIC_GAUGE, "m", "h");
        sy_exposition_seconds(&e, ns);
        sy_exposition_real(&e, real);
        text = written(&e);
        assert_int_equal(
            sscanf(strstr(text, "\nm ") + 3, "%" SCNu64 ".%9[0-9]\nm %lf", &whole, digits, &read),
            3);
        assert_true(isnan(real) ? isnan(read) : read == real);
        while (strlen(digits) < 9)
            strcat(digits, "0");
        assert_int_equal(whole * SY_NS_PER_S + strtoull(digits, NULL, 10), ns);
        free(text);
    }
}

static void test_limits_end_it(void **state)
{
    char long_text[SY_EXPOSITION_LABELS + 1], *text = NULL;
    struct sy_exposition e;
    size_t bytes;

    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    sy_exposition_init(&e, SY_EXPOSITION_TEXT, 1 << 20);
    sy_exposition_family(&e, SY_METRIC_GAUGE, "m", "h");
    sy_exposition_labels(&e, &(struct sy_label){"a", long_text}, 1);
    sy_exposition_count(&e, 1);
    assert_int_equal(sy_exposition_end(&e, &text, &bytes), SY_ETOOBIG);
    sy_exposition_finish(&e);
    sy_exposition_init(&e, SY_EXPOSITION_TEXT, 100);
    sy_exposition_family(&e, SY_METRIC_GAUGE, "m", "h");
    for (int i = 0; i < 100; i++)
        sy_exposition_count(&e, 1);
    assert_int_equal(sy_exposition_end(&e, &text, &bytes), SY_ETOOBIG);
    assert_null(text);
    sy_exposition_finish(&e);
}

static void test_choice_by_accept(void **state)
{
    static const struct {
        const char *accept;
        enum sy_exposition_format format;
    } cases[] = {
        {NULL, SY_EXPOSITION_TEXT},
        {"", SY_EXPOSITION_TEXT},
        {"*/*", SY_EXPOSITION_TEXT},
        {"text/html,application/xhtml+xml,*/*;q=0.8", SY_EXPOSITION_TEXT},
        {"text/plain;version=0.0.4", SY_EXPOSITION_TEXT},
        {"application/openmetrics-text", SY_EXPOSITION_OPENMETRICS},
        {"Application/OpenMetrics-Text ; Version=1.0.0", SY_EXPOSITION_OPENMETRICS},
        {"application/openmetrics-text;version=2.0.0", SY_EXPOSITION_TEXT},
        {"application/openmetrics-text;q=0", SY_EXPOSITION_TEXT},
        {"application/openmetrics-text;q=nan", SY_EXPOSITION_TEXT},
        {"application/openmetrics-text;q=0.4,text/plain;q=0.5", SY_EXPOSITION_TEXT},
        /* As Prometheus 2 and 3 ask. */
        {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q="
         "0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
         SY_EXPOSITION_OPENMETRICS},
        {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/"
         "openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3"
         ",text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
         SY_EXPOSITION_OPENMETRICS},
        {"text/plain;version=0.0.4;q=1,*/*;q=0.1", SY_EXPOSITION_TEXT},
    };

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++)
        assert_int_equal(sy_exposition_choose(cases[i].accept), cases[i].format);
    for (int i = 0; i < 2000; i++) { /* any bytes have an answer */
        char accept[80];

        any_text(accept, sizeof accept);
        (void)sy_exposition_choose(accept);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_format),
        cmocka_unit_test(test_open_metrics),
        cmocka_unit_test(test_any_label_value_is_read_back),
        cmocka_unit_test(test_seconds_and_reals_are_read_back),
        cmocka_unit_test(test_limits_end_it),
        cmocka_unit_test(test_choice_by_accept),
    };
    seed = seed_of_run(12);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

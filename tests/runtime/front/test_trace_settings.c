/* Triton's trace and log settings: what is shown, changed and refused, and which requests are traced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/log_settings.h"
#include "runtime/front/request/trace_settings.h"
#include "tests/rigs/seed.h"

static uint64_t seed = 1;

static struct sy_trace_settings *settings;

static void start(bool is_on, double ratio)
{
    assert_int_equal(sy_trace_settings_create(is_on, ratio, &settings), SY_OK);
}

static int change(const char *model, const char *text)
{
    json_t *changes = json_loads(text, 0, NULL);
    assert_non_null(changes);
    int status = sy_trace_settings_update(settings, model, changes);
    json_decref(changes);
    return status;
}

static void expect(const char *model, const char *name, const char *value)
{
    json_t *all;

    assert_int_equal(sy_trace_settings_get(settings, model, &all), SY_OK);
    assert_int_equal(json_object_size(all), 6);
    json_t *got = json_object_get(all, name);
    assert_string_equal(json_string_value(json_is_array(got) ? json_array_get(got, 0) : got),
                        value);
    json_decref(all);
}

static int n_sampled(const char *model, int n)
{
    int sampled = 0;

    for (int i = 0; i < n; i++)
        sampled += sy_trace_settings_samples(settings, model, false, false);
    return sampled;
}

static void test_what_it_starts_with(void **state)
{
    (void)state;
    start(false, 1);
    expect(NULL, "trace_level", "OFF");
    expect("m", "trace_rate", "1000");
    expect("m", "trace_count", "-1");
    expect("m", "trace_mode", "opentelemetry");
    assert_int_equal(n_sampled("m", 100), 0);
    assert_false(sy_trace_settings_samples(settings, "m", true, true));
    sy_trace_settings_destroy(settings);
    start(true, 0.25);
    expect("", "trace_level", "TIMESTAMPS");
    expect("", "trace_rate", "4");
    sy_trace_settings_destroy(settings);
}

static void test_models_have_what_they_were_given_over_the_global(void **state)
{
    (void)state;
    start(true, 1);
    assert_int_equal(change("m", "{\"trace_rate\": \"6\", \"log_frequency\": 3}"), SY_OK);
    assert_int_equal(change(NULL, "{\"trace_rate\": [\"9\"], \"trace_count\": \"5\"}"), SY_OK);
    expect("m", "trace_rate", "6");
    expect("m", "trace_count", "5");
    expect("m", "log_frequency", "3");
    expect("other", "trace_rate", "9");
    expect("other", "log_frequency", "0");
    assert_int_equal(change("m", "{\"trace_rate\": null, \"trace_level\": \"OFF\"}"), SY_OK);
    expect("m", "trace_rate", "9");
    expect("m", "trace_level", "OFF");
    expect(NULL, "trace_level", "TIMESTAMPS");
    assert_int_equal(change("m", "{\"trace_level\": []}"), SY_OK);
    expect("m", "trace_level", "TIMESTAMPS");
    assert_int_equal(change("", "{\"trace_rate\": null}"), SY_OK);
    expect("m", "trace_rate", "1");
    sy_trace_settings_destroy(settings);
}

static void test_what_is_refused_changes_nothing(void **state)
{
    static const struct {
        const char *text, *names;
        int status;
    } cases[] = {
        {"{\"trace_rate\": \"2\", \"foo\": \"1\"}", "foo", SY_EARG},
        {"{\"trace_rate\": \"2\", \"trace_file\": \"/tmp/x\"}", "trace_file", SY_EUNSUPPORTED},
        {"{\"trace_mode\": \"triton\"}", "trace_mode", SY_EUNSUPPORTED},
        {"{\"trace_level\": [\"TENSORS\"]}", "TENSORS", SY_EUNSUPPORTED},
        {"{\"trace_level\": [\"OFF\", \"TIMESTAMPS\"]}", "OFF", SY_EARG},
        {"{\"trace_level\": \"MAX\"}", "MAX", SY_EARG},
        {"{\"trace_level\": 3}", "trace_level", SY_EARG},
        {"{\"trace_rate\": \"x\"}", "trace_rate", SY_EARG},
        {"{\"trace_rate\": \"\"}", "trace_rate", SY_EARG},
        {"{\"trace_rate\": \"-1\"}", "trace_rate", SY_EARG},
        {"{\"trace_rate\": \"4294967296\"}", "trace_rate", SY_EARG},
        {"{\"trace_rate\": \"99999999999999999999\"}", "trace_rate", SY_EARG},
        {"{\"trace_rate\": [\"1\", \"2\"]}", "trace_rate", SY_EARG},
        {"{\"trace_rate\": {}}", "trace_rate", SY_EARG},
        {"{\"trace_count\": \"-2\"}", "trace_count", SY_EARG},
        {"{\"log_frequency\": true}", "log_frequency", SY_EARG},
        {"[]", "object", SY_EARG},
    };

    (void)state;
    start(true, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(change(i % 2 ? "m" : NULL, cases[i].text), cases[i].status);
        assert_non_null(strstr(sy_error_text(), cases[i].names));
        expect("m", "trace_rate", "1");
    }
    char name[200];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(change(name, "{\"trace_rate\": \"2\"}"), SY_EARG);
    sy_trace_settings_destroy(settings);
}

static void test_one_in_rate_is_traced(void **state)
{
    (void)state;
    start(true, 1);
    assert_int_equal(n_sampled("m", 10), 10);
    assert_int_equal(change(NULL, "{\"trace_rate\": \"3\"}"), SY_OK);
    assert_int_equal(n_sampled("m", 30), 10);
    assert_int_equal(change("m", "{\"trace_rate\": \"0\"}"), SY_OK);
    assert_int_equal(n_sampled("m", 30), 0);
    assert_int_equal(n_sampled("other", 30), 10);
    assert_true(sy_trace_settings_samples(settings, "m", true, true)); /* T2 */
    assert_false(sy_trace_settings_samples(settings, "other", true, false));
    assert_int_equal(change(NULL, "{\"trace_level\": [\"OFF\"]}"), SY_OK);
    assert_false(sy_trace_settings_samples(settings, "m", true, true)); /* T3 */
    sy_trace_settings_destroy(settings);
}

static void test_count_ends_it(void **state)
{
    (void)state;
    start(true, 1);
    assert_int_equal(change(NULL, "{\"trace_count\": \"7\"}"), SY_OK);
    assert_int_equal(change("m", "{\"trace_count\": \"2\"}"), SY_OK);
    assert_int_equal(n_sampled("m", 20), 2);
    assert_int_equal(n_sampled("other", 20), 7);
    assert_int_equal(change(NULL, "{\"trace_count\": \"3\"}"), SY_OK); /* begins anew */
    assert_int_equal(n_sampled("other", 20), 3);
    assert_int_equal(n_sampled("m", 20), 0);
    assert_int_equal(change("m", "{\"trace_count\": \"-1\"}"), SY_OK);
    assert_int_equal(n_sampled("m", 20), 20);
    sy_trace_settings_destroy(settings);
}

static void test_any_ratio_is_kept(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        double ratio = (double)seed_below(&seed, 1001) / 1000;

        start(true, ratio);
        int n = n_sampled("m", 10000);
        assert_true(n >= (int)(ratio * 10000) - 1 && n <= (int)(ratio * 10000) + 1);
        sy_trace_settings_destroy(settings);
    }
}

/* ---- the log ------------------------------------------------------------------------------------------------- */

static int change_log(const char *text)
{
    json_t *changes = json_loads(text, 0, NULL);
    assert_non_null(changes);
    int status = sy_log_settings_update(changes);
    json_decref(changes);
    return status;
}

static void expect_log(const char *expected)
{
    json_t *all, *wants = json_loads(expected, 0, NULL);

    assert_int_equal(sy_log_settings_get(&all), SY_OK);
    assert_true(json_equal(all, wants));
    json_decref(all);
    json_decref(wants);
}

static void test_levels_are_on_and_off_alone(void **state)
{
    (void)state;
    sy_log_threshold = SY_LOG_INFO;
    expect_log(
        "{\"log_file\": \"\", \"log_info\": true, \"log_warning\": true, \"log_error\": true, "
        "\"log_verbose_level\": 0, \"log_format\": \"default\"}");
    assert_int_equal(change_log("{\"log_info\": false, \"log_verbose_level\": 3, \"log_format\": "
                                "\"ISO8601\", \"log_error\": null}"),
                     SY_OK);
    assert_true(sy_log_shows(SY_LOG_DEBUG) && sy_log_shows(SY_LOG_WARN) &&
                sy_log_shows(SY_LOG_ERROR) && !sy_log_shows(SY_LOG_INFO));
    expect_log(
        "{\"log_file\": \"\", \"log_info\": false, \"log_warning\": true, \"log_error\": true, "
        "\"log_verbose_level\": 3, \"log_format\": \"ISO8601\"}");
    assert_int_equal(change_log("{\"log_verbose_level\": 0}"), SY_OK);
    assert_int_equal(sy_log_threshold, SY_LOG_WARN); /* hidden lines cost nothing */
    assert_int_equal(change_log("{\"log_warning\": false, \"log_error\": false}"), SY_OK);
    assert_false(sy_log_shows(SY_LOG_ERROR));
    assert_int_equal(change_log("{\"log_info\": true, \"log_format\": \"default\"}"), SY_OK);
    assert_true(sy_log_shows(SY_LOG_INFO) && !sy_log_shows(SY_LOG_WARN) &&
                !sy_log_shows(SY_LOG_DEBUG));
    assert_int_equal(change_log("{\"log_warning\": true, \"log_error\": true}"), SY_OK);
}

static void test_log_settings_that_are_refused(void **state)
{
    static const char *const bad[][2] = {{"{\"log_info\": false, \"log_file\": \"x\"}", "log_file"},
                                         {"{\"log_info\": 1}", "log_info"},
                                         {"{\"log_verbose_level\": -1}", "log_verbose_level"},
                                         {"{\"log_verbose_level\": \"1\"}", "log_verbose_level"},
                                         {"{\"log_format\": \"json\"}", "json"},
                                         {"{\"log_format\": 1}", "log_format"},
                                         {"{\"log_what\": 1}", "log_what"},
                                         {"[]", "object"}};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(change_log(bad[i][0]) < 0);
        assert_non_null(strstr(sy_error_text(), bad[i][1]));
        assert_true(sy_log_shows(SY_LOG_INFO) && !sy_log_has_dates());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_starts_with),
        cmocka_unit_test(test_models_have_what_they_were_given_over_the_global),
        cmocka_unit_test(test_what_is_refused_changes_nothing),
        cmocka_unit_test(test_one_in_rate_is_traced),
        cmocka_unit_test(test_count_ends_it),
        cmocka_unit_test(test_any_ratio_is_kept),
        cmocka_unit_test(test_levels_are_on_and_off_alone),
        cmocka_unit_test(test_log_settings_that_are_refused),
    };
    seed = seed_of_run(14);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a report prints: figures without gaps that show all of their title, JSON whatever jobs are called. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/base/status.h"
#include "tests/rigs/sim_rig.h"

#define GB 1000000000ull

static char *figure_of(const struct sy_sim_report *r, const char *title)
{
    char *text;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    assert_int_equal(sy_sim_plot_svg(r, title, to), SY_OK);
    fclose(to);
    return text;
}

/* A device that is busy all of the time is blue from the left edge to the right one, however wide a bin is. */
static void test_bars_leave_no_gap(void **state)
{
    (void)state;
    for (int seconds = 7; seconds < 20000; seconds = seconds * 3 / 2 + 1) {
        struct sy_sim_config c = sim_plain();
        struct sy_sim_job job = sim_job("j", 0, (uint64_t)seconds, SY_NS_PER_S);
        struct sy_sim_input in = {.jobs = &job, .n_jobs = 1};
        struct sy_sim_report *r = sim_run(&c, &in);
        char *text = figure_of(r, "t");
        double x, y, width, edge = 60;
        for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
            if (!strstr(line, "fill='#4f81bd'/>") ||
                sscanf(line, "<rect x='%lf' y='%lf' width='%lf'", &x, &y, &width) != 3)
                continue;
            if (fabs(x - edge) > 1e-6)
                fail_msg("%d s: a bar begins at %.2f, the one before ends at %.2f", seconds, x,
                         edge);
            edge = x + width;
        }
        assert_true(fabs(edge - 1020) < 1e-6);
        free(text);
        sy_sim_report_free(r);
    }
}

/* The longest title that simulate makes: letters of the size that is said, 0.55 of it wide, end before the figure does. */
static void test_a_long_title_is_within_the_figure(void **state)
{
    (void)state;
    char title[256];
    struct sy_sim_report *r = sy_sim_report_new();
    for (size_t n = 1; n < sizeof title; n += 127) {
        int width;
        double size;
        memset(title, 'm', n);
        title[n] = '\0';
        char *text = figure_of(r, title);
        assert_int_equal(sscanf(strstr(text, "width='"), "width='%d'", &width), 1);
        assert_int_equal(
            sscanf(strstr(text, "y='16' font-size='"), "y='16' font-size='%lf'", &size), 1);
        assert_true(size >= 6 && 60 + (double)n * size * 0.55 <= width + 8);
        free(text);
    }
    sy_sim_report_free(r);
}

static void test_each_class_has_a_colour_of_its_own(void **state)
{
    (void)state;
    int colours[SY_SIM_MAX_CLASSES][3], n = 0;
    struct sy_sim_report *r = sy_sim_report_new();
    for (int i = 0; i < SY_SIM_MAX_CLASSES; i++)
        sy_sim_note_latency(r, i, 1000);
    r->n_requests = 1;
    char *text = figure_of(r, "t");
    for (const char *at = text; (at = strstr(at, "<polyline fill='none' stroke='#")); at++, n++)
        assert_int_equal(sscanf(at, "<polyline fill='none' stroke='#%2x%2x%2x",
                                (unsigned *)&colours[n][0], (unsigned *)&colours[n][1],
                                (unsigned *)&colours[n][2]),
                         3);
    assert_int_equal(n, SY_SIM_MAX_CLASSES);
    for (int a = 0; a < n; a++)
        for (int b = 0; b < a; b++) {
            int apart = 0;
            for (int k = 0; k < 3; k++)
                apart += abs(colours[a][k] - colours[b][k]);
            if (apart < 50)
                fail_msg("classes %d and %d look alike", b, a);
        }
    free(text);
    sy_sim_report_free(r);
}

/* Names come from files, whatever their bytes are; the reason of a refusal is said all the same. */
static void test_a_refusal_is_printed_whatever_the_name(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_job job = sim_job("caf\xe9", 0, 1, 1);
    struct sy_sim_input in = {.jobs = &job, .n_jobs = 1};
    char *text;
    size_t n;
    c.device.pool_bytes = GB / 2;
    struct sy_sim_report *r = sim_run(&c, &in);
    FILE *to = open_memstream(&text, &n);
    assert_int_equal(sy_sim_print_json(r, 1, to), SY_OK);
    fclose(to);
    json_t *answer = json_loads(text, 0, NULL);
    const char *why = json_string_value(json_object_get(answer, "first_refusal"));
    assert_non_null(why);
    assert_int_equal(strncmp(why, "job caf?: ", 10), 0);
    json_decref(answer);
    free(text);
    sy_sim_report_free(r);
}

/* One is served for 100 ms and two wait; one cannot be in time; the queue has no place for seven. The text says it as JSON does. */
static void test_refusals_by_rule(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_model model = {
        .name = "m", .bytes = GB, .compute_ns = SY_NS_PER_S / 10, .n_groups = 10};
    struct sy_sim_request requests[11] = {{0}};
    struct sy_sim_input in = {
        .models = &model, .n_models = 1, .requests = requests, .n_requests = 11};
    char *json, *text;
    size_t n;
    c.device.unified = true;
    c.max_queue = 2;
    requests[1].deadline_ns = SY_NS_PER_S / 20;
    struct sy_sim_report *r = sim_run(&c, &in);
    FILE *to = open_memstream(&json, &n);
    assert_int_equal(sy_sim_print_json(r, 1, to), SY_OK);
    fclose(to);
    to = open_memstream(&text, &n);
    assert_int_equal(sy_sim_print_text(r, 1, to), SY_OK);
    fclose(to);
    json_t *answer = json_loads(json, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(answer, "refused")), 8);
    assert_int_equal(json_integer_value(json_object_get(answer, "busy")), 7);
    assert_non_null(strstr(text, "refused    1 since"));
    assert_non_null(strstr(text, "; 7 since the queue or"));
    json_decref(answer);
    free(json);
    free(text);
    sy_sim_report_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bars_leave_no_gap),
        cmocka_unit_test(test_a_long_title_is_within_the_figure),
        cmocka_unit_test(test_each_class_has_a_colour_of_its_own),
        cmocka_unit_test(test_a_refusal_is_printed_whatever_the_name),
        cmocka_unit_test(test_refusals_by_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

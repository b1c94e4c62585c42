/* What slices of a GPU are made of: multiprocessors as people say them, in groups; what is refused, and how it is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"

#define PARTS 16
#define EACH  8

static struct sy_core *core;

static int set_up(void **state)
{
    (void)state;
    core = calloc(1, sizeof *core);
    assert_non_null(core);
    core->units.n = PARTS;
    core->units.each = EACH;
    for (int i = 0; i < PARTS; i++)
        core->units.ids[i] = (uint64_t)i;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(core);
    return 0;
}

static int read_wish(enum sy_slice_by by, unsigned amount, const char *list,
                     struct sy_slice_wish *out, uint64_t *listed)
{
    *out = (struct sy_slice_wish){.name = "a", .by = by, .amount = amount, .listed = listed};
    if (list)
        assert_int_equal(sy_slice_parse_cores(list, listed, SY_CORE_MAX_CORES, &out->n_listed),
                         SY_OK);
    return sy_core_units_read(core, out, listed);
}

static void test_multiprocessors_come_in_groups(void **state)
{
    (void)state;
    struct sy_slice_wish wish;
    uint64_t listed[SY_CORE_MAX_CORES];
    assert_int_equal(read_wish(SY_SLICE_BY_COUNT, 64, NULL, &wish, listed), SY_OK);
    assert_int_equal(wish.amount, 8);
    assert_int_equal(read_wish(SY_SLICE_BY_COUNT, 60, NULL, &wish, listed), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "groups of 8"));
    assert_int_equal(read_wish(SY_SLICE_BY_LIST, 0, "16-31,0-7", &wish, listed), SY_OK);
    assert_int_equal(wish.n_listed, 3);
    assert_int_equal(listed[0] + 10 * listed[1] + 100 * listed[2], 320); /* 0, 2, 3 */
    assert_int_equal(read_wish(SY_SLICE_BY_LIST, 0, "0-8", &wish, listed), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "8 to 15"));
    assert_int_equal(read_wish(SY_SLICE_BY_LIST, 0, "120-128", &wish, listed), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "128"));
    assert_int_equal(read_wish(SY_SLICE_BY_SHARE, 500, NULL, &wish, listed), SY_OK);
    assert_int_equal(wish.amount, 500);
}

static void test_they_are_said_as_multiprocessors(void **state)
{
    (void)state;
    char text[64];
    static struct sy_core_slice slice = {.cores = {2, 3, 15}, .n_cores = 3};
    assert_string_equal(sy_core_units_text(core, &slice, text, sizeof text), "16-31,120-127");
    core->units.each = 1;
    assert_string_equal(sy_core_units_text(core, &slice, text, sizeof text), "2-3,15");
}

static void test_what_cannot_be_says_why(void **state)
{
    (void)state;
    json_t *limit = sy_core_units_limit(core);
    assert_true(json_is_null(limit));
    assert_int_equal(sy_core_units_check(core, 8), SY_OK);
    snprintf(core->units.no_slices, sizeof core->units.no_slices, "MPS does not run");
    assert_int_equal(sy_core_units_check(core, 1), SY_OK);
    assert_int_equal(sy_core_units_check(core, 2), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "MPS"));
    snprintf(core->units.no_slice, sizeof core->units.no_slice, "an old driver");
    assert_int_equal(sy_core_units_check(core, 0), SY_OK); /* taking them back */
    assert_int_equal(sy_core_units_check(core, 1), SY_EUNSUPPORTED);
    limit = sy_core_units_limit(core);
    assert_string_equal(json_string_value(limit), "an old driver");
    json_decref(limit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_multiprocessors_come_in_groups, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_they_are_said_as_multiprocessors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_says_why, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

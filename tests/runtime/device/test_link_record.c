/* What is remembered of a link: of its device, and as long as the machine runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/base/status.h"
#include "runtime/cli/doctor/link_record.h"

static const struct sy_link_cost measured = {7000, 12.5, 3000, 0.02};
static char folder[40], path[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test-link-record-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/link.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_remembered(void **state)
{
    struct sy_link_cost got;
    (void)state;
    assert_false(sy_link_record_read(folder, "emulated", &got));
    assert_int_equal(sy_link_record_write(folder, "emulated", &measured), SY_OK);
    assert_true(sy_link_record_read(folder, "emulated", &got));
    assert_memory_equal(&got, &measured, sizeof got);
    assert_false(sy_link_record_read(folder, "emulated,link-gbps=2", &got));
    assert_false(sy_link_record_read("/none", "emulated", &got));
    assert_int_equal(sy_link_record_write("/none", "emulated", &measured), SY_EIO);
}

static void test_old(void **state)
{
    struct sy_link_cost got;
    (void)state;
    for (int later = 0; later < 2; later++) { /* measured too long ago, and in the future */
        assert_int_equal(sy_link_record_write(folder, "emulated", &measured), SY_OK);
        json_t *root = json_load_file(path, 0, NULL), *at = json_object_get(root, "measured_s");
        json_real_set(at, json_real_value(at) + (later ? 100 : -601));
        assert_int_equal(json_dump_file(root, path, 0), 0);
        json_decref(root);
        assert_false(sy_link_record_read(folder, "emulated", &got));
    }
}

static void test_of_no_use(void **state)
{
    static const char *const texts[] = {
        "", "7", "{\"device\": \"emulated\", \"bytes_per_ns\": 2}",
        "{\"boot\": \"another\", \"device\": \"emulated\", \"alpha_ns\": 1, \"bytes_per_ns\": 2, "
        "\"sigma_ns\": 1, \"lost_ns_per_byte\": 0}"};
    const struct sy_link_cost no_rate = {.alpha_ns = 1}, negative = {-1, 1, 0, 0};
    struct sy_link_cost got;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_file(texts[i]);
        assert_false(sy_link_record_read(folder, "emulated", &got));
    }
    assert_int_equal(sy_link_record_write(folder, "emulated", &no_rate), SY_OK);
    assert_false(sy_link_record_read(folder, "emulated", &got));
    assert_int_equal(sy_link_record_write(folder, "emulated", &negative), SY_OK);
    assert_false(sy_link_record_read(folder, "emulated", &got));
}

/* Neither too small nor too large, nor no number; at the bounds they hold. */
static void test_beyond_the_ranges(void **state)
{
    static const struct sy_link_cost within[] = {{0, 1e-6, 0, 0}, {1e9, 1e6, 1e9, 1e6}},
                                     beyond[] = {{1.1e9, 1, 0, 0}, {0, 0.9e-6, 0, 0},
                                                 {0, 1.1e6, 0, 0}, {0, -1, 0, 0},
                                                 {0, 1, 1.1e9, 0}, {0, 1, -1, 0},
                                                 {0, 1, 0, 1.1e6}, {0, 1, 0, -1}};
    struct sy_link_cost got;
    (void)state;
    for (size_t i = 0; i < sizeof within / sizeof *within; i++) {
        assert_int_equal(sy_link_record_write(folder, "emulated", &within[i]), SY_OK);
        assert_true(sy_link_record_read(folder, "emulated", &got));
    }
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        assert_int_equal(sy_link_record_write(folder, "emulated", &beyond[i]), SY_OK);
        assert_false(sy_link_record_read(folder, "emulated", &got));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_remembered, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_old, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_of_no_use, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_beyond_the_ranges, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

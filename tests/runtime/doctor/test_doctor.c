/* switchyard doctor as people and scripts meet it: the table, JSON, exit statuses, under limits that it must notice. No time is asserted. */
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

#include "tests/rigs/server_fixture.h"
#include "tests/rigs/shell.h"

static char output[1 << 16];

/* `switchyard doctor --quick ARGUMENTS` in a shell after `before` ("ulimit -n 40;", "prlimit ..."); stdout is kept. The exit status. */
static int doctor(const char *before, const char *arguments)
{
    return shell_run(output, sizeof output, "%s '%s' doctor --quick %s </dev/null", before,
                     fixture_program("switchyard"), arguments);
}

static json_t *answer(const char *before, const char *arguments, int expected)
{
    char all[1024];
    json_error_t error;
    snprintf(all, sizeof all, "--json %s", arguments);
    int status = doctor(before, all);
    if (status != expected)
        fail_msg("%s doctor %s: exit status %d, not %d: %s", before, all, status, expected, output);
    json_t *root = json_loads(output, 0, &error);
    if (!root)
        fail_msg("no JSON: %s: %s", error.text, output);
    assert_int_equal(json_is_true(json_object_get(root, "works")), expected == 0);
    return root;
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    assert_non_null(value);
    return value;
}

static json_t *finding(const json_t *root, const char *id)
{
    size_t i;
    json_t *each;
    json_array_foreach(json_object_get(root, "findings"), i,
                       each) if (strcmp(text(each, "id"), id) == 0) return each;
    fail_msg("no finding %s", id);
    return NULL;
}

static void assert_level(const json_t *root, const char *id, const char *level, const char *says)
{
    const json_t *found = finding(root, id);
    if (strcmp(text(found, "level"), level) != 0 ||
        (!strstr(text(found, "value"), says) && !strstr(text(found, "do"), says)))
        fail_msg("%s: %s was expected, with \"%s\": %s: %s; do: %s", id, level, says,
                 text(found, "level"), text(found, "value"), text(found, "do"));
}

static void the_table_is_80_columns_wide(void **state)
{
    (void)state;
    char arguments[900];
    snprintf(arguments, sizeof arguments, "--models %s", fixture_models());
    int status = doctor("", arguments);
    assert_non_null(strstr(output, "  ok "));
    assert_non_null(strstr(output, status == 0 ? "it will work\n" : "it will not work\n"));
    assert_non_null(strstr(output, "swaps predicted"));
    for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n")) {
        char *folder = strstr(line, fixture_models()); /* a long path is not broken */
        if (!folder && strlen(line) > 80)
            fail_msg("%zu columns: %s", strlen(line), line);
    }
}

static void a_folder_of_models_is_predicted(void **state)
{
    (void)state;
    char folder[64] = "/tmp/switchyard-doctor-XXXXXX", command[1200];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "cd %s && mkdir -p good/1 broken/1 raw/1 && '%s' import %s/mlp/1/model.onnx -o "
             "good/1/model.sypkg --name good 2>/dev/null >&2 && echo rubbish > "
             "broken/1/model.sypkg && echo x > raw/1/model.onnx",
             folder, fixture_program("switchyard"), fixture_models());
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "--models %s", folder);
    json_t *root = answer("", command, 0), *models = json_object_get(root, "models");
    assert_int_equal(json_array_size(models), 3);
    assert_non_null(strstr(text(json_array_get(models, 0), "path"), "broken"));
    assert_non_null(strstr(text(json_array_get(models, 0), "why"), "model.sypkg"));
    const json_t *good = json_array_get(models, 1);
    assert_string_equal(text(good, "name"), "good");
    assert_true(json_integer_value(json_object_get(good, "bytes")) > 0);
    assert_true(json_number_value(json_object_get(json_object_get(good, "swap"), "cold_ms")) > 0);
    assert_non_null(strstr(text(json_array_get(models, 2), "why"), "not imported"));
    json_decref(root);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void measured_values_are_there(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "cores_usable", "memory_available_bytes", "memory_read_gbps", "memory_copy_gbps",
        "link_gbps",    "storage_gbps",           "files_limit",      "workers_started"};
    json_t *root = answer("", "", 0), *facts = json_object_get(root, "facts");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!(json_number_value(json_object_get(facts, keys[i])) > 0))
            fail_msg("%s was not measured: %s", keys[i], output);
    assert_string_equal(text(root, "device"), "host");
    json_decref(root);
    root = answer("", "--device emulated,link-gbps=3", 0);
    assert_true(json_is_true(json_object_get(root, "emulated")));
    assert_level(root, "link", "ok", "GB/s");
    json_decref(root);
}

static void limits_are_noticed(void **state)
{
    (void)state;
    json_t *root = answer("prlimit --nofile=40:40", "", 1);
    assert_level(root, "open_files", "fail", "ulimit -Hn");
    json_decref(root);
    root = answer("prlimit --nofile=200:200 --memlock=65536:65536", "", 0);
    assert_level(root, "open_files", "warn", "200");
    assert_level(root, "memlock", "ok", "64.0 KiB");
    json_decref(root);
#ifndef SY_SANITIZED /* which take terabytes of addresses */
    root = answer("prlimit --as=4000000000", "", 1);
    assert_level(root, "pool", "fail", "--pool-bytes");
    json_decref(root);
#endif
}

static void a_device_that_is_not_there_fails(void **state)
{
    (void)state;
    json_t *root = answer("SY_CUDA_PLUGIN=/nonexistent/plugin.so", "--device cuda:3", 1);
    assert_level(root, "device", "fail", "/nonexistent/plugin.so");
    json_decref(root);
    root = answer("SY_CUDA_PLUGIN=/nonexistent/plugin.so", "", 0);
    assert_level(root, "gpu", "ok", "/nonexistent/plugin.so");
    json_decref(root);
}

static void bad_usage_and_no_folder(void **state)
{
    (void)state;
    assert_int_equal(doctor("", "--device abacus 2>/dev/null"), 2);
    assert_int_equal(doctor("", "--quack 2>/dev/null"), 2);
    assert_int_equal(doctor("", "here 2>/dev/null"), 2);
    assert_int_equal(doctor("", "--models /nonexistent 2>/dev/null"), 1);
    assert_int_equal(doctor("", "--help"), 0);
    assert_non_null(strstr(output, "Exit status"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_80_columns_wide),
        cmocka_unit_test(a_folder_of_models_is_predicted),
        cmocka_unit_test(measured_values_are_there),
        cmocka_unit_test(limits_are_noticed),
        cmocka_unit_test(a_device_that_is_not_there_fails),
        cmocka_unit_test(bad_usage_and_no_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Files of warm-up runs: which are taken, what of them arrives, and the words for the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/repository/warmup_files.h"
#include "tests/rigs/shell.h"

static char folder[] = "/tmp/sy-test-warmup-XXXXXX";

static void path_of(const char *name, char path[200])
{
    snprintf(path, 200, "%s/warmup/%s", folder, name);
}

static void write_file(const char *name, const void *data, size_t bytes)
{
    char path[200];

    path_of(name, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state)
{
    char path[200];

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/warmup", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    path_of("fifo", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    write_file("six", "abcdef", 6);
    write_file("a..b", "abcdef", 6);
    write_file("texts", "\1\0\0\0a\2\0\0\0bc", 11);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return remove_tree(folder);
}

static struct sy_model_config *config_of(const char *text)
{
    struct sy_model_config *config;

    if (sy_model_config_parse(text, strlen(text), "m", &config) < 0)
        fail_msg("%s", sy_error_text());
    return config;
}

#define INPUT(key, type, dims, file) \
    " inputs { key: \"" key "\" value { data_type: TYPE_" type " dims: " dims " " file " } }"
#define FILE_OF(name) "input_data_file: \"" name "\""

static void what_the_files_have_arrives(void **state)
{
    (void)state;
    struct sy_model_config *config = config_of("model_warmup { name: \"none\"" INPUT(
        "a", "INT8", "[2]", "zero_data: true") " }"
                                               "model_warmup { name: \"w\" batch_size: 3" INPUT(
                                                   "a", "INT8", "[2]", "random_data: true")
                                                   INPUT("b", "INT8", "[2, 3]", FILE_OF("a..b"))
                                                       INPUT("c", "STRING", "[2]",
                                                             FILE_OF("texts")) " }");
    struct sy_warmup_files *files;
    uint64_t bytes;

    assert_int_equal(sy_warmup_files_read(folder, config, &files), SY_OK);
    assert_null(sy_warmup_file(files, 0, 0, &bytes));
    assert_null(sy_warmup_file(files, 1, 0, &bytes));
    assert_memory_equal(sy_warmup_file(files, 1, 1, &bytes), "abcdef", 6);
    assert_int_equal(bytes, 6);
    assert_memory_equal(sy_warmup_file(files, 1, 2, &bytes), "\1\0\0\0a\2\0\0\0bc", 11);
    assert_int_equal(bytes, 11);
    sy_warmup_files_free(files);
    sy_model_config_free(config);
}

static void without_files_there_is_nothing(void **state)
{
    (void)state;
    struct sy_model_config *config =
        config_of("model_warmup {" INPUT("a", "INT8", "[2]", "zero_data: true") " }");
    struct sy_warmup_files *files;
    uint64_t bytes;

    assert_int_equal(sy_warmup_files_read("/nonexistent", config, &files), SY_OK);
    assert_null(files);
    assert_null(sy_warmup_file(files, 0, 0, &bytes));
    sy_model_config_free(config);
}

static void expect_refused(const char *input, int status, const char *words)
{
    char text[400];
    struct sy_warmup_files *files;

    snprintf(text, sizeof text, "model_warmup { name: \"w\"%s }", input);
    struct sy_model_config *config = config_of(text);
    assert_int_equal(sy_warmup_files_read(folder, config, &files), status);
    assert_null(files);
    if (!strstr(sy_error_text(), words) ||
        !strstr(sy_error_text(), "model_warmup 'w': input 'a': input_data_file: "))
        fail_msg("'%s' is not in '%s'", words, sy_error_text());
    sy_model_config_free(config);
}

static void others_are_refused_by_name(void **state)
{
    (void)state;
    expect_refused(INPUT("a", "INT8", "[7]", FILE_OF("six")), SY_EARG,
                   "six has 6 bytes; one row of its dims has 7");
    expect_refused(INPUT("a", "FP32", "[4294967296, 4294967296]", FILE_OF("six")), SY_EARG,
                   "can be counted");
    expect_refused(INPUT("a", "INT8", "[6]", FILE_OF("nothing")), SY_EIO,
                   "warmup/nothing: No such file");
    expect_refused(INPUT("a", "INT8", "[6]", FILE_OF("fifo")), SY_EIO, "warmup/fifo is no file");
    expect_refused(INPUT("a", "INT8", "[6]", FILE_OF("../warmup/six")), SY_EARG,
                   "within the model's folder");
    expect_refused(INPUT("a", "INT8", "[6]", FILE_OF("/etc/passwd")), SY_EARG,
                   "within the model's folder");
}

static void all_together_have_a_limit(void **state)
{
    (void)state;
    char path[200];

    path_of("large", path);
    write_file("large", "", 0);
    assert_int_equal(truncate(path, (off_t)SY_WARMUP_MOST_BYTES - 3), 0); /* a hole */
    expect_refused(INPUT("first", "INT8", "[6]", FILE_OF("six"))
                       INPUT("a", "INT8", "[268435453]", FILE_OF("large")),
                   SY_ETOOBIG, "at most 268435456");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_files_have_arrives),
        cmocka_unit_test(without_files_there_is_nothing),
        cmocka_unit_test(others_are_refused_by_name),
        cmocka_unit_test(all_together_have_a_limit),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

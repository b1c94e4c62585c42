/* Names of classes: files of all shapes, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/package/class_labels.h"
#include "runtime/base/status.h"

static char path[64];

static void write_file(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

static struct sy_class_labels *labels_of(const char *text, size_t bytes, int output)
{
    struct sy_class_labels *labels;

    write_file(text, bytes);
    assert_int_equal(sy_class_labels_read(path, output, &labels), SY_OK);
    return labels;
}

static void test_lines(void **state)
{
    static const char text[] = "cat\ndog\r\n\nowl";
    struct sy_class_labels *labels = labels_of(text, sizeof text - 1, 1);

    (void)state;
    assert_int_equal(labels->n, 4);
    assert_string_equal(sy_class_labels_name(labels, 1, 0), "cat");
    assert_string_equal(sy_class_labels_name(labels, 1, 1), "dog");
    assert_null(sy_class_labels_name(labels, 1, 2)); /* an empty line names nothing */
    assert_string_equal(sy_class_labels_name(labels, 1, 3), "owl");
    assert_null(sy_class_labels_name(labels, 1, 4));
    assert_null(sy_class_labels_name(labels, 1, -1));
    assert_null(sy_class_labels_name(labels, 0, 0)); /* of another output */
    assert_null(sy_class_labels_name(NULL, 0, 0));
    sy_class_labels_free(labels);
}

static void test_odd_files(void **state)
{
    (void)state;
    struct sy_class_labels *labels = labels_of("", 0, 0);
    assert_int_equal(labels->n, 0);
    sy_class_labels_free(labels);
    labels = labels_of("\n", 1, 0);
    assert_int_equal(labels->n, 1);
    assert_null(sy_class_labels_name(labels, 0, 0));
    sy_class_labels_free(labels);
    labels = labels_of("a\0b\nc", 5, 0);
    assert_string_equal(sy_class_labels_name(labels, 0, 0), "a");
    assert_string_equal(sy_class_labels_name(labels, 0, 1), "c");
    sy_class_labels_free(labels);
}

static void test_files_that_are_refused(void **state)
{
    size_t bytes = SY_CLASS_LABELS_MOST_BYTES + 1;
    struct sy_class_labels *labels;
    char *text = malloc(bytes);

    (void)state;
    assert_int_equal(sy_class_labels_read("/nonexistent/labels", 0, &labels), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "/nonexistent/labels"));
    assert_int_equal(sy_class_labels_read("/", 0, &labels), SY_EARG);
    assert_non_null(text);
    memset(text, '\n', bytes);
    write_file(text, bytes);
    assert_int_equal(sy_class_labels_read(path, 0, &labels), SY_EARG);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_odd_files),
        cmocka_unit_test(test_files_that_are_refused),
    };

    snprintf(path, sizeof path, "/tmp/test_class_labels_%d", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

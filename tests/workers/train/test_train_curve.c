/* The curve that `train --plot` draws: bounded, in order, whole; and the figure, which is well-formed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/cli/train/train_curve.h"

static struct sy_train_curve curve;

static void test_any_length_fits(void **state)
{
    (void)state;
    memset(&curve, 0, sizeof curve);
    for (uint64_t step = 1; step <= 1000000; step++)
        sy_train_curve_add_loss(&curve, step, (double)step);
    assert_in_range(curve.n_loss, SY_CURVE_POINTS / 2, SY_CURVE_POINTS);
    assert_true(curve.loss[curve.n_loss - 1].step == 1000000);
    for (int i = 1; i < curve.n_loss; i++) {
        assert_true(curve.loss[i].step > curve.loss[i - 1].step);
        assert_true(curve.loss[i].value > curve.loss[i - 1].value);
        assert_true(curve.loss[i].value <= curve.loss[i].step);
    }
}

static void test_what_is_left_out(void **state)
{
    (void)state;
    memset(&curve, 0, sizeof curve);
    sy_train_curve_add_loss(&curve, 0, 1);
    sy_train_curve_add_loss(&curve, 5, NAN);
    sy_train_curve_add_loss(&curve, 5, 1);
    sy_train_curve_add_loss(&curve, 5, 2);
    sy_train_curve_add_loss(&curve, 3, 2); /* gone on from a snapshot */
    sy_train_curve_add_accuracy(&curve, 5, -1);
    assert_int_equal(curve.n_loss, 1);
    assert_int_equal(curve.n_accuracy, 0);
}

/* Every element that is opened is closed, and no number is none. */
static void test_figure(void **state)
{
    (void)state;
    char path[64] = "/tmp/sy_curve_XXXXXX", text[200000];
    close(mkstemp(path));
    memset(&curve, 0, sizeof curve);
    assert_int_equal(sy_train_curve_write(&curve, "empty", path), SY_EARG);
    for (uint64_t step = 1; step <= 500; step++)
        sy_train_curve_add_loss(&curve, step, 3.0 / (double)step);
    for (int with_accuracy = 0; with_accuracy < 2; with_accuracy++) {
        if (with_accuracy)
            sy_train_curve_add_accuracy(&curve, 250, 0.5);
        assert_int_equal(sy_train_curve_write(&curve, "a<job>", path), SY_OK);
        FILE *file = fopen(path, "rb");
        size_t n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[n] = 0;
        int depth = 0;
        for (const char *c = text; *c; c++) {
            depth += *c == '<';
            depth -= *c == '<' && c[1] == '/' ? 2 : 0;
            depth -= *c == '/' && c[1] == '>';
        }
        assert_int_equal(depth, 0);
        assert_null(strstr(text, "nan"));
        assert_null(strstr(text, "inf"));
        assert_non_null(strstr(text, "polyline"));
        assert_true(!strstr(text, "circle") == !with_accuracy);
    }
    unlink(path);
    assert_int_equal(sy_train_curve_write(&curve, "x", "/nowhere/x.svg"), SY_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_length_fits),
        cmocka_unit_test(test_what_is_left_out),
        cmocka_unit_test(test_figure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

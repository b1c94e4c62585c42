/* Data sets of tables, .npy and CSV: what was written is what is read, and each kind of bad input is refused by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/data_rig.h"
#include "workers/data/csv_rows.h"
#include "workers/data/npy.h"

static void test_npy(void **state)
{
    (void)state;
    float inputs[5][2], input[2];
    int64_t labels[5];
    int32_t label;
    for (int i = 0; i < 5; i++) {
        inputs[i][0] = (float)i;
        inputs[i][1] = (float)-i;
        labels[i] = i % 3;
    }
    sy_npy_write(path_of("x.npy"), SY_DTYPE_F32, 2, (const int64_t[]){5, 2}, inputs);
    sy_npy_write(path_of("y.npy"), SY_DTYPE_I64, 1, (const int64_t[]){5}, labels);
    struct sy_data_spec spec = spec_of(
        "{'kind': 'npy', 'inputs': '%s', 'labels': '%s', 'mean': 1, 'std': 2, 'shuffle': false}",
        path_of("x.npy"), path_of("y.npy"));
    struct sy_data_want want = want_numbers(2, 3);
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 5);
    for (uint64_t i = 0; i < 12; i++) { /* the stream goes round */
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(input), &label), SY_OK);
        assert_true(input[0] == ((float)(i % 5) - 1.0f) / 2.0f);
        assert_int_equal(label, i % 5 % 3);
    }
    sy_train_data_close(&data);
    check_refused(spec, want_numbers(3, 3), SY_EARG, "takes 3");
    const char *both = "{'kind': 'npy', 'inputs': '%s', 'labels': '%s'}";
    check_refused(spec_of(both, path_of("x.npy"), path_of("y.npy")), want_numbers(2, 2), SY_EARG,
                  "sample 2 of");
    check_refused(spec_of(both, path_of("y.npy"), path_of("none.npy")), want_numbers(1, 3),
                  SY_ENOTFOUND, "none.npy");
    sy_npy_write(path_of("y4.npy"), SY_DTYPE_I64, 1, (const int64_t[]){4}, labels);
    check_refused(spec_of(both, path_of("x.npy"), path_of("y4.npy")), want_numbers(2, 3),
                  SY_ECORRUPT, "4 labels");
    check_refused(spec_of(both, path_of("x.npy"), path_of("x.npy")), want_numbers(2, 3), SY_EARG,
                  "x.npy");
}

/* What cannot be learnt from is named when its sample is wanted, float64 beyond float32 too; a label that is a value, at the start. */
static void test_npy_not_finite(void **state)
{
    (void)state;
    double values[4][2] = {{0, 1}, {2, 3}, {4, NAN}, {1e39, 7}};
    float input[2];
    int32_t label;
    struct sy_data_want want = want_numbers(2, 3);
    struct sy_train_data data;
    sy_npy_write(path_of("n.npy"), SY_DTYPE_F64, 2, (const int64_t[]){4, 2}, values);
    sy_npy_write(path_of("l.npy"), SY_DTYPE_I64, 1, (const int64_t[]){4},
                 (const int64_t[]){0, 1, 2, 0});
    struct sy_data_spec spec =
        spec_of("{'kind': 'npy', 'inputs': '%s', 'labels': '%s', 'shuffle': false}",
                path_of("n.npy"), path_of("l.npy"));
    open_data(&spec, &want, &data);
    assert_int_equal(sy_train_data_fill(&data, &want, 0, false, 1, ONE(input), &label), SY_OK);
    assert_int_equal(sy_train_data_fill(&data, &want, 1, false, 1, ONE(input), &label), SY_OK);
    assert_int_equal(sy_train_data_fill(&data, &want, 2, false, 1, ONE(input), &label),
                     SY_ECORRUPT);
    assert_non_null(strstr(sy_error_text(), "n.npy': element 1 is nan"));
    assert_int_equal(sy_train_data_fill(&data, &want, 3, false, 1, ONE(input), &label),
                     SY_ECORRUPT);
    assert_non_null(strstr(sy_error_text(), "sample 3 of"));
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
    want.are_classes = false;
    want.n_labels = 2;
    check_refused(spec_of("{'kind': 'npy', 'inputs': '%s', 'labels': '%s'}", path_of("x.npy"),
                          path_of("n.npy")),
                  want, SY_ECORRUPT, "labels");
    sy_npy_write(path_of("x4.npy"), SY_DTYPE_F64, 2, (const int64_t[]){4, 2},
                 (const double[]){0, 1, 2, 3, 4, 5, 6, 7});
    check_refused(spec_of("{'kind': 'npy', 'inputs': '%s', 'labels': '%s'}", path_of("x4.npy"),
                          path_of("n.npy")),
                  want, SY_ECORRUPT, "n.npy' has label nan");
}

/* ---- CSV ----------------------------------------------------------------------------------------------- */

static const char csv[] = "size,\"the \"\"kind\"\"\",weight,ignored\r\n"
                          "1,cat,10,x\r\n"
                          "2,\"dog, big\",20,\n"
                          "\n"
                          "3,cat,60,\"two\nlines\"\n"
                          "6,ant,30,z";

static void test_csv_columns(void **state)
{
    (void)state;
    float input[2];
    int32_t label;
    const int32_t wanted[] = {1, 2, 1, 0}; /* ant, cat, "dog, big" */
    const float weights[] = {10, 20, 60, 30};
    struct sy_data_spec spec =
        spec_of("{'kind': 'csv', 'file': '%s', 'label': 'the \\'kind\\'', 'features': ['weight', "
                "'size'], 'shuffle': false}",
                write_text("a.csv", csv));
    struct sy_data_want want = want_numbers(2, 3);
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 4);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(input), &label), SY_OK);
        assert_true(input[0] == weights[i]);
        assert_int_equal(label, wanted[i]);
    }
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

static void test_csv_standardized(void **state)
{
    (void)state;
    float input[2], label, sum = 0, square = 0;
    struct sy_data_spec spec =
        spec_of("{'kind': 'csv', 'file': '%s', 'label': '3', 'header': false, 'separator': ';', "
                "'standardize': true}",
                write_text("b.csv", "1;5;0.5\n2;5;1.5\n4;5;-2\n9;5;7\n"));
    struct sy_data_want want = want_numbers(2, 1);
    struct sy_train_data data;
    want.are_classes = false;
    open_data(&spec, &want, &data);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(input), &label), SY_OK);
        sum += input[0];
        square += input[0] * input[0];
        assert_true(input[1] == 0.0f &&
                    (label == 0.5f || label == 1.5f || label == -2 || label == 7));
    }
    assert_true(fabsf(sum) < 1e-5f && fabsf(square - 4) < 1e-4f);
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

static void test_bad_csv(void **state)
{
    (void)state;
    struct sy_data_want want = want_numbers(1, 2);
    const char *job = "{'kind': 'csv', 'file': '%s', 'label': 'y', 'features': ['x']}";
    check_refused(
        spec_of("{'kind': 'csv', 'file': '%s', 'label': 'z'}", write_text("c.csv", "x,y\n1,0\n")),
        want, SY_EARG, "no column 'z'; it has 'x', 'y'");
    check_refused(spec_of("{'kind': 'csv', 'file': '%s', 'label': 'y', 'features': ['xx']}",
                          path_of("c.csv")),
                  want, SY_EARG, "no column 'xx'");
    check_refused(
        spec_of("{'kind': 'csv', 'file': '%s', 'label': '3', 'header': false}", path_of("c.csv")),
        want, SY_EARG, "'1' to '2'");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,0\n1,2\n")), want, SY_EARG, "label 2");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,0\none,1\n")), want, SY_ECORRUPT,
                  "line 3, column 'x': 'one'");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,0\n1,1,1\n")), want, SY_ECORRUPT,
                  "line 3: 3 fields");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,\"0\n")), want, SY_ECORRUPT, "quote");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n")), want, SY_EARG, "no rows");
    check_refused(spec_of(job, write_text("d.csv", "")), want, SY_EARG, "no rows");
    check_refused(spec_of(job, write_text("d.csv", "x,y\nnan,1\n")), want, SY_ECORRUPT, "'nan'");
    check_refused(spec_of("{'kind': 'csv', 'file': '%s', 'label': 'y'}", path_of("c.csv")),
                  want_numbers(2, 2), SY_EARG, "1 feature columns");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1e39,1\n")), want, SY_ECORRUPT, "'1e39'");
    check_refused(spec_of(job, write_text("d.csv", "x,y\r1,0\r2,1\r")), want, SY_ECORRUPT,
                  "line 1: a carriage return");
    check_refused(spec_of(job, write_bytes("d.csv", "x,y\n1,0\n\0,1\n", 13)), want, SY_ECORRUPT,
                  "line 3: a byte 0");
    check_refused(spec_of(job, write_text("d.csv", "x,x,y\n1,2,0\n")), want, SY_EARG,
                  "column 'x' twice");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,-1\n")), want, SY_EARG,
                  "row 1: label '-1' is no class");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,1\n2,0.5\n")), want, SY_EARG,
                  "row 2: label '0.5' is no class");
    check_refused(spec_of(job, write_text("d.csv", "x,y\n1,ant\n2,bee\n3,cow\n")), want, SY_EARG,
                  "3 different labels, the model's outputs tell 2");
    char *test = write_text("t.csv", "x,y\n1,cow\n");
    check_refused(spec_of("{'kind': 'csv', 'file': '%s', 'label': 'y', 'test_file': '%s'}",
                          write_text("e.csv", "x,y\n1,ant\n2,bee\n"), test),
                  want, SY_EARG, "label 'cow'");
}

/* Random tables, written with random quoting, read back. */
static void test_csv_against_what_was_written(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 200; round++) {
        char text[4096], fields[12][8][8], *to = text;
        int rows = 1 + rand() % 12, columns = 1 + rand() % 8;
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) {
                int n = (columns == 1) + rand() % 6, quoted = rand() % 2;
                char *field = fields[r][c];
                for (int i = 0; i < n; i++)
                    field[i] = (quoted ? "ab\",\n\r" : "abc")[rand() % (quoted ? 6 : 3)];
                field[n] = 0;
                to += sprintf(to, "%s", quoted ? "\"" : "");
                for (int i = 0; i < n; i++)
                    to += sprintf(to, "%s%c", field[i] == '"' ? "\"" : "", field[i]);
                to += sprintf(to, "%s%s", quoted ? "\"" : "",
                              c + 1 < columns ? ","
                              : rand() % 2    ? "\r\n"
                                              : "\n");
            }
        struct sy_csv_rows csv_rows = {.path = "memory", .at = text, .end = to, .separator = ','};
        for (int r = 0; r < rows; r++) {
            assert_int_equal(sy_csv_rows_next(&csv_rows), 1);
            assert_int_equal(csv_rows.n, columns);
            for (int c = 0; c < columns; c++)
                assert_string_equal(csv_rows.fields[c], fields[r][c]);
        }
        assert_int_equal(sy_csv_rows_next(&csv_rows), 0);
        sy_csv_rows_finish(&csv_rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy),         cmocka_unit_test(test_npy_not_finite),
        cmocka_unit_test(test_csv_columns), cmocka_unit_test(test_csv_standardized),
        cmocka_unit_test(test_bad_csv),     cmocka_unit_test(test_csv_against_what_was_written),
    };
    return cmocka_run_group_tests(tests, make_data_folder, remove_data_folder);
}

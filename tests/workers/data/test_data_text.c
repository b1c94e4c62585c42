/* Data sets of text: classes by file or folder, and what comes next. */
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
#include "tests/rigs/data_rig.h"

static void test_text_classes(void **state)
{
    (void)state;
    int64_t input[4];
    int32_t label;
    mkdir(path_of("text"), 0777);
    write_text("text/de.txt", "Haus\n\nUm\n");
    write_text("text/en.txt", "housing");
    struct sy_data_spec spec =
        spec_of("{'kind': 'text', 'folder': '%s', 'shuffle': false}", path_of("text"));
    struct sy_data_want want = want_indices(4, 2);
    struct sy_train_data data;
    const char *wanted[] = {"Haus", "Um\0\0", "hous"};
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(input), &label), SY_OK);
        for (int c = 0; c < 4; c++)
            assert_int_equal(input[c], wanted[i][c]);
        assert_int_equal(label, i == 2);
    }
    sy_train_data_close(&data);
    spec.split = SY_SPLIT_WINDOWS;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 5); /* 9 bytes and 7 */
    sy_train_data_close(&data);
    spec.ngram = 3;
    spec.vocabulary = 50;
    open_data(&spec, &want, &data);
    assert_int_equal(sy_train_data_fill(&data, &want, 0, false, 1, ONE(input), &label), SY_OK);
    for (int c = 0; c < 4; c++)
        assert_in_range(input[c], 1, 49);
    sy_train_data_close(&data);
    check_refused(spec, want_indices(4, 1), SY_EARG, "2 classes");
    mkdir(path_of("empty"), 0777);
    check_refused(spec_of("{'kind': 'text', 'folder': '%s'}", path_of("empty")), want_indices(4, 2),
                  SY_EARG, "0 classes");
    check_refused(spec_of("{'kind': 'text', 'folder': '%s'}", path_of("nowhere")),
                  want_indices(4, 2), SY_ENOTFOUND, "nowhere");
    write_text("empty/fr.txt", "x");
    write_text("empty/de.txt", "x");
    check_refused(spec_of("{'kind': 'text', 'folder': '%s', 'test_folder': '%s'}", path_of("text"),
                          path_of("empty")),
                  want_indices(4, 2), SY_EARG, "class 'fr.txt'");
    write_text("text/fr.txt", "\n\n");
    check_refused(spec_of("{'kind': 'text', 'folder': '%s'}", path_of("text")), want_indices(4, 3),
                  SY_EARG, "class 'fr.txt' has no sample");
    remove(path_of("text/fr.txt"));
}

static void test_text_that_goes_on(void **state)
{
    (void)state;
    int64_t input[2][3];
    int32_t labels[2][3];
    struct sy_data_spec spec = spec_of("{'kind': 'text', 'file': '%s', 'shuffle': false}",
                                       write_text("long.txt", "abcdefgh"));
    struct sy_data_want want = want_indices(3, 256);
    struct sy_train_data data;
    want.n_labels = 3;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 2);
    assert_int_equal(sy_train_data_fill(&data, &want, 0, false, 2, ONE(input), labels), SY_OK);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(input[i / 3][i % 3], 'a' + i);
        assert_int_equal(labels[i / 3][i % 3], 'b' + i);
    }
    sy_train_data_close(&data);
    want.n_classes = 100;
    check_refused(spec, want, SY_EARG, "byte 3 is 100");
    check_refused(spec_of("{'kind': 'text', 'file': '%s'}", path_of("long.txt")),
                  want_indices(3, 256), SY_EARG, "rows of outputs");
    want.n_classes = 256;
    check_refused(spec_of("{'kind': 'text', 'file': '%s'}", write_text("short.txt", "abc")), want,
                  SY_EARG, "3 bytes");
}

static void test_text_in_folders(void **state)
{
    (void)state;
    const char *folders[] = {"texts", "texts/de", "texts/de/old", "texts/en"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(path_of(folders[i]), 0777), 0);
    write_text("texts/de/a.txt", "Haus\nBaum\n");
    write_text("texts/de/old/b.txt", "Muhme\n");
    write_text("texts/en/a.txt", "tree\n");
    struct sy_data_spec spec = spec_of("{'kind': 'text', 'folder': '%s'}", path_of("texts"));
    struct sy_data_want want = want_indices(4, 2);
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 4);
    sy_train_data_close(&data);
    assert_string_equal(warned_by(&spec, &want), "");
    write_text("texts/fr.txt", "arbre\n");
    const char *said = warned_by(&spec, &want);
    assert_non_null(strstr(said, "left_out=1 first=fr.txt"));
    sy_job_data_free(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_classes),
        cmocka_unit_test(test_text_that_goes_on),
        cmocka_unit_test(test_text_in_folders),
    };
    return cmocka_run_group_tests(tests, make_data_folder, remove_data_folder);
}

/* Drawing tokens: the likeliest, ties, frequencies against the closed form; tokens as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/cli/inputs/sample_token.h"
#include "runtime/cli/inputs/token_text.h"

static void test_likeliest(void **state)
{
    const float scores[] = {-1, 3, 2, 3, -INFINITY};
    struct sy_sampler sampler = {.temperature = 0};
    int64_t token = -1;

    (void)state;
    assert_int_equal(sy_sample_token(&sampler, scores, 5, &token), SY_OK);
    assert_int_equal(token, 1);
    sampler = (struct sy_sampler){.temperature = 1, .top_k = 1};
    assert_int_equal(sy_sample_token(&sampler, scores, 5, &token), SY_OK);
    assert_int_equal(token, 1);
}

/* 40000 draws of four tokens: each within five standard deviations of exp(score / T) / sum. */
static void check_frequencies(double temperature, int64_t top_k)
{
    const float scores[] = {0.5f, 2.0f, -1.0f, 1.0f};
    const int order[] = {1, 3, 0, 2};
    struct sy_sampler sampler = {.temperature = temperature, .top_k = top_k, .state = 7};
    int64_t n[4] = {0}, token;
    double sum = 0, draws = 40000;

    for (int64_t i = 0; i < top_k; i++)
        sum += exp((double)scores[order[i]] / temperature);
    for (int i = 0; i < (int)draws; i++) {
        assert_int_equal(sy_sample_token(&sampler, scores, 4, &token), SY_OK);
        assert_in_range(token, 0, 3);
        n[token]++;
    }
    for (int64_t i = 0; i < 4; i++) {
        double p = i < top_k ? exp((double)scores[order[i]] / temperature) / sum : 0;
        double apart = fabs((double)n[order[i]] - draws * p);
        assert_true(apart <= 5 * sqrt(draws * p * (1 - p)));
    }
}

static void test_frequencies(void **state)
{
    (void)state;
    check_frequencies(1, 4);
    check_frequencies(0.5, 3);
    check_frequencies(3, 2);
}

static void test_bad_scores(void **state)
{
    const float nan_last[] = {1, NAN};
    struct sy_sampler sampler = {.temperature = 1};
    int64_t token;

    (void)state;
    assert_int_equal(sy_sample_token(&sampler, nan_last, 2, &token), SY_EARG);
    assert_int_equal(sy_sample_token(&sampler, nan_last, 0, &token), SY_EARG);
}

/* ---- text ---- */

static int open_text(const char *text, struct sy_vocabulary **out)
{
    char path[] = "/tmp/sy-vocab-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int status = sy_vocabulary_open(path, out);
    unlink(path);
    return status;
}

static void expect_text(const struct sy_vocabulary *vocabulary, int64_t token, const char *wanted)
{
    char text[16];
    size_t n = sy_vocabulary_text(vocabulary, token, text, sizeof text);

    assert_int_equal(n, strlen(wanted));
    assert_memory_equal(text, wanted, n);
}

static void test_byte_level(void **state)
{
    struct sy_vocabulary *v;

    (void)state;
    assert_int_equal(
        open_text(
            "{\"\\u0120\":0,\"\\u0120word\":1,\"\\u00c3\\u00a9\":2,\"\\u010a\":3,\"\\u0143\":4}",
            &v),
        SY_OK);
    expect_text(v, 1, " word");
    expect_text(v, 2, "\xc3\xa9"); /* two letters for the two bytes of U+00E9 */
    expect_text(v, 3, "\n");
    expect_text(v, 4, "\xad");
    expect_text(v, 5, "");
    expect_text(v, -1, "");
    char two[2];
    assert_int_equal(sy_vocabulary_text(v, 1, two, sizeof two), 2);
    sy_vocabulary_close(v);
}

static void test_pieces(void **state)
{
    struct sy_vocabulary *v;

    (void)state;
    assert_int_equal(
        open_text("{\"model\":{\"vocab\":[[\"<0x0A>\",0],[\"\\u2581it\",-1],[\"\\u00e9\",-2]]},"
                  "\"added_tokens\":[{\"id\":4,\"content\":\"<end>\"}]}",
                  &v),
        SY_OK);
    expect_text(v, 0, "\n");
    expect_text(v, 1, " it");
    expect_text(v, 2, "\xc3\xa9");
    expect_text(v, 3, "");
    expect_text(v, 4, "<end>");
    sy_vocabulary_close(v);
}

static void test_bad_vocabularies(void **state)
{
    const char *const bad[] = {
        "", "{", "[]", "{}", "{\"a\":99999999999}", "{\"a\":-1}", "{\"model\":3}"};
    struct sy_vocabulary *v;

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(bad); i++)
        assert_int_equal(open_text(bad[i], &v), SY_ECORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_likeliest),  cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_bad_scores), cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_pieces),     cmocka_unit_test(test_bad_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

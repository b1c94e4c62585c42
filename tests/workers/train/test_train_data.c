/* What all data sets share: the holdout, made ones, batches ahead, the keys of a job file. */
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
#include "tests/rigs/data_rig.h"
#include "workers/data/normal_draws.h"
#include "workers/data/npy.h"
#include "workers/data/prefetch.h"

static void test_holdout(void **state)
{
    (void)state;
    float input[2];
    int32_t label;
    int n_seen = 0;
    int64_t labels[40], inputs[40][2], seen[40] = {0};
    for (int i = 0; i < 40; i++) {
        inputs[i][0] = inputs[i][1] = i;
        labels[i] = i;
    }
    sy_npy_write(path_of("hx.npy"), SY_DTYPE_I64, 2, (const int64_t[]){40, 2}, inputs);
    sy_npy_write(path_of("hy.npy"), SY_DTYPE_I64, 1, (const int64_t[]){40}, labels);
    struct sy_data_spec spec =
        spec_of("{'kind': 'npy', 'inputs': '%s', 'labels': '%s', 'holdout': 0.25}",
                path_of("hx.npy"), path_of("hy.npy"));
    struct sy_data_want want = want_numbers(2, 40);
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n, 30);
    assert_int_equal(data.n_test, 10);
    for (uint64_t i = 0; i < 40; i++) { /* each sample is in one of the sets */
        bool is_test = i >= 30;
        assert_int_equal(
            sy_train_data_fill(&data, &want, is_test ? i - 30 : i, is_test, 1, ONE(input), &label),
            SY_OK);
        n_seen += seen[label]++ == 0;
    }
    assert_int_equal(n_seen, 40);
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

static void test_synthetic_is_a_function(void **state)
{
    (void)state;
    float first[3][8], again[8];
    int32_t label, same;
    struct sy_data_spec spec = spec_of("{'kind': 'synthetic', 'samples': 10, 'test_samples': 3}");
    struct sy_data_want want = want_numbers(8, 4);
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    assert_int_equal(data.n_test, 3);
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(first[0]), &label),
                         SY_OK);
        assert_int_equal(sy_train_data_fill(&data, &want, i, false, 1, ONE(again), &same), SY_OK);
        assert_memory_equal(first[0], again, sizeof again);
        assert_true(label == same && label >= 0 && label < 4);
    }
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* By its definition: twelve uniform numbers' worth, of four times 16 bits each of three words. */
static double naive_normal(uint64_t key, uint64_t number)
{
    const uint64_t step = 0x9e3779b97f4a7c15ull;
    double sum = 0.0;
    for (uint64_t word = 0; word < 3; word++)
        for (uint64_t bits = mix(mix(key + step) + (3 * number + word) * step), i = 0; i < 4;
             i++, bits >>= 16)
            sum += (double)(bits & 0xffff) / 65536.0;
    return sum - 6.0;
}

static void test_draws_by_definition(void **state)
{
    (void)state;
    uint32_t sums[67];
    for (uint64_t n = 0; n < 67; n++) {
        uint64_t key = mix(n + 1), first = n % 3 ? n * 1000003u : 0;
        sums[n] = 77;
        sy_data_draw_sums(key, first, n, sums);
        assert_int_equal(sums[n], 77);
        for (uint64_t i = 0; i < n; i++)
            assert_true(sy_data_normal_of(sums[i]) == naive_normal(key, first + i));
    }
}

/* As jobs of earlier versions had them: more numbers than a block has, of a class each. */
static void test_synthetic_by_definition(void **state)
{
    (void)state;
    enum { N = 1100 };
    static float input[N];
    int32_t label;
    struct sy_data_spec spec = spec_of("{'kind': 'synthetic', 'samples': 10}");
    struct sy_data_want want = want_numbers(N, 4);
    struct sy_train_data data;
    open_data(&spec, &want, &data);
    for (uint64_t at = 0; at < 3; at++) {
        uint64_t sample = sy_train_data_index(data.n, spec.seed, at);
        uint64_t key = sy_data_draw(sy_data_draw(spec.seed, 0), sample);
        assert_int_equal(sy_train_data_fill(&data, &want, at, false, 1, ONE(input), &label), SY_OK);
        uint64_t pattern = sy_data_draw(spec.seed, 1000003u + (uint64_t)label);
        for (uint64_t i = 0; i < N; i++)
            assert_true(input[i] ==
                        (float)(naive_normal(pattern, i) + spec.noise * naive_normal(key, i)));
    }
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

static void take(struct sy_prefetch *prefetch, bool is_test, uint64_t index, float *input,
                 int32_t *labels)
{
    int got;
    while ((got = sy_prefetch_take(prefetch, is_test, index, 1000, ONE(input), labels)) == 0)
        continue;
    assert_int_equal(got, 1);
}

/* Whatever is asked for, in whatever order, is what fill gives. */
static void test_prefetch(void **state)
{
    (void)state;
    float wanted[4][8], input[4][8];
    int32_t wanted_labels[4], labels[4];
    struct sy_prefetch *prefetch;
    struct sy_data_spec spec = spec_of("{'kind': 'synthetic', 'samples': 50, 'test_samples': 9}");
    struct sy_data_want want = want_numbers(8, 4);
    struct sy_train_data data;
    srand(3);
    open_data(&spec, &want, &data);
    assert_int_equal(sy_prefetch_create(&data, &want, 4, NULL, &prefetch), SY_OK);
    uint64_t index = 0;
    for (int i = 0; i < 2000; i++) {
        bool is_test = rand() % 8 == 0;
        index = rand() % 4 ? index + 1 : (uint64_t)rand() % 5;
        if (rand() % 8 == 0) /* asks, and does not wait */
            sy_prefetch_take(prefetch, !is_test, index + 1, 0, ONE(input), labels);
        take(prefetch, is_test, index, *input, labels);
        assert_int_equal(
            sy_train_data_fill(&data, &want, index * 4, is_test, 4, ONE(wanted), wanted_labels),
            SY_OK);
        assert_memory_equal(wanted, input, sizeof input);
        assert_memory_equal(wanted_labels, labels, sizeof labels);
    }
    sy_prefetch_destroy(prefetch);
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

/* In places of the caller's: the batch that is held stays as it is, whatever is made meanwhile. */
static void test_held_batches(void **state)
{
    (void)state;
    float wanted[4][8], inputs[SY_PREFETCH_PLACES][4][8];
    int32_t wanted_labels[4], labels[SY_PREFETCH_PLACES][4];
    struct sy_batch_place places[SY_PREFETCH_PLACES] = {0};
    struct sy_prefetch *prefetch;
    struct sy_data_spec spec = spec_of("{'kind': 'synthetic', 'samples': 50, 'test_samples': 9}");
    struct sy_data_want want = want_numbers(8, 4);
    struct sy_train_data data;
    srand(4);
    open_data(&spec, &want, &data);
    for (int p = 0; p < SY_PREFETCH_PLACES; p++)
        places[p] = (struct sy_batch_place){.inputs = {inputs[p]}, .labels = labels[p]};
    assert_int_equal(sy_prefetch_create(&data, &want, 4, places, &prefetch), SY_OK);
    uint64_t index = 0;
    for (int i = 0; i < 2000; i++) {
        int got, place;
        bool is_test = rand() % 8 == 0;
        index = rand() % 4 ? index + 1 : (uint64_t)rand() % 5;
        sy_prefetch_release(prefetch);
        while ((got = sy_prefetch_hold(prefetch, is_test, index, 1000, &place)) == 0)
            continue;
        assert_int_equal(got, 1);
        assert_int_equal(
            sy_train_data_fill(&data, &want, index * 4, is_test, 4, ONE(wanted), wanted_labels),
            SY_OK);
        if (rand() % 4 == 0)
            usleep(100); /* the thread fills all other places */
        assert_memory_equal(wanted, inputs[place], sizeof wanted);
        assert_memory_equal(wanted_labels, labels[place], sizeof wanted_labels);
    }
    sy_prefetch_destroy(prefetch);
    sy_train_data_close(&data);
    sy_job_data_free(&spec);
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

static void check_bad_section(const char *text, const char *part)
{
    struct sy_data_spec spec = {0};
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_loads(copy, 0, NULL);
    assert_non_null(json);
    assert_int_equal(sy_job_data_take(json, 0, &spec), SY_EARG);
    if (!strstr(sy_error_text(), part))
        fail_msg("'%s' is not in: %s", part, sy_error_text());
    sy_job_data_free(&spec);
    json_decref(json);
}

static void test_keys(void **state)
{
    (void)state;
    check_bad_section("{'kind': 'cvs'}", "known: 'idx', 'npy', 'csv'");
    check_bad_section("{'kind': 'csv', 'labels': 'y'}", "did you mean 'data.label'");
    check_bad_section("{'kind': 'csv', 'label': 'y'}", "'data.file' is missing");
    check_bad_section("{'kind': 'images'}", "'data.folder' is missing");
    check_bad_section("{'kind': 'text'}", "either");
    check_bad_section("{'kind': 'text', 'file': 'a', 'folder': 'b'}", "either");
    check_bad_section("{'kind': 'text', 'folder': 'a', 'vocabulary': 300}", "n-grams");
    check_bad_section("{'images': 'a', 'labels': 'b', 'test_images': 'c'}", "go together");
    check_bad_section("{'images': 'a', 'labels': 'b', 'shuffle': 1}", "true or false");
    check_bad_section("{'kind': 'csv', 'file': 'a', 'label': 'y', 'features': []}", "at least one");
    check_bad_section("{'kind': 'csv', 'file': 'a', 'label': 'y', 'features': [1]}", "list");
    check_bad_section("{'kind': 'csv', 'file': 'a', 'label': 'y', 'separator': ', '}", "one char");
    check_bad_section("{'kind': 'synthetic', 'test_samples': 3, 'holdout': 0.5}", "holdout");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holdout),
        cmocka_unit_test(test_synthetic_is_a_function),
        cmocka_unit_test(test_draws_by_definition),
        cmocka_unit_test(test_synthetic_by_definition),
        cmocka_unit_test(test_prefetch),
        cmocka_unit_test(test_held_batches),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, make_data_folder, remove_data_folder);
}

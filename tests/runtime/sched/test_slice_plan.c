/* Which slice has which cores: against all ways to divide them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/slice_plan.h"
#include "tests/rigs/seed.h"

#define MOST 12

static uint64_t seed;

static const uint64_t cores[MOST] = {0, 1, 2, 3, 8, 9, 10, 11, 20, 21, 22, 30};

static int count_of(const int *owner, int n_cores, int slice)
{
    int n = 0;
    for (int i = 0; i < n_cores; i++)
        n += owner[i] == slice;
    return n;
}

/* How far a division is from the weights; of divisions that give each one at least. */
static double distance(const int *has, const unsigned *weights, int n, int all)
{
    double sum = 0, away = 0;
    for (int i = 0; i < n; i++)
        sum += weights[i];
    for (int i = 0; i < n; i++) {
        double missing = all * weights[i] / sum - has[i];
        away += missing * missing;
    }
    return away;
}

static double best_distance(int *has, int at, int left, const unsigned *weights, int n, int all)
{
    double best = 1e30;
    if (at == n - 1) {
        has[at] = left;
        return left >= 1 ? distance(has, weights, n, all) : best;
    }
    for (has[at] = 1; has[at] <= left; has[at]++) {
        int mine = has[at];
        double d = best_distance(has, at + 1, left - mine, weights, n, all);
        has[at] = mine;
        best = SY_MIN(best, d);
    }
    return best;
}

static void test_weights_divide_as_well_as_any_division(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        int n = 1 + (int)seed_below(&seed, 4), n_cores = n + (int)seed_below(&seed, MOST - 3);
        n_cores = SY_MIN(n_cores, MOST);
        struct sy_slice_wish wishes[4] = {0};
        unsigned weights[4];
        int owner[MOST], has[4];
        for (int i = 0; i < n; i++) {
            wishes[i].by = SY_SLICE_BY_WEIGHT;
            wishes[i].amount = weights[i] = 1 + (unsigned)seed_below(&seed, 9);
            snprintf(wishes[i].name, sizeof wishes[i].name, "s%d", i);
        }
        assert_int_equal(sy_slice_plan(wishes, n, cores, (size_t)n_cores, owner), SY_OK);
        for (int i = 0; i < n; i++)
            assert_true((has[i] = count_of(owner, n_cores, i)) >= 1);
        assert_int_equal(count_of(owner, n_cores, -1), 0);
        double mine = distance(has, weights, n, n_cores);
        assert_true(mine <= best_distance(has, 0, n_cores, weights, n, n_cores) + 1e-9);
    }
}

/* Amounts from 1 on that sum to 1000. */
static void random_shares(unsigned *shares, int n)
{
    unsigned left = 1000;
    for (int i = 0; i < n - 1; i++)
        left -= shares[i] = 1 + (unsigned)seed_below(&seed, left - (unsigned)(n - 1 - i));
    shares[n - 1] = left;
}

static void check_shares(const unsigned *shares, int n, int n_cores)
{
    struct sy_slice_wish wishes[5] = {0};
    int owner[MOST], has[5];
    bool all_whole = true;
    for (int i = 0; i < n; i++) {
        wishes[i].by = SY_SLICE_BY_SHARE;
        wishes[i].amount = shares[i];
        snprintf(wishes[i].name, sizeof wishes[i].name, "s%d", i);
        all_whole &= shares[i] * (unsigned)n_cores >= 1000;
    }
    if (sy_slice_plan(wishes, n, cores, (size_t)n_cores, owner) != SY_OK)
        fail_msg("%d shares of %d cores: %s", n, n_cores, sy_error_text());
    assert_int_equal(count_of(owner, n_cores, -1), 0);
    for (int i = 0; i < n; i++) {
        has[i] = count_of(owner, n_cores, i);
        assert_true(has[i] >= 1);
        assert_true(!all_whole || abs(1000 * has[i] - (int)shares[i] * n_cores) < 1000);
    }
    double mine = distance(has, shares, n, n_cores);
    assert_true(mine <= best_distance(has, 0, n_cores, shares, n, n_cores) + 1e-9);
}

static void test_shares_of_all_fit_as_well_as_any_division(void **state)
{
    static const unsigned known[][5] = {
        {250, 250, 250, 250}, {200, 200, 200, 200, 200}, {300, 300, 400}, {1, 1, 998}};
    static const int n_known[] = {4, 5, 3, 3};
    (void)state;
    for (size_t k = 0; k < SY_ARRAY_LEN(known); k++)
        for (int n_cores = n_known[k]; n_cores <= MOST; n_cores++)
            check_shares(known[k], n_known[k], n_cores);
    for (int round = 0; round < 3000; round++) {
        int n = 1 + (int)seed_below(&seed, 5);
        unsigned shares[5];
        random_shares(shares, n);
        check_shares(shares, n, n + (int)seed_below(&seed, (uint64_t)(MOST + 1 - n)));
    }
}

/* Counts are served first: a share gives up the core that it was rounded up to, and no more. */
static void test_shares_have_what_counts_leave(void **state)
{
    struct sy_slice_wish w[4] = {{.name = "a", .by = SY_SLICE_BY_SHARE, .amount = 300},
                                 {.name = "b", .by = SY_SLICE_BY_SHARE, .amount = 300},
                                 {.name = "c", .by = SY_SLICE_BY_SHARE, .amount = 300},
                                 {.name = "count", .by = SY_SLICE_BY_COUNT, .amount = 1}};
    int owner[MOST];
    (void)state;
    for (unsigned n = 1; n <= 2; n++) {
        w[3].amount = n;
        assert_int_equal(sy_slice_plan(w, 4, cores, 8, owner), SY_OK);
        assert_int_equal(count_of(owner, 8, 0), n == 1 ? 3 : 2);
        assert_int_equal(count_of(owner, 8, 1), 2);
        assert_int_equal(count_of(owner, 8, 2), 2);
    }
    w[3].amount = 3;
    assert_int_equal(sy_slice_plan(w, 4, cores, 8, owner), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "want 6 cores, and 5 of 8 are left"));
}

static void test_counts_shares_and_lists(void **state)
{
    static const uint64_t listed[] = {1, 8};
    struct sy_slice_wish w[4] = {
        {.name = "weight", .by = SY_SLICE_BY_WEIGHT, .amount = 1},
        {.name = "share", .by = SY_SLICE_BY_SHARE, .amount = 250},
        {.name = "count", .by = SY_SLICE_BY_COUNT, .amount = 3},
        {.name = "list", .by = SY_SLICE_BY_LIST, .n_listed = 2, .listed = listed},
    };
    int owner[MOST];
    (void)state;
    assert_int_equal(sy_slice_plan(w, 4, cores, MOST, owner), SY_OK);
    assert_int_equal(owner[1], 3);
    assert_int_equal(owner[4], 3);
    assert_int_equal(count_of(owner, MOST, 3), 2);
    assert_int_equal(count_of(owner, MOST, 2), 3);
    assert_int_equal(count_of(owner, MOST, 1), 3);
    assert_int_equal(count_of(owner, MOST, 0), 4);
    assert_int_equal(owner[0], 2); /* counts take the first free ones */
}

static void test_shares_sum_to_all_cores_at_most(void **state)
{
    struct sy_slice_wish w[2] = {{.name = "a", .by = SY_SLICE_BY_SHARE, .amount = 600},
                                 {.name = "b", .by = SY_SLICE_BY_SHARE, .amount = 600}};
    int owner[MOST];
    (void)state;
    for (size_t n = 2; n <= MOST; n++) { /* of two cores each would have one */
        assert_int_equal(sy_slice_plan(w, 2, cores, n, owner), SY_EARG);
        assert_non_null(strstr(sy_error_text(), "120 %"));
    }
    w[0].amount = w[1].amount = 500;
    for (size_t n = 2; n <= MOST; n++) {
        assert_int_equal(sy_slice_plan(w, 2, cores, n, owner), SY_OK);
        assert_int_equal(count_of(owner, n, 0), (n + 1) / 2);
        assert_int_equal(count_of(owner, n, 1), n / 2);
    }
}

static void test_what_has_no_room_is_refused_with_the_numbers(void **state)
{
    static const uint64_t twice[] = {1, 1}, none[] = {7};
    struct sy_slice_wish w[2] = {{.name = "a", .by = SY_SLICE_BY_COUNT, .amount = 3},
                                 {.name = "b", .by = SY_SLICE_BY_COUNT, .amount = 2}};
    int owner[MOST];
    (void)state;
    assert_int_equal(sy_slice_plan(w, 2, cores, 4, owner), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "slice 'b' wants 2 cores, and 1 of 4"));
    w[1] = (struct sy_slice_wish){.name = "a", .by = SY_SLICE_BY_WEIGHT, .amount = 1};
    assert_int_equal(sy_slice_plan(w, 2, cores, 4, owner), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "two slices 'a'"));
    w[1] =
        (struct sy_slice_wish){.name = "b", .by = SY_SLICE_BY_LIST, .n_listed = 2, .listed = twice};
    assert_int_equal(sy_slice_plan(w, 2, cores, 4, owner), SY_EARG);
    w[1].listed = none;
    w[1].n_listed = 1;
    assert_int_equal(sy_slice_plan(w, 2, cores, 4, owner), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "core 7"));
    w[1] = (struct sy_slice_wish){.name = "", .by = SY_SLICE_BY_COUNT, .amount = 1};
    assert_int_equal(sy_slice_plan(w, 2, cores, 4, owner), SY_EARG);
}

static void test_lists_go_there_and_back(void **state)
{
    static const char *const good[] = {"0", "0-3", "0-1,3", "2,4-6,9"}, *const bad[] = {
                                                                            "",    ",",   "1,",
                                                                            "3-1", "x",   "1-",
                                                                            "-1",  "5000"};
    uint64_t list[64];
    size_t n;
    char text[64];
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(good); i++) {
        assert_int_equal(sy_slice_parse_cores(good[i], list, 64, &n), SY_OK);
        assert_string_equal(sy_slice_cores_text(list, n, text, sizeof text), good[i]);
    }
    for (size_t i = 0; i < SY_ARRAY_LEN(bad); i++)
        assert_int_equal(sy_slice_parse_cores(bad[i], list, 64, &n), SY_EARG);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_divide_as_well_as_any_division),
        cmocka_unit_test(test_shares_of_all_fit_as_well_as_any_division),
        cmocka_unit_test(test_shares_have_what_counts_leave),
        cmocka_unit_test(test_counts_shares_and_lists),
        cmocka_unit_test(test_shares_sum_to_all_cores_at_most),
        cmocka_unit_test(test_what_has_no_room_is_refused_with_the_numbers),
        cmocka_unit_test(test_lists_go_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Who is first, against looking at all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/sim/sim_tree.h"
#include "tests/rigs/seed.h"

#define MOST    5000
#define CHANGES 4000

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

static int first_of(const uint64_t *keys, int n)
{
    int first = 0;
    for (int i = 1; i < n; i++)
        if (keys[i] < keys[first])
            first = i;
    return first;
}

/* As a simulation does it: the first one moves on, or another has something to do, or nothing any more; many at the same time. */
static uint64_t new_key(uint64_t now)
{
    return below(4) == 0 ? UINT64_MAX : now + below(below(2) ? 5 : 5000);
}

static void change(struct sy_sim_tree *t, uint64_t *keys, bool *told, int n)
{
    int first = sy_sim_tree_first(t), item = below(2) ? first : (int)below((uint64_t)n);
    uint64_t now = keys[first] == UINT64_MAX ? below(100) : keys[first];
    keys[item] = new_key(now);
    int soon = sy_sim_tree_set(t, item, keys[item]);
    assert_in_range(soon + 1, 0, n);
    if (soon >= 0)
        told[soon] = true;
}

static void check_size(int n)
{
    static uint64_t keys[MOST];
    bool told[MOST] = {false};
    struct sy_sim_tree t;
    assert_int_equal(sy_sim_tree_init(&t, n), SY_OK);
    for (int i = 0; i < n; i++)
        keys[i] = UINT64_MAX;
    assert_true(sy_sim_tree_first_key(&t) == UINT64_MAX);
    for (int i = 0; i < CHANGES; i++) {
        change(&t, keys, told, n);
        int first = first_of(keys, n);
        assert_int_equal(sy_sim_tree_first(&t), first);
        assert_true(sy_sim_tree_first_key(&t) == keys[first]);
        assert_true(n <= 64 || keys[first] == UINT64_MAX || told[first]);
    }
    sy_sim_tree_finish(&t);
}

static void test_the_first_is_the_least_and_the_lowest_of_equals(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 7, 8, 9, 63, 64, 65, 511, 513, 4097, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_size(sizes[i]);
}

/* Changes that nobody asks after one by one: now and then all of them count. */
static void check_later(int n)
{
    static uint64_t keys[MOST];
    struct sy_sim_tree t;
    assert_int_equal(sy_sim_tree_init(&t, n), SY_OK);
    for (int i = 0; i < n; i++)
        keys[i] = UINT64_MAX;
    for (int i = 0; i < CHANGES; i++) {
        int item = (int)below((uint64_t)n);
        keys[item] = new_key(0);
        sy_sim_tree_set_later(&t, item, keys[item]);
        if (below(20) > 0)
            continue;
        sy_sim_tree_settle(&t);
        assert_int_equal(sy_sim_tree_first(&t), first_of(keys, n));
        assert_true(sy_sim_tree_first_key(&t) == keys[first_of(keys, n)]);
    }
    sy_sim_tree_finish(&t);
}

static void test_later_changes_count_when_settled(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 8, 9, 64, 65, 512, 513, 4097, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_later(sizes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_is_the_least_and_the_lowest_of_equals),
        cmocka_unit_test(test_later_changes_count_when_settled),
    };
    seed = seed_of_run(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

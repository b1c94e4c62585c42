/* Who is first, against looking at all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/sim/sim_agenda.h"
#include "tests/rigs/seed.h"

#define MOST    3000
#define CHANGES 6000

static uint64_t seed;
static uint64_t keys[MOST]; /* UINT64_MAX: it is not in it */

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

static int first_of(int n)
{
    int first = 0;
    for (int i = 1; i < n; i++)
        if (keys[i] < keys[first])
            first = i;
    return first;
}

/* Ends soon and late, many at one time, and idle for long. */
static uint64_t after(uint64_t now, int phase)
{
    static const uint64_t spans[] = {4, 3000, 50000000, 4000000000000ull};
    uint64_t span = spans[(phase + (below(8) == 0)) % 4];
    return now + below(span);
}

static void add(struct sy_sim_agenda *a, int n, uint64_t now, int phase)
{
    int item = (int)below((uint64_t)n);
    if (keys[item] != UINT64_MAX)
        return;
    keys[item] = after(now, phase);
    sy_sim_agenda_add(a, item, keys[item], now);
}

static void take(struct sy_sim_agenda *a, int n, uint64_t *now)
{
    int first = first_of(n);
    assert_true(a->first_key == keys[first]);
    assert_int_equal(a->first, keys[first] == UINT64_MAX ? -1 : first);
    if (keys[first] == UINT64_MAX)
        return;
    *now = keys[first];
    assert_int_equal(sy_sim_agenda_take(a), first);
    keys[first] = UINT64_MAX;
}

/* Phases in which it fills, and in which it empties. */
static void check_size(int n)
{
    struct sy_sim_agenda a;
    uint64_t now = 0;
    assert_int_equal(sy_sim_agenda_init(&a, n), SY_OK);
    for (int i = 0; i < n; i++)
        keys[i] = UINT64_MAX;
    assert_true(a.first_key == UINT64_MAX);
    for (int i = 0; i < CHANGES; i++) {
        int phase = i / 700;
        if (below(8) < (phase % 2 ? 1 : 5))
            add(&a, n, now, phase / 2 % 4);
        else
            take(&a, n, &now);
        if (below(64) == 0 && a.first_key != UINT64_MAX)
            now += (a.first_key - now) / 2; /* time goes on without it */
    }
    while (a.first_key != UINT64_MAX)
        take(&a, n, &now);
    assert_true(keys[first_of(n)] == UINT64_MAX);
    sy_sim_agenda_finish(&a);
}

static void test_the_first_is_the_least_and_the_lowest_of_equals(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 8, 33, 500, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_size(sizes[i]);
}

/* More of them in one bucket, or before the first one that was far, than are sorted by counting. */
static void test_many_at_one_time(void **state)
{
    (void)state;
    struct sy_sim_agenda a;
    uint64_t now = 0;
    assert_int_equal(sy_sim_agenda_init(&a, MOST), SY_OK);
    for (int i = 0; i < MOST; i++) {
        keys[i] = i == 0 ? 1ull << 60 : 1000000000 + 1000 * below(40);
        sy_sim_agenda_add(&a, i, keys[i], 0);
    }
    for (int i = 0; i < MOST; i++)
        take(&a, MOST, &now);
    assert_true(a.first_key == UINT64_MAX);
    sy_sim_agenda_finish(&a);
}

/* As in a simulation: each that ends begins anew. What comes after the bucket that begins is told, or most of it. */
static void test_what_comes_soon_is_told(void **state)
{
    (void)state;
    static uint64_t told_at[MOST];
    struct sy_sim_agenda a;
    uint64_t n_told = 0, n = 20 * MOST;
    assert_int_equal(sy_sim_agenda_init(&a, MOST), SY_OK);
    for (int i = 0; i < MOST; i++)
        sy_sim_agenda_add(&a, i, below(30000000), 0);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t now = a.first_key;
        int item = sy_sim_agenda_take(&a);
        n_told += told_at[item] + 200 > i && told_at[item] > 0;
        for (int j = 0; j < a.n_soon; j++)
            told_at[a.soon[j]] = i + 1;
        sy_sim_agenda_add(&a, item, now + 1000000 + below(30000000), now);
    }
    assert_in_range(n_told, n * 6 / 10, n);
    sy_sim_agenda_finish(&a);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_is_the_least_and_the_lowest_of_equals),
        cmocka_unit_test(test_many_at_one_time),
        cmocka_unit_test(test_what_comes_soon_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

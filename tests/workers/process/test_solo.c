/* Which layers one thread computes (workers/infer/solo.h), against all choices there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "loader/graph/engine.h"
#include "runtime/base/assert.h"
#include "tests/rigs/seed.h"
#include "workers/infer/solo.h"

enum { MOST = 10, ROUNDS = 500 };

static uint64_t cost(int n, const uint64_t *one, const uint64_t *team, uint64_t wake, unsigned solo)
{
    uint64_t sum = solo + 1 == 1u << n ? 0 : wake;
    for (int i = 0; i < n; i++)
        sum += solo >> i & 1 ? one[i] : team[i];
    return sum;
}

static unsigned choose(int n, const uint64_t *one, const uint64_t *team, uint64_t wake)
{
    unsigned char solo[MOST];
    unsigned chosen = 0;
    sy_solo_choose(n, one, team, wake, solo);
    for (int i = 0; i < n; i++)
        chosen |= (unsigned)solo[i] << i;
    return chosen;
}

static void no_choice_is_cheaper(void **state)
{
    uint64_t seed = seed_of_run(1), one[MOST], team[MOST];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int n = (int)seed_below(&seed, MOST) + 1;
        uint64_t wake = seed_below(&seed, 60), least = UINT64_MAX;
        for (int i = 0; i < n; i++) {
            one[i] = seed_below(&seed, 20);
            team[i] = seed_below(&seed, 20);
        }
        for (unsigned set = 0; set < 1u << n; set++)
            least = SY_MIN(least, cost(n, one, team, wake, set));
        assert_int_equal(cost(n, one, team, wake, choose(n, one, team, wake)), least);
    }
}

static void equal_times_wake_nobody(void **state)
{
    const uint64_t times[] = {5, 7, 9};
    (void)state;
    assert_int_equal(choose(3, times, times, 0), 7);
}

/* All layers gain, but less than waking costs: none is shared. One ns more, and all are. */
static void small_gains_must_pay_for_waking(void **state)
{
    const uint64_t one[] = {10, 10, 10}, team[] = {6, 6, 6};
    (void)state;
    assert_int_equal(choose(3, one, team, 12), 7);
    assert_int_equal(choose(3, one, team, 11), 0);
}

/* Bit k is for batches of 2^k to 2^(k+1) - 1; what has no bit is for all threads. */
static void masks_name_batch_sizes(void **state)
{
    const struct sy_layer layer = {.solo_batches = 1u << 3 | 1u << 31};
    (void)state;
    assert_false(sy_layer_is_solo(&layer, 7));
    assert_true(sy_layer_is_solo(&layer, 8));
    assert_true(sy_layer_is_solo(&layer, 15));
    assert_false(sy_layer_is_solo(&layer, 16));
    assert_true(sy_layer_is_solo(&layer, (int64_t)1 << 31));
    assert_false(sy_layer_is_solo(&layer, (int64_t)1 << 32));
    assert_false(sy_layer_is_solo(&layer, INT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_choice_is_cheaper),
                                       cmocka_unit_test(equal_times_wake_nobody),
                                       cmocka_unit_test(small_gains_must_pay_for_waking),
                                       cmocka_unit_test(masks_name_batch_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

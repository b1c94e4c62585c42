/* Which device a rank takes of a list, and how many are on one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/cli/train/rank_devices.h"

static void ranks_take_devices_in_turns(void **state)
{
    (void)state;
    static const char *const expected[] = {"cuda:0", "cuda:1", "cuda:5", "cuda:0", "cuda:1"};
    for (long rank = 0; rank < 5; rank++) {
        char devices[] = "cuda:0,cuda:1,cuda:5", one[] = "host";
        assert_string_equal(sy_rank_device(devices, rank), expected[rank]);
        assert_string_equal(sy_rank_device(one, rank), "host");
    }
}

static void as_many_are_on_one_as_share_it(void **state)
{
    (void)state;
    assert_int_equal(sy_rank_devices_most_on_one(NULL, 4), 4);
    assert_int_equal(sy_rank_devices_most_on_one("cuda:0", 4), 4);
    assert_int_equal(sy_rank_devices_most_on_one("cuda:0,cuda:1", 4), 2);
    assert_int_equal(sy_rank_devices_most_on_one("cuda:0,cuda:1", 5), 3);
    assert_int_equal(sy_rank_devices_most_on_one("cuda:0,cuda:1,cuda:2,cuda:3", 2), 1);
    assert_int_equal(sy_rank_devices_most_on_one("cuda:0,cuda:10", 2), 1);
    assert_int_equal(sy_rank_devices_most_on_one("cuda:0,cuda:1,cuda:0", 5), 3); /* named twice */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_take_devices_in_turns),
        cmocka_unit_test(as_many_are_on_one_as_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

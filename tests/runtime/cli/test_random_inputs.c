/* Random inputs: of the shape that a server describes, the same for a seed, and no larger than a server takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/cli/inputs/random_inputs.h"

static json_t *entry_of(const char *dtype)
{
    return json_pack("{s:s, s:[i,i], s:[s,i], s:[i,i]}", "dtype", dtype, "shape", -1, 1000, "dims",
                     "N", 1000, "usual_shape", 1, 1000);
}

static void floats_of_the_shape_that_was_asked_for(void **state)
{
    uint64_t seed = 5, again = 5;
    sy_client_tensor a = {.name = "x"}, b = {.name = "x"};
    json_t *entry = entry_of("FP32");

    (void)state;
    assert_int_equal(sy_cli_random_input(entry, 3, NULL, &seed, &a), SY_OK);
    assert_int_equal(sy_cli_random_input(entry, 3, NULL, &again, &b), SY_OK);
    assert_int_equal(a.rank, 2);
    assert_int_equal(a.shape[0], 3);
    assert_int_equal(a.shape[1], 1000);
    assert_int_equal(a.bytes, 12000);
    assert_memory_equal(a.data, b.data, a.bytes);
    for (int i = 0; i < 3000; i++)
        assert_true(((const float *)a.data)[i] >= -1 && ((const float *)a.data)[i] < 1);
    free((void *)a.data);
    free((void *)b.data);
    json_decref(entry);
}

static void more_than_a_message_is_refused_with_the_sizes(void **state)
{
    uint64_t seed = 5;
    sy_client_tensor x = {.name = "pixels"};
    json_t *entry = entry_of("INT64");

    (void)state;
    assert_int_equal(sy_cli_random_input(entry, 100000, NULL, &seed, &x), SY_ETOOBIG);
    assert_null(x.data);
    assert_non_null(strstr(sy_error_text(), "pixels"));
    assert_non_null(strstr(sy_error_text(), "800000000"));
    assert_non_null(strstr(sy_error_text(), "268435456"));
    json_decref(entry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_of_the_shape_that_was_asked_for),
        cmocka_unit_test(more_than_a_message_is_refused_with_the_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

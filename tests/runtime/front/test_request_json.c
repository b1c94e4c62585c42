/* The parameters of an inference request's JSON, as they come out of sy_request_json_parse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/request/tensor_json.h"

#define DEPTH 8

/* Ids of sequences have 64 bits, jansson's integers 63. Nothing else becomes a text. */
static void test_large_id(void **state)
{
    static const struct {
        const char *text, *as_text; /* NULL: not parsed */
    } cases[] = {
        {"{\"a\":{\"sequence_id\" : 18446744073709551615}}", "18446744073709551615"},
        {"{\"a\":{\"sequence_id\":9223372036854775808,\"b\":1}}", "9223372036854775808"},
        {"{\"a\":{\"sequence_id\":9223372036854775807}}", ""},
        {"{\"a\":{\"sequence_id\":\"9223372036854775808\"}}", "9223372036854775808"},
        {"{\"a\":{\"sequence_id\":9223372036854775808.5}}", ""},
        {"{\"a\":{\"sequence_id\":18446744073709551616}}", NULL},
        {"{\"a\":{\"sequence_id\":09223372036854775808}}", NULL},
        {"{\"a\":{\"sequence_id\":-9223372036854775809}}", NULL},
        {"{\"a\":{\"sequence_id\"9223372036854775808}}", NULL},
        {"{\"a\":{\"other\":9223372036854775808}}", NULL},
    };
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        struct sy_request_json request;
        int status = sy_request_json_parse(cases[i].text, strlen(cases[i].text), DEPTH, &request);

        assert_int_equal(status, cases[i].as_text ? SY_OK : SY_EARG);
        if (status < 0)
            continue;
        const json_t *id = json_object_get(json_object_get(request.root, "a"), "sequence_id");
        assert_string_equal(json_is_string(id) ? json_string_value(id) : "", cases[i].as_text);
        assert_true(json_is_string(id) || json_is_number(id));
        sy_request_json_finish(&request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_id)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

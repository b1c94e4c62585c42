/* Tensors as JSON, and requests without their numbers: held against jansson's trees of the same texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/front/request/tensor_json.h"
#include "tests/rigs/seed.h"

#define DEPTH 64

static uint64_t chance;
static const enum sy_dtype dtypes[] = {
#define X(name, value, bytes, wire, npy) SY_DTYPE_##name,
    SY_DTYPE_TABLE(X)
#undef X
};

static uint64_t below(uint64_t n)
{
    return seed_below(&chance, n);
}

static bool is_float(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_F32 || dtype == SY_DTYPE_F64 || dtype == SY_DTYPE_F16 ||
           dtype == SY_DTYPE_BF16;
}

/* ---- what a text should give ----------------------------------------------------------------------------- */

/* The bits of a finite number in this type; false: it has none. */
static bool float_bits(enum sy_dtype dtype, double value, char *to)
{
    float single = (float)value;
    uint16_t half = dtype == SY_DTYPE_F16 ? sy_float_to_half(single) : sy_float_to_bf16(single);

    if (dtype == SY_DTYPE_F64)
        memcpy(to, &value, 8);
    else if (dtype == SY_DTYPE_F32)
        memcpy(to, &single, 4);
    else
        memcpy(to, &half, 2);
    return dtype == SY_DTYPE_F64   ? isfinite(value)
           : dtype == SY_DTYPE_F32 ? isfinite(single)
           : dtype == SY_DTYPE_F16 ? isfinite(sy_half_to_float(half))
                                   : isfinite(sy_bf16_to_float(half));
}

static bool int_bits(enum sy_dtype dtype, int64_t value, char *to)
{
    size_t bytes = sy_dtype_bytes(dtype);
    bool is_unsigned = dtype == SY_DTYPE_U8 || dtype == SY_DTYPE_U16 || dtype == SY_DTYPE_U32;
    int64_t most =
        dtype == SY_DTYPE_BOOL ? 1 : (int64_t)(UINT64_MAX >> (65 - is_unsigned - 8 * bytes));
    int64_t least = dtype == SY_DTYPE_BOOL || is_unsigned ? 0 : -most - 1;

    memcpy(to, &value, bytes);
    return value >= least && value <= most;
}

/* The leaves of nested arrays; -1: something is no number of this type. */
static int flatten(const json_t *value, enum sy_dtype dtype, char *to, int at, int most)
{
    const json_t *element;
    size_t i;

    if (!json_is_array(value)) {
        char *leaf = to + (size_t)at * sy_dtype_bytes(dtype);

        if (at == most)
            return -1;
        if (dtype == SY_DTYPE_BOOL && json_is_boolean(value))
            return int_bits(dtype, json_is_true(value), leaf) ? at + 1 : -1;
        if (!json_is_number(value) || (!is_float(dtype) && !json_is_integer(value)))
            return -1;
        if (is_float(dtype))
            return float_bits(dtype, json_number_value(value), leaf) ? at + 1 : -1;
        return int_bits(dtype, json_integer_value(value), leaf) ? at + 1 : -1;
    }
    json_array_foreach(value, i, element)
    {
        at = flatten(element, dtype, to, at, most);
        if (at < 0)
            return -1;
    }
    return at;
}

/* ---- random texts ------------------------------------------------------------------------------------------ */

struct text {
    char at[1 << 14];
    size_t n;
};

static void add(struct text *text, const char *more)
{
    size_t n = strlen(more);

    if (text->n + n < sizeof(text->at)) {
        memcpy(text->at + text->n, more, n + 1);
        text->n += n;
    }
}

static void add_space(struct text *text)
{
    static const char *const spaces[] = {"", "", "", "", " ", "\n", "\t\r "};

    add(text, spaces[below(SY_ARRAY_LEN(spaces))]);
}

static void add_number(struct text *text)
{
    static const char *const odd[] = {
        "0", "-0", "-0.0", "1e5", "1E-3", "-1.5e+2", "255", "256", "-128", "-129", "true", "false",
        "1", "2147483647", "-2147483649", "9223372036854775807", "-9223372036854775808",
        "9223372036854775808", "65504", "65520", "3.4028235e38", "3.5e38", "1e308", "1e309",
        "4.9e-324", "1e-400", "0.1", "123456789012345678901234567890", "0.30000000000000004",
        "1.7976931348623157e308", "9007199254740993",
        "0.000000000000000000000000000000000000011754942106924411",
        /* no numbers */
        "01", "1.", ".5", "+1", "1e", "1e+", "-", "nan", "-inf", "Infinity", "0x1", "null", "\"1\"",
        "1 2", "tru"};
    char number[64];

    if (below(4) == 0)
        snprintf(number, sizeof number, "%s", odd[below(below(8) ? 33 : SY_ARRAY_LEN(odd))]);
    else if (below(2) == 0)
        snprintf(number, sizeof number, "%lld",
                 (long long)(int64_t)seed_next(&chance) >> below(64));
    else
        snprintf(number, sizeof number, "%.*g", (int)below(20),
                 ldexp((double)seed_next(&chance), (int)below(200) - 164));
    add(text, number);
}

static void add_array(struct text *text, int depth)
{
    int n = (int)below(5);

    add(text, "[");
    for (int i = 0; i < n; i++) {
        add_space(text);
        if (i > 0)
            add(text, ",");
        add_space(text);
        if (depth > 0 && below(3) == 0)
            add_array(text, depth - 1);
        else
            add_number(text);
        add_space(text);
    }
    add(text, "]");
}

static void mutate(struct text *text)
{
    static const char bytes[] = "[]{},:\"\\ 0123456789-+.eEtruefals\n\0\x80\xff";

    for (uint64_t i = below(3); i > 0 && text->n > 0; i--) {
        size_t at = below(text->n);

        if (below(3) == 0)
            memmove(text->at + at, text->at + at + 1, --text->n - at);
        else
            text->at[at] = bytes[below(sizeof bytes - 1)];
    }
}

static void check_tensor(const struct text *text, enum sy_dtype dtype)
{
    char wanted[8 * 1024], got[8 * 1024 + 8];
    struct sy_json_cut cut = {text->at, text->n};
    size_t flags = JSON_DECODE_ANY | (is_float(dtype) ? JSON_DECODE_INT_AS_REAL : 0);
    json_t *tree = json_loadb(text->at, text->n, flags, NULL);
    bool has_zero = memchr(text->at, '\0', text->n); /* jansson overlooks some */
    int n = json_is_array(tree) && !has_zero ? flatten(tree, dtype, wanted, 0, 1024) : -1;
    uint64_t bytes = n > 0 ? (uint64_t)n * sy_dtype_bytes(dtype) : 0;

    memset(got, 0x5a, sizeof got);
    int status = sy_tensor_from_json(&cut, "x", dtype, n < 0 ? 1024 : (uint64_t)n, got);
    if (n < 0 ? status == SY_OK : status < 0 || memcmp(wanted, got, bytes) != 0)
        fail_msg("%s: \"%.*s\": %d elements; %s", sy_dtype_wire_name(dtype), (int)text->n, text->at,
                 n, status < 0 ? sy_error_text() : "other bits");
    if (n >= 0) { /* nothing behind them, and no other number of elements */
        assert_int_equal((unsigned char)got[bytes], 0x5a);
        assert_int_equal(sy_tensor_from_json(&cut, "x", dtype, (uint64_t)n + 1, got), SY_EARG);
        if (n > 0)
            assert_int_equal(sy_tensor_from_json(&cut, "x", dtype, (uint64_t)n - 1, got), SY_EARG);
    }
    json_decref(tree);
}

static void test_random_tensors(void **state)
{
    static struct text text;

    (void)state;
    for (int i = 0; i < 60000; i++) {
        text.n = 0;
        add_array(&text, 4);
        if (below(4) == 0)
            mutate(&text);
        enum sy_dtype dtype = dtypes[below(SY_ARRAY_LEN(dtypes))];
        if (dtype != SY_DTYPE_U64) /* jansson has no whole numbers over 2^63 - 1 */
            check_tensor(&text, dtype);
    }
}

/* All 64 bits, of both signs, and one more than each end. */
static void test_widest(void **state)
{
    static const struct {
        enum sy_dtype dtype;
        const char *text;
        bool fits;
        uint64_t bits;
    } cases[] = {{SY_DTYPE_U64, "[18446744073709551615]", true, UINT64_MAX},
                 {SY_DTYPE_U64, "[9223372036854775808]", true, UINT64_C(1) << 63},
                 {SY_DTYPE_U64, "[9007199254740993]", true, 9007199254740993},
                 {SY_DTYPE_U64, "[18446744073709551616]", false, 0},
                 {SY_DTYPE_U64, "[-1]", false, 0},
                 {SY_DTYPE_U64, "[1.0]", false, 0},
                 {SY_DTYPE_I64, "[-9223372036854775808]", true, UINT64_C(1) << 63},
                 {SY_DTYPE_I64, "[9223372036854775808]", false, 0}};
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        struct sy_json_cut cut = {cases[i].text, strlen(cases[i].text)};
        struct sy_text text = {0};
        uint64_t got = 0;
        int status = sy_tensor_from_json(&cut, "x", cases[i].dtype, 1, &got);
        assert_int_equal(status, cases[i].fits ? SY_OK : SY_EARG);
        if (!cases[i].fits)
            continue;
        assert_true(got == cases[i].bits);
        assert_int_equal(sy_tensor_to_json(&text, "y", cases[i].dtype, &got, 1), SY_OK);
        assert_int_equal(text.used, cut.bytes);
        assert_memory_equal(text.at, cut.text, cut.bytes);
        sy_text_finish(&text);
    }
}

/* ---- there and back ------------------------------------------------------------------------------------------ */

static void random_values(enum sy_dtype dtype, char *to, int n)
{
    size_t bytes = sy_dtype_bytes(dtype);

    for (int i = 0; i < n;) {
        uint64_t bits = seed_next(&chance);
        char *at = to + (size_t)i * bytes;
        double value = 0;
        float single;
        char again[8];

        memcpy(at, &bits, bytes);
        if (dtype == SY_DTYPE_BOOL)
            *at &= 1;
        if (dtype == SY_DTYPE_F64)
            memcpy(&value, at, 8);
        if (dtype == SY_DTYPE_F32) {
            memcpy(&single, at, 4);
            value = (double)single;
        }
        if (dtype == SY_DTYPE_F16 || dtype == SY_DTYPE_BF16)
            value = (double)(dtype == SY_DTYPE_F16 ? sy_half_to_float((uint16_t)bits)
                                                   : sy_bf16_to_float((uint16_t)bits));
        i += !is_float(dtype) || (isfinite(value) && float_bits(dtype, value, again));
    }
}

static void test_round_trip(void **state)
{
    static char from[8 * 2000], to[8 * 2000];
    struct sy_text text = {0};

    (void)state;
    for (size_t d = 0; d < SY_ARRAY_LEN(dtypes); d++) {
        random_values(dtypes[d], from, 2000);
        text.used = 0;
        assert_int_equal(sy_tensor_to_json(&text, "y", dtypes[d], from, 2000), SY_OK);
        struct sy_json_cut cut = {text.at, text.used};
        if (sy_tensor_from_json(&cut, "y", dtypes[d], 2000, to) < 0)
            fail_msg("%s", sy_error_text());
        assert_memory_equal(from, to, 2000 * sy_dtype_bytes(dtypes[d]));
        /* it is JSON; jansson has no whole numbers over 2^63 - 1 */
        json_t *tree = json_loadb(text.at, text.used,
                                  dtypes[d] == SY_DTYPE_U64 ? JSON_DECODE_INT_AS_REAL : 0, NULL);
        assert_int_equal(json_array_size(tree), 2000);
        json_decref(tree);
    }
    sy_text_finish(&text);
}

static void test_no_number(void **state)
{
    const float values[] = {1, NAN}, infinite[] = {INFINITY};
    struct sy_text text = {0};

    (void)state;
    assert_int_equal(sy_tensor_to_json(&text, "y", SY_DTYPE_F32, values, 2), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "element 1"));
    assert_int_equal(sy_tensor_to_json(&text, "y", SY_DTYPE_F32, infinite, 1), SY_EARG);
    text.used = 0;
    assert_int_equal(sy_tensor_to_json(&text, "y", SY_DTYPE_F32, values, 0), SY_OK);
    assert_int_equal(text.used, 2);
    assert_memory_equal(text.at, "[]", 2);
    sy_text_finish(&text);
}

/* ---- errors say where ------------------------------------------------------------------------------------------ */

static void test_messages(void **state)
{
    static const struct {
        const char *text;
        enum sy_dtype dtype;
        const char *says;
    } cases[] = {
        {"[1, 2, 3]", SY_DTYPE_F32, "more than the 2"},
        {"[[1], []]", SY_DTYPE_F32, "has 1 elements; its shape says 2"},
        {"[1, 300]", SY_DTYPE_U8, "element 1 of \"data\" is out of the range of UINT8"},
        {"[1, 2.5]", SY_DTYPE_I32, "element 1 of \"data\" is not a whole number"},
        {"[1, \"a\"]", SY_DTYPE_F32, "element 1 of \"data\" is a string, no number of FP32"},
        {"[1, z]", SY_DTYPE_F32, "element 1 of \"data\" is not a number of FP32"},
        {"[1, null]", SY_DTYPE_F32, "element 1 of \"data\" is null, no number of FP32"},
        {"[1, {}]", SY_DTYPE_I8, "element 1 of \"data\" is an object, no number of INT8"},
        {"[false]", SY_DTYPE_F32, "element 0 of \"data\" is true or false, no number of FP32"},
        {"\"1, 2, 3\"", SY_DTYPE_F32, "is a string, no array of numbers"},
        {"[1, 1e39]", SY_DTYPE_F32, "out of the range of FP32"},
        {"[2, true]", SY_DTYPE_BOOL, "element 0 of \"data\" is out of the range of BOOL"},
        {"[1, 2", SY_DTYPE_F32, "no array of numbers"},
        {"1", SY_DTYPE_F32, "no array of numbers"},
        {"", SY_DTYPE_F32, "no array of numbers"},
        {"[1, 2]]", SY_DTYPE_F32, "no array of numbers"},
        {"{\"a\":1}", SY_DTYPE_F32, "is an object, no array of numbers"},
        {"[1,,2]", SY_DTYPE_F32, "is no"},
    };
    char to[64];

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        struct sy_json_cut cut = {cases[i].text, strlen(cases[i].text)};

        assert_int_equal(sy_tensor_from_json(&cut, "x", cases[i].dtype, 2, to), SY_EARG);
        if (!strstr(sy_error_text(), cases[i].says) || !strstr(sy_error_text(), "\"x\""))
            fail_msg("%s: %s", cases[i].text, sy_error_text());
    }
}

static void test_zero_bytes(void **state)
{
    float to[2];
    struct sy_json_cut cut = {"[1,\0"
                              "2]",
                              7};

    (void)state;
    assert_int_equal(sy_tensor_from_json(&cut, "x", SY_DTYPE_F32, 2, to), SY_EARG);
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

static void add_value(struct text *text, int depth);

static void add_object(struct text *text, int depth)
{
    static const char *const keys[] = {
        "data", "data", "name", "shape", "inputs", "id", "datas", "d\\u0061ta", "a\\\"data\\\":[1]",
        ""};
    int n = (int)below(5);

    add(text, "{");
    for (int i = 0; i < n; i++) {
        if (i > 0)
            add(text, ",");
        add_space(text);
        add(text, "\"");
        add(text, keys[below(SY_ARRAY_LEN(keys))]);
        add(text, "\"");
        add_space(text);
        add(text, ":");
        add_space(text);
        add_value(text, depth - 1);
        add_space(text);
    }
    add(text, "}");
}

static void add_value(struct text *text, int depth)
{
    static const char *const strings[] = {"\"data\"", "\"\\\"data\\\":[1,2]\"", "\"a\\\\\"",
                                          "\"}]\"", "\"\\u00e9\""};

    if (depth <= 0 || below(4) == 0) {
        add(text, below(2) ? strings[below(SY_ARRAY_LEN(strings))] : "17");
    } else if (below(3)) {
        add_object(text, depth);
    } else {
        add(text, "[");
        for (uint64_t i = 0, n = below(4); i < n; i++) {
            if (i > 0)
                add(text, ",");
            add_value(text, depth - 1);
        }
        add(text, "]");
    }
}

/* Puts what was cut out back into `tree`; false: one of the cuts is no JSON. */
static bool mend(json_t *tree, int depth, const struct sy_request_json *request)
{
    json_t *value;
    const char *key;
    size_t i;

    json_array_foreach(tree, i, value)
    {
        if (!mend(value, depth + 1, request))
            return false;
    }
    json_object_foreach(tree, key, value)
    {
        if (depth == 3 && strcmp(key, "data") == 0 && json_is_integer(value)) {
            const struct sy_json_cut *cut = &request->cuts[json_integer_value(value)];

            value =
                json_loadb(cut->text, cut->bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
            if (!value)
                return false;
            json_object_set_new(tree, "data", value);
        } else if (!mend(value, depth + 1, request)) {
            return false;
        }
    }
    return true;
}

/* jansson merges no keys either way: what "d\u0061ta" names stands where it stood. */
static bool names_data_otherwise(const struct text *text)
{
    return memmem(text->at, text->n, "\\u0061", 6) != NULL;
}

static void check_request(const struct text *text)
{
    struct sy_request_json request;
    json_t *tree = json_loadb(text->at, text->n, JSON_REJECT_DUPLICATES, NULL);
    int status = sy_request_json_parse(text->at, text->n, DEPTH, &request);

    if (status == SY_OK && !names_data_otherwise(text)) {
        bool mended = mend(request.root, 1, &request);

        if (json_is_object(tree) ? !mended || !json_equal(tree, request.root) : mended)
            fail_msg("other than jansson: %.*s", (int)text->n, text->at);
    } else if (status < 0 && json_is_object(tree)) {
        fail_msg("refused: %.*s: %s", (int)text->n, text->at, sy_error_text());
    }
    json_decref(tree);
    sy_request_json_finish(&request);
}

static void test_random_requests(void **state)
{
    static struct text text;

    (void)state;
    for (int i = 0; i < 60000; i++) {
        text.n = 0;
        add_space(&text);
        add_object(&text, 6);
        add_space(&text);
        if (below(3) == 0)
            mutate(&text);
        check_request(&text);
    }
}

static int parse(const char *text, struct sy_request_json *request)
{
    return sy_request_json_parse(text, strlen(text), DEPTH, request);
}

static void test_cut(void **state)
{
    struct sy_request_json request;
    const json_t *inputs;

    (void)state;
    assert_int_equal(
        parse("{\"id\":\"\\\"data\\\":[9]\",\"inputs\":[{\"data\" : [[1,2],\n[3]] ,\"name\":\"x\"},"
              "{\"name\":\"data\",\"data\":[]}]}",
              &request),
        SY_OK);
    assert_int_equal(request.n_cuts, 2);
    assert_int_equal(request.cuts[0].bytes, 12);
    assert_memory_equal(request.cuts[0].text, "[[1,2],\n[3]]", 12);
    assert_memory_equal(request.cuts[1].text, "[]", 2);
    inputs = json_object_get(request.root, "inputs");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(inputs, 1), "data")), 1);
    assert_string_equal(json_string_value(json_object_get(request.root, "id")), "\"data\":[9]");
    sy_request_json_finish(&request);
    sy_request_json_finish(&request);
}

static void test_refused_requests(void **state)
{
    static const char *const texts[] = {"",
                                        " ",
                                        "[",
                                        "[]",
                                        "1",
                                        "{",
                                        "{\"inputs\":[{\"data\":}]}",
                                        "{\"inputs\":[{\"data\":,\"a\":1}]}",
                                        "{\"inputs\":[{\"data\":[1}]}",
                                        "{\"inputs\":[{\"data\":[1],\"data\":[2]}]}",
                                        "{\"a\":\"b",
                                        "{\"inputs\":[{\"data\":\"\\",
                                        "{} {}",
                                        "\xff\xfe",
                                        "{\"inputs\":[{\"data\":[1] 2}]}"};
    struct sy_request_json request;

    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(texts); i++) {
        if (parse(texts[i], &request) != SY_EARG)
            fail_msg("taken: %s", texts[i]);
        assert_null(request.root);
    }
}

static int parse_repeated(const char *before, const char *each, int n, const char *after)
{
    struct sy_request_json request;
    struct sy_text text = {0};

    sy_text_add_string(&text, before);
    for (int i = 0; i < n; i++)
        sy_text_add_string(&text, each);
    sy_text_add_string(&text, after);
    int status = sy_request_json_parse(text.at, text.used, DEPTH, &request);
    sy_request_json_finish(&request);
    sy_text_finish(&text);
    return status;
}

static void test_bounds(void **state)
{
    (void)state;
    assert_int_equal(parse_repeated("{\"inputs\":[{\"data\":", "[", 1 << 20, ""), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "deeper"));
    assert_int_equal(parse_repeated("{\"a\":", "[", 1 << 20, ""), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "deeper"));
    assert_int_equal(parse_repeated("{\"a\":\"", "\\\"[", 1 << 10, "\"}"), SY_OK);
    assert_int_equal(parse_repeated("{\"a\":[1", ",1", 30000, "]}"), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "values"));
    assert_int_equal(parse_repeated("{\"a\":1", "          ", 1 << 18, "}"), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "besides its tensors"));
    assert_int_equal(parse_repeated("{\"inputs\":[{}", ",{\"data\":[1]}", 1024, "]}"), SY_OK);
    assert_int_equal(parse_repeated("{\"inputs\":[{}", ",{\"data\":[1]}", 1025, "]}"), SY_EARG);
    assert_int_equal(parse_repeated("{\"inputs\":[{\"data\":[1", ",1", 1 << 20, "]}]}"), SY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_tensors),   cmocka_unit_test(test_widest),

        cmocka_unit_test(test_round_trip),       cmocka_unit_test(test_no_number),
        cmocka_unit_test(test_messages),         cmocka_unit_test(test_zero_bytes),
        cmocka_unit_test(test_random_requests),  cmocka_unit_test(test_cut),
        cmocka_unit_test(test_refused_requests), cmocka_unit_test(test_bounds),
    };

    chance = seed_of_run(20261125);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

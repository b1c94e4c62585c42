/* Protobuf text format: what is written is read again, what is wrong is named with its place, and no bytes do harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/repository/pbtxt.h"
#include "tests/rigs/seed.h"

static uint64_t seed;

static struct sy_pbtxt *parse(const char *text)
{
    struct sy_pbtxt *tree = NULL;

    if (sy_pbtxt_parse(text, strlen(text), &tree) < 0)
        fail_msg("'%s': %s", text, sy_error_text());
    return tree;
}

static const struct sy_pbtxt *nth(const struct sy_pbtxt *message, int n)
{
    const struct sy_pbtxt *field = message->first;

    while (n-- > 0 && field)
        field = field->next;
    assert_non_null(field);
    return field;
}

static void refused(const char *text, const char *why)
{
    struct sy_pbtxt *tree = NULL;

    assert_int_equal(sy_pbtxt_parse(text, strlen(text), &tree), SY_EARG);
    assert_null(tree);
    if (!strstr(sy_error_text(), why))
        fail_msg("'%s': '%s' is not in '%s'", text, why, sy_error_text());
}

static void all_forms_are_read(void **state)
{
    (void)state;
    struct sy_pbtxt *tree = parse("# a comment\nname: \"a\" 'b'  # to the line's end\n"
                                  "dims: [ 1, -1 ], dims: 0x10; dims: 010\n"
                                  "input { name: \"x\" } input: < name: \"y\" >,"
                                  "list [ { a: 1 }, < a: 2 > ] kind: KIND_CPU empty: [] f: 1e-3f");
    int64_t number;
    const char *text;
    static const int64_t dims[] = {1, -1, 16, 8};

    assert_int_equal(sy_pbtxt_string(nth(tree, 0), &text), SY_OK);
    assert_string_equal(text, "ab");
    for (int i = 0; i < 4; i++) {
        assert_string_equal(nth(tree, 1 + i)->name, "dims");
        assert_int_equal(sy_pbtxt_integer(nth(tree, 1 + i), -1, 100, &number), SY_OK);
        assert_int_equal(number, dims[i]);
    }
    assert_string_equal(nth(nth(tree, 5), 0)->text, "x");
    assert_string_equal(nth(nth(tree, 6), 0)->text, "y");
    assert_string_equal(nth(nth(tree, 8), 0)->text, "2");
    assert_int_equal(nth(tree, 9)->kind, SY_PBTXT_NAME);
    assert_string_equal(nth(tree, 10)->text, "1e-3f");
    assert_null(nth(tree, 10)->next);
    assert_int_equal(nth(tree, 3)->line, 3);
    assert_int_equal(nth(tree, 3)->column, 18);
    sy_pbtxt_free(tree);
}

static void escapes_are_read(void **state)
{
    (void)state;
    struct sy_pbtxt *tree = parse("s: \"\\n\\t\\\\\\'\\\"\\x41\\102\\u00e9\\U0001F600\\0z\"");
    static const char expected[] = "\n\t\\'\"AB\xc3\xa9\xf0\x9f\x98\x80\0z";

    assert_int_equal(tree->first->bytes, sizeof expected - 1);
    assert_memory_equal(tree->first->text, expected, sizeof expected);
    const char *text;
    assert_int_equal(sy_pbtxt_string(tree->first, &text), SY_EARG); /* a zero byte */
    sy_pbtxt_free(tree);
}

static void values_of_other_types_are_refused(void **state)
{
    (void)state;
    struct sy_pbtxt *tree = parse("a: 5\nb: \"5\"\n  c: maybe d {} e: 99999999999999999999 f: inf "
                                  "g: true h: -nan");
    int64_t number;
    bool yes;

    assert_int_equal(sy_pbtxt_integer(nth(tree, 0), 6, 9, &number), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "line 1, column 1: field a: '5' is not a whole number "
                                            "from 6 to 9"));
    assert_int_equal(sy_pbtxt_integer(nth(tree, 1), 0, 9, &number), SY_EARG);
    assert_int_equal(sy_pbtxt_bool(nth(tree, 2), &yes), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "line 3, column 3"));
    assert_int_equal(sy_pbtxt_integer(nth(tree, 3), 0, 9, &number), SY_EARG);
    assert_int_equal(sy_pbtxt_integer(nth(tree, 4), 0, INT64_MAX, &number), SY_EARG);
    assert_int_equal(sy_pbtxt_bool(nth(tree, 6), &yes), SY_OK);
    assert_true(yes);
    sy_pbtxt_free(tree);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    char deep[200] = "";

    refused("name", "line 1, column 5: field name: ':' is missing");
    refused("a: 1\nb: [1 2]", "line 2, column 7: field b: a list goes on");
    refused("a: [1,]", "a value is missing");
    refused("a { b: 1", "'}' is missing at the end");
    refused("a < b: 1 }", "line 1, column 10");
    refused("a: \"x\ny\"", "without its closing quote");
    refused("a: \"\\q\"", "an invalid escape");
    refused("a: \"\\400\"", "an invalid escape");
    refused("a: \"\\ud800\"", "an invalid escape");
    refused("a: @", "no meaning");
    refused("a: -", "a number is missing");
    refused("a:", "its value is missing");
    refused("[x.y/z] { }", "extensions");
    refused("} ", "a field's name");
    for (int i = 0; i < 40; i++)
        strcat(deep, "a {");
    refused(deep, "too deep");
}

/* ---- written and read again ----------------------------------------------------------------------------------- */

static void put(char *to, size_t room, const char *text)
{
    size_t used = strlen(to);

    snprintf(to + used, room - used, "%s", text);
}

static void put_space(char *to, size_t room)
{
    static const char *const spaces[] = {" ", "\n", "\t", " # c: { \"\n", "  "};

    put(to, room, spaces[seed_below(&seed, 5)]);
}

/* A random message, and the same as "name=value(...)" in a form that has nothing to choose. */
static void make_message(char *text, char *plain, size_t room, int depth)
{
    int n = (int)seed_below(&seed, 5);

    for (int i = 0; i < n && strlen(text) < room / 2; i++) {
        char name[16], value[64];
        int kind = (int)seed_below(&seed, depth < 4 ? 4 : 3);

        snprintf(name, sizeof name, "f%d", (int)seed_below(&seed, 3));
        put(text, room, name);
        put_space(text, room);
        if (kind == 3) {
            bool angle = seed_below(&seed, 2);
            put(text, room, seed_below(&seed, 2) ? ":" : "");
            put(text, room, angle ? "<" : "{");
            put(plain, room, name);
            put(plain, room, "(");
            make_message(text, plain, room, depth + 1);
            put(text, room, angle ? ">" : "}");
            put(plain, room, ")");
        } else {
            long number = (long)seed_below(&seed, 1000) - 500;
            snprintf(value, sizeof value,
                     kind == 0   ? "%ld"
                     : kind == 1 ? "\"%ld\""
                                 : "W%ld",
                     kind == 2 ? labs(number) : number);
            put(text, room, ":");
            put_space(text, room);
            put(text, room, value);
            snprintf(value, sizeof value, "%s=%d:%s%ld;", name, kind, kind == 2 ? "W" : "",
                     kind == 2 ? labs(number) : number);
            put(plain, room, value);
        }
        put(text, room, seed_below(&seed, 3) == 0 ? "," : "");
        put_space(text, room);
    }
}

static void write_plain(const struct sy_pbtxt *message, char *plain, size_t room)
{
    char value[128];

    for (const struct sy_pbtxt *field = message->first; field; field = field->next) {
        if (field->kind == SY_PBTXT_MESSAGE) {
            put(plain, room, field->name);
            put(plain, room, "(");
            write_plain(field, plain, room);
            put(plain, room, ")");
            continue;
        }
        snprintf(value, sizeof value, "%s=%d:%s;", field->name,
                 field->kind == SY_PBTXT_NUMBER   ? 0
                 : field->kind == SY_PBTXT_STRING ? 1
                                                  : 2,
                 field->text);
        put(plain, room, value);
    }
}

static void random_messages_are_read_again(void **state)
{
    (void)state;
    static char text[1 << 16], expected[1 << 16], got[1 << 16];

    for (int i = 0; i < 3000; i++) {
        *text = *expected = *got = '\0';
        make_message(text, expected, sizeof text, 0);
        struct sy_pbtxt *tree = parse(text);
        write_plain(tree, got, sizeof got);
        assert_string_equal(got, expected);
        sy_pbtxt_free(tree);
    }
}

static void any_bytes_are_refused_or_read(void **state)
{
    (void)state;
    static const char alphabet[] = "ab:{}<>[],;-#\"'\\0x1.e \n";
    char text[64];

    for (int i = 0; i < 60000; i++) {
        size_t n = seed_below(&seed, sizeof text);
        struct sy_pbtxt *tree = NULL;

        for (size_t k = 0; k < n; k++)
            text[k] = i % 8 == 0 ? (char)seed_next(&seed)
                                 : alphabet[seed_below(&seed, sizeof alphabet - 1)];
        int status = sy_pbtxt_parse(text, n, &tree);
        assert_true(status == SY_OK ? tree != NULL : status == SY_EARG && !tree);
        sy_pbtxt_free(tree);
    }
}

static void json_makes_the_same_tree(void **state)
{
    (void)state;
    struct sy_pbtxt *tree;
    int64_t number;
    bool yes;
    json_t *json = json_loads("{\"a\": [1, \"2\"], \"b\": {\"c\": true}, \"d\": null}", 0, NULL);

    assert_int_equal(sy_pbtxt_from_json(json, &tree), SY_OK);
    json_decref(json);
    assert_int_equal(sy_pbtxt_integer(nth(tree, 1), 0, 9, &number), SY_OK); /* int64 in quotes */
    assert_int_equal(number, 2);
    assert_int_equal(sy_pbtxt_bool(nth(nth(tree, 2), 0), &yes), SY_OK);
    assert_null(nth(tree, 2)->next);
    sy_pbtxt_free(tree);
    json = json_loads("{\"a\": [[1]]}", 0, NULL);
    assert_int_equal(sy_pbtxt_from_json(json, &tree), SY_EARG);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_are_read),
        cmocka_unit_test(escapes_are_read),
        cmocka_unit_test(values_of_other_types_are_refused),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(random_messages_are_read_again),
        cmocka_unit_test(any_bytes_are_refused_or_read),
        cmocka_unit_test(json_makes_the_same_tree),
    };
    seed = seed_of_run(24);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

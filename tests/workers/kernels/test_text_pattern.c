/* Patterns (text_pattern.h): one that was given back is the same pattern again, also when many others were used between, and two in use are two. Those
 * of one class of characters (text_class.h) find what PCRE2 finds. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pcre2.h>

#include "runtime/base/status.h"
#include "tests/rigs/seed.h"
#include "workers/host/base/text_class.h"
#include "workers/host/base/text_pattern.h"

static uint64_t chance;

static bool finds(struct sy_pattern *p, const char *text)
{
    bool found;
    size_t start, end;
    assert_int_equal(sy_pattern_find(p, text, strlen(text), 0, &found, &start, &end), SY_OK);
    return found;
}

static void check(const char *pattern, bool whole, const char *text, bool found)
{
    struct sy_pattern *p;
    assert_int_equal(sy_pattern_create(pattern, whole, &p), SY_OK);
    assert_int_equal(finds(p, text), found);
    sy_pattern_destroy(p);
}

static void patterns_stay_themselves(void **state)
{
    char pattern[16], text[16];
    (void)state;
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 40; i++) {
            snprintf(pattern, sizeof pattern, "a%d+", i % 25);
            snprintf(text, sizeof text, "xa%d", i % 25);
            check(pattern, false, text, true);
            check(pattern, true, text, false);
            check(pattern, true, text + 1, true);
            check(pattern, false, "b", false);
        }
}

static void two_in_use_are_two(void **state)
{
    struct sy_pattern *a, *b;
    (void)state;
    assert_int_equal(sy_pattern_create("[a-z]+", false, &a), SY_OK);
    assert_int_equal(sy_pattern_create("[a-z]+", false, &b), SY_OK);
    assert_ptr_not_equal(a, b);
    sy_pattern_destroy(a);
    assert_true(finds(b, "abc"));
    sy_pattern_destroy(b);
    sy_pattern_destroy(NULL);
}

static void no_pattern_is_refused(void **state)
{
    struct sy_pattern *p;
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sy_pattern_create("(a", false, &p), SY_EUNSUPPORTED);
}

/* ---- one class of characters ------------------------------------------------------------------------------- */

static const char *draw_of(const char *const *list, size_t n)
{
    return list[seed_below(&chance, n)];
}
#define DRAW(list) draw_of((list), sizeof(list) / sizeof *(list))

static void draw_pattern(char *out, size_t room)
{
    static const char *const classes[] = {
        "[a-c]",  "[^a-c]",  "\\w",      "\\W", "\\s",    "\\S",      "\\d",        ".",
        "[\\w-]", "[^\\s,]", ",",        "a",   "[a-cé]", "[\\d_]",   "[a\\-c\\]]", "[^\\W\\d]",
        "\\.",    "[]a]",    "[\\S\\n]", "b|c", "[-a]",   "[a-b1-2]", "\\t",        "(a)"};
    static const char *const counts[] = {"",      "+",    "*",     "?",  "{2}", "{2,}",
                                         "{1,3}", "{,2}", "{0,2}", "+?", "++",  "{3,2}"};
    static const char *const edges[] = {"", "", "\\b", "\\B", "^"};
    static const char *const ends[] = {"", "", "\\b", "$"};
    const char *class = DRAW(classes);
    int n = (int)seed_below(&chance, 3), at = snprintf(out, room, "%s", DRAW(edges));
    for (int i = 0; i <= n; i++)
        at += snprintf(out + at, room - (size_t)at, "%s%s",
                       seed_below(&chance, 8) ? class : DRAW(classes), DRAW(counts));
    snprintf(out + at, room - (size_t)at, "%s", DRAW(ends));
}

static size_t draw_text(char *out)
{
    static const char *const parts[] = {"a", "b", "c",  "ab", "cab", "1", "_",  " ",
                                        ",", "-", "\n", "\t", "]",   "é", "日", "."};
    int n = (int)seed_below(&chance, 20);
    out[0] = 0;
    for (int i = 0; i < n; i++)
        strcat(out, DRAW(parts));
    return strlen(out);
}

static void same_matches(const char *pattern, const struct sy_text_class *c, pcre2_code *code,
                         pcre2_match_data *match, const char *text, size_t bytes)
{
    const PCRE2_SIZE *wanted = pcre2_get_ovector_pointer(match);
    for (size_t from = 0, start, end; from < bytes; from = end) {
        int n = pcre2_match(code, (PCRE2_SPTR)text, bytes, from, 0, match, NULL);
        bool found = sy_text_class_find(c, text, bytes, from, &start, &end);
        if (found != (n >= 0) || (found && (start != wanted[0] || end != wanted[1])))
            fail_msg("'%s' in '%s' from byte %zu: found %d (%d)", pattern, text, from, found, n);
        if (!found)
            break;
    }
    int n = pcre2_match(code, (PCRE2_SPTR)text, bytes, 0, PCRE2_ANCHORED | PCRE2_ENDANCHORED, match,
                        NULL);
    if (!c->word_starts && !c->word_ends && sy_text_class_is_all(c, text, bytes) != (n >= 0))
        fail_msg("'%s' as all of '%s': %d", pattern, text, n);
}

/* Patterns that are parsed are also PCRE2's, and match alike in random texts, from wherever the last match ended. */
static void classes_match_as_pcre2(void **state)
{
    int parsed = 0;
    (void)state;
    for (int round = 0; round < 4000; round++) {
        char pattern[160], text[160];
        struct sy_text_class c;
        int error;
        PCRE2_SIZE at;
        draw_pattern(pattern, sizeof pattern);
        if (!sy_text_class_parse(pattern, &c))
            continue;
        pcre2_code *code =
            pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &at, NULL);
        if (!code)
            fail_msg("'%s' is no pattern", pattern);
        pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, NULL);
        for (int i = 0; i < 20; i++)
            same_matches(pattern, &c, code, match, text, draw_text(text));
        pcre2_match_data_free(match);
        pcre2_code_free(code);
        parsed++;
    }
    assert_in_range(parsed, 100, 3000); /* some are, others are not */
}

static void usual_patterns_are_classes(void **state)
{
    static const char *const are[] = {
        "[a-zA-Z0-9_]+", "\\b\\w\\w+\\b", "\\w+", ".", "\\S+", "[^ \\t]+", " ", "\\s+", ",",
        "[a-z]{3,}"};
    static const char *const not [] = {"",   "a|b", "(a)",      "[a-z]+?",      "^a",     "a*",
                                       "ab", "é",   "\\b.+\\b", "[[:alpha:]]+", "a{1001}"};
    struct sy_text_class c;
    (void)state;
    for (size_t i = 0; i < sizeof are / sizeof *are; i++)
        assert_true(sy_text_class_parse(are[i], &c));
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        assert_false(sy_text_class_parse(not [i], &c));
}

/* As PCRE2 decides, whose patterns of other kinds refuse such texts too. */
static void texts_are_utf8(void **state)
{
    int error, good = 0;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR) "x", 1, PCRE2_UTF, &error, &at, NULL);
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, NULL);
    struct sy_pattern *p;
    (void)state;
    assert_int_equal(sy_pattern_create("x+", false, &p), SY_OK);
    for (int round = 0; round < 200000; round++) {
        static const unsigned char firsts[] = {0x7f, 0x80, 0xc1, 0xc2, 0xe0, 0xe1,
                                               0xed, 0xf0, 0xf1, 0xf4, 0xf5},
                                   others[] = {0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0};
        char text[5];
        size_t n = seed_below(&chance, 6), start, end;
        bool found;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(i == 0 ? firsts[seed_below(&chance, sizeof firsts)]
                                    : others[seed_below(&chance, sizeof others)]);
        bool is = pcre2_match(code, (PCRE2_SPTR)text, n, 0, 0, match, NULL) == PCRE2_ERROR_NOMATCH;
        assert_int_equal(sy_text_is_utf8(text, n), is);
        assert_int_equal(sy_pattern_find(p, text, n, 0, &found, &start, &end),
                         is ? SY_OK : SY_EARG);
        good += is;
    }
    assert_in_range(good, 1000, 199000);
    sy_pattern_destroy(p);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
}

int main(void)
{
    chance = seed_of_run(25);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_stay_themselves),   cmocka_unit_test(two_in_use_are_two),
        cmocka_unit_test(no_pattern_is_refused),      cmocka_unit_test(classes_match_as_pcre2),
        cmocka_unit_test(usual_patterns_are_classes), cmocka_unit_test(texts_are_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Strings: blocks as the protocol has them, the run's heap, tables of keys, case. Against plain loops. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "loader/graph/string_tensor.h"
#include "runtime/base/status.h"
#include "workers/host/base/key_map.h"
#include "workers/host/base/strings.h"
#include "workers/host/base/text_case.h"
#include "workers/host/base/text_pattern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/rigs/seed.h"

enum { MOST = 40, LONGEST = 20 };

static uint64_t chance;

struct strings {
    int n;
    uint32_t bytes[MOST];
    char text[MOST][LONGEST];
};

static void draw(struct strings *s)
{
    s->n = (int)seed_below(&chance, MOST);
    for (int i = 0; i < s->n; i++) {
        s->bytes[i] = (uint32_t)seed_below(&chance, LONGEST);
        for (uint32_t k = 0; k < s->bytes[i]; k++)
            s->text[i][k] = (char)seed_next(&chance);
    }
}

static uint64_t lay_out(const struct strings *s, char *block)
{
    char *at = block + SY_STRING_HEAD;
    for (int i = 0; i < s->n; i++) {
        memcpy(at, &s->bytes[i], sizeof s->bytes[i]);
        memcpy(at + sizeof s->bytes[i], s->text[i], s->bytes[i]);
        at += sizeof s->bytes[i] + s->bytes[i];
    }
    sy_string_block_end(block + SY_STRING_HEAD, (uint64_t)(at - block - SY_STRING_HEAD));
    return (uint64_t)(at - block);
}

static void blocks_through_the_heap(void **state)
{
    static char block[8192], out[8192], heap[8192];
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct strings s;
        struct sy_string entries[MOST];
        draw(&s);
        uint64_t bytes = lay_out(&s, block);
        assert_true(sy_string_block_is_valid(block, bytes, s.n));
        assert_true(s.n == 0 || !sy_string_block_is_valid(block, bytes - 1, s.n));
        sy_strings_use(heap, sizeof heap, true);
        assert_int_equal(sy_strings_take("x", block, bytes, s.n, entries), SY_OK);
        for (int i = 0; i < s.n; i++) {
            uint32_t n;
            const char *text = sy_strings_text(entries[i], &n);
            assert_int_equal(n, s.bytes[i]);
            assert_memory_equal(text, s.text[i], n);
        }
        assert_int_equal(sy_strings_give("y", entries, s.n, out, bytes + 16), SY_OK);
        assert_memory_equal(out, block, bytes);
        if (s.n > 0) /* one byte too few */
            assert_int_equal(sy_strings_give("y", entries, s.n, out, bytes - 1), SY_ETOOBIG);
        sy_strings_use(heap, SY_STRINGS_HEAD, true); /* no heap at all */
        int status = sy_strings_take("x", block, bytes, s.n, entries);
        assert_true(status == SY_OK || status == SY_ETOOBIG);
    }
}

/* Whatever stands in memory: nothing outside is read, and no more strings come than there are bytes for. */
static void any_bytes(void **state)
{
    static char heap[4096];
    (void)state;
    for (int round = 0; round < 20000; round++) {
        uint64_t room = seed_below(&chance, 200);
        unsigned char *block = malloc(room + 1);
        struct sy_string entries[MOST];
        for (uint64_t i = 0; i < room; i++)
            block[i] = seed_below(&chance, 3) ? 0 : (unsigned char)seed_next(&chance);
        if (room >= 8 && seed_below(&chance, 2))
            memset(block + 1, 0, 7);
        int64_t n = (int64_t)seed_below(&chance, MOST);
        bool valid = sy_string_block_is_valid(block, room, n);
        sy_strings_use(heap, sizeof heap, true);
        if (room >= SY_STRING_HEAD) {
            int status = sy_strings_take("x", block, room, n, entries);
            assert_true(!valid || status == SY_OK);
        }
        for (int i = 0; i < MOST; i++) { /* entries of anything */
            uint32_t bytes;
            struct sy_string e = {(uint32_t)seed_next(&chance), (uint32_t)seed_next(&chance)};
            sy_strings_text(e, &bytes);
            assert_true(bytes <= sizeof heap);
        }
        free(block);
    }
}

static void keys_are_found(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        struct strings s, others;
        struct sy_key_map *map;
        int32_t got;
        draw(&s);
        draw(&others);
        assert_int_equal(sy_key_map_create(s.n, &map), SY_OK);
        for (int i = 0; i < s.n; i++) {
            int32_t first = i;
            for (int k = i - 1; k >= 0; k--)
                if (s.bytes[k] == s.bytes[i] && memcmp(s.text[k], s.text[i], s.bytes[i]) == 0)
                    first = k;
            assert_int_equal(sy_key_map_add(map, s.text[i], s.bytes[i], i, &got), SY_OK);
            assert_int_equal(got, first);
        }
        for (int i = 0; i < others.n; i++) {
            int32_t wanted = -1;
            for (int k = s.n - 1; k >= 0; k--)
                if (s.bytes[k] == others.bytes[i] &&
                    memcmp(s.text[k], others.text[i], others.bytes[i]) == 0)
                    wanted = k;
            assert_int_equal(sy_key_map_find(map, others.text[i], others.bytes[i]), wanted);
        }
        sy_key_map_destroy(map);
    }
}

static void case_of_text(void **state)
{
    static const struct {
        const char *from, *lower, *upper;
    } cases[] = {{"", "", ""},
                 {"aBc 1", "abc 1", "ABC 1"},
                 {"\xc3\x89T\xc3\xa9", "\xc3\xa9t\xc3\xa9", "\xc3\x89T\xc3\x89"},
                 {"\xff"
                  "A\xc3",
                  "\xff"
                  "a\xc3",
                  "\xff"
                  "A\xc3"}};
    char to[64];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t n = (uint32_t)strlen(cases[i].from);
        uint64_t m = sy_text_case(SY_CASE_LOWER, cases[i].from, n, to);
        assert_int_equal(m, sy_text_case(SY_CASE_LOWER, cases[i].from, n, NULL));
        assert_int_equal(m, strlen(cases[i].lower));
        assert_memory_equal(to, cases[i].lower, m);
        assert_true(sy_text_is_lower_of(to, (uint32_t)m, cases[i].from, n));
        m = sy_text_case(SY_CASE_UPPER, cases[i].from, n, to);
        assert_int_equal(m, strlen(cases[i].upper));
        assert_memory_equal(to, cases[i].upper, m);
    }
}

/* A pattern that backtracks without end is ended. */
static void patterns(void **state)
{
    struct sy_pattern *p;
    bool found;
    size_t start, end;
    char text[64];
    (void)state;
    assert_int_equal(sy_pattern_create("(a|a)*[bd]", true, &p), SY_OK);
    memset(text, 'a', sizeof text);
    assert_int_equal(sy_pattern_find(p, text, sizeof text, 0, &found, &start, &end), SY_EARG);
    assert_int_equal(sy_pattern_find(p, "aab", 3, 0, &found, &start, &end), SY_OK);
    assert_true(found && start == 0 && end == 3);
    assert_int_equal(sy_pattern_find(p, "\xff", 1, 0, &found, &start, &end), SY_EARG);
    sy_pattern_destroy(p);
    assert_int_equal(sy_pattern_create("(", true, &p), SY_EUNSUPPORTED);
}

/* Many short matches have one budget, however each of them ends; a new run begins afresh, a run that goes on does not. */
static void steps_of_a_run(void **state)
{
    static _Alignas(16) char heap[256];
    struct sy_pattern *p;
    bool found;
    size_t start, end;
    (void)state;
    sy_strings_use(heap, sizeof heap, true);
    assert_int_equal(sy_pattern_create("a+b", false, &p), SY_OK);
    assert_int_equal(sy_strings_spend(SY_STRINGS_STEPS - 10), SY_OK);
    assert_int_equal(sy_pattern_find(p, "aab", 3, 0, &found, &start, &end), SY_OK);
    assert_true(found && start == 0 && end == 3);
    int n = 0;
    while (n < 100 && sy_pattern_find(p, "aab", 3, 0, &found, &start, &end) == SY_OK)
        n++;
    assert_true(n < 10);
    assert_non_null(strstr(sy_error_text(), "steps"));
    sy_strings_use(heap, sizeof heap, false);
    assert_int_equal(sy_pattern_find(p, "aab", 3, 0, &found, &start, &end), SY_EARG);
    sy_strings_use(heap, sizeof heap, true);
    assert_int_equal(sy_pattern_find(p, "aab", 3, 0, &found, &start, &end), SY_OK);
    sy_pattern_destroy(p);
}

/* The heap's size is one of those that a graph may have. */
static void sizes_beside_strings(void **state)
{
    struct sy_graph *g;
    struct sy_dim dim;
    int tensor;
    (void)state;
    assert_int_equal(sy_graph_create("g", &g), SY_OK);
    assert_int_equal(sy_graph_add_tensor(g, "t", SY_DTYPE_STRING, NULL, &tensor), SY_OK);
    for (int i = 0; i < SY_MAX_SYMBOLS; i++) {
        char name[16];
        snprintf(name, sizeof name, "size %d", i);
        assert_int_equal(sy_graph_add_symbol(g, name, 1, 0, &dim), SY_OK);
    }
    assert_int_equal(sy_graph_open_strings(g), SY_EUNSUPPORTED);
    free(g->symbols[--g->n_symbols].name);
    assert_int_equal(sy_graph_open_strings(g), SY_OK);
    assert_int_equal(sy_graph_string_size(g), SY_MAX_SYMBOLS - 1);
    sy_graph_free(g);
}

int main(void)
{
    chance = seed_of_run(20261125);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_through_the_heap),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(keys_are_found),
        cmocka_unit_test(case_of_text),
        cmocka_unit_test(patterns),
        cmocka_unit_test(steps_of_a_run),
        cmocka_unit_test(sizes_beside_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

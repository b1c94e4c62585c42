/* The pool against a map with one byte a page: a million random takes and gives, each checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "allocator/pool.h"
#include "runtime/base/status.h"
#include "tests/rigs/seed.h"

#define PAGES 512
#define PAGE  ((uint64_t)SY_POOL_ALIGN)

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

/* The model: which pages are taken, and the start and length of each block. */
struct model {
    uint8_t taken[PAGES];
    unsigned start[PAGES], length[PAGES];
    unsigned n;
};

/* Smallest hole of at least `want` pages by brute force: its start, or -1. The length goes to *hole. */
static int brute_best_fit(const struct model *m, unsigned want, bool from_top, unsigned *hole)
{
    int best = -1;
    for (unsigned i = 0; i < PAGES;) {
        unsigned n = 0;
        while (i + n < PAGES && !m->taken[i + n])
            n++;
        if (n >= want && (best < 0 || n < *hole || (n == *hole && from_top))) {
            best = (int)i;
            *hole = n;
        }
        i += n + 1;
    }
    return best;
}

static unsigned brute_largest(const struct model *m)
{
    unsigned largest = 0, n = 0;
    for (unsigned i = 0; i < PAGES; i++) {
        n = m->taken[i] ? 0 : n + 1;
        largest = n > largest ? n : largest;
    }
    return largest;
}

static void note_block(struct model *m, unsigned start, unsigned length)
{
    for (unsigned i = 0; i < length; i++)
        assert_false(m->taken[start + i]);
    memset(m->taken + start, 1, length);
    m->start[m->n] = start;
    m->length[m->n++] = length;
}

static void random_take(struct sy_pool *pool, struct model *m)
{
    unsigned want = 1 + (unsigned)below(below(8) ? 12 : 200), hole = 0;
    bool from_top = below(2);
    uint64_t bytes = want * PAGE - below(PAGE), offset = 0;
    int at = brute_best_fit(m, want, from_top, &hole);
    int status = sy_pool_take(pool, bytes, from_top, &offset);
    if (at < 0) {
        assert_int_equal(status, SY_ENOMEM_DEVICE);
        return;
    }
    assert_int_equal(status, SY_OK);
    assert_int_equal(offset, ((uint64_t)at + (from_top ? hole - want : 0)) * PAGE);
    note_block(m, (unsigned)(offset / PAGE), want);
}

static void random_take_at(struct sy_pool *pool, struct model *m)
{
    unsigned start = (unsigned)below(PAGES), length = 1 + (unsigned)below(6);
    bool free_there = start + length <= PAGES;
    for (unsigned i = start; free_there && i < start + length; i++)
        free_there = !m->taken[i];
    int status = sy_pool_take_at(pool, start * PAGE, length * PAGE);
    assert_int_equal(status == SY_OK, free_there);
    if (free_there)
        note_block(m, start, length);
}

static void random_give(struct sy_pool *pool, struct model *m)
{
    if (m->n == 0)
        return;
    unsigned i = (unsigned)below(m->n);
    sy_pool_give(pool, m->start[i] * PAGE);
    memset(m->taken + m->start[i], 0, m->length[i]);
    m->n--;
    m->start[i] = m->start[m->n];
    m->length[i] = m->length[m->n];
}

static void paint(void *ctx, uint64_t offset, uint64_t bytes, bool used)
{
    memset((uint8_t *)ctx + offset / PAGE, used, bytes / PAGE);
}

static void compare(const struct sy_pool *pool, const struct model *m)
{
    uint8_t seen[PAGES];
    unsigned n_free = 0;
    for (unsigned i = 0; i < PAGES; i++)
        n_free += !m->taken[i];
    memset(seen, 2, sizeof seen);
    sy_pool_walk(pool, paint, seen);
    assert_memory_equal(seen, m->taken, PAGES);
    assert_int_equal(sy_pool_free_bytes(pool), n_free * PAGE);
    assert_int_equal(sy_pool_largest_free_bytes(pool), brute_largest(m) * PAGE);
    assert_int_equal(sy_pool_n_blocks(pool), m->n);
}

static void test_a_million_operations(void **state)
{
    (void)state;
    static struct model m;
    struct sy_pool *pool, *copy;
    memset(&m, 0, sizeof m);
    assert_int_equal(sy_pool_new(PAGES * PAGE + 17, &pool), SY_OK);
    assert_int_equal(sy_pool_new(PAGES * PAGE, &copy), SY_OK);
    for (int i = 0; i < 1000000; i++) {
        unsigned kind = (unsigned)below(100);
        /* In turns the pool fills up and empties. */
        if (kind < (i / 1000 % 2 ? 60u : 40u))
            random_take(pool, &m);
        else if (kind < 95)
            random_give(pool, &m);
        else if (kind < 98)
            random_take_at(pool, &m);
        else if (kind == 98 && sy_pool_copy(copy, pool) == SY_OK)
            sy_pool_swap(copy, pool);
        if (i % 16 == 0)
            assert_true(sy_pool_is_valid(pool));
        if (i % 64 == 0)
            compare(pool, &m);
    }
    while (m.n > 0)
        random_give(pool, &m);
    assert_int_equal(sy_pool_largest_free_bytes(pool), PAGES * PAGE);
    sy_pool_free(pool);
    sy_pool_free(copy);
}

static void test_weights_grow_up_and_lanes_down(void **state)
{
    (void)state;
    struct sy_pool *pool;
    uint64_t low, high, next;
    assert_int_equal(sy_pool_new(100 * PAGE, &pool), SY_OK);
    assert_int_equal(sy_pool_take(pool, 1, false, &low), SY_OK);
    assert_int_equal(sy_pool_take(pool, 2 * PAGE, true, &high), SY_OK);
    assert_int_equal(sy_pool_take(pool, PAGE + 1, false, &next), SY_OK);
    assert_int_equal(low, 0);
    assert_int_equal(high, 98 * PAGE);
    assert_int_equal(next, PAGE);
    sy_pool_free(pool);
}

static void test_refusals_name_the_numbers(void **state)
{
    (void)state;
    struct sy_pool *pool;
    uint64_t offset;
    assert_int_equal(sy_pool_new(10 * PAGE, &pool), SY_OK);
    assert_int_equal(sy_pool_take(pool, 0, false, &offset), SY_EARG);
    assert_int_equal(sy_pool_take(pool, UINT64_MAX, false, &offset), SY_ENOMEM_DEVICE);
    assert_int_equal(sy_pool_take(pool, 45056, false, &offset), SY_ENOMEM_DEVICE);
    assert_non_null(strstr(sy_error_text(), "45056"));
    assert_non_null(strstr(sy_error_text(), "40960 free"));
    assert_int_equal(sy_pool_take_at(pool, 1, PAGE), SY_EARG);
    assert_int_equal(sy_pool_take_at(pool, 10 * PAGE, PAGE), SY_EARG);
    sy_pool_free(pool);
    sy_pool_free(NULL);
    assert_int_equal(sy_pool_new(PAGE - 1, &pool), SY_OK);
    assert_int_equal(sy_pool_capacity_bytes(pool), 0);
    assert_int_equal(sy_pool_take(pool, 1, false, &offset), SY_ENOMEM_DEVICE);
    assert_true(sy_pool_is_valid(pool));
    sy_pool_free(pool);
}

/* Every second block of 40,000 given back and taken again: only to show that it stays usable. */
static void test_tens_of_thousands_of_extents(void **state)
{
    (void)state;
    enum { N = 40000 };
    struct sy_pool *pool;
    uint64_t offset;
    assert_int_equal(sy_pool_new(N * PAGE, &pool), SY_OK);
    for (int i = 0; i < N; i++)
        assert_int_equal(sy_pool_take(pool, PAGE, false, &offset), SY_OK);
    for (uint64_t i = 0; i < N; i += 2)
        sy_pool_give(pool, i * PAGE);
    assert_int_equal(sy_pool_take(pool, 2 * PAGE, false, &offset), SY_ENOMEM_DEVICE);
    assert_true(sy_pool_is_valid(pool));
    for (uint64_t i = 0; i < N; i += 2) {
        assert_int_equal(sy_pool_take(pool, PAGE, false, &offset), SY_OK);
        assert_int_equal(offset, i * PAGE);
    }
    assert_int_equal(sy_pool_free_bytes(pool), 0);
    sy_pool_free(pool);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_million_operations),
        cmocka_unit_test(test_weights_grow_up_and_lanes_down),
        cmocka_unit_test(test_refusals_name_the_numbers),
        cmocka_unit_test(test_tens_of_thousands_of_extents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The book of a host image against a naive list, and what a kill or a stranger can leave in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "allocator/pool.h"
#include "allocator/residency.h"
#include "runtime/base/status.h"
#include "runtime/keeper/image_book.h"
#include "tests/rigs/seed.h"

#define PAGE        4096u
#define IMAGE_BYTES (256u * PAGE)

static void *memory(void)
{
    void *m = aligned_alloc(PAGE, sy_image_book_bytes());
    assert_non_null(m);
    memset(m, 0, sy_image_book_bytes());
    return m;
}

static struct sy_image_group group(uint64_t hash, uint64_t page, uint64_t n_pages)
{
    return (struct sy_image_group){.content_hash = hash,
                                   .offset = page * PAGE,
                                   .bytes = n_pages * PAGE,
                                   .first_layer = (uint32_t)hash % 7,
                                   .n_layers = 1 + (uint32_t)hash % 3};
}

/* Each page of the image has the hash of the group that lies there, as far as nothing overwrote a part of it. */
static void test_against_pages(void **state)
{
    (void)state;
    uint64_t seed = seed_of_run(7);
    static uint64_t first_of[256], hash_of[256]; /* hash 0: nothing */
    struct sy_image_book book, taken;
    void *m = memory();
    memset(hash_of, 0, sizeof hash_of);
    sy_image_book_start(&book, m, IMAGE_BYTES);
    for (int step = 0; step < 3000; step++) {
        uint64_t page = seed_next(&seed) % 250, n = 1 + seed_next(&seed) % 6;
        struct sy_image_group g = group(1 + seed_next(&seed) % 1000, page, n);
        bool only_drops = seed_next(&seed) % 3 == 0;
        for (uint64_t p = page; p < page + n; p++) { /* all of a group that is hit goes */
            uint64_t hash = hash_of[p], first = first_of[p];
            for (uint64_t q = 0; hash && q < 256; q++)
                if (hash_of[q] == hash && first_of[q] == first)
                    hash_of[q] = 0;
        }
        if (only_drops) {
            sy_image_book_drop(&book, g.offset, g.bytes);
        } else {
            sy_image_book_note(&book, &g);
            for (uint64_t p = page; p < page + n; p++) {
                hash_of[p] = g.content_hash;
                first_of[p] = page;
            }
        }
        int n_groups = 0;
        for (uint64_t p = 0; p < 256; p++)
            n_groups += hash_of[p] && first_of[p] == p;
        assert_int_equal(sy_image_book_n(&book), n_groups);
        assert_int_equal(sy_image_book_has(&book, &g), !only_drops);
        assert_int_equal(sy_image_book_take(&taken, m, IMAGE_BYTES), SY_OK);
        assert_int_equal(sy_image_book_n(&taken), n_groups);
    }
    free(m);
}

/* Whatever a byte of the book becomes: a book that is refused, or records that were noted, no other. */
static void test_strange_bytes(void **state)
{
    (void)state;
    uint64_t seed = seed_of_run(7);
    struct sy_image_book book;
    void *m = memory();
    for (int trial = 0; trial < 2000; trial++) {
        memset(m, 0, 2 * PAGE);
        sy_image_book_start(&book, m, IMAGE_BYTES);
        for (uint64_t i = 0; i < 8; i++) {
            struct sy_image_group g = group(100 + i, 8 * i, 8);
            sy_image_book_note(&book, &g);
        }
        size_t at = seed_next(&seed) % 2 ? PAGE + (size_t)seed_next(&seed) % 320
                                         : (size_t)seed_next(&seed) % 64;
        ((unsigned char *)m)[at] ^= (unsigned char)(1 + seed_next(&seed) % 255);
        if (sy_image_book_take(&book, m, IMAGE_BYTES) < 0)
            continue;
        int n_right = 0;
        for (uint64_t i = 0; i < 8; i++) {
            struct sy_image_group g = group(100 + i, 8 * i, 8);
            n_right += sy_image_book_has(&book, &g);
        }
        assert_int_equal(sy_image_book_n(&book), n_right);
        assert_in_range(n_right, 7, 8);
    }
    free(m);
}

static void test_other_books(void **state)
{
    (void)state;
    struct sy_image_book book;
    struct sy_image_link link = {{1, 2, 3, 4}}, known;
    void *m = memory();
    assert_int_equal(sy_image_book_take(&book, m, IMAGE_BYTES), SY_ECORRUPT);
    sy_image_book_start(&book, m, IMAGE_BYTES);
    assert_int_equal(sy_image_book_take(&book, m, IMAGE_BYTES + PAGE), SY_ECORRUPT);
    assert_non_null(strstr(sy_error_text(), "1048576"));
    assert_int_equal(sy_image_book_take(&book, m, IMAGE_BYTES), SY_OK);
    assert_false(sy_image_book_link(&book, "emulated", &known));
    sy_image_book_set_link(&book, "emulated", &link);
    assert_true(sy_image_book_link(&book, "emulated", &known));
    assert_memory_equal(&known, &link, sizeof link);
    assert_false(sy_image_book_link(&book, "emulated,link-gbps=4", &known));
    free(m);
}

static void test_full_book(void **state)
{
    (void)state;
    struct sy_image_book book;
    void *m = memory();
    uint64_t bytes = (SY_IMAGE_BOOK_RECORDS + 8ull) * PAGE;
    sy_image_book_start(&book, m, bytes);
    for (uint64_t i = 0; i < SY_IMAGE_BOOK_RECORDS; i++) { /* fast: each is the first free one */
        struct sy_image_group g = group(1 + i, i, 1);
        if (i < 40 || i > SY_IMAGE_BOOK_RECORDS - 40 || i % 64 == 0)
            sy_image_book_note(&book, &g);
    }
    int n = sy_image_book_n(&book);
    struct sy_image_group g = group(5, SY_IMAGE_BOOK_RECORDS + 1, 2);
    sy_image_book_note(&book, &g);
    assert_int_equal(sy_image_book_n(&book), n + 1);
    free(m);
}

/* ---- the residency's wishes ------------------------------------------------------------------------------------- */

static void test_wishes(void **state)
{
    (void)state;
    struct sy_pool *pool;
    struct sy_residency *r;
    struct sy_group_place places[2];
    const uint64_t bytes[2] = {PAGE, 2 * PAGE};
    assert_int_equal(sy_pool_new(16 * PAGE, &pool), SY_OK);
    assert_int_equal(sy_residency_new(pool, &r), SY_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sy_residency_add_model(r, i, 2, bytes), SY_OK);
    assert_int_equal(sy_residency_prefer(r, 0, 0, 9 * PAGE), SY_OK);
    assert_int_equal(sy_residency_prefer(r, 0, 1, 4 * PAGE), SY_OK);
    assert_int_equal(sy_residency_prefer(r, 1, 0, 5 * PAGE),
                     SY_OK); /* in the middle of the other's */
    assert_int_equal(sy_residency_prefer(r, 1, 1, 15 * PAGE), SY_OK); /* half of it lies outside */
    assert_int_equal(sy_residency_prefer(r, 1, 2, 0), SY_EARG);
    assert_int_equal(sy_residency_prefer(r, 1, 1, 1), SY_EARG);
    assert_int_equal(sy_residency_prefer(r, 2, 0, 0), SY_ENOTFOUND);
    assert_int_equal(sy_residency_place(r, 0, false, places), SY_OK);
    assert_int_equal(places[0].offset, 9 * PAGE);
    assert_int_equal(places[1].offset, 4 * PAGE);
    assert_false(places[0].resident);
    assert_int_equal(sy_residency_place(r, 1, false, places), SY_OK);
    assert_int_not_equal(places[0].offset, 5 * PAGE);
    sy_residency_unpin(r, 0, NULL);
    sy_residency_unpin(r, 1, NULL);
    sy_residency_free(r);
    sy_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_pages), cmocka_unit_test(test_strange_bytes),
        cmocka_unit_test(test_other_books),   cmocka_unit_test(test_full_book),
        cmocka_unit_test(test_wishes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

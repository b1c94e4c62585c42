/* The slab: offsets in range, aligned, disjoint, seen through the fd; bounded, and empty at the end. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "allocator/slab.h"
#include "runtime/base/status.h"
#include "tests/rigs/seed.h"

#define SLAB_BYTES (8u << 20)
#define SLOTS      200

struct tensor {
    uint64_t offset, bytes;
    uint8_t fill;
};

static void fill_tensor(struct sy_slab *slab, const struct tensor *t)
{
    memset(sy_slab_pointer(slab, t->offset), t->fill, t->bytes);
}

static void assert_filled(const uint8_t *view, const struct tensor *t)
{
    for (uint64_t i = 0; i < t->bytes; i += i + 61 < t->bytes ? 61 : 1)
        if (view[t->offset + i] != t->fill)
            fail_msg("byte %llu of a tensor of %llu was overwritten", (unsigned long long)i,
                     (unsigned long long)t->bytes);
}

static uint64_t random_size(unsigned *seed)
{
    unsigned kind = (unsigned)rand_r(seed) % 10;
    return 1 + (uint64_t)rand_r(seed) % (kind < 6 ? 2000 : kind < 9 ? 100000 : 1000000);
}

/* Random work of one thread: what it wrote is there until it releases it. */
static int churn(struct sy_slab *slab, const uint8_t *view, unsigned seed, int n_operations)
{
    struct tensor tensors[SLOTS] = {0};
    int n_taken = 0;
    for (int i = 0; i < n_operations; i++) {
        struct tensor *t = &tensors[rand_r(&seed) % SLOTS];
        if (t->bytes) {
            assert_filled(view, t);
            sy_slab_release(slab, t->offset);
            t->bytes = 0;
            continue;
        }
        uint64_t bytes = random_size(&seed);
        if (sy_slab_alloc(slab, bytes, &t->offset) != SY_OK)
            continue;
        *t = (struct tensor){t->offset, bytes, (uint8_t)rand_r(&seed)};
        if (t->offset % 64 || t->offset + bytes > sy_slab_size(slab))
            fail_msg("offset %llu", (unsigned long long)t->offset);
        fill_tensor(slab, t);
        n_taken++;
    }
    for (int i = 0; i < SLOTS; i++)
        if (tensors[i].bytes)
            sy_slab_release(slab, tensors[i].offset);
    return n_taken;
}

static const uint8_t *map_as_a_worker_would(struct sy_slab *slab)
{
    void *view = mmap(NULL, sy_slab_size(slab), PROT_READ, MAP_SHARED, sy_slab_fd(slab), 0);
    assert_true(view != MAP_FAILED);
    return view;
}

static void test_tensors_are_seen_through_the_fd(void **state)
{
    (void)state;
    struct sy_slab *slab;
    unsigned seed = (unsigned)seed_of_run(1);
    assert_int_equal(sy_slab_create(SLAB_BYTES, &slab), SY_OK);
    const uint8_t *view = map_as_a_worker_would(slab);
    assert_true(churn(slab, view, seed, 10000) > 2500);
    assert_int_equal(sy_slab_used_bytes(slab), 0);
    munmap((void *)(uintptr_t)view, SLAB_BYTES);
    sy_slab_destroy(slab);
    sy_slab_destroy(NULL);
}

static uint64_t fill_up(struct sy_slab *slab, uint64_t bytes, uint64_t *offsets, uint64_t max)
{
    uint64_t n = 0;
    while (n < max && sy_slab_alloc(slab, bytes, &offsets[n]) == SY_OK)
        n++;
    return n;
}

/* Full is an error, not a crash; what is released can be taken again, in whatever size. */
static void test_bounded_and_reusable(void **state)
{
    (void)state;
    struct sy_slab *slab;
    static uint64_t offsets[4096];
    uint64_t big;
    assert_int_equal(sy_slab_create(SLAB_BYTES, &slab), SY_OK);
    for (int round = 0; round < 20; round++) {
        uint64_t bytes = round % 2 ? 10000 : 100000;
        uint64_t n = fill_up(slab, bytes, offsets, 4096);
        assert_in_range(n * bytes, SLAB_BYTES / 2, SLAB_BYTES);
        assert_true(sy_slab_used_bytes(slab) >= n * bytes);
        for (uint64_t i = 0; i < n; i++)
            sy_slab_release(slab, offsets[i]);
        assert_int_equal(sy_slab_used_bytes(slab), 0);
        assert_int_equal(sy_slab_alloc(slab, SLAB_BYTES / 4 * 3, &big), SY_OK);
        sy_slab_release(slab, big);
    }
    assert_int_equal(sy_slab_alloc(slab, SLAB_BYTES + 1, &big), SY_ENOMEM_HOST);
    assert_non_null(strstr(sy_error_text(), "8388609"));
    assert_int_equal(sy_slab_alloc(slab, UINT64_MAX, &big), SY_ENOMEM_HOST);
    assert_int_equal(sy_slab_alloc(slab, 0, &big), SY_EARG);
    sy_slab_destroy(slab);
}

struct worker {
    struct sy_slab *slab;
    const uint8_t *view;
    unsigned seed;
    int n_taken;
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    w->n_taken = churn(w->slab, w->view, w->seed, 3000);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct worker workers[4];
    pthread_t threads[4];
    struct sy_slab *slab;
    assert_int_equal(sy_slab_create(4 * SLAB_BYTES, &slab), SY_OK);
    const uint8_t *view = map_as_a_worker_would(slab);
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = (struct worker){slab, view, i + 1, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(workers[i].n_taken > 500);
    }
    assert_int_equal(sy_slab_used_bytes(slab), 0);
    munmap((void *)(uintptr_t)view, 4 * SLAB_BYTES);
    sy_slab_destroy(slab);
}

static void test_created_and_destroyed_often(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct sy_slab *slab;
        uint64_t offset;
        assert_int_equal(sy_slab_create(1 << 20, &slab), SY_OK);
        assert_int_equal(sy_slab_alloc(slab, 1000, &offset), SY_OK);
        sy_slab_release(slab, offset);
        sy_slab_destroy(slab);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_are_seen_through_the_fd),
        cmocka_unit_test(test_bounded_and_reusable),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_created_and_destroyed_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Who has to leave the pool: evictions beside a naive model, on groups of one page: nothing fragments, so it is exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "allocator/residency.h"
#include "runtime/base/status.h"
#include "tests/rigs/seed.h"

#define PAGE   ((uint64_t)SY_POOL_ALIGN)
#define PAGES  256
#define MODELS 8
#define GROUPS 24

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

struct both {
    struct sy_pool *pool;
    struct sy_residency *residency;
};

static void open_both(struct both *w)
{
    assert_int_equal(sy_pool_new(PAGES * PAGE, &w->pool), SY_OK);
    assert_int_equal(sy_residency_new(w->pool, &w->residency), SY_OK);
}

static void close_both(struct both *w)
{
    sy_residency_free(w->residency);
    sy_pool_free(w->pool);
}

static void add_uniform(struct both *w, int m, int n_groups, uint64_t pages)
{
    uint64_t bytes[GROUPS];
    for (int g = 0; g < n_groups; g++)
        bytes[g] = pages * PAGE;
    assert_int_equal(sy_residency_add_model(w->residency, m, n_groups, bytes), SY_OK);
}

struct naive {
    int n_groups[MODELS], n_resident[MODELS], pins[MODELS];
    uint64_t used[MODELS], tick, n_evicted;
    int n_head[MODELS];
    double worth[MODELS];
};

static int naive_free(const struct naive *n)
{
    int sum = PAGES;
    for (int m = 0; m < MODELS; m++)
        sum -= n->n_resident[m];
    return sum;
}

/* R4, written as a key: tails by their last use, then heads by worth, then by their last use. */
static bool naive_before(const struct naive *n, int a, int b)
{
    bool tail_a = n->n_resident[a] > n->n_head[a], tail_b = n->n_resident[b] > n->n_head[b];
    double key_a[3] = {!tail_a, tail_a ? 0 : n->worth[a], (double)n->used[a]};
    double key_b[3] = {!tail_b, tail_b ? 0 : n->worth[b], (double)n->used[b]};
    for (int i = 0; i < 3; i++)
        if (key_a[i] < key_b[i] || key_a[i] > key_b[i])
            return key_a[i] < key_b[i];
    return false;
}

static int naive_victim(const struct naive *n, int self)
{
    int victim = -1;
    for (int m = 0; m < MODELS; m++)
        if (m != self && n->pins[m] == 0 && n->n_resident[m] > 0 &&
            (victim < 0 || naive_before(n, m, victim)))
            victim = m;
    return victim;
}

static int naive_place(struct naive *n, int m)
{
    struct naive before = *n;
    int pinned_others = 0;
    for (int o = 0; o < MODELS; o++)
        pinned_others += o != m && n->pins[o] > 0;
    while (naive_free(n) < n->n_groups[m] - n->n_resident[m]) {
        int victim = naive_victim(n, m);
        if (victim < 0) {
            *n = before;
            return n->n_groups[m] <= PAGES && pinned_others ? SY_EBUSY : SY_ENOMEM_DEVICE;
        }
        n->n_resident[victim]--;
        n->n_evicted++;
    }
    n->n_resident[m] = n->n_groups[m];
    n->pins[m]++;
    n->used[m] = ++n->tick;
    return SY_OK;
}

static void naive_set_head(struct naive *n, struct sy_residency *r, int m)
{
    n->n_head[m] = (int)below((uint64_t)n->n_groups[m] + 1);
    n->worth[m] = (double)below(5);
    assert_int_equal(sy_residency_set_head(r, m, n->n_head[m], n->worth[m]), SY_OK);
    assert_int_equal(sy_residency_n_head(r, m), n->n_head[m]);
}

/* Found by evicting, of all models but one, until that one's own tail would be next. */
static uint64_t naive_older_tails(struct naive n, int m)
{
    uint64_t sum = 0;
    n.pins[m] = 0;
    n.n_resident[m] = n.n_head[m] + 1; /* as if it had a tail now */
    for (int victim; (victim = naive_victim(&n, -1)) != m; sum += PAGE)
        n.n_resident[victim]--;
    return sum;
}

static void evictions_equal_naive(bool heads)
{
    struct both w;
    struct naive n = {.tick = 0};
    uint64_t bytes[PAGES + 20];
    struct sy_group_place places[PAGES + 20];
    open_both(&w);
    for (int i = 0; i < PAGES + 20; i++)
        bytes[i] = PAGE;
    for (int m = 0; m < MODELS; m++) {
        n.n_groups[m] = m == 0 ? PAGES + 1 : 20 + (int)below(90);
        assert_int_equal(sy_residency_add_model(w.residency, m, n.n_groups[m], bytes), SY_OK);
    }
    for (int i = 0; i < 20000; i++) {
        int m = (int)below(MODELS);
        if (heads && below(8) == 0)
            naive_set_head(&n, w.residency, (int)below(MODELS));
        if (n.pins[m] > 0 && below(2)) {
            sy_residency_unpin(w.residency, m, NULL);
            n.pins[m]--;
            n.used[m] = ++n.tick;
        } else {
            int resident = n.n_resident[m];
            int expected = naive_place(&n, m);
            assert_int_equal(sy_residency_place(w.residency, m, false, places), expected);
            for (int g = 0; expected == SY_OK && g < n.n_groups[m]; g++)
                assert_int_equal(places[g].resident, g < resident);
        }
        for (int o = 0; o < MODELS; o++)
            assert_int_equal(sy_residency_n_resident(w.residency, o), n.n_resident[o]);
        assert_int_equal(sy_residency_n_evicted(w.residency), n.n_evicted);
        assert_int_equal(sy_residency_older_tail_bytes(w.residency, m), naive_older_tails(n, m));
    }
    close_both(&w);
}

static void test_eviction_is_least_recently_used_tail_first(void **state)
{
    (void)state;
    evictions_equal_naive(false);
}

static void test_tails_go_before_heads_and_heads_by_worth(void **state)
{
    (void)state;
    evictions_equal_naive(true);
}

static void test_whole_models_go_at_once(void **state)
{
    (void)state;
    struct both w;
    struct sy_group_place places[GROUPS];
    open_both(&w);
    add_uniform(&w, 0, 4, 32);
    add_uniform(&w, 1, 4, 32);
    add_uniform(&w, 2, 1, 1);
    sy_residency_whole_models(w.residency, true);
    for (int m = 0; m < 3; m++) {
        assert_int_equal(sy_residency_place(w.residency, m, false, places), SY_OK);
        sy_residency_unpin(w.residency, m, NULL);
    }
    assert_int_equal(sy_residency_n_resident(w.residency, 0), 0);
    assert_int_equal(sy_residency_n_resident(w.residency, 1), 4);
    assert_int_equal(sy_residency_set_head(w.residency, 1, 5, 0), SY_EARG);
    assert_int_equal(sy_residency_set_head(w.residency, 1, 1, -1), SY_EARG);
    assert_int_equal(sy_residency_set_head(w.residency, 9, 0, 0), SY_ENOTFOUND);
    close_both(&w);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eviction_is_least_recently_used_tail_first),
        cmocka_unit_test(test_tails_go_before_heads_and_heads_by_worth),
        cmocka_unit_test(test_whole_models_go_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

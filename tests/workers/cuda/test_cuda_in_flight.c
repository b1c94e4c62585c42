/* What bounds the work on its way to a CUDA device, and which captured graph is launched: pure parts, against brute force and simulation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/graph_cache.h"
#include "runtime/device/cuda/inflight.h"
#include "runtime/device/cuda/queue_bound.h"
#include "tests/rigs/seed.h"

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

/* ---- the queue's bound ------------------------------------------------------------------------------------- */

/* Against a plain list of entries and marks, of which the device takes some from the front at any time. */
static void test_the_bound(void **state)
{
    (void)state;
    struct sy_queue_bound bound = {0};
    unsigned queued = 0, passed = 0, recorded[SY_QUEUE_MARKS]; /* queued up to each mark */
    unsigned first = 0, n = 0;
    for (int step = 0; step < 200000; step++) {
        if (sy_queue_bound_has_room(&bound, 1)) {
            int mark = sy_queue_bound_add(&bound);
            queued++;
            if (mark >= 0 && below(20) == 0) {
                sy_queue_bound_unmark(&bound);
            } else if (mark >= 0) {
                assert_true(mark < (int)SY_QUEUE_MARKS && n < SY_QUEUE_MARKS);
                recorded[(first + n++) % SY_QUEUE_MARKS] = queued;
            }
        } else {
            assert_true(bound.n == SY_QUEUE_ENTRIES);
            assert_true(sy_queue_bound_has_room(&bound, 0));
        }
        while (below(3) == 0 && passed < queued) { /* the device works */
            unsigned n_done = (unsigned)below(40);
            passed += SY_MIN(n_done, queued - passed);
        }
        assert_true(bound.n >= queued - passed); /* never counts too few */
        if (sy_queue_bound_oldest(&bound) >= 0 && recorded[first] <= passed) {
            sy_queue_bound_pass(&bound);
            first = (first + 1) % SY_QUEUE_MARKS;
            n--;
        }
        assert_true((sy_queue_bound_oldest(&bound) >= 0) == (n > 0));
        if (below(5000) == 0) {
            sy_queue_bound_clear(&bound);
            passed = queued;
            n = 0;
            first = bound.oldest;
        }
    }
    for (unsigned i = 0; i < SY_QUEUE_ENTRIES && sy_queue_bound_has_room(&bound, 1); i++)
        sy_queue_bound_add(&bound);
    assert_false(sy_queue_bound_has_room(&bound, 1));
}

/* ---- work in flight ---------------------------------------------------------------------------------------- */

/* A device that runs one layer after the other in virtual time, and a host that launches as it is told. */
struct device_model {
    uint64_t now, busy_until;
    uint64_t event_at[SY_INFLIGHT_EVENTS], last_event_at;
    uint64_t idle_ns, launched, worst_ns;
    uint64_t wake_ns; /* until a host that slept for an event goes on */
};

static void do_what_it_says(struct sy_inflight *f, struct device_model *d,
                            enum sy_inflight_answer answer, unsigned slot)
{
    if (answer == SY_INFLIGHT_RECORD) {
        d->event_at[slot] = d->busy_until;
        sy_inflight_recorded(f, slot);
    } else if (answer == SY_INFLIGHT_WAIT) {
        if (d->now < d->event_at[slot])
            d->now = d->event_at[slot] + d->wake_ns;
        sy_inflight_passed(f, slot, d->event_at[slot] - d->last_event_at);
        d->last_event_at = d->event_at[slot];
    }
}

static void launch(struct sy_inflight *f, struct device_model *d, uint64_t estimate_ns,
                   uint64_t real_ns)
{
    unsigned slot;
    if (d->busy_until < d->now) {
        d->idle_ns += d->launched ? d->now - d->busy_until : 0;
        d->busy_until = d->now;
        d->last_event_at = SY_MAX(d->last_event_at, d->now);
    }
    d->busy_until += real_ns;
    d->launched++;
    if (sy_inflight_launched(f, estimate_ns, &slot)) {
        d->event_at[slot] = d->busy_until;
        sy_inflight_recorded(f, slot);
    }
    d->now += 3000; /* what a launch takes */
}

/* How far the host may be ahead: the limit, as far as the estimates are right, and one layer. */
static void run_training(double real_over_estimate, uint64_t limit_ns, uint64_t min_layer_ns,
                         uint64_t max_layer_ns, double *out_idle)
{
    struct sy_inflight f;
    struct device_model d = {.wake_ns = 60000};
    unsigned slot = 0;
    uint64_t last_layer = 0, total = 0;
    sy_inflight_init(&f, limit_ns);
    for (int layer = 0; layer < 20000; layer++) {
        uint64_t estimate = min_layer_ns + below(max_layer_ns),
                 real = (uint64_t)((double)estimate * real_over_estimate);
        enum sy_inflight_answer answer;
        int turns = 0;
        while ((answer = sy_inflight_next(&f, false, &slot)) != SY_INFLIGHT_LAUNCH) {
            assert_true(answer != SY_INFLIGHT_STOP && turns++ < 20);
            do_what_it_says(&f, &d, answer, slot);
        }
        launch(&f, &d, estimate, real);
        total += real;
        last_layer = SY_MAX(last_layer, real);
        if (layer > 200) /* once the estimates are corrected (F3) */
            d.worst_ns = SY_MAX(d.worst_ns, d.busy_until > d.now ? d.busy_until - d.now : 0);
    }
    assert_true(d.worst_ns <= (uint64_t)(1.15 * (double)limit_ns) + last_layer);
    *out_idle = (double)d.idle_ns / (double)total;
}

static void test_the_limit_holds(void **state)
{
    (void)state;
    double idle;
    run_training(1, 500000, 1000, 60000, &idle);
    assert_true(idle < 0.01); /* and the device is kept busy */
    run_training(3, 500000, 1000, 60000, &idle);
    assert_true(idle < 0.01);
    run_training(1, 500000, 300000, 200000, &idle); /* long layers too: two at a time */
    assert_true(idle < 0.01);
    run_training(0.3, 500000, 1000, 60000, &idle);
    run_training(1, 100000, 1000, 400000, &idle);
    run_training(1, 500000, 1000, 2000, &idle);
}

static void test_a_preemption_ends(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct sy_inflight f;
        struct device_model d = {0};
        unsigned slot = 0;
        enum sy_inflight_answer answer;
        sy_inflight_init(&f, 0);
        assert_int_equal(f.limit_ns, SY_INFLIGHT_LIMIT_NS);
        for (uint64_t n = below(60); n > 0; n--) {
            uint64_t layer = below(3) ? 1000 + below(100000) : 0;
            while ((answer = sy_inflight_next(&f, false, &slot)) != SY_INFLIGHT_LAUNCH)
                do_what_it_says(&f, &d, answer, slot);
            assert_true(sy_inflight_ns(&f) < f.limit_ns); /* F1 */
            launch(&f, &d, layer, 1000 + below(100000));
        }
        unsigned waits = 0, steps = 0;
        while ((answer = sy_inflight_next(&f, true, &slot)) != SY_INFLIGHT_STOP) {
            assert_true(answer != SY_INFLIGHT_LAUNCH && steps++ < 30);
            waits += answer == SY_INFLIGHT_WAIT;
            do_what_it_says(&f, &d, answer, slot);
        }
        assert_true(waits <= SY_INFLIGHT_EVENTS + 1); /* F2 */
        assert_int_equal(sy_inflight_ns(&f), 0);
        assert_true(d.now >= d.busy_until);
    }
}

/* ---- graphs ------------------------------------------------------------------------------------------------ */

#define MODEL_KEYS 40

struct model_entry {
    struct sy_graph_key key;
    uint64_t placement, used;
    int graph; /* 0: none */
};

static int alive[100000], n_released;

static void release_graph(void *ctx, void *graph)
{
    (void)ctx;
    int i = (int)(intptr_t)graph;
    assert_int_equal(alive[i], 1);
    alive[i] = 0;
    n_released++;
}

static int count_alive(int n)
{
    int sum = 0;
    for (int i = 1; i <= n; i++)
        sum += alive[i];
    return sum;
}

/* Large enough that nothing is evicted but a key's fifth placement: what is answered is known from what was seen. */
static void test_graphs_are_captured_when_seen_again(void **state)
{
    (void)state;
    struct sy_graph_cache *cache;
    struct sy_graph_key key = {.model = 3, .batch = 8, .group = 2},
                        other = {.model = 3, .batch = 1, .group = 2};
    void *graph = NULL;
    memset(alive, 0, sizeof alive);
    n_released = 0;
    assert_int_equal(sy_graph_cache_create(0, release_graph, NULL, &cache), SY_EARG);
    assert_int_equal(sy_graph_cache_create(64, release_graph, NULL, &cache), SY_OK);
    assert_int_equal(sy_graph_cache_look(cache, key, 77, &graph), SY_GRAPH_EAGER);
    assert_int_equal(sy_graph_cache_look(cache, key, 77, &graph), SY_GRAPH_CAPTURE);
    alive[1] = 1;
    sy_graph_cache_put(cache, key, 77, (void *)(intptr_t)1);
    assert_int_equal(sy_graph_cache_look(cache, key, 77, &graph), SY_GRAPH_LAUNCH);
    assert_ptr_equal(graph, (void *)(intptr_t)1);
    assert_int_equal(sy_graph_cache_look(cache, other, 77, &graph), SY_GRAPH_EAGER);
    /* Placed elsewhere: again; placed back: still there. */
    assert_int_equal(sy_graph_cache_look(cache, key, 78, &graph), SY_GRAPH_EAGER);
    assert_int_equal(sy_graph_cache_look(cache, key, 77, &graph), SY_GRAPH_LAUNCH);
    /* A placement of its own each time is never captured, and pushes the old ones out. */
    for (uint64_t p = 100; p < 200; p++)
        assert_int_equal(sy_graph_cache_look(cache, key, p, &graph), SY_GRAPH_EAGER);
    assert_int_equal(n_released, 1);
    assert_int_equal(sy_graph_cache_counts(cache).entries, SY_GRAPH_PLACEMENTS + 1);
    /* Refused: never again, wherever it lies. Forgotten: from the start. */
    sy_graph_cache_refuse(cache, key);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(sy_graph_cache_look(cache, key, 199, &graph), SY_GRAPH_EAGER);
        assert_int_equal(sy_graph_cache_look(cache, key, 300 + (uint64_t)i, &graph),
                         SY_GRAPH_EAGER);
    }
    sy_graph_cache_forget(cache, 3);
    assert_int_equal(sy_graph_cache_counts(cache).entries, 0);
    assert_int_equal(sy_graph_cache_look(cache, key, 199, &graph), SY_GRAPH_EAGER);
    assert_int_equal(sy_graph_cache_look(cache, key, 199, &graph), SY_GRAPH_CAPTURE);
    sy_graph_cache_destroy(cache);
    sy_graph_cache_destroy(NULL);
}

/* Random use of a small cache: no graph is lost, none is released twice, none is launched for another place. */
static void test_graphs_are_never_mixed_up(void **state)
{
    (void)state;
    struct sy_graph_cache *cache;
    static struct model_entry of_graph[100000];
    int n_graphs = 0;
    memset(alive, 0, sizeof alive);
    assert_int_equal(sy_graph_cache_create(24, release_graph, NULL, &cache), SY_OK);
    for (int step = 0; step < 90000; step++) {
        struct sy_graph_key key = {
            .model = below(4), .batch = 1 + (uint32_t)below(2), .group = (uint32_t)below(5)};
        uint64_t placement = below(3) ? 1 : below(6);
        void *graph = NULL;
        switch (sy_graph_cache_look(cache, key, placement, &graph)) {
        case SY_GRAPH_LAUNCH: {
            struct model_entry *e = &of_graph[(intptr_t)graph];
            assert_int_equal(alive[(intptr_t)graph], 1);
            assert_true(e->key.model == key.model && e->key.batch == key.batch &&
                        e->key.group == key.group);
            assert_int_equal(e->placement, placement);
            break;
        }
        case SY_GRAPH_CAPTURE:
            of_graph[++n_graphs] = (struct model_entry){.key = key, .placement = placement};
            alive[n_graphs] = 1;
            sy_graph_cache_put(cache, key, placement, (void *)(intptr_t)n_graphs);
            break;
        case SY_GRAPH_EAGER:
            break;
        }
        if (below(3000) == 0)
            sy_graph_cache_forget(cache, below(4));
        if (below(3000) == 0)
            sy_graph_cache_refuse(cache, key);
        if (step % 1000 == 0)
            assert_int_equal(sy_graph_cache_counts(cache).graphs, count_alive(n_graphs));
        assert_true(sy_graph_cache_counts(cache).entries <= 24);
    }
    assert_true(n_graphs > 1000);
    sy_graph_cache_destroy(cache);
    assert_int_equal(count_alive(n_graphs), 0);
}

static void test_placements_differ(void **state)
{
    (void)state;
    uint64_t offsets[3] = {0, 4096, 8192}, swapped[3] = {4096, 0, 8192};
    uint64_t hash = sy_graph_placement(offsets, 3);
    assert_int_equal(hash, sy_graph_placement(offsets, 3));
    assert_true(hash != sy_graph_placement(swapped, 3));
    assert_true(hash != sy_graph_placement(offsets, 2));
    offsets[2] += 256;
    assert_true(hash != sy_graph_placement(offsets, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_bound),
        cmocka_unit_test(test_the_limit_holds),
        cmocka_unit_test(test_a_preemption_ends),
        cmocka_unit_test(test_graphs_are_captured_when_seen_again),
        cmocka_unit_test(test_graphs_are_never_mixed_up),
        cmocka_unit_test(test_placements_differ),
    };
    seed = seed_of_run(20261121);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Many devices: consistent hashing with bounded load against a walk, what each router is for, and thousands of them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/sim/sim.h"
#include "runtime/sim/sim_ring.h"
#include "runtime/sim/sim_trace.h"
#include "tests/rigs/seed.h"

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

/* ---- the ring ---- */

#define N_DEVICES 24
#define N_MODELS  9

static void set_load(struct sy_sim_ring *r, uint64_t *load, int device, uint64_t to)
{
    while (load[device] != to) {
        uint64_t before = load[device];
        load[device] += load[device] < to ? 1 : (uint64_t)-1;
        sy_sim_ring_set_load(r, device, before, load[device]);
    }
}

/* In which order a model prefers devices: each in turn is filled until all are. */
static void preferences(struct sy_sim_ring *r, uint64_t *load, int model, int *order)
{
    for (int i = 0; i < N_DEVICES; i++) {
        order[i] = sy_sim_ring_find(r, model, 0.5);
        assert_int_equal(load[order[i]], 0);
        set_load(r, load, order[i], 1);
    }
    assert_int_equal(sy_sim_ring_find(r, model, 0.5), order[0]); /* nobody is below */
    for (int i = 0; i < N_DEVICES; i++)
        set_load(r, load, i, 0);
}

static void test_the_ring_gives_the_first_below_the_bound(void **state)
{
    (void)state;
    struct sy_sim_ring *r;
    uint64_t load[N_DEVICES] = {0};
    int order[N_MODELS][N_DEVICES], differ = 0;
    assert_int_equal(sy_sim_ring_create(N_DEVICES, N_MODELS, &r), SY_OK);
    for (int m = 0; m < N_MODELS; m++) {
        preferences(r, load, m, order[m]);
        differ += m > 0 && order[m][0] != order[0][0];
    }
    assert_true(differ > 0);
    for (int round = 0; round < 20000; round++) {
        set_load(r, load, (int)below(N_DEVICES), below(round % 2 ? 5 : 90));
        int m = (int)below(N_MODELS), expected = order[m][0];
        double bound = (double)(1 + below(round % 2 ? 60 : 900)) / 10;
        for (int i = N_DEVICES - 1; i >= 0; i--)
            if ((double)load[order[m][i]] < bound)
                expected = order[m][i];
        assert_int_equal(sy_sim_ring_find(r, m, bound), expected);
    }
    sy_sim_ring_destroy(r);
}

/* ---- what routers do ---- */

static struct sy_sim_report *run(enum sy_sim_router router, int n_devices, const char *requests,
                                 const struct sy_sim_fault *faults, int n_faults)
{
    struct sy_sim_config c;
    struct sy_sim_generator g;
    struct sy_sim_model *models;
    struct sy_sim_request *made;
    struct sy_sim_input in = {.faults = faults, .n_faults = n_faults};
    struct sy_sim_report *r = sy_sim_report_new();
    sy_sim_config_default(&c);
    c.device.n_devices = n_devices;
    c.router = router;
    c.device.pool_bytes = 4000000000ull;
    c.check = true;
    c.max_queue = 1000;
    assert_non_null(r);
    assert_int_equal(sy_sim_generator_parse(requests, &g), SY_OK);
    assert_int_equal(sy_sim_example_models(in.n_models = g.n_models, &models), SY_OK);
    assert_int_equal(sy_sim_generate(&g, 5, &made, &in.n_requests), SY_OK);
    in.models = models;
    in.requests = made;
    if (sy_sim_run(&c, &in, r) < 0)
        fail_msg("%s: %s", sy_sim_router_name(router), sy_error_text());
    assert_int_equal(r->n_done + r->n_refused + r->n_failed, in.n_requests);
    free(models);
    free(made);
    return r;
}

/* 60 models of 260 MB on average, on 8 devices of 4 GB: no device holds them all. */
static void test_each_router_is_good_for_something(void **state)
{
    (void)state;
    static const char load[] = "rate=200,seconds=60,models=60,zipf=0.8";
    double p99[SY_SIM_N_ROUTERS], mean[SY_SIM_N_ROUTERS];
    uint64_t swaps[SY_SIM_N_ROUTERS];
    for (int i = 0; i < SY_SIM_N_ROUTERS; i++) {
        struct sy_sim_report *r = run((enum sy_sim_router)i, 8, load, NULL, 0);
        swaps[i] = r->n_swaps;
        p99[i] = sy_sim_quantile_ms(&r->latency[0], 0.99);
        mean[i] = sy_sim_mean_ms(&r->latency[0]);
        print_message("%-9s mean %.1f ms, p99 %.1f ms, %llu swaps\n",
                      sy_sim_router_name((enum sy_sim_router)i), mean[i], p99[i],
                      (unsigned long long)swaps[i]);
        sy_sim_report_free(r);
    }
    assert_true(swaps[SY_SIM_HASH] * 2 < swaps[SY_SIM_RANDOM]);
    assert_true(swaps[SY_SIM_RESIDENCY] * 2 < swaps[SY_SIM_RANDOM]);
    assert_true(p99[SY_SIM_LEAST] < p99[SY_SIM_RANDOM]);
    assert_true(p99[SY_SIM_RESIDENCY] < p99[SY_SIM_RANDOM]);
    assert_true(mean[SY_SIM_LEAST] < mean[SY_SIM_RANDOM]);
}

/* One model is all that is asked for: its place on the ring alone would be flooded. */
static void test_hashing_spreads_a_popular_model(void **state)
{
    (void)state;
    struct sy_sim_report *r = run(SY_SIM_HASH, 16, "rate=250,seconds=40,models=1", NULL, 0);
    assert_int_equal(r->n_refused, 0);
    assert_true(sy_sim_quantile_ms(&r->latency[0], 0.99) < 300);
    assert_true(r->n_swaps <= 16);
    sy_sim_report_free(r);
}

static void test_many_devices_with_faults(void **state)
{
    enum { MANY = 2500 }; /* so many that the simulator asks for their memory ahead */
    (void)state;
    struct sy_sim_fault faults[100];
    for (int i = 0; i < 100; i++)
        faults[i] = (struct sy_sim_fault){(uint64_t)i * SY_NS_PER_MS * 20, SY_NS_PER_S,
                                          (int)below(MANY), (enum sy_sim_fault_kind)below(2), 0.2};
    for (int i = 0; i < SY_SIM_N_ROUTERS; i++) {
        struct sy_sim_report *r = run((enum sy_sim_router)i, MANY,
                                      "rate=20000,seconds=2,models=30,classes=2", faults, 100);
        assert_int_equal(r->n_faults, 100);
        sy_sim_report_free(r);
    }
}

static void test_routers_have_names(void **state)
{
    (void)state;
    enum sy_sim_router router;
    for (int i = 0; i < SY_SIM_N_ROUTERS; i++) {
        assert_int_equal(sy_sim_router_parse(sy_sim_router_name((enum sy_sim_router)i), &router),
                         SY_OK);
        assert_int_equal(router, i);
    }
    assert_int_equal(sy_sim_router_parse("best", &router), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "residency"));
}

/* What each request met with, in the order of time. */
struct told {
    uint64_t n, hash;
};

static void note_answer(void *ctx, const struct sy_sim_request *r, int device,
                        enum sy_sim_outcome outcome, sy_ns latency_ns, sy_ns served_ns)
{
    struct told *told = ctx;
    const uint64_t all[] = {(uint64_t)r->at_ns, (uint64_t)r->model, (uint64_t)device,
                            (uint64_t)outcome,  latency_ns,         served_ns};
    told->n++;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        told->hash = (told->hash ^ all[i]) * 0x100000001b3ull;
}

static struct told hash_many(const char *requests, int max_queue, const struct sy_sim_fault *fault)
{
    struct told told = {0, 1};
    struct sy_sim_config c;
    struct sy_sim_generator g;
    struct sy_sim_model *models;
    struct sy_sim_request *r;
    struct sy_sim_input in = {.faults = fault, .n_faults = fault ? 1 : 0};
    struct sy_sim_report *report = sy_sim_report_new();
    sy_sim_config_default(&c);
    c.device.n_devices = 2500;
    c.router = SY_SIM_HASH;
    c.noise = 0.4;
    c.max_queue = max_queue;
    c.check = true;
    c.answered = note_answer;
    c.answered_ctx = &told;
    assert_int_equal(sy_sim_generator_parse(requests, &g), SY_OK);
    assert_int_equal(sy_sim_example_models(in.n_models = g.n_models, &models), SY_OK);
    assert_int_equal(sy_sim_generate(&g, 3, &r, &in.n_requests), SY_OK);
    in.models = models;
    in.requests = r;
    assert_int_equal(sy_sim_run(&c, &in, report), SY_OK);
    assert_true(report->n_done + report->n_refused == in.n_requests && told.n == in.n_requests);
    sy_sim_report_free(report);
    free(models);
    free(r);
    return told;
}

/* Where a fault may interrupt, queues hear of each request at once; of many devices without, only of those that do not come alone. A fault after
 * everything else is nobody's: nothing may be other. */
static void test_many_queues_that_hear_later_answer_the_same(void **state)
{
    (void)state;
    static const struct sy_sim_fault never = {3600 * SY_NS_PER_S, 1, 0, SY_SIM_LINK_SLOWS, 0.5};
    static const char *const requests[] = {
        "rate=50000,seconds=0.5,zipf=1,models=20,deadline-ms=100",
        "rate=200000,seconds=0.15,zipf=1.5,models=20,deadline-ms=300,classes=3",
    };
    for (int i = 0; i < 4; i++) {
        struct told with = hash_many(requests[i / 2], i % 2 ? 2 : 128, &never);
        struct told without = hash_many(requests[i / 2], i % 2 ? 2 : 128, NULL);
        assert_true(with.hash == without.hash);
    }
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_ring_gives_the_first_below_the_bound),
        cmocka_unit_test(test_each_router_is_good_for_something),
        cmocka_unit_test(test_hashing_spreads_a_popular_model),
        cmocka_unit_test(test_many_devices_with_faults),
        cmocka_unit_test(test_many_queues_that_hear_later_answer_the_same),
        cmocka_unit_test(test_routers_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

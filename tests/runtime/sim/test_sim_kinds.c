/* Simulated devices that are not alike: each is as its own description says, gets what fits it, and routers know which is sooner done. */
#include <math.h>
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
#include "runtime/sim/sim.h"
#include "runtime/sim/sim_trace.h"
#include "tests/rigs/seed.h"
#include "tests/rigs/sim_rig.h"

#define MS SY_NS_PER_MS
#define S  SY_NS_PER_S
#define GB 1000000000ull

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

static struct sy_sim_kind kind(const char *name, int n, uint64_t pool_bytes, double link_gbps,
                               double speed)
{
    struct sy_sim_kind k = {
        .n_devices = n, .pool_bytes = pool_bytes, .link_gbps = link_gbps, .speed = speed};
    snprintf(k.name, sizeof k.name, "%s", name);
    return k;
}

static struct sy_sim_config of_kinds(const struct sy_sim_kind *kinds, int n,
                                     enum sy_sim_router router)
{
    struct sy_sim_config c = sim_plain();
    c.kinds = kinds;
    c.n_kinds = n;
    c.router = router;
    return c;
}

/* Where each request went, and how long it took. */
struct went {
    const struct sy_sim_request *first;
    int device[4096];
    enum sy_sim_outcome outcome[4096];
    sy_ns latency_ns[4096];
};

static void note(void *ctx, const struct sy_sim_request *request, int device,
                 enum sy_sim_outcome outcome, sy_ns latency_ns, sy_ns served_ns)
{
    struct went *w = ctx;
    (void)served_ns;
    w->device[request - w->first] = device;
    w->outcome[request - w->first] = outcome;
    w->latency_ns[request - w->first] = latency_ns;
}

static struct sy_sim_report *run(struct sy_sim_config *c, const struct sy_sim_input *in,
                                 struct went *w)
{
    assert_true(in->n_requests <= SY_ARRAY_LEN(w->device));
    w->first = in->requests;
    c->answered = note;
    c->answered_ctx = w;
    return sim_run(c, in);
}

static char *json_of(const struct sy_sim_report *r)
{
    char *text, *devices;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    assert_int_equal(sy_sim_print_json(r, 0, to), SY_OK);
    fclose(to);
    devices = strstr(text, "\"devices\"");
    assert_non_null(devices);
    *devices = '\0'; /* it is the last, and names the kinds */
    return text;
}

/* One kind of five is as two of two and three that are described alike, to the bit, where routers do not look at one kind after the other. */
static void test_the_same_description_twice_is_one(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        struct sy_sim_model *models;
        struct sy_sim_request *requests;
        struct sy_sim_job jobs[6];
        struct sy_sim_generator g;
        struct sy_sim_input in = {.n_models = 5, .jobs = jobs, .n_jobs = (int)below(2) * 6};
        struct sy_sim_config c = sim_plain();
        c.router = below(2) ? SY_SIM_HASH : SY_SIM_RANDOM;
        c.policy.kind = (enum sy_policy_kind)below(SY_POLICY_N_KINDS);
        c.noise = 0.1;
        c.seed = below(1000);
        c.device = kind("one", 5, 2 * GB, 10, 1);
        assert_int_equal(sy_sim_generator_parse("rate=60,seconds=4,models=5,deadline-ms=80", &g),
                         SY_OK);
        assert_int_equal(sy_sim_example_models(5, &models), SY_OK);
        assert_int_equal(sy_sim_generate(&g, below(1000), &requests, &in.n_requests), SY_OK);
        for (int i = 0; i < 6; i++)
            jobs[i] = sim_job("j", (sy_ns)i * S / 3, 1 + below(20), (1 + below(50)) * MS);
        in.models = models;
        in.requests = requests;
        struct sy_sim_report *one = sim_run(&c, &in);
        struct sy_sim_kind kinds[] = {c.device, c.device};
        kinds[0].n_devices = 2;
        kinds[1].n_devices = 3;
        c.kinds = kinds;
        c.n_kinds = 2;
        struct sy_sim_report *two = sim_run(&c, &in);
        char *a = json_of(one), *b = json_of(two);
        assert_string_equal(a, b);
        for (int use = 0; use < SY_SIM_N_USES; use++)
            assert_int_equal(two->kinds[0].used_ns[use] + two->kinds[1].used_ns[use],
                             one->kinds[0].used_ns[use]);
        free(a);
        free(b);
        sy_sim_report_free(one);
        sy_sim_report_free(two);
        free(models);
        free(requests);
    }
}

/* 100 ms of 1 GB in 10 groups: M1 by each one's link, pool and speed, or what a profile says. */
static void test_each_kind_takes_what_it_takes(void **state)
{
    (void)state;
    struct sy_sim_model model = {.name = "m", .bytes = GB, .compute_ns = 100 * MS, .n_groups = 10};
    struct sy_sim_kind kinds[] = {kind("as stated", 1, 4 * GB, 10, 1),
                                  kind("fast", 1, 4 * GB, 10, 4), kind("near", 1, 4 * GB, 100, 1),
                                  kind("unified", 1, 4 * GB, 1, 0.5),
                                  kind("profiled", 1, 4 * GB, 10, 4)};
    kinds[3].unified = true;
    struct sy_sim_profile profile = {0, 4, 60 * MS, 20};
    static const double cold_ms[] = {110, 102.5, 101, 200, 103},
                        warm_ms[] = {100, 25, 100, 200, 60};
    struct sy_sim_request requests[] = {{0, 0, 0, 0, 0}, {S, 0, 0, 0, 0}};
    struct sy_sim_input in = {.models = &model,
                              .n_models = 1,
                              .requests = requests,
                              .n_requests = 2,
                              .profiles = &profile,
                              .n_profiles = 1};
    for (int i = 0; i < 5; i++) {
        struct went w;
        struct sy_sim_config c = of_kinds(&kinds[i], 1, SY_SIM_RANDOM);
        struct sy_sim_profile own = profile;
        own.kind = 0;
        in.profiles = &own;
        in.n_profiles = i == 4;
        sy_sim_report_free(run(&c, &in, &w));
        assert_true(fabs((double)w.latency_ns[0] / 1e6 - cold_ms[i]) < 1e-3);
        assert_true(fabs((double)w.latency_ns[1] / 1e6 - warm_ms[i]) < 1e-3);
    }
    /* All of them at once: each request takes what it takes where it went. */
    struct sy_sim_request many[200];
    struct went w;
    bool seen[5] = {false};
    for (int i = 0; i < 200; i++)
        many[i] = (struct sy_sim_request){.at_ns = (sy_ns)i * S};
    in = (struct sy_sim_input){.models = &model,
                               .n_models = 1,
                               .requests = many,
                               .n_requests = 200,
                               .profiles = &profile,
                               .n_profiles = 1};
    struct sy_sim_config c = of_kinds(kinds, 5, SY_SIM_RANDOM);
    sy_sim_report_free(run(&c, &in, &w));
    for (int i = 0; i < 200; i++) {
        int at = w.device[i];
        double ms = (double)w.latency_ns[i] / 1e6;
        assert_true(fabs(ms - (seen[at] ? warm_ms : cold_ms)[at]) < 1e-3);
        seen[at] = true;
    }
    assert_true(seen[0] && seen[1] && seen[2] && seen[3] && seen[4]);
}

/* R6: whatever the device is. */
static void test_observed_times_hold_everywhere(void **state)
{
    (void)state;
    struct sy_sim_model model = {.name = "m", .bytes = 1, .compute_ns = 10 * MS, .n_groups = 1};
    struct sy_sim_request request = {.served_ns = 50 * MS};
    struct sy_sim_input in = {
        .models = &model, .n_models = 1, .requests = &request, .n_requests = 1};
    struct sy_sim_kind fast = kind("fast", 1, GB, 10, 5);
    struct sy_sim_config c = of_kinds(&fast, 1, SY_SIM_RANDOM);
    struct went w;
    sy_sim_report_free(run(&c, &in, &w));
    assert_int_equal(w.latency_ns[0], 50 * MS);
}

/* A large model in pieces that only the last kind's pool holds, beside one that is welcome everywhere. */
static void test_models_go_where_they_fit(void **state)
{
    (void)state;
    enum { N = 600 };
    struct sy_sim_model models[] = {
        {.name = "large", .bytes = 6 * GB, .compute_ns = 5 * MS, .n_groups = 2},
        {.name = "small", .bytes = GB, .compute_ns = 5 * MS, .n_groups = 2}};
    struct sy_sim_kind kinds[] = {kind("a", 3, 2 * GB, 100, 1), kind("b", 2, 2 * GB, 100, 3),
                                  kind("c", 2, 8 * GB, 100, 1)};
    struct sy_sim_request requests[N];
    for (int i = 0; i < N; i++)
        requests[i] = (struct sy_sim_request){.at_ns = (sy_ns)i * 20 * MS, .model = i % 2};
    struct sy_sim_input in = {
        .models = models, .n_models = 2, .requests = requests, .n_requests = N};
    for (int router = 0; router < SY_SIM_N_ROUTERS; router++) {
        struct sy_sim_config c = of_kinds(kinds, 3, (enum sy_sim_router)router);
        struct went w;
        int n_on[2][7] = {{0}};
        struct sy_sim_report *r = run(&c, &in, &w);
        assert_int_equal(r->n_done, N);
        sy_sim_report_free(r);
        for (int i = 0; i < N; i++)
            n_on[i % 2][w.device[i]]++;
        for (int device = 0; device < 5; device++)
            assert_int_equal(n_on[0][device], 0);
        if (router == SY_SIM_RANDOM)
            for (int device = 0; device < 7; device++) {
                assert_true(n_on[1][device] > N / 2 / 7 / 2);
                assert_true(device < 5 || n_on[0][device] > N / 2 / 3);
            }
    }
    struct sy_sim_config c = of_kinds(kinds, 2, SY_SIM_LEAST);
    struct sy_sim_report *r = sy_sim_report_new();
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "model large: 6000000000 bytes in 2 groups"));
    sy_sim_report_free(r);
}

/* Nobody waits: the one that is done first gets it, although it is neither the first device nor the emptiest. */
static void test_least_knows_who_is_faster(void **state)
{
    (void)state;
    struct sy_sim_model model = {.name = "m", .bytes = GB, .compute_ns = 100 * MS, .n_groups = 10};
    struct sy_sim_kind kinds[] = {kind("slow", 3, 4 * GB, 10, 1), kind("fast", 1, 4 * GB, 50, 5)};
    struct sy_sim_request requests[6] = {{0}};
    struct sy_sim_input in = {
        .models = &model, .n_models = 1, .requests = requests, .n_requests = 6};
    struct sy_sim_config c = of_kinds(kinds, 2, SY_SIM_LEAST);
    struct went w;
    sy_sim_report_free(run(&c, &in, &w));
    /* Cold 110 ms on a slow one; on the fast one 22 ms, then 20 ms each behind it: 22, 42, 62, 82, 102, and then a slow one. */
    for (int i = 0; i < 5; i++)
        assert_int_equal(w.device[i], 3);
    assert_true(w.device[5] < 3);
    /* One that has the model, and has nothing to do, does not keep a later request from the faster one that has it too. */
    struct sy_sim_request later[] = {{0}, {0}, {.at_ns = S}};
    kinds[1].link_gbps =
        1; /* it takes a second to get there: the first goes to a slow one, the next ones too */
    in.requests = later;
    in.n_requests = 3;
    sy_sim_report_free(run(&c, &in, &w));
    assert_true(w.device[0] < 3 && w.device[1] < 3 && w.device[2] < 3);
    kinds[1].unified = true; /* nothing to copy: everything is sooner done there */
    sy_sim_report_free(run(&c, &in, &w));
    assert_int_equal(w.device[2], 3);
}

/* Two models take turns: who was used last matters on the small device, whatever the first one is. */
static void test_a_small_device_evicts_the_oldest(void **state)
{
    (void)state;
    struct sy_sim_model models[] = {{.name = "a", .bytes = GB, .compute_ns = MS, .n_groups = 4},
                                    {.name = "b", .bytes = GB, .compute_ns = MS, .n_groups = 4},
                                    {.name = "c", .bytes = GB, .compute_ns = MS, .n_groups = 4}};
    struct sy_sim_kind kinds[] = {kind("large", 1, 8 * GB, 10, 1), kind("small", 1, 2 * GB, 10, 1)};
    static const int models_of[] = {0, 1, 0, 2, 0};
    struct sy_sim_request requests[5];
    struct went w;
    for (int i = 0; i < 5; i++)
        requests[i] = (struct sy_sim_request){.at_ns = (sy_ns)i * S, .model = models_of[i]};
    struct sy_sim_input in = {
        .models = models, .n_models = 3, .requests = requests, .n_requests = 5};
    struct sy_sim_config c = of_kinds(kinds + 1, 1, SY_SIM_RANDOM);
    c.whole_models = true;
    struct sy_sim_report *r = run(&c, &in, &w);
    assert_int_equal(r->n_swaps, 3); /* c drives b out, and not a */
    sy_sim_report_free(r);
    /* Beside a large one, on which nobody gives way. */
    struct sy_sim_request many[400];
    for (int i = 0; i < 400; i++)
        many[i] =
            (struct sy_sim_request){.at_ns = (sy_ns)i * S, .model = i % 2 ? 0 : 1 + i / 2 % 2};
    in.requests = many;
    in.n_requests = 400;
    c = of_kinds(kinds, 2, SY_SIM_RANDOM);
    c.whole_models = true;
    r = run(&c, &in, &w);
    int n_asked = 0, n_swaps = 0;
    int last[3] = {-1, -1, -1}; /* of each model on the small one */
    for (int i = 0; i < 400; i++) {
        if (w.device[i] != 1)
            continue;
        int m = many[i].model, newer = 0;
        for (int k = 0; k < 3; k++)
            newer += k != m && last[k] > last[m];
        n_swaps += last[m] < 0 || newer > 1; /* two others were used since: it is gone */
        last[m] = i;
        n_asked++;
    }
    assert_true(n_asked > 100);
    assert_int_equal(r->n_swaps, n_swaps + 3);
    sy_sim_report_free(r);
}

static void test_jobs_go_where_they_fit_and_by_speed(void **state)
{
    (void)state;
    struct sy_sim_kind kinds[] = {kind("small", 4, GB, 10, 1), kind("large", 2, 4 * GB, 10, 2)};
    struct sy_sim_job jobs[12];
    for (int i = 0; i < 12; i++) { /* 1.1 GB: large alone */
        jobs[i] = sim_job("j", (sy_ns)i * S, 10, 50 * MS);
    }
    struct sy_sim_input in = {.jobs = jobs, .n_jobs = 12};
    struct sy_sim_config c = of_kinds(kinds, 2, SY_SIM_RANDOM);
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_int_equal(r->n_jct, 12);
    assert_int_equal(r->n_jobs_refused, 0);
    assert_int_equal(r->kinds[0].used_ns[SY_SIM_USE_JOBS], 0);
    assert_int_equal(r->kinds[1].used_ns[SY_SIM_USE_JOBS], 12ull * 10 * 25 * MS);
    for (int i = 0; i < 12; i++)
        assert_true(fabs(r->jct_s[i] - 0.25) < 1e-6);
    sy_sim_report_free(r);
    jobs[5].ephemeral_bytes = 4 * GB; /* and its 0.1 GB: too much for all */
    r = sim_run(&c, &in);
    assert_int_equal(r->n_jobs_refused, 1);
    assert_non_null(strstr(r->refusal, "job j: "));
    sy_sim_report_free(r);
    /* Of two that are asked the one with less to do for its speed: the fast ones do more. */
    struct sy_sim_kind equal[] = {kind("slow", 4, 4 * GB, 10, 1), kind("fast", 4, 4 * GB, 10, 3)};
    for (int i = 0; i < 12; i++)
        jobs[i] = sim_job("j", 0, 100, 50 * MS);
    c = of_kinds(equal, 2, SY_SIM_RANDOM);
    double n_fast = 0, n_slow = 0; /* jobs, by the time that they took */
    for (c.seed = 0; c.seed < 50; c.seed++) {
        r = sim_run(&c, &in);
        n_slow += (double)r->kinds[0].used_ns[SY_SIM_USE_JOBS] / 5e9;
        n_fast += (double)r->kinds[1].used_ns[SY_SIM_USE_JOBS] / 5e9 * 3;
        sy_sim_report_free(r);
    }
    assert_true(fabs(n_slow + n_fast - 50 * 12) < 0.01);
    assert_true(n_fast > 2 * n_slow);
}

static void test_descriptions_are_checked(void **state)
{
    (void)state;
    struct sy_sim_job job = sim_job("j", 0, 1, MS);
    struct sy_sim_fault fault = {.device = 3, .factor = 1};
    struct sy_sim_input in = {.jobs = &job, .n_jobs = 1, .faults = &fault, .n_faults = 1};
    struct sy_sim_kind kinds[] = {kind("a", 1, 2 * GB, 1, 1), kind("b", 3, 2 * GB, 1, 1)};
    struct sy_sim_config c = of_kinds(kinds, 2, SY_SIM_RANDOM);
    struct sy_sim_report *r = sim_run(&c, &in); /* the last of them is 3 */
    sy_sim_report_free(r);
    r = sy_sim_report_new();
    fault.device = 4;
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "device 4 of 4"));
    in.n_faults = 0;
    kinds[1].speed = 0;
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "device b: speed: 0 is not"));
    kinds[1].speed = 1;
    kinds[0].n_devices = kinds[1].n_devices = 60000;
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "devices: 120000"));
    sy_sim_report_free(r);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_description_twice_is_one),
        cmocka_unit_test(test_each_kind_takes_what_it_takes),
        cmocka_unit_test(test_observed_times_hold_everywhere),
        cmocka_unit_test(test_models_go_where_they_fit),
        cmocka_unit_test(test_least_knows_who_is_faster),
        cmocka_unit_test(test_a_small_device_evicts_the_oldest),
        cmocka_unit_test(test_jobs_go_where_they_fit_and_by_speed),
        cmocka_unit_test(test_descriptions_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

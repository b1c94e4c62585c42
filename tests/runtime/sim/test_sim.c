/* The simulator: cases whose results are known, and what it prints. */
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

/* Quantiles are within half a step of the histogram. */
static void assert_ms(double found, double expected)
{
    if (!(fabs(found - expected) <= expected * 0.005 + 1e-6))
        fail_msg("%.6f ms where %.6f ms were expected", found, expected);
}

/* ---- requests, one device ---- */

/* One comes every `gap`, `n` of them, to a model of 10 ms that is always there. */
static struct sy_sim_report *queue_of(sy_ns gap, int n, sy_ns deadline_ns)
{
    struct sy_sim_config c = sim_plain();
    struct sy_sim_model model = {.name = "m", .bytes = GB, .compute_ns = 10 * MS, .n_groups = 10};
    struct sy_sim_request *requests = calloc((size_t)n, sizeof *requests);
    struct sy_sim_input in = {.models = &model, .n_models = 1, .requests = requests};
    c.device.unified = true;
    in.n_requests = (uint64_t)n;
    for (int i = 0; i < n; i++)
        requests[i] = (struct sy_sim_request){(sy_ns)i * gap, 0, 0, deadline_ns, 0};
    struct sy_sim_report *r = sim_run(&c, &in);
    free(requests);
    return r;
}

static void test_a_queue_of_even_arrivals(void **state)
{
    (void)state;
    struct sy_sim_report *r = queue_of(20 * MS, 100, 0);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 10);
    assert_ms(sy_sim_quantile_ms(&r->latency[0], 0.99), 10);
    assert_int_equal(r->used_ns[SY_SIM_USE_REQUESTS], 1000 * MS);
    assert_int_equal(r->makespan_ns, 1990 * MS);
    assert_int_equal(r->n_events, 200);
    sy_sim_report_free(r);
    r = queue_of(4 * MS, 11, 0); /* the i-th waits i x 6 ms */
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 10 + 30);
    assert_ms(sy_sim_quantile_ms(&r->latency[0], 1), 70);
    assert_ms(sy_sim_quantile_ms(&r->latency[0], 0.5), 40);
    sy_sim_report_free(r);
}

/* M4: each computation takes one of those that were seen, all of them in turn by chance. */
static void test_computations_vary_as_they_were_seen(void **state)
{
    (void)state;
    enum { N = 1000 };
    static struct sy_sim_request requests[N];
    struct sy_sim_config c = sim_plain();
    struct sy_sim_model model = {.name = "m",
                                 .bytes = GB,
                                 .compute_ns = 10 * MS,
                                 .n_groups = 10,
                                 .n_samples = 2,
                                 .samples = {0.5f, 1.5f}};
    struct sy_sim_input in = {
        .models = &model, .n_models = 1, .requests = requests, .n_requests = N};
    c.device.unified = true;
    for (int i = 0; i < N; i++)
        requests[i].at_ns = (sy_ns)i * 20 * MS;
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_ms(sy_sim_quantile_ms(&r->latency[0], 0), 5);
    assert_ms(sy_sim_quantile_ms(&r->latency[0], 1), 15);
    assert_true(fabs(sy_sim_mean_ms(&r->latency[0]) - 10) < 0.5);
    sy_sim_report_free(r);
    model.samples[1] = 0;
    r = sy_sim_report_new();
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    sy_sim_report_free(r);
}

/* As the server served them: what its model says has no part in it, nor has a swap. */
static void test_requests_may_say_how_long_they_were_served(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_model model = {.name = "m", .bytes = GB, .compute_ns = 10 * MS, .n_groups = 10};
    struct sy_sim_request requests[] = {
        {0, 0, 0, 0, 30 * MS}, {MS, 0, 0, 0, 5 * MS}, {2 * MS, 0, 0, 0, 0}};
    struct sy_sim_input in = {
        .models = &model, .n_models = 1, .requests = requests, .n_requests = 3};
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_ms(sy_sim_quantile_ms(&r->latency[0], 0), 30);
    assert_ms(sy_sim_quantile_ms(&r->latency[0], 0.5), 34);
    assert_ms(sy_sim_quantile_ms(&r->latency[0], 1), 43);
    sy_sim_report_free(r);
}

/* At one moment ten come, each with 35 ms: three can be in time, and exactly those are taken. */
static void test_deadlines_are_refused_by_prediction(void **state)
{
    (void)state;
    struct sy_sim_report *r = queue_of(0, 10, 35 * MS);
    assert_int_equal(r->n_done, 3);
    assert_int_equal(r->n_refused, 7);
    assert_int_equal(r->n_late, 0);
    assert_ms(sy_sim_quantile_ms(&r->latency[0], 1), 30);
    sy_sim_report_free(r);
    r = queue_of(0, 3, 5 * MS); /* none can */
    assert_int_equal(r->n_refused, 3);
    assert_int_equal(r->makespan_ns, 0);
    sy_sim_report_free(r);
}

/* Pollaczek and Khinchine: with Poisson arrivals and even service the mean wait is rho x D ÷ (2 (1 - rho)). */
static void test_poisson_arrivals_wait_as_theory_says(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_model model = {.name = "m", .bytes = GB, .compute_ns = 10 * MS, .n_groups = 10};
    struct sy_sim_input in = {.models = &model, .n_models = 1};
    struct sy_sim_generator g;
    struct sy_sim_request *requests;
    c.device.unified = c.take_all = true;
    c.check = false;
    c.max_queue = 65534;
    for (int percent = 30; percent <= 80; percent += 25) {
        char text[64];
        double rho = percent / 100.0;
        snprintf(text, sizeof text, "rate=%d,seconds=4000,models=1", percent);
        assert_int_equal(sy_sim_generator_parse(text, &g), SY_OK);
        assert_int_equal(sy_sim_generate(&g, 7, &requests, &in.n_requests), SY_OK);
        in.requests = requests;
        struct sy_sim_report *r = sim_run(&c, &in);
        double mean = sy_sim_mean_ms(&r->latency[0]), theory = 10 + 10 * rho / (2 * (1 - rho));
        print_message("rho %.2f: mean %.3f ms, theory %.3f ms\n", rho, mean, theory);
        assert_true(fabs(mean / theory - 1) < 0.03);
        assert_int_equal(r->n_done, in.n_requests);
        sy_sim_report_free(r);
        free(requests);
    }
}

static struct sy_sim_report *two_models(const struct sy_sim_config *c, sy_ns second_at)
{
    /* 100 ms and 50 ms over the link of 10 GB/s; 10 groups. */
    struct sy_sim_model models[] = {
        {.name = "a", .bytes = GB, .compute_ns = 20 * MS, .n_groups = 10},
        {.name = "b", .bytes = GB / 2, .compute_ns = 100 * MS, .n_groups = 10}};
    struct sy_sim_request requests[] = {{0, 0, 0, 0, 0}, {second_at, 1, 1, 0, 0}};
    struct sy_sim_input in = {
        .models = models, .n_models = 2, .requests = requests, .n_requests = 2};
    return sim_run(c, &in);
}

/* M1, and that the second one's copies begin when the link is free of the first one's. */
static void test_swaps_take_what_the_pipeline_takes(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_report *r = two_models(&c, S);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 100 + 2); /* T + C/G */
    assert_ms(sy_sim_mean_ms(&r->latency[1]), 100 + 5); /* C + T/G */
    assert_int_equal(r->n_swaps, 2);
    assert_int_equal(r->moved_bytes, GB + GB / 2);
    sy_sim_report_free(r);
    r = two_models(
        &c, 0); /* copied from 100 ms on, 2 ms of it beside the first's end: 48 ms are left */
    assert_ms(sy_sim_mean_ms(&r->latency[1]), 102 + 100 + 4.8);
    sy_sim_report_free(r);
    c.device.pool_bytes =
        GB; /* the second takes half of the first's place; a third run would copy that again */
    struct sy_sim_model models[] = {
        {.name = "a", .bytes = GB, .compute_ns = 20 * MS, .n_groups = 10},
        {.name = "b", .bytes = GB / 2, .compute_ns = 100 * MS, .n_groups = 10}};
    struct sy_sim_request requests[] = {
        {0, 0, 0, 0, 0}, {S, 1, 1, 0, 0}, {2 * S, 0, 2, 0, 0}, {3 * S, 0, 3, 0, 0}};
    struct sy_sim_input in = {
        .models = models, .n_models = 2, .requests = requests, .n_requests = 4};
    r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[2]), 50 + 2);
    assert_ms(sy_sim_mean_ms(&r->latency[3]), 20);
    assert_int_equal(r->moved_bytes, 2 * GB);
    sy_sim_report_free(r);
}

/* Each byte that moves holds computing up by 0.02 ns, however slow the link is: half a GB by 10 ms. */
static void test_copies_hold_computing_up(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_model model = {
        .name = "m", .bytes = GB / 2, .compute_ns = 100 * MS, .n_groups = 10};
    struct sy_sim_request request = {MS, 0, 0, 0, 0};
    struct sy_sim_fault slow = {0, S, 0, SY_SIM_LINK_SLOWS, 0.5};
    struct sy_sim_input in = {
        .models = &model, .n_models = 1, .requests = &request, .n_requests = 1, .faults = &slow};
    c.device.lost_ns_per_byte = 0.02;
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 110 + 5); /* C + T/G */
    sy_sim_report_free(r);
    in.n_faults = 1;
    r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 110 + 10);
    sy_sim_report_free(r);
}

static void test_urgent_requests_preempt(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_model models[] = {
        {.name = "slow", .bytes = GB, .compute_ns = 100 * MS, .n_groups = 10},
        {.name = "fast", .bytes = GB, .compute_ns = 10 * MS, .n_groups = 10}};
    struct sy_sim_request requests[] = {{0, 0, 1, 0, 0}, {50 * MS, 1, 0, 0, 0}};
    struct sy_sim_input in = {
        .models = models, .n_models = 2, .requests = requests, .n_requests = 2};
    c.device.unified = true;
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 60);
    sy_sim_report_free(r);
    c.preempt_ns = 2 * MS;
    r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 12);
    assert_ms(sy_sim_mean_ms(&r->latency[1]), 110);
    assert_int_equal(r->n_preempted, 1);
    assert_int_equal(r->used_ns[SY_SIM_USE_REQUESTS], 110 * MS);
    sy_sim_report_free(r);
}

/* ---- jobs ---- */

/* Each one's completion, in the order of finishing, in seconds. */
static void assert_jobs(const struct sy_sim_config *c, const struct sy_sim_job *jobs, int n,
                        const double *expected)
{
    struct sy_sim_input in = {.jobs = jobs, .n_jobs = n};
    struct sy_sim_report *r = sim_run(c, &in);
    assert_int_equal(r->n_jct, n);
    for (int i = 0; i < n; i++)
        if (fabs(r->jct_s[i] - expected[i]) > 1e-6)
            fail_msg("%s: completion %d is %.9f s, not %.9f", sy_policy_name(c->policy.kind), i,
                     r->jct_s[i], expected[i]);
    sy_sim_report_free(r);
}

static void test_two_jobs_under_each_policy(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_job jobs[] = {sim_job("long", 0, 10, S), sim_job("short", 0, 2, S)};
    assert_jobs(&c, jobs, 2, (double[]){10, 12});
    c.policy.kind = SY_POLICY_SRTF;
    assert_jobs(&c, jobs, 2, (double[]){2, 12});
    jobs[1].submit_ns = 3 * S + S / 2; /* preempts at the boundary at 4 s */
    assert_jobs(&c, jobs, 2, (double[]){2.5, 12});
    jobs[1].submit_ns = 0;
    c.policy.kind = SY_POLICY_FAIR;
    assert_jobs(&c, jobs, 2, (double[]){4, 12});
    c.policy.kind = SY_POLICY_RR;
    assert_jobs(&c, jobs, 2, (double[]){4, 12});
    c.policy.kind = SY_POLICY_PRIORITY;
    jobs[0].priority = 1;
    assert_jobs(&c, jobs, 2, (double[]){2, 12});
    c.policy.kind = SY_POLICY_WEIGHTED; /* the short one's tenant has three quarters */
    jobs[1] = sim_job("heavy", 0, 9, S);
    jobs[1].tenant = 1;
    jobs[1].weight = 3;
    assert_jobs(&c, jobs, 2, (double[]){12, 19});
}

/* M3: beside each other, by utilization and contention. */
static void test_lanes_slow_each_other_as_stated(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_job jobs[] = {sim_job("a", 0, 10, S), sim_job("b", 0, 10, S)};
    c.policy.kind = SY_POLICY_PACK;
    assert_jobs(&c, jobs, 2, (double[]){20, 20});
    jobs[0].utilization = jobs[1].utilization = 0.5;
    assert_jobs(&c, jobs, 2, (double[]){10, 10});
    c.device.contention = 0.1;
    assert_jobs(&c, jobs, 2, (double[]){11, 11});
    jobs[0].utilization = jobs[1].utilization = 0.75;
    assert_jobs(&c, jobs, 2, (double[]){16.5, 16.5});
}

static void test_memory_decides_who_runs_beside_whom(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_job jobs[] = {sim_job("a", 0, 4, S), sim_job("b", 0, 4, S),
                                sim_job("c", 0, 4, S)};
    for (int i = 0; i < 3; i++)
        jobs[i].utilization = 0.3;
    c.policy.kind = SY_POLICY_PACK;
    c.device.pool_bytes = 4 * GB; /* a lane each */
    assert_jobs(&c, jobs, 3, (double[]){4, 4, 4});
    c.device.pool_bytes = 2 * GB; /* one lane for all: 0.3 GB of persistent parts, 1 GB */
    assert_jobs(&c, jobs, 3, (double[]){10, 11, 12});
    jobs[2].ephemeral_bytes = 3 * GB; /* can never fit: refused, the others do not notice */
    struct sy_sim_input in = {.jobs = jobs, .n_jobs = 3};
    c.device.pool_bytes = 3 * GB;
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_int_equal(r->n_jobs_refused, 1);
    assert_non_null(strstr(r->refusal, "job c: "));
    assert_int_equal(r->n_jct, 2);
    assert_true(fabs(r->jct_s[1] - 4) < 1e-6);
    assert_int_equal(r->copied_bytes, 0);
    sy_sim_report_free(r);
}

/* M5: the long job is in memory when a short one comes that does not fit beside it. */
static void test_srtf_may_spill(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_job jobs[] = {sim_job("long", 0, 10, S), sim_job("short", S / 2, 1, S)};
    jobs[0].persistent_bytes = 2 * GB;
    jobs[1].ephemeral_bytes = 2 * GB;
    c.device.pool_bytes = 4 * GB;
    c.policy.kind = SY_POLICY_SRTF;
    assert_jobs(&c, jobs, 2, (double[]){10, 10.5});
    c.spill =
        true; /* the first iteration ends at 1, the short one runs until 2; then 2 GB go and came: 0.4 s */
    assert_jobs(&c, jobs, 2, (double[]){1.5, 11.4});
}

/* M2, and the guaranteed share. */
static void test_requests_and_a_job_share_the_device(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_model model = {.name = "m", .bytes = GB, .compute_ns = 100 * MS, .n_groups = 10};
    struct sy_sim_request requests[1000];
    struct sy_sim_job one = sim_job("j", 0, 10, S);
    struct sy_sim_input in = {.models = &model,
                              .n_models = 1,
                              .requests = requests,
                              .n_requests = 1000,
                              .jobs = &one,
                              .n_jobs = 1};
    c.device.unified = c.take_all = true;
    c.max_queue = 2000;
    for (int i = 0; i < 1000; i++)
        requests[i] = (struct sy_sim_request){S / 2, 0, 0, 0, 0};
    struct sy_sim_report *r = sim_run(&c, &in); /* a flood: the job stands still for 100 s */
    assert_true(fabs(r->jct_s[0] - 110) < 1e-6);
    assert_int_equal(r->used_ns[SY_SIM_USE_JOBS], 10 * S);
    assert_int_equal(r->used_ns[SY_SIM_USE_REQUESTS], 100 * S);
    sy_sim_report_free(r);
    c.train_share = 0.25; /* from 0.5 s on it has a quarter */
    r = sim_run(&c, &in);
    assert_true(fabs(r->jct_s[0] - (0.5 + 9.5 / 0.25)) < 0.2);
    sy_sim_report_free(r);
    c.train_share = 0;
    c.pause_ns = 5 * MS;
    in.n_requests = 1;
    r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 105);
    sy_sim_report_free(r);
}

static void test_fair_and_weighted_after_a_minute(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    c.policy.kind = SY_POLICY_FAIR;
    c.end_ns = 60 * S;
    c.device.pool_bytes = 64 * GB;
    for (int n = 2; n <= 8; n++) {
        struct sy_sim_job jobs[8];
        struct sy_sim_input in = {.jobs = jobs, .n_jobs = n};
        for (int i = 0; i < n; i++)
            jobs[i] = sim_job("j", 0, 1000000, (5 + below(400)) * MS);
        struct sy_sim_report *r = sim_run(&c, &in);
        assert_true(sy_sim_jain(r) >= 0.99);
        assert_int_equal(r->used_ns[SY_SIM_USE_JOBS], 60 * S);
        sy_sim_report_free(r);
    }
    c.policy.kind = SY_POLICY_WEIGHTED;
    struct sy_sim_job jobs[3];
    struct sy_sim_input in = {.jobs = jobs, .n_jobs = 3};
    for (int i = 0; i < 3; i++) {
        jobs[i] = sim_job("j", 0, 1000000, (20 + below(100)) * MS);
        jobs[i].tenant = i;
        jobs[i].weight = 1u << i;
    }
    struct sy_sim_report *r = sim_run(&c, &in);
    for (int i = 0; i < 3; i++)
        assert_true(fabs((double)r->tenant_ns[i] / (60e9) - (double)(1 << i) / 7) <= 0.02);
    sy_sim_report_free(r);
}

/* ---- faults ---- */

static void test_a_worker_dies(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_model model = {.name = "m", .bytes = GB, .compute_ns = 10 * MS, .n_groups = 10};
    struct sy_sim_request request = {0, 0, 0, 0, 0};
    struct sy_sim_fault faults[] = {{5 * MS, 3 * MS, 0, SY_SIM_WORKER_DIES, 1},
                                    {12 * MS, 3 * MS, 0, SY_SIM_WORKER_DIES, 1},
                                    {18 * MS, 3 * MS, 0, SY_SIM_WORKER_DIES, 1}};
    struct sy_sim_job one = sim_job("j", 0, 3, 10 * MS);
    struct sy_sim_input in = {.models = &model,
                              .n_models = 1,
                              .requests = &request,
                              .n_requests = 1,
                              .faults = faults,
                              .n_faults = 1};
    c.device.unified = true;
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 5 + 3 + 10); /* it runs again, once */
    sy_sim_report_free(r);
    in.n_faults = 3;
    r = sim_run(&c, &in);
    assert_int_equal(r->n_failed, 1); /* it killed three */
    assert_int_equal(r->n_done, 0);
    sy_sim_report_free(r);
    in = (struct sy_sim_input){.jobs = &one, .n_jobs = 1, .faults = faults + 1, .n_faults = 1};
    r = sim_run(&c, &in); /* 10 done, 2 lost, 3 without a worker, 20 */
    assert_true(fabs(r->jct_s[0] - 0.035) < 1e-9);
    sy_sim_report_free(r);
}

static void test_the_link_slows(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_fault fault = {0, 500 * MS, 0, SY_SIM_LINK_SLOWS, 0.5};
    struct sy_sim_model model = {.name = "m", .bytes = GB, .compute_ns = 20 * MS, .n_groups = 10};
    struct sy_sim_request request = {5 * MS, 0, 0, 0, 0};
    struct sy_sim_input in = {.models = &model,
                              .n_models = 1,
                              .requests = &request,
                              .n_requests = 1,
                              .faults = &fault,
                              .n_faults = 1};
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 200 + 2);
    sy_sim_report_free(r);
    fault.duration_ns =
        10 * MS; /* 5 of them in the copy, which has 25 MB then; the rest at the usual rate */
    r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 102.5 + 2);
    sy_sim_report_free(r);
    fault.factor = 1e-9;
    r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 105 + 2);
    sy_sim_report_free(r);
    fault.at_ns = 55 * MS; /* half of it is there; 10 ms of standing still, nearly */
    r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 110 + 2);
    sy_sim_report_free(r);
    fault.at_ns = 106 * MS; /* too late to matter */
    r = sim_run(&c, &in);
    assert_ms(sy_sim_mean_ms(&r->latency[0]), 100 + 2);
    sy_sim_report_free(r);
}

/* ---- what is printed ---- */

static void test_the_figure_is_xml_with_what_is_in_it(void **state)
{
    (void)state;
    char *text;
    size_t n;
    struct sy_sim_report *r = queue_of(4 * MS, 11, 0);
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    assert_int_equal(sy_sim_plot_svg(r, "a <b> & 'c' \xc3\xa9 \xff\x01", to), SY_OK);
    fclose(to);
    assert_int_equal(strncmp(text, "<svg ", 5), 0);
    assert_non_null(strstr(text, "a &lt;b> &amp; 'c' \xc3\xa9 ?"
                                 "?</text>"));
    assert_non_null(strstr(text, "class 0"));
    assert_string_equal(text + n - 7, "</svg>\n");
    assert_null(strstr(text, "nan"));
    free(text);
    sy_sim_report_free(r);
}

static void test_bad_input_is_said(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_model model = {.name = "m", .bytes = GB, .compute_ns = 0, .n_groups = 1};
    struct sy_sim_job jobs[] = {sim_job("first", S, 1, 1), sim_job("second", 0, 1, 1)};
    struct sy_sim_request request = {0, 1, 0, 0, 0};
    struct sy_sim_fault fault = {0, 0, 1, SY_SIM_LINK_SLOWS, 1};
    struct sy_sim_input in = {.models = &model, .n_models = 1};
    struct sy_sim_report *r = sy_sim_report_new();
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "model m"));
    model.compute_ns = 1;
    in.requests = &request;
    in.n_requests = 1;
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "request 0"));
    in = (struct sy_sim_input){.jobs = jobs, .n_jobs = 2};
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "second"));
    in = (struct sy_sim_input){.faults = &fault, .n_faults = 1};
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "at 0 s: device 1 of 1"));
    c.max_queue = 0;
    in = (struct sy_sim_input){0};
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    sy_sim_report_free(r);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_queue_of_even_arrivals),
        cmocka_unit_test(test_computations_vary_as_they_were_seen),
        cmocka_unit_test(test_requests_may_say_how_long_they_were_served),
        cmocka_unit_test(test_deadlines_are_refused_by_prediction),
        cmocka_unit_test(test_copies_hold_computing_up),
        cmocka_unit_test(test_poisson_arrivals_wait_as_theory_says),
        cmocka_unit_test(test_swaps_take_what_the_pipeline_takes),
        cmocka_unit_test(test_urgent_requests_preempt),
        cmocka_unit_test(test_two_jobs_under_each_policy),
        cmocka_unit_test(test_lanes_slow_each_other_as_stated),
        cmocka_unit_test(test_memory_decides_who_runs_beside_whom),
        cmocka_unit_test(test_srtf_may_spill),
        cmocka_unit_test(test_requests_and_a_job_share_the_device),
        cmocka_unit_test(test_fair_and_weighted_after_a_minute),
        cmocka_unit_test(test_a_worker_dies),
        cmocka_unit_test(test_the_link_slows),
        cmocka_unit_test(test_the_figure_is_xml_with_what_is_in_it),
        cmocka_unit_test(test_bad_input_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

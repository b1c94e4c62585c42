/* Simulated devices in slices: who slows whom down, who takes turns, and that slices which do not touch each other are as devices of their own. */
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
#include "runtime/sim/sim_slices.h"
#include "runtime/sim/sim_trace.h"
#include "tests/rigs/seed.h"
#include "tests/rigs/sim_rig.h"

#define MS SY_NS_PER_MS
#define S  SY_NS_PER_S
#define GB 1000000000ull

static uint64_t seed = 1;

struct went {
    const struct sy_sim_request *first;
    double latency_ms[4096];
    bool done[4096];
};

static void note(void *ctx, const struct sy_sim_request *request, int device,
                 enum sy_sim_outcome outcome, sy_ns latency_ns, sy_ns served_ns)
{
    struct went *w = ctx;
    (void)device;
    (void)served_ns;
    w->done[request - w->first] = outcome == SY_SIM_DONE;
    w->latency_ms[request - w->first] = (double)latency_ns / 1e6;
}

/* One device of two cores, or so many, in slices as `text` says. */
struct cut {
    struct sy_sim_slices slices;
    struct sy_sim_kind *kinds;
    struct sy_sim_config config;
    struct went went;
};

static void cut(struct cut *c, const char *text, int n_cores, int n_devices)
{
    memset(c, 0, sizeof *c);
    c->config = sim_plain();
    c->config.device.unified = true;
    c->config.device.n_devices = n_devices;
    c->config.device.name[0] = '\0';
    c->config.max_queue = 4096;
    assert_int_equal(sy_sim_slices_parse(text, n_cores, &c->slices), SY_OK);
    assert_int_equal(
        sy_sim_slices_cut(&c->slices, &c->config.device, 1, &c->kinds, &c->config.n_kinds), SY_OK);
    c->config.kinds = c->kinds;
    c->config.n_slices = c->slices.n;
}

static struct sy_sim_report *run(struct cut *c, const struct sy_sim_input *in)
{
    c->went.first = in->requests;
    c->config.answered = note;
    c->config.answered_ctx = &c->went;
    return sim_run(&c->config, in);
}

static void assert_ms(double is, double wanted)
{
    assert_true(fabs(is - wanted) < 1e-3);
}

/* Half a device each: 20 ms alone. */
static const struct sy_sim_model two[] = {
    {.name = "a", .compute_ns = 10 * MS, .n_groups = 1, .slice = 0},
    {.name = "b", .compute_ns = 10 * MS, .n_groups = 1, .slice = 1}};
static const struct sy_sim_pair pairs[] = {{"a", "b", 1.5}, {"b", "a", 1.2}};

static struct sy_sim_input of_two(const struct sy_sim_request *requests, uint64_t n)
{
    return (struct sy_sim_input){.models = two,
                                 .n_models = 2,
                                 .requests = requests,
                                 .n_requests = n,
                                 .pairs = pairs,
                                 .n_pairs = 2};
}

/* M10: each request has it added, and nobody waits for it or has it stretched. */
static void test_outside_is_added_and_keeps_nobody_waiting(void **state)
{
    enum { N_REQUESTS = 400 };
    static struct sy_sim_request requests[N_REQUESTS];
    struct sy_sim_model models[] = {two[0], two[1]};
    struct sy_sim_input in = of_two(requests, N_REQUESTS);
    struct cut c;
    double without[N_REQUESTS];
    sy_ns at = 0;
    (void)state;
    for (int i = 0; i < N_REQUESTS; i++) {
        at += seed_below(&seed, 30 * MS);
        requests[i] = (struct sy_sim_request){.at_ns = at,
                                              .model = (int32_t)seed_below(&seed, 2),
                                              .class_ = (int32_t)seed_below(&seed, 2)};
    }
    in.models = models;
    cut(&c, "x=1,y=1", 2, 1);
    sy_sim_report_free(run(&c, &in));
    memcpy(without, c.went.latency_ms, sizeof without);
    models[0].outside_ns = 7 * MS;
    models[1].outside_ns = 1 + seed_below(&seed, 50 * MS);
    struct sy_sim_report *report = run(&c, &in);
    double sum = 0;
    for (int i = 0; i < N_REQUESTS; i++) {
        sum += c.went.latency_ms[i];
        assert_ms(c.went.latency_ms[i],
                  without[i] + (double)models[requests[i].model].outside_ns / 1e6);
    }
    double told = 0;
    for (int class_ = 0; class_ < 2; class_++)
        told += sy_sim_mean_ms(&report->latency[class_]) * (double)report->latency[class_].n;
    assert_true(fabs(told - sum) < 0.01 * sum);
    sy_sim_report_free(report);
    free(c.kinds);
}

/* b has 24 ms beside a; then a, which has come to 16 of its 20 ms, goes on alone. */
static void test_two_slow_each_other_down_while_both_compute(void **state)
{
    struct cut c;
    struct sy_sim_request requests[] = {{0, 0, 0, 0, 0}, {0, 1, 0, 0, 0}};
    struct sy_sim_input in = of_two(requests, 2);
    (void)state;
    cut(&c, "x=1,y=1", 2, 1);
    sy_sim_report_free(run(&c, &in));
    assert_ms(c.went.latency_ms[0], 28);
    assert_ms(c.went.latency_ms[1], 24);
    requests[1].served_ns = 21 * MS; /* R6: what was observed is not slowed down once more */
    sy_sim_report_free(run(&c, &in));
    assert_ms(c.went.latency_ms[1], 21);
    assert_ms(c.went.latency_ms[0], 27);
    free(c.kinds);
}

static void test_beyond_the_bound_they_take_turns(void **state)
{
    struct cut c;
    struct sy_sim_request requests[] = {
        {0, 1, 1, 0, 0}, {5 * MS, 0, 1, 0, 0}, {6 * MS, 1, 1, 0, 0}};
    struct sy_sim_input in = of_two(requests, 3);
    (void)state;
    cut(&c, "x=1,y=1", 2, 1);
    c.config.bound = 1.3;
    sy_sim_report_free(run(&c, &in)); /* class 1 promises nothing: side by side */
    assert_true(c.went.latency_ms[1] > 20.5 && c.went.latency_ms[0] > 20.5);
    requests[1].class_ = 0;
    sy_sim_report_free(run(
        &c, &in)); /* a does: 20 ms of b first, then a, which is more urgent than the second b */
    assert_ms(c.went.latency_ms[0], 20);
    assert_ms(c.went.latency_ms[1], 35);
    assert_ms(c.went.latency_ms[2], 54);
    c.config.bound = 1.6;
    sy_sim_report_free(run(&c, &in));
    assert_true(c.went.latency_ms[1] < 35);
    free(c.kinds);
}

/* 100 iterations of 10 ms in half a device take 2 s; beside 500 ms of requests that slow it down to 4/5 it is 100 ms behind, or stands still for 500. */
static void test_a_job_beside_requests(void **state)
{
    struct cut c;
    struct sy_sim_request requests[25];
    struct sy_sim_pair beside[] = {{"job", "b", 1.25}, {"b", "job", 1.0}};
    struct sy_sim_job job = sim_job("job", 0, 100, 10 * MS);
    struct sy_sim_input in = of_two(requests, 25);
    (void)state;
    for (int i = 0; i < 25; i++)
        requests[i] = (struct sy_sim_request){.at_ns = 100 * MS, .model = 1};
    in.jobs = &job;
    in.n_jobs = 1;
    in.pairs = beside;
    cut(&c, "x=1,y=1", 2, 1);
    struct sy_sim_report *r = run(&c, &in);
    assert_ms(c.went.latency_ms[24], 500);
    assert_ms((double)r->makespan_ns / 1e6, 2100);
    sy_sim_report_free(r);
    beside[1].slowdown = 1.2;
    c.config.bound = 1.1;
    r = run(&c, &in);
    assert_ms(c.went.latency_ms[24], 500);
    assert_ms((double)r->makespan_ns / 1e6, 2500);
    /* Not while it stands still. */
    assert_ms((double)r->kinds[0].used_ns[SY_SIM_USE_JOBS] / 1e6, 2000);
    sy_sim_report_free(r);
    free(c.kinds);
}

/* Slices of which no pair is known are, each, a device with its part of the speed and its own requests: to the bit, also when a worker dies in another one. */
static void test_slices_without_pairs_are_devices(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        static struct cut both, alone;
        struct sy_sim_request *all, own[4096];
        int at[4096];
        struct sy_sim_generator g;
        struct sy_sim_fault fault = {S, S / 5, 1, SY_SIM_WORKER_DIES, 1};
        struct sy_sim_input in = of_two(NULL, 0);
        in.n_pairs = 0;
        assert_int_equal(sy_sim_generator_parse("rate=60,seconds=4,zipf=0,classes=2", &g), SY_OK);
        g.n_models = 2;
        assert_int_equal(sy_sim_generate(&g, seed_below(&seed, 1000), &all, &in.n_requests), SY_OK);
        in.requests = all;
        in.faults = &fault;
        in.n_faults = round % 2;
        cut(&both, "x=3,y=1", 4, 1);
        both.config.preempt_ns = seed_below(&seed, 2) * MS;
        sy_sim_report_free(run(&both, &in));
        struct sy_sim_input first = in;
        first.n_requests = 0;
        first.n_faults = 0;
        for (uint64_t i = 0; i < in.n_requests; i++)
            if (all[i].model == 0) {
                at[first.n_requests] = (int)i;
                own[first.n_requests++] = all[i];
            }
        first.requests = own;
        cut(&alone, "x=3", 4, 1);
        alone.config.preempt_ns = both.config.preempt_ns;
        alone.config.n_slices = 0;
        sy_sim_report_free(run(&alone, &first));
        for (uint64_t i = 0; i < first.n_requests; i++)
            assert_true(both.went.latency_ms[at[i]] == alone.went.latency_ms[i] &&
                        both.went.done[at[i]] == alone.went.done[i]);
        free(both.kinds);
        free(alone.kinds);
        free(all);
    }
}

/* Simulated sizes: 64 cores in 8 slices, 3 such devices, jobs and requests of all of them, pairs by chance; the books are walked after each event. */
static void test_many_slices(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        static struct cut c;
        struct sy_sim_model models[8];
        struct sy_sim_job jobs[12];
        struct sy_sim_pair some[40];
        struct sy_sim_request *requests;
        struct sy_sim_generator g;
        struct sy_sim_input in = {.models = models,
                                  .n_models = 8,
                                  .jobs = jobs,
                                  .n_jobs = 12,
                                  .pairs = some,
                                  .n_pairs = 40};
        cut(&c, "a=w1,b=w1,c=w1,d=w1,e=w1,f=w1,g=w1,h=w1", 64, 3);
        for (int i = 0; i < 8; i++) {
            models[i] = (struct sy_sim_model){.compute_ns = (1 + seed_below(&seed, 3)) * MS,
                                              .n_groups = 4,
                                              .bytes = 1000,
                                              .slice = i};
            snprintf(models[i].name, sizeof models[i].name, "m%d", i);
            assert_int_equal(c.slices.all[i].n_cores, 8);
        }
        for (int i = 0; i < 12; i++) {
            char name[8];
            snprintf(name, sizeof name, "j%d", i);
            jobs[i] = sim_job(name, (sy_ns)i * S / 20, 1 + seed_below(&seed, 50), 2 * MS);
            jobs[i].slice = (int)seed_below(&seed, 8);
        }
        for (int i = 0; i < 40; i++) {
            const char *task =
                i % 3 ? models[seed_below(&seed, 8)].name : jobs[seed_below(&seed, 12)].name;
            memcpy(some[i].task, task, sizeof some[i].task);
            memcpy(some[i].beside, models[seed_below(&seed, 8)].name, sizeof some[i].beside);
            some[i].slowdown = 0.9 + (double)seed_below(&seed, 100) / 100;
        }
        assert_int_equal(sy_sim_generator_parse("rate=200,seconds=3,zipf=0,classes=2", &g), SY_OK);
        g.n_models = 8;
        assert_int_equal(sy_sim_generate(&g, seed_below(&seed, 1000), &requests, &in.n_requests),
                         SY_OK);
        in.requests = requests;
        c.config.bound = round % 3 ? 1.1 : 0;
        c.config.router = (enum sy_sim_router)(round % SY_SIM_N_ROUTERS);
        struct sy_sim_report *r = run(&c, &in);
        assert_int_equal(r->n_done + r->n_refused, in.n_requests);
        assert_int_equal(r->n_jct, 12);
        sy_sim_report_free(r);
        free(requests);
        free(c.kinds);
    }
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {{"a", "NAME=SIZE"},          {"a=", "NAME=SIZE"},        {"=1", "NAME=SIZE"},
                 {"a=x", "not a size"},       {"a=1.5", "not a size"},    {"a=nan", "not a size"},
                 {"a=5", "wants 5"},          {"a=1,a=1", "two slices"},  {"a=@9", "core 9"},
                 {"a=w1%", "not a size"},     {"a=@0,0", "in slice 'a'"}, {"a=3,b=2", "wants 2"},
                 {"a=200%", "2000 per mille"}};
    struct sy_sim_slices s;
    struct sy_sim_model model = {.name = "m"};
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(wrong); i++) {
        assert_int_equal(sy_sim_slices_parse(wrong[i].text, 4, &s), SY_EARG);
        if (!strstr(sy_error_text(), wrong[i].why))
            fail_msg("%s: %s", wrong[i].text, sy_error_text());
    }
    assert_int_equal(sy_sim_slices_parse("a=@0,2,b=w1", 4, &s), SY_OK);
    assert_int_equal(s.all[0].n_cores, 2);
    assert_int_equal(s.all[1].n_cores, 2);
    snprintf(model.slice_name, sizeof model.slice_name, "c");
    assert_int_equal(sy_sim_slices_place_models(&s, "", &model, 1), SY_EARG);
    model.slice_name[0] = '\0';
    assert_int_equal(sy_sim_slices_place_models(&s, "b", &model, 1), SY_OK);
    assert_int_equal(model.slice, 1);
}

static void test_pairs_name_what_there_is(void **state)
{
    struct cut c;
    struct sy_sim_request request = {0};
    struct sy_sim_pair nobody = {"a", "nobody", 1.5};
    struct sy_sim_input in = of_two(&request, 1);
    struct sy_sim_report *r = sy_sim_report_new();
    (void)state;
    in.pairs = &nobody;
    in.n_pairs = 1;
    cut(&c, "x=1,y=1", 2, 1);
    assert_int_equal(sy_sim_run(&c.config, &in, r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "nobody"));
    sy_sim_report_free(r);
    free(c.kinds);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outside_is_added_and_keeps_nobody_waiting),
        cmocka_unit_test(test_two_slow_each_other_down_while_both_compute),
        cmocka_unit_test(test_beyond_the_bound_they_take_turns),
        cmocka_unit_test(test_a_job_beside_requests),
        cmocka_unit_test(test_slices_without_pairs_are_devices),
        cmocka_unit_test(test_many_slices),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_pairs_name_what_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

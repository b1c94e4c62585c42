/* Simulations at the ends of what numbers hold, and what faults leave behind: nothing long becomes short, nothing that was lost is there. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/sim_rig.h"

#define MS SY_NS_PER_MS
#define S  SY_NS_PER_S
#define GB 1000000000ull

static const struct sy_sim_model one_gb = {
    .name = "m", .bytes = GB, .compute_ns = 20 * MS, .n_groups = 10};

/* Under srtf a job whose iterations x time is more than 64 bits hold comes last, also among those that wait for room. */
static void test_a_job_of_centuries_is_not_the_shortest(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    /* 18446744074 s, which is 0.29 s too many for 64 bits of nanoseconds. */
    struct sy_sim_job jobs[] = {sim_job("centuries", 0, 18446744074ull, S),
                                sim_job("10 s", 0, 10, S)};
    struct sy_sim_input in = {.jobs = jobs, .n_jobs = 2};
    c.policy.kind = SY_POLICY_SRTF;
    c.device.pool_bytes = 3 * GB / 2; /* room for one */
    c.end_ns = 50 * S;
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_int_equal(r->n_jct, 1);
    assert_true(fabs(r->jct_s[0] - 10) < 1e-9);
    sy_sim_report_free(r);
}

static void assert_too_long(const struct sy_sim_input *in)
{
    struct sy_sim_config c = sim_plain();
    struct sy_sim_report *r = sy_sim_report_new();
    assert_int_equal(sy_sim_run(&c, in, r), SY_ETOOBIG);
    assert_non_null(strstr(sy_error_text(), "takes too long"));
    sy_sim_report_free(r);
    c.end_ns = S; /* as the words say */
    sy_sim_report_free(sim_run(&c, in));
}

/* Time has an end: what does not come to its own before is refused, and neither starts over at 0 nor goes on for ever. */
static void test_what_no_clock_holds_is_refused(void **state)
{
    (void)state;
    struct sy_sim_job job = sim_job("long", 0, 50, 900000000 * S);
    assert_too_long(&(struct sy_sim_input){.jobs = &job, .n_jobs = 1});
    struct sy_sim_request requests[30];
    for (int i = 0; i < 30; i++)
        requests[i] = (struct sy_sim_request){.served_ns = 900000000 * S};
    assert_too_long(&(struct sy_sim_input){
        .models = &one_gb, .n_models = 1, .requests = requests, .n_requests = 30});
    struct sy_sim_model model = {
        .name = "petabytes", .bytes = 1000000000 * GB, .compute_ns = MS, .n_groups = 100000000};
    struct sy_sim_fault fault = {0, 3950000000 * S, 0, SY_SIM_LINK_SLOWS, 1e-300};
    struct sy_sim_request request = {0};
    assert_too_long(&(struct sy_sim_input){.models = &model,
                                           .n_models = 1,
                                           .requests = &request,
                                           .n_requests = 1,
                                           .faults = &fault,
                                           .n_faults = 1});
}

/* 30 years served: quantiles are within 0.8 % there too. */
static void test_quantiles_of_years(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_request request = {.served_ns = 900000000 * S};
    struct sy_sim_input in = {
        .models = &one_gb, .n_models = 1, .requests = &request, .n_requests = 1};
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_true(fabs(sy_sim_quantile_ms(&r->latency[0], 0.99) / 9e11 - 1) < 0.008);
    sy_sim_report_free(r);
}

/* A worker dies 30 ms into a copy of 100 ms: 0.3 GB are there, and 0.7 are copied by who runs it again. */
static void test_a_copy_dies_with_its_worker(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_fault faults[] = {{0, 0, 0, SY_SIM_LINK_SLOWS, 1},
                                    {30 * MS, 5 * MS, 0, SY_SIM_WORKER_DIES, 1}};
    struct sy_sim_request request = {0};
    struct sy_sim_input in = {.models = &one_gb,
                              .n_models = 1,
                              .requests = &request,
                              .n_requests = 1,
                              .faults = faults,
                              .n_faults = 2};
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_true(fabs(sy_sim_mean_ms(&r->latency[0]) - (30 + 5 + 70 + 2)) < 1e-3);
    assert_int_equal(r->moved_bytes, GB);
    assert_int_equal(r->n_swaps, 2);
    sy_sim_report_free(r);
    /* At half the rate until 40 ms: 0.15 GB are there, 0.025 more come until 40, and the rest takes 82.5 ms. */
    faults[0] = (struct sy_sim_fault){0, 40 * MS, 0, SY_SIM_LINK_SLOWS, 0.5};
    r = sim_run(&c, &in);
    assert_true(fabs(sy_sim_mean_ms(&r->latency[0]) - (40 + 82.5 + 2)) < 1e-3);
    assert_int_equal(r->moved_bytes, GB);
    sy_sim_report_free(r);
}

static void count_calls(void *ctx, const struct sy_sim_report *so_far)
{
    int *n = ctx;
    assert_int_equal(so_far->n_events, ++*n * 65536);
}

/* Of 200 000 events, of one device or of several one after the other. */
static void test_progress_is_told(void **state)
{
    (void)state;
    static struct sy_sim_request requests[100000];
    for (int i = 0; i < 100000; i++)
        requests[i].at_ns = (sy_ns)i * 100 * MS;
    for (int n_devices = 1; n_devices <= 3; n_devices++) {
        struct sy_sim_config c = sim_plain();
        struct sy_sim_input in = {
            .models = &one_gb, .n_models = 1, .requests = requests, .n_requests = 100000};
        int n = 0;
        c.device.n_devices = n_devices;
        c.progress = count_calls;
        c.progress_ctx = &n;
        sy_sim_report_free(sim_run(&c, &in));
        assert_int_equal(n, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_of_centuries_is_not_the_shortest),
        cmocka_unit_test(test_what_no_clock_holds_is_refused),
        cmocka_unit_test(test_quantiles_of_years),
        cmocka_unit_test(test_a_copy_dies_with_its_worker),
        cmocka_unit_test(test_progress_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

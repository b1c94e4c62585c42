/* Tenants in the simulator: hard and elastic shares, memory quotas of jobs and models, training's share of the time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim.h"
#include "tests/rigs/sim_rig.h"

#define MS SY_NS_PER_MS
#define S  SY_NS_PER_S
#define GB 1000000000ull

static double share_of(const struct sy_sim_report *r, int tenant)
{
    return (double)r->tenant_ns[tenant] / (double)r->makespan_ns;
}

/* A hard share is kept alone too; an elastic one takes what is left, and gives it back. */
static void test_shares(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_tenant tenants[] = {{.name = "hard", .hard_permille = 300}, {.name = "elastic"}};
    struct sy_sim_job jobs[] = {sim_job("a", 0, 100000, 20 * MS), sim_job("b", 0, 100000, 30 * MS)};
    struct sy_sim_input in = {.jobs = jobs, .n_jobs = 1, .tenants = tenants, .n_tenants = 2};
    c.policy.kind = SY_POLICY_FAIR;
    c.end_ns = 60 * S;
    jobs[1].tenant = 1;
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_true(fabs(share_of(r, 0) - 0.3) < 0.01);
    assert_string_equal(r->tenant_names[0], "hard");
    sy_sim_report_free(r);
    in.n_jobs = 2;
    r = sim_run(&c, &in);
    assert_true(fabs(share_of(r, 0) - 0.3) < 0.01);
    assert_true(fabs(share_of(r, 1) - 0.7) < 0.01);
    sy_sim_report_free(r);
    /* Weights of tenants, not of jobs. */
    tenants[0] = (struct sy_sim_tenant){.name = "three", .weight = 3};
    c.policy.kind = SY_POLICY_WEIGHTED;
    r = sim_run(&c, &in);
    assert_true(fabs(share_of(r, 0) - 0.75) < 0.01);
    sy_sim_report_free(r);
}

/* Two jobs of 1.1 GB: one fits the quota, nobody else's is refused, and its end makes room for the next. */
static void test_jobs_over_a_quota_are_refused_alone(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_tenant tenants[] = {{.name = "tight", .memory_bytes = 2 * GB}, {.name = "free"}};
    struct sy_sim_job jobs[] = {sim_job("fits", 0, 10, 100 * MS), sim_job("over", S / 2, 10, MS),
                                sim_job("other", S / 2, 10, MS), sim_job("later", 5 * S, 10, MS)};
    struct sy_sim_input in = {.jobs = jobs, .n_jobs = 4, .tenants = tenants, .n_tenants = 2};
    jobs[2].tenant = 1;
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_int_equal(r->n_jct, 3);
    assert_int_equal(r->n_jobs_refused, 1);
    assert_non_null(strstr(r->refusal, "job over: the job needs"));
    assert_non_null(strstr(r->refusal, "the tenant's quota of 2000000000"));
    sy_sim_report_free(r);
    /* With more devices there is mostly one whose quota has room, and it is found. */
    c.device.n_devices = 2;
    int n_refused = 0;
    for (c.seed = 0; c.seed < 40; c.seed++) {
        r = sim_run(&c, &in);
        n_refused += (int)r->n_jobs_refused;
        sy_sim_report_free(r);
    }
    assert_true(n_refused > 0 &&
                n_refused < 20); /* both that are asked are the full one: a quarter */
}

/* The second model is over its tenant's quota: no device has it, its requests are refused, the others' served. A job finds what the
 * first left. */
static void test_models_count_for_the_quota(void **state)
{
    (void)state;
    struct sy_sim_model models[] = {
        {.name = "first", .bytes = GB, .compute_ns = MS, .n_groups = 4},
        {.name = "second", .bytes = GB, .compute_ns = MS, .n_groups = 4},
        {.name = "other", .bytes = GB, .compute_ns = MS, .n_groups = 4, .tenant = 1}};
    struct sy_sim_tenant tenants[] = {{.name = "tight", .memory_bytes = 19 * GB / 10},
                                      {.name = "free"}};
    struct sy_sim_job job = sim_job("j", 0, 10, MS); /* 1.1 GB beside the model's 1 GB */
    struct sy_sim_request requests[90];
    for (int i = 0; i < 90; i++)
        requests[i] = (struct sy_sim_request){.at_ns = S + (sy_ns)i * S, .model = i % 3};
    struct sy_sim_input in = {.models = models,
                              .n_models = 3,
                              .requests = requests,
                              .n_requests = 90,
                              .tenants = tenants,
                              .n_tenants = 2};
    for (int router = 0; router < SY_SIM_N_ROUTERS; router++)
        for (int n_devices = 1; n_devices <= 3; n_devices += 2) {
            struct sy_sim_config c = sim_plain();
            c.router = (enum sy_sim_router)router;
            c.device.n_devices = n_devices;
            struct sy_sim_report *r = sim_run(&c, &in);
            assert_int_equal(r->n_models_refused, 1);
            assert_non_null(strstr(r->model_refusal, "model second needs"));
            assert_string_equal(r->refusal, "");
            assert_int_equal(r->n_done, 60);
            assert_int_equal(r->n_refused, 30);
            assert_int_equal(r->n_not_loaded, 30);
            sy_sim_report_free(r);
        }
    struct sy_sim_config c = sim_plain();
    in.jobs = &job;
    in.n_jobs = 1;
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_int_equal(r->n_jobs_refused, 1);
    sy_sim_report_free(r);
    job.tenant = 1;
    r = sim_run(&c, &in);
    assert_int_equal(r->n_jobs_refused, 0);
    assert_int_equal(r->n_jct, 1);
    sy_sim_report_free(r);
    in.n_requests = 0; /* without requests no model is loaded */
    job.tenant = 0;
    r = sim_run(&c, &in);
    assert_int_equal(r->n_jobs_refused, 0);
    sy_sim_report_free(r);
}

/* What is refused is not there: jobs of others have the room that it would have taken. */
static void test_a_refused_model_takes_no_room(void **state)
{
    (void)state;
    struct sy_sim_model models[] = {
        {.name = "over", .bytes = 3 * GB, .compute_ns = MS, .n_groups = 4},
        {.name = "other", .bytes = GB, .compute_ns = MS, .n_groups = 4, .tenant = 1}};
    struct sy_sim_tenant tenants[] = {{.name = "tight", .memory_bytes = GB}, {.name = "free"}};
    struct sy_sim_job job = sim_job("j", 0, 10, MS); /* 1.1 GB */
    struct sy_sim_request request = {.model = 1};
    struct sy_sim_input in = {.models = models,
                              .n_models = 2,
                              .requests = &request,
                              .n_requests = 1,
                              .jobs = &job,
                              .n_jobs = 1,
                              .tenants = tenants,
                              .n_tenants = 2};
    struct sy_sim_config c = sim_plain();
    c.device.pool_bytes = 4 * GB;
    job.tenant = 1;
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_int_equal(r->n_models_refused, 1);
    assert_int_equal(r->n_jobs_refused, 0);
    assert_int_equal(r->n_jct, 1);
    sy_sim_report_free(r);
}

/* A job a second, each of which brings its tenant's weight: the share holds all the same. */
static void test_a_weight_does_not_renew_a_hard_share(void **state)
{
    (void)state;
    enum { N = 40 };
    struct sy_sim_job jobs[N];
    struct sy_sim_tenant tenant = {.name = "t", .hard_permille = 100};
    struct sy_sim_config c = sim_plain();
    for (int i = 0; i < N; i++) {
        jobs[i] = sim_job("j", (sy_ns)i * S, 1, S);
        jobs[i].weight = 1;
    }
    struct sy_sim_input in = {.jobs = jobs, .n_jobs = N, .tenants = &tenant, .n_tenants = 1};
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_int_equal(r->n_jct, N);
    assert_true(share_of(r, 0) < 0.11);
    sy_sim_report_free(r);
}

/* With deadlines: what training may not use, or nobody wants, is not predicted to be gone. */
static void test_predictions_leave_to_training_what_it_can_use(void **state)
{
    (void)state;
    enum { N = 1000 };
    static struct sy_sim_request requests[N];
    struct sy_sim_model model = {.name = "m", .bytes = 1, .compute_ns = 10 * MS, .n_groups = 1};
    struct sy_sim_tenant tenant = {.name = "t", .hard_permille = 10};
    struct sy_sim_job jobs[] = {sim_job("short", 0, 10, 5 * MS),
                                sim_job("long", 0, 100000, 5 * MS)};
    struct sy_sim_config c = sim_plain();
    for (int i = 0; i < N; i++)
        requests[i] =
            (struct sy_sim_request){.at_ns = S + (sy_ns)i * 30 * MS, .deadline_ns = 25 * MS};
    struct sy_sim_input in = {.models = &model,
                              .n_models = 1,
                              .requests = requests,
                              .n_requests = N,
                              .jobs = jobs,
                              .n_jobs = 1,
                              .tenants = &tenant,
                              .n_tenants = 1};
    c.train_share = 0.8;
    c.end_ns = 31 * S;
    tenant.hard_permille = 0;
    struct sy_sim_report *r = sim_run(&c, &in); /* the job is done before the first request */
    assert_int_equal(r->n_refused, 0);
    sy_sim_report_free(r);
    in.jobs = &jobs[1];
    r = sim_run(&c, &in); /* one that takes all it is given: 10 ms take 50 */
    assert_int_equal(r->n_refused, N);
    sy_sim_report_free(r);
    tenant.hard_permille = 10;
    r = sim_run(&c, &in);
    assert_true(r->n_refused < N / 20 && r->n_late < N / 20);
    sy_sim_report_free(r);
}

static struct sy_sim_report *flood(double train_share, unsigned hard_permille)
{
    enum { N = 4000 };
    static struct sy_sim_request requests[N];
    struct sy_sim_model model = {.name = "m", .bytes = 1, .compute_ns = 10 * MS, .n_groups = 1};
    struct sy_sim_tenant tenant = {.name = "t", .hard_permille = hard_permille};
    struct sy_sim_job job = sim_job("j", 0, 1000000, 5 * MS);
    struct sy_sim_config c = sim_plain();
    for (int i = 0; i < N; i++)
        requests[i] = (struct sy_sim_request){.at_ns = (sy_ns)i * 10 * MS};
    c.train_share = train_share;
    c.end_ns = 40 * S;
    c.max_queue = N;
    struct sy_sim_input in = {.models = &model,
                              .n_models = 1,
                              .requests = requests,
                              .n_requests = N,
                              .jobs = &job,
                              .n_jobs = 1,
                              .tenants = &tenant,
                              .n_tenants = 1};
    return sim_run(&c, &in);
}

/* Requests keep a thousandth of the time when all of it is guaranteed to training; what a hard share forbids to use is not guaranteed. */
static void test_training_has_its_share_and_requests_the_rest(void **state)
{
    (void)state;
    static const double shares[] = {0.3, 0.9, 1};
    for (int i = 0; i < 3; i++) {
        struct sy_sim_report *r = flood(shares[i], 0);
        double requests = (double)r->used_ns[SY_SIM_USE_REQUESTS] / 40e9;
        assert_true(fabs(requests - (shares[i] < 1 ? 1 - shares[i] : 0.001)) < 0.02);
        assert_true(r->n_done > 0);
        assert_true(share_of(r, 0) > shares[i] - 0.02);
        sy_sim_report_free(r);
    }
    struct sy_sim_report *r = flood(0.5, 100);
    assert_true((double)r->used_ns[SY_SIM_USE_REQUESTS] / 40e9 > 0.88);
    assert_true(share_of(r, 0) < 0.11);
    sy_sim_report_free(r);
}

static void test_tenants_are_checked(void **state)
{
    (void)state;
    struct sy_sim_tenant tenant = {.name = "t", .hard_permille = 1001};
    struct sy_sim_job job = sim_job("j", 0, 1, MS);
    struct sy_sim_input in = {.jobs = &job, .n_jobs = 1, .tenants = &tenant, .n_tenants = 1};
    struct sy_sim_config c = sim_plain();
    struct sy_sim_report *r = sy_sim_report_new();
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "tenant t: weight 0, hard share 1001"));
    tenant.hard_permille = 0;
    job.tenant = SY_SIM_MAX_TENANTS;
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "job j: tenant 256"));
    job.tenant = 0;
    c.train_share = 1.01;
    assert_int_equal(sy_sim_run(&c, &in, r), SY_EARG);
    sy_sim_report_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_jobs_over_a_quota_are_refused_alone),
        cmocka_unit_test(test_models_count_for_the_quota),
        cmocka_unit_test(test_a_refused_model_takes_no_room),
        cmocka_unit_test(test_a_weight_does_not_renew_a_hard_share),
        cmocka_unit_test(test_predictions_leave_to_training_what_it_can_use),
        cmocka_unit_test(test_training_has_its_share_and_requests_the_rest),
        cmocka_unit_test(test_tenants_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Salus' two experiments in the simulator: 100 training jobs under each policy, and 42 models on one device. */
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
#include "runtime/sim/sim_trace.h"

static struct sy_sim_tenants tenants;

#define TRACES "examples/traces/"

struct outcome {
    double mean_s, makespan_s, queue_s;
};

static struct outcome run_jobs(enum sy_policy_kind policy, bool spill, double contention)
{
    struct sy_sim_config c;
    struct sy_sim_job *jobs;
    struct sy_sim_input in = {};
    struct sy_sim_report *r = sy_sim_report_new();
    sy_sim_config_default(&c);
    c.policy.kind = policy;
    c.spill = spill;
    c.check = true;
    c.device.contention = contention;
    assert_non_null(r);
    if (sy_sim_read_jobs(TRACES "salus-100.csv", &tenants, &jobs, &in.n_jobs) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(in.n_jobs, 100);
    in.jobs = jobs;
    if (sy_sim_run(&c, &in, r) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(r->n_jct, 100);
    assert_int_equal(r->copied_bytes, 0);
    struct outcome o = {sy_sim_jct_mean_s(r), (double)r->makespan_ns / 1e9, r->queue_s / 100};
    print_message("%-5s%s contention %.2f: mean %.1f min, makespan %.1f min, queue %.1f min\n",
                  sy_policy_name(policy), spill ? " --spill" : "", contention, o.mean_s / 60,
                  o.makespan_s / 60, o.queue_s / 60);
    sy_sim_report_free(r);
    free(jobs);
    return o;
}

/* The paper: 53.4 < 96.6 < 145.5 < 170.6 minutes; 170.6 / 53.4 = 3.19. */
static void test_a_hundred_jobs(void **state)
{
    (void)state;
    struct outcome fifo = run_jobs(SY_POLICY_FIFO, false, 0);
    struct outcome pack = run_jobs(SY_POLICY_PACK, false, 0);
    struct outcome fair = run_jobs(SY_POLICY_FAIR, false, 0);
    struct outcome srtf = run_jobs(SY_POLICY_SRTF, true, 0);
    struct outcome kept = run_jobs(SY_POLICY_SRTF, false, 0);
    assert_true(srtf.mean_s < fair.mean_s && fair.mean_s < pack.mean_s &&
                pack.mean_s < fifo.mean_s);
    assert_true(fifo.mean_s / srtf.mean_s >= 3.19);
    assert_true(fabs(srtf.makespan_s / fifo.makespan_s - 1) <= 0.01);
    assert_true(kept.mean_s < fair.mean_s); /* the order does not hang on spilling */
    assert_true(kept.makespan_s / fifo.makespan_s <= 1.01);
}

/* Only pack runs lanes beside each other, so only pack changes; up to 5 % a lane the order stays. */
static void test_contention_slows_pack_alone(void **state)
{
    (void)state;
    struct outcome fifo = run_jobs(SY_POLICY_FIFO, false, 0.1);
    struct outcome pack = run_jobs(SY_POLICY_PACK, false, 0.05);
    assert_true(fabs(fifo.mean_s / run_jobs(SY_POLICY_FIFO, false, 0).mean_s - 1) < 1e-9);
    assert_true(pack.mean_s > run_jobs(SY_POLICY_PACK, false, 0).mean_s);
    assert_true(pack.mean_s < fifo.mean_s);
}

/* ---- 14 models x 3 replicas on one device ---- */

struct by_model {
    const struct sy_sim_model *models;
    double *latency_ms[14];
    size_t n[14];
    double sum_ms[14];
};

static void note(void *ctx, const struct sy_sim_request *r, int device, enum sy_sim_outcome outcome,
                 sy_ns latency_ns, sy_ns served_ns)
{
    struct by_model *by = ctx;
    (void)device;
    assert_true(served_ns > 0 && served_ns <= latency_ns);
    assert_int_equal(outcome, SY_SIM_DONE);
    int model = r->model % 14; /* replicas are one model's */
    by->latency_ms[model][by->n[model]++] = (double)latency_ns / 1e6;
    by->sum_ms[model] += (double)latency_ns / 1e6;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Over models: the most that the mean is above what the model takes alone, and the largest p99 ÷ that. */
static void run_packing(const char *generate, double *over_ms, double *p99_ratio)
{
    struct sy_sim_config c;
    struct sy_sim_generator g;
    struct sy_sim_model *models;
    struct sy_sim_request *requests;
    struct sy_sim_input in = {};
    struct sy_sim_report *r = sy_sim_report_new();
    struct by_model by = {0};
    sy_sim_config_default(&c);
    c.check = true;
    c.answered = note;
    c.answered_ctx = &by;
    assert_non_null(r);
    if (sy_sim_read_models(TRACES "packing-42.csv", &tenants, &models, &in.n_models) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(in.n_models, 42);
    assert_int_equal(sy_sim_generator_parse(generate, &g), SY_OK);
    assert_int_equal(sy_sim_generate(&g, 1, &requests, &in.n_requests), SY_OK);
    for (int i = 0; i < 14; i++)
        assert_non_null(by.latency_ms[i] = calloc(in.n_requests, sizeof(double)));
    by.models = in.models = models;
    in.requests = requests;
    assert_int_equal(sy_sim_run(&c, &in, r), SY_OK);
    assert_int_equal(r->n_swaps, 42); /* once each: they all stay */
    *over_ms = *p99_ratio = 0;
    for (int i = 0; i < 14; i++) {
        double alone = (double)models[i].compute_ns / 1e6;
        qsort(by.latency_ms[i], by.n[i], sizeof(double), compare_double);
        *over_ms = fmax(*over_ms, by.sum_ms[i] / (double)by.n[i] - alone);
        *p99_ratio = fmax(*p99_ratio, by.latency_ms[i][by.n[i] * 99 / 100] / alone);
        free(by.latency_ms[i]);
    }
    print_message("%s: mean at most %.2f ms above alone, p99 at most %.3f of alone\n", generate,
                  *over_ms, *p99_ratio);
    free(models);
    free(requests);
    sy_sim_report_free(r);
}

/* Each replica is asked every two minutes; then, the mean alone, every 8 seconds. */
static void test_42_models_on_one_device(void **state)
{
    (void)state;
    double over_ms, p99_ratio;
    run_packing("rate=0.35,seconds=120000,models=42,zipf=0", &over_ms, &p99_ratio);
    assert_true(over_ms <= 5);
    assert_true(p99_ratio <= 1.1);
    run_packing("rate=5,seconds=8000,models=42,zipf=0", &over_ms, &p99_ratio);
    assert_true(over_ms <= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hundred_jobs),
        cmocka_unit_test(test_contention_slows_pack_alone),
        cmocka_unit_test(test_42_models_on_one_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

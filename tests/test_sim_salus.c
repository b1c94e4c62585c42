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

#define TRACES "examples/traces/"

struct outcome {
    double mean_s, makespan_s, queue_s;
};

static struct outcome run_jobs(enum sy_policy_kind policy, bool spill, double contention)
{
    struct sy_sim_config c;
    struct sy_sim_job *jobs;
    struct sy_sim_input in = {0};
    struct sy_sim_report *r = sy_sim_report_new();
    sy_sim_config_default(&c);
    c.policy.kind = policy;
    c.spill = spill;
    c.check = true;
    c.contention = contention;
    assert_non_null(r);
    if (sy_sim_read_jobs(TRACES "salus-100.csv", &jobs, &in.n_jobs) < 0)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hundred_jobs),
        cmocka_unit_test(test_contention_slows_pack_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

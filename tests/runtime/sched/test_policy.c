/* Job policies: shares, finishing times and waits against their stated bounds. */
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
#include "runtime/sched/policy.h"
#include "tests/rigs/seed.h"

#define MS SY_NS_PER_MS

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

static struct sy_policy *make(enum sy_policy_kind kind, int n_parallel, sy_ns max_wait_ns)
{
    struct sy_policy_config config = {kind, 64, n_parallel, max_wait_ns};
    struct sy_policy *p;
    assert_int_equal(sy_policy_create(&config, &p), SY_OK);
    return p;
}

/* ---- a device that runs jobs: made time ---- */

struct load {
    uint64_t id;
    int lane, tenant, priority;
    uint64_t left; /* 0: for ever */
    sy_ns least_ns, most_ns;
    /* what the test sees */
    sy_ns used_ns, ends_at, ready_since, longest_wait_ns, done_at;
    bool running, gone;
};

static void join(struct sy_policy *p, struct load *j, sy_ns now)
{
    struct sy_policy_job job = {j->id,       j->lane, j->tenant,
                                j->priority, j->left, (j->least_ns + j->most_ns) / 2};
    assert_int_equal(sy_policy_join(p, &job, now), SY_OK);
    j->ready_since = now;
}

static void start_all(struct sy_policy *p, struct load *jobs, int n, sy_ns now, sy_ns *again)
{
    uint64_t id;
    while (sy_policy_next(p, now, &id, again)) {
        struct load *j = jobs;
        while (j < jobs + n && j->id != id)
            j++;
        assert_true(j < jobs + n && !j->running && !j->gone);
        for (int i = 0; i < n; i++) /* P1 */
            assert_false(jobs[i].running && jobs[i].lane == j->lane);
        j->running = true;
        j->ends_at = now + j->least_ns + below(j->most_ns - j->least_ns + 1);
        j->longest_wait_ns = SY_MAX(j->longest_wait_ns, now - j->ready_since);
    }
}

/* Ends the iteration that ends first; false: nothing runs. */
static bool end_one(struct sy_policy *p, struct load *jobs, int n, sy_ns *now)
{
    struct load *first = NULL;
    for (int i = 0; i < n; i++)
        if (jobs[i].running && (!first || jobs[i].ends_at < first->ends_at))
            first = &jobs[i];
    if (!first)
        return false;
    sy_ns begun = *now;
    *now = SY_MAX(*now, first->ends_at);
    sy_ns ns = SY_MAX(first->ends_at - begun, 1);
    first->running = false;
    first->used_ns += ns;
    first->ready_since = *now;
    assert_int_equal(sy_policy_done(p, first->id, ns, *now), SY_OK);
    if (first->left > 0 && --first->left == 0) {
        assert_int_equal(sy_policy_leave(p, first->id), SY_OK);
        first->gone = true;
        first->done_at = *now;
    }
    return true;
}

/* One iteration at a time until `until`: each job's device time is what passed. */
static sy_ns run(struct sy_policy *p, struct load *jobs, int n, sy_ns now, sy_ns until)
{
    sy_ns again;
    while (now < until) {
        start_all(p, jobs, n, now, &again);
        if (!end_one(p, jobs, n, &now)) {
            if (again == 0)
                break;
            now = again;
        }
    }
    return now;
}

static double jain(const double *x, int n)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i];
        squares += x[i] * x[i];
    }
    return sum * sum / (n * squares);
}

static sy_ns longest(const struct load *jobs, int n)
{
    sy_ns ns = 0;
    for (int i = 0; i < n; i++)
        ns = SY_MAX(ns, jobs[i].most_ns);
    return ns;
}

static void make_unequal(struct load *jobs, int n)
{
    memset(jobs, 0, (size_t)n * sizeof *jobs);
    for (int i = 0; i < n; i++) {
        sy_ns ns = (5 + below(400)) * MS;
        jobs[i] = (struct load){
            .id = (uint64_t)i + 1, .lane = i, .least_ns = ns - ns / 4, .most_ns = ns + ns / 4};
    }
}

/* ---- fair ---- */

static void test_fair_is_fair(void **state)
{
    (void)state;
    double worst = 1;
    for (int round = 0; round < 200; round++)
        for (int n = 2; n <= 8; n++) {
            struct load jobs[8];
            double x[8];
            struct sy_policy *p = make(SY_POLICY_FAIR, 0, 0);
            make_unequal(jobs, n);
            for (int i = 0; i < n; i++)
                join(p, &jobs[i], 0);
            run(p, jobs, n, 0, 60 * SY_NS_PER_S);
            for (int i = 0; i < n; i++) {
                x[i] = (double)jobs[i].used_ns;
                assert_int_equal(sy_policy_job_ns(p, jobs[i].id), jobs[i].used_ns);
                assert_true(jobs[i].longest_wait_ns <= 2 * (unsigned)(n - 1) * longest(jobs, n));
            }
            worst = SY_MIN(worst, jain(x, n));
            sy_policy_destroy(p);
        }
    print_message("least Jain index after 60 s, 2 to 8 unequal jobs: %.5f\n", worst);
    assert_true(worst >= 0.99);
}

/* Who joins after 60 s gets its share of what comes, no more and no less. So does who was blocked, and everybody after a switch. */
static void test_a_late_job_neither_monopolises_nor_starves(void **state)
{
    (void)state;
    struct load jobs[4];
    double x[4];
    struct sy_policy *p = make(SY_POLICY_FAIR, 0, 0);
    make_unequal(jobs, 4);
    for (int i = 0; i < 3; i++)
        join(p, &jobs[i], 0);
    sy_ns now = run(p, jobs, 3, 0, 60 * SY_NS_PER_S);
    join(p, &jobs[3], now);
    for (int i = 0; i < 3; i++)
        x[i] = (double)jobs[i].used_ns;
    x[3] = 0;
    now = run(p, jobs, 4, now, now + 60 * SY_NS_PER_S);
    for (int i = 0; i < 4; i++)
        x[i] = (double)jobs[i].used_ns - x[i];
    assert_true(jain(x, 4) >= 0.99);
    assert_int_equal(sy_policy_block(p, jobs[0].id, true, now), SY_OK);
    now = run(p, jobs, 4, now, now + 60 * SY_NS_PER_S);
    assert_int_equal(sy_policy_block(p, jobs[0].id, false, now), SY_OK);
    for (int i = 0; i < 4; i++)
        x[i] = (double)jobs[i].used_ns;
    now = run(p, jobs, 4, now, now + 60 * SY_NS_PER_S);
    for (int i = 0; i < 4; i++)
        x[i] = (double)jobs[i].used_ns - x[i];
    assert_true(jain(x, 4) >= 0.99);
    assert_int_equal(sy_policy_set(p, SY_POLICY_FIFO, 0, 0), SY_OK);
    now = run(p, jobs, 4, now, now + 60 * SY_NS_PER_S);
    assert_int_equal(sy_policy_set(p, SY_POLICY_FAIR, 0, 0), SY_OK);
    for (int i = 0; i < 4; i++)
        x[i] = (double)jobs[i].used_ns;
    run(p, jobs, 4, now, now + 60 * SY_NS_PER_S);
    for (int i = 0; i < 4; i++)
        x[i] = (double)jobs[i].used_ns - x[i];
    assert_true(jain(x, 4) >= 0.99);
    sy_policy_destroy(p);
}

/* ---- weighted ---- */

static void test_weighted_shares(void **state)
{
    (void)state;
    double worst = 0;
    for (int round = 0; round < 100; round++) {
        struct load jobs[6];
        unsigned weight[3], sum = 0;
        double used[3] = {0}, all = 0;
        struct sy_policy *p = make(SY_POLICY_WEIGHTED, 0, 0);
        make_unequal(jobs, 6);
        for (int t = 0; t < 3; t++) {
            sum += weight[t] = 1 + (unsigned)below(8);
            assert_int_equal(sy_policy_set_tenant(p, t, weight[t], 0), SY_OK);
        }
        for (int i = 0; i < 6; i++) {
            jobs[i].tenant = i < 3 ? i : (int)below(3);
            join(p, &jobs[i], 0);
        }
        run(p, jobs, 6, 0, 120 * SY_NS_PER_S);
        for (int i = 0; i < 6; i++) {
            used[jobs[i].tenant] += (double)jobs[i].used_ns;
            all += (double)jobs[i].used_ns;
        }
        for (int t = 0; t < 3; t++) {
            double off = used[t] / all - (double)weight[t] / sum;
            worst = SY_MAX(worst, off < 0 ? -off : off);
            assert_int_equal(sy_policy_tenant_ns(p, t), (uint64_t)used[t]);
        }
        sy_policy_destroy(p);
    }
    print_message("weighted: largest distance from the share after 120 s: %.4f\n", worst);
    assert_true(worst <= 0.02);
}

/* A hard share is kept on an idle device too; elastic ones take what is left, and give it back at once. */
static void test_hard_and_elastic_shares(void **state)
{
    (void)state;
    struct load jobs[2];
    struct sy_policy *p = make(SY_POLICY_WEIGHTED, 0, 0);
    make_unequal(jobs, 2);
    jobs[0].tenant = 0;
    jobs[1].tenant = 1;
    assert_int_equal(sy_policy_set_tenant(p, 0, 1, 250), SY_OK);
    join(p, &jobs[0], 0);
    sy_ns now = run(p, jobs, 2, 0, 60 * SY_NS_PER_S);
    double share = (double)jobs[0].used_ns / (double)now;
    assert_true(share > 0.23 && share < 0.27);
    join(p, &jobs[1], now);
    sy_ns begun = now, used = jobs[0].used_ns;
    now = run(p, jobs, 2, now, now + 60 * SY_NS_PER_S);
    share = (double)(jobs[0].used_ns - used) / (double)(now - begun);
    assert_true(share > 0.23 && share < 0.27); /* its weight would give it half */
    assert_true((double)jobs[1].used_ns / (double)(now - begun) > 0.72);
    sy_policy_destroy(p);
}

/* Time is of use to training while a job runs, or may: not while its hard share is used up, nor while it is blocked. */
static void test_who_can_use_time(void **state)
{
    (void)state;
    struct load job;
    uint64_t id;
    sy_ns again;
    struct sy_policy *p = make(SY_POLICY_FIFO, 0, 0);
    make_unequal(&job, 1);
    job.tenant = 0;
    assert_int_equal(sy_policy_set_tenant(p, 0, 1, 100), SY_OK);
    assert_false(sy_policy_can_use(p, 0));
    join(p, &job, 0);
    assert_true(sy_policy_can_use(p, 0));
    assert_true(sy_policy_next(p, 0, &id, &again));
    assert_true(sy_policy_can_use(p, 0));
    assert_int_equal(sy_policy_done(p, id, SY_NS_PER_S, SY_NS_PER_S), SY_OK);
    assert_false(sy_policy_next(p, SY_NS_PER_S, &id, &again));
    assert_false(sy_policy_can_use(p, SY_NS_PER_S));
    assert_false(sy_policy_can_use(p, again - 1));
    assert_true(sy_policy_can_use(p, again));
    assert_int_equal(sy_policy_block(p, id, true, again), SY_OK);
    assert_false(sy_policy_can_use(p, again));
    sy_policy_destroy(p);
}

static void test_how_much_can_be_used(void **state)
{
    (void)state;
    struct load jobs[4];
    struct sy_policy *p = make(SY_POLICY_FIFO, 0, 0);
    make_unequal(jobs, 4);
    assert_int_equal(sy_policy_usable_permille(p), 0);
    for (int i = 0; i < 4; i++) {
        jobs[i].tenant = i / 2; /* two each */
        assert_int_equal(sy_policy_set_tenant(p, i / 2, 1, i < 2 ? 300 : 250), SY_OK);
        join(p, &jobs[i], 0);
        assert_int_equal(sy_policy_usable_permille(p), i < 2 ? 300 : 550);
    }
    assert_int_equal(sy_policy_set_tenant(p, 0, 1, 0), SY_OK);
    assert_int_equal(sy_policy_usable_permille(p), 1000);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sy_policy_block(p, (uint64_t)i + 1, true, 0), SY_OK);
    assert_int_equal(sy_policy_usable_permille(p), 250);
    sy_policy_destroy(p);
}

/* Iterations of months: neither a share nor a weight forgets them. */
static void test_long_iterations_are_counted_whole(void **state)
{
    (void)state;
    struct load job;
    uint64_t id;
    sy_ns again;
    const sy_ns months = 19000000ull * SY_NS_PER_S;
    struct sy_policy *p = make(SY_POLICY_WEIGHTED, 0, 0);
    make_unequal(&job, 1);
    job.tenant = 0;
    assert_int_equal(sy_policy_set_tenant(p, 0, 1, 100), SY_OK);
    join(p, &job, 0);
    assert_true(sy_policy_next(p, 0, &id, &again));
    assert_int_equal(sy_policy_done(p, id, months, months), SY_OK);
    assert_false(sy_policy_next(p, months, &id, &again));
    assert_true(again > 9 * months && again < 11 * months);
    sy_policy_destroy(p);
}

/* ---- srtf and the others by their finishing times ---- */

static double mean_finish(enum sy_policy_kind kind, const struct load *from, int n)
{
    struct load jobs[8];
    double sum = 0;
    struct sy_policy *p = make(kind, 0, 0);
    memcpy(jobs, from, (size_t)n * sizeof *jobs);
    for (int i = 0; i < n; i++)
        join(p, &jobs[i], 0);
    run(p, jobs, n, 0, UINT64_MAX);
    for (int i = 0; i < n; i++)
        sum += (double)jobs[i].done_at;
    sy_policy_destroy(p);
    return sum / n;
}

/* Over all orders of running n jobs to their end one by one: the least mean finishing time. */
static double best_mean(const struct load *jobs, int n, unsigned done, double at)
{
    double best = -1;
    for (int i = 0; i < n; i++) {
        if (done & 1u << i)
            continue;
        double end = at + (double)jobs[i].left * (double)jobs[i].least_ns;
        double rest = end / n + best_mean(jobs, n, done | 1u << i, end);
        if (best < 0 || rest < best)
            best = rest;
    }
    return best < 0 ? 0 : best;
}

static void test_srtf_is_optimal(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct load jobs[6];
        int n = 2 + (int)below(5);
        make_unequal(jobs, n);
        for (int i = 0; i < n; i++) {
            jobs[i].most_ns = jobs[i].least_ns;
            jobs[i].left = 1 + below(30);
        }
        double srtf = mean_finish(SY_POLICY_SRTF, jobs, n), best = best_mean(jobs, n, 0, 0);
        assert_true(srtf >= best * 0.999999 && srtf <= best * 1.000001);
        assert_true(mean_finish(SY_POLICY_FIFO, jobs, n) >= srtf * 0.999999);
        assert_true(mean_finish(SY_POLICY_FAIR, jobs, n) >= srtf * 0.999999);
    }
}

/* Lengths that nobody knows: las is nearer to the best mean than fifo where few jobs are long, and nearer than fair where they come later. */
static void test_las_lets_short_jobs_through(void **state)
{
    (void)state;
    struct load jobs[8] = {0};
    for (int i = 0; i < 8; i++)
        jobs[i] = (struct load){.id = (unsigned)i + 1,
                                .lane = i,
                                .left = i == 0 ? 1000 : 10,
                                .least_ns = 10 * MS,
                                .most_ns = 10 * MS};
    double las = mean_finish(SY_POLICY_LAS, jobs, 8), srtf = mean_finish(SY_POLICY_SRTF, jobs, 8);
    assert_true(las < 2 * srtf && las < mean_finish(SY_POLICY_FIFO, jobs, 8) / 2);
}

/* Who comes later catches up first. */
static void test_las_prefers_newcomers(void **state)
{
    (void)state;
    struct sy_policy *p = make(SY_POLICY_LAS, 0, 0);
    struct load jobs[2] = {{.id = 1, .least_ns = MS, .most_ns = MS},
                           {.id = 2, .lane = 1, .least_ns = MS, .most_ns = MS}};
    join(p, &jobs[0], 0);
    sy_ns now = run(p, jobs, 1, 0, SY_NS_PER_S);
    join(p, &jobs[1], now);
    run(p, jobs, 2, now, now + SY_NS_PER_S - MS);
    assert_int_equal(jobs[0].used_ns, SY_NS_PER_S);
    assert_int_equal(jobs[1].used_ns, SY_NS_PER_S - MS);
    sy_policy_destroy(p);
}

/* ---- waits ---- */

/* P3: short and urgent jobs without end; the long, unimportant one runs all the same. */
static void test_nobody_starves(void **state)
{
    (void)state;
    for (int kind = 0; kind < SY_POLICY_N_KINDS; kind++) {
        struct load jobs[8];
        sy_ns max_wait = 2 * SY_NS_PER_S, bound;
        struct sy_policy *p = make((enum sy_policy_kind)kind, 1, max_wait);
        make_unequal(jobs, 8);
        for (int i = 0; i < 8; i++) {
            jobs[i].priority = i;
            jobs[i].left = (unsigned)(i + 1) * 100000;
            join(p, &jobs[i], 0);
        }
        run(p, jobs, 8, 0, 100 * SY_NS_PER_S);
        bound = max_wait + 8 * longest(jobs, 8);
        for (int i = 0; i < 8; i++)
            assert_true(jobs[i].used_ns > 0 && jobs[i].longest_wait_ns <= bound);
        sy_policy_destroy(p);
    }
}

static void test_rr_goes_round(void **state)
{
    (void)state;
    struct load jobs[8];
    struct sy_policy *p = make(SY_POLICY_RR, 0, 0);
    make_unequal(jobs, 8);
    for (int i = 0; i < 8; i++)
        join(p, &jobs[i], 0);
    run(p, jobs, 8, 0, 60 * SY_NS_PER_S);
    for (int i = 0; i < 8; i++)
        assert_true(jobs[i].longest_wait_ns <= 7 * longest(jobs, 8));
    sy_policy_destroy(p);
}

static void test_errors(void **state)
{
    (void)state;
    struct sy_policy *p = make(SY_POLICY_FIFO, 0, 0);
    struct sy_policy_job job = {.id = 1};
    enum sy_policy_kind kind;
    assert_int_equal(sy_policy_parse("weighted", &kind), SY_OK);
    assert_int_equal(kind, SY_POLICY_WEIGHTED);
    assert_int_equal(sy_policy_parse("lifo", &kind), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "srtf"));
    assert_int_equal(sy_policy_join(p, &job, 0), SY_OK);
    assert_int_equal(sy_policy_join(p, &job, 0), SY_EARG);
    assert_int_equal(sy_policy_done(p, 1, 5, 5), SY_EARG);
    assert_int_equal(sy_policy_done(p, 2, 5, 5), SY_ENOTFOUND);
    for (job.id = 2; job.id <= 64; job.id++)
        assert_int_equal(sy_policy_join(p, &job, 0), SY_OK);
    assert_int_equal(sy_policy_join(p, &job, 0), SY_EBUSY);
    job.lane = 64;
    assert_int_equal(sy_policy_join(p, &job, 0), SY_EARG);
    sy_policy_destroy(p);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fair_is_fair),
        cmocka_unit_test(test_a_late_job_neither_monopolises_nor_starves),
        cmocka_unit_test(test_weighted_shares),
        cmocka_unit_test(test_hard_and_elastic_shares),
        cmocka_unit_test(test_who_can_use_time),
        cmocka_unit_test(test_how_much_can_be_used),
        cmocka_unit_test(test_long_iterations_are_counted_whole),
        cmocka_unit_test(test_srtf_is_optimal),
        cmocka_unit_test(test_las_lets_short_jobs_through),
        cmocka_unit_test(test_las_prefers_newcomers),
        cmocka_unit_test(test_nobody_starves),
        cmocka_unit_test(test_rr_goes_round),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The share modes of cGPU and vGPU, made of weights and hard shares: switched live on one device, with unequal operations that overrun their share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/policy.h"
#include "tests/rigs/seed.h"

#define N       4 /* tenants, one job each: job t + 1 on lane t */
#define MINUTES (60 * SY_NS_PER_S)
#define NEAR    0.02 /* of the device */

static uint64_t seed;
static struct sy_policy *policy;
static sy_ns now;
static bool busy[N];
static sy_ns used[N], longest_ns[N];

/* What a mode sets; hard 0: elastic. */
struct mode {
    const char *name;
    enum sy_policy_kind kind;
    unsigned weight[N], hard_permille[N];
};

static const struct mode equal = {
    "equal (cGPU 0, vGPU equal)", SY_POLICY_WEIGHTED, {1, 1, 1, 1}, {250, 250, 250, 250}};
static const struct mode best_effort = {
    "best effort (cGPU 1, vGPU best effort)", SY_POLICY_WEIGHTED, {1, 1, 1, 1}, {0}};
static const struct mode weighted = {
    "weighted (cGPU 2 and 4)", SY_POLICY_WEIGHTED, {1, 2, 3, 4}, {0}};
static const struct mode fixed = {
    "fixed (cGPU 3, vGPU fixed)", SY_POLICY_WEIGHTED, {1, 1, 1, 1}, {100, 200, 300, 400}};

static void switch_to(const struct mode *mode)
{
    assert_int_equal(sy_policy_set(policy, mode->kind, 0, 0), SY_OK);
    for (int t = 0; t < N; t++)
        assert_int_equal(sy_policy_set_tenant(policy, t, mode->weight[t], mode->hard_permille[t]),
                         SY_OK);
}

static void set_busy(int t, bool is)
{
    if (busy[t] != is)
        assert_int_equal(sy_policy_block(policy, (uint64_t)t + 1, !is, now), SY_OK);
    busy[t] = is;
}

/* Operations of up to longest_ns, one at a time, that nothing interrupts. */
static void run_for(sy_ns ns)
{
    sy_ns until = now + ns, again;
    uint64_t job;
    for (int t = 0; t < N; t++)
        used[t] = 0;
    while (now < until) {
        if (!sy_policy_next(policy, now, &job, &again)) {
            assert_true(again > now); /* somebody is kept back by a hard share, not forgotten */
            now = again;
            continue;
        }
        sy_ns took = longest_ns[job - 1] / 2 + seed_below(&seed, longest_ns[job - 1] / 2);
        now += took;
        used[job - 1] += took;
        assert_int_equal(sy_policy_done(policy, job, took, now), SY_OK);
    }
}

/* What tenant t should have of the device while those who are busy are. */
static double due(const struct mode *mode, int t)
{
    double weights = 0;
    if (!busy[t])
        return 0;
    if (mode->hard_permille[t])
        return mode->hard_permille[t] / 1000.0;
    for (int i = 0; i < N; i++)
        weights += busy[i] ? mode->weight[i] : 0;
    return mode->weight[t] / weights;
}

static double check(const struct mode *mode, sy_ns ns)
{
    double worst = 0;
    run_for(ns);
    for (int t = 0; t < N; t++) {
        double off = (double)used[t] / (double)ns - due(mode, t);
        worst = SY_MAX(worst, off < 0 ? -off : off);
    }
    return worst;
}

static int set_up(void **state)
{
    (void)state;
    struct sy_policy_config config = {SY_POLICY_WEIGHTED, N, 0, 0};
    now = SY_NS_PER_S;
    assert_int_equal(sy_policy_create(&config, &policy), SY_OK);
    for (int t = 0; t < N; t++) {
        longest_ns[t] = (t % 2 ? 400 : 2) * SY_NS_PER_MS; /* long ones overrun, short ones do not */
        busy[t] = true;
        struct sy_policy_job job = {(uint64_t)t + 1, t, t, 0, 0, longest_ns[t] / 2};
        assert_int_equal(sy_policy_join(policy, &job, now), SY_OK);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sy_policy_destroy(policy);
    return 0;
}

/* Each mode with one to four tenants busy, in random order, on one policy. */
static void test_modes_are_switched_live(void **state)
{
    static const struct mode *const modes[] = {&equal, &best_effort, &weighted, &fixed};
    double worst[SY_ARRAY_LEN(modes)] = {0};
    int n_rounds[SY_ARRAY_LEN(modes)] = {0};
    (void)state;
    for (int round = 0; round < 80; round++) {
        size_t m = seed_below(&seed, SY_ARRAY_LEN(modes));
        uint64_t who = 1 + seed_below(&seed, (1u << N) - 1);
        n_rounds[m]++;
        switch_to(modes[m]);
        for (int t = 0; t < N; t++)
            set_busy(t, who >> t & 1);
        double off = check(modes[m], 3 * MINUTES); /* once: SY_MAX is a macro */
        worst[m] = SY_MAX(worst[m], off);
    }
    for (size_t m = 0; m < SY_ARRAY_LEN(modes); m++) {
        print_message("%s: at most %.4f of the device off in %d rounds\n", modes[m]->name, worst[m],
                      n_rounds[m]);
        assert_true(n_rounds[m] >= 5);
        assert_true(worst[m] <= NEAR);
    }
}

/* One that had ten seconds in one piece has no more until its share has caught up, and then its share exactly: overshoot is repaid. */
static void test_an_overshoot_is_repaid(void **state)
{
    uint64_t job;
    sy_ns again;
    (void)state;
    switch_to(&fixed);
    for (int t = 0; t < N; t++)
        set_busy(t, t == 1); /* a fifth */
    assert_true(sy_policy_next(policy, now, &job, &again) && job == 2);
    sy_ns begun = now, piece = 10 * SY_NS_PER_S;
    now += piece;
    assert_int_equal(sy_policy_done(policy, job, piece, now), SY_OK);
    assert_false(sy_policy_next(policy, now, &job, &again));
    assert_in_range(again - begun, 5 * piece - SY_NS_PER_S, 5 * piece + SY_NS_PER_S);
    run_for(4 * MINUTES);
    double share = (double)(piece + used[1]) / (double)(now - begun);
    assert_true(share > 0.2 - NEAR && share < 0.2 + NEAR);
}

/* GPUShare: long operations beside short ones, both always there. */
static void test_long_and_short_operations_have_half_each(void **state)
{
    (void)state;
    switch_to(&best_effort);
    set_busy(2, false);
    set_busy(3, false);
    assert_true(check(&best_effort, MINUTES) <= NEAR);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_modes_are_switched_live, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_overshoot_is_repaid, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_and_short_operations_have_half_each, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Recomputed activations: a plan run on numbers, its forgotten buffers erased, gives backward what it reads without a plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/seed.h"
#include "workers/engine/recompute_plan.h"

/* Step s writes buffers 2 * s and 2 * s + 1 from earlier ones; backward only reads. */
enum { MOST = 40, READS = 3, ERASED = 0 };

struct net {
    int n_forward, n_steps;
    int reads[2 * MOST][READS];
    bool trains[2 * MOST];
};

static uint64_t seed;

static void draw_net(struct net *net)
{
    net->n_forward = 1 + (int)seed_below(&seed, MOST);
    net->n_steps = 2 * net->n_forward;
    for (int s = 0; s < net->n_steps; s++) {
        int written = s < net->n_forward ? 2 * s : 2 * net->n_forward;
        net->trains[s] = s >= net->n_forward || seed_below(&seed, 8) > 0;
        for (int i = 0; i < READS; i++)
            net->reads[s][i] = written ? (int)seed_below(&seed, (uint64_t)written) : -1;
    }
    for (int s = 0; s < net->n_steps; s++) /* what is not computed in training nobody reads */
        for (int i = 0; i < READS; i++)
            if (net->reads[s][i] >= 0 && !net->trains[net->reads[s][i] / 2])
                net->reads[s][i] = -1;
}

static void describe(const struct net *net, bool together, struct sy_recompute *r)
{
    int n_buffers = 2 * net->n_forward;
    assert_int_equal(sy_recompute_init(r, net->n_forward, net->n_steps, n_buffers), SY_OK);
    r->keeps_together = together;
    for (int s = 0; s < net->n_steps; s++) {
        sy_recompute_add_step(r, net->trains[s]);
        for (int i = 0; i < READS; i++)
            if (net->reads[s][i] >= 0)
                assert_int_equal(sy_recompute_add_use(r, net->reads[s][i], false), SY_OK);
        for (int k = 0; k < 2 && s < net->n_forward; k++)
            assert_int_equal(sy_recompute_add_use(r, 2 * s + k, true), SY_OK);
    }
    for (int b = 0; b < n_buffers; b++) {
        r->buffers[b].bytes = 64 * (1 + seed_below(&seed, 100));
        r->buffers[b].is_pinned = seed_below(&seed, 10) == 0;
    }
}

/* What step s makes of what it reads; `again`: the second buffers, which stand for the forgotten ones. */
static uint64_t result(const struct net *net, int s, const uint64_t *values,
                       const struct sy_recompute *again, const uint64_t *seconds)
{
    uint64_t hash = (uint64_t)s + 1;
    for (int i = 0; i < READS; i++) {
        int b = net->reads[s][i];
        if (b < 0)
            continue;
        uint64_t value =
            again && again->n_buffers && again->buffers[b].is_forgotten ? seconds[b] : values[b];
        assert_true(value != ERASED);
        hash = hash * 0x9e3779b97f4a7c15u + value;
    }
    return hash | 1;
}

static void erase_forgotten(const struct sy_recompute *r, uint64_t *values)
{
    for (int b = 0; b < r->n_buffers; b++)
        if (r->buffers[b].is_forgotten)
            values[b] = ERASED;
}

/* Runs the plan; backward[s]: what backward step s makes. */
static void run_plan(const struct net *net, const struct sy_recompute *r, uint64_t *backward)
{
    uint64_t values[2 * MOST] = {0}, seconds[2 * MOST] = {0};
    for (int i = 0; i < r->n_turns; i++) {
        int s = r->turns[i].step;
        bool is_again = r->turns[i].is_again, is_forward = s < net->n_forward;
        if (!is_forward || is_again)
            erase_forgotten(r, values);
        uint64_t made = net->trains[s]
                            ? result(net, s, values, is_forward && !is_again ? NULL : r, seconds)
                            : ERASED;
        for (int k = 0; k < 2 && is_forward; k++) {
            int b = 2 * s + k;
            uint64_t *to = is_again && r->buffers[b].is_forgotten ? seconds : values;
            assert_true(!is_again || to == seconds || to[b] == made + (uint64_t)k * 2);
            to[b] = made ? made + (uint64_t)k * 2 : ERASED;
        }
        if (!is_forward)
            backward[s] = made;
    }
}

/* Each step once, nothing forgotten. */
static void run_straight(const struct net *net, uint64_t *backward)
{
    struct sy_recompute_turn turns[2 * MOST];
    struct sy_recompute plain = {.turns = turns, .n_turns = net->n_steps};
    for (int s = 0; s < net->n_steps; s++)
        turns[s] = (struct sy_recompute_turn){.step = s};
    run_plan(net, &plain, backward);
}

static void check_net(const struct net *net, bool together)
{
    struct sy_recompute r;
    uint64_t want[2 * MOST] = {0}, got[2 * MOST] = {0};
    describe(net, together, &r);
    assert_int_equal(sy_recompute_plan(&r), SY_OK);
    run_plan(net, &r, got);
    for (int b = 0; b < r.n_buffers; b++) {
        assert_false(r.buffers[b].is_pinned && r.buffers[b].is_forgotten);
        if (together && net->trains[b / 2])
            assert_int_equal(r.buffers[b].is_forgotten, r.buffers[b ^ 1].is_forgotten);
    }
    run_straight(net, want);
    assert_memory_equal(got, want, sizeof want);
    sy_recompute_finish(&r);
}

static void test_random_nets(void **state)
{
    (void)state;
    struct net net;
    for (int i = 0; i < 4000; i++) {
        draw_net(&net);
        check_net(&net, i % 2);
    }
}

/* A chain of equal tensors, all of which backward reads in reverse: about the square root of them stays. */
static void test_chain_is_cut(void **state)
{
    (void)state;
    enum { LENGTH = 64 };
    struct sy_recompute r;
    int n_kept = 0, n_again = 0;
    assert_int_equal(sy_recompute_init(&r, LENGTH, 2 * LENGTH, LENGTH), SY_OK);
    for (int s = 0; s < 2 * LENGTH; s++) {
        sy_recompute_add_step(&r, true);
        int read = s < LENGTH ? s - 1 : 2 * LENGTH - 1 - s;
        if (read >= 0)
            assert_int_equal(sy_recompute_add_use(&r, read, false), SY_OK);
        if (s < LENGTH)
            assert_int_equal(sy_recompute_add_use(&r, s, true), SY_OK);
    }
    for (int b = 0; b < LENGTH; b++)
        r.buffers[b].bytes = 1 << 20;
    assert_int_equal(sy_recompute_plan(&r), SY_OK);
    for (int b = 0; b < LENGTH; b++)
        n_kept += !r.buffers[b].is_forgotten;
    for (int i = 0; i < r.n_turns; i++)
        n_again += r.turns[i].is_again;
    /* Eight segments of eight: seven hand one tensor on, the last stays whole. */
    assert_int_equal(n_kept, 7 + 8);
    assert_int_equal(n_again, LENGTH - n_kept);
    sy_recompute_finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_nets),
        cmocka_unit_test(test_chain_is_cut),
    };
    seed = seed_of_run(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

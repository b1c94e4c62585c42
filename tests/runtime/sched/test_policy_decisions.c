/* Job policies: every decision against a naive one. */
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

#define N_NAIVE 12

struct naive {
    bool used, running, blocked;
    struct sy_policy_job is;
    uint64_t arrival, turn;
    sy_ns mean_ns, used_ns, since;
};

static int compare(enum sy_policy_kind kind, const struct naive *a, const struct naive *b)
{
    uint64_t x = 0, y = 0;
    if (kind == SY_POLICY_SRTF) {
        x = a->mean_ns == 0         ? 0
            : a->is.iterations_left ? a->mean_ns * a->is.iterations_left
                                    : UINT64_MAX;
        y = b->mean_ns == 0         ? 0
            : b->is.iterations_left ? b->mean_ns * b->is.iterations_left
                                    : UINT64_MAX;
    }
    if (kind == SY_POLICY_LAS) {
        x = a->used_ns;
        y = b->used_ns;
    }
    if (kind == SY_POLICY_PRIORITY && a->is.priority != b->is.priority)
        return a->is.priority < b->is.priority ? -1 : 1;
    if (kind == SY_POLICY_PRIORITY || kind == SY_POLICY_RR || kind == SY_POLICY_PACK) {
        x = a->turn;
        y = b->turn;
    }
    return x != y ? (x < y ? -1 : 1) : a->arrival < b->arrival ? -1 : 1;
}

static bool lane_runs(const struct naive *jobs, int lane)
{
    for (int i = 0; i < N_NAIVE; i++)
        if (jobs[i].used && jobs[i].running && jobs[i].is.lane == lane)
            return true;
    return false;
}

static struct naive *naive_next(struct naive *jobs, enum sy_policy_kind kind, int n_parallel,
                                sy_ns max_wait, sy_ns now)
{
    struct naive *best = NULL, *late = NULL;
    int n_running = 0;
    for (int i = 0; i < N_NAIVE; i++)
        n_running += jobs[i].used && jobs[i].running;
    if (n_running >= n_parallel)
        return NULL;
    for (int i = 0; i < N_NAIVE; i++) {
        struct naive *j = &jobs[i];
        if (!j->used || j->running || j->blocked || lane_runs(jobs, j->is.lane))
            continue;
        if (!best || compare(kind, j, best) < 0)
            best = j;
        if (now - j->since >= max_wait && (!late || j->since < late->since ||
                                           (j->since == late->since && j->arrival < late->arrival)))
            late = j;
    }
    return late ? late : best;
}

static void naive_done(struct naive *j, sy_ns ns, sy_ns now)
{
    j->running = false;
    j->used_ns += ns;
    j->mean_ns = j->mean_ns == 0 ? ns : (j->mean_ns * 7 + ns) / 8;
    j->is.iterations_left -= j->is.iterations_left > 1;
    j->since = now;
}

static void naive_event(struct sy_policy *p, struct naive *j, uint64_t *n_arrived, sy_ns now)
{
    uint64_t kind = below(10);
    if (!j->used) {
        *j = (struct naive){.used = true, .arrival = *n_arrived, .since = now};
        j->is = (struct sy_policy_job){++*n_arrived,  (int)below(6), 0,
                                       (int)below(4), below(50),     below(3) * 1000};
        j->mean_ns = j->is.iteration_ns;
        assert_int_equal(sy_policy_join(p, &j->is, now), SY_OK);
    } else if (j->running && kind < 6) {
        sy_ns ns = 1 + below(5000);
        assert_int_equal(sy_policy_done(p, j->is.id, ns, now), SY_OK);
        naive_done(j, ns, now);
    } else if (kind == 6) {
        assert_int_equal(sy_policy_leave(p, j->is.id), SY_OK);
        j->used = false;
    } else if (kind == 7) {
        bool block = !j->blocked;
        assert_int_equal(sy_policy_block(p, j->is.id, block, now), SY_OK);
        j->since = block ? j->since : now;
        j->blocked = block;
    } else if (kind == 8) {
        j->is.priority = (int)below(4);
        assert_int_equal(sy_policy_set_priority(p, j->is.id, j->is.priority), SY_OK);
    } else if (kind == 9 && j->running) {
        assert_int_equal(sy_policy_set_lane(p, j->is.id, 1), SY_EARG);
        assert_int_equal(sy_policy_undo(p, j->is.id), SY_OK);
        j->running = false;
    }
}

static void naive_run(enum sy_policy_kind kind, int n_parallel, sy_ns max_wait, int n_events)
{
    struct naive jobs[N_NAIVE] = {0};
    struct sy_policy *p = make(kind, n_parallel, max_wait);
    uint64_t n_arrived = 0, n_turns = 0, id;
    sy_ns now = 1000000, again;
    if (n_parallel == 0)
        n_parallel = kind == SY_POLICY_PACK ? N_NAIVE : 1;
    for (int i = 0; i < n_events; i++) {
        now += below(3000);
        naive_event(p, &jobs[below(N_NAIVE)], &n_arrived, now);
        for (bool more = true; more;) {
            struct naive *expect =
                naive_next(jobs, kind, n_parallel, max_wait ? max_wait : UINT64_MAX, now);
            more = sy_policy_next(p, now, &id, &again);
            assert_int_equal(more, expect != NULL); /* P2 */
            if (!more)
                break;
            assert_int_equal(id, expect->is.id);
            expect->running = true;
            expect->turn = ++n_turns;
        }
    }
    sy_policy_destroy(p);
}

static void test_every_decision_is_the_naive_one(void **state)
{
    (void)state;
    static const enum sy_policy_kind kinds[] = {SY_POLICY_FIFO, SY_POLICY_SRTF,     SY_POLICY_PACK,
                                                SY_POLICY_RR,   SY_POLICY_PRIORITY, SY_POLICY_LAS};
    for (size_t i = 0; i < SY_ARRAY_LEN(kinds); i++)
        for (int n_parallel = 0; n_parallel < 3; n_parallel++) {
            naive_run(kinds[i], n_parallel, 0, 20000);
            naive_run(kinds[i], n_parallel, 60000, 20000);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_decision_is_the_naive_one)};
    seed = seed_of_run(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

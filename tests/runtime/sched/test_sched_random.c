/* Lanes, policy, quotas and admission together, over 10^6 random events: jobs arrive, finish, are spilled and come back, quotas
 * and the pool's part for jobs change, requests come between iterations. The walkers look after each event, and nobody who is ready
 * waits longer than the table in policy.h says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "allocator/lanes.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/admission.h"
#include "runtime/sched/policy.h"
#include "tests/rigs/seed.h"

#define MAX_JOBS      16
#define TENANTS       3
#define PAGE          SY_POOL_ALIGN
#define PAGES         160
#define MAX_OVERTAKES 9
#define LONGEST       1000 /* iteration */
#define MAX_WAIT      20000

#ifdef SY_SANITIZED
#define EVENTS 15000
#else
#define EVENTS 150000 /* for each of seven policies */
#endif

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

struct job {
    bool used, admitted, running;
    struct sy_lane_job is;
    uint64_t arrival;
    int overtaken;
    sy_ns begun_at, ends_at, ready_at;
    int n_then; /* jobs there when it became ready, and those that came since */
    uint64_t barriers_then;
};

struct world {
    enum sy_policy_kind kind;
    struct sy_pool *pool;
    struct sy_quotas quotas;
    struct sy_lanes *lanes;
    struct sy_policy *policy;
    struct sy_admission *admission;
    struct job jobs[MAX_JOBS];
    uint64_t next_id, n_arrived, capacity;
    sy_ns now, worst_wait; /* now: time in which iterations advance */
    sy_ns request_now;
    uint64_t n_started, n_spilled, n_shut, n_refused;
};

static void open_world(struct world *w, enum sy_policy_kind kind)
{
    struct sy_lanes_config lanes = {PAGES * PAGE, MAX_JOBS, MAX_OVERTAKES, below(2)};
    struct sy_policy_config policy = {kind, MAX_JOBS, 0, 0};
    struct sy_admission_config admission = {.max_requests = 32, .preempt_ns = 50};
    if (kind == SY_POLICY_SRTF || kind == SY_POLICY_PRIORITY || kind == SY_POLICY_WEIGHTED ||
        kind == SY_POLICY_LAS)
        policy.max_wait_ns = MAX_WAIT;
    *w = (struct world){.kind = kind, .next_id = 1, .capacity = PAGES * PAGE, .now = 1};
    assert_int_equal(sy_pool_new(PAGES * PAGE, &w->pool), SY_OK);
    assert_int_equal(sy_lanes_new(w->pool, &w->quotas, &lanes, &w->lanes), SY_OK);
    assert_int_equal(sy_policy_create(&policy, &w->policy), SY_OK);
    assert_int_equal(sy_admission_create(&admission, &w->admission), SY_OK);
    for (int t = 0; t < TENANTS; t++)
        assert_int_equal(sy_policy_set_tenant(w->policy, t, 1 + (unsigned)t, 0), SY_OK);
}

static void close_world(struct world *w)
{
    sy_admission_destroy(w->admission);
    sy_policy_destroy(w->policy);
    sy_lanes_free(w->lanes);
    assert_int_equal(sy_pool_largest_free_bytes(w->pool), PAGES * PAGE); /* all was given back */
    sy_pool_free(w->pool);
}

static struct job *job_of(struct world *w, uint64_t id)
{
    for (int i = 0; i < MAX_JOBS; i++)
        if (w->jobs[i].used && w->jobs[i].is.id == id)
            return &w->jobs[i];
    fail_msg("job %llu is nobody's", (unsigned long long)id);
    return NULL;
}

/* ---- memory ---- */

static void become_ready(struct world *w, struct job *j)
{
    j->ready_at = w->now;
    j->n_then = sy_policy_n_jobs(w->policy);
    j->barriers_then = sy_lanes_counts(w->lanes).n_barriers;
}

static void note_admission(struct world *w, struct job *j, int lane)
{
    struct sy_policy_job job = {j->is.id,      lane,      j->is.tenant,
                                (int)below(3), below(40), below(LONGEST)};
    j->admitted = true;
    assert_int_equal(sy_policy_join(w->policy, &job, w->now), SY_OK);
    for (int i = 0; i < MAX_JOBS; i++) {
        struct job *other = &w->jobs[i];
        if (!other->used || other == j)
            continue;
        if (other->admitted)
            other->n_then++;
        else if (other->is.rank < j->is.rank ||
                 (other->is.rank == j->is.rank && other->arrival < j->arrival))
            assert_true(++other->overtaken <= MAX_OVERTAKES); /* L6 */
    }
    become_ready(w, j);
}

static void let_in(struct world *w)
{
    struct sy_lanes_change change;
    for (int n = 0; sy_lanes_next(w->lanes, &change); n++) {
        struct job *j = job_of(w, change.job);
        assert_true(n < 10 * MAX_JOBS);
        assert_true(change.admitted != j->admitted);
        if (change.admitted)
            note_admission(w, j, change.lane);
        else
            assert_int_equal(sy_policy_set_lane(w->policy, change.job, change.lane), SY_OK);
    }
}

/* The safety condition, from what the lanes say of themselves. */
static void assert_safe(struct world *w)
{
    uint64_t sum = 0, offset, bytes, need[MAX_JOBS] = {0};
    struct sy_lane_piece pieces[SY_LANES_MAX_PIECES];
    int n_jobs;
    for (int i = 0; i < MAX_JOBS; i++) {
        const struct job *j = &w->jobs[i];
        if (!j->used || !j->admitted)
            continue;
        int lane = sy_lanes_lane_of(w->lanes, j->is.id);
        assert_true(lane >= 0 && lane < MAX_JOBS);
        need[lane] = SY_MAX(need[lane], j->is.ephemeral_bytes);
        for (int k = sy_lanes_pieces(w->lanes, j->is.id, pieces); k > 0; k--)
            sum += pieces[k - 1].bytes;
    }
    for (int lane = 0; lane < MAX_JOBS; lane++)
        if (sy_lanes_bounds(w->lanes, lane, &offset, &bytes, &n_jobs)) {
            assert_true(bytes >= need[lane]);
            sum += bytes;
        }
    assert_true(sum <= PAGES * PAGE);
    assert_true(sy_lanes_is_valid(w->lanes));
    assert_true(sy_admission_is_valid(w->admission));
    assert_int_equal(sy_lanes_counts(w->lanes).copied_bytes, 0);
}

/* ---- iterations ---- */

static void assert_in_time(struct world *w, const struct job *j)
{
    uint64_t n = (uint64_t)j->n_then, wait = w->now - j->ready_at, bound;
    uint64_t barriers = sy_lanes_counts(w->lanes).n_barriers - j->barriers_then;
    switch (w->kind) {
    case SY_POLICY_FIFO:
        return; /* as long as those take who came before */
    case SY_POLICY_FAIR:
        bound = 2 * (n - 1) * LONGEST;
        break;
    case SY_POLICY_PACK:
    case SY_POLICY_RR:
        bound = (n - 1) * LONGEST;
        break;
    default:
        bound = MAX_WAIT + n * LONGEST;
        break;
    }
    w->worst_wait = SY_MAX(w->worst_wait, wait);
    /* Who ran when all lanes were to be empty is waited for besides: one iteration each time. */
    if (wait > bound + (barriers + 1) * LONGEST)
        fail_msg("%s: a ready job waited %llu of at most %llu, %llu jobs", sy_policy_name(w->kind),
                 (unsigned long long)wait, (unsigned long long)bound, (unsigned long long)n);
}

static void start_iterations(struct world *w)
{
    uint64_t id, offset;
    sy_ns again;
    while (!sy_lanes_draining(w->lanes) && sy_policy_next(w->policy, w->now, &id, &again)) {
        struct job *j = job_of(w, id);
        assert_true(j->admitted && !j->running);
        assert_int_equal(sy_lanes_begin(w->lanes, id, &offset), SY_OK);
        assert_in_time(w, j);
        j->running = true;
        j->begun_at = w->now;
        j->ends_at = w->now + 1 + below(LONGEST);
        w->n_started++;
    }
}

static void end_first(struct world *w)
{
    struct job *first = NULL;
    for (int i = 0; i < MAX_JOBS; i++)
        if (w->jobs[i].running && (!first || w->jobs[i].ends_at < first->ends_at))
            first = &w->jobs[i];
    if (!first)
        return;
    w->now = SY_MAX(w->now, first->ends_at);
    first->running = false;
    assert_int_equal(sy_lanes_end(w->lanes, first->is.id), SY_OK);
    assert_int_equal(sy_policy_done(w->policy, first->is.id, w->now - first->begun_at, w->now),
                     SY_OK);
    become_ready(w, first);
}

/* ---- what happens ---- */

static void arrive(struct world *w)
{
    struct job *j = w->jobs;
    while (j < w->jobs + MAX_JOBS && j->used)
        j++;
    if (j == w->jobs + MAX_JOBS)
        return;
    *j = (struct job){.is = {w->next_id++, (int)below(TENANTS), below(16) * PAGE,
                             below(below(4) ? 30 : 120) * PAGE, below(3), SY_LANES_MAX_PIECES},
                      .arrival = w->n_arrived++};
    int status = sy_lanes_join(w->lanes, &j->is);
    assert_true(status == SY_OK || status == SY_ENOMEM_DEVICE || status == SY_EBUSY);
    j->used = status == SY_OK;
    w->n_refused += !j->used;
}

/* In whatever state it is: also while it runs, as when its worker dies. */
static void leave(struct world *w, struct job *j)
{
    assert_int_equal(sy_lanes_leave(w->lanes, j->is.id), SY_OK);
    if (j->admitted)
        assert_int_equal(sy_policy_leave(w->policy, j->is.id), SY_OK);
    j->used = j->running = j->admitted = false;
}

/* Its memory goes to the host; it waits for room again, and may find its tenant's quota smaller. */
static void spill(struct world *w, struct job *j)
{
    struct sy_lane_job is = j->is;
    if (!j->admitted || j->running)
        return;
    leave(w, j);
    w->n_spilled++;
    if (sy_lanes_join(w->lanes, &is) == SY_OK)
        *j = (struct job){.used = true, .is = is, .arrival = w->n_arrived++};
}

static void change_capacity(struct world *w)
{
    w->capacity = below(4) ? PAGES * PAGE : (20 + below(PAGES)) * PAGE;
    sy_lanes_set_capacity(w->lanes, w->capacity);
    w->n_shut += w->capacity < PAGES * PAGE;
}

static void request(struct world *w)
{
    struct sy_admission_request r = {.id = w->next_id++, .class_ = (int)below(3)}, next;
    struct sy_prediction prediction;
    w->request_now += below(100);
    r.duration = (struct sy_duration){1 + below(60), below(20)};
    r.deadline_ns = below(3) ? w->request_now + 1 + below(400) : 0;
    int status = sy_admission_ask(w->admission, &r, w->request_now, &prediction);
    assert_true(status == SY_OK || status == SY_EDEADLINE || status == SY_EBUSY);
    enum sy_admission_action action = sy_admission_next(w->admission, w->request_now, &next);
    if (action == SY_ADMISSION_PREEMPT && below(2))
        sy_admission_paused(w->admission, w->request_now);
    else if (sy_admission_is_busy(w->admission) && below(3))
        sy_admission_done(w->admission);
}

static void random_event(struct world *w)
{
    struct job *j = &w->jobs[below(MAX_JOBS)];
    uint64_t kind = below(100);
    if (kind < 8)
        arrive(w);
    else if (kind < 14 && j->used)
        leave(w, j);
    else if (kind < 24 && j->used)
        spill(w, j);
    else if (kind == 24)
        assert_int_equal(sy_quota_set(&w->quotas, (int)below(TENANTS), below(300) * PAGE), SY_OK);
    else if (kind == 25)
        change_capacity(w);
    else if (kind < 40)
        request(w);
    else
        end_first(w);
    let_in(w);
    start_iterations(w);
}

static void test_random_events_under_each_policy(void **state)
{
    (void)state;
    for (int kind = 0; kind < SY_POLICY_N_KINDS; kind++) {
        struct world w;
        open_world(&w, (enum sy_policy_kind)kind);
        for (int i = 0; i < EVENTS; i++) {
            random_event(&w);
            assert_safe(&w);
        }
        struct sy_lanes_counts c = sy_lanes_counts(w.lanes);
        print_message("%-8s %llu iterations, %llu admitted, %llu spilled, %llu refused, "
                      "%llu barriers; longest wait %.1f of the longest iteration\n",
                      sy_policy_name(w.kind), (unsigned long long)w.n_started,
                      (unsigned long long)c.n_admitted, (unsigned long long)w.n_spilled,
                      (unsigned long long)w.n_refused, (unsigned long long)c.n_barriers,
                      (double)w.worst_wait / LONGEST);
        assert_true(w.n_started && w.n_spilled && w.n_refused && w.n_shut);
        close_world(&w);
    }
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_events_under_each_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Lanes: a million random events with the walker and a second set of books; decisions against exhaustive search. */
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
#include "tests/rigs/seed.h"

#define PAGE     ((uint64_t)SY_POOL_ALIGN)
#define MAX_JOBS 20
#define TENANTS  4

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

/* What the test itself knows of the jobs. */
struct shadow_job {
    bool used, admitted, running;
    uint64_t id, persistent, ephemeral, rank, arrival;
    int tenant, overtaken;
};

struct world {
    struct sy_pool *pool;
    struct sy_quotas quotas;
    struct sy_lanes *lanes;
    struct shadow_job jobs[MAX_JOBS];
    uint64_t capacity, next_id, n_admitted, n_refused;
    int max_overtakes;
};

static void open_world(struct world *w, uint64_t pages, bool regroup, int max_overtakes)
{
    memset(w, 0, sizeof *w);
    w->capacity = pages * PAGE;
    w->next_id = 1;
    w->max_overtakes = max_overtakes;
    struct sy_lanes_config config = {w->capacity, MAX_JOBS, max_overtakes, regroup};
    assert_int_equal(sy_pool_new(w->capacity, &w->pool), SY_OK);
    assert_int_equal(sy_lanes_new(w->pool, &w->quotas, &config, &w->lanes), SY_OK);
}

static void close_world(struct world *w)
{
    assert_int_equal(sy_lanes_counts(w->lanes).copied_bytes, 0);
    sy_lanes_free(w->lanes);
    assert_int_equal(sy_pool_n_blocks(w->pool), 0);
    for (int t = 0; t < TENANTS; t++)
        assert_int_equal(w->quotas.used_bytes[t], 0);
    sy_pool_free(w->pool);
}

static struct shadow_job *shadow_of(struct world *w, uint64_t id)
{
    for (int i = 0; i < MAX_JOBS; i++)
        if (w->jobs[i].used && w->jobs[i].id == id)
            return &w->jobs[i];
    fail_msg("no job %llu", (unsigned long long)id);
    return NULL;
}

/* L6, counted here: each admission overtakes those that wait before it in the queue. */
static void note_admitted(struct world *w, struct shadow_job *j)
{
    for (int i = 0; i < MAX_JOBS; i++) {
        struct shadow_job *other = &w->jobs[i];
        bool before = other->rank != j->rank ? other->rank < j->rank : other->arrival < j->arrival;
        if (other->used && !other->admitted && other != j && before)
            assert_true(++other->overtaken <= w->max_overtakes);
    }
    j->admitted = true;
    w->n_admitted++;
}

static void pump(struct world *w)
{
    struct sy_lanes_change change;
    int n = 0;
    while (sy_lanes_next(w->lanes, &change)) {
        struct shadow_job *j = shadow_of(w, change.job);
        assert_int_equal(change.lane, sy_lanes_lane_of(w->lanes, change.job));
        assert_int_equal(change.admitted, !j->admitted);
        if (change.admitted)
            note_admitted(w, j);
        assert_true(++n < 10 * MAX_JOBS);
    }
}

/* The safety condition from the test's own sizes and the lanes' bounds; and that no two things lie over each other. */
static void check_safety(const struct world *w)
{
    static uint8_t page[4096];
    struct sy_lane_piece pieces[SY_LANES_MAX_PIECES];
    uint64_t sum = 0, offset, bytes;
    int n_jobs;
    memset(page, 0, sizeof page);
    for (int i = 0; i < MAX_JOBS; i++) {
        const struct shadow_job *j = &w->jobs[i];
        if (sy_lanes_bounds(w->lanes, i, &offset, &bytes, &n_jobs)) {
            sum += bytes;
            for (uint64_t at = offset / PAGE; at < (offset + bytes) / PAGE; at++)
                assert_int_equal(page[at]++, 0);
        }
        if (!j->used || !j->admitted)
            continue;
        assert_true(
            sy_lanes_bounds(w->lanes, sy_lanes_lane_of(w->lanes, j->id), &offset, &bytes, &n_jobs));
        assert_true(bytes >= j->ephemeral);
        int n = sy_lanes_pieces(w->lanes, j->id, pieces);
        uint64_t held = 0;
        for (int k = 0; k < n; k++) {
            held += pieces[k].bytes;
            for (uint64_t at = 0; at < pieces[k].bytes / PAGE; at++)
                assert_int_equal(page[pieces[k].offset / PAGE + at]++, 0);
        }
        assert_true(held >= j->persistent);
        sum += held;
    }
    assert_true(sum <= w->capacity);
}

static struct shadow_job *add_job(struct world *w, uint64_t persistent, uint64_t ephemeral,
                                  uint64_t rank, int tenant)
{
    int slot = 0;
    while (slot < MAX_JOBS && w->jobs[slot].used)
        slot++;
    if (slot == MAX_JOBS)
        return NULL;
    struct sy_lane_job job = {w->next_id,          tenant, persistent, ephemeral, rank,
                              SY_LANES_MAX_PIECES, false};
    uint64_t need = persistent + ephemeral, limit = w->quotas.limit_bytes[tenant];
    uint64_t used = w->quotas.used_bytes[tenant];
    int expect = need > w->capacity             ? SY_ENOMEM_DEVICE
                 : limit && need > limit        ? SY_ENOMEM_DEVICE
                 : limit && used + need > limit ? SY_EBUSY
                                                : SY_OK;
    assert_int_equal(sy_lanes_join(w->lanes, &job), expect);
    if (expect != SY_OK) {
        w->n_refused++;
        return NULL;
    }
    w->jobs[slot] = (struct shadow_job){.used = true,
                                        .id = w->next_id,
                                        .persistent = persistent,
                                        .ephemeral = ephemeral,
                                        .rank = rank,
                                        .arrival = w->next_id,
                                        .tenant = tenant};
    w->next_id++;
    return &w->jobs[slot];
}

static void remove_job(struct world *w, struct shadow_job *j)
{
    assert_int_equal(sy_lanes_leave(w->lanes, j->id), SY_OK);
    j->used = false;
}

static void begin_or_end(struct world *w, struct shadow_job *j)
{
    uint64_t at = 0, offset, bytes;
    int n_jobs, lane = sy_lanes_lane_of(w->lanes, j->id);
    bool busy = sy_lanes_draining(w->lanes);
    if (j->running) {
        assert_int_equal(sy_lanes_end(w->lanes, j->id), SY_OK);
        j->running = false;
        return;
    }
    for (int i = 0; i < MAX_JOBS; i++)
        busy = busy || (w->jobs[i].used && w->jobs[i].running &&
                        sy_lanes_lane_of(w->lanes, w->jobs[i].id) == lane);
    int status = sy_lanes_begin(w->lanes, j->id, &at);
    assert_int_equal(status, !j->admitted ? SY_ENOTFOUND : busy ? SY_EBUSY : SY_OK);
    j->running = status == SY_OK;
    if (j->running && j->ephemeral > 0) {
        assert_true(sy_lanes_bounds(w->lanes, lane, &offset, &bytes, &n_jobs));
        assert_true(at == offset && bytes >= j->ephemeral);
    }
}

static void random_event(struct world *w)
{
    struct shadow_job *j = &w->jobs[below(MAX_JOBS)];
    uint64_t kind = below(100);
    if (kind < 12) {
        add_job(w, below(16) * PAGE, below(below(4) ? 30 : 110) * PAGE, below(3),
                (int)below(TENANTS));
    } else if (kind == 12) {
        assert_int_equal(sy_quota_set(&w->quotas, (int)below(TENANTS), below(200) * PAGE), SY_OK);
    } else if (kind == 13 && j->used && !j->admitted) {
        j->rank = below(3);
        j->overtaken = 0;
        assert_int_equal(sy_lanes_set_rank(w->lanes, j->id, j->rank), SY_OK);
    } else if (kind == 14) {
        sy_lanes_retry(w->lanes);
    } else if (j->used) {
        if (kind < 25)
            remove_job(w, j); /* ended, canceled or dead, also while it runs or waits */
        else
            begin_or_end(w, j);
    }
    pump(w);
}

/* Everything that is left gets its turn and ends. */
static void drain(struct world *w)
{
    bool any = true;
    for (int round = 0; any; round++) {
        any = false;
        assert_true(round < 100 * MAX_JOBS);
        for (int i = 0; i < MAX_JOBS; i++) {
            struct shadow_job *j = &w->jobs[i];
            if (j->used && j->running) {
                begin_or_end(w, j);
                remove_job(w, j);
            } else if (j->used && j->admitted) {
                begin_or_end(w, j);
            }
            pump(w);
            any = any || j->used;
        }
    }
}

static void random_events(bool regroup, int n)
{
    struct world w;
    open_world(&w, 128, regroup, 7);
    for (int i = 0; i < n; i++) {
        random_event(&w);
        assert_true(sy_lanes_is_valid(w.lanes));
        if (i % 4 == 0)
            check_safety(&w);
    }
    struct sy_lanes_counts c = sy_lanes_counts(w.lanes);
    print_message("%s: %llu admitted (%llu new, %llu joined, %llu grown), %llu regroupings, %llu "
                  "barriers, %llu moves of lanes, %llu bytes copied, %llu refused\n",
                  regroup ? "regrouping" : "as in the paper", (unsigned long long)c.n_admitted,
                  (unsigned long long)c.n_new, (unsigned long long)c.n_joined,
                  (unsigned long long)c.n_grown, (unsigned long long)c.n_regrouped,
                  (unsigned long long)c.n_barriers, (unsigned long long)c.n_moves,
                  (unsigned long long)c.copied_bytes, (unsigned long long)w.n_refused);
    assert_true(c.n_new && c.n_joined && c.n_grown && c.n_moves && c.n_barriers);
    assert_true(!regroup || c.n_regrouped);
    drain(&w);
    close_world(&w);
}

#ifdef SY_SANITIZED
#define EVENTS 40000
#else
#define EVENTS 500000
#endif

static void test_random_events_as_in_the_paper(void **state)
{
    (void)state;
    random_events(false, EVENTS);
}

static void test_random_events_with_regrouping(void **state)
{
    (void)state;
    random_events(true, EVENTS);
}

/* ---- exhaustive search ---- */

/* The most lanes into which n jobs fit within `room`, over all set partitions; 0: none fits. */
static int most_lanes(const uint64_t *need, int n, int at, uint64_t *largest, int n_lanes,
                      uint64_t room)
{
    int best = 0;
    if (at == n) {
        uint64_t sum = 0;
        for (int i = 0; i < n_lanes; i++)
            sum += largest[i];
        return sum <= room ? n_lanes : 0;
    }
    for (int i = 0; i <= n_lanes; i++) {
        uint64_t was = i < n_lanes ? largest[i] : 0;
        largest[i] = SY_MAX(was, need[at]);
        int found = most_lanes(need, n, at + 1, largest, SY_MAX(n_lanes, i + 1), room);
        best = SY_MAX(best, found);
        largest[i] = was;
    }
    return best;
}

static int brute_most_lanes(const struct world *w, const struct shadow_job *extra)
{
    uint64_t need[MAX_JOBS], largest[MAX_JOBS], persistent = extra ? extra->persistent : 0;
    int n = 0;
    for (int i = 0; i < MAX_JOBS; i++)
        if (w->jobs[i].used && w->jobs[i].admitted) {
            need[n++] = w->jobs[i].ephemeral;
            persistent += w->jobs[i].persistent;
        }
    if (extra)
        need[n++] = extra->ephemeral;
    if (persistent > w->capacity || n == 0)
        return 0;
    return most_lanes(need, n, 0, largest, 0, w->capacity - persistent);
}

/* Nothing runs: who waits could be let in by no partition, and there are as many lanes as any partition gives. */
static void check_optimal(struct world *w)
{
    for (int i = 0; i < MAX_JOBS; i++)
        if (w->jobs[i].used && !w->jobs[i].admitted)
            assert_int_equal(brute_most_lanes(w, &w->jobs[i]), 0);
    assert_int_equal(sy_lanes_n_lanes(w->lanes), brute_most_lanes(w, NULL));
}

static void test_regrouping_is_optimal(void **state)
{
    (void)state;
    int n_left = 0, n_cut = 0;
    for (int round = 0; round < 4000; round++) {
        struct world w;
        open_world(&w, 20 + below(20), true, 1000);
        for (int i = 0; i < 5; i++) {
            add_job(&w, below(5) * PAGE, below(16) * PAGE, 0, 0);
            pump(&w);
            check_optimal(&w);
        }
        /* One leaves: who waited is looked at again. */
        struct shadow_job *j = &w.jobs[below(5)];
        bool left = j->used;
        if (left)
            remove_job(&w, j);
        pump(&w);
        n_left += left;
        /* Its persistent part may have left a hole below others' that no lane fits into: those do not move (L4). */
        if (left && (sy_lanes_wanted_bytes(w.lanes) > 0 ||
                     sy_lanes_n_lanes(w.lanes) < brute_most_lanes(&w, NULL)))
            n_cut++;
        else
            check_optimal(&w);
        close_world(&w);
    }
    print_message("holes between persistent parts stood in the way after %d of %d departures\n",
                  n_cut, n_left);
    assert_true(n_cut * 10 < n_left);
}

/* The paper's steps, decided by trying all: a new lane if the sums allow it; else the lane with least to spare; else
 * the smallest that can grow; else none. */
static int brute_step(const struct world *w, const struct shadow_job *j, uint64_t *lane_bytes)
{
    uint64_t used = j->persistent, offset, bytes;
    int n_jobs, step = 0;
    for (int i = 0; i < MAX_JOBS; i++) {
        if (w->jobs[i].used && w->jobs[i].admitted)
            used += w->jobs[i].persistent;
        if (sy_lanes_bounds(w->lanes, i, &offset, &bytes, &n_jobs))
            used += bytes;
    }
    if (used + j->ephemeral <= w->capacity)
        return 1;
    for (int i = 0; i < MAX_JOBS; i++) {
        if (!sy_lanes_bounds(w->lanes, i, &offset, &bytes, &n_jobs))
            continue;
        int can = bytes >= j->ephemeral ? (used <= w->capacity ? 2 : 0)
                                        : (used - bytes + j->ephemeral <= w->capacity ? 3 : 0);
        if (can && (!step || can < step || (can == step && bytes < *lane_bytes))) {
            step = can;
            *lane_bytes = bytes;
        }
    }
    return step;
}

static void check_step(struct world *w, uint64_t persistent, uint64_t ephemeral)
{
    struct sy_lanes_counts c[2];
    struct shadow_job *j = add_job(w, persistent, ephemeral, 0, 0);
    uint64_t lane_bytes = 0, offset, bytes;
    int n_jobs;
    if (!j)
        return;
    int step = brute_step(w, j, &lane_bytes);
    c[0] = sy_lanes_counts(w->lanes);
    pump(w);
    c[1] = sy_lanes_counts(w->lanes);
    assert_int_equal(c[1].n_new - c[0].n_new, step == 1);
    assert_int_equal(c[1].n_joined - c[0].n_joined, step == 2);
    assert_int_equal(c[1].n_grown - c[0].n_grown, step == 3);
    assert_int_equal(j->admitted, step != 0);
    if (step > 0) {
        assert_true(
            sy_lanes_bounds(w->lanes, sy_lanes_lane_of(w->lanes, j->id), &offset, &bytes, &n_jobs));
        assert_int_equal(bytes, step == 2 ? lane_bytes : j->ephemeral);
    }
    if (!j->admitted) /* only newcomers are looked at here */
        remove_job(w, j);
}

static void test_each_step_is_the_papers(void **state)
{
    (void)state;
    for (int round = 0; round < 4000; round++) {
        struct world w;
        open_world(&w, 20 + below(30), false, 1000);
        for (int i = 0; i < 6; i++)
            check_step(&w, below(5) * PAGE, (1 + below(16)) * PAGE);
        close_world(&w);
    }
}

/* ---- by hand ---- */

/* Each fits alone, both together do not: P1+P2+E1+E2 > C. In one lane they take turns; or one waits. */
static void test_two_that_would_deadlock(void **state)
{
    (void)state;
    struct world w;
    uint64_t at;
    open_world(&w, 16, false, 4);
    struct shadow_job *a = add_job(&w, 2 * PAGE, 8 * PAGE, 0, 0);
    struct shadow_job *b = add_job(&w, 2 * PAGE, 10 * PAGE, 0, 0);
    pump(&w);
    assert_true(a->admitted && b->admitted);
    assert_int_equal(sy_lanes_n_lanes(w.lanes), 1);
    assert_int_equal(sy_lanes_begin(w.lanes, a->id, &at), SY_OK);
    assert_int_equal(sy_lanes_begin(w.lanes, b->id, &at), SY_EBUSY);
    assert_int_equal(sy_lanes_end(w.lanes, a->id), SY_OK);
    assert_int_equal(sy_lanes_begin(w.lanes, b->id, &at), SY_OK);
    struct shadow_job *c = add_job(&w, 3 * PAGE, 10 * PAGE, 0, 0);
    pump(&w);
    assert_false(c->admitted);
    remove_job(&w, b); /* dies while it runs: all is given back at once */
    pump(&w);
    assert_true(c->admitted);
    close_world(&w);
}

/* A lane closes above a busy one: that one slides up at its boundary, no byte copied. */
static void test_defragmentation_at_the_boundary(void **state)
{
    (void)state;
    struct world w;
    uint64_t at, offset, bytes;
    int n_jobs;
    open_world(&w, 16, false, 4);
    struct shadow_job *a = add_job(&w, 0, 8 * PAGE, 0, 0), *b = add_job(&w, 0, 6 * PAGE, 0, 0);
    pump(&w);
    assert_int_equal(sy_lanes_begin(w.lanes, b->id, &at), SY_OK);
    assert_int_equal(at, 2 * PAGE);
    remove_job(&w, a);
    struct shadow_job *c =
        add_job(&w, 0, 9 * PAGE, 0, 0); /* 2 below and 8 above: not in one piece */
    pump(&w);
    assert_true(!c->admitted && sy_lanes_draining(w.lanes));
    assert_int_equal(sy_lanes_end(w.lanes, b->id), SY_OK);
    pump(&w);
    assert_true(c->admitted);
    assert_true(
        sy_lanes_bounds(w.lanes, sy_lanes_lane_of(w.lanes, b->id), &offset, &bytes, &n_jobs));
    assert_int_equal(offset + bytes, 16 * PAGE);
    assert_int_equal(sy_lanes_counts(w.lanes).n_moves, 1);
    close_world(&w);
}

static void test_refusals_say_the_sizes(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, 16, true, 4);
    assert_null(add_job(&w, 10 * PAGE, 7 * PAGE, 0, 0));
    assert_non_null(strstr(sy_error_text(), "40960 bytes persistent and 28672"));
    assert_int_equal(sy_quota_set(&w.quotas, 1, 8 * PAGE), SY_OK);
    struct shadow_job *a = add_job(&w, 2 * PAGE, 4 * PAGE, 0, 1);
    assert_non_null(a);
    assert_null(add_job(&w, 1 * PAGE, 2 * PAGE, 0, 1));
    assert_non_null(strstr(sy_error_text(), "quota of 32768"));
    assert_non_null(add_job(&w, 1 * PAGE, 2 * PAGE, 0, 2)); /* nobody else notices */
    pump(&w);
    /* Blocks of others in the way: the lanes say how much is wanted in one piece. */
    uint64_t blocks[2];
    assert_int_equal(sy_pool_take(w.pool, 3 * PAGE, false, &blocks[0]), SY_OK);
    struct shadow_job *c = add_job(&w, 0, 6 * PAGE, 0, 0);
    pump(&w);
    assert_true(!c->admitted && sy_lanes_wanted_bytes(w.lanes) == 6 * PAGE);
    sy_pool_give(w.pool, blocks[0]);
    sy_lanes_retry(w.lanes);
    pump(&w);
    assert_true(c->admitted);
    close_world(&w);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_that_would_deadlock),
        cmocka_unit_test(test_defragmentation_at_the_boundary),
        cmocka_unit_test(test_refusals_say_the_sizes),
        cmocka_unit_test(test_each_step_is_the_papers),
        cmocka_unit_test(test_regrouping_is_optimal),
        cmocka_unit_test(test_random_events_as_in_the_paper),
        cmocka_unit_test(test_random_events_with_regrouping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Residency against a simulated memory: a page holds the tag of what was last copied there. Runs are
 * executed in order, each copy as early as after_group allows, and what the residency says is
 * there has to be there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "allocator/residency.h"
#include "runtime/base/status.h"
#include "tests/rigs/seed.h"

#define PAGE    ((uint64_t)SY_POOL_ALIGN)
#define PAGES   256
#define MODELS  8
#define GROUPS  24
#define LANES   4
#define NOTHING (-1)

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

enum phase { IDLE, HEAD, RUNNING };

struct run {
    int n_groups;
    uint64_t bytes[GROUPS];
    struct sy_group_place places[GROUPS];
    enum phase phase;
    int n_placed; /* in phase HEAD */
    bool cycles;
    bool arrived[GROUPS];
};

struct world {
    struct sy_pool *pool;
    struct sy_residency *residency;
    int memory[PAGES]; /* model * GROUPS + group, or NOTHING */
    struct run runs[MODELS];
    uint64_t lanes[LANES]; /* offset + 1, or 0 */
    uint64_t lane_bytes[LANES];
};

static int tag_of(int model, int group)
{
    return model * GROUPS + group;
}

static void write_group(struct world *w, int model, int group)
{
    const struct sy_group_place *p = &w->runs[model].places[group];
    for (uint64_t at = p->offset; at < p->offset + p->bytes; at += PAGE)
        w->memory[at / PAGE] = tag_of(model, group);
    w->runs[model].arrived[group] = true;
}

static void assert_intact(const struct world *w, int model, int group)
{
    const struct sy_group_place *p = &w->runs[model].places[group];
    for (uint64_t at = p->offset; at < p->offset + p->bytes; at += PAGE)
        assert_int_equal(w->memory[at / PAGE], tag_of(model, group));
}

struct walked {
    uint64_t bytes, head_bytes;
};

static void add_walked(void *ctx, uint64_t offset, uint64_t bytes, bool is_head)
{
    struct walked *walked = ctx;
    assert_true(bytes > 0 && offset + bytes <= PAGES * PAGE);
    walked->bytes += bytes;
    walked->head_bytes += is_head ? bytes : 0;
}

/* What a model shows of itself is what its groups take, head and tail apart. */
static void check_walk(const struct world *w, int m)
{
    const struct run *run = &w->runs[m];
    struct walked walked = {0}, wanted = {0};
    int n = sy_residency_n_resident(w->residency, m);
    sy_residency_walk(w->residency, m, add_walked, &walked);
    for (int g = 0; g < n; g++) {
        uint64_t bytes = (run->bytes[g] + PAGE - 1) / PAGE * PAGE;
        wanted.bytes += bytes;
        wanted.head_bytes += g < sy_residency_n_head(w->residency, m) ? bytes : 0;
    }
    if (run->phase == RUNNING && run->cycles) {
        assert_true(walked.bytes >= wanted.bytes && walked.head_bytes == 0);
        return;
    }
    assert_int_equal(walked.bytes, wanted.bytes);
    assert_int_equal(walked.head_bytes, wanted.head_bytes);
}

static void check_world(const struct world *w)
{
    assert_true(sy_pool_is_valid(w->pool));
    assert_true(sy_residency_is_valid(w->residency));
    for (int m = 0; m < MODELS; m++) {
        const struct run *run = &w->runs[m];
        int n = sy_residency_n_resident(w->residency, m);
        /* R2: nothing of a pinned model went. */
        if (run->phase == HEAD)
            assert_true(n >= run->n_placed);
        if (run->phase == RUNNING && !run->cycles)
            assert_int_equal(n, run->n_groups);
        for (int g = 0; g < n; g++)
            if (run->phase == IDLE || run->arrived[g])
                assert_intact(w, m, g);
        check_walk(w, m);
    }
}

static void add_random_model(struct world *w, int m, uint64_t max_pages)
{
    struct run *run = &w->runs[m];
    memset(run, 0, sizeof *run);
    run->n_groups = 1 + (int)below(GROUPS);
    for (int g = 0; g < run->n_groups; g++)
        run->bytes[g] = below(12) == 0 ? 0 : 1 + below(max_pages * PAGE);
    assert_int_equal(sy_residency_add_model(w->residency, m, run->n_groups, run->bytes), SY_OK);
}

static void open_world(struct world *w)
{
    memset(w, 0, sizeof *w);
    for (int i = 0; i < PAGES; i++)
        w->memory[i] = NOTHING;
    assert_int_equal(sy_pool_new(PAGES * PAGE, &w->pool), SY_OK);
    assert_int_equal(sy_residency_new(w->pool, &w->residency), SY_OK);
}

static void close_world(struct world *w)
{
    sy_residency_free(w->residency);
    sy_pool_free(w->pool);
}

/* Copies that may go once `n_computed` groups are computed, in order; returns the next to copy. */
static int copy_eagerly(struct world *w, int m, int next, int n_computed)
{
    struct run *run = &w->runs[m];
    for (; next < run->n_groups; next++) {
        if (run->places[next].resident)
            run->arrived[next] = true;
        else if (run->places[next].after_group < n_computed)
            write_group(w, m, next);
        else
            break;
    }
    return next;
}

/* Runs the model's first `n_compute` groups; all of them is a whole run. */
static void execute(struct world *w, int m, int n_compute)
{
    int next = copy_eagerly(w, m, 0, 0);
    for (int g = 0; g < n_compute; g++) {
        assert_true(next > g);
        assert_intact(w, m, g);
        next = copy_eagerly(w, m, next, g + 1);
    }
}

static bool is_pinned_by_other(const struct world *w, int self)
{
    for (int m = 0; m < MODELS; m++)
        if (m != self && w->runs[m].phase != IDLE)
            return true;
    return false;
}

/* The most contiguous pages, and all pages, that are neither a lane's nor another pinned model's. */
static void find_room(const struct world *w, int self, uint64_t *largest, uint64_t *sum)
{
    bool used[PAGES] = {false};
    for (int i = 0; i < LANES; i++)
        for (uint64_t p = 0; w->lanes[i] && p < w->lane_bytes[i] / PAGE; p++)
            used[(w->lanes[i] - 1) / PAGE + p] = true;
    for (int m = 0; m < MODELS; m++) {
        const struct run *run = &w->runs[m];
        int n = m == self || run->phase == IDLE ? 0
                : run->phase == HEAD            ? run->n_placed
                                                : run->n_groups;
        for (int g = 0; g < n; g++)
            for (uint64_t at = 0; at < run->places[g].bytes; at += PAGE)
                used[(run->places[g].offset + at) / PAGE] = true;
    }
    uint64_t n = 0;
    *largest = *sum = 0;
    for (int p = 0; p < PAGES; p++) {
        n = used[p] ? 0 : n + 1;
        *sum += !used[p];
        *largest = n > *largest ? n : *largest;
    }
}

/* A refusal must be true; success must be a layout that holds what it says. */
static void random_place(struct world *w, int m)
{
    struct run *run = &w->runs[m];
    bool may_cycle = below(3) > 0;
    uint64_t group = 0, sum = 0, largest, room;
    for (int g = 0; g < run->n_groups; g++) {
        uint64_t pages = (run->bytes[g] + PAGE - 1) / PAGE;
        sum += pages;
        group = pages > group ? pages : group;
    }
    find_room(w, m, &largest, &room);
    int status = sy_residency_place(w->residency, m, may_cycle, run->places);
    if (status != SY_OK) {
        assert_true(status == SY_EBUSY || status == SY_ENOMEM_DEVICE);
        if (status == SY_EBUSY)
            assert_true(is_pinned_by_other(w, m));
        if (may_cycle && status == SY_ENOMEM_DEVICE)
            assert_true(group > largest || room < sum);
        /* Nothing else in the way and no head that has to stay: the largest group fits, so it runs. */
        if (may_cycle && !is_pinned_by_other(w, m) && run->phase == IDLE)
            assert_true(group > largest);
        return;
    }
    run->phase = RUNNING;
    run->cycles = false;
    for (int g = 0; g < run->n_groups; g++) {
        run->cycles |= run->places[g].after_group >= 0;
        assert_int_equal(run->places[g].bytes, run->bytes[g]);
        run->arrived[g] = false;
    }
    if (sum > room)
        assert_true(run->cycles);
}

static void random_place_head(struct world *w, int m)
{
    struct run *run = &w->runs[m];
    int n = -1;
    assert_int_equal(sy_residency_place_head(w->residency, m, run->places, &n), SY_OK);
    assert_in_range(n, 0, run->n_groups);
    run->phase = HEAD;
    run->n_placed = n;
    for (int g = 0; g < run->n_groups; g++)
        run->arrived[g] = false;
    for (int g = 0; g < n; g++) {
        if (!run->places[g].resident)
            write_group(w, m, g);
        assert_intact(w, m, g);
        run->arrived[g] = true;
    }
}

static void finish_run(struct world *w, int m)
{
    struct run *run = &w->runs[m];
    bool whole = below(4) > 0;
    if (run->phase == RUNNING)
        execute(w, m, whole ? run->n_groups : (int)below((uint64_t)run->n_groups + 1));
    run->phase = IDLE;
    sy_residency_unpin(w->residency, m, run->arrived);
}

/* What emptying pages [from, from + n) costs: heads' pages x 1000 and tails' pages; -1 where something stands that cannot go. */
static long cost_of_stretch(const struct world *w, int from, int n)
{
    long cost = 0;
    bool taken[PAGES] = {false};
    for (int i = 0; i < LANES; i++)
        for (uint64_t p = 0; w->lanes[i] && p < w->lane_bytes[i] / PAGE; p++)
            taken[(w->lanes[i] - 1) / PAGE + p] = true;
    for (int m = 0; m < MODELS; m++) {
        const struct run *run = &w->runs[m];
        int n_there = run->phase == IDLE   ? sy_residency_n_resident(w->residency, m)
                      : run->phase == HEAD ? run->n_placed
                                           : run->n_groups;
        bool gone = false;
        for (int g = 0; g < n_there; g++) {
            int at = (int)(run->places[g].offset / PAGE);
            int pages = (int)((run->bytes[g] + PAGE - 1) / PAGE);
            bool hit = pages > 0 && at < from + n && from < at + pages;
            if (hit && run->phase != IDLE)
                return -1;
            gone |= hit;
            if (gone)
                cost += pages * (g < sy_residency_n_head(w->residency, m) ? 1000 : 1);
        }
    }
    for (int p = from; p < from + n; p++)
        if (taken[p])
            return -1;
    return cost;
}

static long cheapest_stretch(const struct world *w, int n)
{
    long best = -1;
    for (int from = 0; from + n <= PAGES; from++) {
        long cost = cost_of_stretch(w, from, n);
        if (cost >= 0 && (best < 0 || cost < best))
            best = cost;
    }
    return best;
}

static bool any_cycles(const struct world *w)
{
    for (int m = 0; m < MODELS; m++)
        if (w->runs[m].phase == RUNNING && w->runs[m].cycles)
            return true;
    return false;
}

/* Room in one piece is there exactly if some stretch holds nothing pinned, and it costs what the cheapest costs. */
static void make_room(struct world *w, uint64_t bytes)
{
    int before[MODELS];
    long expected = cheapest_stretch(w, (int)(bytes / PAGE)), cost = 0;
    for (int m = 0; m < MODELS; m++)
        before[m] = sy_residency_n_resident(w->residency, m);
    int status = sy_residency_make_room(w->residency, bytes);
    assert_true(status == SY_OK || status == SY_EBUSY || status == SY_ENOMEM_DEVICE);
    for (int m = 0; m < MODELS; m++)
        for (int g = sy_residency_n_resident(w->residency, m); g < before[m]; g++)
            cost += (long)((w->runs[m].bytes[g] + PAGE - 1) / PAGE) *
                    (g < sy_residency_n_head(w->residency, m) ? 1000 : 1);
    if (any_cycles(w)) /* its regions are larger than its groups, as seen from here */
        return;
    assert_int_equal(status == SY_OK, expected >= 0);
    assert_int_equal(cost, status == SY_OK ? expected : 0);
}

static void random_lane(struct world *w)
{
    int i = (int)below(LANES);
    if (w->lanes[i]) {
        sy_pool_give(w->pool, w->lanes[i] - 1);
        w->lanes[i] = 0;
        return;
    }
    uint64_t bytes = (1 + below(below(4) ? 40 : 200)) * PAGE, offset;
    make_room(w, bytes);
    int status = sy_pool_take(w->pool, bytes, true, &offset);
    if (status != SY_OK)
        return;
    w->lanes[i] = offset + 1;
    w->lane_bytes[i] = bytes;
    for (uint64_t p = 0; p < bytes / PAGE; p++)
        w->memory[offset / PAGE + p] = NOTHING;
}

static void random_operation(struct world *w)
{
    int m = (int)below(MODELS);
    struct run *run = &w->runs[m];
    if (below(10) == 0)
        random_lane(w);
    else if (below(20) == 0)
        assert_int_equal(sy_residency_set_head(w->residency, m,
                                               (int)below((uint64_t)run->n_groups + 1),
                                               (double)below(4)),
                         SY_OK);
    else if (run->phase == RUNNING || (run->phase == HEAD && below(3) == 0))
        finish_run(w, m);
    else if (below(4) == 0)
        random_place_head(w, m);
    else if (below(30) == 0 && run->phase == IDLE) {
        assert_int_equal(sy_residency_remove_model(w->residency, m), SY_OK);
        add_random_model(w, m, 1 + below(40));
    } else
        random_place(w, m);
}

static void test_random_operations_keep_the_bytes(void **state)
{
    (void)state;
    static struct world w;
    int n_cycled = 0;
    open_world(&w);
    for (int m = 0; m < MODELS; m++)
        add_random_model(&w, m, 20);
    for (int i = 0; i < 60000; i++) {
        random_operation(&w);
        check_world(&w);
        for (int m = 0; m < MODELS; m++)
            n_cycled += w.runs[m].phase == RUNNING && w.runs[m].cycles;
    }
    assert_true(n_cycled > 1000); /* else the test tests nothing */
    close_world(&w);
}

/* ---- cycling, by hand --------------------------------------------------------------------------- */

static void fill_uniform(struct world *w, int m, int n_groups, uint64_t pages)
{
    struct run *run = &w->runs[m];
    run->n_groups = n_groups;
    for (int g = 0; g < n_groups; g++)
        run->bytes[g] = pages * PAGE;
    assert_int_equal(sy_residency_add_model(w->residency, m, n_groups, run->bytes), SY_OK);
}

static int run_cycling(struct world *w, int m)
{
    struct run *run = &w->runs[m];
    int n_copied = 0;
    assert_int_equal(sy_residency_place(w->residency, m, true, run->places), SY_OK);
    run->phase = RUNNING;
    run->cycles = true;
    for (int g = 0; g < run->n_groups; g++) {
        run->arrived[g] = false;
        n_copied += !run->places[g].resident;
    }
    execute(w, m, run->n_groups);
    sy_residency_unpin(w->residency, m, NULL);
    run->phase = IDLE;
    check_world(w);
    return n_copied;
}

/* 20 groups of 32 pages in 256: eight places. Five stay, three take turns, so that copies overlap. */
static void test_cycling_keeps_a_head_and_overlaps_copies(void **state)
{
    (void)state;
    static struct world w;
    open_world(&w);
    fill_uniform(&w, 0, 20, 32);
    assert_int_equal(run_cycling(&w, 0), 20);
    for (int g = 0; g < 20; g++)
        assert_true(w.runs[0].places[g].after_group <= (g < 8 ? -1 : g - 3));
    assert_int_equal(sy_residency_n_resident(w.residency, 0), 5);
    assert_int_equal(sy_residency_resident_bytes(w.residency, 0), 5 * 32 * PAGE);
    assert_int_equal(run_cycling(&w, 0), 15);
    close_world(&w);
}

static void test_cycling_needs_only_the_largest_group(void **state)
{
    (void)state;
    static struct world w;
    struct sy_group_place places[GROUPS];
    open_world(&w);
    fill_uniform(&w, 0, 5, PAGES);
    assert_int_equal(run_cycling(&w, 0), 5);
    for (int g = 0; g < 5; g++)
        assert_int_equal(w.runs[0].places[g].after_group, g - 1);
    fill_uniform(&w, 1, 2, PAGES + 1);
    assert_int_equal(sy_residency_place(w.residency, 1, true, places), SY_ENOMEM_DEVICE);
    char number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)((PAGES + 1) * PAGE));
    assert_non_null(strstr(sy_error_text(), number));
    close_world(&w);
}

static void test_busy_while_others_are_pinned(void **state)
{
    (void)state;
    static struct world w;
    struct sy_group_place a[GROUPS], b[GROUPS];
    open_world(&w);
    fill_uniform(&w, 0, 4, 40);
    fill_uniform(&w, 1, 4, 60);
    assert_int_equal(sy_residency_place(w.residency, 0, true, a), SY_OK);
    assert_int_equal(sy_residency_place(w.residency, 1, true, b), SY_EBUSY);
    assert_int_equal(sy_residency_make_room(w.residency, 200 * PAGE), SY_EBUSY);
    assert_int_equal(sy_residency_make_room(w.residency, 300 * PAGE), SY_ENOMEM_DEVICE);
    assert_int_equal(sy_residency_remove_model(w.residency, 0), SY_EBUSY);
    assert_int_equal(sy_residency_n_resident(w.residency, 0), 4);
    /* Pinned twice: the second place finds all there; only the last unpin makes it idle. */
    assert_int_equal(sy_residency_place(w.residency, 0, false, b), SY_OK);
    assert_true(b[0].resident && b[3].resident && b[3].offset == a[3].offset);
    sy_residency_unpin(w.residency, 0, NULL);
    assert_int_equal(sy_residency_place(w.residency, 1, true, b), SY_EBUSY);
    sy_residency_unpin(w.residency, 0, NULL);
    assert_int_equal(sy_residency_place(w.residency, 1, true, b), SY_OK);
    assert_int_equal(sy_residency_n_resident(w.residency, 0), 0);
    assert_int_equal(sy_residency_place(w.residency, 7, true, b), SY_ENOTFOUND);
    close_world(&w);
}

static void test_head_is_completed_and_groups_that_never_came_go(void **state)
{
    (void)state;
    static struct world w;
    struct sy_group_place places[GROUPS];
    bool arrived[GROUPS] = {true, true, false, true};
    int n = 0;
    open_world(&w);
    fill_uniform(&w, 0, 3, 40);
    fill_uniform(&w, 1, 4, 40);
    assert_int_equal(sy_residency_place(w.residency, 0, false, places), SY_OK);
    assert_int_equal(sy_residency_place_head(w.residency, 1, places, &n), SY_OK);
    assert_int_equal(n, 3);
    sy_residency_unpin(w.residency, 0, NULL);
    assert_int_equal(sy_residency_place(w.residency, 1, false, places), SY_OK);
    for (int g = 0; g < 4; g++)
        assert_int_equal(places[g].resident, g < 3);
    assert_int_equal(sy_residency_n_resident(w.residency, 0), 2);
    sy_residency_unpin(w.residency, 1, arrived);
    assert_int_equal(sy_residency_n_resident(w.residency, 1), 2);
    assert_int_equal(sy_residency_make_room(w.residency, 176 * PAGE), SY_OK);
    close_world(&w);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations_keep_the_bytes),
        cmocka_unit_test(test_cycling_keeps_a_head_and_overlaps_copies),
        cmocka_unit_test(test_cycling_needs_only_the_largest_group),
        cmocka_unit_test(test_busy_while_others_are_pinned),
        cmocka_unit_test(test_head_is_completed_and_groups_that_never_came_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

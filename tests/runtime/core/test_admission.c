/* Admission against an exhaustive scheduler, and by hand. What predictions learn: test_predictor.c. */
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
#include "runtime/sched/admission.h"
#include "tests/rigs/seed.h"

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

static struct sy_admission *make(sy_ns preempt_ns, bool may_break_lower)
{
    struct sy_admission_config config = {preempt_ns, 64, may_break_lower, false, false};
    struct sy_admission *a;
    assert_int_equal(sy_admission_create(&config, &a), SY_OK);
    return a;
}

/* ---- exhaustive ---- */

/* Some order that keeps classes apart meets all deadlines. */
static bool can_meet_all(const struct sy_admission_request *r, int n, unsigned done, sy_ns at)
{
    int class_ = INT32_MAX;
    bool any = false;
    for (int i = 0; i < n; i++)
        if (!(done & 1u << i))
            class_ = SY_MIN(class_, r[i].class_);
    for (int i = 0; i < n; i++) {
        if (done & 1u << i || r[i].class_ != class_)
            continue;
        any = true;
        sy_ns end = at + r[i].duration.expected_ns;
        if ((r[i].deadline_ns == 0 || end <= r[i].deadline_ns) &&
            can_meet_all(r, n, done | 1u << i, end))
            return true;
    }
    return !any;
}

static struct sy_admission_request random_request(uint64_t id, int n_classes, sy_ns now)
{
    struct sy_admission_request r = {.id = id, .class_ = (int)below((uint64_t)n_classes)};
    r.duration.expected_ns = 1 + below(30);
    r.deadline_ns = below(8) ? now + 1 + below(120) : 0;
    return r;
}

/* ---- who runs before the queue hears of it ---- */

/* Two queues of which one heard at once and one later answer alike. */
static void test_taking_over_is_as_if_it_had_been_told_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct sy_admission *told = make(0, false), *late = make(0, false);
        struct sy_admission_request r = random_request(1, 3, 1000), next = {0}, other = {0};
        struct sy_prediction p, q;
        sy_ns now = 1000 + below(20);
        r.deadline_ns = 0;
        assert_int_equal(sy_admission_ask_idle(told, &r, 1000, &p), SY_OK);
        r.duration = (struct sy_duration){1 + below(50), 0};
        sy_admission_expect(told, r.duration, 1000);
        sy_admission_take_over(late, &r, 1000);
        for (uint64_t id = 2; id < 12; id++, now += below(4)) {
            r = random_request(id, 3, now);
            assert_int_equal(sy_admission_ask(told, &r, now, &p),
                             sy_admission_ask(late, &r, now, &q));
            assert_true(p.finish_ns == q.finish_ns && p.latest_ns == q.latest_ns);
        }
        assert_true(sy_admission_drained_ns(told, now) == sy_admission_drained_ns(late, now));
        sy_admission_done(told);
        sy_admission_done(late);
        assert_int_equal(sy_admission_next(told, now, &next), sy_admission_next(late, now, &other));
        assert_true(sy_admission_n_waiting(late) == 0 || next.id == other.id);
        assert_true(sy_admission_is_valid(late));
        sy_admission_destroy(told);
        sy_admission_destroy(late);
    }
}

/* Up to six requests, with and without one that runs: taken exactly if some order keeps all promises. */
static void test_taken_if_any_order_holds(void **state)
{
    (void)state;
    int n_taken = 0, n_refused = 0;
    for (int round = 0; round < 20000; round++) {
        struct sy_admission *a = make(0, false);
        struct sy_admission_request in[7], got;
        struct sy_prediction p;
        sy_ns now = 1000, free_at = now;
        int n = 0;
        if (below(2)) {
            struct sy_admission_request first = {.id = 99, .class_ = 1, .duration = {below(40), 0}};
            assert_int_equal(sy_admission_ask(a, &first, now, &p), SY_OK);
            assert_int_equal(sy_admission_next(a, now, &got), SY_ADMISSION_START);
            free_at += first.duration.expected_ns;
        }
        for (int i = 0; i < 6; i++) {
            in[n] = random_request((uint64_t)i, 1 + round % 3, now);
            bool expect = can_meet_all(in, n + 1, 0, free_at);
            int status = sy_admission_ask(a, &in[n], now, &p);
            assert_int_equal(status, expect ? SY_OK : SY_EDEADLINE);
            assert_true(sy_admission_is_valid(a));
            n += expect;
            n_taken += expect;
            n_refused += !expect;
        }
        sy_admission_destroy(a);
    }
    print_message("%d taken, %d refused, each as the exhaustive search says\n", n_taken, n_refused);
    assert_true(n_taken > 1000 && n_refused > 1000);
}

/* What is predicted is what happens when durations are as expected; nobody taken is late; urgent classes preempt. */
static void run_exactly(sy_ns preempt_ns, bool restarts)
{
    struct sy_admission_config config = {preempt_ns, 64, false, restarts, false};
    struct sy_admission *a;
    assert_int_equal(sy_admission_create(&config, &a), SY_OK);
    struct sy_admission_request running = {0}, r, got;
    struct sy_prediction p;
    sy_ns now = 1, ends = 0, yields_at = 0, predicted[4096] = {0}, deadline[4096] = {0};
    bool busy = false, yielding = false;
    int n_done = 0;
    for (uint64_t id = 0; id < 4000; id++) {
        sy_ns arrives = now + below(25);
        for (;;) {
            enum sy_admission_action action = sy_admission_next(a, now, &got);
            if (action == SY_ADMISSION_START) {
                running = got;
                busy = true;
                ends = now + got.duration.expected_ns;
            } else if (action == SY_ADMISSION_PREEMPT) {
                assert_int_equal(got.id, running.id);
                yields_at = now + preempt_ns;
                yielding = ends > yields_at;
            }
            sy_ns next = yielding ? yields_at : ends;
            if (!busy || next > arrives)
                break;
            now = next;
            busy = false;
            if (yielding) {
                if (restarts)
                    sy_admission_again(a, running.duration, now);
                else
                    sy_admission_paused(a, now);
                yielding = false;
                continue;
            }
            sy_admission_done(a);
            assert_true(deadline[running.id] == 0 || now <= deadline[running.id]);
            /* Later arrivals may have gone before it, never the other way round. */
            assert_true(now >= predicted[running.id] || preempt_ns > 0);
            n_done++;
        }
        now = arrives;
        r = random_request(id, 3, now);
        if (sy_admission_ask(a, &r, now, &p) == SY_OK) {
            predicted[id] = p.finish_ns;
            deadline[id] = r.deadline_ns;
        } else {
            assert_non_null(strstr(sy_error_text(), "deadline"));
        }
        assert_true(sy_admission_is_valid(a));
    }
    assert_true(n_done > 1000);
    sy_admission_destroy(a);
}

static void test_promises_hold_exactly(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++)
        run_exactly(0, false);
}

static void test_promises_hold_with_preemption(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++)
        run_exactly(2, false);
}

static void test_promises_hold_with_restarts(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++)
        run_exactly(2, true);
}

/* ---- by hand ---- */

static void test_prediction_and_refusal(void **state)
{
    (void)state;
    struct sy_admission *a = make(0, false);
    struct sy_admission_request r = {1, 0, 100 * SY_NS_PER_MS, {30 * SY_NS_PER_MS, 4}}, got;
    struct sy_prediction p;
    assert_int_equal(sy_admission_ask(a, &r, 0, &p), SY_OK);
    assert_int_equal(p.finish_ns, 30 * SY_NS_PER_MS);
    assert_int_equal(p.latest_ns, 30 * SY_NS_PER_MS + 4);
    assert_int_equal(sy_admission_next(a, 0, &got), SY_ADMISSION_START);
    r = (struct sy_admission_request){2, 0, 50 * SY_NS_PER_MS, {21 * SY_NS_PER_MS, 3}};
    assert_int_equal(sy_admission_ask(a, &r, 0, &p), SY_EDEADLINE);
    assert_int_equal(p.queue_ns, 30 * SY_NS_PER_MS);
    assert_int_equal(p.latest_ns, 51 * SY_NS_PER_MS + 5); /* margins 3 and 4 */
    assert_non_null(strstr(sy_error_text(), "51.000 ms"));
    r.deadline_ns = 52 * SY_NS_PER_MS;
    assert_int_equal(sy_admission_ask(a, &r, 0, &p), SY_OK);
    /* An earlier deadline would go before it and break its promise. */
    r = (struct sy_admission_request){3, 0, 51 * SY_NS_PER_MS, {2 * SY_NS_PER_MS, 0}};
    assert_int_equal(sy_admission_ask(a, &r, 0, &p), SY_EDEADLINE);
    assert_true(p.breaks && p.would_break == 2);
    r = (struct sy_admission_request){3, 0, 5 * SY_NS_PER_MS, {2 * SY_NS_PER_MS, 0}};
    assert_int_equal(sy_admission_ask(a, &r, 7 * SY_NS_PER_MS, &p), SY_EDEADLINE);
    assert_non_null(strstr(sy_error_text(), "would be done in "));
    assert_non_null(strstr(sy_error_text(), "its deadline was 2.000 ms ago;"));
    /* Half of the device: twice as long. */
    assert_int_equal(sy_admission_set_share(a, 500), SY_OK);
    r = (struct sy_admission_request){4, 1, 0, {10 * SY_NS_PER_MS, 0}};
    p = sy_admission_predict(a, &r, 0);
    assert_int_equal(p.finish_ns, (30 + 2 * 21 + 2 * 10) * SY_NS_PER_MS);
    assert_true(sy_admission_cancel(a, 2) && !sy_admission_cancel(a, 2));
    sy_admission_again(a, r.duration, 0);
    assert_int_equal(sy_admission_next(a, 0, &got), SY_ADMISSION_START);
    assert_int_equal(got.id, 1);
    sy_admission_done(a);
    assert_int_equal(sy_admission_next(a, 0, &got), SY_ADMISSION_WAIT);
    sy_admission_destroy(a);
}

static void test_urgent_classes_preempt(void **state)
{
    (void)state;
    struct sy_admission *a = make(2, false);
    struct sy_admission_request low = {1, 1, 60, {50, 0}}, high = {2, 0, 20, {8, 0}}, got;
    struct sy_prediction p;
    assert_int_equal(sy_admission_ask(a, &low, 0, &p), SY_OK);
    assert_int_equal(sy_admission_next(a, 0, &got), SY_ADMISSION_START);
    assert_int_equal(sy_admission_ask(a, &high, 10, &p), SY_OK);
    assert_int_equal(p.finish_ns, 20);
    assert_int_equal(sy_admission_next(a, 10, &got), SY_ADMISSION_PREEMPT);
    assert_int_equal(got.id, 1);
    assert_int_equal(sy_admission_next(a, 10, &got), SY_ADMISSION_WAIT); /* said once */
    sy_admission_paused(a, 12);
    assert_int_equal(sy_admission_next(a, 12, &got), SY_ADMISSION_START);
    assert_int_equal(got.id, 2);
    /* Another would make the preempted one late. */
    high = (struct sy_admission_request){3, 0, 40, {8, 0}};
    assert_int_equal(sy_admission_ask(a, &high, 12, &p), SY_EDEADLINE);
    assert_true(p.breaks && p.would_break == 1);
    sy_admission_done(a);
    assert_int_equal(sy_admission_next(a, 20, &got), SY_ADMISSION_START);
    assert_true(got.id == 1 && got.duration.expected_ns == 38);
    /* And with it running: the same promise. */
    assert_int_equal(sy_admission_ask(a, &high, 20, &p), SY_EDEADLINE);
    assert_true(p.breaks && p.would_break == 1);
    sy_admission_destroy(a);
}

static struct sy_admission *make_like_the_runtime(void)
{
    struct sy_admission_config config = {2, 64, true, true, true};
    struct sy_admission *a;
    assert_int_equal(sy_admission_create(&config, &a), SY_OK);
    return a;
}

/* Q1: what runs takes longer than expected, so that a promise has less than its margin left: nobody is let in before it as long as it can be
 * saved. */
static void test_who_lost_margin_is_not_delayed(void **state)
{
    (void)state;
    for (int saved = 0; saved < 2; saved++) {
        struct sy_admission *a = make(0, false);
        struct sy_admission_request first = {1, 1, 0, {50, 0}}, promised = {2, 1, 110, {20, 35}};
        struct sy_admission_request urgent = {3, 0, 1000, {20, 0}}, patient = {4, 2, 1000, {20, 0}};
        struct sy_admission_request got;
        struct sy_prediction p;
        assert_int_equal(sy_admission_ask(a, &first, 0, &p), SY_OK);
        assert_int_equal(sy_admission_next(a, 0, &got), SY_ADMISSION_START);
        assert_int_equal(sy_admission_ask(a, &promised, 0, &p), SY_OK); /* 70, at most 105 */
        sy_admission_expect(a, (struct sy_duration){saved ? 60 : 95, 0}, 0);
        assert_int_equal(sy_admission_ask(a, &patient, 0, &p), SY_OK); /* behind it */
        assert_int_equal(sy_admission_ask(a, &urgent, 0, &p), saved ? SY_EDEADLINE : SY_OK);
        assert_true(p.breaks == saved && (!saved || p.would_break == 2));
        sy_admission_destroy(a);
    }
}

/* What giving way costs is seen when one stops, and counted before the next one is made to. */
static void test_what_giving_way_costs_is_predicted(void **state)
{
    (void)state;
    struct sy_admission *a = make(2, false);
    struct sy_admission_request got, low = {1, 1, 0, {1000, 0}}, high = {2, 0, 0, {100, 0}};
    struct sy_prediction p;
    sy_ns now = 0;
    for (int i = 0; i < 60; i++, now += 5000) {
        assert_int_equal(sy_admission_ask(a, &low, now, &p), SY_OK);
        assert_int_equal(sy_admission_next(a, now, &got), SY_ADMISSION_START);
        assert_int_equal(sy_admission_ask(a, &high, now + 100, &p), SY_OK);
        assert_int_equal(sy_admission_next(a, now + 100, &got), SY_ADMISSION_PREEMPT);
        /* 898 by the clock */
        sy_admission_stopped(a, (struct sy_duration){898 + 400, 0}, now + 102);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(sy_admission_next(a, now + 102, &got), SY_ADMISSION_START);
            assert_int_equal(got.duration.expected_ns, k ? 1298 : 100);
            sy_admission_done(a);
        }
        assert_true(sy_admission_is_valid(a));
    }
    low.deadline_ns =
        now + 1200; /* 1000 of its own, 100 of the urgent one's, about 400 of giving way */
    assert_int_equal(sy_admission_ask(a, &low, now, &p), SY_OK);
    assert_int_equal(sy_admission_next(a, now, &got), SY_ADMISSION_START);
    high.deadline_ns = now + 5000;
    assert_int_equal(sy_admission_ask(a, &high, now + 100, &p), SY_EDEADLINE);
    assert_true(p.breaks && p.would_break == 1);
    sy_admission_done(a);
    sy_admission_destroy(a);
}

/* One that waits takes longer: so does who comes behind it. */
static void test_one_that_waits_is_revised(void **state)
{
    (void)state;
    struct sy_admission *a = make(0, false);
    struct sy_admission_request low = {1, 1, 0, {50, 0}}, next = {2, 2, 0, {10, 0}};
    struct sy_prediction p;
    assert_int_equal(sy_admission_ask(a, &low, 0, &p), SY_OK);
    sy_admission_revise(a, 1, (struct sy_duration){80, 0});
    sy_admission_revise(a, 7, (struct sy_duration){80, 0}); /* nobody */
    assert_int_equal(sy_admission_predict(a, &next, 0).finish_ns, 90);
    assert_int_equal(sy_admission_drained_ns(a, 0), 80);
    assert_true(sy_admission_is_valid(a));
    sy_admission_destroy(a);
}

/* Q5: half done, it goes on, unless the urgent one would be late for it. */
static void test_what_restarts_gives_way_early(void **state)
{
    (void)state;
    static const struct {
        sy_ns at, deadline; /* of the urgent one */
        bool gives_way;
    } cases[] = {{20, 0, true},  {25, 80, true}, {30, 80, false},
                 {30, 0, false}, {30, 42, true}, {49, 60, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sy_admission *a = make_like_the_runtime();
        struct sy_admission_request low = {1, 1, 0, {50, 0}}, got;
        struct sy_admission_request high = {2, 0, cases[i].deadline, {8, 0}};
        struct sy_prediction p;
        assert_int_equal(sy_admission_ask(a, &low, 0, &p), SY_OK);
        assert_int_equal(sy_admission_next(a, 0, &got), SY_ADMISSION_START);
        assert_int_equal(sy_admission_ask(a, &high, cases[i].at, &p), SY_OK);
        assert_int_equal(p.finish_ns, (cases[i].gives_way ? cases[i].at + 2 : 50) + 8);
        assert_int_equal(sy_admission_next(a, cases[i].at, &got),
                         cases[i].gives_way ? SY_ADMISSION_PREEMPT : SY_ADMISSION_WAIT);
        /* Behind both: the one that gave way takes all of its time again. */
        low = (struct sy_admission_request){3, 1, 0, {10, 0}};
        p = sy_admission_predict(a, &low, cases[i].at);
        assert_int_equal(p.finish_ns, (cases[i].gives_way ? cases[i].at + 2 + 50 : 50) + 8 + 10);
        sy_admission_destroy(a);
    }
}

/* Q5: an urgent one each 10 ms. One of 50 ms gives way as long as it has more before it than it lost in all, and then gets through; one
 * that was expected to take 4 ms and runs for ever gives way too. */
static void test_who_gives_way_gets_through(void **state)
{
    (void)state;
    static const struct {
        sy_ns expected;
        int gives_way;
    } cases[] = {{50, 3}, {4, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sy_admission *a = make_like_the_runtime();
        struct sy_admission_request low = {1, 1, 0, {cases[i].expected, 0}}, got;
        struct sy_admission_request high = {2, 0, 0, {1, 0}};
        struct sy_prediction p;
        sy_ns now = 0;
        int n = 0;
        assert_int_equal(sy_admission_ask(a, &low, now, &p), SY_OK);
        for (;; n++) {
            assert_int_equal(sy_admission_next(a, now, &got), SY_ADMISSION_START);
            assert_int_equal(got.id, 1);
            now += 10;
            assert_int_equal(sy_admission_ask(a, &high, now, &p), SY_OK);
            if (sy_admission_next(a, now, &got) != SY_ADMISSION_PREEMPT)
                break;
            now += 2;
            sy_admission_again(a, low.duration, now);
            assert_int_equal(sy_admission_next(a, now, &got), SY_ADMISSION_START);
            assert_int_equal(got.id, 2);
            sy_admission_done(a);
        }
        assert_int_equal(n, cases[i].gives_way);
        sy_admission_destroy(a);
    }
}

/* How soon a running one stops is learned. */
static void test_stopping_is_predicted_as_it_was_seen(void **state)
{
    (void)state;
    struct sy_admission_config config = {20 * SY_NS_PER_MS, 64, true, true, false};
    struct sy_admission *a;
    struct sy_admission_request low = {1, 1, 0, {SY_NS_PER_S, 0}}, got;
    struct sy_admission_request high = {2, 0, 0, {8 * SY_NS_PER_MS, 0}};
    struct sy_prediction p;
    sy_ns now = 0;
    assert_int_equal(sy_admission_create(&config, &a), SY_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sy_admission_ask(a, &low, now, &p), SY_OK);
        assert_int_equal(sy_admission_next(a, now, &got), SY_ADMISSION_START);
        assert_int_equal(sy_admission_ask(a, &high, now, &p), SY_OK);
        if (i == 0)
            assert_int_equal(p.finish_ns, now + 28 * SY_NS_PER_MS);
        assert_int_equal(sy_admission_next(a, now, &got), SY_ADMISSION_PREEMPT);
        now += 3 * SY_NS_PER_MS;
        sy_admission_again(a, low.duration, now);
        assert_int_equal(sy_admission_next(a, now, &got), SY_ADMISSION_START);
        assert_int_equal(got.id, 2);
        now += 8 * SY_NS_PER_MS;
        sy_admission_done(a);
        assert_true(sy_admission_cancel(a, 1));
    }
    double took = (double)(p.latest_ns - now) / (double)SY_NS_PER_MS + 11;
    assert_true(took > 10.9 && took < 11.2);
    sy_admission_destroy(a);
}

/* Q1: with a deadline of its own it breaks no promise; without one it goes where its class says. */
static void test_who_may_break_promises(void **state)
{
    (void)state;
    struct sy_admission *a = make_like_the_runtime();
    struct sy_admission_request low = {1, 1, 55, {50, 0}}, high = {2, 0, 40, {8, 0}};
    struct sy_prediction p;
    assert_int_equal(sy_admission_ask(a, &low, 0, &p), SY_OK);
    assert_int_equal(sy_admission_ask(a, &high, 0, &p), SY_EDEADLINE);
    assert_true(p.breaks && p.would_break == 1);
    high.deadline_ns = 0;
    assert_int_equal(sy_admission_ask(a, &high, 0, &p), SY_OK);
    sy_admission_destroy(a);
}

/* Q6: a class that asks for a third of the time, a second each, makes the next one's long waits a fifth longer, its short ones no
 * longer (one time in ten or more nobody comes meanwhile), and is forgotten. */
/* Patient requests until no more are taken, then more urgent ones, class by class: each finds places of its own. */
static void test_a_full_queue_keeps_places_for_urgent_ones(void **state)
{
    (void)state;
    static const int sizes[] = {1, 7, 71, 72, 100, 1024};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct sy_admission_config config = {.max_requests = sizes[k]};
        struct sy_admission *a;
        struct sy_prediction p;
        int n = 0;
        assert_int_equal(sy_admission_create(&config, &a), SY_OK);
        for (int class_ = 12; class_ >= 0; class_--) {
            int before = n, status;
            struct sy_admission_request r = {.class_ = class_, .duration = {.expected_ns = 10}};
            do {
                r.id = (uint64_t)n + 1;
                status = sy_admission_ask(a, &r, 0, &p);
                n += status == SY_OK;
            } while (status == SY_OK);
            assert_int_equal(status, SY_EBUSY);
            assert_true(class_ >= 9 || sizes[k] < 72 || n > before);
            assert_true(class_ == 12 ? n >= sizes[k] - sizes[k] / 8 : class_ < 9 || n == before);
            if (n < sizes[k]) {
                char said[64];
                snprintf(said, sizeof said, "%d of the queue's %d places", sizes[k] - n, sizes[k]);
                assert_non_null(strstr(sy_error_text(), said));
            }
        }
        assert_int_equal(n, sizes[k]);
        assert_true(sy_admission_is_valid(a));
        sy_admission_destroy(a);
    }
}

static void test_urgent_demand_is_reserved(void **state)
{
    (void)state;
    struct sy_admission *a = make_like_the_runtime();
    struct sy_admission_request got, urgent = {1, 0, 0, {SY_NS_PER_S, 0}};
    struct sy_admission_request low = {2, 1, 0, {9 * SY_NS_PER_S, 0}};
    struct sy_prediction p;
    sy_ns now = 0;
    for (int i = 0; i < 100; i++, now += 3 * SY_NS_PER_S) {
        assert_int_equal(sy_admission_ask(a, &urgent, now, &p), SY_OK);
        assert_int_equal(p.finish_ns, now + SY_NS_PER_S); /* its own class does not count */
        assert_int_equal(sy_admission_next(a, now, &got), SY_ADMISSION_START);
        sy_admission_done(a);
    }
    double took =
        (double)(sy_admission_predict(a, &low, now).finish_ns - now) / (double)SY_NS_PER_S;
    assert_true(took > 10.7 && took < 11.1);
    struct sy_admission_request brief = {3, 1, 0, {SY_NS_PER_S, 0}};
    assert_int_equal(sy_admission_predict(a, &brief, now).finish_ns, now + SY_NS_PER_S);
    now += 300 * SY_NS_PER_S;
    took = (double)(sy_admission_predict(a, &low, now).finish_ns - now) / (double)SY_NS_PER_S;
    assert_true(took > 8.99 && took < 9.01);
    sy_admission_destroy(a);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prediction_and_refusal),
        cmocka_unit_test(test_urgent_classes_preempt),
        cmocka_unit_test(test_who_lost_margin_is_not_delayed),
        cmocka_unit_test(test_what_giving_way_costs_is_predicted),
        cmocka_unit_test(test_one_that_waits_is_revised),
        cmocka_unit_test(test_taken_if_any_order_holds),
        cmocka_unit_test(test_taking_over_is_as_if_it_had_been_told_at_once),
        cmocka_unit_test(test_promises_hold_exactly),
        cmocka_unit_test(test_promises_hold_with_preemption),
        cmocka_unit_test(test_promises_hold_with_restarts),
        cmocka_unit_test(test_what_restarts_gives_way_early),
        cmocka_unit_test(test_who_gives_way_gets_through),
        cmocka_unit_test(test_stopping_is_predicted_as_it_was_seen),
        cmocka_unit_test(test_who_may_break_promises),
        cmocka_unit_test(test_a_full_queue_keeps_places_for_urgent_ones),
        cmocka_unit_test(test_urgent_demand_is_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

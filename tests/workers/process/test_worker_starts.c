/* The supervisor alone: in which order workers start, and when one that died is replaced (V3, V5). Its workers only sleep; the test says what they would. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/supervisor/supervisor.h"

struct rig {
    struct event_base *base;
    struct sy_supervisor *s;
    char program[64];
    int n_lost;
    bool is_last; /* none that is lost comes back */
    pid_t dies;   /* 0, or the process that is lost next */
};

static int on_message(void *ctx, int worker, const struct sy_message *message)
{
    (void)ctx, (void)worker, (void)message;
    return SY_EPROTO;
}

static void on_lost(void *ctx, int worker, enum sy_worker_state was, bool comes_back,
                    const char *why)
{
    struct rig *r = ctx;
    (void)worker, (void)was, (void)why;
    assert_true(comes_back != r->is_last);
    if (r->dies)
        assert_int_equal(kill(r->dies, 0), 0); /* not reaped yet */
    r->n_lost++;
}

static void write_program(struct rig *r)
{
    static const char text[] = "#!/bin/sh\nexec sleep 300\n";
    snprintf(r->program, sizeof r->program, "/tmp/switchyard-sleeper-XXXXXX");
    int fd = mkstemp(r->program);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    assert_int_equal(fchmod(fd, 0700), 0);
    close(fd);
}

static void rig_open(struct rig *r, int n_workers, int most_starting, sy_ns hang_timeout_ns)
{
    *r = (struct rig){.base = event_base_new()};
    write_program(r);
    struct sy_supervisor_config config = {
        .program = r->program,
        .n_workers = n_workers,
        .most_starting = most_starting,
        .hang_timeout_ns = hang_timeout_ns,
        .ops = {.message = on_message, .lost = on_lost, .ctx = r}};
    assert_int_equal(sy_supervisor_create(r->base, &config, &r->s), SY_OK);
}

static void rig_close(struct rig *r)
{
    sy_supervisor_destroy(r->s);
    event_base_free(r->base);
    unlink(r->program);
}

static void get_ready(struct rig *r, int worker)
{
    static const enum sy_worker_event events[] = {SY_WORKER_EVENT_HELLO, SY_WORKER_EVENT_READY,
                                                  SY_WORKER_EVENT_MODELS_DONE};
    for (int i = 0; i < 3; i++)
        assert_int_equal(sy_supervisor_event(r->s, worker, events[i]), SY_OK);
}

static bool is_there(const struct rig *r, int worker)
{
    return sy_supervisor_pid(r->s, worker) > 0;
}

/* Until its death has been handled, and no event after that. */
static void kill_worker(struct rig *r, int worker)
{
    int n = r->n_lost;
    assert_int_equal(kill(sy_supervisor_pid(r->s, worker), SIGKILL), 0);
    while (r->n_lost == n)
        assert_int_equal(event_base_loop(r->base, EVLOOP_ONCE), 0);
}

static void await(struct rig *r, int n_alive)
{
    while (sy_supervisor_n_alive(r->s) < n_alive)
        assert_int_equal(event_base_loop(r->base, EVLOOP_ONCE), 0);
}

/* Five, two at a time until one serves, then one by one. Those that never get ready hold up nobody for long. */
static void test_as_many_start_as_may(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 5, 2, 60 * SY_NS_PER_S);
    sy_ns begun = sy_clock_now();
    assert_int_equal(sy_supervisor_n_alive(r.s), 2);
    assert_true(is_there(&r, 0) && is_there(&r, 1));
    get_ready(&r, 1);
    assert_true(!is_there(&r, 2) || sy_clock_now() > begun + SY_NS_PER_S / 2);
    get_ready(&r, 0);
    assert_true(is_there(&r, 2));
    assert_true(!is_there(&r, 3) || sy_clock_now() > begun + SY_NS_PER_S / 2);
    await(&r, 5);
    rig_close(&r);
}

static void test_all_start_where_all_may(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 5, 0, 60 * SY_NS_PER_S);
    assert_int_equal(sy_supervisor_n_alive(r.s), 5);
    rig_close(&r);
}

/* What it computed runs again on the one that is idle; with none, its replacement is what the request waits for. */
static void test_replacement_waits_for_the_rerun(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 2, 2, 60 * SY_NS_PER_S);
    get_ready(&r, 0);
    get_ready(&r, 1);
    kill_worker(&r, 0);
    assert_false(is_there(&r, 0));
    await(&r, 2);
    assert_int_equal(sy_supervisor_event(r.s, 1, SY_WORKER_EVENT_LOAD), SY_OK);
    kill_worker(&r, 1);
    assert_true(is_there(&r, 1));
    rig_close(&r);
}

/* Reaping can take long: what waits for the dead one's memory is told before. */
static void test_told_before_it_is_reaped(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 2, 2, 60 * SY_NS_PER_S);
    get_ready(&r, 0);
    get_ready(&r, 1);
    r.dies = sy_supervisor_pid(r.s, 0);
    kill_worker(&r, 0);
    while (kill(r.dies, 0) == 0) /* it is reaped */
        usleep(1000);
    assert_int_equal(errno, ESRCH);
    r.dies = 0;
    rig_close(&r);
}

/* None of them would ever read that it is to stop: one that starts, one that prepares a job. */
static void test_stop_waits_for_none_that_stands_still(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 2, 2, SY_NS_PER_S);
    get_ready(&r, 0);
    assert_int_equal(sy_supervisor_event(r.s, 0, SY_WORKER_EVENT_JOB_PREPARE), SY_OK);
    r.is_last = true;
    sy_supervisor_stop(r.s, 600 * SY_NS_PER_S);
    while (sy_supervisor_n_alive(r.s) > 0)
        assert_int_equal(event_base_loop(r.base, EVLOOP_ONCE), 0);
    assert_int_equal(r.n_lost, 2);
    rig_close(&r);
}

/* Its program cannot be run any more when its turn comes. Ten tries later it is given up, and the caller hears of it. */
static void test_one_that_cannot_start_is_given_up(void **state)
{
    (void)state;
    struct rig r;
#ifdef SY_SANITIZED
    print_message("left out under sanitizers: it waits for 16 s\n");
    skip();
#endif
    rig_open(&r, 2, 1, 60 * SY_NS_PER_S);
    assert_int_equal(chmod(r.program, 0600), 0);
    r.is_last = true;
    get_ready(&r, 0);
    assert_int_equal(r.n_lost, 0);
    while (r.n_lost == 0)
        assert_int_equal(event_base_loop(r.base, EVLOOP_ONCE), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(event_base_loop(r.base, EVLOOP_ONCE), 0);
    assert_int_equal(r.n_lost, 1);
    assert_true(is_there(&r, 0) && !is_there(&r, 1));
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_many_start_as_may),
        cmocka_unit_test(test_all_start_where_all_may),
        cmocka_unit_test(test_replacement_waits_for_the_rerun),
        cmocka_unit_test(test_told_before_it_is_reaped),
        cmocka_unit_test(test_one_that_cannot_start_is_given_up),
        cmocka_unit_test(test_stop_waits_for_none_that_stands_still),
    };
    sy_log_init("test_worker_starts");
    sy_log_threshold = SY_LOG_ERROR; /* workers die here, as they should */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

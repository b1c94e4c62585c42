/* Jobs that are spilled, on a real server: their workers go to guaranteed ones, and whatever becomes of worker and runtime meanwhile, they go on with the
 * step and the bits with which they left the pool. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/rigs/server_fixture.h"

#define ENDLESS  1000000
#define ROOMY    "256M"
#define EMULATED "emulated,link-gbps=2"

/* The opportunistic one and the large guaranteed one have Adam's state, which is persistent and half of theirs; the small one does without. */
static const char *make_job(struct fixture *f, const char *name, bool opportunistic, bool small,
                            int steps)
{
    const char *path = fixture_make_job(f, name, steps, ENDLESS);
    json_t *job = json_load_file(path, 0, NULL);
    json_object_set_new(job, "class", json_string(opportunistic ? "opportunistic" : "guaranteed"));
    json_object_set_new(job, "batch", json_integer(small ? 4 : 16));
    if (small)
        json_object_set_new(job, "optimizer",
                            json_pack("{s:s, s:f}", "kind", "sgd", "learning_rate", 0.001));
    assert_int_equal(json_dump_file(job, path, 0), 0);
    json_decref(job);
    return path;
}

/* Of status.jobs. The caller frees *status. */
static json_t *job_entry(struct fixture *f, uint64_t id, json_t **status)
{
    size_t i;
    json_t *job;
    *status = fixture_status(f);
    json_array_foreach(json_object_get(*status, "jobs"), i,
                       job) if ((uint64_t)json_integer_value(json_object_get(job, "job")) ==
                                id) return job;
    fail_msg("no job %d in the status", (int)id);
    return NULL;
}

static double number_of(struct fixture *f, uint64_t id, const char *key)
{
    json_t *status, *job = job_entry(f, id, &status);
    double value = json_number_value(json_object_get(job, key));
    json_decref(status);
    return value;
}

static bool is_in(struct fixture *f, uint64_t id, const char *state)
{
    json_t *status, *job = job_entry(f, id, &status);
    bool is = strcmp(json_string_value(json_object_get(job, "state")), state) == 0;
    json_decref(status);
    return is;
}

/* Whether it was started, by whichever worker, at that step. */
static bool started_at(const struct fixture *f, uint64_t id, const char *name, uint64_t step)
{
    char line[200];
    for (int worker = 0; worker < 8; worker++) {
        snprintf(line, sizeof line, "event=started job=%d name=%s worker=%d step=%d\n", (int)id,
                 name, worker, (int)step);
        if (fixture_log_has(f, line))
            return true;
    }
    return false;
}

struct scene {
    struct fixture f;
    char pool[32], state[200];
    const char *device;
    uint64_t job, large, small; /* job: the opportunistic one, out at `step` */
    uint64_t step;
};

static void start_server(struct scene *s, const char *pool, const char *workers)
{
    const char *const args[] = {"--device", s->device, "--pool-bytes", pool, "--workers",
                                workers,    "--state", s->state,       NULL};
    fixture_start(&s->f, args);
}

/* A pool for the large one and the small one, not for both with Adam. */
static void find_pool(struct scene *s)
{
    start_server(s, ROOMY, "3");
    uint64_t job = fixture_submit(&s->f, make_job(&s->f, "measured", true, false, ENDLESS));
    double persistent = number_of(&s->f, job, "persistent_bytes"),
           iteration = number_of(&s->f, job, "ephemeral_bytes");
    snprintf(s->pool, sizeof s->pool, "%.0fK", (1.8 * persistent + iteration) / 1000);
    fixture_end_job(&s->f, job);
    assert_int_equal(fixture_stop(&s->f), 0);
}

/* Two workers train: one is the large job's, one that of the job which gave its memory for it. */
static void open_scene(struct scene *s, const char *name, const char *device)
{
    memset(s, 0, sizeof *s);
    s->device = device;
    fixture_init(&s->f, name);
    snprintf(s->state, sizeof s->state, "%s/state", s->f.folder);
    find_pool(s);
    start_server(s, s->pool, "3");
    s->job = fixture_submit(&s->f, make_job(&s->f, "disturbed", true, false, ENDLESS));
    fixture_wait_step(&s->f, s->job, 3);
    s->large = fixture_submit(&s->f, make_job(&s->f, "large", false, false, ENDLESS));
    assert_true(fixture_counter(&s->f, "spills") >= 1);
    assert_true(is_in(&s->f, s->job, "spilled"));
    s->step = (uint64_t)number_of(&s->f, s->job, "step");
    assert_true(s->step >= 3);
}

/* Answered when it has started: it has the worker by then. */
static void submit_small(struct scene *s)
{
    s->small = fixture_submit(&s->f, make_job(&s->f, "small", false, true, ENDLESS));
    assert_true(is_in(&s->f, s->job, "queued"));
    assert_true((uint64_t)number_of(&s->f, s->job, "step") == s->step);
    assert_true((uint64_t)number_of(&s->f, s->job, "snapshot_step") == s->step);
}

static void compare_with_alone(struct scene *s, uint64_t step)
{
    size_t bytes, other;
    fixture_wait_ended(&s->f,
                       fixture_submit(&s->f, make_job(&s->f, "alone", false, false, (int)step)));
    void *expected = fixture_read_snapshot(&s->f, "alone", step, &bytes);
    void *state = fixture_read_snapshot(&s->f, "disturbed", step, &other);
    assert_int_equal(bytes, other);
    assert_memory_equal(expected, state, bytes);
    free(expected);
    free(state);
}

static void close_scene(struct scene *s)
{
    assert_int_equal(fixture_stop(&s->f), 0);
    fixture_finish(&s->f);
}

/* It is back, without a step made twice, and ends with the bits of one that was left alone. */
static void goes_on_and_ends(struct scene *s)
{
    fixture_wait_step(&s->f, s->job, s->step + 5);
    compare_with_alone(s, fixture_end_job(&s->f, s->job));
    close_scene(s);
}

static void leaves_and_comes_back(const char *device)
{
    struct scene s;
    open_scene(&s, "spillleave", device);
    submit_small(&s);
    fixture_wait_step(&s.f, s.small, 3);
    fixture_end_job(&s.f, s.small);
    fixture_end_job(&s.f, s.large);
    fixture_wait_step(&s.f, s.job, s.step + 1);
    assert_true(started_at(&s.f, s.job, "disturbed", s.step));
    goes_on_and_ends(&s);
}

static void leaves_and_comes_back_on_host(void **state)
{
    (void)state;
    leaves_and_comes_back("host");
}

static void leaves_and_comes_back_on_emulated(void **state)
{
    (void)state;
    leaves_and_comes_back(EMULATED);
}

/* Paused and let go on again while it has no worker, stopped there: its snapshot is of the step with which it left. */
static void paused_and_stopped_without_a_worker(void **state)
{
    (void)state;
    struct scene s;
    open_scene(&s, "spillstop", "host");
    submit_small(&s);
    json_t *params = json_pack("{s:I}", "job", (json_int_t)s.job);
    json_decref(fixture_call(&s.f, "job_pause", json_incref(params)));
    json_decref(fixture_call(&s.f, "job_resume", params));
    assert_int_equal(fixture_end_job(&s.f, s.job), s.step);
    fixture_end_job(&s.f, s.small);
    fixture_end_job(&s.f, s.large);
    compare_with_alone(&s, s.step);
    close_scene(&s);
}

/* No snapshot was written: what it goes on with was in host memory. */
static void its_worker_is_killed(const char *device)
{
    struct scene s;
    json_t *status;
    open_scene(&s, "spillkill", device);
    size_t worker = (size_t)number_of(&s.f, s.job, "worker");
    assert_true(number_of(&s.f, s.job, "snapshot_step") == 0);
    (void)job_entry(&s.f, s.job, &status);
    json_t *entry = json_array_get(json_object_get(status, "workers"), worker);
    assert_int_equal(kill((pid_t)json_integer_value(json_object_get(entry, "pid")), SIGKILL), 0);
    json_decref(status);
    fixture_end_job(&s.f, s.large);
    fixture_wait_step(&s.f, s.job, s.step + 1);
    assert_true(started_at(&s.f, s.job, "disturbed", s.step));
    goes_on_and_ends(&s);
}

static void its_worker_is_killed_on_host(void **state)
{
    (void)state;
    its_worker_is_killed("host");
}

static void its_worker_is_killed_on_emulated(void **state)
{
    (void)state;
    its_worker_is_killed(EMULATED);
}

/* C5: spilled on its worker, or without one. */
static void the_runtime_stops(void **state)
{
    (void)state;
    for (int has_worker = 0; has_worker < 2; has_worker++) {
        struct scene s;
        open_scene(&s, "spillterm", has_worker ? "host" : EMULATED);
        if (!has_worker)
            submit_small(&s);
        assert_int_equal(fixture_stop(&s.f), 0);
        start_server(&s, ROOMY, "5");
        fixture_end_job(&s.f, s.large);
        if (!has_worker)
            fixture_end_job(&s.f, s.small);
        fixture_wait_step(&s.f, s.job, s.step + 1);
        assert_true(started_at(&s.f, s.job, "disturbed", s.step));
        goes_on_and_ends(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_and_comes_back_on_host),
        cmocka_unit_test(leaves_and_comes_back_on_emulated),
        cmocka_unit_test(paused_and_stopped_without_a_worker),
        cmocka_unit_test(its_worker_is_killed_on_host),
        cmocka_unit_test(its_worker_is_killed_on_emulated),
        cmocka_unit_test(the_runtime_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Real servers: a run that gives way between its layers, deadlines that cannot be met, clients that go while they wait. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tests/rigs/server_fixture.h"

#define LONG_MODEL "bert_tiny"
#ifdef SY_SANITIZED
#define LONG_BATCH 48
#else
#define LONG_BATCH 256 /* some 100 ms */
#endif
#define URGENT   0
#define ORDINARY 1
#define PATIENT  9
#define ROUNDS   60

static void sleep_ms(uint64_t ms)
{
    sy_clock_sleep_until(sy_clock_now() + ms * SY_NS_PER_MS);
}

static void start(struct fixture *f, const char *name, const char *device)
{
    fixture_init(f, name);
    const char *const args[] = {"--models", fixture_models(), "--device", device, "--pool-bytes",
                                "256M",     "--workers",      "3",        NULL};
    fixture_start(f, args);
}

static sy_client *another(const struct fixture *f, unsigned timeout_ms)
{
    sy_client *client = NULL;
    if (sy_client_connect(f->address, timeout_ms, &client) < 0)
        fail_msg("cannot connect: %s", sy_client_error(client));
    return client;
}

/* ---- one that asks for long runs, one after the other ------------------------------------------------------ */

struct patient {
    const struct fixture *f;
    const sy_client_result *reference;
    int class_;
    pthread_t thread;
    atomic_bool stop;
    atomic_int n_done, n_again; /* n_again: that were begun more than once */
    int n_wrong, n_failed;
    char error[256];
};

static void *ask_patiently(void *arg)
{
    struct patient *p = arg;
    const sy_client_options options = {.urgency_class = p->class_};
    sy_client *client = NULL;
    int status = sy_client_connect(p->f->address, 300000, &client);
    while (status == SY_OK && !atomic_load(&p->stop)) {
        sy_client_result *result =
            fixture_infer_with(client, LONG_MODEL, LONG_BATCH, 0, &options, &status);
        p->n_wrong += status == SY_OK && !fixture_same(result, p->reference);
        if (status == SY_OK && result->attempts > 1)
            atomic_fetch_add(&p->n_again, 1);
        sy_client_result_free(result);
        atomic_fetch_add(&p->n_done, 1);
    }
    if (status < 0) {
        p->n_failed++;
        snprintf(p->error, sizeof p->error, "%s", sy_client_error(client));
        atomic_fetch_add(&p->n_done, ROUNDS * 2); /* nobody waits for it */
    }
    sy_client_close(client);
    return NULL;
}

static void start_patient(struct patient *p, const struct fixture *f,
                          const sy_client_result *reference, int class_)
{
    *p = (struct patient){.f = f, .reference = reference, .class_ = class_};
    assert_int_equal(pthread_create(&p->thread, NULL, ask_patiently, p), 0);
}

static void stop_patient(struct patient *p)
{
    atomic_store(&p->stop, true);
    pthread_join(p->thread, NULL);
    if (p->n_failed)
        fail_msg("a long one failed: %s", p->error);
    assert_int_equal(p->n_wrong, 0);
}

static void wait_done(struct patient *p, int n)
{
    for (int i = 0; i < 60000 && atomic_load(&p->n_done) < n; i++)
        sleep_ms(1);
    assert_true(atomic_load(&p->n_done) >= n);
}

static void wait_started(struct fixture *f)
{
    for (int i = 0; i < 20000 && fixture_worker_in(f, "running") <= 0; i++)
        sleep_ms(1);
    assert_true(fixture_worker_in(f, "running") > 0);
}

/* ---- giving way -------------------------------------------------------------------------------------------- */

/* One urgent request into each long run, at ever other moments: both answers have the bits that they have on an idle system. */
static void gives_way_on(const char *device)
{
    struct fixture f;
    struct patient low;
    const sy_client_options urgent = {.urgency_class = URGENT};
    start(&f, "interrupt", device);
    sy_client_result *expected = fixture_infer(&f, "mlp", 1, 0, NULL);
    sy_client_result *reference = fixture_infer(&f, LONG_MODEL, LONG_BATCH, 0, NULL);
    start_patient(&low, &f, reference, PATIENT);
    for (int round = 0; round < ROUNDS && atomic_load(&low.n_again) < 3; round++) {
        int status = 0, n = atomic_load(&low.n_done);
        wait_started(&f);
        sleep_ms((uint64_t)(round * 7 % 30));
        sy_client_result *result = fixture_infer_with(f.client, "mlp", 1, 0, &urgent, &status);
        if (status < 0)
            fail_msg("the urgent one: %s", sy_client_error(f.client));
        assert_true(fixture_same(result, expected));
        sy_client_result_free(result);
        wait_done(&low, n + 1);
    }
    stop_patient(&low);
    assert_true(atomic_load(&low.n_again) >= 1);
    assert_true(fixture_counter(&f, "interrupts") >= atomic_load(&low.n_again));
    assert_true(fixture_counter(&f, "continued") >=
                1); /* not begun again: its workspace has room */
    assert_int_equal(fixture_counter(&f, "failed"), 0);
    sy_client_result_free(expected);
    sy_client_result_free(reference);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void gives_way_on_host(void **state)
{
    (void)state;
    gives_way_on("host");
}

static void gives_way_on_emulated(void **state)
{
    (void)state;
    gives_way_on("emulated,link-gbps=2");
}

/* Requests of its own class, or of a less urgent one, do not interrupt it. (A patient one that runs does give way to the next
 * ordinary one.) */
static void equals_wait(void **state)
{
    (void)state;
    struct fixture f;
    struct patient ordinary;
    const sy_client_options patient = {.urgency_class = PATIENT};
    start(&f, "equals", "host");
    sy_client_result *expected = fixture_infer(&f, "mlp", 1, 0, NULL);
    sy_client_result *reference = fixture_infer(&f, LONG_MODEL, LONG_BATCH, 0, NULL);
    start_patient(&ordinary, &f, reference, ORDINARY);
    for (int round = 0; round < 6; round++) {
        int status = 0;
        wait_started(&f);
        sy_client_result *result =
            fixture_infer_with(f.client, "mlp", 1, 0, round % 2 ? &patient : NULL, &status);
        assert_int_equal(status, SY_OK);
        assert_true(fixture_same(result, expected));
        assert_true(round % 2 || result->attempts == 1);
        sy_client_result_free(result);
    }
    stop_patient(&ordinary);
    assert_int_equal(atomic_load(&ordinary.n_again), 0);
    sy_client_result_free(expected);
    sy_client_result_free(reference);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* ---- deadlines ---------------------------------------------------------------------------------------------- */

/* Refused with what was predicted and what was asked for; the connection is good for the next one. */
static void refused_by_prediction(struct fixture *f, const char *model, int64_t batch,
                                  double deadline_ms)
{
    double done_ms = 0, left_ms = 0, ago_ms = 0;
    int status = 0;
    const sy_client_options options = {.urgency_class = ORDINARY, .deadline_ms = deadline_ms};
    int64_t before = fixture_counter(f, "refused_late");
    sy_client_result_free(fixture_infer_with(f->client, model, batch, 0, &options, &status));
    assert_int_equal(status, SY_EDEADLINE);
    const char *error = sy_client_error(f->client);
    const char *predicted = strstr(error, "would be done in "),
               *asked = strstr(error, "its deadline ");
    if (!predicted || !asked || sscanf(predicted, "would be done in %lf ms", &done_ms) != 1)
        fail_msg("no prediction in: %s", error);
    /* One of microseconds may have passed before it is looked at. */
    if (sscanf(asked, "its deadline is in %lf ms", &left_ms) == 1)
        assert_true(left_ms <= deadline_ms);
    else if (sscanf(asked, "its deadline was %lf ms ago", &ago_ms) != 1)
        fail_msg("no deadline in: %s", error);
    assert_true(done_ms > 0);
    assert_int_equal(fixture_counter(f, "refused_late"), before + 1);
}

static void a_deadline_that_cannot_be_met_is_refused_at_once(void **state)
{
    (void)state;
    struct fixture f;
    struct patient other;
    const sy_client_options roomy = {.urgency_class = ORDINARY, .deadline_ms = 60000};
    int status = 0;
    start(&f, "deadline", "host");
    sy_client_result *expected = fixture_infer(&f, "mlp", 1, 0, NULL);
    sy_client_result *reference = fixture_infer(&f, LONG_MODEL, LONG_BATCH, 0, NULL);
    refused_by_prediction(&f, LONG_MODEL, LONG_BATCH, 0.01);
    /* Behind a run that takes long even a short one is late; it is told so before that run is over. */
    start_patient(&other, &f, reference, ORDINARY);
    bool at_once = false;
    for (int round = 0; round < ROUNDS && !at_once; round++) {
        int n = atomic_load(&other.n_done);
        wait_started(&f);
        if (atomic_load(&other.n_done) != n)
            continue;
        refused_by_prediction(&f, LONG_MODEL, LONG_BATCH, 1);
        at_once = atomic_load(&other.n_done) == n;
    }
    assert_true(at_once);
    stop_patient(&other);
    sy_client_result *result = fixture_infer_with(f.client, "mlp", 1, 0, &roomy, &status);
    assert_int_equal(status, SY_OK);
    assert_true(fixture_same(result, expected));
    sy_client_result_free(result);
    assert_int_equal(fixture_counter(&f, "failed"), 0);
    sy_client_result_free(expected);
    sy_client_result_free(reference);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* ---- predictions ---------------------------------------------------------------------------------------------- */

static int in_queue(struct fixture *f, const char *how)
{
    json_t *status = fixture_status(f);
    int n = (int)json_integer_value(json_object_get(json_object_get(status, "queue"), how));
    json_decref(status);
    return n;
}

struct one {
    const struct fixture *f;
    sy_client_result *result;
    pthread_t thread;
};

static void *ask_once(void *arg)
{
    struct one *one = arg;
    sy_client *client = NULL;
    int status = sy_client_connect(one->f->address, 300000, &client);
    if (status == SY_OK)
        one->result = fixture_infer_on(client, LONG_MODEL, 1, 0, &status);
    sy_client_close(client);
    return NULL;
}

/* A second request for a model that is being swapped in finds it there: it is not predicted to swap again. */
static void two_for_one_model_swap_once(void **state)
{
    (void)state;
    struct fixture f;
    start(&f, "twice", "emulated,link-gbps=0.01");
    for (int i = 0; i < 3; i++) { /* what its runs take is known then */
        json_decref(fixture_call(&f, "evict", json_pack("{s:s}", "model", LONG_MODEL)));
        sy_client_result_free(fixture_infer(&f, LONG_MODEL, 1, 0, NULL));
    }
    json_decref(fixture_call(&f, "evict", json_pack("{s:s}", "model", LONG_MODEL)));
    struct one first = {.f = &f};
    assert_int_equal(pthread_create(&first.thread, NULL, ask_once, &first), 0);
    for (int i = 0; i < 10000 && in_queue(&f, "started") == 0; i++)
        sleep_ms(1);
    sy_client_result *second = fixture_infer(&f, LONG_MODEL, 1, 0, NULL);
    pthread_join(first.thread, NULL);
    assert_non_null(first.result);
    assert_true(first.result->swapped);
    assert_true(first.result->predicted_ns > 0);
    assert_true(second->predicted_ns < first.result->predicted_ns * 3 / 2);
    sy_client_result_free(first.result);
    sy_client_result_free(second);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* ---- clients that go ------------------------------------------------------------------------------------------ */

static int64_t of_model(struct fixture *f, const char *name, const char *key)
{
    size_t i;
    int64_t value = -1;
    json_t *model, *status = fixture_status(f);
    json_array_foreach(json_object_get(status, "models"), i, model)
    {
        if (strcmp(json_string_value(json_object_get(model, "name")), name) == 0)
            value = json_integer_value(json_object_get(model, key));
    }
    json_decref(status);
    return value;
}

/* Stops the worker that runs: until it goes on, the device is its run's. Returns its pid. */
static pid_t hold_running(struct fixture *f)
{
    for (int i = 0; i < 1000; i++) {
        pid_t pid = fixture_wait_for_worker_in(f, "running");
        assert_int_equal(kill(pid, SIGSTOP), 0);
        /* Twice: what it said before it stopped has been read by then. */
        if (fixture_worker_in(f, "running") == pid && fixture_worker_in(f, "running") == pid)
            return pid;
        kill(pid, SIGCONT);
    }
    fail_msg("no run lasts long enough to be stopped");
    return 0;
}

/* Clients give up behind others and close: their requests are not run, all others are. One that is loaded ahead has started, so ordinary
 * ones, which come first, wait too. */
static void who_closes_while_waiting_is_forgotten(void **state)
{
    (void)state;
    struct fixture f;
    struct patient others[3];
    int n_gone = 0;
    start(&f, "close", "host");
    sy_client_result *expected = fixture_infer(&f, "mlp", 1, 0, NULL);
    sy_client_result *reference = fixture_infer(&f, LONG_MODEL, LONG_BATCH, 0, NULL);
    const sy_client_options patient = {.urgency_class = PATIENT};
    for (int i = 0; i < 3; i++)
        start_patient(&others[i], &f, reference, ORDINARY);
    for (int round = 0; round < 3; round++) {
        pid_t pid = hold_running(&f);
        int status = 0;
        for (int i = 0; i < 20000 && in_queue(&f, "waiting") + in_queue(&f, "started") < 3; i++)
            sleep_ms(1);
        assert_int_equal(in_queue(&f, "waiting") + in_queue(&f, "started"), 3);
        sy_client *client = another(&f, 50);
        sy_client_result_free(fixture_infer_with(client, "tiny_cnn", 1, 0, &patient, &status));
        assert_int_equal(status, SY_EDEADLINE); /* the client's own */
        n_gone++;
        sy_client_close(client);
        for (int i = 0; i < 20000 && of_model(&f, "tiny_cnn", "failed") < n_gone; i++)
            sleep_ms(1);
        assert_int_equal(of_model(&f, "tiny_cnn", "failed"), n_gone);
        assert_int_equal(kill(pid, SIGCONT), 0);
        sy_client_result *result = fixture_infer(&f, "mlp", 1, 0, NULL);
        assert_true(fixture_same(result, expected));
        sy_client_result_free(result);
    }
    for (int i = 0; i < 3; i++)
        stop_patient(&others[i]);
    assert_int_equal(of_model(&f, "tiny_cnn", "requests"), n_gone);
    assert_int_equal(of_model(&f, "tiny_cnn", "failed"), n_gone);
    assert_int_equal(of_model(&f, "tiny_cnn", "device_ns"), 0);
    assert_int_equal(fixture_counter(&f, "failed"), n_gone);
    sy_client_result_free(fixture_infer(&f, "tiny_cnn", 1, 0, NULL));
    sy_client_result_free(expected);
    sy_client_result_free(reference);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* Asks for long runs until one does not come in time, and closes. */
static void *ask_until_late(void *arg)
{
    int status = SY_OK;
    sy_client *client = another(arg, 300);
    while (status == SY_OK)
        sy_client_result_free(fixture_infer_on(client, LONG_MODEL, LONG_BATCH, 0, &status));
    sy_client_close(client);
    return NULL;
}

/* A client closes while its request computes: the run stops between two layers, and is not begun again. */
static void who_closes_while_computing_stops_it(void **state)
{
    (void)state;
    struct fixture f;
    int n_rounds = 0;
    start(&f, "gone", "host");
    sy_client_result *expected = fixture_infer(&f, "mlp", 1, 0, NULL);
    sy_client_result_free(fixture_infer(&f, LONG_MODEL, LONG_BATCH, 0, NULL));
    while (fixture_counter(&f, "failed") == 0 && n_rounds++ < ROUNDS) {
        int64_t before = fixture_counter(&f, "interrupts");
        pthread_t leaver;
        assert_int_equal(pthread_create(&leaver, NULL, ask_until_late, &f), 0);
        pid_t pid = hold_running(&f);
        pthread_join(leaver, NULL);
        for (int i = 0; i < 20000 && fixture_counter(&f, "interrupts") == before; i++)
            sleep_ms(1);
        assert_int_equal(fixture_counter(&f, "interrupts"), before + 1);
        assert_int_equal(kill(pid, SIGCONT), 0);
        for (int i = 0; i < 20000 && in_queue(&f, "waiting") + in_queue(&f, "started") > 0; i++)
            sleep_ms(1);
        assert_int_equal(in_queue(&f, "waiting") + in_queue(&f, "started"), 0);
    }
    assert_int_equal(fixture_counter(&f, "failed"), 1);
    assert_int_equal(of_model(&f, LONG_MODEL, "failed"), 1);
    assert_int_equal(fixture_counter(&f, "continued"), 0);
    sy_client_result *result = fixture_infer(&f, "mlp", 1, 0, NULL);
    assert_true(fixture_same(result, expected));
    sy_client_result_free(result);
    sy_client_result_free(expected);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_way_on_host),
        cmocka_unit_test(gives_way_on_emulated),
        cmocka_unit_test(equals_wait),
        cmocka_unit_test(a_deadline_that_cannot_be_met_is_refused_at_once),
        cmocka_unit_test(two_for_one_model_swap_once),
        cmocka_unit_test(who_closes_while_waiting_is_forgotten),
        cmocka_unit_test(who_closes_while_computing_stops_it),
    };
    if (getenv("SY_TEST_FILTER"))
        cmocka_set_test_filter(getenv("SY_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

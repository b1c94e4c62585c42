/* Real servers whose workers are killed, stopped, or lose their device: others answer, with the same bits. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tests/nets/reference_rig.h"
#include "tests/rigs/server_fixture.h"

static void idle_workers_are_replaced(void **state)
{
    (void)state;
    struct fixture f;
    struct references references;
    fixture_init(&f, "idle");
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    fixture_start(&f, args);
    references_take(&f, &references);
    for (int i = 0; i < 4; i++) {
        pid_t pid = fixture_wait_for_worker_in(&f, "idle");
        kill(pid, SIGKILL);
        references_ask(&f, &references, i % VARIANTS);
    }
    references_free(&references);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* Kills whatever worker runs or loads, while requests come: each is answered, with the right bits. */
static void requests_survive_their_worker(void **state)
{
    (void)state;
    struct fixture f;
    struct references references;
    struct asker asker = {.f = &f, .references = &references, .n = 200};
    int n_killed = 0;
    fixture_init(&f, "survive");
    const char *const args[] = {
        "--models",     fixture_models(), "--device", "emulated,link-gbps=0.05",
        "--pool-bytes", SMALL_POOL,       NULL};
    fixture_start(&f, args);
    references_take(&f, &references);
    assert_int_equal(pthread_create(&asker.thread, NULL, asker_main, &asker), 0);
    for (int i = 0; n_killed < 3 && atomic_load(&asker.n_done) < asker.n; i++) {
        pid_t pid = fixture_worker_in(&f, i % 2 ? "running" : "loading");
        if (pid <= 0)
            continue;
        int n = atomic_load(&asker.n_done);
        n_killed += kill(pid, SIGKILL) == 0;
        /* The same request may die once, not twice: let it be answered, and the next, which may be the one that died. */
        while (atomic_load(&asker.n_done) < SY_MIN(n + 2, asker.n))
            sy_clock_sleep_until(sy_clock_now() + 5 * SY_NS_PER_MS);
    }
    pthread_join(asker.thread, NULL);
    assert_true(n_killed >= 1);
    if (asker.n_failed)
        fail_msg("%d failed; the first: %s", asker.n_failed, asker.error);
    assert_int_equal(asker.n_wrong, 0);
    references_free(&references);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* Three workers that die with the same request end it (S5), with the reason of the last. */
static bool ended_by_deaths(int status)
{
    return status == SY_EPEER || status == SY_EDEVICE;
}

/* As references_ask, where workers die at every so many copies; what three deaths ended is asked for again. */
static void ask_all_through_deaths(struct fixture *f, const struct references *r, int variant)
{
    for (int m = 0; m < N_MODELS; m++) {
        sy_client_result *result = NULL;
        int status = SY_EPEER;
        for (int i = 0; i < 20 && ended_by_deaths(status); i++) {
            result = fixture_infer(f, reference_models[m], 1, variant, &status);
            if (ended_by_deaths(status)) /* others come up meanwhile */
                sy_clock_sleep_until(sy_clock_now() + 300 * SY_NS_PER_MS);
        }
        if (status)
            fail_msg("%s: %s: %s", reference_models[m], sy_status_name(status), sy_error_text());
        assert_true(fixture_same(result, r->of[m][variant]));
        sy_client_result_free(result);
    }
}

/* Every worker dies at its n-th copy, or its device fails there; all requests are answered, with the same bits. */
static void serves_through(const char *name, const char *fault)
{
    struct fixture f;
    struct references references;
    int64_t deaths = 0;
    json_t *now, *worker;
    size_t i;
    fixture_init(&f, name);
    const char *const args[] = {
        "--models",     fixture_models(), "--device", "emulated,link-gbps=2",
        "--pool-bytes", SMALL_POOL,       NULL};
    fixture_start(&f, args);
    references_take(&f, &references);
    assert_int_equal(fixture_stop(&f), 0);
    setenv("SY_FAULT", fault, 1);
    fixture_start(&f, args);
    unsetenv("SY_FAULT");
    for (int round = 0; round < 30; round++) {
        references_evict(&f, false);
        ask_all_through_deaths(&f, &references, round % VARIANTS);
    }
    now = fixture_status(&f);
    json_array_foreach(json_object_get(now, "workers"), i, worker) deaths +=
        json_integer_value(json_object_get(worker, "deaths"));
    json_decref(now);
    assert_true(deaths > 0);
    references_free(&references);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void requests_survive_workers_that_die_loading(void **state)
{
    (void)state;
    serves_through("loading", "copy_h2d:41:KILL");
}

static void requests_survive_workers_that_die_running(void **state)
{
    (void)state;
    serves_through("running", "event_record:83:KILL");
}

static void requests_survive_devices_that_fail(void **state)
{
    (void)state;
    serves_through("device", "copy_run:41:EDEVICE");
}

static void a_stopped_worker_is_killed_and_replaced(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "hang");
    const char *const args[] = {
        "--models", fixture_models(), "--pool-bytes", "64M", "--hang-timeout", "5", NULL};
    fixture_start(&f, args);
    pid_t pid = fixture_wait_for_worker_in(&f, "idle");
    kill(pid, SIGSTOP);
    for (int i = 0; i < 1000 && kill(pid, 0) == 0; i++)
        sy_clock_sleep_until(sy_clock_now() + 100 * SY_NS_PER_MS);
    assert_int_not_equal(kill(pid, 0), 0);
    sy_client_result_free(fixture_infer(&f, "mlp", 1, 0, NULL));
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_workers_are_replaced),
        cmocka_unit_test(requests_survive_their_worker),
        cmocka_unit_test(requests_survive_workers_that_die_loading),
        cmocka_unit_test(requests_survive_workers_that_die_running),
        cmocka_unit_test(requests_survive_devices_that_fail),
        cmocka_unit_test(a_stopped_worker_is_killed_and_replaced),
    };
    if (getenv("SY_TEST_FILTER")) /* names, with * and ? */
        cmocka_set_test_filter(getenv("SY_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

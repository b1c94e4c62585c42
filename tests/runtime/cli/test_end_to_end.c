/* Real servers, real workers: swaps under load, preempted training, killed runtimes, altered packages. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/reference_rig.h"
#include "tests/rigs/server_fixture.h"

/* ---- swaps ----------------------------------------------------------------------------------------------- */

static void swap_under_load_on(const char *device)
{
    struct fixture f;
    struct references references;
    struct asker askers[4];
    fixture_init(&f, "load");
    const char *const args[] = {"--models",     fixture_models(), "--device", device,
                                "--pool-bytes", SMALL_POOL,       NULL};
    fixture_start(&f, args);
    references_take(&f, &references);
    fixture_submit(&f, fixture_make_job(&f, "load", 1000000, 1000000));
    references_evict(&f, true);
    for (int i = 0; i < 4; i++) {
        askers[i] = (struct asker){.f = &f, .references = &references, .seed = i, .n = 20};
        assert_int_equal(pthread_create(&askers[i].thread, NULL, asker_main, &askers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(askers[i].thread, NULL);
        if (askers[i].n_failed)
            fail_msg("%d failed; the first: %s", askers[i].n_failed, askers[i].error);
        assert_int_equal(askers[i].n_wrong, 0);
    }
    assert_true(fixture_counter(&f, "swaps") >= N_MODELS);
    /* Where training comes up slowly it is preempted by later ones. */
    for (int i = 0; i < 20000 && fixture_counter(&f, "preemptions") == 0; i++)
        references_ask(&f, &references, i % VARIANTS);
    assert_true(fixture_counter(&f, "preemptions") >= 1);
    references_free(&references);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void swaps_under_load_keep_the_bits_on_host(void **state)
{
    (void)state;
    swap_under_load_on("host");
}

static void swaps_under_load_keep_the_bits_on_emulated(void **state)
{
    (void)state;
    swap_under_load_on("emulated,link-gbps=2");
}

/* ---- training -------------------------------------------------------------------------------------------- */

#define ENDLESS 1000000

/* The undisturbed run of the job `name`; every test compares with its last snapshot. */
static void *undisturbed(const char *name, uint64_t steps, size_t *bytes)
{
    struct fixture f;
    fixture_init(&f, "alone");
    const char *const args[] = {"--pool-bytes", "64M", NULL};
    fixture_start(&f, args);
    fixture_wait_ended(&f, fixture_submit(&f, fixture_make_job(&f, name, (int)steps, ENDLESS)));
    void *state = fixture_read_snapshot(&f, name, steps, bytes);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
    return state;
}

static void assert_same_state(const struct fixture *f, const char *name, uint64_t steps,
                              const void *expected, size_t bytes)
{
    size_t got_bytes;
    void *got = fixture_read_snapshot(f, name, steps, &got_bytes);
    assert_int_equal(got_bytes, bytes);
    assert_memory_equal(got, expected, bytes);
    free(got);
}

/* Ends the job, which was disturbed: it has the bits of one that was left alone. */
static void end_and_compare(struct fixture *f, const char *name, uint64_t job)
{
    size_t bytes;
    uint64_t steps = fixture_end_job(f, job);
    void *expected = undisturbed(name, steps, &bytes);
    assert_same_state(f, name, steps, expected, bytes);
    free(expected);
}

static void assert_longest_stretch_has_a_name(struct fixture *f)
{
    json_t *now = fixture_status(f), *job = json_array_get(json_object_get(now, "jobs"), 0);
    const char *what = json_string_value(json_object_get(job, "longest_layer"));
    assert_true(json_integer_value(json_object_get(job, "longest_layer_ns")) > 0);
    assert_non_null(what);
    if (!strstr(what, ", step "))
        fail_msg("the longest stretch was %s", what);
    json_decref(now);
}

static void two_hundred_preemptions_keep_the_bits(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "preempt");
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    fixture_start(&f, args);
    uint64_t job = fixture_submit(&f, fixture_make_job(&f, "many", ENDLESS, ENDLESS));
    fixture_wait_step(&f, job, 1);
    for (int i = 0; i < 10000 && fixture_counter(&f, "preemptions") < 200; i++)
        for (int k = 0; k < 10; k++)
            sy_client_result_free(fixture_infer(&f, "mlp", 1, k % VARIANTS, NULL));
    assert_true(fixture_counter(&f, "preemptions") >= 200);
    fixture_wait_step(&f, job, 30);
    assert_longest_stretch_has_a_name(&f);
    end_and_compare(&f, "many", job);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void a_killed_training_worker_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    struct fixture f;
    uint64_t step = 1;
    fixture_init(&f, "kill");
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    fixture_start(&f, args);
    uint64_t job = fixture_submit(&f, fixture_make_job(&f, "killed", ENDLESS, 10));
    for (int n_killed = 0; n_killed < 6; n_killed++, step += 15) {
        fixture_wait_step(&f, job, step);
        assert_int_equal(kill(fixture_wait_for_worker_in(&f, "training"), SIGKILL), 0);
    }
    fixture_wait_step(&f, job, step);
    end_and_compare(&f, "killed", job);
    sy_client_result_free(fixture_infer(&f, "mlp", 1, 0, NULL));
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* Every worker that trains dies in this phase, again and again, until the job is through. */
static void dies_in_phase(const char *name, const char *fault)
{
    struct fixture f;
    size_t bytes;
    int steps = 60;
    void *expected = undisturbed(name, steps, &bytes);
    fixture_init(&f, name);
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    setenv("SY_FAULT", fault, 1);
    fixture_start(&f, args);
    unsetenv("SY_FAULT");
    uint64_t job = fixture_submit(&f, fixture_make_job(&f, name, steps, 3));
    for (int step = 5; step < steps; step += 5)
        fixture_wait_step(&f, job, (uint64_t)step);
    fixture_wait_ended(&f, job);
    int64_t deaths = 0;
    json_t *now = fixture_status(&f), *worker;
    size_t i;
    json_array_foreach(json_object_get(now, "workers"), i, worker) deaths +=
        json_integer_value(json_object_get(worker, "deaths"));
    json_decref(now);
    fixture_say("deaths", (uint64_t)deaths);
    assert_in_range(deaths, 2, 20);
    assert_same_state(&f, name, steps, expected, bytes);
    sy_client_result_free(fixture_infer(&f, "mlp", 1, 0, NULL));
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
    free(expected);
}

static void workers_that_die_in_the_gradient_phase_lose_nothing(void **state)
{
    (void)state;
    dies_in_phase("gradient", "gradient_step:401:KILL");
}

static void workers_that_die_in_the_update_phase_lose_nothing(void **state)
{
    (void)state;
    /* A GPU updates all parameters in one step, the host each in its own. */
    const char *device = getenv("SY_TEST_SERVE_DEVICE");
    bool is_gpu = device && strncmp(device, "cuda", 4) == 0;
    dies_in_phase("update", is_gpu ? "update_step:25:KILL" : "update_step:101:KILL");
}

static void a_killed_runtime_resumes_its_jobs(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300];
    fixture_init(&f, "again");
    snprintf(folder, sizeof folder, "%s/state", f.folder);
    const char *const args[] = {"--pool-bytes", "64M", "--state", folder, NULL};
    fixture_start(&f, args);
    uint64_t job = fixture_submit(&f, fixture_make_job(&f, "again", ENDLESS, 10));
    for (int round = 1; round <= 3; round++) {
        fixture_wait_step(&f, job, (uint64_t)round * 20);
        fixture_kill(&f);
        fixture_start(&f, args);
        json_t *status = fixture_status(&f);
        json_t *first = json_array_get(json_object_get(status, "jobs"), 0);
        job = (uint64_t)json_integer_value(json_object_get(first, "job"));
        json_decref(status);
    }
    fixture_wait_step(&f, job, 80);
    end_and_compare(&f, "again", job);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void a_stopped_runtime_snapshots_its_job(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300];
    fixture_init(&f, "drain");
    snprintf(folder, sizeof folder, "%s/state", f.folder);
    const char *const args[] = {"--pool-bytes", "64M", "--state", folder, NULL};
    fixture_start(&f, args);
    uint64_t job = fixture_submit(&f, fixture_make_job(&f, "drain", 1000000, 1000000));
    uint64_t seen = fixture_wait_step(&f, job, 5);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_start(&f, args);
    json_t *status = fixture_status(&f);
    json_t *first = json_array_get(json_object_get(status, "jobs"), 0);
    job = (uint64_t)json_integer_value(json_object_get(first, "job"));
    json_decref(status);
    assert_true(fixture_wait_step(&f, job, seen) >=
                seen); /* it did not begin at 0 and take up to here again */
    assert_true(fixture_log_has(&f, "resume"));
    fixture_kill(&f);
    fixture_finish(&f);
}

/* The first job's {state, kept}; its number. */
static uint64_t first_job(struct fixture *f, char *state, size_t bytes, bool *kept)
{
    json_t *status = fixture_status(f);
    const json_t *job = json_array_get(json_object_get(status, "jobs"), 0);
    uint64_t id = (uint64_t)json_integer_value(json_object_get(job, "job"));
    snprintf(state, bytes, "%s", job ? json_string_value(json_object_get(job, "state")) : "");
    *kept = json_is_true(json_object_get(job, "kept"));
    json_decref(status);
    return id;
}

static uint64_t start_with_too_small_a_pool(struct fixture *f, const char *folder)
{
    char state[32] = "";
    bool kept = false;
    uint64_t job = 0;
    const char *const args[] = {"--pool-bytes", "256K", "--state", folder, NULL};
    fixture_start(f, args);
    for (int i = 0; i < 600 && strcmp(state, "failed") != 0; i++) {
        job = first_job(f, state, sizeof state, &kept);
        usleep(100000);
    }
    assert_string_equal(state, "failed");
    assert_true(kept);
    return job;
}

/* A start whose pool is too small for it refuses a job and loses nothing of it; who does not want it any more cancels it. */
static void a_job_that_a_start_has_no_room_for_waits_for_the_next(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300], text[32];
    bool kept;
    fixture_init(&f, "room");
    snprintf(folder, sizeof folder, "%s/state", f.folder);
    const char *const args[] = {"--pool-bytes", "64M", "--state", folder, NULL};
    fixture_start(&f, args);
    uint64_t job = fixture_submit(&f, fixture_make_job(&f, "room", 1000000, 1000000));
    uint64_t seen = fixture_wait_step(&f, job, 5);
    assert_int_equal(fixture_stop(&f), 0);
    assert_int_equal(start_with_too_small_a_pool(&f, folder), job);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_start(&f, args);
    assert_int_equal(first_job(&f, text, sizeof text, &kept), job);
    assert_true(fixture_wait_step(&f, job, seen) >= seen);
    assert_int_equal(fixture_stop(&f), 0);
    (void)start_with_too_small_a_pool(&f, folder);
    json_decref(fixture_call(&f, "train_stop", json_pack("{s:I}", "job", (json_int_t)job)));
    assert_int_equal(fixture_stop(&f), 0);
    fixture_start(&f, args);
    assert_int_equal(first_job(&f, text, sizeof text, &kept), 0);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* More clients than workers, of small models: their runs go back to back, and every answer has the bits that it has alone. */
static void many_clients_of_small_models_get_their_own_bits(void **state)
{
    (void)state;
    enum { N = 16 };
    struct fixture f;
    struct references references;
    struct asker askers[N];
    fixture_init(&f, "small");
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    fixture_start(&f, args);
    references_take(&f, &references);
    for (int i = 0; i < N; i++) {
        askers[i] = (struct asker){.f = &f, .references = &references, .seed = i, .n = 60};
        assert_int_equal(pthread_create(&askers[i].thread, NULL, asker_main, &askers[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(askers[i].thread, NULL);
        if (askers[i].n_failed)
            fail_msg("%d failed; the first: %s", askers[i].n_failed, askers[i].error);
        assert_int_equal(askers[i].n_wrong, 0);
    }
    references_free(&references);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* ---- refusals -------------------------------------------------------------------------------------------------- */

static void bad_requests_are_refused_and_nothing_else_is_disturbed(void **state)
{
    (void)state;
    struct fixture f;
    struct references references;
    float data[16] = {0};
    sy_client_result *result = NULL;
    fixture_init(&f, "refuse");
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    fixture_start(&f, args);
    references_take(&f, &references);
    sy_client_tensor good = {"input", "FP32", 2, {1, 16}, data, sizeof data};
    sy_client_tensor wrong[] = {
        {"inputs", "FP32", 2, {1, 16}, data, sizeof data},
        {"input", "INT32", 2, {1, 16}, data, sizeof data},
        {"input", "FP32", 2, {1, 15}, data, sizeof data - 4},
        {"input", "FP32", 1, {16}, data, sizeof data},
        {"input", "FP32", 2, {1, 16}, data, sizeof data - 4},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_true(sy_client_infer(f.client, "mlp", &wrong[i], 1, &result) < 0);
        assert_true(strlen(sy_client_error(f.client)) > 10);
    }
    assert_true(sy_client_infer(f.client, "nonesuch", &good, 1, &result) < 0);
    assert_non_null(strstr(sy_client_error(f.client), "nonesuch"));
    references_ask(&f, &references, 1);
    references_free(&references);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* Size of the model's weights as the server sees it. */
static int64_t weights_bytes(struct fixture *f, const char *model)
{
    size_t i;
    json_t *entry, *status = fixture_status(f);
    int64_t bytes = 0;
    json_array_foreach(
        json_object_get(status, "models"), i,
        entry) if (strcmp(json_string_value(json_object_get(entry, "name")), model) == 0) bytes =
        json_integer_value(json_object_get(entry, "weights_bytes"));
    json_decref(status);
    return bytes;
}

static void a_model_larger_than_the_pool_cycles_through_it(void **state)
{
    (void)state;
    const char *const devices[] = {"host", "emulated,link-gbps=2"};
    for (int d = 0; d < 2; d++) {
        struct fixture f;
        char pool[32];
        fixture_init(&f, "large");
        const char *const roomy[] = {
            "--models", fixture_models(), "--device", devices[d], "--pool-bytes", "64M", NULL};
        fixture_start(&f, roomy);
        sy_client_result *expected = fixture_infer(&f, "bert_tiny", 1, 0, NULL);
        int64_t bytes = weights_bytes(&f, "bert_tiny");
        assert_true(bytes > 1000000);
        assert_int_equal(fixture_stop(&f), 0);
        snprintf(pool, sizeof pool, "%lld", (long long)bytes - 8192);
        const char *const tight[] = {
            "--models", fixture_models(), "--device", devices[d], "--pool-bytes", pool, NULL};
        fixture_start(&f, tight);
        for (int i = 0; i < 3; i++) {
            sy_client_result *result = fixture_infer(&f, "bert_tiny", 1, 0, NULL);
            assert_true(fixture_same(result, expected));
            sy_client_result_free(result);
        }
        sy_client_result_free(expected);
        assert_int_equal(fixture_stop(&f), 0);
        fixture_finish(&f);
    }
}

static void a_model_that_can_never_fit_is_refused_with_the_sizes(void **state)
{
    (void)state;
    struct fixture f;
    int status = 0;
    fixture_init(&f, "never");
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64K", NULL};
    if (fixture_start_refused(&f, args) == 0) {
        fixture_start(&f, args); /* it may serve the models that do fit */
        sy_client_result_free(fixture_infer(&f, "bert_tiny", 1, 0, &status));
        assert_true(status < 0);
        fixture_kill(&f);
    }
    assert_true(fixture_log_has(&f, "bert_tiny"));
    fixture_finish(&f);
}

/* The memory is what lacks, not the package: the request has what it asked for from a second reading. */
static void a_reading_without_memory_is_made_again(void **state)
{
    (void)state;
    struct fixture f;
    const char *const args[] = {
        "--models", fixture_models(), "--device", "emulated", "--pool-bytes", "64M", NULL};
    fixture_init(&f, "no-memory-to-read");
    setenv("SY_FAULT", "storage_memory:1:ENOMEM_HOST", 1);
    fixture_start(&f, args);
    unsetenv("SY_FAULT");
    sy_client_result *first = fixture_infer(&f, "mlp", 2, 3, NULL);
    sy_client_result *second = fixture_infer(&f, "mlp", 2, 3, NULL);
    assert_true(fixture_same(first, second));
    sy_client_result_free(first);
    sy_client_result_free(second);
    assert_true(fixture_log_has(&f, "event=read_refused"));
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void copy_file(const char *from, const char *to)
{
    char command[1400];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

static void alter_byte(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
    int byte = fgetc(file);
    fseek(file, -1, SEEK_CUR);
    fputc(byte ^ 0x40, file);
    fclose(file);
}

static void an_altered_package_is_refused_by_name(void **state)
{
    (void)state;
    struct fixture f;
    char original[700], copy[400];
    int status = 0;
    fixture_init(&f, "alter");
    const char *const first[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    fixture_start(&f, first); /* imports */
    assert_int_equal(fixture_stop(&f), 0);
    snprintf(original, sizeof original, "%s/bert_tiny/1/model.sypkg", fixture_models());
    snprintf(copy, sizeof copy, "%s/bad.sypkg", f.folder);
    const char *const args[] = {"--package", copy, "--pool-bytes", "64M", NULL};
    const long places[] = {10, 5000, -100};
    for (int i = 0; i < 3; i++) {
        copy_file(original, copy);
        alter_byte(copy, places[i]);
        unlink(f.log);
        if (fixture_start_refused(&f, args) == 0) {
            fixture_start(
                &f, args); /* weights are checked when they are read: the request is refused */
            sy_client_result_free(fixture_infer(&f, "bert_tiny", 1, 0, &status));
            assert_true(status < 0);
            fixture_kill(&f);
        }
        assert_true(fixture_log_has(&f, "bad.sypkg") || fixture_log_has(&f, "bert_tiny"));
    }
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swaps_under_load_keep_the_bits_on_host),
        cmocka_unit_test(swaps_under_load_keep_the_bits_on_emulated),
        cmocka_unit_test(two_hundred_preemptions_keep_the_bits),
        cmocka_unit_test(a_killed_training_worker_goes_on_with_the_same_bits),
        cmocka_unit_test(workers_that_die_in_the_gradient_phase_lose_nothing),
        cmocka_unit_test(workers_that_die_in_the_update_phase_lose_nothing),
        cmocka_unit_test(a_killed_runtime_resumes_its_jobs),
        cmocka_unit_test(a_stopped_runtime_snapshots_its_job),
        cmocka_unit_test(a_job_that_a_start_has_no_room_for_waits_for_the_next),
        cmocka_unit_test(many_clients_of_small_models_get_their_own_bits),
        cmocka_unit_test(bad_requests_are_refused_and_nothing_else_is_disturbed),
        cmocka_unit_test(a_model_larger_than_the_pool_cycles_through_it),
        cmocka_unit_test(a_model_that_can_never_fit_is_refused_with_the_sizes),
        cmocka_unit_test(a_reading_without_memory_is_made_again),
        cmocka_unit_test(an_altered_package_is_refused_by_name),
    };
    if (getenv("SY_TEST_FILTER")) /* names, with * and ? */
        cmocka_set_test_filter(getenv("SY_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

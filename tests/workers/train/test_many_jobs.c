/* Three training jobs of different sizes and five models on one device, end to end: whoever has the turn, wherever an iteration's
 * memory lies, and however often requests come in between, each job ends with the weights that it would have alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/rigs/server_fixture.h"

#define N_JOBS   3
#define N_MODELS 5
#define ROOMY    "256M"
#ifdef SY_SANITIZED
#define STEPS 15
#else
#define STEPS 40
#endif

static const char *const names[N_JOBS] = {"small", "middle", "large"};
static const int batches[N_JOBS] = {4, 16, 48};
static const char *const models[N_MODELS] = {"tiny_cnn", "mlp", "identity", "bert_tiny",
                                             "mlp_again"};

struct alone {
    void *state[N_JOBS];
    size_t bytes[N_JOBS];
    sy_client_result *answers[N_MODELS];
    double persistent[N_JOBS], ephemeral[N_JOBS]; /* as the server says */
};

/* The emulated device sets a core aside, and sums are in another order with another number of threads. */
static struct alone on_host, on_emulated;
#define EMULATED "emulated,link-gbps=2"

static const char *make_job_of(struct fixture *f, int i, const char *name, uint64_t steps)
{
    const char *path = fixture_make_job(f, name, (int)steps, 1000000);
    json_t *job = json_load_file(path, 0, NULL);
    json_object_set_new(job, "batch", json_integer(batches[i]));
    json_object_set_new(job, "priority", json_integer(i));
    json_object_set_new(job, "tenant", json_string(i == 0 ? "red" : "blue"));
    assert_int_equal(json_dump_file(job, path, 0), 0);
    json_decref(job);
    return path;
}

static const char *make_job(struct fixture *f, int i)
{
    return make_job_of(f, i, names[i], STEPS);
}

/* One that is to be disturbed: ended by end_and_compare, not by itself while this test waits for the CPU. */
static const char *make_endless(struct fixture *f, int i)
{
    return make_job_of(f, i, "disturbed", 1000000);
}

static void compare(const struct fixture *f, const char *name, uint64_t step, const void *expected,
                    size_t expected_bytes)
{
    size_t bytes;
    void *state = fixture_read_snapshot(f, name, step, &bytes);
    assert_int_equal(bytes, expected_bytes);
    assert_memory_equal(state, expected, bytes);
    free(state);
}

/* Ends job i, made by make_endless: it has the weights of one that is now left alone for as many steps. */
static void end_and_compare(struct fixture *f, int i, uint64_t job)
{
    size_t bytes;
    uint64_t step = fixture_end_job(f, job);
    fixture_wait_ended(f, fixture_submit(f, make_job_of(f, i, "alone", step)));
    void *expected = fixture_read_snapshot(f, "alone", step, &bytes);
    compare(f, "disturbed", step, expected, bytes);
    free(expected);
}

static void load_fifth_model(struct fixture *f)
{
    char path[700];
    snprintf(path, sizeof path, "%s/mlp/1/model.sypkg", fixture_models());
    json_decref(
        fixture_call(f, "model_load", json_pack("{s:s, s:s}", "path", path, "name", "mlp_again")));
}

static json_t *job_entry(json_t *status, uint64_t id)
{
    size_t i;
    json_t *job;
    json_array_foreach(json_object_get(status, "jobs"), i,
                       job) if ((uint64_t)json_integer_value(json_object_get(job, "job")) ==
                                id) return job;
    fail_msg("no job %d in the status", (int)id);
    return NULL;
}

static void run_each_alone(const char *device, struct alone *alone)
{
    struct fixture f;
    fixture_init(&f, "alone");
    const char *const args[] = {
        "--models", fixture_models(), "--device", device, "--pool-bytes", ROOMY, NULL};
    fixture_start(&f, args);
    load_fifth_model(&f);
    for (int m = 0; m < N_MODELS; m++)
        alone->answers[m] = fixture_infer(&f, models[m], 1, 0, NULL);
    for (int i = 0; i < N_JOBS; i++) {
        uint64_t id = fixture_submit(&f, make_job(&f, i));
        fixture_wait_ended(&f, id);
        json_t *status = fixture_status(&f), *job = job_entry(status, id);
        alone->persistent[i] = json_number_value(json_object_get(job, "persistent_bytes"));
        alone->ephemeral[i] = json_number_value(json_object_get(job, "ephemeral_bytes"));
        json_decref(status);
        alone->state[i] = fixture_read_snapshot(&f, names[i], STEPS, &alone->bytes[i]);
    }
    fixture_stop(&f);
    fixture_finish(&f);
}

static int run_alone(void **state)
{
    (void)state;
    run_each_alone("host", &on_host);
    run_each_alone(EMULATED, &on_emulated);
    return 0;
}

static void free_answers(struct alone *alone)
{
    for (int i = 0; i < N_JOBS; i++)
        free(alone->state[i]);
    for (int m = 0; m < N_MODELS; m++)
        sy_client_result_free(alone->answers[m]);
}

static int free_alone(void **state)
{
    (void)state;
    free_answers(&on_host);
    free_answers(&on_emulated);
    return 0;
}

/* Sums of what the status says: the device's time is somebody's, or idle. */
static void check_account(struct fixture *f)
{
    static const char *const lists[] = {"jobs", "models"};
    json_t *status = fixture_status(f), *account = json_object_get(status, "account"), *item;
    double sum = json_number_value(json_object_get(account, "idle_ns")) +
                 json_number_value(json_object_get(account, "gone_ns"));
    size_t i;
    for (int l = 0; l < 2; l++)
        json_array_foreach(json_object_get(status, lists[l]), i, item) sum +=
            json_number_value(json_object_get(item, "device_ns"));
    assert_true(sum == json_number_value(json_object_get(account, "elapsed_ns")));
    double tenants = 0, charged = json_number_value(json_object_get(account, "charged_ns"));
    json_array_foreach(json_object_get(json_object_get(status, "rules"), "tenants"), i, item)
        tenants += json_number_value(json_object_get(item, "used_ns"));
    assert_true(tenants == charged);
    json_decref(status);
}

static bool all_ended(struct fixture *f, const uint64_t *ids)
{
    json_t *status = fixture_status(f);
    bool ended = true;
    for (int i = 0; i < N_JOBS; i++) {
        const char *state = json_string_value(json_object_get(job_entry(status, ids[i]), "state"));
        if (strcmp(state, "failed") == 0)
            fail_msg("job %s: %s", names[i],
                     json_string_value(json_object_get(job_entry(status, ids[i]), "error")));
        ended = ended && strcmp(state, "ended") == 0;
    }
    json_decref(status);
    return ended;
}

static void beside_each_other(const char *device, const struct alone *alone, const char *policy,
                              const char *pool)
{
    struct fixture f;
    uint64_t ids[N_JOBS];
    fixture_init(&f, "many");
    const char *const args[] = {"--models", fixture_models(), "--device", device, "--pool-bytes",
                                pool,       "--workers",      "5",        NULL};
    fixture_start(&f, args);
    load_fifth_model(&f);
    json_decref(fixture_call(&f, "policy", json_pack("{s:s}", "policy", policy)));
    for (int i = 0; i < N_JOBS; i++)
        ids[i] = fixture_submit(&f, make_job(&f, i));
    for (int k = 0; k < 200000 && !all_ended(&f, ids); k++) {
        int m = k % N_MODELS;
        sy_client_result *answer = fixture_infer(&f, models[m], 1, 0, NULL);
        assert_true(fixture_same(answer, alone->answers[m]));
        sy_client_result_free(answer);
        if (k == 10)
            json_decref(fixture_call(&f, "policy", json_pack("{s:s}", "policy", "srtf")));
        if (k == 20)
            json_decref(fixture_call(&f, "policy", json_pack("{s:s}", "policy", policy)));
    }
    assert_true(all_ended(&f, ids));
    check_account(&f);
    for (int i = 0; i < N_JOBS; i++)
        compare(&f, names[i], STEPS, alone->state[i], alone->bytes[i]);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* Hardly more than lets all three in: the persistent part of each, one iteration's memory, and room for the models. */
static const char *tight_pool(const struct alone *alone)
{
    static char text[32];
    double bytes = 0, largest = 0;
    for (int i = 0; i < N_JOBS; i++) {
        bytes += alone->persistent[i] + 1e6;
        largest = alone->ephemeral[i] > largest ? alone->ephemeral[i] : largest;
    }
    snprintf(text, sizeof text, "%.0fK", (bytes + largest + 6e6) / 1000);
    return text;
}

static void fair_on_host(void **state)
{
    (void)state;
    beside_each_other("host", &on_host, "fair", ROOMY);
}

static void packed_on_host(void **state)
{
    (void)state;
    beside_each_other("host", &on_host, "pack", ROOMY);
}

static void tight_pool_on_host(void **state)
{
    (void)state;
    beside_each_other("host", &on_host, "rr", tight_pool(&on_host));
}

static void fair_on_emulated(void **state)
{
    (void)state;
    beside_each_other(EMULATED, &on_emulated, "fair", tight_pool(&on_emulated));
}

/* Job 1 without an end; in its third step. */
static uint64_t submit_opportunistic(struct fixture *f)
{
    const char *path = make_endless(f, 1);
    json_t *job = json_load_file(path, 0, NULL);
    json_object_set_new(job, "class", json_string("opportunistic"));
    assert_int_equal(json_dump_file(job, path, 0), 0);
    json_decref(job);
    uint64_t id = fixture_submit(f, path);
    fixture_wait_step(f, id, 3);
    return id;
}

/* A pool for one of the two large jobs, with room for the models, and not for the persistent parts of both: the opportunistic one's memory goes to host memory for the guaranteed one, and comes back. */
static void spilled_on(const char *device, const struct alone *alone)
{
    struct fixture f;
    char pool[32];
    fixture_init(&f, "spill");
    snprintf(pool, sizeof pool, "%.0fK",
             (0.8 * alone->persistent[1] + alone->persistent[2] + alone->ephemeral[2]) / 1000);
    const char *const args[] = {
        "--models", fixture_models(), "--device", device, "--pool-bytes", pool, NULL};
    fixture_start(&f, args);
    uint64_t first = submit_opportunistic(&f);
    json_decref(fixture_call(&f, "job_pause", json_pack("{s:I}", "job", (json_int_t)first)));
    uint64_t second = fixture_submit(&f, make_job(&f, 2)); /* answered when it has started */
    json_decref(fixture_call(&f, "job_resume", json_pack("{s:I}", "job", (json_int_t)first)));
    fixture_wait_ended(&f, second);
    assert_true(fixture_counter(&f, "spills") >= 1);
    compare(&f, names[2], STEPS, alone->state[2], alone->bytes[2]);
    fixture_wait_step(&f, first, fixture_wait_step(&f, first, 0) + 10); /* it is back */
    end_and_compare(&f, 1, first);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* One worker is for jobs, and an opportunistic one has it: a guaranteed one gets it, and then the first goes on from its memory, with the same bits. */
static void worker_goes_to_the_guaranteed_job(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "leave");
    const char *const args[] = {
        "--models", fixture_models(), "--pool-bytes", ROOMY, "--workers", "2", NULL};
    fixture_start(&f, args);
    uint64_t first = submit_opportunistic(&f);
    uint64_t second = fixture_submit(&f, make_job(&f, 2)); /* answered when it has started */
    json_t *status = fixture_status(&f), *job = job_entry(status, first);
    assert_string_equal(json_string_value(json_object_get(job, "state")), "queued");
    json_int_t stands = json_integer_value(json_object_get(job, "step"));
    assert_true(stands >= 3);
    json_decref(status);
    fixture_wait_ended(&f, second);
    compare(&f, names[2], STEPS, on_host.state[2], on_host.bytes[2]);
    fixture_wait_step(&f, first, (uint64_t)stands + 10); /* it is back */
    end_and_compare(&f, 1, first);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void spilled_on_host(void **state)
{
    (void)state;
    spilled_on("host", &on_host);
}

static void spilled_on_emulated(void **state)
{
    (void)state;
    spilled_on(EMULATED, &on_emulated);
}

/* A job that is paused keeps its memory and makes no step; it goes on with the same bits. */
static void pause_and_resume_keep_the_bits(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "pause");
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", ROOMY, NULL};
    fixture_start(&f, args);
    uint64_t id = fixture_submit(&f, make_endless(&f, 1));
    fixture_wait_step(&f, id, 3);
    json_decref(fixture_call(&f, "job_pause", json_pack("{s:I}", "job", (json_int_t)id)));
    uint64_t other = fixture_submit(&f, make_job(&f, 0));
    fixture_wait_ended(&f, other);
    json_t *status = fixture_status(&f), *job = job_entry(status, id);
    assert_string_equal(json_string_value(json_object_get(job, "state")), "suspended");
    json_int_t stands = json_integer_value(json_object_get(job, "step"));
    json_decref(status);
    fixture_wait_ended(&f, fixture_submit(&f, make_job(&f, 2)));
    assert_int_equal(fixture_wait_step(&f, id, 0), stands);
    json_decref(fixture_call(&f, "job_resume", json_pack("{s:I}", "job", (json_int_t)id)));
    fixture_wait_step(&f, id, (uint64_t)stands + 10);
    end_and_compare(&f, 1, id);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fair_on_host),
        cmocka_unit_test(packed_on_host),
        cmocka_unit_test(tight_pool_on_host),
        cmocka_unit_test(fair_on_emulated),
        cmocka_unit_test(spilled_on_host),
        cmocka_unit_test(spilled_on_emulated),
        cmocka_unit_test(worker_goes_to_the_guaranteed_job),
        cmocka_unit_test(pause_and_resume_keep_the_bits),
    };
    return cmocka_run_group_tests(tests, run_alone, free_alone);
}

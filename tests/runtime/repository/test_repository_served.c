/* A Triton repository under a real server: what is broken, several versions, configurations, and models that change while they are asked. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tests/rigs/server_fixture.h"

static struct fixture f;
static char models[200];

static void sh(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void sh(const char *format, ...)
{
    char command[2000];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

/* A folder of the test's own with mlp and identity, and what else a test adds. */
static int setup(void **state)
{
    (void)state;
    fixture_init(&f, "repository");
    snprintf(models, sizeof models, "%s/m", f.folder);
    sh("mkdir %s && cp -r %s/mlp %s/identity %s && rm -f %s/*/*/*.sypkg", models, fixture_models(),
       fixture_models(), models, models);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (f.pid > 0)
        fixture_stop(&f);
    sh("rm -rf %s", models);
    fixture_finish(&f);
    return 0;
}

static void start(const char *const *more)
{
    const char *args[32] = {"--models", models, "--pool-bytes", "64M", NULL};
    int n = 4;

    while (more && *more)
        args[n++] = *more++;
    args[n] = NULL;
    fixture_start(&f, args);
}

static int call(const char *method, const char *params)
{
    char *answer = NULL;
    int status = sy_client_call(f.client, method, params, &answer);

    free(answer);
    return status;
}

/* The entry of NAME, and of a version if not 0; NULL: not listed. */
static json_t *entry_of(const char *name, int version)
{
    json_t *list = fixture_call(&f, "models", json_object()), *entry, *found = NULL;
    size_t i;

    json_array_foreach(
        list, i, entry) if (strcmp(json_string_value(json_object_get(entry, "name")), name) == 0 &&
                            (version == 0 ||
                             json_integer_value(json_object_get(entry, "version")) == version))
        found = json_incref(entry);
    json_decref(list);
    return found;
}

static void expect_state(const char *name, int version, const char *state, const char *why)
{
    json_t *entry = entry_of(name, version);

    assert_non_null(entry);
    assert_string_equal(json_string_value(json_object_get(entry, "state")), state);
    if (why && !strstr(json_string_value(json_object_get(entry, "error")), why))
        fail_msg("'%s' is not in '%s'", why, json_string_value(json_object_get(entry, "error")));
    json_decref(entry);
}

static int infer_version(const char *name, long long version)
{
    const sy_client_options options = {.urgency_class = SWITCHYARD_MODEL_CLASS, .version = version};
    int status;

    sy_client_result_free(fixture_infer_with(f.client, name, 1, 0, &options, &status));
    return status;
}

static void expect_error(const char *words)
{
    if (!strstr(sy_client_error(f.client), words))
        fail_msg("'%s' is not in '%s'", words, sy_client_error(f.client));
}

/* ---- tests -------------------------------------------------------------------------------------------------------- */

static void what_is_broken_is_listed_and_the_rest_served(void **state)
{
    (void)state;
    sh("mkdir -p %s/broken/1 %s/pipeline && echo garbage > %s/broken/1/model.onnx && "
       "echo 'platform: \"ensemble\"' > %s/pipeline/config.pbtxt && touch %s/notes",
       models, models, models, models, models);
    start(NULL);
    assert_int_equal(infer_version("mlp", 0), SY_OK);
    assert_int_equal(infer_version("identity", 0), SY_OK);
    expect_state("broken", 1, "unavailable", "is not an ONNX file");
    expect_state("pipeline", 0, "unavailable", "ensembles are not supported");
    assert_true(call("models", "{\"model\": \"broken\"}") == SY_EIO);
    expect_error("model 'broken', version 1, is unavailable");
    assert_true(fixture_log_has(&f, "what=\"notes\""));
    sh("cp %s/mlp/1/model.onnx %s/broken/1/", models, models);
    assert_int_equal(call("model_load", "{\"model\": \"broken\"}"), SY_OK);
    expect_state("broken", 1, "ready", NULL);
    sh("SY_LOG=error %s models list --socket %s > %s/list && grep -q 'pipeline .*unavailable' "
       "%s/list && grep -q 'ensembles' %s/list",
       fixture_program("switchyard"), f.address, models, models, models);
}

static void strict_ends_the_server(void **state)
{
    (void)state;
    const char *const args[] = {"--models", models, "--pool-bytes", "64M", "--strict", NULL};

    sh("mkdir -p %s/broken/1 && echo garbage > %s/broken/1/model.onnx", models, models);
    assert_int_equal(fixture_start_refused(&f, args), 1);
    assert_true(fixture_log_has(&f, "model 'broken'"));
    assert_true(fixture_log_has(&f, "is not an ONNX file"));
}

static void versions_and_configurations_are_honoured(void **state)
{
    (void)state;
    sh("cp -r %s/mlp/1 %s/mlp/2", models, models);
    sh("cat > %s/mlp/config.pbtxt <<'E'\n"
       "max_batch_size: 4\n"
       "input [ { name: \"input\" data_type: TYPE_FP32 dims: [ 16 ] } ]\n"
       "version_policy { all { } }\n"
       "instance_group [ { count: 2 } ]\n"
       "dynamic_batching { max_queue_delay_microseconds: 100 priority_levels: 3 "
       "default_priority_level: 3 default_queue_policy { default_timeout_microseconds: 50000000 } "
       "}\n"
       "model_warmup [ { name: \"first\" batch_size: 4 count: 2 inputs { key: \"input\" value { "
       "data_type: TYPE_FP32 dims: [ 16 ] random_data: true } } } ]\nE\n",
       models);
    sh("mkdir -p %s/identity/2 && cp %s/identity/1/model.onnx %s/identity/2/ && "
       "echo 'input { name: \"input\" data_type: TYPE_FP16 dims: [ -1, 4 ] }' > "
       "%s/identity/config.pbtxt",
       models, models, models, models);
    start(NULL);
    assert_true(fixture_log_has(&f, "without_effect=\"instance_group\""));
    expect_state("mlp", 1, "ready", NULL);
    expect_state("mlp", 2, "ready", NULL);
    expect_state("identity", 2, "unavailable", "data_type TYPE_FP16; the model's is TYPE_FP32");
    expect_state("identity", 1, "unloaded", "policy");
    assert_int_equal(infer_version("mlp", 1), SY_OK);
    assert_int_equal(infer_version("mlp", 2), SY_OK);
    assert_int_equal(infer_version("mlp", 3), SY_ENOTFOUND);
    expect_error("there are: 1, 2");
    int status;
    sy_client_result_free(fixture_infer(&f, "mlp", 4, 0, &status));
    assert_int_equal(status, SY_OK);
    sy_client_result_free(fixture_infer(&f, "mlp", 5, 0, &status)); /* more than its limit */
    assert_true(status < 0);
    assert_true(fixture_counter(&f, "requests") >= 3 + 2 * 2); /* with the warm-up of each */
    assert_int_equal(call("model_unload", "{\"model\": \"mlp\", \"version\": 2}"), SY_OK);
    assert_int_equal(infer_version("mlp", 1), SY_OK);
    sh("%s infer mlp --version 1 --socket %s > /dev/null", fixture_program("switchyard"),
       f.address);
}

/* One file of a row, repeated; another has a wrong size, a third is not there. */
static void warm_up_runs_on_files(void **state)
{
    (void)state;
    sh("cp -r %s/identity %s/other && cp -r %s/identity %s/third && mkdir %s/mlp/warmup "
       "%s/other/warmup && "
       "head -c 64 /dev/zero > %s/mlp/warmup/row && head -c 15 /dev/zero > %s/other/warmup/row",
       models, models, models, models, models, models, models, models);
    sh("for m in mlp:16 other:4 third:4; do echo \"max_batch_size: 8 model_warmup { name: 'w' "
       "batch_size: 4 count: 2 "
       "inputs { key: 'input' value { data_type: TYPE_FP32 dims: [ ${m#*:} ] input_data_file: "
       "'row' } } }\" > "
       "%s/${m%%:*}/config.pbtxt; done",
       models);
    start(NULL);
    expect_state("mlp", 1, "ready", NULL);
    expect_state("other", 1, "unavailable", "input 'input': input_data_file: ");
    expect_state("other", 1, "unavailable",
                 "other/warmup/row has 15 bytes; one row of its dims has 16");
    expect_state("third", 1, "unavailable", "third/warmup/row: No such file");
    assert_int_equal(fixture_counter(&f, "requests"), 2);
}

static void a_limit_of_files_that_leaves_none_to_clients_is_refused(void **state)
{
    (void)state;
    sh("! (ulimit -n 24 && exec %s serve --socket %s/s --workers 2 --http off --grpc off --metrics "
       "off > %s 2>&1) && "
       "grep -q 'files are open before the first client, and 24 may be: raise the limit to' %s",
       fixture_program("switchyard"), f.folder, f.log, f.log);
}

/* Requests see [2, 2] where the model has [4], with the same numbers in them. */
static void reshaped_tensors_go_in_and_out(void **state)
{
    (void)state;
    float numbers[12];
    sy_client_tensor input = {.name = "input",
                              .dtype = "FP32",
                              .rank = 3,
                              .shape = {3, 2, 2},
                              .data = numbers,
                              .bytes = sizeof numbers};
    sy_client_result *result;

    for (int i = 0; i < 12; i++)
        numbers[i] = (float)i;
    sh("cat > %s/identity/config.pbtxt <<'E'\nmax_batch_size: 8\n"
       "input { name: \"input\" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } }\n"
       "output { name: \"output\" data_type: TYPE_FP32 dims: [ 1, 4 ] reshape { shape: [ 4 ] } }\n"
       "model_warmup { name: \"w\" batch_size: 2 inputs { key: \"input\" value { data_type: "
       "TYPE_FP32 dims: [ 2, 2 ] zero_data: true } } }\nE\n",
       models);
    start(NULL);
    if (sy_client_infer(f.client, "identity", &input, 1, &result) < 0)
        fail_msg("%s", sy_client_error(f.client));
    assert_int_equal(result->outputs[0].rank, 3);
    assert_int_equal(result->outputs[0].shape[0], 3);
    assert_int_equal(result->outputs[0].shape[1], 1);
    assert_int_equal(result->outputs[0].shape[2], 4);
    assert_memory_equal(result->outputs[0].data, numbers, sizeof numbers);
    sy_client_result_free(result);
    input.rank = 2;
    input.shape[1] = 4;
    assert_int_equal(sy_client_infer(f.client, "identity", &input, 1, &result), SY_EARG);
    expect_error("are not those of [N, 2, 2]");
}

static void a_request_loads_what_it_asks_for(void **state)
{
    (void)state;
    start(NULL);
    sy_client_result *before = fixture_infer(&f, "mlp", 2, 3, NULL);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(call("model_unload", "{\"model\": \"mlp\"}"), SY_OK);
        sy_client_result *after = fixture_infer(&f, "mlp", 2, 3, NULL);
        assert_true(fixture_same(before, after));
        sy_client_result_free(after);
    }
    sy_client_result_free(before);
    assert_int_equal(call("model_unload", "{\"model\": \"mlp\"}"), SY_OK);
    sh("%s infer mlp --socket %s > /dev/null", fixture_program("switchyard"), f.address);
}

static void explicit_loads_what_is_said(void **state)
{
    (void)state;
    static const char *const more[] = {"--model-control", "explicit", "--load-model", "mlp", NULL};

    start(more);
    assert_int_equal(infer_version("mlp", 0), SY_OK);
    assert_int_equal(infer_version("identity", 0), SY_EBUSY);
    expect_error("load it first");
    sh("%s models load identity --socket %s", fixture_program("switchyard"), f.address);
    assert_int_equal(infer_version("identity", 0), SY_OK);
    sh("%s models unload identity --socket %s", fixture_program("switchyard"), f.address);
    assert_int_equal(infer_version("identity", 0), SY_EBUSY);
    assert_int_equal(call("model_load", "{\"model\": \"nobody\"}"), SY_ENOTFOUND);
}

/* ---- a model that changes while it is asked ------------------------------------------------------------------------- */

#define N_ASKERS 3

static atomic_bool stops;
static atomic_int n_answers;

static void *ask(void *ctx)
{
    sy_client *client;
    long failed = 0;

    (void)ctx;
    if (sy_client_connect(f.address, 60000, &client) < 0)
        return (void *)1;
    while (!stops) {
        int status;

        sy_client_result_free(fixture_infer_on(client, "mlp", 1, 0, &status));
        if (status < 0)
            fprintf(stderr, "%s\n", sy_client_error(client));
        failed += status < 0;
        n_answers++;
    }
    sy_client_close(client);
    return (void *)failed;
}

/* The other way round: what the server has of the model lies under its path no more. */
static void touch_and_wait(const char *change, int n_ready)
{
    char count[400];

    sh("%s", change);
    snprintf(count, sizeof count, "[ $(grep -c 'event=ready model=mlp' %s) -ge %d ]", f.log,
             n_ready);
    for (int i = 0; i < 1200; i++) {
        if (system(count) == 0)
            return;
        sy_clock_sleep_until(sy_clock_now() + 50 * SY_NS_PER_MS);
    }
    fail_msg("the change was not loaded");
}

static void changed_models_move_over_without_a_failure(void **state)
{
    (void)state;
    static const char *const more[] = {"--model-control", "poll", "--poll-seconds", "0.05", NULL};
    pthread_t askers[N_ASKERS];
    void *failed;
    char change[700];

    start(more);
    stops = false;
    for (int i = 0; i < N_ASKERS; i++)
        assert_int_equal(pthread_create(&askers[i], NULL, ask, NULL), 0);
    snprintf(change, sizeof change, "cp %s/mlp/1/model.onnx %s/x && mv %s/x %s/mlp/1/model.onnx",
             models, f.folder, f.folder, models);
    for (int i = 0; i < 3; i++)
        touch_and_wait(change, 2 + i);
    snprintf(change, sizeof change, "cp -r %s/mlp/1 %s/v && mv %s/v %s/mlp/2", models, f.folder,
             f.folder, models);
    touch_and_wait(change, 5);
    snprintf(change, sizeof change, "mv %s/mlp/2 %s/v", models, f.folder);
    touch_and_wait(change, 6);
    stops = true;
    for (int i = 0; i < N_ASKERS; i++) {
        pthread_join(askers[i], &failed);
        assert_ptr_equal(failed, NULL);
    }
    assert_true(n_answers > 100);
    sh("rm -rf %s/identity %s/v", models, f.folder);
    for (int i = 0; i < 200; i++) {
        json_t *entry = entry_of("identity", 0);

        json_decref(entry);
        if (!entry)
            return;
        sy_clock_sleep_until(sy_clock_now() + 20 * SY_NS_PER_MS);
    }
    fail_msg("identity is still there");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(what_is_broken_is_listed_and_the_rest_served),
        TEST(strict_ends_the_server),
        TEST(versions_and_configurations_are_honoured),
        TEST(reshaped_tensors_go_in_and_out),
        TEST(warm_up_runs_on_files),
        TEST(a_limit_of_files_that_leaves_none_to_clients_is_refused),
        TEST(a_request_loads_what_it_asks_for),
        TEST(explicit_loads_what_is_said),
        TEST(changed_models_move_over_without_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

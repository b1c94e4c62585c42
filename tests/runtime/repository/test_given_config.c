/* Configurations that come with a load: one that is none changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tests/rigs/repository_rig.h"
#include "tests/rigs/seed.h"

#define DOES_NOT_FIT \
    "{\"input\": [{\"name\": \"nowhere\", \"data_type\": \"TYPE_FP32\", \"dims\": [4]}]}"
#define HAS_NO_VERSION "{\"version_policy\": {\"specific\": {\"versions\": [7]}}}"

static uint64_t seed;

static void expect_content(struct repo_rig *rig, const char *content)
{
    int status;
    const char *got = repo_rig_ask(rig, "a", 0, &status);

    if (status < 0)
        fail_msg("%s", sy_error_text());
    assert_string_equal(got, content);
}

static void open_one(struct repo_rig *rig, const struct sy_repository_config *config)
{
    repo_rig_write("a", 1, "c1");
    repo_rig_init(rig, 8, &seed);
    repo_rig_open(rig, config);
    repo_rig_until_started(rig);
}

/* Served before and after an unload, as if nobody had asked. */
static void one_that_is_none_changes_nothing(void **state)
{
    (void)state;
    static const struct sy_repository_config config = {.control = SY_REPOSITORY_NONE};
    static const char *const bad[] = {"{", "{\"max_batch_size\": \"x\"}",
                                      "{\"backend\": \"python\"}"};
    struct repo_rig rig;
    char reason[600];

    open_one(&rig, &config);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(repo_rig_load(&rig, "a", bad[i]) < 0);
        assert_non_null(strstr(sy_error_text(), "model 'a': config: "));
        expect_content(&rig, "c1");
        assert_int_equal(sy_repository_unload(rig.repository, "a"), SY_OK);
        expect_content(&rig, "c1");
        assert_string_equal(repo_rig_state(&rig, "a", 1, reason), "READY");
    }
    repo_rig_close(&rig);
}

static void until_ready(struct repo_rig *rig)
{
    char reason[600];

    for (int i = 0; i < 30000 && strcmp(repo_rig_state(rig, "a", 1, reason), "READY") != 0; i++) {
        repo_rig_turn(rig);
        usleep(1000);
    }
    assert_string_equal(repo_rig_state(rig, "a", 1, reason), "READY");
}

static void expect_config_without(struct repo_rig *rig, const char *word)
{
    json_t *config;

    assert_int_equal(sy_repository_config(rig->repository, "a", 1, &config), SY_OK);
    char *text = json_dumps(config, 0);
    assert_null(strstr(text, word));
    free(text);
    json_decref(config);
}

/* The load says why it failed; the older content serves on, with the older configuration. */
static void one_that_does_not_fit_is_put_back(void **state)
{
    (void)state;
    static const struct sy_repository_config config = {.control = SY_REPOSITORY_NONE};
    static const char *const bad[] = {DOES_NOT_FIT, HAS_NO_VERSION};
    struct repo_rig rig;

    open_one(&rig, &config);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(repo_rig_load(&rig, "a", bad[i]) < 0);
        assert_non_null(strstr(sy_error_text(), i ? "version 7" : "nowhere"));
        assert_null(strstr(sy_error_text(), "config.pbtxt")); /* there is no such file */
        expect_content(&rig, "c1");
        until_ready(&rig);
        expect_config_without(&rig, i ? "specific" : "nowhere");
        assert_int_equal(sy_repository_unload(rig.repository, "a"), SY_OK);
        expect_content(&rig, "c1");
    }
    repo_rig_close(&rig);
}

/* The folder is polled on, and finds no new version. */
static void one_that_was_unloaded_stays_so(void **state)
{
    (void)state;
    static const struct sy_repository_config config = {.control = SY_REPOSITORY_POLL,
                                                       .poll_ns = 2 * SY_NS_PER_MS};
    struct repo_rig rig;
    char reason[600];

    open_one(&rig, &config);
    expect_content(&rig, "c1");
    assert_int_equal(sy_repository_unload(rig.repository, "a"), SY_OK);
    int n_adds = rig.n_adds;
    assert_true(repo_rig_load(&rig, "a", DOES_NOT_FIT) < 0);
    for (int i = 0; i < 100; i++) {
        assert_string_equal(repo_rig_state(&rig, "a", 1, reason), "UNAVAILABLE");
        repo_rig_turn(&rig);
        usleep(1000);
    }
    assert_int_equal(rig.n_adds, n_adds);
    repo_rig_close(&rig);
}

static void open_two_with_one_place(struct repo_rig *rig, enum sy_repository_control control)
{
    struct sy_repository_config config = {.control = control, .poll_ns = 3600 * SY_NS_PER_S};

    repo_rig_write("a", 1, "c1");
    repo_rig_write("b", 1, "c2");
    repo_rig_init(rig, 1, &seed);
    repo_rig_open(rig, &config);
    repo_rig_until_started(rig);
    assert_int_equal(repo_rig_load(rig, "a", NULL), SY_OK);
    assert_int_equal(repo_rig_load(rig, "b", NULL), SY_OK); /* in a's place */
}

/* Its next request brings it back. */
static void one_that_was_evicted_comes_back(void **state)
{
    (void)state;
    struct repo_rig rig;

    open_two_with_one_place(&rig, SY_REPOSITORY_EXPLICIT);
    assert_true(repo_rig_load(&rig, "a", DOES_NOT_FIT) < 0);
    expect_content(&rig, "c1");
    repo_rig_close(&rig);
    repo_rig_remove("b");
}

static void ignore_wake(void *ctx)
{
    (void)ctx;
}

/* It waits for a place, which a request on b keeps. */
static void one_that_was_loading_loads_on(void **state)
{
    (void)state;
    static const enum sy_repository_control controls[] = {SY_REPOSITORY_EXPLICIT,
                                                          SY_REPOSITORY_POLL};
    for (size_t i = 0; i < 2; i++) {
        struct sy_repository_wait wait = {.ready = ignore_wake};
        struct sy_core_model_ref *held, *ref;
        struct repo_rig rig;
        char reason[600];
        int status;

        open_two_with_one_place(&rig, controls[i]);
        repo_rig_content(&rig, "b", 0, &status, &held);
        assert_int_equal(status, SY_OK);
        assert_int_equal(sy_repository_acquire(rig.repository, "a", 0, &wait, &ref),
                         SY_REPOSITORY_LOADS);
        assert_string_equal(repo_rig_state(&rig, "a", 1, reason), "LOADING");
        assert_true(repo_rig_load(&rig, "a", HAS_NO_VERSION) < 0);
        repo_rig_release(&rig, held);
        until_ready(&rig);
        expect_content(&rig, "c1");
        repo_rig_close(&rig);
    }
    repo_rig_remove("b");
}

static void count_loads(void *ctx, int status, const char *error)
{
    (void)error;
    assert_true(status < 0);
    ++*(int *)ctx;
}

/* It waits for the model's folder to be read, in which there is nothing to serve. */
static void a_request_beside_a_load_that_fails_is_answered(void **state)
{
    (void)state;
    static const struct sy_repository_config config = {.control = SY_REPOSITORY_NONE};
    struct repo_rig rig;
    int status, n = 0;

    repo_rig_write("b", 1, "c1");
    repo_rig_remove("b/1"); /* a folder without a version */
    repo_rig_write_config("b", "max_batch_size: x");
    repo_rig_init(&rig, 8, &seed);
    repo_rig_open(&rig, &config);
    repo_rig_until_started(&rig);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(sy_repository_load(rig.repository, "b", NULL, count_loads, &n), SY_OK);
        repo_rig_ask(&rig, "b", 0, &status);
        assert_true(status < 0);
        assert_int_equal(n, i);
    }
    repo_rig_close(&rig);
    repo_rig_remove("b");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_none_changes_nothing),
        cmocka_unit_test(one_that_does_not_fit_is_put_back),
        cmocka_unit_test(one_that_was_unloaded_stays_so),
        cmocka_unit_test(one_that_was_evicted_comes_back),
        cmocka_unit_test(one_that_was_loading_loads_on),
        cmocka_unit_test(a_request_beside_a_load_that_fails_is_answered),
    };

    if (argc > 1 && strcmp(argv[1], "import") == 0)
        return repo_rig_import(argc, argv);
    seed = seed_of_run(2024);
    repo_rig_start();
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    repo_rig_finish();
    return result;
}

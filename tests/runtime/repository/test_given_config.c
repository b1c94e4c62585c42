/* Configurations that come with a load: one that is none changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/base/status.h"
#include "tests/rigs/repository_rig.h"
#include "tests/rigs/seed.h"

static uint64_t seed;

static void expect_content(struct repo_rig *rig, const char *content)
{
    int status;
    const char *got = repo_rig_ask(rig, "a", 0, &status);

    if (status < 0)
        fail_msg("%s", sy_error_text());
    assert_string_equal(got, content);
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

    repo_rig_write("a", 1, "c1");
    repo_rig_init(&rig, 8, &seed);
    repo_rig_open(&rig, &config);
    repo_rig_until_started(&rig);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(repo_rig_load(&rig, "a", bad[i]) < 0);
        assert_non_null(strstr(sy_error_text(), "model 'a': "));
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

    for (int i = 0; i < 5000 && strcmp(repo_rig_state(rig, "a", 1, reason), "READY") != 0; i++)
        repo_rig_turn(rig);
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
    static const char *const bad[] = {
        "{\"input\": [{\"name\": \"nowhere\", \"data_type\": \"TYPE_FP32\", \"dims\": [4]}]}",
        "{\"version_policy\": {\"specific\": {\"versions\": [7]}}}"};
    struct repo_rig rig;

    repo_rig_write("a", 1, "c1");
    repo_rig_init(&rig, 8, &seed);
    repo_rig_open(&rig, &config);
    repo_rig_until_started(&rig);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(repo_rig_load(&rig, "a", bad[i]) < 0);
        assert_non_null(strstr(sy_error_text(), i ? "version 7" : "nowhere"));
        expect_content(&rig, "c1");
        until_ready(&rig);
        expect_config_without(&rig, i ? "specific" : "nowhere");
        assert_int_equal(sy_repository_unload(rig.repository, "a"), SY_OK);
        expect_content(&rig, "c1");
    }
    repo_rig_close(&rig);
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

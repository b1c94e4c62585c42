/* What survives the runtime: stored jobs with what was set for them, rules, and one runtime a folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/core/storage/job_store.h"
#include "tests/rigs/server_fixture.h"

struct seen {
    int n;
    uint64_t ids[4];
    char texts[4][32];
    json_int_t priorities[4];
};

static int see(void *ctx, uint64_t job, const char *text, const json_t *set)
{
    struct seen *seen = ctx;
    assert_true(seen->n < 4);
    seen->ids[seen->n] = job;
    snprintf(seen->texts[seen->n], sizeof seen->texts[0], "%s", text);
    seen->priorities[seen->n++] = json_integer_value(json_object_get(set, "priority"));
    return SY_OK;
}

static void jobs_keep_what_was_set(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300];
    struct sy_job_store *store;
    struct seen seen = {0};
    uint64_t last;
    fixture_init(&f, "store");
    snprintf(folder, sizeof folder, "%s/state", f.folder);
    assert_int_equal(sy_job_store_open(folder, &store), SY_OK);
    json_t *set = json_pack("{s:i}", "priority", -7);
    assert_int_equal(sy_job_store_put(store, 12, "twelve", NULL), SY_OK);
    assert_int_equal(sy_job_store_put(store, 3, "three", NULL), SY_OK);
    assert_int_equal(sy_job_store_put(store, 12, "twelve", set), SY_OK);
    json_decref(set);
    assert_null(sy_job_store_rules(store));
    assert_int_equal(sy_job_store_load(store, see, &seen, &last), SY_OK);
    assert_int_equal(seen.n, 2);
    assert_int_equal(last, 12);
    assert_int_equal(seen.ids[0], 3);
    assert_string_equal(seen.texts[1], "twelve");
    assert_int_equal(seen.priorities[0], 0);
    assert_int_equal(seen.priorities[1], -7);
    for (int i = 0; i < 2; i++) /* twice: what is gone is removed */
        assert_int_equal(sy_job_store_remove(store, 3), SY_OK);
    assert_int_equal(sy_job_store_remove(store, 12), SY_OK);
    sy_job_store_close(store);
    fixture_finish(&f);
}

static void one_runtime_has_a_folder(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300];
    struct sy_job_store *first, *second;
    fixture_init(&f, "locked");
    snprintf(folder, sizeof folder, "%s/state", f.folder);
    assert_int_equal(sy_job_store_open(folder, &first), SY_OK);
    assert_int_equal(sy_job_store_open(folder, &second), SY_EBUSY);
    assert_non_null(strstr(sy_error_text(), folder));
    sy_job_store_close(first);
    assert_int_equal(sy_job_store_open(folder, &second), SY_OK);
    sy_job_store_close(second);
    fixture_finish(&f);
}

/* Killed a moment ago, it ends a little later. */
static void a_runtime_that_ends_is_waited_for(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300], byte;
    struct sy_job_store *store;
    int ready[2];
    fixture_init(&f, "ending");
    snprintf(folder, sizeof folder, "%s/state", f.folder);
    assert_int_equal(pipe(ready), 0);
    pid_t other = fork();
    if (other == 0) {
        if (sy_job_store_open(folder, &store) < 0 || write(ready[1], "", 1) != 1)
            _exit(1);
        usleep(200000);
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(sy_job_store_open(folder, &store), SY_OK);
    assert_int_equal(waitpid(other, NULL, 0), other);
    sy_job_store_close(store);
    fixture_finish(&f);
}

static json_t *first_job(json_t *status)
{
    return json_array_get(json_object_get(status, "jobs"), 0);
}

static json_t *tenant(json_t *status, const char *name)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(json_object_get(status, "rules"), "tenants"), i,
                       entry) if (strcmp(json_string_value(json_object_get(entry, "tenant")),
                                         name) == 0) return entry;
    return NULL;
}

static void check_what_was_set(struct fixture *f)
{
    json_t *status = fixture_status(f), *rules = json_object_get(status, "rules");
    json_t *red = tenant(status, "red");
    assert_string_equal(json_string_value(json_object_get(rules, "policy")), "weighted");
    assert_true(json_number_value(json_object_get(rules, "train_share")) == 0.57);
    assert_true(json_number_value(json_object_get(rules, "max_wait_s")) == 2.5);
    assert_non_null(red);
    assert_int_equal(json_integer_value(json_object_get(red, "weight")), 3);
    assert_true(json_number_value(json_object_get(red, "hard_share")) == 0.29);
    assert_int_equal(json_integer_value(json_object_get(red, "memory_bytes")), 50000000);
    assert_int_equal(json_integer_value(json_object_get(first_job(status), "priority")), -9);
    json_decref(status);
}

/* A quota that goes with a crash is none, and a job that somebody paused must not go on by itself. */
static void what_was_set_holds_after_a_restart(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300];
    fixture_init(&f, "rules");
    snprintf(folder, sizeof folder, "%s/state", f.folder);
    const char *const args[] = {"--pool-bytes", "64M", "--state", folder, NULL};
    fixture_start(&f, args);
    uint64_t job = fixture_submit(&f, fixture_make_job(&f, "paused", 1000000, 1000000));
    fixture_wait_step(&f, job, 2);
    json_decref(fixture_call(&f, "policy",
                             json_pack("{s:s, s:f, s:f}", "policy", "weighted", "train_share", 0.57,
                                       "max_wait_s", 2.5)));
    json_decref(fixture_call(&f, "tenant",
                             json_pack("{s:s, s:i, s:f, s:i}", "tenant", "red", "weight", 3,
                                       "hard_share", 0.29, "memory_bytes", 50000000)));
    json_decref(fixture_call(&f, "job_priority",
                             json_pack("{s:I, s:i}", "job", (json_int_t)job, "priority", -9)));
    json_decref(fixture_call(&f, "job_pause", json_pack("{s:I}", "job", (json_int_t)job)));
    check_what_was_set(&f);
    for (int round = 0; round < 2; round++) {
        if (round == 0)
            fixture_kill(&f);
        else
            assert_int_equal(fixture_stop(&f), 0);
        fixture_start(&f, args);
        check_what_was_set(&f);
    }
    for (int i = 0; i < 1000; i++) { /* until it stands there */
        json_t *status = fixture_status(&f);
        const char *text = json_string_value(json_object_get(first_job(status), "state"));
        bool stands = strcmp(text, "suspended") == 0;
        json_decref(status);
        if (stands)
            break;
        assert_true(i < 999);
        usleep(100000);
    }
    json_decref(fixture_call(&f, "job_resume", json_pack("{s:I}", "job", (json_int_t)job)));
    fixture_wait_step(&f, job, 4);
    fixture_kill(&f);
    fixture_finish(&f);
}

static void assert_answer(struct fixture *f, const char *method, json_t *params, int status,
                          const char *says)
{
    char *text = json_dumps(params, JSON_COMPACT), *answer = NULL;
    assert_int_equal(sy_client_call(f->client, method, text, &answer), status);
    assert_non_null(strstr(sy_client_error(f->client), says));
    free(text);
    free(answer);
    json_decref(params);
}

static void assert_refused(struct fixture *f, const char *method, json_t *params, const char *says)
{
    assert_answer(f, method, params, SY_EARG, says);
}

/* Whoever sets something must hear that it will be forgotten. */
static void what_cannot_be_kept_is_said(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300], away[300];
    fixture_init(&f, "unkept");
    snprintf(folder, sizeof folder, "%s/state", f.folder);
    snprintf(away, sizeof away, "%s/away", f.folder);
    const char *const args[] = {"--pool-bytes", "64M", "--state", folder, NULL};
    fixture_start(&f, args);
    assert_int_equal(rename(folder, away), 0);
    assert_answer(&f, "policy", json_pack("{s:s}", "policy", "srtf"), SY_EIO, "after a restart");
    assert_answer(&f, "tenant", json_pack("{s:s, s:i}", "tenant", "red", "weight", 3), SY_EIO,
                  "after a restart");
    json_t *status = fixture_status(&f), *rules = json_object_get(status, "rules");
    assert_string_equal(json_string_value(json_object_get(rules, "policy")), "srtf");
    json_decref(status);
    assert_int_equal(rename(away, folder), 0);
    json_decref(fixture_call(&f, "policy", json_pack("{s:s}", "policy", "fair")));
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* A folder in the place of the job's file, which cannot be removed as one. */
static void put_in_the_way(const char *folder, uint64_t job, bool there)
{
    char path[400];
    snprintf(path, sizeof path, "%s/job-%llu.json", folder, (unsigned long long)job);
    if (there) {
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkdir(path, 0700), 0);
    } else {
        assert_int_equal(rmdir(path), 0);
    }
}

/* Who cancels a job must hear that it would come back, whether it runs or is only kept. */
static void what_cannot_be_forgotten_is_said(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300];
    fixture_init(&f, "unforgotten");
    snprintf(folder, sizeof folder, "%s/state", f.folder);
    const char *const args[] = {"--pool-bytes", "64M", "--state", folder, NULL};
    const char *const small[] = {"--pool-bytes", "1M", "--state", folder, NULL};
    fixture_start(&f, args);
    uint64_t job = fixture_submit(&f, fixture_make_job(&f, "stays", 1000000, 1000000));
    fixture_wait_step(&f, job, 2);
    put_in_the_way(folder, job, true);
    assert_answer(&f, "train_stop", json_pack("{s:I}", "job", (json_int_t)job), SY_EIO,
                  "the next start would go on with job");
    put_in_the_way(folder, job, false);
    uint64_t kept = fixture_submit(&f, fixture_make_job(&f, "kept", 1000000, 1000000));
    assert_int_equal(fixture_stop(&f), 0);
    fixture_start(&f, small); /* it cannot begin there, and is kept */
    for (int i = 0; i < 300; i++) {
        json_t *status = fixture_status(&f);
        const char *text = json_string_value(json_object_get(first_job(status), "state"));
        bool failed = strcmp(text, "failed") == 0;
        json_decref(status);
        if (failed)
            break;
        assert_true(i < 299);
        usleep(100000);
    }
    put_in_the_way(folder, kept, true);
    json_t *which = json_pack("{s:I}", "job", (json_int_t)kept);
    assert_answer(&f, "train_stop", json_incref(which), SY_EIO, "cannot remove");
    put_in_the_way(folder, kept, false);
    json_decref(fixture_call(&f, "train_stop", which)); /* then it goes */
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void assert_file(const char *folder, const char *name, const char *text)
{
    char path[400], bytes[200] = "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    (void)fread(bytes, 1, sizeof bytes - 1, file);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(bytes, text);
}

/* Somebody edits a file, or a disk loses it: the other jobs go on, and what is left of it is no other job's. */
static void what_is_no_job_keeps_nobody_from_starting(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300];
    const char *const files[][2] = {
        {"job-7.json", "{\"job\": 7, \"te"}, /* cut off */
        {"job-8.json", "{\"job\": 8, \"text\": \"{\\\"name\\\": \\\"a\\\\u0007b\\\"}\"}"},
        {"job-9.json", "{\"job\": 9, \"text\": \"{\\\"tenant\\\": \\\"\\\"}\"}"}, /* no name */
        {"job-010.json", "mine"},
        {"job-18446744073709551615.json", "mine"},
        {"job-10.json.old", "mine"},
    };
    fixture_init(&f, "no_job");
    snprintf(folder, sizeof folder, "%s/state", f.folder);
    const char *const args[] = {"--pool-bytes", "64M", "--state", folder, NULL};
    fixture_start(&f, args);
    uint64_t good = fixture_submit(&f, fixture_make_job(&f, "good", 1000000, 1000000));
    fixture_kill(&f);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        write_file(folder, files[i][0], files[i][1]);
    fixture_start(&f, args);
    json_t *status = fixture_status(&f);
    assert_int_equal(json_array_size(json_object_get(status, "jobs")), 1);
    assert_int_equal(json_integer_value(json_object_get(first_job(status), "job")), good);
    json_decref(status);
    assert_int_equal(fixture_submit(&f, fixture_make_job(&f, "next", 1000000, 1000000)), 10);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        assert_file(folder, files[i][0], files[i][1]);
    fixture_kill(&f);
    fixture_finish(&f);
}

/* The pool that three jobs like the first fill, one iteration's memory being shared. */
static void exact_pool(struct fixture *f, char *bytes, size_t size)
{
    json_t *status = fixture_status(f), *job = first_job(status);
    json_int_t persistent = json_integer_value(json_object_get(job, "persistent_bytes"));
    json_int_t iteration = json_integer_value(json_object_get(job, "ephemeral_bytes"));
    assert_true(persistent > 0 && iteration > 0);
    snprintf(bytes, size, "%lld", (long long)(3 * persistent + iteration + (64 << 10)));
    json_decref(status);
}

/* Who was ready first has its room; they start beside each other. */
static bool one_waits_for_memory(struct fixture *f)
{
    json_t *status = fixture_status(f), *jobs = json_object_get(status, "jobs");
    bool found = false;
    assert_int_equal(json_array_size(jobs), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *job = json_array_get(jobs, i);
        const char *why = json_string_value(json_object_get(job, "waits_for"));
        found |= why && strstr(why, "memory");
    }
    json_decref(status);
    return found;
}

/* Each model has room beside all jobs, also if these were there before the server was. */
static void models_come_before_jobs_that_go_on(void **state)
{
    (void)state;
    struct fixture f;
    char folder[300], pool[32];
    int answered;
    fixture_init(&f, "models_first");
    snprintf(folder, sizeof folder, "%s/state", f.folder);
    const char *const before[] = {"--pool-bytes", "64M", "--state", folder, NULL};
    const char *const after[] = {
        "--pool-bytes",    pool, "--state", folder, "--models", fixture_models(), "--warm-batches",
        "1,2,3,4,5,6,7,8", NULL};
    fixture_start(&f, before);
    for (int i = 0; i < 3; i++) {
        char name[] = {'j', (char)('0' + i), 0};
        (void)fixture_submit(&f, fixture_make_job(&f, name, 1000000, 1000000));
    }
    exact_pool(&f, pool, sizeof pool);
    fixture_kill(&f);
    fixture_start(&f, after); /* ready: all models are there */
    sy_client_result *result = fixture_infer(&f, "bert_tiny", 1, 0, &answered);
    assert_int_equal(answered, SY_OK);
    sy_client_result_free(result);
    while (!one_waits_for_memory(&f)) /* the others have what is left */
        usleep(10000);
    fixture_kill(&f);
    fixture_finish(&f);
}

static void rules_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "refused");
    const char *const args[] = {"--pool-bytes", "64M", NULL};
    fixture_start(&f, args);
    assert_refused(&f, "policy", json_pack("{s:i}", "policy", 5), "policy");
    assert_refused(&f, "policy", json_pack("{s:f}", "at_once", 1.5), "1.5");
    assert_refused(&f, "policy", json_pack("{s:f}", "train_share", 0.0001), "0.0001");
    assert_refused(&f, "tenant", json_pack("{s:s, s:f}", "tenant", "x", "weight", 1.5), "1.5");
    assert_refused(&f, "tenant", json_pack("{s:s, s:f}", "tenant", "x", "hard_share", 4e-4),
                   "0.0004");
    assert_refused(&f, "tenant", json_pack("{s:s}", "tenant", "x\033[1m"), "0x1b");
    json_t *status = fixture_status(&f);
    assert_null(tenant(status, "x")); /* refused: nothing was made */
    json_decref(status);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_keep_what_was_set),
        cmocka_unit_test(one_runtime_has_a_folder),
        cmocka_unit_test(a_runtime_that_ends_is_waited_for),
        cmocka_unit_test(what_was_set_holds_after_a_restart),
        cmocka_unit_test(what_cannot_be_kept_is_said),
        cmocka_unit_test(what_cannot_be_forgotten_is_said),
        cmocka_unit_test(what_is_no_job_keeps_nobody_from_starting),
        cmocka_unit_test(models_come_before_jobs_that_go_on),
        cmocka_unit_test(rules_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

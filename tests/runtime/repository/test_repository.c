/* The model repository on a core that is a table: which content a request gets, whatever is loaded, changed and taken away meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/repository/repository_scan.h"
#include "runtime/repository/version_state.h"
#include "tests/rigs/repository_rig.h"
#include "tests/rigs/seed.h"

static uint64_t seed;
static const struct sy_repository_config none = {.control = SY_REPOSITORY_NONE};
static const struct sy_repository_config explicit_ = {.control = SY_REPOSITORY_EXPLICIT};
static const struct sy_repository_config polls = {.control = SY_REPOSITORY_POLL,
                                                  .poll_ns = 2 * SY_NS_PER_MS};

static void expect_content(struct repo_rig *rig, const char *name, int64_t version,
                           const char *content)
{
    int status;
    const char *got = repo_rig_ask(rig, name, version, &status);

    if (status < 0)
        fail_msg("%s: %s", name, sy_error_text());
    assert_string_equal(got, content);
}

static void expect_refused(struct repo_rig *rig, const char *name, int64_t version, int expected,
                           const char *why)
{
    int status;

    repo_rig_ask(rig, name, version, &status);
    assert_int_equal(status, expected);
    if (!strstr(sy_error_text(), why))
        fail_msg("'%s' is not in '%s'", why, sy_error_text());
}

static int fresh(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "bad", "notes"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        repo_rig_remove(names[i]);
    return 0;
}

/* ---- what lies in the folder ------------------------------------------------------------------------------------- */

static void the_folder_is_read(void **state)
{
    (void)state;
    struct sy_scan scan;
    char path[200], command[600];

    repo_rig_write("a", 1, "c1");
    repo_rig_write("a", 12, "c1");
    repo_rig_write("b", 3, "c2");
    repo_rig_write_config("b", "max_batch_sise: 3");
    snprintf(path, sizeof path, "%s/models", repo_rig_folder);
    snprintf(command, sizeof command,
             "cd %s; mkdir -p a/07 a/x notes .git/1 c; ln -s %s/b d; touch readme a/9; "
             "touch c/config.pbtxt",
             path, path);
    assert_int_equal(system(command), 0);
    assert_int_equal(sy_repository_scan(path, &scan), SY_OK);
    assert_int_equal(scan.n, 4);
    assert_string_equal(scan.models[0].name, "a");
    assert_int_equal(scan.models[0].n_versions, 2);
    assert_int_equal(scan.models[0].versions[1].version, 12);
    assert_true(scan.models[0].versions[0].source_stamp != 0);
    assert_int_equal(scan.models[0].versions[0].package_stamp, 0);
    assert_int_equal(scan.models[1].status, SY_EARG);
    assert_non_null(
        strstr(scan.models[1].error, "config.pbtxt: line 1, column 1: field max_batch_sise"));
    assert_int_equal(scan.models[2].n_versions, 0); /* c */
    assert_string_equal(scan.models[3].name, "d");  /* a link */
    assert_string_equal(scan.ignored, "notes, readme");
    uint64_t stamp = scan.models[0].versions[0].source_stamp;
    sy_scan_finish(&scan);
    repo_rig_write("a", 1, "c1"); /* the same text, written again */
    assert_int_equal(sy_repository_scan(path, &scan), SY_OK);
    assert_true(scan.models[0].versions[0].source_stamp != stamp);
    sy_scan_finish(&scan);
    snprintf(command, sizeof command, "cd %s; rm -r a b c d notes .git readme", path);
    assert_int_equal(system(command), 0);
    assert_int_equal(sy_repository_scan("/nonexistent/folder", &scan), SY_EIO);
}

/* ---- start --------------------------------------------------------------------------------------------------------- */

static void one_that_does_not_load_keeps_no_other(void **state)
{
    (void)state;
    struct repo_rig rig;
    char reason[600];

    repo_rig_write("a", 1, "c1");
    repo_rig_write("bad", 1, "nothing");
    repo_rig_write("c", 1, "c3");
    repo_rig_write_config("c", "backend: \"python\"");
    repo_rig_init(&rig, 8, &seed);
    repo_rig_open(&rig, &none);
    repo_rig_until_started(&rig);
    assert_int_equal(rig.start_status, SY_EUNSUPPORTED);
    expect_content(&rig, "a", 0, "c1");
    expect_refused(&rig, "bad", 0, SY_EIO, "nothing is no model");
    expect_refused(&rig, "c", 0, SY_EUNSUPPORTED, "'python' is not served");
    expect_refused(&rig, "z", 0, SY_ENOTFOUND, "z");
    assert_string_equal(repo_rig_state(&rig, "bad", 1, reason), "UNAVAILABLE");
    assert_string_equal(reason, "nothing is no model");
    assert_string_equal(repo_rig_state(&rig, "c", 1, reason), "UNAVAILABLE");
    assert_string_equal(repo_rig_state(&rig, "a", 1, reason), "READY");
    repo_rig_write("bad", 1, "c2"); /* repaired */
    assert_int_equal(repo_rig_load(&rig, "bad", NULL), SY_OK);
    expect_content(&rig, "bad", 0, "c2");
    repo_rig_close(&rig);
}

static void versions_are_served_by_policy(void **state)
{
    (void)state;
    struct repo_rig rig;
    int64_t versions[4];
    char reason[600];

    repo_rig_write("a", 1, "c1");
    repo_rig_write("a", 2, "c2");
    repo_rig_write("a", 10, "c3");
    repo_rig_init(&rig, 8, &seed);
    repo_rig_open(&rig, &none);
    repo_rig_until_started(&rig);
    expect_content(&rig, "a", 0, "c3");
    expect_content(&rig, "a", 10, "c3");
    expect_refused(&rig, "a", 1, SY_ENOTFOUND, "there are: 10");
    assert_string_equal(repo_rig_state(&rig, "a", 1, reason), "UNLOADED");
    assert_non_null(strstr(reason, "policy"));
    repo_rig_write_config("a", "version_policy: { all { } }");
    assert_int_equal(repo_rig_load(&rig, "a", NULL), SY_OK);
    assert_int_equal(sy_repository_versions(rig.repository, "a", versions, 4), 3);
    assert_int_equal(versions[2], 10);
    expect_content(&rig, "a", 1, "c1");
    assert_int_equal(
        repo_rig_load(&rig, "a", "{\"version_policy\": {\"specific\": {\"versions\": [2]}}}"),
        SY_OK);
    assert_int_equal(sy_repository_versions(rig.repository, "a", versions, 4), 1);
    expect_content(&rig, "a", 0, "c2");
    assert_int_equal(
        repo_rig_load(&rig, "a", "{\"version_policy\": {\"specific\": {\"versions\": [5]}}}"),
        SY_ENOTFOUND);
    assert_non_null(strstr(sy_error_text(), "version 5"));
    repo_rig_close(&rig);
}

/* ---- load and unload ------------------------------------------------------------------------------------------------- */

static void explicit_means_what_is_said(void **state)
{
    (void)state;
    static const char *const startup[] = {"a", "nobody"};
    struct sy_repository_config config = explicit_;
    struct repo_rig rig;
    char reason[600];

    config.startup_models = startup;
    config.n_startup_models = 2;
    repo_rig_write("a", 1, "c1");
    repo_rig_write("b", 1, "c2");
    repo_rig_init(&rig, 8, &seed);
    repo_rig_open(&rig, &config);
    repo_rig_until_started(&rig);
    assert_int_equal(rig.start_status, SY_ENOTFOUND);
    expect_content(&rig, "a", 0, "c1");
    expect_refused(&rig, "b", 0, SY_EBUSY, "load it first");
    assert_int_equal(repo_rig_load(&rig, "b", NULL), SY_OK);
    expect_content(&rig, "b", 0, "c2");
    assert_int_equal(sy_repository_unload(rig.repository, "b"), SY_OK);
    expect_refused(&rig, "b", 0, SY_EBUSY, "load it first");
    assert_string_equal(repo_rig_state(&rig, "b", 1, reason), "UNAVAILABLE");
    assert_string_equal(reason, "unloaded");
    assert_int_equal(repo_rig_load(&rig, "nobody", NULL), SY_ENOTFOUND);
    assert_int_equal(repo_rig_load(&rig, "../a", NULL), SY_ENOTFOUND);
    repo_rig_write("f", 1, "c4"); /* new since the start */
    assert_int_equal(repo_rig_load(&rig, "f", NULL), SY_OK);
    expect_content(&rig, "f", 0, "c4");
    repo_rig_remove("f");
    assert_int_equal(repo_rig_load(&rig, "f", NULL), SY_ENOTFOUND);
    expect_refused(&rig, "f", 0, SY_ENOTFOUND, "f");
    repo_rig_close(&rig);
}

static void a_request_ends_on_what_it_began_with(void **state)
{
    (void)state;
    struct sy_core_model_ref *old, *new;
    struct repo_rig rig;
    int status;

    repo_rig_write("a", 1, "c1");
    repo_rig_init(&rig, 8, &seed);
    repo_rig_open(&rig, &none);
    repo_rig_until_started(&rig);
    assert_string_equal(repo_rig_content(&rig, "a", 0, &status, &old), "c1");
    repo_rig_write("a", 1, "c2");
    expect_content(&rig, "a", 0, "c1"); /* not before it is loaded */
    assert_int_equal(repo_rig_load(&rig, "a", NULL), SY_OK);
    assert_string_equal(repo_rig_content(&rig, "a", 0, &status, &new), "c2");
    assert_string_equal(old->package->name, "c1");
    assert_int_equal(sy_repository_unload(rig.repository, "a"), SY_OK);
    assert_string_equal(new->package->name, "c2");
    repo_rig_release(&rig, old);
    repo_rig_release(&rig, new);
    expect_content(&rig, "a", 0, "c2"); /* asked for, so loaded again */
    repo_rig_write("a", 1, "broken");
    assert_int_equal(repo_rig_load(&rig, "a", NULL), SY_EIO);
    expect_content(&rig, "a", 0, "c2"); /* an older content is better than none */
    repo_rig_close(&rig);
}

static void unchanged_ones_stay(void **state)
{
    (void)state;
    struct repo_rig rig;

    repo_rig_write("a", 1, "c1");
    repo_rig_init(&rig, 8, &seed);
    repo_rig_open(&rig, &none);
    repo_rig_until_started(&rig);
    int adds = rig.n_adds;
    assert_int_equal(repo_rig_load(&rig, "a", NULL), SY_OK);
    assert_int_equal(repo_rig_load(&rig, "a", NULL), SY_OK);
    assert_int_equal(rig.n_adds, adds);
    repo_rig_write_config("a", "parameters { key: \"class\" value { string_value: \"7\" } }");
    assert_int_equal(repo_rig_load(&rig, "a", NULL), SY_OK);
    assert_int_equal(rig.n_adds, adds + 1);
    struct sy_core_model_ref *ref;
    int status;
    repo_rig_content(&rig, "a", 0, &status, &ref);
    assert_int_equal(ref->defaults.class_, 7);
    repo_rig_release(&rig, ref);
    repo_rig_close(&rig);
}

/* ---- more models than places -------------------------------------------------------------------------------------------- */

static void those_that_lose_their_place_come_back(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    struct repo_rig rig;
    char content[4];

    for (int i = 0; i < 6; i++) {
        snprintf(content, sizeof content, "c%d", i);
        repo_rig_write(names[i], 1, content);
    }
    repo_rig_init(&rig, 3, &seed);
    repo_rig_open(&rig, &none);
    repo_rig_until_started(&rig);
    assert_int_equal(rig.start_status, SY_OK);
    for (int round = 0; round < 40; round++) {
        int i = (int)seed_below(&seed, 6);

        snprintf(content, sizeof content, "c%d", i);
        expect_content(&rig, names[i], 0, content);
    }
    assert_int_equal(rig.most_used, 3);
    repo_rig_close(&rig);
}

/* ---- polling --------------------------------------------------------------------------------------------------------------- */

static void wait_for_content(struct repo_rig *rig, const char *name, const char *content)
{
    for (int i = 0; i < 20000; i++) {
        int status;
        const char *got = repo_rig_ask(rig, name, 0, &status);

        if (strcmp(got, content) == 0)
            return;
        repo_rig_turn(rig);
        usleep(200);
    }
    fail_msg("%s never became '%s'", name, content);
}

static void polling_follows_the_folder(void **state)
{
    (void)state;
    struct repo_rig rig;

    repo_rig_write("a", 1, "c1");
    repo_rig_init(&rig, 8, &seed);
    repo_rig_open(&rig, &polls);
    repo_rig_until_started(&rig);
    repo_rig_write("a", 1, "c2");
    wait_for_content(&rig, "a", "c2");
    repo_rig_write("a", 2, "c3");
    wait_for_content(&rig, "a", "c3");
    repo_rig_write("b", 1, "c4");
    wait_for_content(&rig, "b", "c4");
    repo_rig_write("a", 2, NULL);
    wait_for_content(&rig, "a", "c2");
    repo_rig_remove("b");
    wait_for_content(&rig, "b", "");
    assert_string_equal(repo_rig_state(&rig, "b", 1, NULL), "");
    repo_rig_close(&rig);
}

/* ---- all at once ----------------------------------------------------------------------------------------------------------- */

#define N_MODELS 6
#define N_ASKERS 24

struct asker {
    struct sy_repository_wait wait;
    int model, version; /* that it waits for */
    bool waits, woken;
    struct sy_core_model_ref *ref;
    char content[8];
};

struct storm {
    struct repo_rig rig;
    struct asker askers[N_ASKERS];
    int n_loads, n_loaded;
    bool ever[N_MODELS][3][REPO_RIG_CONTENTS]; /* what lay at version 1, 2 at some time */
    int now[N_MODELS][3];                      /* -1: none */
};

static const char *const storm_names[] = {"a", "b", "c", "d", "e", "f"};

static void asker_ready(void *ctx)
{
    struct asker *asker = ctx;

    assert_true(asker->waits && !asker->woken);
    asker->woken = true;
}

static void storm_loaded(void *ctx, int status, const char *error)
{
    (void)status, (void)error;
    ++*(int *)ctx;
}

static void storm_write(struct storm *s, int model, int version)
{
    char content[4];
    int c = (int)seed_below(&seed, REPO_RIG_CONTENTS);

    snprintf(content, sizeof content, "c%d", c);
    s->ever[model][version][c] = true;
    s->now[model][version] = c;
    repo_rig_write(storm_names[model], version, content);
}

static void check_content(const struct storm *s, const struct asker *asker)
{
    const struct sy_core_model_ref *ref = asker->ref;
    int c = ref->package->name[1] - '0';

    assert_string_equal(ref->name, storm_names[asker->model]);
    assert_true(asker->version == 0 || ref->version == asker->version);
    assert_true(s->ever[asker->model][ref->version][c]);
}

static void ask(struct storm *s, struct asker *asker)
{
    int status = sy_repository_acquire(s->rig.repository, storm_names[asker->model], asker->version,
                                       &asker->wait, &asker->ref);

    asker->woken = false;
    asker->waits = status == SY_REPOSITORY_LOADS;
    if (status != SY_OK) {
        asker->ref = NULL;
        return;
    }
    check_content(s, asker);
    snprintf(asker->content, sizeof asker->content, "%s", asker->ref->package->name);
}

static void asker_acts(struct storm *s)
{
    struct asker *asker = &s->askers[seed_below(&seed, N_ASKERS)];

    if (asker->ref) {
        assert_string_equal(asker->ref->package->name, asker->content); /* R2 */
        repo_rig_release(&s->rig, asker->ref);
        asker->ref = NULL;
    } else if (asker->waits && !asker->woken) {
        if (seed_below(&seed, 8) == 0) { /* its client is gone */
            sy_repository_wait_cancel(&asker->wait);
            asker->waits = false;
        }
    } else if (asker->woken) {
        ask(s, asker);
    } else {
        asker->model = (int)seed_below(&seed, N_MODELS);
        asker->version = (int)seed_below(&seed, 3);
        ask(s, asker);
    }
}

static void storm_step(struct storm *s, bool explicit_only)
{
    int model = (int)seed_below(&seed, N_MODELS), version = 1 + (int)seed_below(&seed, 2);
    uint64_t what = seed_below(&seed, 100);

    if (what < 60)
        asker_acts(s);
    else if (what < 66)
        storm_write(s, model, version);
    else if (what < 68)
        repo_rig_write(storm_names[model], version, "spoiled");
    else if (what < 76 && sy_repository_load(s->rig.repository, storm_names[model], NULL,
                                             storm_loaded, &s->n_loaded) == SY_OK)
        s->n_loads++;
    else if (what < 81)
        (void)sy_repository_unload_version(s->rig.repository, storm_names[model],
                                           (int64_t)seed_below(&seed, 3));
    else if (what < 82 && !explicit_only)
        repo_rig_write(storm_names[model], 2, NULL);
    else
        repo_rig_turn(&s->rig);
    if (seed_below(&seed, 20) == 0)
        usleep(500);
}

static void settle_askers(struct storm *s)
{
    for (int i = 0; i < N_ASKERS; i++) {
        struct asker *asker = &s->askers[i];

        sy_repository_wait_cancel(&asker->wait);
        if (asker->ref)
            repo_rig_release(&s->rig, asker->ref);
        asker->ref = NULL;
    }
}

/* In the end the folder is what is served. */
static void expect_folder(struct storm *s)
{
    char content[4];

    for (int m = 0; m < N_MODELS; m++) {
        storm_write(s, m, 1);
        storm_write(s, m, 2);
        if (repo_rig_load(&s->rig, storm_names[m], NULL) < 0)
            fail_msg("%s", sy_error_text());
    }
    for (int m = 0; m < N_MODELS; m++)
        for (int version = 0; version <= 2; version++) {
            snprintf(content, sizeof content, "c%d", s->now[m][version ? version : 2]);
            expect_content(&s->rig, storm_names[m], version, content);
        }
    assert_int_equal(s->n_loaded, s->n_loads);
}

static void run_storm(const struct sy_repository_config *config, int places, int steps)
{
    static struct storm storm;

    storm = (struct storm){0};
    for (int i = 0; i < N_ASKERS; i++)
        storm.askers[i].wait =
            (struct sy_repository_wait){.ready = asker_ready, .ctx = &storm.askers[i]};
    for (int m = 0; m < N_MODELS; m++) {
        repo_rig_remove(storm_names[m]);
        storm_write(&storm, m, 1);
        storm_write(&storm, m, 2);
        repo_rig_write_config(storm_names[m], "version_policy { all { } }");
    }
    repo_rig_init(&storm.rig, places, &seed);
    storm.rig.add_ticks = 4;
    repo_rig_open(&storm.rig, config);
    for (int i = 0; i < steps; i++)
        storm_step(&storm, config->control == SY_REPOSITORY_EXPLICIT);
    settle_askers(&storm);
    expect_folder(&storm);
    assert_true(storm.rig.most_used <= places);
    repo_rig_close(&storm.rig);
}

static void storms_end_in_what_the_folder_has(void **state)
{
    (void)state;
    run_storm(&none, REPO_RIG_MOST, 3000);
    run_storm(&none, 5, 3000);
    run_storm(&explicit_, 7, 3000);
    run_storm(&polls, 7, 3000);
}

static void note_ready(void *n_ready)
{
    ++*(int *)n_ready;
}

/* Who waits, and who comes, is answered while the loop still turns. */
static void stop_early(struct repo_rig *rig, const int *n_loaded, int n_loads)
{
    int n_ready = 0;
    struct sy_repository_wait wait = {.ready = note_ready, .ctx = &n_ready};
    struct sy_core_model_ref *ref;
    int status = sy_repository_acquire(rig->repository, "a", 0, &wait, &ref);

    if (status == SY_OK)
        repo_rig_release(rig, ref);
    sy_repository_stop(rig->repository);
    assert_int_equal(*n_loaded, n_loads);
    assert_int_equal(n_ready, status == SY_REPOSITORY_LOADS);
    assert_int_equal(sy_repository_load(rig->repository, "a", NULL, storm_loaded, NULL), SY_EBUSY);
    if (status == SY_REPOSITORY_LOADS)
        assert_int_equal(sy_repository_acquire(rig->repository, "a", 0, &wait, &ref), SY_EBUSY);
    for (int i = 0; i < 3; i++)
        repo_rig_turn(rig);
}

/* Destroyed at any moment, stopped before or not: each load is answered once, nothing is left. */
static void it_ends_at_any_moment(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        struct repo_rig rig;
        int n_loaded = 0, n_loads = 0;

        fresh(NULL);
        repo_rig_write("a", 1, "c1");
        repo_rig_write("b", 1, "c2");
        repo_rig_init(&rig, 8, &seed);
        rig.add_ticks = 3;
        repo_rig_open(&rig, round % 2 ? &none : &polls);
        for (uint64_t i = seed_below(&seed, 12); i > 0; i--) {
            repo_rig_turn(&rig);
            usleep((useconds_t)seed_below(&seed, 3000));
            n_loads += sy_repository_load(rig.repository, i % 2 ? "a" : "b", NULL, storm_loaded,
                                          &n_loaded) == SY_OK;
        }
        if (round % 3 == 0)
            stop_early(&rig, &n_loaded, n_loads);
        repo_rig_close(&rig);
        assert_int_equal(n_loaded, n_loads);
    }
}

/* ---- states ------------------------------------------------------------------------------------------------------------------ */

static void states_are_as_drawn(void **state)
{
    (void)state;
    int n_moves = 0;

    for (int s = 0; s < SY_VERSION_N_STATES; s++)
        for (int e = 0; e < SY_VERSION_N_EVENTS; e++) {
            int next = sy_version_next((enum sy_version_state)s, (enum sy_version_event)e);

            assert_true(next >= -1 && next < SY_VERSION_N_STATES && next != s);
            n_moves += next >= 0;
            if (e == SY_VERSION_EVENT_DROP)
                assert_int_equal(next, s == SY_VERSION_UNLOADED ? -1 : SY_VERSION_UNLOADED);
            if (e == SY_VERSION_EVENT_WANT)
                assert_int_equal(next >= 0, s == SY_VERSION_UNLOADED || s == SY_VERSION_READY ||
                                                s == SY_VERSION_UNAVAILABLE);
        }
    assert_int_equal(n_moves, 26);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_as_drawn),
        cmocka_unit_test_setup(the_folder_is_read, fresh),
        cmocka_unit_test_setup(one_that_does_not_load_keeps_no_other, fresh),
        cmocka_unit_test_setup(versions_are_served_by_policy, fresh),
        cmocka_unit_test_setup(explicit_means_what_is_said, fresh),
        cmocka_unit_test_setup(a_request_ends_on_what_it_began_with, fresh),
        cmocka_unit_test_setup(unchanged_ones_stay, fresh),
        cmocka_unit_test_setup(those_that_lose_their_place_come_back, fresh),
        cmocka_unit_test_setup(polling_follows_the_folder, fresh),
        cmocka_unit_test_setup(storms_end_in_what_the_folder_has, fresh),
        cmocka_unit_test_setup(it_ends_at_any_moment, fresh),
    };
    if (argc > 1 && strcmp(argv[1], "import") == 0)
        return repo_rig_import(argc, argv);
    seed = seed_of_run(2024);
    repo_rig_start();
    int result = cmocka_run_group_tests(tests, NULL, NULL);
    repo_rig_finish();
    return result;
}

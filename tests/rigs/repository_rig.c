#include "tests/rigs/repository_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tests/rigs/package_rig.h"
#include "tests/rigs/seed.h"
#include "tests/rigs/shell.h"

#define MOST_TURN_NS (30 * SY_NS_PER_S)

char repo_rig_folder[64];

/* ---- folders ------------------------------------------------------------------------------------------------------- */

static const char *content_path(const char *content)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/contents/%s.sypkg", repo_rig_folder, content);
    return path;
}

void repo_rig_start(void)
{
    char path[128], name[8];

    snprintf(repo_rig_folder, sizeof repo_rig_folder, "/tmp/switchyard-repository-XXXXXX");
    assert_non_null(mkdtemp(repo_rig_folder));
    snprintf(path, sizeof path, "%s/contents", repo_rig_folder);
    assert_int_equal(mkdir(path, 0755), 0);
    struct sy_graph *graph = pr_small_graph();
    for (int i = 0; i < REPO_RIG_CONTENTS; i++) {
        snprintf(name, sizeof name, "c%d", i);
        assert_int_equal(sy_package_write(content_path(name), name, graph, &pr_copier, NULL, NULL),
                         SY_OK);
    }
    sy_graph_free(graph);
    setenv("SY_TEST_CONTENTS", repo_rig_folder, 1);
}

void repo_rig_finish(void)
{
    remove_tree(repo_rig_folder);
}

static void write_whole(const char *path, const char *text)
{
    char temporary[300];

    snprintf(temporary, sizeof temporary, "%s.part", path);
    pr_write_file(temporary, text, strlen(text));
    assert_int_equal(rename(temporary, path), 0);
}

void repo_rig_write(const char *name, int version, const char *content)
{
    char path[300];

    snprintf(path, sizeof path, "%s/models", repo_rig_folder);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/models/%s", repo_rig_folder, name);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/models/%s/%d", repo_rig_folder, name, version);
    if (!content) {
        remove_tree(path);
        return;
    }
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/models/%s/%d/model.onnx", repo_rig_folder, name, version);
    write_whole(path, content);
}

void repo_rig_write_config(const char *name, const char *text)
{
    char path[300];

    snprintf(path, sizeof path, "%s/models/%s/config.pbtxt", repo_rig_folder, name);
    if (text)
        write_whole(path, text);
    else
        unlink(path);
}

void repo_rig_remove(const char *name)
{
    char path[300];

    snprintf(path, sizeof path, "%s/models/%s", repo_rig_folder, name);
    remove_tree(path);
}

/* ---- imports -------------------------------------------------------------------------------------------------------- */

/* import SOURCE -o PACKAGE ... */
int repo_rig_import(int argc, char **argv)
{
    char content[32] = "", to[300];
    unsigned char *bytes;
    size_t n;
    FILE *source = fopen(argv[2], "r");

    if (argc < 5 || !source || !fgets(content, sizeof content, source)) {
        fprintf(stderr, "switchyard: cannot read %s\n", argv[2]);
        return 1;
    }
    fclose(source);
    snprintf(repo_rig_folder, sizeof repo_rig_folder, "%s", getenv("SY_TEST_CONTENTS"));
    if (access(content_path(content), R_OK) != 0) {
        fprintf(stderr, "something goes on\nswitchyard: %s is no model\n", content);
        return 1;
    }
    bytes = pr_read_file(content_path(content), &n);
    snprintf(to, sizeof to, "%s.new", argv[4]);
    pr_write_file(to, bytes, n);
    free(bytes);
    return rename(to, argv[4]) == 0 ? 0 : 1;
}

static bool is_imported(const char *source, const char *package, const char *device)
{
    struct stat from, to;

    (void)device;
    if (stat(package, &to) != 0 || stat(source, &from) != 0 ||
        to.st_mtim.tv_sec < from.st_mtim.tv_sec ||
        (to.st_mtim.tv_sec == from.st_mtim.tv_sec && to.st_mtim.tv_nsec < from.st_mtim.tv_nsec)) {
        sy_error_set(SY_ENOTFOUND, "it has no package yet");
        return false;
    }
    return true;
}

static enum sy_precision kept_precision(const char *package, const char *device)
{
    (void)package, (void)device;
    return SY_PRECISION_F32;
}

/* ---- the core --------------------------------------------------------------------------------------------------------- */

static int fake_room(void *core)
{
    struct repo_rig *rig = core;
    int n = 0;

    for (int i = 0; i < rig->places; i++)
        n += !rig->entries[i].used;
    return n;
}

static int fake_add(void *core, const char *path, const struct sy_core_model_options *options,
                    sy_core_done done, void *ctx)
{
    struct repo_rig *rig = core;

    (void)path;
    for (int i = 0; i < rig->places; i++) {
        struct repo_rig_entry *e = &rig->entries[i];

        if (e->used)
            continue;
        *e = (struct repo_rig_entry){.used = true,
                                     .replaces = options->replaces,
                                     .package = options->package,
                                     .done = done,
                                     .ctx = ctx};
        snprintf(e->name, sizeof e->name, "%s", options->name);
        e->ref = (struct sy_core_model_ref){.package = e->package,
                                            .name = e->name,
                                            .version = options->version,
                                            .defaults = options->defaults};
        e->ticks = rig->add_ticks ? (int)seed_below(rig->seed, (uint64_t)rig->add_ticks) : 0;
        rig->n_adds++;
        return SY_OK;
    }
    return sy_error_set(SY_EBUSY, "no place");
}

static void free_entry(struct repo_rig_entry *e)
{
    sy_package_close(e->package);
    *e = (struct repo_rig_entry){0};
}

static void leave(struct repo_rig_entry *e)
{
    e->leaving = true;
    if (e->n_held == 0)
        free_entry(e);
}

static bool is_named(const struct repo_rig_entry *e, const char *name, int64_t version)
{
    return e->used && !e->leaving && strcmp(e->name, name) == 0 &&
           (version == 0 || e->ref.version == version);
}

static int fake_remove(void *core, const char *name, int64_t version)
{
    struct repo_rig *rig = core;
    int n = 0, status = SY_OK;

    for (int i = 0; i < rig->places; i++) {
        struct repo_rig_entry *e = &rig->entries[i];

        if (!is_named(e, name, version))
            continue;
        n++;
        if (e->ready)
            leave(e);
        else
            status = sy_error_set(SY_EBUSY, "'%s' is loading", name);
    }
    rig->n_removes += n;
    return n ? status : sy_error_set(SY_ENOTFOUND, "no model '%s'", name);
}

static int fake_acquire(void *core, const char *name, int64_t version,
                        struct sy_core_model_ref **out)
{
    struct repo_rig *rig = core;
    struct repo_rig_entry *best = NULL;

    for (int i = 0; i < rig->places; i++) {
        struct repo_rig_entry *e = &rig->entries[i];

        if (is_named(e, name, version) &&
            (!best || e->ready > best->ready ||
             (e->ready == best->ready && e->ref.version > best->ref.version)))
            best = e;
    }
    if (!best)
        return sy_error_set(SY_ENOTFOUND, "no model '%s'", name);
    if (!best->ready)
        return sy_error_set(SY_EBUSY, "'%s' is loading", name);
    best->n_held++;
    *out = &best->ref;
    return SY_OK;
}

static void fake_release(void *core, struct sy_core_model_ref *ref)
{
    struct repo_rig_entry *e = (struct repo_rig_entry *)ref;

    (void)core;
    assert_true(e->used && e->n_held > 0);
    if (--e->n_held == 0 && e->leaving)
        free_entry(e);
}

static int fake_status(void *core, json_t **out)
{
    (void)core;
    *out = json_pack("{s:[]}", "models");
    return SY_OK;
}

static const struct sy_core_handlers handlers = {
    .model_room = fake_room,
    .model_add = fake_add,
    .model_remove = fake_remove,
    .model_acquire = fake_acquire,
    .model_release = fake_release,
    .status = fake_status,
};

static void finish_add(struct repo_rig *rig, struct repo_rig_entry *e)
{
    sy_core_done done = e->done;
    void *ctx = e->ctx;

    e->done = NULL;
    for (int i = 0; i < rig->places; i++)
        if (&rig->entries[i] != e && is_named(&rig->entries[i], e->name, e->ref.version)) {
            assert_true(e->replaces && rig->entries[i].ready);
            leave(&rig->entries[i]);
        }
    e->ready = true;
    done(ctx, SY_OK, NULL);
}

static void core_turn(struct repo_rig *rig)
{
    int used = 0;

    for (int i = 0; i < rig->places; i++) {
        struct repo_rig_entry *e = &rig->entries[i];

        used += e->used;
        if (e->used && e->done && e->ticks-- <= 0)
            finish_add(rig, e);
    }
    rig->most_used = used > rig->most_used ? used : rig->most_used;
}

/* ---- the rig ------------------------------------------------------------------------------------------------------------ */

void repo_rig_init(struct repo_rig *rig, int places, uint64_t *seed)
{
    *rig = (struct repo_rig){.places = places, .seed = seed};
    rig->base = event_base_new();
    assert_non_null(rig->base);
}

static void started(void *ctx, int status, const char *error)
{
    struct repo_rig *rig = ctx;

    rig->n_started++;
    rig->start_status = status;
    snprintf(rig->start_error, sizeof rig->start_error, "%s", error ? error : "");
}

void repo_rig_open(struct repo_rig *rig, const struct sy_repository_config *config)
{
    struct sy_repository_config with = *config;
    char folder[128];

    snprintf(folder, sizeof folder, "%s/models", repo_rig_folder);
    with.folder = folder;
    with.device = "host";
    with.importer.is_imported = is_imported;
    with.importer.kept_precision = kept_precision;
    with.started = started;
    with.ctx = rig;
    if (sy_repository_create(rig->base, &with, &handlers, rig, &rig->repository) < 0)
        fail_msg("%s", sy_error_text());
}

void repo_rig_close(struct repo_rig *rig)
{
    sy_repository_destroy(rig->repository);
    for (int i = 0; i < rig->places; i++) {
        assert_true(!rig->entries[i].used || rig->entries[i].n_held == 0);
        free_entry(&rig->entries[i]);
    }
    event_base_free(rig->base);
}

void repo_rig_turn(struct repo_rig *rig)
{
    event_base_loop(rig->base, EVLOOP_NONBLOCK);
    core_turn(rig);
    event_base_loop(rig->base, EVLOOP_NONBLOCK);
}

static void turn_and_rest(struct repo_rig *rig, sy_ns deadline)
{
    repo_rig_turn(rig);
    if (sy_clock_now() > deadline)
        fail_msg("nothing happens");
    usleep(200); /* the thread and imports go on meanwhile */
}

void repo_rig_until_started(struct repo_rig *rig)
{
    sy_ns deadline = sy_clock_now() + MOST_TURN_NS;

    while (rig->n_started == 0)
        turn_and_rest(rig, deadline);
    assert_int_equal(rig->n_started, 1);
}

static void note_ready(void *ctx)
{
    *(bool *)ctx = true;
}

const char *repo_rig_content(struct repo_rig *rig, const char *name, int64_t version, int *status,
                             struct sy_core_model_ref **out)
{
    sy_ns deadline = sy_clock_now() + MOST_TURN_NS;
    bool ready = false;
    struct sy_repository_wait wait = {.ready = note_ready, .ctx = &ready};

    while ((*status = sy_repository_acquire(rig->repository, name, version, &wait, out)) ==
           SY_REPOSITORY_LOADS) {
        for (ready = false; !ready;)
            turn_and_rest(rig, deadline);
    }
    return *status == SY_OK ? (*out)->package->name : "";
}

void repo_rig_release(struct repo_rig *rig, struct sy_core_model_ref *ref)
{
    fake_release(rig, ref);
}

const char *repo_rig_ask(struct repo_rig *rig, const char *name, int64_t version, int *status)
{
    static char content[32];
    struct sy_core_model_ref *ref;

    snprintf(content, sizeof content, "%s", repo_rig_content(rig, name, version, status, &ref));
    if (*status == SY_OK)
        repo_rig_release(rig, ref);
    return content;
}

struct loaded {
    int n, status;
    char error[512];
};

static void load_done(void *ctx, int status, const char *error)
{
    struct loaded *loaded = ctx;

    loaded->n++;
    loaded->status = status;
    snprintf(loaded->error, sizeof loaded->error, "%s", error ? error : "");
}

int repo_rig_load(struct repo_rig *rig, const char *name, const char *config)
{
    struct loaded loaded = {0};
    sy_ns deadline = sy_clock_now() + MOST_TURN_NS;

    assert_int_equal(sy_repository_load(rig->repository, name, config, load_done, &loaded), SY_OK);
    while (loaded.n == 0)
        turn_and_rest(rig, deadline);
    assert_int_equal(loaded.n, 1);
    return loaded.status < 0 ? sy_error_set(loaded.status, "%s", loaded.error) : SY_OK;
}

const char *repo_rig_state(struct repo_rig *rig, const char *name, int version, char *reason)
{
    static char state[32];
    char number[16];
    json_t *index, *entry;
    size_t i;

    snprintf(number, sizeof number, "%d", version);
    *state = '\0';
    assert_int_equal(sy_repository_index(rig->repository, false, &index), SY_OK);
    json_array_foreach(index, i, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "name")), name) != 0 ||
            strcmp(json_string_value(json_object_get(entry, "version")), version ? number : "") !=
                0)
            continue;
        snprintf(state, sizeof state, "%s", json_string_value(json_object_get(entry, "state")));
        if (reason)
            snprintf(reason, 600, "%s", json_string_value(json_object_get(entry, "reason")));
    }
    json_decref(index);
    return state;
}

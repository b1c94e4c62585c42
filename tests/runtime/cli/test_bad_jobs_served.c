/* Jobs that cannot be trained as they stand, given to a server: refused, or ended with the reason and the last good snapshot, while it goes
 * on: its requests keep their bits and another job its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "tests/rigs/server_fixture.h"

#define WAIT_NS (300 * SY_NS_PER_S)

/* The job's error once it has failed; NULL when it ended well. malloc'd. */
static char *wait_over(struct fixture *f, uint64_t job)
{
    for (sy_ns deadline = sy_clock_now() + WAIT_NS; sy_clock_now() < deadline;) {
        json_t *status = fixture_status(f), *entry;
        size_t i;
        char *error = NULL;
        bool over = false;
        json_array_foreach(json_object_get(status, "jobs"), i, entry)
        {
            const char *now = json_string_value(json_object_get(entry, "state"));
            if ((uint64_t)json_integer_value(json_object_get(entry, "job")) != job || !now)
                continue;
            over = strcmp(now, "failed") == 0 || strcmp(now, "ended") == 0;
            if (strcmp(now, "failed") == 0)
                error = strdup(json_string_value(json_object_get(entry, "error")));
        }
        json_decref(status);
        if (over)
            return error;
        sy_clock_sleep_until(sy_clock_now() + 10 * SY_NS_PER_MS);
    }
    fail_msg("job %llu is not over", (unsigned long long)job);
    return NULL;
}

/* Submits; the error of the refusal or of the end. */
static char *try_job(struct fixture *f, json_t *job)
{
    char *text = json_dumps(job, JSON_COMPACT), *answer = NULL, *error;
    json_t *params = json_pack("{s:s}", "text", text);
    char *line = json_dumps(params, JSON_COMPACT);
    int status = sy_client_call(f->client, "train", line, &answer);
    if (status < 0) {
        error = strdup(sy_client_error(f->client));
    } else {
        json_t *json = json_loads(answer, 0, NULL);
        error = wait_over(f, (uint64_t)json_integer_value(json_object_get(json, "job")));
        json_decref(json);
    }
    free(answer);
    free(line);
    free(text);
    json_decref(params);
    return error;
}

struct scene {
    struct fixture f;
    json_t *job; /* a good one, to be made bad */
    sy_client_result *wanted[2];
};

/* Requests give what they gave, and no process ended. */
static void undisturbed(struct scene *s, const char *after)
{
    json_t *status = fixture_status(&s->f), *worker;
    size_t i;
    json_array_foreach(json_object_get(status, "workers"), i, worker)
    {
        if (json_integer_value(json_object_get(worker, "deaths")) == 0)
            continue;
        char command[300];
        snprintf(command, sizeof command, "tail -n 40 %s >&2", s->f.log);
        if (system(command) != 0)
            print_message("no log\n");
        fail_msg("%s: a worker died", after);
    }
    json_decref(status);
    static const char *const models[] = {"tiny_cnn", "mlp"};
    for (int m = 0; m < 2; m++) {
        sy_client_result *got = fixture_infer(&s->f, models[m], 2, 1, NULL);
        if (!s->wanted[m]) {
            s->wanted[m] = got;
            continue;
        }
        if (!fixture_same(got, s->wanted[m]))
            fail_msg("%s: %s gives another result", after, models[m]);
        sy_client_result_free(got);
    }
}

/* The good job with one change ends with these words, and nothing else notices. Consumes `value`. */
static void bad_job(struct scene *s, const char *section, const char *key, json_t *value,
                    const char *word, const char *word2)
{
    json_t *job = json_deep_copy(s->job);
    json_object_set_new(*section ? json_object_get(job, section) : job, key, value);
    char *error = try_job(&s->f, job);
    if (!error || !strstr(error, word) || !strstr(error, word2))
        fail_msg("job with another %s: \"%s\" and \"%s\" were expected: %s", key, word, word2,
                 error ? error : "it ended well");
    free(error);
    json_decref(job);
    undisturbed(s, key);
}

static void write_in(const struct fixture *f, const char *name, const void *bytes, size_t n)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

static json_t *in_folder(const struct fixture *f, const char *name)
{
    return json_sprintf("%s/%s", f->folder, name);
}

static void open_scene(struct scene *s, const char *name)
{
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "96M", NULL};
    memset(s, 0, sizeof *s);
    fixture_init(&s->f, name);
    fixture_start(&s->f, args);
    s->job = json_load_file(fixture_make_job(&s->f, "bad", 1000000, 5), 0, NULL);
    assert_non_null(s->job);
    undisturbed(s, "start");
}

static void close_scene(struct scene *s)
{
    json_decref(s->job);
    sy_client_result_free(s->wanted[0]);
    sy_client_result_free(s->wanted[1]);
    assert_int_equal(fixture_stop(&s->f), 0);
    fixture_finish(&s->f);
}

/* Each of these beside a job that trains, whose weights come out as if it had been alone. */
static void bad_jobs(struct scene *s)
{
    struct fixture *f = &s->f;
    unsigned char labels[8 + 256] = {0, 0, 8, 1, 0, 0, 1, 0};
    bad_job(s, "", "bacth", json_integer(4), "'bacth'", "'batch'");
    bad_job(s, "", "name", json_string("a\nready"), "name", "");
    bad_job(s, "", "batch", json_integer(65536), "the pool has", "--pool-bytes");
    bad_job(s, "", "model", json_string("/nowhere/model.onnx"), "/nowhere/model.onnx", "");
    bad_job(s, "", "model", in_folder(f, "images"), "images", "ONNX");
    write_in(f, "short", "\0\0\x08\x03\0\0\1\0\0\0\0\x1c\0\0\0\x1c", 16);
    bad_job(s, "data", "images", in_folder(f, "short"), "short", "");
    write_in(f, "few", labels, 8 + 255);
    bad_job(s, "data", "labels", in_folder(f, "few"), "few", "");
    labels[8 + 77] = 10;
    write_in(f, "range", labels, sizeof labels);
    bad_job(s, "data", "labels", in_folder(f, "range"), "range", "77");
    json_t *csv = json_pack("{s:s, s:o, s:s}", "kind", "csv", "file", in_folder(f, "t.csv"),
                            "label", "species");
    write_in(f, "t.csv", "size,kind\n1,0\n2,1\n", 18);
    bad_job(s, "", "data", csv, "species", "'size', 'kind'");
}

static void test_jobs_beside_others(void **state)
{
    (void)state;
    struct scene s;
    size_t alone_bytes, bytes;
    int steps = 120;
    open_scene(&s, "badjobs");
    fixture_wait_ended(&s.f, fixture_submit(&s.f, fixture_make_job(&s.f, "good", steps, 1000000)));
    void *alone = fixture_read_snapshot(&s.f, "good", (uint64_t)steps, &alone_bytes);
    char command[200];
    snprintf(command, sizeof command, "rm -r %s/snapshots", s.f.folder);
    assert_int_equal(system(command), 0);
    uint64_t good = fixture_submit(&s.f, fixture_make_job(&s.f, "good", steps, 1000000));
    bad_jobs(&s);
    fixture_wait_ended(&s.f, good);
    void *beside = fixture_read_snapshot(&s.f, "good", (uint64_t)steps, &bytes);
    assert_int_equal(bytes, alone_bytes);
    assert_memory_equal(beside, alone, bytes);
    free(alone);
    free(beside);
    close_scene(&s);
}

/* It diverges after some good steps: the end names the step and the snapshot before, which is there and is read by the next job. */
static void test_loss_that_is_not_finite(void **state)
{
    (void)state;
    struct scene s;
    open_scene(&s, "diverges");
    json_t *job = json_deep_copy(s.job);
    json_object_set_new(job, "optimizer",
                        json_pack("{s:s, s:f}", "kind", "sgd", "learning_rate", 1e-3));
    json_object_set_new(job, "max_steps", json_integer(20));
    char *error = try_job(&s.f, job);
    if (error)
        fail_msg("the good part: %s", error);
    /* The same job, but its step's size grows without bound. */
    json_object_set_new(job, "name", json_string("worse"));
    json_object_set_new(job, "max_steps", json_integer(100000));
    json_object_set_new(
        job, "schedule",
        json_pack("{s:s, s:i, s:f}", "kind", "step", "every_steps", 4, "factor", 30.0));
    error = try_job(&s.f, job);
    const char *at = error ? strstr(error, "last good snapshot") : NULL;
    const char *file = at ? strstr(at, s.f.folder) : NULL;
    if (!at || !strstr(error, "step") || !file || !strstr(file, "worse-"))
        fail_msg("step and snapshot were expected: %s", error ? error : "it ended well");
    char path[300];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(file, " ,;')"), file);
    assert_int_equal(access(path, R_OK), 0);
    free(error);
    undisturbed(&s, "a loss that is not finite");
    json_decref(job);
    close_scene(&s);
}

static void test_snapshots_of_others(void **state)
{
    (void)state;
    struct scene s;
    open_scene(&s, "snapshots");
    json_object_set_new(s.job, "max_steps", json_integer(4));
    char *error = try_job(&s.f, s.job);
    if (error)
        fail_msg("%s", error);
    bad_job(&s, "", "seed", json_integer(6), "bad-4.safetensors", "");
    /* A file of a later version under the name that would be read next: refused, and kept. */
    static const char later[] =
        "{\"__metadata__\":{\"format\":\"switchyard-snapshot-9\",\"job\":\"bad\"}}";
    char path[300];
    unsigned char bytes[8 + sizeof later] = {sizeof later - 1};
    memcpy(bytes + 8, later, sizeof later - 1);
    write_in(&s.f, "snapshots/bad-9.safetensors", bytes, 8 + sizeof later - 1);
    bad_job(&s, "", "max_steps", json_integer(8), "bad-9.safetensors", "switchyard-snapshot-9");
    snprintf(path, sizeof path, "%s/snapshots/bad-9.safetensors", s.f.folder);
    assert_int_equal(access(path, R_OK), 0);
    /* A damaged one: the one before is taken. */
    bytes[8] = 'x';
    write_in(&s.f, "snapshots/bad-9.safetensors", bytes, 8 + sizeof later - 1);
    json_object_set_new(s.job, "max_steps", json_integer(8));
    error = try_job(&s.f, s.job);
    if (error)
        fail_msg("%s", error);
    undisturbed(&s, "a damaged snapshot");
    close_scene(&s);
}

/* A small file system: snapshots fit until another file fills it. The old one stays whole, and training goes on. */
static void test_full_disk(void **state)
{
    (void)state;
    struct scene s;
    char disk[200], filler[300];
    open_scene(&s, "fulldisk");
    snprintf(disk, sizeof disk, "%s/disk", s.f.folder);
    mkdir(disk, 0777);
    if (mount("tmpfs", disk, "tmpfs", 0, "size=32m") != 0) {
        print_message("skipped: a small file system cannot be mounted here\n");
        close_scene(&s);
        skip();
    }
    json_object_set_new(json_object_get(s.job, "snapshot"), "folder", json_string(disk));
    json_object_set_new(s.job, "max_steps", json_integer(5));
    char *error = try_job(&s.f, s.job);
    if (error)
        fail_msg("%s", error);
    snprintf(filler, sizeof filler, "%s/filler", disk);
    FILE *file = fopen(filler, "wb");
    static const char block[4096];
    setbuf(file, NULL);
    while (fwrite(block, 1, sizeof block, file) == sizeof block)
        ;
    fclose(file);
    json_object_set_new(s.job, "max_steps", json_integer(30));
    error = try_job(&s.f, s.job);
    bool said = fixture_log_has(&s.f, "No space left");
    free(error);
    undisturbed(&s, "a full disk");
    snprintf(filler, sizeof filler, "%s/bad-5.safetensors", disk);
    bool kept = access(filler, R_OK) == 0;
    umount2(disk, MNT_DETACH);
    close_scene(&s);
    assert_true(said);
    assert_true(kept);
}

int main(void)
{
    sy_log_threshold = SY_LOG_ERROR;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_beside_others),
        cmocka_unit_test(test_loss_that_is_not_finite),
        cmocka_unit_test(test_snapshots_of_others),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

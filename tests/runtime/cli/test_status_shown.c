/* What `switchyard status` shows of a real server: all of a line on a terminal, those that run before those that are over, and of each job
 * only what is its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/base/status.h"
#include "tests/rigs/server_fixture.h"
#include "tests/rigs/shell.h"

#define COLUMNS 80

/* The job of that file, as this tenant's; what was answered. */
static int submit_of(struct fixture *f, const char *path, const char *tenant)
{
    json_t *job = json_load_file(path, 0, NULL);
    char *answer = NULL;
    json_object_set_new(job, "tenant", json_string(tenant));
    char *text = json_dumps(job, 0);
    json_t *params = json_pack("{s:s}", "text", text);
    char *packed = json_dumps(params, 0);
    int status = sy_client_call(f->client, "train", packed, &answer);
    json_decref(params);
    json_decref(job);
    free(answer);
    free(packed);
    free(text);
    return status;
}

/* Until each has said that it forgot its job. */
static void wait_for_idle_workers(struct fixture *f)
{
    for (bool idle = false; !idle; usleep(1000)) {
        json_t *status = fixture_status(f), *worker;
        size_t i;
        idle = true;
        json_array_foreach(json_object_get(status, "workers"), i, worker) idle &=
            !strcmp(json_string_value(json_object_get(worker, "state")), "idle");
        json_decref(status);
    }
}

static void assert_last_job_is_blank(struct fixture *f)
{
    wait_for_idle_workers(f);
    json_t *status = fixture_status(f), *jobs = json_object_get(status, "jobs");
    json_t *job = json_array_get(jobs, json_array_size(jobs) - 1);
    assert_string_equal(json_string_value(json_object_get(job, "state")), "failed");
    assert_string_equal(json_string_value(json_object_get(job, "tenant")), "small");
    assert_non_null(strstr(json_string_value(json_object_get(job, "error")), "quota of 4096"));
    assert_int_equal(json_integer_value(json_object_get(job, "longest_layer_ns")), 0);
    assert_string_equal(json_string_value(json_object_get(job, "longest_layer")), "");
    assert_int_equal(json_integer_value(json_object_get(job, "snapshot_step")), 0);
    assert_int_equal(json_integer_value(json_object_get(job, "step")), 0);
    json_decref(status);
}

static void a_refused_job_shows_nothing_of_the_one_before(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "status");
    const char *const args[] = {
        "--models", fixture_models(), "--pool-bytes", "64M", "--workers", "2", NULL};
    fixture_start(&f, args);
    const char *path = fixture_make_job(&f, "first", 20, 5);
    fixture_wait_ended(&f, fixture_submit(&f, path));
    wait_for_idle_workers(&f); /* the next one has the same */
    json_decref(fixture_call(&f, "tenant",
                             json_pack("{s:s, s:i}", "tenant", "small", "memory_bytes", 4096)));
    assert_int_equal(submit_of(&f, path, "small"), SY_ENOMEM_DEVICE);
    assert_last_job_is_blank(&f);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* What the first job that is named so waits for; "" for nothing. Fails where the key is not there. */
static void assert_waits_for(struct fixture *f, const char *name, const char *word)
{
    json_t *status = fixture_status(f), *job;
    size_t i;
    json_array_foreach(json_object_get(status, "jobs"), i, job)
    {
        if (strcmp(json_string_value(json_object_get(job, "name")), name) != 0)
            continue;
        const json_t *waits = json_object_get(job, "waits_for");
        assert_true(waits &&
                    (json_is_string(waits) ? *word && strstr(json_string_value(waits), word)
                                           : json_is_null(waits) && !*word));
        assert_non_null(json_object_get(job, "lane"));
        assert_non_null(json_object_get(job, "left_s"));
    }
    json_decref(status);
}

/* On a connection of its own, which is answered when the job has a worker. */
static void a_paused_job_says_that_it_is(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, "paused");
    const char *const args[] = {
        "--models", fixture_models(), "--pool-bytes", "64M", "--workers", "2", NULL};
    fixture_start(&f, args);
    uint64_t first = fixture_submit(&f, fixture_make_job(&f, "runs", 1000000000, 0));
    const char *path = fixture_make_job(&f, "queued", 3, 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl(fixture_program("switchyard"), "switchyard", "train", path, "--socket", f.address,
              NULL);
        _exit(127);
    }
    for (bool is_there = false; !is_there; usleep(1000)) {
        json_t *status = fixture_status(&f);
        is_there = json_array_size(json_object_get(status, "jobs")) == 2;
        json_decref(status);
    }
    assert_waits_for(&f, "queued", "a worker");
    json_t *job = json_pack("{s:I}", "job", (json_int_t)first + 1);
    json_decref(fixture_call(&f, "job_pause", json_incref(job)));
    assert_waits_for(&f, "queued", "jobs resume");
    json_decref(fixture_call(&f, "job_resume", job));
    assert_waits_for(&f, "queued", "a worker");
    fixture_end_job(&f, first);
    fixture_wait_ended(&f, first + 1);
    assert_waits_for(&f, "queued", "");
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* The text, in lines; ends in NULL. */
static char **lines_of(const struct fixture *f, char *text, size_t size)
{
    static char *lines[200];
    int n = 0;
    assert_int_equal(
        shell_run(text, size, "'%s' status --socket %s", fixture_program("switchyard"), f->address),
        0);
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) && n < 199;)
        lines[n++] = line;
    lines[n] = NULL;
    return lines;
}

/* Where the line that has this word is; fails where none is. */
static int line_with(char *const *lines, const char *word)
{
    int i = 0;
    while (lines[i] && !strstr(lines[i], word))
        i++;
    if (!lines[i])
        fail_msg("no line has \"%s\"", word);
    return i;
}

static void a_terminal_has_room_for_what_counts(void **state)
{
    (void)state;
    static const char *const models[] = {"bert_tiny", "identity", "mlp", "resnet18", "tiny_cnn"};
    static char text[1 << 16];
    struct fixture f;
    fixture_init(&f, "shown");
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    fixture_start(&f, args);
    fixture_wait_ended(&f, fixture_submit(&f, fixture_make_job(&f, "was_first", 3, 0)));
    uint64_t job = fixture_submit(&f, fixture_make_job(&f, "still_runs", 1000000000, 0));
    fixture_wait_step(&f, job, 1);
    char **lines = lines_of(&f, text, sizeof text);
    int running = line_with(lines, "still_runs"), over = line_with(lines, "was_first");
    assert_true(running < over && line_with(lines, "identity") < over);
    assert_in_range(strlen(lines[running]), 1, COLUMNS);
    assert_in_range(strlen(lines[over]), 1, COLUMNS);
    json_t *status = fixture_status(&f);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        bool is_there = false;
        json_t *model;
        size_t k;
        json_array_foreach(json_object_get(status, "models"), k, model) is_there |=
            !strcmp(json_string_value(json_object_get(model, "name")), models[i]);
        if (is_there) {
            const char *line = lines[line_with(lines, models[i])];
            assert_in_range(strlen(line), 1, COLUMNS);
            assert_string_equal(line + strlen(line) - 1, "%"); /* the last column, its share */
        }
    }
    json_decref(status);
    fixture_end_job(&f, job);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

/* A closed descriptor is not reused for the server's socket: what is printed would go to the server, and nobody would learn of it. */
static void a_closed_output_is_a_failure(void **state)
{
    (void)state;
    char text[4096];
    struct fixture f;
    fixture_init(&f, "shown");
    const char *const args[] = {"--models", fixture_models(), NULL};
    fixture_start(&f, args);
    assert_int_equal(shell_run(text, sizeof text, "'%s' status --socket %s 2>&1 >&-",
                               fixture_program("switchyard"), f.address),
                     1);
    assert_non_null(strstr(text, "cannot write the output"));
    assert_int_equal(shell_run(text, sizeof text, "'%s' status --socket %s <&- 2>&-",
                               fixture_program("switchyard"), f.address),
                     0);
    assert_non_null(strstr(text, "device host"));
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_job_shows_nothing_of_the_one_before),
        cmocka_unit_test(a_paused_job_says_that_it_is),
        cmocka_unit_test(a_terminal_has_room_for_what_counts),
        cmocka_unit_test(a_closed_output_is_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

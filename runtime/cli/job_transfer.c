#include "runtime/cli/job_transfer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/move/job_state.h"
#include "runtime/net/base64.h"

#define PIECE_BYTES (768u << 10) /* 1 MiB as base64 */
#define SIGHT_US    50000u       /* between two looks at a job */
#define PATIENCE_NS (30 * SY_NS_PER_S)

static volatile sig_atomic_t is_interrupted;

static void interrupt(int number)
{
    is_interrupted = number;
}

static int call(sy_client *client, const char *method, json_t *params)
{
    json_t *answer;
    int result = sy_cli_call(client, method, params, &answer);

    json_decref(answer);
    return result;
}

static int call_job(sy_client *client, const char *method, int64_t job)
{
    return call(client, method, json_pack("{s:I}", "job", (json_int_t)job));
}

/* ---- out of a server ------------------------------------------------------------------------------- */

/* A parked job's description: as JSON for another server, and parsed. Both are the caller's. */
static int get_state(sy_client *client, int64_t job, json_t **json, struct sy_job_state *state)
{
    json_t *answer;

    *json = NULL;
    *state = (struct sy_job_state){0};
    if (sy_cli_call(client, "job_state", json_pack("{s:I}", "job", (json_int_t)job), &answer))
        return 1;
    *json = json_incref(json_object_get(answer, "state"));
    json_decref(answer);
    return sy_job_state_parse(*json, state) < 0 ? sy_cli_fail_status() : 0;
}

/* A piece as base64: {"data"}, the caller's. */
static int get_piece(sy_client *client, int64_t job, const struct sy_job_state *state,
                     uint64_t offset, json_t **out)
{
    uint64_t n = SY_MIN(state->bytes - offset, (uint64_t)PIECE_BYTES);

    if (is_interrupted)
        return sy_cli_fail("interrupted");
    return sy_cli_call(client, "job_state_read",
                       json_pack("{s:I, s:I, s:I, s:I}", "job", (json_int_t)job, "step",
                                 (json_int_t)state->step, "offset", (json_int_t)offset, "bytes",
                                 (json_int_t)n),
                       out);
}

static int write_piece(const struct sy_durable_file *file, uint64_t at, const json_t *answer,
                       uint64_t wanted)
{
    unsigned char *bytes = NULL;
    size_t n;
    int status = sy_base64_take(answer, "data", PIECE_BYTES, &bytes, &n);

    if (status == SY_OK && n != wanted)
        status = sy_error_set(SY_EPROTO, "the server sent a piece of %zu bytes", n);
    if (status == SY_OK)
        status = sy_write_fully(file->fd, file->path, bytes, n, at);
    free(bytes);
    return status < 0 ? sy_cli_fail_status() : 0;
}

static int write_pieces(sy_client *client, int64_t job, const struct sy_job_state *state,
                        const struct sy_durable_file *file, uint64_t at)
{
    int result = 0;

    for (uint64_t done = 0; result == 0 && done < state->bytes; done += PIECE_BYTES) {
        json_t *piece;
        result = get_piece(client, job, state, done, &piece);
        if (result)
            return result;
        result =
            write_piece(file, at + done, piece, SY_MIN(state->bytes - done, (uint64_t)PIECE_BYTES));
        json_decref(piece);
    }
    return result;
}

static int check_written(const struct sy_job_state *state, const struct sy_durable_file *file,
                         uint64_t at)
{
    uint64_t hash = state->xxh3;

    if (state->bytes > 0 &&
        sy_job_state_hash(file->fd, file->path, at, state->bytes, NULL, &hash) < 0)
        return sy_cli_fail_status();
    return hash == state->xxh3 ? 0
                               : sy_cli_fail("the snapshot changed while it was read: was the job "
                                             "resumed? Suspend it, and export it again");
}

static int write_file(sy_client *client, int64_t job, const struct sy_job_state *state,
                      const char *path)
{
    struct sy_durable_file file;
    unsigned char *head;
    size_t n;

    if (sy_job_state_pack(state, &head, &n) < 0)
        return sy_cli_fail_status();
    int result = sy_durable_file_create(path, &file) < 0 ? sy_cli_fail_status() : 0;
    if (result == 0 && sy_write_fully(file.fd, path, head, n, 0) < 0)
        result = sy_cli_fail_status();
    free(head);
    if (result == 0)
        result = write_pieces(client, job, state, &file, n);
    if (result == 0)
        result = check_written(state, &file, n);
    if (result == 0 && sy_durable_file_commit(&file) < 0)
        result = sy_cli_fail_status();
    sy_durable_file_discard(&file);
    if (result == 0)
        printf("%s: job %lld, '%s' at step %llu, %.1f MB\n", path, (long long)job, state->name,
               (unsigned long long)state->step, (double)(n + state->bytes) / 1e6);
    return result;
}

int sy_cli_job_export(sy_client *client, int64_t job, const char *path)
{
    json_t *json;
    struct sy_job_state state;

    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    int result = get_state(client, job, &json, &state);
    if (result == 0)
        result = write_file(client, job, &state, path);
    json_decref(json);
    sy_job_state_finish(&state);
    return result;
}

/* ---- into a server --------------------------------------------------------------------------------- */

static int put_piece(sy_client *client, uint64_t offset, json_t *data)
{
    return call(client, "job_receive_piece",
                json_pack("{s:I, s:O}", "offset", (json_int_t)offset, "data", data));
}

static int put_end(sy_client *client, int64_t *job)
{
    json_t *answer;

    if (sy_cli_call(client, "job_receive_end", json_object(), &answer))
        return 1;
    *job = json_integer_value(json_object_get(answer, "job"));
    json_decref(answer);
    return 0;
}

static int put_from_file(sy_client *client, const char *path, int fd, uint64_t at,
                         const struct sy_job_state *state)
{
    unsigned char *bytes = malloc(PIECE_BYTES);
    int result = bytes ? 0 : sy_cli_fail("no memory for a piece");

    for (uint64_t done = 0; result == 0 && done < state->bytes; done += PIECE_BYTES) {
        size_t n = (size_t)SY_MIN(state->bytes - done, (uint64_t)PIECE_BYTES);
        if (sy_read_fully(fd, path, bytes, n, at + done) < 0) {
            result = sy_cli_fail_status();
            break;
        }
        json_t *data = sy_base64_json(bytes, n);
        result = is_interrupted ? sy_cli_fail("interrupted") : put_piece(client, done, data);
        json_decref(data);
    }
    free(bytes);
    return result;
}

int sy_cli_job_resume_from(sy_client *client, const char *path)
{
    struct sy_job_state state;
    uint64_t at;
    int fd;
    int64_t job = 0;

    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    if (sy_job_state_open(path, &state, &fd, &at) < 0)
        return sy_cli_fail_status();
    int result =
        call(client, "job_receive", json_pack("{s:o}", "state", sy_job_state_json(&state)));
    if (result == 0)
        result = put_from_file(client, path, fd, at, &state);
    if (result == 0)
        result = put_end(client, &job);
    if (result == 0)
        result = call_job(client, "job_resume", job);
    if (result == 0)
        printf("job %lld: '%s' goes on at step %llu\n", (long long)job, state.name,
               (unsigned long long)state.step);
    close(fd);
    sy_job_state_finish(&state);
    return result;
}

/* ---- from one to another ----------------------------------------------------------------------------- */

/* The job in a server's status, the caller's; NULL after saying why. */
static json_t *find_job(sy_client *client, int64_t id)
{
    json_t *status, *job;
    size_t i;

    if (sy_cli_call(client, "status", json_object(), &status))
        return NULL;
    json_array_foreach(json_object_get(status, "jobs"), i, job)
    {
        if (json_integer_value(json_object_get(job, "job")) == id) {
            json_incref(job);
            json_decref(status);
            return job;
        }
    }
    json_decref(status);
    sy_cli_fail("there is no job %lld", (long long)id);
    return NULL;
}

/* Suspended at both in the end. */
static int hand_over(sy_client *from, int64_t job, sy_client *to, int64_t *there)
{
    json_t *json, *piece;
    struct sy_job_state state;
    int result = get_state(from, job, &json, &state);

    if (result == 0)
        result = call(to, "job_receive", json_pack("{s:O}", "state", json));
    for (uint64_t done = 0; result == 0 && done < state.bytes; done += PIECE_BYTES) {
        result = get_piece(from, job, &state, done, &piece);
        if (result)
            break;
        result = put_piece(to, done, json_object_get(piece, "data"));
        json_decref(piece);
    }
    if (result == 0)
        result = put_end(to, there);
    json_decref(json);
    sy_job_state_finish(&state);
    return result;
}

static bool is_any(const char *word, const char *const *of)
{
    while (*of && strcmp(word, *of) != 0)
        of++;
    return *of != NULL;
}

/* 0: the other server runs or queues it. 1: it was refused, or no server answers. */
static int start_there(sy_client *to, int64_t job, bool paused)
{
    static const char *const waits[] = {"queued", "preparing", "starting", NULL};
    sy_ns until = sy_clock_now() + PATIENCE_NS;

    if (call(to, "job_resume",
             json_pack("{s:I, s:b}", "job", (json_int_t)job, "paused", (int)paused)))
        return 1;
    for (;; usleep(SIGHT_US)) {
        json_t *seen = find_job(to, job);
        const char *state = sy_cli_word(seen, "state");
        int result = -1;
        if (!seen || strcmp(state, "failed") == 0)
            result = seen ? sy_cli_fail("%s", sy_cli_word(seen, "error")) : 1;
        else if (!is_any(state, waits) || sy_clock_now() > until)
            result = 0;
        if (result == 0 && is_any(state, waits))
            printf("job %lld waits there: %s\n", (long long)job, sy_cli_word(seen, "waits_for"));
        json_decref(seen);
        if (result >= 0)
            return result;
    }
}

/* Whether it is sure that the job does not run, and will not run, at `to`. */
static bool is_taken_back(sy_client *to, int64_t there)
{
    char *pong = NULL;
    bool answers = sy_client_call(to, "ping", "{}", &pong) == SY_OK;

    free(pong);
    return answers && call_job(to, "train_stop", there) == 0;
}

/* What it leaves there is no result. */
static void remove_copy(sy_client *to, int64_t there)
{
    if (call_job(to, "job_receive_undo", there))
        fprintf(stderr, "the copy of its snapshot stays at the other server\n");
}

/* A paused job, which its server calls suspended as well, keeps its worker or place in the queue: it is not parked. The key says so before the state does. */
static bool is_paused(const json_t *seen)
{
    bool is_suspended = json_is_true(json_object_get(seen, "suspended")) ||
                        strcmp(sy_cli_word(seen, "state"), "suspended") == 0;
    return is_suspended && !json_is_true(json_object_get(seen, "parked"));
}

static int go_on_here(sy_client *from, int64_t job, bool was_parked, bool was_paused)
{
    if (was_parked)
        return sy_cli_fail("job %lld was not moved, and is suspended as before", (long long)job);
    if (call_job(from, "job_resume", job))
        return sy_cli_fail("job %lld was not moved, and is suspended; to go on: switchyard jobs "
                           "resume %lld",
                           (long long)job, (long long)job);
    if (was_paused && call_job(from, "job_pause", job) == 0)
        return sy_cli_fail("job %lld was not moved, and is paused as before", (long long)job);
    return sy_cli_fail("job %lld was not moved, and goes on where it was", (long long)job);
}

/* The last steps of a move: the job goes on at `to`. */
static int let_go(sy_client *from, int64_t job, int64_t there, const char *address, bool was_paused)
{
    printf("job %lld is job %lld at %s%s\n", (long long)job, (long long)there, address,
           was_paused ? ", paused as before" : "");
    if (call_job(from, "train_stop", job))
        return sy_cli_fail("it goes on there; here it is suspended still: 'switchyard jobs cancel "
                           "%lld' forgets it",
                           (long long)job);
    return 0;
}

int sy_cli_job_move(sy_client *from, int64_t job, sy_client *to, const char *address)
{
    json_t *seen = find_job(from, job);
    bool was_parked = json_is_true(json_object_get(seen, "parked")), was_paused = is_paused(seen);
    int64_t there = 0;

    if (!seen)
        return 1;
    json_decref(seen);
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    if (call_job(from, "job_suspend", job))
        return 1;
    if (hand_over(from, job, to, &there))
        return go_on_here(from, job, was_parked, was_paused);
    if (start_there(to, there, was_paused)) {
        if (is_taken_back(to, there)) {
            remove_copy(to, there);
            return go_on_here(from, job, was_parked, was_paused);
        }
        return sy_cli_fail("%s has job %lld, and may go on with it: look there first ('switchyard "
                           "jobs'). It is suspended here: 'jobs resume %lld' if the other server "
                           "does not have it, 'jobs cancel %lld' if it does",
                           address, (long long)there, (long long)job, (long long)job);
    }
    return let_go(from, job, there, address, was_paused);
}

/* switchyard jobs: the training jobs of a server, and what can be done with them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/cli/cli.h"

#define STOP_TIMEOUT_MS 600000u /* an iteration, a snapshot */

/* Share: of the device's time since the server's start. */
static void print_job(const json_t *job, double elapsed_ns)
{
    const json_t *left = json_object_get(job, "left_s");
    char until[24] = "-";

    if (json_is_number(left))
        snprintf(until, sizeof(until), "%.0f s", json_number_value(left));
    printf("%4.0f  %-20.20s %-10s %-10.10s %5.0f  %8.0f /%8.0f  %9.4f %6.1f %%  %8s  "
           "%7.0f+%.0f MB\n",
           sy_cli_number(job, "job"), sy_cli_word(job, "name"), sy_cli_word(job, "state"),
           sy_cli_word(job, "tenant"), sy_cli_number(job, "priority"), sy_cli_number(job, "step"),
           sy_cli_number(job, "total_steps"), sy_cli_number(job, "loss"),
           elapsed_ns > 0 ? 100 * sy_cli_number(job, "device_ns") / elapsed_ns : 0, until,
           sy_cli_number(job, "persistent_bytes") / 1e6,
           sy_cli_number(job, "ephemeral_bytes") / 1e6);
    if (json_is_string(json_object_get(job, "waits_for")))
        printf("      waits for %s\n", sy_cli_word(job, "waits_for"));
    if (*sy_cli_word(job, "error") && strcmp(sy_cli_word(job, "error"), "-") != 0)
        printf("      %s\n", sy_cli_word(job, "error"));
    if (json_is_true(json_object_get(job, "kept")))
        printf("      the server's next start goes on with it; to forget it: switchyard jobs "
               "cancel %.0f\n",
               sy_cli_number(job, "job"));
}

static int list_jobs(sy_client *client)
{
    json_t *status, *job;
    size_t i;

    if (sy_cli_call(client, "status", json_object(), &status))
        return 1;
    double elapsed = sy_cli_number(json_object_get(status, "account"), "elapsed_ns");
    if (json_array_size(json_object_get(status, "jobs")) == 0)
        printf("no jobs; start one with: switchyard train JOB.json\n");
    else
        printf(" job  name                 state      tenant      prio      step /   total       "
               "loss  device      left  memory (lasting+iteration)\n");
    json_array_foreach(json_object_get(status, "jobs"), i, job) print_job(job, elapsed);
    json_decref(status);
    return 0;
}

enum { PAUSE, RESUME, CANCEL, PRIORITY };
static const char *const verbs[] = {"pause", "resume", "cancel", "priority", NULL};
static const char *const methods[] = {"job_pause", "job_resume", "train_stop", "job_priority"};

static int act(sy_client *client, int verb, int64_t job, int64_t priority)
{
    json_t *params = json_pack("{s:I}", "job", (json_int_t)job), *answer;

    if (verb == PRIORITY)
        json_object_set_new(params, "priority", json_integer((json_int_t)priority));
    int result = sy_cli_call(client, methods[verb], params, &answer);
    json_decref(answer);
    return result;
}

static int verb_of(const char *text)
{
    int verb = 0;

    while (verbs[verb] && strcmp(verbs[verb], text) != 0)
        verb++;
    if (verbs[verb])
        return verb;
    const char *near = sy_cli_nearest(text, verbs);
    return -sy_cli_usage("jobs: '%s' is not pause, resume, cancel or priority%s%s%s", text,
                         near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* words: VERB JOB [PRIORITY] */
static int parse(const char *const *words, int n, int *verb, int64_t *job, int64_t *priority)
{
    *verb = verb_of(words[0]);
    if (*verb < 0)
        return 2;
    if (n != (*verb == PRIORITY ? 3 : 2))
        return sy_cli_usage("jobs %s takes a job's number%s", verbs[*verb],
                            *verb == PRIORITY ? " and a priority" : "");
    if (sy_cli_integer(words[1], 0, INT64_MAX, job) < 0)
        return sy_cli_usage("jobs %s: %s", verbs[*verb], sy_error_text());
    if (*verb == PRIORITY && sy_cli_integer(words[2], -1000, 1000, priority) < 0)
        return sy_cli_usage("jobs priority: %s", sy_error_text());
    return 0;
}

int sy_cmd_jobs(int argc, char **argv)
{
    static const struct sy_cli_option options[] = {
        {"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"}, {NULL, NULL, NULL}};
    struct sy_cli_parser parser = {
        "jobs [VERB JOB] [options]\n\n"
        "Lists the training jobs of a server, or does something with one:\n\n"
        "  jobs                    the list\n"
        "  jobs pause JOB          no more iterations; it keeps its memory\n"
        "  jobs resume JOB         goes on after a pause\n"
        "  jobs cancel JOB         ends it after its iteration, with a snapshot\n"
        "  jobs priority JOB N     -1000 to 1000, smaller is more urgent; 'switchyard policy "
        "priority' goes by it",
        options, argc, argv, 0};
    const char *value, *address = NULL, *words[3];
    int64_t job = 0, priority = 0;
    int got, result = 0, n = 0, verb = -1;
    sy_client *client;

    while ((got = sy_cli_next(&parser, &value)) >= 0 || got == SY_CLI_WORD) {
        if (got == 0)
            address = value;
        else if (n == 3)
            return sy_cli_usage("jobs: '%s' is too much", value);
        else
            words[n++] = value;
    }
    if (got != SY_CLI_END)
        return got == SY_CLI_HELP ? 0 : 2;
    if (n > 0 && (result = parse(words, n, &verb, &job, &priority)) != 0)
        return result;
    if (sy_cli_connect(address, verb == CANCEL ? STOP_TIMEOUT_MS : 0, &client))
        return 1;
    result = n > 0 ? act(client, verb, job, priority) : list_jobs(client);
    sy_client_close(client);
    return result;
}

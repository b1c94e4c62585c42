#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "workers/job.h"

#define STOP_TIMEOUT_MS 600000u /* an evaluation may come first */

static int call(sy_client *client, const char *method, json_t *params, json_t **out)
{
    char *text = json_dumps(params, JSON_COMPACT), *answer = NULL;
    int status = text ? sy_client_call(client, method, text, &answer) : SY_ENOMEM_HOST;

    json_decref(params);
    free(text);
    *out = status == SY_OK ? json_loads(answer, JSON_DECODE_ANY, NULL) : NULL;
    free(answer);
    return *out ? 0 : sy_cli_fail("%s", sy_client_error(client));
}

static json_t *find_job(json_t *status, json_int_t id)
{
    size_t i;
    json_t *job;

    json_array_foreach(json_object_get(status, "jobs"), i,
                       job) if (json_integer_value(json_object_get(job, "job")) == id) return job;
    return NULL;
}

/* Until the job has ended; 1 if it failed. */
static int watch_job(sy_client *client, json_int_t id)
{
    for (;; sleep(1)) {
        json_t *status, *job;
        const char *state;

        if (call(client, "status", json_object(), &status))
            return 1;
        job = find_job(status, id);
        state = json_string_value(json_object_get(job, "state"));
        if (job)
            printf("step %lld  loss %.4f  %s\n",
                   (long long)json_integer_value(json_object_get(job, "step")),
                   json_number_value(json_object_get(job, "loss")), state ? state : "");
        fflush(stdout);
        bool failed = state && strcmp(state, "failed") == 0;
        if (!job || failed || (state && strcmp(state, "ended") == 0)) {
            if (failed)
                sy_cli_fail("%s", json_string_value(json_object_get(job, "error")));
            json_decref(status);
            return failed;
        }
        json_decref(status);
    }
}

static int start_job(sy_client *client, const char *path, bool watch)
{
    json_t *answer;
    char *text = NULL;
    json_int_t id;
    int result;

    if (sy_job_load(path, &text) < 0)
        return sy_cli_fail("%s", sy_error_text());
    result = call(client, "train", json_pack("{s:s}", "text", text), &answer);
    free(text);
    if (result)
        return result;
    id = json_integer_value(json_object_get(answer, "job"));
    json_decref(answer);
    printf("job %lld\n", (long long)id);
    return watch ? watch_job(client, id) : 0;
}

static int stop_job(sy_client *client, int64_t id, bool evaluate)
{
    json_t *answer;
    int result =
        call(client, "train_stop",
             json_pack("{s:I, s:b}", "job", (json_int_t)id, "evaluate", evaluate), &answer);

    json_decref(answer);
    return result;
}

int sy_cmd_train(int argc, char **argv)
{
    static const struct sy_cli_option options[] = {
        {"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
        {"watch", NULL, "show step and loss every second until the job ends"},
        {"stop", "JOB", "stop the job of this number after its iteration, with a snapshot"},
        {"evaluate", NULL, "with --stop: measure the accuracy on the test set first"},
        {NULL, NULL, NULL}};
    struct sy_cli_parser parser = {
        "train JOB.json [options]\n\nStarts a training job at a server, or stops one.", options,
        argc, argv, 0};
    const char *value, *path = NULL, *address = NULL;
    bool watch = false, evaluate = false;
    int64_t stop = -1;
    sy_client *client;
    int got, result;

    while ((got = sy_cli_next(&parser, &value)) >= 0 || got == SY_CLI_WORD) {
        if (got == SY_CLI_WORD)
            path = value;
        if (got == 0)
            address = value;
        watch |= got == 1;
        if (got == 2 && sy_cli_integer(value, 0, INT64_MAX, &stop) < 0)
            return sy_cli_usage("--stop: %s", sy_error_text());
        evaluate |= got == 3;
    }
    if (got != SY_CLI_END)
        return got == SY_CLI_HELP ? 0 : 2;
    if (!path == (stop < 0))
        return sy_cli_usage("train takes a job file, or --stop JOB; see switchyard train --help");
    if (sy_cli_connect(address, stop >= 0 ? STOP_TIMEOUT_MS : 0, &client))
        return 1;
    result = path ? start_job(client, path, watch) : stop_job(client, stop, evaluate);
    sy_client_close(client);
    return result;
}

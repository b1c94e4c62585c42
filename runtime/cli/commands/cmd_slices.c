/* switchyard slices: shows and sets how a server's cores are shared among what computes at the same time. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/slice_words.h"

static const char usage[] =
    "slices [NAME=SIZE ...] [options]\n\n"
    "Shows how the server's cores are cut into slices, or cuts them anew while it runs. One task\n"
    "computes in a slice at a time; slices compute side by side. SIZE is one of\n\n"
    "  2        a number of cores\n"
    "  50%      a share of all cores; shares take their sum's nearest number of cores, and divide\n"
    "           these as near as whole cores can be; all shares are at most 100%\n"
    "  w3       a weight: the remaining cores are divided by weights\n"
    "  @0-3,6   these cores\n\n"
    "On cuda cores are multiprocessors, in groups of 8 (of 2 or 4 on some GPUs). Two slices at a\n"
    "time need MPS (nvidia-cuda-mps-control -d before the server starts), without which the\n"
    "driver lets processes compute by turns; what moves there is the next request or turn.\n\n"
    "A request that computes moves to its slice's new cores before its next layer; a training job\n"
    "between two iterations. A job that has snapshots goes on with as many threads as its slice "
    "has\n"
    "cores; one that has none keeps the number of threads that it began with.\n\n"
    "Where resctrl is mounted (mount -t resctrl resctrl /sys/fs/resctrl, as root, on a CPU that\n"
    "divides its last-level cache) each slice has ways of it of its own, by its cores.\n\n"
    "serve --slices, or its file, has them from the start; a server with --state remembers what\n"
    "was set here.\n\n"
    "  switchyard slices train=1 serve=1 --for-jobs train --for-models serve\n"
    "  switchyard slices train=w1 serve=w3     other sizes, at once\n"
    "  switchyard slices --job 3 --to serve\n"
    "  switchyard slices --none";

struct wishes {
    const char *address, *for_jobs, *for_models, *for_runtime, *model, *slice;
    int64_t job;        /* 0: none */
    double bound, keep; /* negative: not given */
    bool none, shows_pairs, as_json;
    json_t *slices; /* of the words; NULL: none */
};

static const struct sy_cli_field fields[] = {
    {{"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
     SY_CLI_TEXT(struct wishes, address)},
    {{"for-jobs", "NAME", "the slice of jobs that name none (a job file's \"slice\")"},
     SY_CLI_TEXT(struct wishes, for_jobs)},
    {{"for-models", "NAME",
      "the slice of models that name none (a parameter \"slice\" of config.pbtxt)"},
     SY_CLI_TEXT(struct wishes, for_models)},
    {{"for-runtime", "NAME",
      "the slice on whose cores the server's own thread computes, else on all: where each core\n"
      "        has a slice, name the models', so that requests do not wait for a job's core"},
     SY_CLI_TEXT(struct wishes, for_runtime)},
    {{"model", "NAME", "move this model, with --to"}, SY_CLI_TEXT(struct wishes, model)},
    {{"job", "ID", "move this job, with --to"}, SY_CLI_INT64(struct wishes, job, 1, INT64_MAX)},
    {{"to", "NAME", "the slice that it moves to"}, SY_CLI_TEXT(struct wishes, slice)},
    {{"bound", "X",
      "a model of class 0, or with a deadline of its own, takes turns with tasks beside which it\n"
      "        takes more than X times its time alone; default 1.1; 0: never"},
     SY_CLI_REAL(struct wishes, bound)},
    {{"keep", "X",
      "part of its speed that a guaranteed job keeps while opportunistic jobs compute in other\n"
      "        slices; default 0.97; 0: they compute all the time"},
     SY_CLI_REAL(struct wishes, keep)},
    {{"pairs", NULL, "show how much slower models were beside others, and which take turns"},
     SY_CLI_SWITCH(struct wishes, shows_pairs)},
    {{"none", NULL, "take all slices back: one task at a time, on all cores"},
     SY_CLI_SWITCH(struct wishes, none)},
    {{"json", NULL, "show as JSON"}, SY_CLI_SWITCH(struct wishes, as_json)},
};

static const char *joined(const json_t *list, char *buffer, size_t bytes)
{
    size_t i, used = 0;
    json_t *value;
    snprintf(buffer, bytes, "-");
    json_array_foreach(list, i, value)
    {
        int got = json_is_string(value)
                      ? snprintf(buffer + used, bytes - used, "%s%s", i ? ", " : "",
                                 json_string_value(value))
                      : snprintf(buffer + used, bytes - used, "%s%" JSON_INTEGER_FORMAT,
                                 i ? ", " : "", json_integer_value(value));
        used += got > 0 ? (size_t)got : 0;
        if (used >= bytes)
            break;
    }
    return buffer;
}

static void print_cache(const json_t *cache)
{
    if (json_is_true(json_object_get(cache, "divided")))
        printf("last-level cache: %.0f ways, divided among the slices\n",
               sy_cli_number(cache, "ways"));
    else
        printf("last-level cache: shared%s%s\n",
               json_is_string(json_object_get(cache, "why_not")) ? ": " : "",
               json_is_string(json_object_get(cache, "why_not")) ? sy_cli_word(cache, "why_not")
                                                                 : "");
}

static void print_slices(const json_t *status)
{
    size_t i;
    json_t *slice;
    char models[300], jobs[120];
    printf("%-16s %-12s %-5s %-20s %-10s %s\n", "slice", "cores", "ways", "computes now", "jobs",
           "models");
    json_array_foreach(json_object_get(status, "slices"), i, slice)
    {
        const char *now = json_string_value(json_object_get(slice, "computes"));
        printf("%-16s %-12s %-5.0f %-20.20s %-10s %s\n", sy_cli_word(slice, "name"),
               sy_cli_word(slice, "cores"), sy_cli_number(slice, "cache_ways"), now ? now : "-",
               joined(json_object_get(slice, "jobs"), jobs, sizeof jobs),
               joined(json_object_get(slice, "models"), models, sizeof models));
    }
    if (json_is_string(json_object_get(status, "slices_limit")))
        printf("%s\n", sy_cli_word(status, "slices_limit"));
    print_cache(json_object_get(status, "slices_cache"));
}

static void print_pairs(const json_t *status)
{
    size_t i;
    json_t *pair;
    printf("%-20s %-20s %6s %10s %10s %8s %8s %s\n", "task", "beside", "n", "slow-down",
           "predicted", "error", "no core", "");
    json_array_foreach(json_object_get(status, "pairs"), i, pair)
        printf("%-20.20s %-20.20s %6.0f %10.3f %10.3f %6.1f %% %6.1f %% %s\n",
               sy_cli_word(pair, "task"), sy_cli_word(pair, "beside"), sy_cli_number(pair, "n"),
               sy_cli_number(pair, "slowdown"), sy_cli_number(pair, "first_predicted"),
               100 * sy_cli_number(pair, "error"), 100 * sy_cli_number(pair, "lost_beside"),
               json_is_true(json_object_get(pair, "takes_turns")) ? "takes turns" : "");
}

static int show(sy_client *client, const struct wishes *w)
{
    char *text;
    if (sy_client_call(client, "status", "{}", &text) < 0)
        return sy_cli_fail("%s", sy_client_error(client));
    json_t *status = json_loads(text, 0, NULL);
    if (w->as_json) {
        json_dumpf(json_object_get(status, w->shows_pairs ? "pairs" : "slices"), stdout,
                   JSON_INDENT(2));
        printf("\n");
    } else if (w->shows_pairs) {
        print_pairs(status);
    } else {
        print_slices(status);
    }
    json_decref(status);
    free(text);
    return 0;
}

/* "train=50%" */
static int take_slice(void *command, const char *text)
{
    struct wishes *w = command;
    if (!w->slices)
        w->slices = json_array();
    return sy_cli_slice_add(w->slices, text);
}

/* NULL: a name is not UTF-8. */
static json_t *params_of(const struct wishes *w)
{
    json_t *params = json_pack("{s:s*, s:s*, s:s*, s:s*, s:s*, s:O*}", "for_jobs", w->for_jobs,
                               "for_models", w->for_models, "for_runtime", w->for_runtime, "model",
                               w->model, "slice", w->slice, "slices", w->slices);
    if (w->job)
        json_object_set_new(params, "job", json_integer(w->job));
    if (w->bound >= 0)
        json_object_set_new(params, "bound", json_real(w->bound));
    if (w->keep >= 0)
        json_object_set_new(params, "keep", json_real(w->keep));
    if (w->none)
        json_object_set_new(params, "slices", json_array());
    return params;
}

static int check(const struct wishes *w)
{
    if (w->none && w->slices)
        return sy_cli_usage("slices: --none takes slices back, and %zu are named",
                            json_array_size(w->slices));
    if ((w->model || w->job) != !!w->slice)
        return sy_cli_usage("slices: --model NAME or --job ID, and --to SLICE, go together");
    return 0;
}

/* Takes params. */
static int act(const struct wishes *w, json_t *params)
{
    json_t *answer = NULL;
    sy_client *client;
    int result = 0;
    if (sy_cli_connect(w->address, 0, &client)) {
        json_decref(params);
        return 1;
    }
    if (json_object_size(params) > 0)
        result = sy_cli_call(client, "slices", json_incref(params), &answer);
    json_decref(answer);
    json_decref(params);
    if (result == 0)
        result = show(client, w);
    sy_client_close(client);
    return result;
}

int sy_cmd_slices(int argc, char **argv)
{
    static const struct sy_cli_fields command = {usage, fields, SY_ARRAY_LEN(fields), take_slice};
    struct wishes wishes = {.bound = -1, .keep = -1};
    int result = sy_cli_read(&command, argc, argv, &wishes);
    if (result == SY_CLI_END)
        result = check(&wishes);
    else
        result = result ? result : -1;
    if (result == 0) {
        json_t *params = params_of(&wishes);
        result = params ? act(&wishes, params) : sy_cli_usage("slices: a name is not UTF-8");
    }
    json_decref(wishes.slices);
    return result < 0 ? 0 : result;
}

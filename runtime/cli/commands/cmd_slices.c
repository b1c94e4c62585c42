/* switchyard slices: shows and sets how a server's cores are shared among what computes at the same time. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/cli/cli.h"

static const char usage[] =
    "slices [NAME=SIZE ...] [options]\n\n"
    "Shows how the server's cores are cut into slices, or cuts them anew while it runs. One task\n"
    "computes in a slice at a time; slices compute side by side. SIZE is one of\n\n"
    "  2        a number of cores\n"
    "  50%      a share of all cores, to the nearest core\n"
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
    "  switchyard slices train=1 serve=1 --for-jobs train --for-models serve\n"
    "  switchyard slices train=w1 serve=w3     other sizes, at once\n"
    "  switchyard slices --job 3 --to serve\n"
    "  switchyard slices --none";

enum { SOCKET, FOR_JOBS, FOR_MODELS, FOR_RUNTIME, MODEL, JOB, TO, BOUND, KEEP, NONE, PAIRS, JSON };

static const struct sy_cli_option options[] = {
    [SOCKET] = {"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
    [FOR_JOBS] = {"for-jobs", "NAME", "the slice of jobs that name none (a job file's \"slice\")"},
    [FOR_MODELS] = {"for-models", "NAME",
                    "the slice of models that name none (a parameter \"slice\" of config.pbtxt)"},
    [FOR_RUNTIME] =
        {"for-runtime", "NAME",
         "the slice on whose cores the server's own thread computes, else on all: where each core\n"
         "        has a slice, name the models', so that requests do not wait for a job's core"},
    [MODEL] = {"model", "NAME", "move this model, with --to"},
    [JOB] = {"job", "ID", "move this job, with --to"},
    [TO] = {"to", "NAME", "the slice that it moves to"},
    [BOUND] = {"bound", "X",
               "a model of class 0, or with a deadline of its own, takes turns with tasks beside "
               "which it\n"
               "        takes more than X times its time alone; default 1.1; 0: never"},
    [KEEP] =
        {"keep", "X",
         "part of its speed that a guaranteed job keeps while opportunistic jobs compute in other\n"
         "        slices; default 0.97; 0: they compute all the time"},
    [PAIRS] = {"pairs", NULL,
               "show how much slower models were beside others, and which take turns"},
    [NONE] = {"none", NULL, "take all slices back: one task at a time, on all cores"},
    [JSON] = {"json", NULL, "show as JSON"},
    {NULL, NULL, NULL}};

struct shown {
    bool as_json, pairs;
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

static int show(sy_client *client, const struct shown *shown)
{
    char *text;
    if (sy_client_call(client, "status", "{}", &text) < 0)
        return sy_cli_fail("%s", sy_client_error(client));
    json_t *status = json_loads(text, 0, NULL);
    if (shown->as_json) {
        json_dumpf(json_object_get(status, shown->pairs ? "pairs" : "slices"), stdout,
                   JSON_INDENT(2));
        printf("\n");
    } else if (shown->pairs) {
        print_pairs(status);
    } else {
        print_slices(status);
    }
    json_decref(status);
    free(text);
    return 0;
}

/* "train=50%" */
static int take_slice(json_t *list, const char *text)
{
    const char *size = strchr(text, '=');
    char name[64], *end;
    if (!size || size == text || (size_t)(size - text) >= sizeof name || !size[1])
        return sy_cli_usage("slices: '%s': NAME=SIZE is expected, like train=1 or serve=50%%",
                            text);
    snprintf(name, sizeof name, "%.*s", (int)(size - text), text);
    size++;
    json_t *entry = json_pack("{s:s}", "name", name);
    if (!entry)
        return sy_cli_usage("slices: '%s': a name is UTF-8", text);
    json_array_append_new(list, entry);
    if (*size == '@')
        return json_object_set_new(entry, "cores", json_string(size + 1));
    bool weighs = *size == 'w';
    double value = strtod(size + weighs, &end);
    bool is_share = *end == '%';
    if (end == size + weighs || end[is_share] || (weighs && is_share) || !(value > 0))
        return sy_cli_usage("slices: '%s': a size is 2, 50%%, w3 or @0-3", text);
    if (is_share)
        return json_object_set_new(entry, "share", json_real(value / 100));
    if (value != (double)(long)value)
        return sy_cli_usage("slices: '%s': cores and weights are whole numbers", text);
    return json_object_set_new(entry, weighs ? "weight" : "cores", json_integer((json_int_t)value));
}

static int take(json_t *params, int option, const char *value)
{
    static const char *const keys[] = {[FOR_JOBS] = "for_jobs",
                                       [FOR_MODELS] = "for_models",
                                       [FOR_RUNTIME] = "for_runtime",
                                       [MODEL] = "model",
                                       [TO] = "slice"};
    int64_t id;
    double bound;
    bool is_real = option == BOUND || option == KEEP;
    if (is_real && sy_cli_real(value, &bound) < 0)
        return sy_cli_usage("slices: %s", sy_error_text());
    if (is_real)
        return json_object_set_new(params, option == KEEP ? "keep" : "bound", json_real(bound));
    if (option == NONE)
        return json_object_set_new(params, "slices", json_array());
    if (option != JOB)
        return json_object_set_new(params, keys[option], json_string(value));
    if (sy_cli_integer(value, 1, INT64_MAX, &id) < 0)
        return sy_cli_usage("slices: %s", sy_error_text());
    return json_object_set_new(params, "job", json_integer(id));
}

static int parse(struct sy_cli_parser *parser, json_t *params, const char **address,
                 struct shown *shown)
{
    const char *value;
    int got, result = 0;
    json_t *list = json_array();
    while (result == 0 && ((got = sy_cli_next(parser, &value)) >= 0 || got == SY_CLI_WORD)) {
        if (got == SOCKET)
            *address = value;
        else if (got == JSON)
            shown->as_json = true;
        else if (got == PAIRS)
            shown->pairs = true;
        else
            result = got == SY_CLI_WORD ? take_slice(list, value) : take(params, got, value);
    }
    if (result == 0 && got != SY_CLI_END)
        result = got == SY_CLI_HELP ? -1 : 2;
    if (result == 0 && json_array_size(list) > 0 && json_object_get(params, "slices"))
        result = sy_cli_usage("slices: --none takes slices back, and %zu are named",
                              json_array_size(list));
    if (json_array_size(list) > 0)
        json_object_set(params, "slices", list);
    json_decref(list);
    bool what = json_object_get(params, "model") || json_object_get(params, "job");
    if (result == 0 && what != !!json_object_get(params, "slice"))
        result = sy_cli_usage("slices: --model NAME or --job ID, and --to SLICE, go together");
    return result;
}

int sy_cmd_slices(int argc, char **argv)
{
    struct sy_cli_parser parser = {usage, options, argc, argv, 0};
    const char *address = NULL;
    struct shown shown = {false, false};
    json_t *params = json_object(), *answer = NULL;
    sy_client *client;
    int result = parse(&parser, params, &address, &shown);

    if (result == 0 && sy_cli_connect(address, 0, &client)) {
        result = 1;
    } else if (result == 0) {
        if (json_object_size(params) > 0)
            result = sy_cli_call(client, "slices", json_incref(params), &answer);
        json_decref(answer);
        if (result == 0)
            result = show(client, &shown);
        sy_client_close(client);
    }
    json_decref(params);
    return result < 0 ? 0 : result;
}

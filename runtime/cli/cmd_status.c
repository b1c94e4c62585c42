#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/cli/cli.h"

static const char *word(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "-";
}

static double megabytes(const json_t *item, const char *key)
{
    return json_number_value(json_object_get(item, key)) / 1e6;
}

static void show_model(json_t *item)
{
    printf("model %-20s %8.1f MB, resident %8.1f MB, free prefix %7.1f MB, %7.2f requests/s, "
           "swap %8.1f ms, %s\n",
           word(item, "name"), megabytes(item, "weights_bytes"), megabytes(item, "resident_bytes"),
           megabytes(item, "free_prefix_bytes"),
           json_number_value(json_object_get(item, "requests_per_s")),
           megabytes(item, "predicted_swap_ns"), word(item, "state"));
}

static void print_status(json_t *status)
{
    size_t i;
    json_t *item;
    const char *key;

    printf("device %s\n", word(json_object_get(status, "device"), "name"));
    json_array_foreach(json_object_get(status, "workers"), i, item)
        printf("worker %zu  pid %lld  %s\n", i,
               (long long)json_integer_value(json_object_get(item, "pid")), word(item, "state"));
    json_array_foreach(json_object_get(status, "models"), i, item) show_model(item);
    json_array_foreach(json_object_get(status, "jobs"), i, item)
        printf("job %lld  %s  step %lld  loss %.4f\n",
               (long long)json_integer_value(json_object_get(item, "job")), word(item, "state"),
               (long long)json_integer_value(json_object_get(item, "step")),
               json_number_value(json_object_get(item, "loss")));
    json_object_foreach(json_object_get(status, "counters"), key, item)
        printf("%s %lld\n", key, (long long)json_integer_value(item));
}

static int show(sy_client *client, bool raw, bool clear)
{
    char *text;
    json_t *status;

    if (sy_client_call(client, "status", "{}", &text) < 0)
        return sy_cli_fail("%s", sy_client_error(client));
    status = raw ? NULL : json_loads(text, 0, NULL);
    if (clear)
        printf("\033[H\033[2J");
    if (status)
        print_status(status);
    else
        printf("%s\n", text);
    fflush(stdout);
    json_decref(status);
    free(text);
    return 0;
}

int sy_cmd_status(int argc, char **argv)
{
    static const struct sy_cli_option options[] = {
        {"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
        {"watch", NULL, "again every second, until interrupted"},
        {"json", NULL, "everything, as JSON"},
        {NULL, NULL, NULL}};
    struct sy_cli_parser parser = {"status [options]\n\nWhat a server is doing.", options, argc,
                                   argv, 0};
    const char *value, *address = NULL;
    bool watch = false, raw = false;
    sy_client *client;
    int got, result;

    while ((got = sy_cli_next(&parser, &value)) >= 0) {
        if (got == 0)
            address = value;
        watch |= got == 1;
        raw |= got == 2;
    }
    if (got != SY_CLI_END)
        return got == SY_CLI_HELP  ? 0
               : got == SY_CLI_BAD ? 2
                                   : sy_cli_usage("status takes no words: %s", value);
    if (sy_cli_connect(address, 0, &client))
        return 1;
    while ((result = show(client, raw, watch && isatty(1))) == 0 && watch)
        sleep(1);
    sy_client_close(client);
    return result;
}

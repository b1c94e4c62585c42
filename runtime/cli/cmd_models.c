/* switchyard models: the models of a server, and what can be done with them. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cli/cli.h"

#define LOAD_TIMEOUT_MS 600000u /* every worker builds its programs */

static void print_model(const json_t *model)
{
    printf("%-20.20s %-11s %9.1f %9.1f %9.0f %7.0f %7.0f %9.2f %9.1f  %s\n",
           sy_cli_word(model, "name"), sy_cli_word(model, "state"),
           sy_cli_number(model, "weights_bytes") / 1e6,
           sy_cli_number(model, "resident_bytes") / 1e6, sy_cli_number(model, "requests"),
           sy_cli_number(model, "failed"), sy_cli_number(model, "swaps"),
           sy_cli_number(model, "requests_per_s"), sy_cli_number(model, "predicted_swap_ns") / 1e6,
           sy_cli_word(model, "path"));
    if (strcmp(sy_cli_word(model, "error"), "-") != 0 && *sy_cli_word(model, "error"))
        printf("      %s\n", sy_cli_word(model, "error"));
}

/* "seq~128": open, usually 128 */
static void print_shape(const json_t *tensor, bool first)
{
    size_t i;
    const json_t *dims = json_object_get(tensor, "dims"),
                 *usual = json_object_get(tensor, "usual_shape"), *dim;

    printf("%s %s [", first ? "" : ",", sy_cli_word(tensor, "name"));
    json_array_foreach(dims, i, dim)
    {
        long long size = json_integer_value(json_array_get(usual, i));

        if (i > 0)
            printf(", ");
        if (json_is_integer(dim))
            printf("%lld", size);
        else if (strcmp(json_string_value(dim), "N") == 0 || size < 0)
            printf("%s", json_string_value(dim));
        else
            printf("%s~%lld", json_string_value(dim), size);
    }
    printf("]");
}

static void print_sizes(const json_t *model)
{
    size_t i;
    const json_t *tensor;

    if (json_array_size(json_object_get(model, "sizes")) == 0)
        return;
    printf("      takes");
    json_array_foreach(json_object_get(model, "inputs"), i, tensor) print_shape(tensor, i == 0);
    printf(" and gives");
    json_array_foreach(json_object_get(model, "outputs"), i, tensor) print_shape(tensor, i == 0);
    printf("\n");
}

static int list_models(sy_client *client)
{
    json_t *models, *model;
    size_t i;

    if (sy_cli_call(client, "models", json_object(), &models))
        return 1;
    if (json_array_size(models) == 0)
        printf("no models; load one with: switchyard models load FILE.sypkg\n");
    else
        printf("%-20s %-11s %9s %9s %9s %7s %7s %9s %9s  %s\n", "name", "state", "MB", "in pool",
               "requests", "failed", "swaps", "a second", "swap ms", "package");
    json_array_foreach(models, i, model)
    {
        print_model(model);
        print_sizes(model);
    }
    json_decref(models);
    return 0;
}

enum { LOAD, UNLOAD, EVICT };
static const char *const verbs[] = {"load", "unload", "evict", NULL};
static const char *const methods[] = {"model_load", "model_unload", "evict"};

/* The server opens the file, from where it stands: a name that means something here is made whole, unless the server is elsewhere. */
static json_t *load_params(const char *path, const char *name, const char *tenant,
                           const char *address)
{
    char whole[PATH_MAX];
    bool is_here = !address || strncmp(address, "tcp:", 4) != 0;
    json_t *params = json_pack("{s:s}", "path", is_here && realpath(path, whole) ? whole : path);

    if (params && name)
        json_object_set_new(params, "name", json_string(name));
    if (params && tenant)
        json_object_set_new(params, "tenant", json_string(tenant));
    return params;
}

static int act(sy_client *client, int verb, json_t *params)
{
    json_t *answer;

    if (!params)
        return sy_cli_fail("a name that is not UTF-8");
    int result = sy_cli_call(client, methods[verb], params, &answer);
    json_decref(answer);
    return result;
}

static int parse(const char *const *words, int n, int *verb)
{
    for (*verb = 0; verbs[*verb] && strcmp(verbs[*verb], words[0]) != 0;)
        ++*verb;
    if (!verbs[*verb]) {
        const char *near = sy_cli_nearest(words[0], verbs);
        return sy_cli_usage("models: '%s' is not load, unload or evict%s%s%s", words[0],
                            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    return n == 2 ? 0
                  : sy_cli_usage("models %s takes %s", verbs[*verb],
                                 *verb == LOAD ? "a package's file" : "a model's name");
}

int sy_cmd_models(int argc, char **argv)
{
    static const struct sy_cli_option options[] = {
        {"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
        {"name", "NAME", "with load: what the model is to be called; default: the package's name"},
        {"image", NULL, "with evict: out of the host image too"},
        {"tenant", "NAME", "with load: whose memory quota it counts for; default: nobody's"},
        {NULL, NULL, NULL}};
    struct sy_cli_parser parser = {
        "models [VERB WHAT] [options]\n\n"
        "Lists the models of a server (of those with open sizes, what they take: NAME~USUAL is a "
        "size that each request chooses), or does something with one, while requests run:\n\n"
        "  models                    the list\n"
        "  models load FILE.sypkg    a package that 'switchyard import' made; with a tcp: server, "
        "a "
        "file there\n"
        "  models unload NAME        refused while it has requests\n"
        "  models evict NAME         its weights leave the pool until it is asked for",
        options, argc, argv, 0};
    const char *value, *address = NULL, *name = NULL, *tenant = NULL, *words[2];
    int got, result = 0, n = 0, verb = -1;
    bool image = false;
    sy_client *client;

    while ((got = sy_cli_next(&parser, &value)) >= 0 || got == SY_CLI_WORD) {
        address = got == 0 ? value : address;
        name = got == 1 ? value : name;
        image |= got == 2;
        tenant = got == 3 ? value : tenant;
        if (got == SY_CLI_WORD && n == 2)
            return sy_cli_usage("models: '%s' is too much", value);
        if (got == SY_CLI_WORD)
            words[n++] = value;
    }
    if (got != SY_CLI_END)
        return got == SY_CLI_HELP ? 0 : 2;
    if (n > 0 && (result = parse(words, n, &verb)) != 0)
        return result;
    if (((name || tenant) && verb != LOAD) || (image && verb != EVICT))
        return sy_cli_usage("models: --name and --tenant go with load, --image with evict");
    if (sy_cli_connect(address, verb == LOAD ? LOAD_TIMEOUT_MS : 0, &client))
        return 1;
    result = n == 0          ? list_models(client)
             : verb == LOAD  ? act(client, verb, load_params(words[1], name, tenant, address))
             : verb == EVICT ? act(client, verb,
                                   json_pack("{s:s, s:b}", "model", words[1], "image", (int)image))
                             : act(client, verb, json_pack("{s:s}", "model", words[1]));
    sy_client_close(client);
    return result;
}

/* switchyard models: the models of a server, and what can be done with them. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/package/package.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli_fields.h"

#define MAX_SOURCES     7
#define LOAD_TIMEOUT_MS 600000u /* every worker builds its programs */

static void print_model(const json_t *model)
{
    printf("%-20.20s %7.0f %-11s %9.1f %9.1f %9.0f %7.0f %7.0f %9.2f %9.1f  %s\n",
           sy_cli_word(model, "name"), sy_cli_number(model, "version"), sy_cli_word(model, "state"),
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
        printf("%-20s %7s %-11s %9s %9s %9s %7s %7s %9s %9s  %s\n", "name", "version", "state",
               "MB", "in pool", "requests", "failed", "swaps", "a second", "swap ms", "package");
    json_array_foreach(models, i, model)
    {
        print_model(model);
        print_sizes(model);
    }
    json_decref(models);
    return 0;
}

enum { LOAD, UNLOAD, EVICT, LIST };
static const char *const verbs[] = {"load", "unload", "evict", "list", NULL};
static const char *const methods[] = {"model_load", "model_unload", "evict"};

struct choices {
    const char *address, *name, *tenant, *from[MAX_SOURCES]; /* other sources of a URL's package */
    int n_from;
    const char *words[2];
    int n_words;
    int64_t version; /* 0: none */
    bool image;
};

/* A package's file ends in .sypkg, or has a folder before it; else it is a model of the server's repository. */
static bool is_file(const char *word)
{
    size_t n = strlen(word), suffix = strlen(SY_PACKAGE_SUFFIX);

    return strchr(word, '/') || (n > suffix && strcmp(word + n - suffix, SY_PACKAGE_SUFFIX) == 0);
}

static bool is_url(const char *word)
{
    return strncmp(word, "http://", 7) == 0 || strncmp(word, "https://", 8) == 0;
}

static json_t *url_params(const char *url, const struct choices *choices)
{
    json_t *urls = json_pack("[s]", url);

    for (int i = 0; urls && i < choices->n_from; i++)
        json_array_append_new(urls, json_string(choices->from[i]));
    return urls ? json_pack("{s:o}", "urls", urls) : NULL;
}

/* The server opens the file, from where it stands: a name that means something here is made whole, unless the server is elsewhere. */
static json_t *load_params(const char *what, const struct choices *choices)
{
    char whole[PATH_MAX];
    const char *address = choices->address, *name = choices->name, *tenant = choices->tenant;
    bool is_here = !address || strncmp(address, "tcp:", 4) != 0;

    if (!is_file(what))
        return json_pack("{s:s}", "model", what);
    json_t *params =
        is_url(what) ? url_params(what, choices)
                     : json_pack("{s:s}", "path", is_here && realpath(what, whole) ? whole : what);

    if (params && name)
        json_object_set_new(params, "name", json_string(name));
    if (params && tenant)
        json_object_set_new(params, "tenant", json_string(tenant));
    if (params && choices->version > 0)
        json_object_set_new(params, "version", json_integer(choices->version));
    return params;
}

static json_t *unload_params(const char *what, const struct choices *choices)
{
    json_t *params = json_pack("{s:s}", "model", what);

    if (params && choices->version > 0)
        json_object_set_new(params, "version", json_integer(choices->version));
    return params;
}

static int act(sy_client *client, int verb, const char *what, const struct choices *choices)
{
    json_t *answer, *params = verb == LOAD    ? load_params(what, choices)
                              : verb == EVICT ? json_pack("{s:s, s:b}", "model", what, "image",
                                                          (int)choices->image)
                                              : unload_params(what, choices);

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
        return sy_cli_usage("models: '%s' is not list, load, unload or evict%s%s%s", words[0],
                            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    if (*verb == LIST)
        return n == 1 ? 0 : sy_cli_usage("models list: '%s' is too much", words[1]);
    return n == 2 ? 0
                  : sy_cli_usage("models %s takes %s", verbs[*verb],
                                 *verb == LOAD ? "a package's file, or a model's name"
                                               : "a model's name");
}

static int check_choices(const struct choices *choices, int verb, const char *what)
{
    bool loads_file = verb == LOAD && is_file(what);
    bool wrong = ((choices->name || choices->tenant) && !loads_file) ||
                 (choices->image && verb != EVICT) ||
                 (choices->n_from > 0 && !(loads_file && is_url(what))) ||
                 (choices->version > 0 && !loads_file && verb != UNLOAD);

    return wrong ? sy_cli_usage("models: --name and --tenant go with load of a file, --image with "
                                "evict, --version with unload or load of a file, --from with "
                                "load of a URL")
                 : 0;
}

static int add_source(void *command, const char *value)
{
    struct choices *choices = command;

    if (choices->n_from == MAX_SOURCES)
        return sy_error_set(SY_EARG, "at most %d", MAX_SOURCES);
    choices->from[choices->n_from++] = value;
    return SY_OK;
}

static int add_word(void *command, const char *word)
{
    struct choices *choices = command;

    if (choices->n_words == 2)
        return sy_error_set(SY_EARG, "models: '%s' is too much", word);
    choices->words[choices->n_words++] = word;
    return SY_OK;
}

static const struct sy_cli_field fields[] = {
    {{"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
     SY_CLI_TEXT(struct choices, address)},
    {{"name", "NAME",
      "with load of a file: what the model is to be called; default: the package's name"},
     SY_CLI_TEXT(struct choices, name)},
    {{"image", NULL, "with evict: out of the host image too"},
     SY_CLI_SWITCH(struct choices, image)},
    {{"tenant", "NAME", "with load of a file: whose memory quota it counts for; default: none"},
     SY_CLI_TEXT(struct choices, tenant)},
    {{"version", "N",
      "with unload: only this one of the model's; with load of a file: its number, default 1"},
     SY_CLI_INT64(struct choices, version, 1, INT64_MAX)},
    {{"from", "URL",
      "with load of a URL: another source of the same package, if that one fails; may be given "
      "again"},
     SY_CLI_SET(add_source)}};

static int run(const struct choices *choices)
{
    const char *const *words = choices->words;
    int verb = LIST, result = 0, n = choices->n_words;
    sy_client *client;

    if (n > 0 && (result = parse(words, n, &verb)) != 0)
        return result;
    if ((result = check_choices(choices, verb, n > 1 ? words[1] : "")) != 0)
        return result;
    if (sy_cli_connect(choices->address, verb == LOAD ? LOAD_TIMEOUT_MS : 0, &client))
        return 1;
    result = verb == LIST ? list_models(client) : act(client, verb, words[1], choices);
    sy_client_close(client);
    return result;
}

int sy_cmd_models(int argc, char **argv)
{
    static const struct sy_cli_fields command = {
        "models [VERB WHAT] [options]\n\n"
        "Lists the models of a server (of those with open sizes, what they take: NAME~USUAL is a "
        "size that each request chooses), or does something with one, while requests run:\n\n"
        "  models [list]             the list, with what is not served and why\n"
        "  models load NAME          a model of the server's repository (serve --models), as its "
        "folder is now\n"
        "  models load FILE.sypkg    a package that 'switchyard import' made; with a tcp: server, "
        "a file there\n"
        "  models load URL           a package that the server fetches (serve --fetch-to); it "
        "takes "
        "requests once its head is there. URL#sha256=HEX: the SHA-256 that it must have\n"
        "  models unload NAME        no new request finds it; those that run end\n"
        "  models evict NAME         its weights leave the pool until it is asked for",
        fields, SY_ARRAY_LEN(fields), add_word};
    struct choices choices = {0};
    int result = sy_cli_read(&command, argc, argv, &choices);

    return result == SY_CLI_END ? run(&choices) : result;
}

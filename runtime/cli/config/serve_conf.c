#include "runtime/cli/config/serve_conf.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"

#define HELP_WIDTH 100

/* They say where this file is, or belong to the process's starter. */
static bool is_for_the_command_line(const char *name)
{
    return strcmp(name, "config") == 0 || strcmp(name, "print-config") == 0 ||
           strcmp(name, "check-config") == 0 || strcmp(name, "ready-fd") == 0;
}

static const struct sy_cli_option *option_of(const struct sy_cli_fields *options, const char *name)
{
    for (size_t i = 0; i < options->n && !is_for_the_command_line(name); i++)
        if (strcmp(options->fields[i].option.name, name) == 0)
            return &options->fields[i].option;
    return NULL;
}

static int refuse_key(const char *path, const struct sy_cli_fields *options, const char *key)
{
    const char *names[SY_CLI_MAX_FIELDS + 1] = {NULL}, *near;

    if (is_for_the_command_line(key))
        return sy_error_set(SY_EARG, "%s: --%s is for the command line only", path, key);
    for (size_t i = 0; i < options->n; i++)
        names[i] = options->fields[i].option.name;
    near = sy_cli_nearest(key, names);
    return sy_error_set(SY_EARG, "%s: no option %s%s%s; see switchyard serve --help", path, key,
                        near ? "; did you mean " : "", near ? near : "");
}

static int check_keys(const char *path, const struct sy_cli_fields *options,
                      const struct sy_conf *conf)
{
    for (size_t i = 0; i < conf->n; i++) {
        const struct sy_conf_entry *entry = &conf->entries[i];
        const struct sy_cli_option *option = option_of(options, entry->key);

        if (!option)
            return refuse_key(path, options, entry->key);
        if (!option->argument && entry->kind != SY_CONF_SWITCH)
            return sy_error_set(SY_EARG, "%s: %s = %s: write true or false", path, entry->key,
                                entry->value);
        if (option->argument && entry->kind == SY_CONF_SWITCH)
            return sy_error_set(SY_EARG, "%s: %s = %s: it takes %s", path, entry->key, entry->value,
                                option->argument);
    }
    return SY_OK;
}

static int store_all(const char *path, const struct sy_cli_fields *options,
                     const struct sy_conf *conf, void *command)
{
    for (size_t at = 0; at < options->n; at++)
        for (size_t i = 0; i < conf->n; i++) {
            const struct sy_conf_entry *entry = &conf->entries[i];
            bool is_switch = entry->kind == SY_CONF_SWITCH;
            int status;

            if (strcmp(entry->key, options->fields[at].option.name) != 0 ||
                (is_switch && strcmp(entry->value, "false") == 0))
                continue;
            status = sy_cli_store(&options->fields[at], command, is_switch ? NULL : entry->value);
            if (status < 0)
                return sy_error_prefix(status, "%s: %s", path, entry->key);
        }
    return SY_OK;
}

int sy_serve_conf_read(const char *path, const struct sy_cli_fields *options, void *command,
                       struct sy_conf **out)
{
    struct sy_conf *conf;
    int status;

    SY_TRY(sy_conf_toml_read(path, &conf));
    SY_TRY_GOTO(check_keys(path, options, conf), fail);
    SY_TRY_GOTO(store_all(path, options, conf, command), fail);
    *out = conf;
    return SY_OK;
fail:
    sy_conf_destroy(conf);
    return status;
}

const char *sy_serve_conf_path(int argc, char **argv)
{
    const char *path = NULL;

    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];

        if (word[0] != '-')
            continue;
        word += word[1] == '-' ? 2 : 1;
        if (strncmp(word, "config=", 7) == 0)
            path = word + 7;
        else if (strcmp(word, "config") == 0 && i + 1 < argc)
            path = argv[++i];
    }
    return path;
}

/* The key's next entry from *at on, which moves behind it. */
static const struct sy_conf_entry *next_of(const struct sy_conf *conf, const char *name, size_t *at)
{
    while (conf && *at < conf->n) {
        const struct sy_conf_entry *entry = &conf->entries[(*at)++];

        if (strcmp(entry->key, name) == 0)
            return entry;
    }
    return NULL;
}

bool sy_serve_conf_differs(const struct sy_conf *a, const struct sy_conf *b, const char *name)
{
    const struct sy_conf_entry *of_a, *of_b;
    size_t at_a = 0, at_b = 0;

    do {
        of_a = next_of(a, name, &at_a);
        of_b = next_of(b, name, &at_b);
        if (!of_a != !of_b || (of_a && strcmp(of_a->value, of_b->value) != 0))
            return true;
    } while (of_a);
    return false;
}

void sy_serve_conf_log_changes(const struct sy_conf *before, const struct sy_conf *after,
                               const struct sy_cli_fields *options,
                               bool (*is_live)(const char *name))
{
    for (size_t i = 0; i < options->n; i++) {
        const char *name = options->fields[i].option.name;

        if (sy_serve_conf_differs(before, after, name))
            sy_log_info("serve", "event=reload option=%s applies=%s", name,
                        is_live(name) ? "now" : "at_restart");
    }
}

/* "# ..." lines of at most HELP_WIDTH, cut at spaces. */
static void print_comment(const char *text)
{
    while (*text) {
        size_t n = strlen(text);

        if (n > HELP_WIDTH)
            for (n = HELP_WIDTH; n > 1 && text[n] != ' ';)
                n--;
        printf("# %.*s\n", (int)n, text);
        text += n;
        while (*text == ' ')
            text++;
    }
}

static void print_option(const struct sy_cli_option *option)
{
    const char *argument = option->argument;

    printf("\n");
    print_comment(option->help);
    if (!argument)
        printf("#%s = true\n", option->name);
    else if (strcmp(argument, "N") == 0 || strcmp(argument, "SECONDS") == 0 ||
             strcmp(argument, "RATIO") == 0)
        printf("#%s = %s\n", option->name, argument);
    else
        printf("#%s = \"%s\"\n", option->name, argument);
}

void sy_serve_conf_print(const struct sy_cli_fields *options)
{
    printf("# Configuration of switchyard serve, in TOML: NAME = VALUE for each option of the "
           "command line, which counts where\n# both say something. An option that may be given "
           "again takes a list: NAME = [\"A\", \"B\"].\n");
    for (size_t i = 0; i < options->n; i++)
        if (!is_for_the_command_line(options->fields[i].option.name))
            print_option(&options->fields[i].option);
}

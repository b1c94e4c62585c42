#include "runtime/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/client/client_json.h"

#define MOST_OPTIONS 256 /* options of a command that a mistyped name is compared with */

/* One line, whatever it quotes. */
static void complain(const char *format, va_list arguments)
{
    char text[2048];

    vsnprintf(text, sizeof(text), format, arguments);
    sy_printable_make(text);
    fprintf(stderr, "switchyard: %s\n", text);
}

int sy_cli_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    complain(format, arguments);
    va_end(arguments);
    return 1;
}

int sy_cli_fail_status(void)
{
    return sy_cli_fail("%s", sy_error_text());
}

int sy_cli_usage(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    complain(format, arguments);
    va_end(arguments);
    return 2;
}

/* Levenshtein's distance, words of at most 31 letters. */
static int distance(const char *a, const char *b)
{
    int row[32], n = (int)SY_MIN(strlen(b), 31u);

    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];

        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int above = row[j], change = diagonal + (a[i - 1] != b[j - 1]);

            row[j] = SY_MIN(change, SY_MIN(above, row[j - 1]) + 1);
            diagonal = above;
        }
    }
    return row[n];
}

const char *sy_cli_nearest(const char *word, const char *const *names)
{
    const char *best = NULL;
    int least = (int)SY_MIN(strlen(word) / 2 + 2, 4); /* farther is no help */

    for (; *names; names++) {
        int d = distance(word, *names);

        if (d < least) {
            least = d;
            best = *names;
        }
    }
    return best;
}

/* Options of every command that connects by --server or --socket. */
static const struct sy_cli_option security_options[] = {
    {"token-file", "FILE",
     "a file with this client's token, for a server's TCP; default $SWITCHYARD_TOKEN_FILE"},
    {"tls-ca", "FILE",
     "TLS: certificates that the server's must go back to, or 'system'; default "
     "$SWITCHYARD_TLS_CA; "
     "none: plain TCP"},
    {"tls-name", "NAME", "what the server's certificate must be for; default: the address's host"},
    {NULL, NULL, NULL}};
static sy_client_security security;

static bool talks_to_server(const struct sy_cli_parser *parser)
{
    for (const struct sy_cli_option *option = parser->options; option->name; option++)
        if (strcmp(option->name, "socket") == 0)
            return strcmp(parser->argv[0], "serve") != 0;
    return false;
}

static void print_option(const struct sy_cli_option *option)
{
    printf("  --%s%s%s\n        %s\n", option->name, option->argument ? " " : "",
           option->argument ? option->argument : "", option->help);
}

static void print_help(const struct sy_cli_parser *parser)
{
    printf("usage: switchyard %s\n\n", parser->usage);
    for (const struct sy_cli_option *option = parser->options; option->name; option++)
        print_option(option);
    for (int i = 0; talks_to_server(parser) && security_options[i].name; i++)
        print_option(&security_options[i]);
    printf("  --help\n        this text\n");
}

static int unknown_option(const struct sy_cli_parser *parser, const char *word)
{
    const char *names[MOST_OPTIONS + 2];
    const char *near;
    int n = 0;

    for (; parser->options[n].name && n < MOST_OPTIONS; n++)
        names[n] = parser->options[n].name;
    names[n++] = "help";
    names[n] = NULL;
    near = sy_cli_nearest(word, names);
    sy_cli_usage("%s has no option --%s%s%s; see switchyard %s --help", parser->argv[0], word,
                 near ? "; did you mean --" : "", near ? near : "", parser->argv[0]);
    return SY_CLI_BAD;
}

static int option_value(struct sy_cli_parser *parser, const struct sy_cli_option *option, int index,
                        const char *equals, const char **value)
{
    *value = NULL;
    if (!option->argument) {
        if (equals)
            sy_cli_usage("--%s takes no value", option->name);
        return equals ? SY_CLI_BAD : index;
    }
    *value = equals ? equals + 1 : parser->at < parser->argc ? parser->argv[parser->at++] : NULL;
    if (!*value) {
        sy_cli_usage("--%s needs %s", option->name, option->argument);
        return SY_CLI_BAD;
    }
    return index;
}

/* --server ADDRESS is --socket ADDRESS, for the commands that talk to one. */
static bool is_option(const struct sy_cli_parser *parser, const char *option, const char *name)
{
    return strcmp(option, name) == 0 || (strcmp(name, "server") == 0 &&
                                         strcmp(option, "socket") == 0 && talks_to_server(parser));
}

int sy_cli_next(struct sy_cli_parser *parser, const char **value)
{
    const char *word, *equals;
    char name[32];

    if (parser->at == 0)
        parser->at = 1;
    if (parser->at >= parser->argc)
        return SY_CLI_END;
    word = parser->argv[parser->at++];
    *value = word;
    if (strcmp(word, "-o") == 0)
        word = "--output";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_help(parser);
        return SY_CLI_HELP;
    }
    if (word[0] != '-' || !word[1] || isdigit((unsigned char)word[1])) /* -5 is a number */
        return SY_CLI_WORD;
    word += word[1] == '-' ? 2 : 1;
    equals = strchr(word, '=');
    snprintf(name, sizeof(name), "%.*s", equals ? (int)(equals - word) : 31, word);
    for (int i = 0; parser->options[i].name; i++)
        if (is_option(parser, parser->options[i].name, name))
            return option_value(parser, &parser->options[i], i, equals, value);
    for (int i = 0; talks_to_server(parser) && security_options[i].name; i++)
        if (strcmp(security_options[i].name, name) == 0) {
            const char **to[] = {&security.token_file, &security.tls_ca, &security.tls_name};

            if (option_value(parser, &security_options[i], i, equals, to[i]) < 0)
                return SY_CLI_BAD;
            return sy_cli_next(parser, value);
        }
    return unknown_option(parser, name);
}

int sy_cli_bytes(const char *text, uint64_t *out)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},      {"K", 1e3},      {"M", 1e6},        {"G", 1e9},
                 {"Ki", 1024}, {"Mi", 1048576}, {"Gi", 1073741824}};
    char *end;
    double value = strtod(text, &end);

    for (size_t i = 0; end != text && value >= 0 && i < SY_ARRAY_LEN(units); i++)
        if (strcmp(end, units[i].suffix) == 0 && value * units[i].factor < 1e18) {
            *out = (uint64_t)(value * units[i].factor);
            if (value > 0 && *out == 0) /* which may mean: no limit */
                break;
            return SY_OK;
        }
    return sy_error_set(SY_EARG, "\"%s\" is not a size; write 400M (10^6) or 400Mi (2^20), K, M, G",
                        text);
}

int sy_cli_integer(const char *text, int64_t least, int64_t most, int64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoll(text, &end, 10);
    if (errno || end == text || *end || *out < least || *out > most)
        return sy_error_set(SY_EARG, "\"%s\" is not a number from %lld to %lld", text,
                            (long long)least, (long long)most);
    return SY_OK;
}

int sy_cli_dim(const char *text, struct sy_onnx_dim dims[SY_CLI_MAX_DIMS], int *n)
{
    char *equals = strrchr((char *)text, '=');

    if (*n == SY_CLI_MAX_DIMS)
        return sy_error_set(SY_EARG, "at most %d", SY_CLI_MAX_DIMS);
    if (!equals || equals == text)
        return sy_error_set(SY_EARG, "%s is not NAME=SIZE", text);
    SY_TRY(sy_cli_integer(equals + 1, 1, INT32_MAX, &dims[*n].size));
    *equals = '\0';
    dims[(*n)++].name = text;
    return SY_OK;
}

int sy_cli_real(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= 0 && *out <= DBL_MAX))
        return sy_error_set(SY_EARG, "\"%s\" is not a number of at least 0", text);
    return SY_OK;
}

const char *sy_cli_default_socket(void)
{
    static char path[256];
    const char *folder = getenv("XDG_RUNTIME_DIR");

    if (folder && *folder)
        snprintf(path, sizeof(path), "%s/switchyard.sock", folder);
    else
        snprintf(path, sizeof(path), "/tmp/switchyard-%u.sock", (unsigned)getuid());
    return path;
}

const sy_client_security *sy_cli_security(void)
{
    return &security;
}

int sy_cli_connect(const char *address, unsigned timeout_ms, sy_client **out)
{
    if (!address)
        address = sy_cli_default_socket();
    if (sy_client_connect_secure(address, timeout_ms, &security, out) == SY_OK)
        return 0;
    if (strncmp(address, "tcp:", 4) == 0)
        sy_cli_fail("%s: %s", address, sy_client_error(*out));
    else
        sy_cli_fail("%s; 'switchyard serve' starts one, --socket says where",
                    sy_client_error(*out));
    sy_client_close(*out);
    *out = NULL;
    return 1;
}

int sy_cli_call(sy_client *client, const char *method, json_t *params, json_t **out)
{
    int status = sy_client_call_json(client, method, params, out);

    json_decref(params);
    return status == SY_OK ? 0 : sy_cli_fail("%s", sy_client_error(client));
}

double sy_cli_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

const char *sy_cli_word(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "-";
}

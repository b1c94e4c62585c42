/* fetch: a package from a registry, whole and verified. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/fetch/fetch.h"
#include "runtime/cli/fetch/fetch_stream.h"

#define MAX_URLS      8
#define MAX_URL_BYTES 4096

struct command {
    struct sy_fetch fetch;
    bool progress;
    const char *urls[MAX_URLS];
    char lines[MAX_URLS][MAX_URL_BYTES]; /* from the standard input */
};

static int set_stall(void *ctx, const char *value)
{
    struct sy_fetch *fetch = &((struct command *)ctx)->fetch;

    SY_TRY(sy_cli_real(value, &fetch->stall_s));
    return fetch->stall_s >= 1 && fetch->stall_s <= 3600
               ? SY_OK
               : sy_error_set(SY_EARG, "\"%s\" is not a time from 1 to 3600 seconds", value);
}

static int add_url(void *ctx, const char *word)
{
    struct command *command = ctx;

    if (command->fetch.n_urls == MAX_URLS)
        return sy_error_set(SY_EARG, "fetch takes at most %d URLs", MAX_URLS);
    command->urls[command->fetch.n_urls++] = word;
    return SY_OK;
}

static const struct sy_cli_field fields[] = {
    {{"output", "FILE", "where to; default: the URL's last part, here (also -o)"},
     SY_CLI_TEXT(struct command, fetch.path)},
    {{"sha256", "HEX", "what the file must hash to"}, SY_CLI_TEXT(struct command, fetch.sha256)},
    {{"max-bytes", "SIZE", "more is refused; default 64Gi"},
     SY_CLI_BYTES(struct command, fetch.max_bytes)},
    {{"stall", "SECONDS", "a connection that does not move is made again; default 30"},
     SY_CLI_SET(set_stall)},
    {{"tries", "N", "in a row without a byte, at each URL; default 5"},
     SY_CLI_INT(struct command, fetch.tries, 1, 100)},
    {{"progress", NULL,
      "of a package, for programs: its layers are checked as they come, 'of BYTES' is printed when "
      "its head is there and the file has its full length, 'at BYTES' for "
      "what is there and right; ends with the process that started it"},
     SY_CLI_SWITCH(struct command, progress)}};

/* The URL's last part, without what follows a '?'; "" where it has none. */
static const char *name_in(const char *url, char *name, size_t bytes)
{
    const char *scheme = strstr(url, "://"), *from = scheme ? scheme + 3 : url;
    size_t n = strcspn(from, "?#");
    size_t at = n;

    while (at > 0 && from[at - 1] != '/')
        at--;
    snprintf(name, bytes, "%.*s", at > 0 && n - at < bytes ? (int)(n - at) : 0, from + at);
    return name;
}

/* ---- progress ----------------------------------------------------------------------------- */

static void say(const char *word, uint64_t bytes)
{
    char line[64];
    int n = snprintf(line, sizeof(line), "%s %llu\n", word, (unsigned long long)bytes);

    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        _exit(1); /* nobody is there any more */
}

static void say_begun(void *ctx, uint64_t total_bytes)
{
    (void)ctx;
    say("of", total_bytes);
}

static void say_arrived(void *ctx, uint64_t bytes)
{
    (void)ctx;
    say("at", bytes);
}

static int fetch_stream(struct command *command, struct sy_fetch_result *result)
{
    struct sy_fetch_stream_config config = {.path = command->fetch.path,
                                            .max_bytes = command->fetch.max_bytes,
                                            .begun = say_begun,
                                            .arrived = say_arrived};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    SY_TRY(sy_fetch_stream_create(&config, &command->fetch.stream));
    int status = sy_fetch_file(&command->fetch, result);
    sy_fetch_stream_destroy(command->fetch.stream);
    return status;
}

static int fetch_and_say(struct command *command)
{
    const struct sy_fetch *fetch = &command->fetch;
    struct sy_fetch_result result;
    sy_ns begun = sy_clock_now();
    double seconds;

    if ((command->progress ? fetch_stream(command, &result) : sy_fetch_file(fetch, &result)) < 0)
        return sy_cli_fail_status();
    seconds = (double)(sy_clock_now() - begun) / 1e9;
    printf("%s: %llu bytes in %.3f s", fetch->path, (unsigned long long)result.bytes, seconds);
    if (result.resumed_bytes)
        printf(", %llu of them were there", (unsigned long long)result.resumed_bytes);
    if (result.connections > 1)
        printf(", %d connections", result.connections);
    if (*result.sha256)
        printf("\nsha256 %s%s", result.sha256, fetch->sha256 ? " as asked for" : "");
    printf("\n");
    return 0;
}

/* ---- the command -------------------------------------------------------------------------- */

/* From the standard input: a URL may be a secret, and everybody may read a command line. */
static int read_urls(struct command *command)
{
    int n = 0;

    while (n < MAX_URLS && fgets(command->lines[n], MAX_URL_BYTES, stdin)) {
        command->lines[n][strcspn(command->lines[n], "\r\n")] = '\0';
        if (*command->lines[n]) {
            command->urls[n] = command->lines[n];
            n++;
        }
    }
    command->fetch.n_urls = n;
    return n > 0 ? SY_OK : sy_error_set(SY_EARG, "no URL on the standard input");
}

static int check(struct command *command, char *name, size_t bytes)
{
    struct sy_fetch *fetch = &command->fetch;

    if (fetch->n_urls == 1 && strcmp(fetch->urls[0], "-") == 0 && read_urls(command) < 0)
        return sy_cli_usage("fetch: %s", sy_error_text());
    if (fetch->n_urls == 0)
        return sy_cli_usage("fetch: which URL?");
    if (!fetch->path)
        fetch->path = name_in(fetch->urls[0], name, bytes);
    if (!*fetch->path)
        return sy_cli_usage("fetch: the URL has no last part; say --output FILE");
    return 0;
}

int sy_cmd_fetch(int argc, char **argv)
{
    static const struct sy_cli_fields words = {
        "fetch URL [URL ...] [options]\n\nFetches a package (or any file) from a registry by HTTP "
        "or HTTPS; an S3 object by its signed URL. A fetch that was ended goes on where it stood, "
        "if the registry still has the same content. The file appears under its name when it is "
        "whole and its hash is right. Further URLs are other sources of the same content, tried "
        "when those before them fail. '-': the URLs come from the standard input, a line each.",
        fields, SY_ARRAY_LEN(fields), add_url};
    static struct command command = {
        .fetch = {.max_bytes = 64ull << 30, .stall_s = 30, .tries = 5}};
    char name[256];

    command.fetch.urls = command.urls;
    int result = sy_cli_read(&words, argc, argv, &command);
    if (result == SY_CLI_END)
        result = check(&command, name, sizeof(name));
    else
        return result;
    return result ? result : fetch_and_say(&command);
}

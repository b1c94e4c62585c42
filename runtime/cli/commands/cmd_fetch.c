/* fetch: a package from a registry, whole and verified. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/fetch/fetch.h"

static const struct sy_cli_option options[] = {
    {"output", "FILE", "where to; default: the URL's last part, here (also -o)"},
    {"sha256", "HEX", "what the file must hash to"},
    {"max-bytes", "SIZE", "more is refused; default 64Gi"},
    {"stall", "SECONDS", "a connection that does not move is made again; default 30"},
    {"tries", "N", "in a row without a byte; default 5"},
    {NULL, NULL, NULL}};

static int set_option(struct sy_fetch *fetch, int index, const char *value)
{
    int64_t number;

    switch (index) {
    case 0:
        fetch->path = value;
        return SY_OK;
    case 1:
        fetch->sha256 = value;
        return SY_OK;
    case 2:
        return sy_cli_bytes(value, &fetch->max_bytes);
    case 3:
        SY_TRY(sy_cli_real(value, &fetch->stall_s));
        return fetch->stall_s >= 1 && fetch->stall_s <= 3600
                   ? SY_OK
                   : sy_error_set(SY_EARG, "\"%s\" is no time from 1 to 3600 seconds", value);
    default:
        SY_TRY(sy_cli_integer(value, 1, 100, &number));
        fetch->tries = (int)number;
        return SY_OK;
    }
}

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

static int fetch_and_say(const struct sy_fetch *fetch)
{
    struct sy_fetch_result result;
    sy_ns begun = sy_clock_now();
    double seconds;

    if (sy_fetch_file(fetch, &result) < 0)
        return sy_cli_fail_status();
    seconds = (double)(sy_clock_now() - begun) / 1e9;
    printf("%s: %llu bytes in %.3f s", fetch->path, (unsigned long long)result.bytes, seconds);
    if (result.resumed_bytes)
        printf(", %llu of them were there", (unsigned long long)result.resumed_bytes);
    if (result.connections > 1)
        printf(", %d connections", result.connections);
    printf("\nsha256 %s%s\n", result.sha256, fetch->sha256 ? " as asked for" : "");
    return 0;
}

int sy_cmd_fetch(int argc, char **argv)
{
    struct sy_cli_parser parser = {
        "fetch URL [options]\n\nFetches a package (or any file) from a registry by HTTP or HTTPS; "
        "an S3 "
        "object by its signed URL. A fetch that was ended goes on where it stood, if the registry "
        "still has the "
        "same content. The file appears under its name when it is whole and its hash is right.",
        options, argc, argv, 0};
    struct sy_fetch fetch = {.max_bytes = 64ull << 30, .stall_s = 30, .tries = 5};
    char name[256];
    const char *value;
    int got;

    while ((got = sy_cli_next(&parser, &value)) >= 0 || (got == SY_CLI_WORD && !fetch.url))
        if (got == SY_CLI_WORD)
            fetch.url = value;
        else if (set_option(&fetch, got, value) < 0)
            return sy_cli_usage("--%s: %s", options[got].name, sy_error_text());
    if (got == SY_CLI_WORD)
        return sy_cli_usage("fetch takes one URL, and %s is a second", value);
    if (got != SY_CLI_END)
        return got == SY_CLI_HELP ? 0 : 2;
    if (!fetch.url)
        return sy_cli_usage("fetch: which URL?");
    if (!fetch.path)
        fetch.path = name_in(fetch.url, name, sizeof(name));
    if (!*fetch.path)
        return sy_cli_usage("fetch: the URL has no last part; say --output FILE");
    return fetch_and_say(&fetch);
}

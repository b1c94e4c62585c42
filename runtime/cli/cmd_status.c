#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/cli/cli.h"

#define MAP_WIDTH  72
#define TEXT_WIDTH 120 /* of what is wrapped where no terminal says its width */

#define AMOUNT_TEXT 24

/* Such that what is there does not read 0. Returns `text`. */
static const char *amount(double bytes, char text[AMOUNT_TEXT])
{
    if (bytes < 1e3)
        snprintf(text, AMOUNT_TEXT, "%.0f B", bytes);
    else if (bytes < 1e6)
        snprintf(text, AMOUNT_TEXT, "%.1f kB", bytes / 1e3);
    else
        snprintf(text, AMOUNT_TEXT, bytes < 1e8 ? "%.1f MB" : "%.0f MB", bytes / 1e6);
    return text;
}

/* Draws `sign` over the columns that [offset, offset + bytes) touches. */
static void draw(char *map, double pool, double offset, double bytes, char sign)
{
    int from = (int)(offset / pool * MAP_WIDTH), to = (int)((offset + bytes) / pool * MAP_WIDTH);

    for (int i = from; bytes > 0 && i <= to && i < MAP_WIDTH; i++)
        if (i < to || i == from || offset + bytes > pool / MAP_WIDTH * i)
            map[i] = sign;
}

/* Tails first: a head in the same column is what one wants to see. */
static void draw_models(char *map, double pool, const json_t *models, bool heads)
{
    json_t *model, *place;
    size_t i, k;

    json_array_foreach(models, i, model)
    {
        json_array_foreach(json_object_get(model, "places"), k,
                           place) if (json_is_true(json_object_get(place, "head")) == heads)
            draw(map, pool, sy_cli_number(place, "offset"), sy_cli_number(place, "bytes"),
                 heads ? 'H' : 't');
    }
}

static void print_pool(json_t *status, FILE *to)
{
    const json_t *pool = json_object_get(status, "pool");
    const json_t *models = json_object_get(status, "models");
    double bytes = sy_cli_number(pool, "bytes");
    char map[MAP_WIDTH + 1], all[AMOUNT_TEXT], unused[AMOUNT_TEXT];
    json_t *item;
    size_t i;

    memset(map, '.', MAP_WIDTH);
    map[MAP_WIDTH] = '\0';
    json_array_foreach(json_object_get(pool, "blocks"), i,
                       item) if (json_is_true(json_object_get(item, "used")))
        draw(map, bytes, sy_cli_number(item, "offset"), sy_cli_number(item, "bytes"), 'w');
    draw_models(map, bytes, models, false);
    draw_models(map, bytes, models, true);
    json_array_foreach(json_object_get(status, "lanes"), i, item)
        draw(map, bytes, sy_cli_number(item, "offset"), sy_cli_number(item, "bytes"), '=');
    json_array_foreach(json_object_get(status, "jobs"), i,
                       item) if (json_is_true(json_object_get(item, "admitted")))
        draw(map, bytes, sy_cli_number(item, "persistent_offset"),
             sy_cli_number(item, "persistent_bytes"),
             (char)('0' + (int)sy_cli_number(item, "job") % 10));
    fprintf(to,
            "pool   %s, %s free\n[%s]\n"
            " digits: jobs, =: lanes, H, t: heads, tails of models, w: workspace, .: free\n",
            amount(bytes, all), amount(sy_cli_number(pool, "free_bytes"), unused), map);
}

static void print_models(json_t *status, double elapsed_ns, FILE *to)
{
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(status, "models"), i, item)
    {
        double weights = sy_cli_number(item, "weights_bytes"),
               resident = sy_cli_number(item, "resident_bytes");
        char text[AMOUNT_TEXT];
        double free_prefix = sy_cli_number(item, "free_prefix_bytes");
        fprintf(to,
                "model  %-20s %-11s %11s  resident %3.0f %%  free prefix %3.0f %%  "
                "%7.2f requests/s  swap %7.1f ms  device %5.1f %%\n",
                sy_cli_word(item, "name"), sy_cli_word(item, "state"), amount(weights, text),
                weights > 0 ? 100 * resident / weights : 100,
                weights > 0 ? 100 * free_prefix / weights : 100,
                sy_cli_number(item, "requests_per_s"),
                sy_cli_number(item, "predicted_swap_ns") / 1e6,
                elapsed_ns > 0 ? 100 * sy_cli_number(item, "device_ns") / elapsed_ns : 0);
    }
}

static void print_jobs(json_t *status, double elapsed_ns, FILE *to)
{
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(status, "jobs"), i, item)
    {
        char lane[16] = "-";
        if (json_integer_value(json_object_get(item, "lane")) >= 0 && json_object_get(item, "lane"))
            snprintf(lane, sizeof(lane), "%.0f", sy_cli_number(item, "lane"));
        fprintf(to,
                "job    %-3.0f %-16s %-10s step %.0f of %.0f  loss %.4f  lane %s  device %5.1f "
                "%%\n",
                sy_cli_number(item, "job"), sy_cli_word(item, "name"), sy_cli_word(item, "state"),
                sy_cli_number(item, "step"), sy_cli_number(item, "total_steps"),
                sy_cli_number(item, "loss"), lane,
                elapsed_ns > 0 ? 100 * sy_cli_number(item, "device_ns") / elapsed_ns : 0);
        if (json_is_string(json_object_get(item, "waits_for")))
            fprintf(to, "           waits for %s\n", sy_cli_word(item, "waits_for"));
        if (json_string_length(json_object_get(item, "error")) > 0)
            fprintf(to, "           %s\n", sy_cli_word(item, "error"));
        if (sy_cli_number(item, "longest_layer_ns") > 0)
            fprintf(to, "           longest without a look at requests: %.2f ms (%s)\n",
                    sy_cli_number(item, "longest_layer_ns") / 1e6,
                    sy_cli_word(item, "longest_layer"));
    }
}

/* As many on a line as fit. */
static void print_counters(json_t *counters, int columns, FILE *to)
{
    const char *key;
    json_t *item;
    int at = 0;

    json_object_foreach(counters, key, item)
    {
        char text[80];
        int n = snprintf(text, sizeof(text), "%s %lld", key, (long long)json_integer_value(item));

        if (at > 0 && at + 2 + n > columns) {
            fputc('\n', to);
            at = 0;
        }
        at += fprintf(to, "%s%s", at ? "  " : "", text);
    }
    fputc('\n', to);
}

static void print_status(json_t *status, int columns, FILE *to)
{
    const json_t *account = json_object_get(status, "account");
    double elapsed = sy_cli_number(account, "elapsed_ns");
    json_t *item;
    size_t i;

    fprintf(to, "device %s, idle %.1f %%; policy %s\n",
            sy_cli_word(json_object_get(status, "device"), "name"),
            elapsed > 0 ? 100 * sy_cli_number(account, "idle_ns") / elapsed : 0,
            sy_cli_word(json_object_get(status, "rules"), "policy"));
    print_pool(status, to);
    json_array_foreach(json_object_get(status, "workers"), i, item) fprintf(
        to, "worker %zu  pid %lld  %s\n", i,
        (long long)json_integer_value(json_object_get(item, "pid")), sy_cli_word(item, "state"));
    print_models(status, elapsed, to);
    print_jobs(status, elapsed, to);
    print_counters(json_object_get(status, "counters"), columns, to);
}

/* Lines are cut at the terminal's edge, and the last ones left out: what scrolled away could not be seen. */
static void print_fitting(const char *text, int rows, int columns)
{
    for (int row = 1; row < rows && *text; row++) {
        const char *end = text;
        int width = 0;

        for (; *end && *end != '\n'; end++) {
            width += (*end & 0xc0) != 0x80; /* the later bytes of a character take no room */
            if (width <= columns)
                putchar(*end);
        }
        putchar('\n');
        text = *end ? end + 1 : end;
    }
}

/* On a terminal that is cleared before; rows 0: there is none. */
static void print_screen(json_t *status, int rows, int columns)
{
    char *text = NULL;
    size_t n;
    FILE *to = rows > 0 ? open_memstream(&text, &n) : NULL;

    if (to) {
        print_status(status, columns, to);
        fclose(to);
        printf("\033[H\033[2J");
        print_fitting(text, rows, columns);
        free(text);
    } else {
        print_status(status, TEXT_WIDTH, stdout);
    }
}

static int show(sy_client *client, bool raw, bool clear)
{
    struct winsize size = {.ws_row = 0};
    char *text;
    json_t *status;

    if (sy_client_call(client, "status", "{}", &text) < 0)
        return sy_cli_fail("%s", sy_client_error(client));
    status = raw ? NULL : json_loads(text, 0, NULL);
    if (clear && (ioctl(1, TIOCGWINSZ, &size) || size.ws_row == 0 || size.ws_col == 0))
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    if (status)
        print_screen(status, size.ws_row, size.ws_col);
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

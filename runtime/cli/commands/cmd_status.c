#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/cli/cli_fields.h"

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

/* Lines of models and jobs fit into the 80 columns of a terminal. */
static void print_models(json_t *status, double elapsed_ns, FILE *to)
{
    json_t *item;
    size_t i;

    if (json_array_size(json_object_get(status, "models")) > 0)
        fprintf(
            to,
            "model                state        weights resident  head   req/s swap ms device\n");
    json_array_foreach(json_object_get(status, "models"), i, item)
    {
        double pooled = sy_cli_number(item, "pool_bytes");
        char text[AMOUNT_TEXT];
        fprintf(to, "%-20s %-11s %8s %6.0f %% %3.0f %% %7.2f %7.1f %4.0f %%\n",
                sy_cli_word(item, "name"), sy_cli_word(item, "state"),
                amount(sy_cli_number(item, "weights_bytes"), text),
                pooled > 0 ? 100 * sy_cli_number(item, "resident_bytes") / pooled : 100,
                pooled > 0 ? 100 * sy_cli_number(item, "free_prefix_bytes") / pooled : 100,
                sy_cli_number(item, "requests_per_s"),
                sy_cli_number(item, "predicted_swap_ns") / 1e6,
                elapsed_ns > 0 ? 100 * sy_cli_number(item, "device_ns") / elapsed_ns : 0);
    }
    if (i > 0)
        fprintf(to, " resident, head that is free: of what the pool takes; swap: and computing\n");
}

static bool is_over(const json_t *job)
{
    const char *state = sy_cli_word(job, "state");
    return strcmp(state, "ended") == 0 || strcmp(state, "failed") == 0;
}

static void print_job(const json_t *job, double elapsed_ns, FILE *to)
{
    char lane[16] = "-";

    if (json_integer_value(json_object_get(job, "lane")) >= 0 && json_object_get(job, "lane"))
        snprintf(lane, sizeof(lane), "%.0f", sy_cli_number(job, "lane"));
    fprintf(to, "%3.0f %-20s %-10s %8.0f /%8.0f %9.4f %4s %5.1f %%\n", sy_cli_number(job, "job"),
            sy_cli_word(job, "name"), sy_cli_word(job, "state"), sy_cli_number(job, "step"),
            sy_cli_number(job, "total_steps"), sy_cli_number(job, "loss"), lane,
            elapsed_ns > 0 ? 100 * sy_cli_number(job, "device_ns") / elapsed_ns : 0);
    if (json_is_string(json_object_get(job, "waits_for")))
        fprintf(to, "    waits for %s\n", sy_cli_word(job, "waits_for"));
    if (json_string_length(json_object_get(job, "error")) > 0)
        fprintf(to, "    %s\n", sy_cli_word(job, "error"));
    if (sy_cli_number(job, "longest_layer_ns") > 0)
        fprintf(to, "    longest without a look at requests: %.2f ms (%s)\n",
                sy_cli_number(job, "longest_layer_ns") / 1e6, sy_cli_word(job, "longest_layer"));
}

/* Prints ended jobs, or the others: a terminal may have no room for both. */
static void print_jobs(json_t *status, bool over, double elapsed_ns, FILE *to)
{
    json_t *job;
    size_t i;
    int n = 0;

    json_array_foreach(json_object_get(status, "jobs"), i, job)
    {
        if (is_over(job) != over)
            continue;
        if (n++ == 0)
            fprintf(to, "job %-20s state          step /   total      loss lane  device\n",
                    over ? "(that is over)" : "name");
        print_job(job, elapsed_ns, to);
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
    print_jobs(status, false, elapsed, to);
    print_models(status, elapsed, to);
    print_counters(json_object_get(status, "counters"), columns, to);
    print_jobs(status, true, elapsed, to);
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

struct status_words {
    const char *address;
    bool watch, json;
};

static const struct sy_cli_field fields[] = {
    {{"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
     SY_CLI_TEXT(struct status_words, address)},
    {{"watch", NULL, "again every second, until interrupted"},
     SY_CLI_SWITCH(struct status_words, watch)},
    {{"json", NULL, "everything, as JSON"}, SY_CLI_SWITCH(struct status_words, json)}};

int sy_cmd_status(int argc, char **argv)
{
    static const struct sy_cli_fields command = {"status [options]\n\nWhat a server is doing.",
                                                 fields, SY_ARRAY_LEN(fields), NULL};
    struct status_words words = {0};
    sy_client *client;
    int result = sy_cli_read(&command, argc, argv, &words);

    if (result != SY_CLI_END)
        return result;
    if (sy_cli_connect(words.address, 0, &client))
        return 1;
    while ((result = show(client, words.json, words.watch && isatty(1))) == 0 && words.watch)
        sleep(1);
    sy_client_close(client);
    return result;
}

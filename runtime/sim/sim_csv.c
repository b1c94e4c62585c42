#include "runtime/sim/sim_csv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_memory.h"

#define LINE_BYTES  (1u << 20) /* a file without line ends must not fill the memory */
#define MAX_SECONDS 1e9        /* 30 years; nanoseconds of it fit into 64 bits */

static char *trimmed(char *text)
{
    text += strspn(text, " \t");
    for (size_t n = strlen(text); n > 0 && strchr(" \t\r\n", text[n - 1]);)
        text[--n] = '\0';
    return text;
}

/* Where a field that begins with a quote ends behind the second one; NULL: nowhere, and it is a letter as others are. *is_open: there is no
 * second one in this line. */
static char *end_of_quoted(char *field, bool *is_open)
{
    char *at = field + 1;
    while ((at = strchr(at, '"')) && at[1] == '"')
        at += 2;
    *is_open = !at;
    if (!at)
        return NULL;
    at += 1 + strspn(at + 1, " \t\r\n");
    return *at == ',' || *at == '\0' ? at : NULL;
}

/* In place; two quotes within are one. */
static char *unquoted(char *field)
{
    char *to = field;
    for (const char *from = field + 1; *from != '"' || *++from == '"';)
        *to++ = *from++;
    *to = '\0';
    return field;
}

/* Cuts the next field off *rest, which is NULL behind the last. Spaces in quotes are the field's. */
static int next_field(const struct sy_csv *csv, char **rest, char **out)
{
    char *field = *rest + strspn(*rest, " \t");
    bool is_open = false;
    char *quoted = *field == '"' ? end_of_quoted(field, &is_open) : NULL;
    if (is_open)
        return sy_error_set(SY_EARG,
                            "%s:%d: a field begins with a quote that does not end in this line; "
                            "fields of several lines are not read",
                            csv->path, csv->n_lines);
    char *comma = strchr(quoted ? quoted : field, ',');
    if (comma)
        *comma = '\0';
    *rest = comma ? comma + 1 : NULL;
    *out = quoted ? unquoted(field) : trimmed(field);
    return SY_OK;
}

static int next_line(struct sy_csv *csv)
{
    do {
        csv->n_lines++;
        if (!fgets(csv->line, LINE_BYTES, csv->file))
            return ferror(csv->file) ? sy_error_set(SY_EIO, "%s: %s", csv->path, strerror(errno))
                                     : 0;
        size_t n = strlen(csv->line);
        if (n == 0 || (csv->line[n - 1] != '\n' && !feof(csv->file)))
            return sy_error_set(SY_EARG, "%s:%d: %s", csv->path, csv->n_lines,
                                n == LINE_BYTES - 1 ? "a line of more than 1048574 bytes"
                                                    : "a byte of 0 in it: this is not text");
        static const char mark[] =
            "\xef\xbb\xbf"; /* the byte order mark that some spreadsheets write */
        if (csv->n_lines == 1 && strncmp(csv->line, mark, 3) == 0)
            memmove(csv->line, csv->line + 3, n - 2);
    } while (csv->line[0] == '#' || csv->line[strspn(csv->line, " \t\r\n")] == '\0');
    return 1;
}

static int note_column(struct sy_csv *csv, const char *name, int place)
{
    for (int i = 0; i < csv->n_columns; i++) {
        if (strcmp(name, csv->columns[i].name) != 0)
            continue;
        if (csv->place_of[i] >= 0)
            return sy_error_set(SY_EARG, "%s: two columns are called %s", csv->path, name);
        csv->place_of[i] = place;
    }
    return SY_OK;
}

static int read_header(struct sy_csv *csv)
{
    int got = next_line(csv), place = 0;
    if (got <= 0)
        return got < 0 ? got : sy_error_set(SY_EARG, "%s is empty", csv->path);
    for (int i = 0; i < csv->n_columns; i++)
        csv->place_of[i] = -1;
    for (char *rest = csv->line, *name; rest; place++) {
        SY_TRY(next_field(csv, &rest, &name));
        SY_TRY(note_column(csv, name, place));
    }
    csv->n_header = place;
    for (int i = 0; i < csv->n_columns; i++)
        if (csv->place_of[i] < 0 && csv->columns[i].needed)
            return sy_error_set(SY_EARG, "%s: the first line names no column %s", csv->path,
                                csv->columns[i].name);
    return SY_OK;
}

static void csv_close(struct sy_csv *csv)
{
    if (csv->file)
        fclose(csv->file);
    free(csv->line);
}

static int csv_open(struct sy_csv *csv, const char *path, const struct sy_csv_column *columns,
                    int n)
{
    *csv = (struct sy_csv){.path = path, .columns = columns, .n_columns = n};
    csv->line = malloc(LINE_BYTES);
    if (!csv->line)
        return sy_error_set(SY_ENOMEM_HOST, "%s: no memory for a line", path);
    csv->file = fopen(path, "r");
    if (!csv->file)
        return sy_error_set(SY_EIO, "cannot read %s: %s", path, strerror(errno));
    return read_header(csv);
}

/* 1: a row, 0: no more. */
static int csv_next(struct sy_csv *csv)
{
    static char nothing[] = "";
    int got = next_line(csv), place = 0;
    if (got <= 0)
        return got;
    for (int i = 0; i < csv->n_columns; i++)
        csv->fields[i] = nothing;
    for (char *rest = csv->line, *field; rest; place++) {
        SY_TRY(next_field(csv, &rest, &field));
        for (int i = 0; i < csv->n_columns; i++)
            if (csv->place_of[i] == place)
                csv->fields[i] = field;
    }
    if (place > csv->n_header)
        return sy_error_set(SY_EARG, "%s:%d: %d fields; the first line names %d", csv->path,
                            csv->n_lines, place, csv->n_header);
    return 1;
}

/* `otherwise` for an empty field. */
static int number_from(const struct sy_csv *csv, int column, double least, double otherwise,
                       double *out)
{
    char *end;
    *out = otherwise;
    if (csv->fields[column][0] == '\0' && !csv->columns[column].needed)
        return SY_OK;
    *out = strtod(csv->fields[column], &end);
    end += strspn(end, " \t"); /* in quotes */
    if (end == csv->fields[column] || *end != '\0' || !(*out >= least && *out <= 1e12))
        return sy_error_set(SY_EARG, "%s:%d: %s is \"%s\", not a number from %.0f to 1e12",
                            csv->path, csv->n_lines, csv->columns[column].name, csv->fields[column],
                            least);
    return SY_OK;
}

int sy_csv_number(const struct sy_csv *csv, int column, double otherwise, double *out)
{
    return number_from(csv, column, 0, otherwise, out);
}

int sy_csv_whole_from(const struct sy_csv *csv, int column, double least, double otherwise,
                      double most, double *out)
{
    SY_TRY(number_from(csv, column, least, otherwise, out));
    if (*out <= most && *out == floor(*out))
        return SY_OK;
    return sy_error_set(SY_EARG, "%s:%d: %s is %s, not a whole number of %.0f to %.0f", csv->path,
                        csv->n_lines, csv->columns[column].name, csv->fields[column], least, most);
}

int sy_csv_whole(const struct sy_csv *csv, int column, double otherwise, double most, double *out)
{
    return sy_csv_whole_from(csv, column, 0, otherwise, most, out);
}

/* A time in units of `unit_s` seconds; 0 for an empty field. */
int sy_csv_duration(const struct sy_csv *csv, int column, double unit_s, sy_ns *out)
{
    double value;
    SY_TRY(sy_csv_number(csv, column, 0, &value));
    if (value * unit_s > MAX_SECONDS)
        return sy_error_set(SY_EARG, "%s:%d: %s is %s, more than %g seconds", csv->path,
                            csv->n_lines, csv->columns[column].name, csv->fields[column],
                            MAX_SECONDS);
    *out = (sy_ns)(value * unit_s * 1e9 + 0.5);
    return SY_OK;
}

/* A duration that the row needs: at least 1 ns. */
int sy_csv_lasting(const struct sy_csv *csv, int column, double unit_s, sy_ns *out)
{
    SY_TRY(sy_csv_duration(csv, column, unit_s, out));
    if (*out > 0)
        return SY_OK;
    return sy_error_set(SY_EARG, "%s:%d: %s is %s, less than a nanosecond", csv->path, csv->n_lines,
                        csv->columns[column].name, csv->fields[column]);
}

int sy_csv_counted(const struct sy_csv *csv, int column, double otherwise, double most, double *out)
{
    SY_TRY(sy_csv_whole(csv, column, otherwise, most, out));
    if (*out >= 1)
        return SY_OK;
    return sy_error_set(SY_EARG, "%s:%d: %s is %s, not a whole number of 1 to %.0f", csv->path,
                        csv->n_lines, csv->columns[column].name, csv->fields[column], most);
}

int sy_csv_word(const struct sy_csv *csv, int column, char *out, size_t size)
{
    const char *text = csv->fields[column];
    if (text[0] == '\0' || strlen(text) >= size)
        return sy_error_set(SY_EARG, "%s:%d: %s is \"%s\": 1 to %zu letters", csv->path,
                            csv->n_lines, csv->columns[column].name, text, size - 1);
    memcpy(out, text, strlen(text) + 1);
    return SY_OK;
}

int sy_csv_read_all(const char *path, const struct sy_csv_column *columns, int n_columns,
                    size_t size, sy_csv_row *row, void *ctx, void **out, uint64_t *n)
{
    struct sy_csv csv;
    char *all = NULL;
    uint64_t max = 0;
    *out = NULL;
    *n = 0;
    int status = csv_open(&csv, path, columns, n_columns);
    while (status == SY_OK && (status = csv_next(&csv)) > 0) {
        if (*n == max) {
            max = max ? 2 * max : 256;
            char *more = sy_sim_grow(all, *n * size, max * size);
            if (!more) {
                status = sy_error_set(SY_ENOMEM_HOST, "%s: no memory for more lines", path);
                break;
            }
            all = more;
        }
        memset(all + *n * size, 0, size);
        status = row(&csv, all + *n * size, ctx);
        ++*n;
    }
    csv_close(&csv);
    if (status < 0) {
        free(all);
        return status;
    }
    *out = all;
    return SY_OK;
}

static sy_ns time_at(const char *all, uint64_t i, size_t size, size_t at)
{
    sy_ns ns;
    memcpy(&ns, all + i * size + at, sizeof ns);
    return ns;
}

/* Sorts by the time at `at` bytes in each element. Equal times keep the file's order, which qsort alone does not promise. */
static int sort_by_time(void *all, uint64_t n, size_t size, size_t at, const char *path)
{
    char *from = all, *spare, *to;
    if (n < 2)
        return SY_OK;
    spare = to = malloc(n * size);
    if (!spare)
        return sy_error_set(SY_ENOMEM_HOST, "%s: no memory to sort %llu lines", path,
                            (unsigned long long)n);
    for (uint64_t run = 1; run < n; run *= 2) {
        for (uint64_t begin = 0; begin < n; begin += 2 * run) {
            uint64_t a = begin, a_end = SY_MIN(begin + run, n);
            uint64_t b = a_end, b_end = SY_MIN(begin + 2 * run, n);
            for (uint64_t k = begin; k < b_end; k++) {
                bool first = b == b_end || (a < a_end && time_at(from, a, size, at) <=
                                                             time_at(from, b, size, at));
                memcpy(to + k * size, from + (first ? a++ : b++) * size, size);
            }
        }
        char *swap = from;
        from = to;
        to = swap;
    }
    if (from != all)
        memcpy(all, from, n * size);
    free(spare);
    return SY_OK;
}

int sy_csv_sort_or_free(void *all, uint64_t n, size_t size, size_t at, const char *path)
{
    int status = sort_by_time(all, n, size, at, path);
    if (status < 0)
        free(all);
    return status;
}

int sy_csv_read(const char *path, const struct sy_csv_column *columns, int n_columns, size_t size,
                sy_csv_row *row, void *ctx, void **out, int *n)
{
    uint64_t count;
    SY_TRY(sy_csv_read_all(path, columns, n_columns, size, row, ctx, out, &count));
    if (count > 1000000) {
        free(*out);
        return sy_error_set(SY_ETOOBIG, "%s has %llu lines; at most a million are read", path,
                            (unsigned long long)count);
    }
    *n = (int)count;
    return SY_OK;
}

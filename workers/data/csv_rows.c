#include "workers/data/csv_rows.h"

#include <stdlib.h>

#include "runtime/base/status.h"

static int add_field(struct sy_csv_rows *r, char *field)
{
    if (r->n == r->room) {
        uint64_t room = r->room ? 2 * r->room : 16;
        char **grown = r->n < SY_CSV_MAX_FIELDS ? realloc(r->fields, room * sizeof *grown) : NULL;
        if (!grown)
            return sy_error_set(SY_ETOOBIG, "'%s', line %llu: no room for more than %llu fields",
                                r->path, (unsigned long long)r->line, (unsigned long long)r->n);
        r->fields = grown;
        r->room = room;
    }
    r->fields[r->n++] = field;
    return SY_OK;
}

/* Unquotes in place; returns where the field's text ends, or NULL. At the opening quote; stops behind the closing one. */
static char *take_quoted(struct sy_csv_rows *r)
{
    char *to = r->at++;
    while (r->at < r->end) {
        char c = *r->at++;
        if (c == '"' && (r->at == r->end || *r->at != '"'))
            return to;
        if (c == '"')
            r->at++; /* doubled: one of them is text */
        r->n_lines_read += c == '\n';
        *to++ = c;
    }
    return NULL;
}

static char *take_plain(struct sy_csv_rows *r)
{
    while (r->at < r->end && *r->at != r->separator && *r->at != '\n' && *r->at != '\r')
        r->at++;
    return r->at;
}

/* One field; *is_last: the row ends behind it. */
static int take_field(struct sy_csv_rows *r, int *is_last)
{
    char *field = r->at, *text_end = *r->at == '"' ? take_quoted(r) : take_plain(r);
    if (!text_end)
        return sy_error_set(SY_ECORRUPT, "'%s', line %llu: a quote without an end", r->path,
                            (unsigned long long)r->line);
    char *stop = r->at;
    if (r->at < r->end && *r->at == '\r')
        r->at++;
    *is_last = r->at == r->end || *r->at == '\n';
    if (!*is_last && *stop == '\r')
        return sy_error_set(SY_ECORRUPT,
                            "'%s', line %llu: a carriage return that no line feed follows; lines "
                            "end with \\n or \\r\\n",
                            r->path, (unsigned long long)r->line);
    if (!*is_last && *stop != r->separator)
        return sy_error_set(SY_ECORRUPT, "'%s', line %llu: field %llu goes on behind its end",
                            r->path, (unsigned long long)r->line, (unsigned long long)r->n + 1);
    if (r->at < r->end) {
        r->n_lines_read += *r->at == '\n';
        r->at++;
    }
    *text_end = 0; /* on the separator, a quote, or behind the text */
    return add_field(r, field);
}

int sy_csv_rows_next(struct sy_csv_rows *r)
{
    int is_last = 0;
    while (r->at < r->end && (*r->at == '\n' || *r->at == '\r'))
        r->n_lines_read += *r->at++ == '\n';
    if (r->at == r->end)
        return 0;
    r->n = 0;
    r->line = r->n_lines_read + 1;
    while (!is_last) {
        if (r->at == r->end) { /* the text ends with a separator: an empty field */
            *r->end = 0;
            SY_TRY(add_field(r, r->end));
            break;
        }
        SY_TRY(take_field(r, &is_last));
    }
    return 1;
}

void sy_csv_rows_finish(struct sy_csv_rows *r)
{
    free(r->fields);
    r->fields = NULL;
}

/* CSV: features from columns by name, the label from one; in memory as floats. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/package/file_bytes.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/data/csv_rows.h"
#include "workers/data/data_internal.h"

#define MAX_CLASSES 65536u

struct csv_source {
    struct sy_data_source base;
    const struct sy_data_want *want;
    const struct sy_data_spec *spec;
    const char *path;
    uint64_t n_columns, n_features, *columns, label_column;
    char **column_names; /* of the features, for messages */
    float *features;     /* [n, n_features] */
    double *labels;      /* values, or classes once they are numbered */
    char **texts;        /* labels as they stand, until then */
    uint64_t room;
    struct sy_data_names classes; /* when labels are words; n = 0: numbers */
    float *shift, *scale;         /* a feature f becomes (f - shift) * scale */
};

static void csv_close(struct sy_data_source *source)
{
    struct csv_source *s = (struct csv_source *)source;
    for (uint64_t i = 0; s->texts && i < s->base.n; i++)
        free(s->texts[i]);
    for (uint64_t i = 0; s->column_names && i < s->n_features; i++)
        free(s->column_names[i]);
    free(s->texts);
    free(s->column_names);
    free(s->columns);
    free(s->features);
    free(s->labels);
    free(s->shift);
    free(s->scale);
    sy_data_names_free(&s->classes);
    free(s);
}

static int put_label(const struct csv_source *s, uint64_t index, void *labels)
{
    if (s->want->are_classes || s->want->n_labels > 1)
        return sy_data_put_class(s->want, s->path, index, (int64_t)s->labels[index], labels);
    *(float *)labels = (float)s->labels[index];
    return SY_OK;
}

/* A row has the features of one input after the other. */
static int csv_read(struct sy_data_source *source, uint64_t index, void *const *inputs,
                    void *labels)
{
    const struct csv_source *s = (struct csv_source *)source;
    const float *row = s->features + index * s->n_features;
    uint64_t at = 0;
    for (int k = 0; k < s->want->n_inputs; k++) {
        const struct sy_data_input *input = &s->want->inputs[k];
        if (sy_data_put_given(sy_data_field_of(s->spec, s->want, k), input, 0, inputs[k]))
            continue;
        for (uint64_t i = 0; i < input->n; i++, at++)
            sy_data_put_input(input, i, (row[at] - s->shift[at]) * s->scale[at], inputs[k]);
    }
    return put_label(s, index, labels);
}

/* ---- columns ----------------------------------------------------------------------------------------- */

/* A header's name, or without a header the column's number from 1. */
static int find_column(const struct csv_source *s, const struct sy_csv_rows *rows, const char *name,
                       uint64_t *out)
{
    char known[300] = "", *end;
    bool is_found = false;
    for (uint64_t i = 0; i < rows->n; i++) {
        bool is_it = s->spec->has_header && !strcmp(rows->fields[i], name);
        if (is_it && is_found)
            return sy_error_set(SY_EARG, "'%s' has column '%s' twice", s->path, name);
        if (is_it)
            *out = i;
        is_found |= is_it;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s'%s'", i ? ", " : "", rows->fields[i]);
    }
    if (is_found)
        return SY_OK;
    if (s->spec->has_header)
        return sy_error_set(SY_EARG, "'%s' has no column '%s'; it has %s", s->path, name, known);
    uint64_t number = strtoull(name, &end, 10);
    if (*end || number < 1 || number > rows->n)
        return sy_error_set(SY_EARG,
                            "'%s' has no column '%s'; without a header they are '1' to '%llu'",
                            s->path, name, (unsigned long long)rows->n);
    *out = number - 1;
    return SY_OK;
}

static int add_feature(struct csv_source *s, const struct sy_csv_rows *rows, uint64_t column)
{
    char number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)column + 1);
    char *name = strdup(s->spec->has_header ? rows->fields[column] : number);
    SY_TRY_ALLOC(name, "'%s': no room for its columns", s->path);
    s->column_names[s->n_features] = name;
    s->columns[s->n_features++] = column;
    return SY_OK;
}

static char *const *columns_of(const struct csv_source *s, int input)
{
    const struct sy_data_field *field = sy_data_field_of(s->spec, s->want, input);
    return field->columns ? field->columns : s->spec->features;
}

static int choose_input(struct csv_source *s, const struct sy_csv_rows *rows, int input)
{
    char *const *named = columns_of(s, input);
    uint64_t before = s->n_features, column;
    char text[96];
    for (uint64_t i = 0; named && named[i]; i++) {
        SY_TRY(find_column(s, rows, named[i], &column));
        SY_TRY(add_feature(s, rows, column));
    }
    for (uint64_t i = 0; !named && i < rows->n; i++)
        if (i != s->label_column)
            SY_TRY(add_feature(s, rows, i));
    if (s->n_features - before != s->want->inputs[input].n)
        return sy_error_set(SY_EARG, "'%s'%s: %llu feature columns, the model's input takes %llu",
                            s->path, sy_data_input_text(s->want, input, text),
                            (unsigned long long)(s->n_features - before),
                            (unsigned long long)s->want->inputs[input].n);
    return SY_OK;
}

static int choose_columns(struct csv_source *s, const struct sy_csv_rows *rows)
{
    uint64_t room = rows->n;
    for (int k = 0; k < s->want->n_inputs; k++)
        for (char *const *name = columns_of(s, k); name && *name; name++)
            room++;
    s->n_columns = rows->n;
    s->columns = calloc(room, sizeof *s->columns);
    s->column_names = calloc(room, sizeof *s->column_names);
    SY_TRY_ALLOC(s->columns && s->column_names, "'%s': no room for its columns", s->path);
    SY_TRY(find_column(s, rows, s->spec->label, &s->label_column));
    for (int k = 0; k < s->want->n_inputs; k++)
        if (sy_data_field_of(s->spec, s->want, k)->from == SY_FROM_SAMPLE)
            SY_TRY(choose_input(s, rows, k));
    return s->n_features
               ? SY_OK
               : sy_error_set(SY_EARG, "'%s': none of 'data.inputs' is a column", s->path);
}

/* ---- rows -------------------------------------------------------------------------------------------- */

static int make_room(struct csv_source *s)
{
    if (s->base.n < s->room)
        return SY_OK;
    uint64_t room = s->room ? 2 * s->room : 256;
    float *features = realloc(s->features, room * s->n_features * sizeof *features);
    s->features = features ? features : s->features;
    double *labels = realloc(s->labels, room * sizeof *labels);
    s->labels = labels ? labels : s->labels;
    char **texts = realloc(s->texts, room * sizeof *texts);
    s->texts = texts ? texts : s->texts;
    SY_TRY_ALLOC(features && labels && texts, "'%s': no room for row %llu", s->path,
                 (unsigned long long)s->base.n);
    s->room = room;
    return SY_OK;
}

static int take_row(struct csv_source *s, const struct sy_csv_rows *rows)
{
    if (rows->n != s->n_columns)
        return sy_error_set(SY_ECORRUPT, "'%s', line %llu: %llu fields, the first row has %llu",
                            s->path, (unsigned long long)rows->line, (unsigned long long)rows->n,
                            (unsigned long long)s->n_columns);
    SY_TRY(make_room(s));
    float *to = s->features + s->base.n * s->n_features;
    for (uint64_t i = 0; i < s->n_features; i++) {
        char *end, *text = rows->fields[s->columns[i]];
        double value = strtod(text, &end);
        if (end == text || end[strspn(end, " \t")] || !isfinite(value) || fabs(value) > 3e38)
            return sy_error_set(SY_ECORRUPT,
                                "'%s', line %llu, column '%s': '%.60s' is not a number of float32",
                                s->path, (unsigned long long)rows->line, s->column_names[i], text);
        to[i] = (float)value;
    }
    s->texts[s->base.n] = strdup(rows->fields[s->label_column]);
    SY_TRY_ALLOC(s->texts[s->base.n], "'%s': no room for a label", s->path);
    s->base.n++;
    return SY_OK;
}

/* UTF-16 has them, and a file that a crash has left with a hole. */
static int check_zero_bytes(const struct csv_source *s, unsigned char *bytes, size_t n)
{
    const unsigned char *zero = n ? memchr(bytes, 0, n) : NULL;
    unsigned long long line = 1;
    for (const unsigned char *at = bytes; zero && at < zero; at++)
        line += *at == '\n';
    if (!zero)
        return SY_OK;
    free(bytes);
    return sy_error_set(SY_ECORRUPT, "'%s', line %llu: a byte 0; a CSV is text, in UTF-8", s->path,
                        line);
}

static int read_rows(struct csv_source *s)
{
    unsigned char *bytes;
    size_t n;
    SY_TRY(sy_file_read_range(s->path, 0, UINT64_MAX, &bytes, &n));
    SY_TRY(check_zero_bytes(s, bytes, n));
    char *text = realloc(bytes, n + 1); /* one more, for the last field's end */
    int got = text ? 1 : sy_error_set(SY_ENOMEM_HOST, "'%s': no room for %zu bytes", s->path, n);
    char separator = s->spec->separator ? s->spec->separator[0] : ',';
    struct sy_csv_rows rows = {
        .path = s->path, .at = text, .end = text ? text + n : NULL, .separator = separator};
    for (bool is_first = true; got == 1; is_first = false) {
        got = sy_csv_rows_next(&rows);
        int status = got == 1 && is_first ? choose_columns(s, &rows) : SY_OK;
        if (status == SY_OK && got == 1 && !(is_first && s->spec->has_header))
            status = take_row(s, &rows);
        got = status < 0 ? status : got;
    }
    sy_csv_rows_finish(&rows);
    free(text ? text : (char *)bytes);
    if (got == 0 && s->base.n == 0)
        return sy_error_set(SY_EARG, "'%s' has no rows", s->path);
    return got;
}

/* ---- labels ------------------------------------------------------------------------------------------ */

static bool take_number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !end[strspn(end, " \t")] && isfinite(*out);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Words, sorted, are the classes. */
static int number_words(struct csv_source *s)
{
    char **sorted = malloc(s->base.n * sizeof *sorted);
    s->classes.names = calloc(MAX_CLASSES, sizeof *s->classes.names);
    int status = sorted && s->classes.names
                     ? SY_OK
                     : sy_error_set(SY_ENOMEM_HOST, "'%s': no room for its labels", s->path);
    if (status == SY_OK) {
        memcpy(sorted, s->texts, s->base.n * sizeof *sorted);
        qsort(sorted, s->base.n, sizeof *sorted, by_text);
    }
    for (uint64_t i = 0; status == SY_OK && i < s->base.n; i++) {
        if (i && !strcmp(sorted[i], sorted[i - 1]))
            continue;
        char *copy = s->classes.n < MAX_CLASSES ? strdup(sorted[i]) : NULL;
        if (copy)
            s->classes.names[s->classes.n++] = copy;
        else
            status = sy_error_set(SY_ETOOBIG, "'%s', column '%s': more than %u different labels",
                                  s->path, s->spec->label, MAX_CLASSES);
    }
    free(sorted);
    if (status == SY_OK && s->classes.n > sy_data_max_classes(s->want))
        status = sy_error_set(
            SY_EARG, "'%s', column '%s' has %llu different labels, the model's outputs tell %llu",
            s->path, s->spec->label, (unsigned long long)s->classes.n,
            (unsigned long long)sy_data_max_classes(s->want));
    return status;
}

static int bad_label(const struct csv_source *s, uint64_t row, const char *what)
{
    return sy_error_set(SY_EARG, "'%s', row %llu: label '%.60s' %s", s->path,
                        (unsigned long long)row + 1, s->texts[row], what);
}

static int find_classes(struct csv_source *s, const struct csv_source *training)
{
    const struct sy_data_names *known = training ? &training->classes : &s->classes;
    double number;
    bool are_words = training && known->n;
    for (uint64_t i = 0; !training && !are_words && i < s->base.n; i++)
        are_words = !take_number(s->texts[i], &number);
    if (are_words && !training)
        SY_TRY(number_words(s));
    for (uint64_t i = 0; i < s->base.n; i++) {
        if (are_words) {
            char **found =
                bsearch(&s->texts[i], known->names, known->n, sizeof *known->names, by_text);
            s->labels[i] = found ? (double)(found - known->names) : -1.0;
            if (!found)
                return bad_label(s, i, "is not one of the training set's");
        } else if (!take_number(s->texts[i], &s->labels[i]) ||
                   s->labels[i] != floor(s->labels[i]) || s->labels[i] < 0.0 || s->labels[i] > 1e9)
            return bad_label(s, i,
                             "is no class: those are whole numbers from 0, or words (values "
                             "are learnt by loss mse)");
    }
    return SY_OK;
}

static int find_values(struct csv_source *s)
{
    for (uint64_t i = 0; i < s->base.n; i++)
        if (!take_number(s->texts[i], &s->labels[i]))
            return sy_error_set(SY_ECORRUPT, "'%s', row %llu, column '%s': '%.60s' is not a number",
                                s->path, (unsigned long long)i + 1, s->spec->label, s->texts[i]);
    return SY_OK;
}

static int take_labels(struct csv_source *s, const struct csv_source *training)
{
    bool are_classes = s->want->are_classes || s->want->n_labels > 1;
    SY_TRY(are_classes ? find_classes(s, training) : find_values(s));
    float *room = calloc(s->want->n_labels, sizeof *room);
    int status = room ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no room for a label");
    for (uint64_t i = 0; status == SY_OK && i < s->base.n; i++)
        status = put_label(s, i, room);
    free(room);
    return status;
}

/* ---- scales ------------------------------------------------------------------------------------------ */

static void measure(struct csv_source *s)
{
    double n = (double)s->base.n;
    for (uint64_t f = 0; f < s->n_features; f++) {
        double mean = 0.0, square = 0.0;
        for (uint64_t i = 0; i < s->base.n; i++)
            mean += s->features[i * s->n_features + f] / n;
        for (uint64_t i = 0; i < s->base.n; i++) {
            double d = s->features[i * s->n_features + f] - mean;
            square += d * d / n;
        }
        s->shift[f] = (float)mean;
        s->scale[f] = square > 0.0 ? (float)(1.0 / sqrt(square)) : 1.0f; /* a constant column */
    }
}

static int take_scales(struct csv_source *s, const struct csv_source *training)
{
    s->shift = calloc(s->n_features, sizeof *s->shift);
    s->scale = calloc(s->n_features, sizeof *s->scale);
    SY_TRY_ALLOC(s->shift && s->scale, "'%s': no room for its scales", s->path);
    for (uint64_t f = 0; f < s->n_features; f++) {
        s->shift[f] = training ? training->shift[f] : 0.0f;
        s->scale[f] = training ? training->scale[f] : 1.0f;
    }
    if (s->spec->standardize && !training)
        measure(s);
    return SY_OK;
}

int sy_data_csv_open(const struct sy_data_spec *spec, const struct sy_data_want *want,
                     struct sy_data_source *training, struct sy_data_source **out)
{
    int status;
    const struct csv_source *first = (struct csv_source *)training;
    struct csv_source *s = calloc(1, sizeof *s);
    SY_TRY_ALLOC(s, "no room for data set '%s'", spec->inputs[0]);
    s->base.read = csv_read;
    s->base.close = csv_close;
    s->want = want;
    s->spec = spec;
    s->path = spec->inputs[training != NULL];
    SY_TRY_GOTO(read_rows(s), fail);
    SY_TRY_GOTO(take_labels(s, first), fail);
    SY_TRY_GOTO(take_scales(s, first), fail);
    *out = &s->base;
    return SY_OK;
fail:
    csv_close(&s->base);
    return status;
}

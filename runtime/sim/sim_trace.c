#include "runtime/sim/sim_trace.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_memory.h"

#define MAX_COLUMNS 12         /* that are read; a file may have more */
#define MAX_SECONDS 1e9        /* 30 years; nanoseconds of it fit into 64 bits */
#define MIN_FACTOR  1e-12      /* of a link that is slow */
#define LINE_BYTES  (1u << 20) /* a file without line ends must not fill the memory */

/* ---- CSV ---- */

struct column {
    const char *name;
    bool needed;
};

struct csv {
    const char *path;
    FILE *file;
    const struct column *columns;
    int n_columns, place_of[MAX_COLUMNS]; /* -1: not there */
    int n_header;                         /* fields of the first line */
    char *line;                           /* LINE_BYTES */
    int n_lines;
    char *fields[MAX_COLUMNS]; /* by column; "" if it is not there */
};

static char *trimmed(char *text)
{
    text += strspn(text, " \t");
    for (size_t n = strlen(text); n > 0 && strchr(" \t\r\n", text[n - 1]);)
        text[--n] = '\0';
    return text;
}

/* Where a field that begins with a quote ends behind the second one; NULL: nowhere, and it is a letter as others are. */
static char *end_of_quoted(char *field)
{
    char *at = field + 1;
    while ((at = strchr(at, '"')) && at[1] == '"')
        at += 2;
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

/* Cuts the next field off *rest, which is NULL behind the last. */
static char *next_field(char **rest)
{
    char *field = *rest + strspn(*rest, " \t");
    char *quoted = *field == '"' ? end_of_quoted(field) : NULL;
    char *comma = strchr(quoted ? quoted : field, ',');
    if (comma)
        *comma = '\0';
    *rest = comma ? comma + 1 : NULL;
    return trimmed(quoted ? unquoted(field) : field);
}

static int next_line(struct csv *csv)
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
                                                    : "a byte of 0 in it: this is no text");
        static const char mark[] = "\xef\xbb\xbf"; /* that some spreadsheets begin a file with */
        if (csv->n_lines == 1 && strncmp(csv->line, mark, 3) == 0)
            memmove(csv->line, csv->line + 3, n - 2);
    } while (csv->line[0] == '#' || csv->line[strspn(csv->line, " \t\r\n")] == '\0');
    return 1;
}

static int note_column(struct csv *csv, const char *name, int place)
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

static int read_header(struct csv *csv)
{
    int got = next_line(csv), place = 0;
    if (got <= 0)
        return got < 0 ? got : sy_error_set(SY_EARG, "%s is empty", csv->path);
    for (int i = 0; i < csv->n_columns; i++)
        csv->place_of[i] = -1;
    for (char *rest = csv->line; rest; place++)
        SY_TRY(note_column(csv, next_field(&rest), place));
    csv->n_header = place;
    for (int i = 0; i < csv->n_columns; i++)
        if (csv->place_of[i] < 0 && csv->columns[i].needed)
            return sy_error_set(SY_EARG, "%s: the first line names no column %s", csv->path,
                                csv->columns[i].name);
    return SY_OK;
}

static void csv_close(struct csv *csv)
{
    if (csv->file)
        fclose(csv->file);
    free(csv->line);
}

static int csv_open(struct csv *csv, const char *path, const struct column *columns, int n)
{
    *csv = (struct csv){.path = path, .columns = columns, .n_columns = n};
    csv->line = malloc(LINE_BYTES);
    if (!csv->line)
        return sy_error_set(SY_ENOMEM_HOST, "%s: no memory for a line", path);
    csv->file = fopen(path, "r");
    if (!csv->file)
        return sy_error_set(SY_EIO, "cannot read %s: %s", path, strerror(errno));
    return read_header(csv);
}

/* 1: a row, 0: no more. */
static int csv_next(struct csv *csv)
{
    static char nothing[] = "";
    int got = next_line(csv), place = 0;
    if (got <= 0)
        return got;
    for (int i = 0; i < csv->n_columns; i++)
        csv->fields[i] = nothing;
    for (char *rest = csv->line; rest; place++) {
        char *field = next_field(&rest);
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
static int number_from(const struct csv *csv, int column, double least, double otherwise,
                       double *out)
{
    char *end;
    *out = otherwise;
    if (csv->fields[column][0] == '\0' && !csv->columns[column].needed)
        return SY_OK;
    *out = strtod(csv->fields[column], &end);
    if (end == csv->fields[column] || *end != '\0' || !(*out >= least && *out <= 1e12))
        return sy_error_set(SY_EARG, "%s:%d: %s is \"%s\", not a number from %.0f to 1e12",
                            csv->path, csv->n_lines, csv->columns[column].name, csv->fields[column],
                            least);
    return SY_OK;
}

static int number(const struct csv *csv, int column, double otherwise, double *out)
{
    return number_from(csv, column, 0, otherwise, out);
}

static int whole_from(const struct csv *csv, int column, double least, double otherwise,
                      double most, double *out)
{
    SY_TRY(number_from(csv, column, least, otherwise, out));
    if (*out <= most && *out == floor(*out))
        return SY_OK;
    return sy_error_set(SY_EARG, "%s:%d: %s is %s, not a whole number of %.0f to %.0f", csv->path,
                        csv->n_lines, csv->columns[column].name, csv->fields[column], least, most);
}

static int whole(const struct csv *csv, int column, double otherwise, double most, double *out)
{
    return whole_from(csv, column, 0, otherwise, most, out);
}

/* A time in units of `unit_s` seconds; 0 for an empty field. */
static int duration(const struct csv *csv, int column, double unit_s, sy_ns *out)
{
    double value;
    SY_TRY(number(csv, column, 0, &value));
    if (value * unit_s > MAX_SECONDS)
        return sy_error_set(SY_EARG, "%s:%d: %s is %s, more than %g seconds", csv->path,
                            csv->n_lines, csv->columns[column].name, csv->fields[column],
                            MAX_SECONDS);
    *out = (sy_ns)(value * unit_s * 1e9 + 0.5);
    return SY_OK;
}

/* What there is none of without it: at least 1 ns. */
static int lasting(const struct csv *csv, int column, double unit_s, sy_ns *out)
{
    SY_TRY(duration(csv, column, unit_s, out));
    if (*out > 0)
        return SY_OK;
    return sy_error_set(SY_EARG, "%s:%d: %s is %s, less than a nanosecond", csv->path, csv->n_lines,
                        csv->columns[column].name, csv->fields[column]);
}

static int counted(const struct csv *csv, int column, double otherwise, double most, double *out)
{
    SY_TRY(whole(csv, column, otherwise, most, out));
    if (*out >= 1)
        return SY_OK;
    return sy_error_set(SY_EARG, "%s:%d: %s is %s, not a whole number of 1 to %.0f", csv->path,
                        csv->n_lines, csv->columns[column].name, csv->fields[column], most);
}

static int word(const struct csv *csv, int column, char out[SY_SIM_NAME_BYTES])
{
    const char *text = csv->fields[column];
    if (text[0] == '\0' || strlen(text) >= SY_SIM_NAME_BYTES)
        return sy_error_set(SY_EARG, "%s:%d: %s is \"%s\": 1 to %d letters", csv->path,
                            csv->n_lines, csv->columns[column].name, text, SY_SIM_NAME_BYTES - 1);
    memcpy(out, text, strlen(text) + 1);
    return SY_OK;
}

/* Reads all rows with `row`, which fills one element. */
static int read_all(const char *path, const struct column *columns, int n_columns, size_t size,
                    int (*row)(const struct csv *csv, void *element, void *ctx), void *ctx,
                    void **out, uint64_t *n)
{
    struct csv csv;
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

/* By the time that each element has `at` bytes in. What is at one time stays in the file's order, which qsort does not promise. */
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

static int sorted_or_freed(void *all, uint64_t n, size_t size, size_t at, const char *path)
{
    int status = sort_by_time(all, n, size, at, path);
    if (status < 0)
        free(all);
    return status;
}

static int read_counted(const char *path, const struct column *columns, int n_columns, size_t size,
                        int (*row)(const struct csv *csv, void *element, void *ctx), void **out,
                        int *n)
{
    uint64_t count;
    SY_TRY(read_all(path, columns, n_columns, size, row, NULL, out, &count));
    if (count > 1000000) {
        free(*out);
        return sy_error_set(SY_ETOOBIG, "%s has %llu lines; at most a million are read", path,
                            (unsigned long long)count);
    }
    *n = (int)count;
    return SY_OK;
}

/* ---- models ---- */

/* Milliseconds with spaces between. */
static int samples(const struct csv *csv, int column, struct sy_sim_model *m)
{
    for (char *at = csv->fields[column], *end; *at; at = end + strspn(end, " ")) {
        double ms = strtod(at, &end);
        if (end == at || (*end != '\0' && *end != ' ') || !(ms > 0 && ms < 1e9))
            return sy_error_set(SY_EARG,
                                "%s:%d: samples_ms at '%.20s': numbers above 0, spaces between",
                                csv->path, csv->n_lines, at);
        if (m->n_samples == SY_SIM_MAX_SAMPLES)
            return sy_error_set(SY_EARG, "%s:%d: more than %d samples_ms", csv->path, csv->n_lines,
                                SY_SIM_MAX_SAMPLES);
        m->samples[m->n_samples++] = (float)(ms * 1e6 / (double)m->compute_ns);
    }
    return SY_OK;
}

static int model_row(const struct csv *csv, void *element, void *ctx)
{
    struct sy_sim_model *m = element;
    double mb, groups;
    (void)ctx;
    SY_TRY(word(csv, 0, m->name));
    SY_TRY(number(csv, 1, 0, &mb));
    SY_TRY(lasting(csv, 2, 1e-3, &m->compute_ns));
    SY_TRY(counted(csv, 3, 16, 1e6, &groups));
    m->bytes = (uint64_t)(mb * 1e6);
    m->n_groups = (int)groups;
    m->n_samples = 0;
    return samples(csv, 4, m);
}

static int compare_names(const void *a, const void *b)
{
    const struct sy_sim_model *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* The caller frees *out. */
static int sort_names(const char *path, const struct sy_sim_model *models, int n,
                      const struct sy_sim_model ***out)
{
    const struct sy_sim_model **by_name = malloc(((size_t)n + 1) * sizeof *by_name);
    *out = by_name;
    if (!by_name)
        return sy_error_set(SY_ENOMEM_HOST, "%s: no memory for %d models", path, n);
    for (int i = 0; i < n; i++)
        by_name[i] = &models[i];
    qsort(by_name, (size_t)n, sizeof *by_name, compare_names);
    return SY_OK;
}

static int check_names(const char *path, const struct sy_sim_model *models, int n)
{
    const struct sy_sim_model **by_name;
    int status = SY_OK;
    SY_TRY(sort_names(path, models, n, &by_name));
    for (int i = 1; i < n && status == SY_OK; i++)
        if (strcmp(by_name[i - 1]->name, by_name[i]->name) == 0)
            status = sy_error_set(SY_EARG, "%s: two models are called %s", path, by_name[i]->name);
    free(by_name);
    return status;
}

int sy_sim_read_models(const char *path, struct sy_sim_model **out, int *n)
{
    static const struct column columns[] = {{"model", true},
                                            {"mb", true},
                                            {"compute_ms", true},
                                            {"groups", false},
                                            {"samples_ms", false}};
    void *all;
    SY_TRY(read_counted(path, columns, SY_ARRAY_LEN(columns), sizeof **out, model_row, &all, n));
    *out = all;
    int status = check_names(path, *out, *n);
    if (status == SY_OK)
        return SY_OK;
    free(*out);
    *out = NULL;
    return status;
}

int sy_sim_example_models(int n, struct sy_sim_model **out)
{
    static const struct sy_sim_model examples[] = {
        {.name = "resnet152", .bytes = 240600000, .compute_ns = 34000000, .n_groups = 24},
        {.name = "inception_v3", .bytes = 95400000, .compute_ns = 21000000, .n_groups = 14},
        {.name = "bert_base", .bytes = 437900000, .compute_ns = 28000000, .n_groups = 22}};
    *out = calloc((size_t)SY_MAX(n, 1), sizeof **out);
    if (!*out)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d models", n);
    for (int i = 0; i < n; i++) {
        (*out)[i] = examples[i % 3];
        if (i >= 3)
            snprintf((*out)[i].name, SY_SIM_NAME_BYTES, "%s_%d", examples[i % 3].name, i / 3 + 1);
    }
    return SY_OK;
}

/* ---- jobs ---- */

static int job_row(const struct csv *csv, void *element, void *ctx)
{
    struct sy_sim_job *j = element;
    double n, mb[2], tenant, priority, weight;
    (void)ctx;
    SY_TRY(word(csv, 0, j->name));
    SY_TRY(duration(csv, 1, 1, &j->submit_ns));
    SY_TRY(counted(csv, 2, 0, 1e12, &n));
    SY_TRY(lasting(csv, 3, 1e-3, &j->iteration_ns));
    SY_TRY(number(csv, 4, 0, &mb[0]));
    SY_TRY(number(csv, 5, 0, &mb[1]));
    SY_TRY(number(csv, 6, 1, &j->utilization));
    if (j->utilization > 1)
        return sy_error_set(SY_EARG, "%s:%d: utilization is %s, not a number from 0 to 1",
                            csv->path, csv->n_lines, csv->fields[6]);
    SY_TRY(whole(csv, 7, 0, SY_POLICY_MAX_TENANTS - 1, &tenant));
    SY_TRY(whole_from(csv, 8, -1e6, 0, 1e6, &priority));
    SY_TRY(whole(csv, 9, 0, 1e6, &weight));
    j->iterations = (uint64_t)n;
    j->persistent_bytes = (uint64_t)(mb[0] * 1e6);
    j->ephemeral_bytes = (uint64_t)(mb[1] * 1e6);
    j->tenant = (int)tenant;
    j->priority = (int)priority;
    j->weight = (unsigned)weight;
    return SY_OK;
}

int sy_sim_read_jobs(const char *path, struct sy_sim_job **out, int *n)
{
    static const struct column columns[] = {{"name", true},          {"submit_s", true},
                                            {"iterations", true},    {"iteration_ms", true},
                                            {"persistent_mb", true}, {"ephemeral_mb", true},
                                            {"utilization", false},  {"tenant", false},
                                            {"priority", false},     {"weight", false}};
    void *all;
    SY_TRY(read_counted(path, columns, SY_ARRAY_LEN(columns), sizeof **out, job_row, &all, n));
    SY_TRY(sorted_or_freed(all, (uint64_t)*n, sizeof **out, offsetof(struct sy_sim_job, submit_ns),
                           path));
    *out = all;
    return SY_OK;
}

/* ---- requests ---- */

struct names {
    const struct sy_sim_model **by_name, *models,
        *last; /* last: found last, traces repeat themselves */
    int n_models;
};

static int compare_to_name(const void *name, const void *model)
{
    return strcmp(name, (*(const struct sy_sim_model *const *)model)->name);
}

static int find_model(const struct csv *csv, struct names *names, int32_t *out)
{
    const char *name = csv->fields[1];
    if (!names->last || strcmp(names->last->name, name) != 0) {
        const struct sy_sim_model **found = bsearch(name, names->by_name, (size_t)names->n_models,
                                                    sizeof *names->by_name, compare_to_name);
        if (!found)
            return sy_error_set(SY_EARG, "%s:%d: no model %s among the %d that are known",
                                csv->path, csv->n_lines, name[0] ? name : "\"\"", names->n_models);
        names->last = *found;
    }
    *out = (int32_t)(names->last - names->models);
    return SY_OK;
}

static int request_row(const struct csv *csv, void *element, void *ctx)
{
    struct sy_sim_request *r = element;
    double class_;
    SY_TRY(duration(csv, 0, 1, &r->at_ns));
    SY_TRY(find_model(csv, ctx, &r->model));
    SY_TRY(whole(csv, 2, 0, SY_SIM_MAX_CLASSES - 1, &class_));
    SY_TRY(duration(csv, 3, 1e-3, &r->deadline_ns));
    SY_TRY(duration(csv, 4, 1e-3, &r->served_ns));
    r->class_ = (int32_t)class_;
    return SY_OK;
}

int sy_sim_read_requests(const char *path, const struct sy_sim_model *models, int n_models,
                         struct sy_sim_request **out, uint64_t *n)
{
    static const struct column columns[] = {{"time_s", true},
                                            {"model", true},
                                            {"class", false},
                                            {"deadline_ms", false},
                                            {"served_ms", false}};
    struct names names = {.models = models, .n_models = n_models};
    void *all;
    SY_TRY(sort_names(path, models, n_models, &names.by_name));
    int status =
        read_all(path, columns, SY_ARRAY_LEN(columns), sizeof **out, request_row, &names, &all, n);
    free(names.by_name);
    SY_TRY(status);
    SY_TRY(sorted_or_freed(all, *n, sizeof **out, offsetof(struct sy_sim_request, at_ns), path));
    *out = all;
    return SY_OK;
}

/* ---- faults ---- */

static int fault_row(const struct csv *csv, void *element, void *ctx)
{
    struct sy_sim_fault *f = element;
    double device;
    (void)ctx;
    SY_TRY(duration(csv, 0, 1, &f->at_ns));
    SY_TRY(whole(csv, 1, 0, 1e6, &device));
    SY_TRY(duration(csv, 3, 1, &f->duration_ns));
    SY_TRY(number(csv, 4, 1, &f->factor));
    if (f->factor < MIN_FACTOR)
        return sy_error_set(SY_EARG, "%s:%d: factor is %s, not a number from %g to 1e12", csv->path,
                            csv->n_lines, csv->fields[4], MIN_FACTOR);
    f->device = (int)device;
    if (strcmp(csv->fields[2], "link_slows") == 0)
        f->kind = SY_SIM_LINK_SLOWS;
    else if (strcmp(csv->fields[2], "worker_dies") != 0)
        return sy_error_set(SY_EARG, "%s:%d: kind %s: worker_dies or link_slows", csv->path,
                            csv->n_lines, csv->fields[2]);
    return SY_OK;
}

int sy_sim_read_faults(const char *path, struct sy_sim_fault **out, int *n)
{
    static const struct column columns[] = {{"time_s", true},
                                            {"device", true},
                                            {"kind", true},
                                            {"duration_s", true},
                                            {"factor", false}};
    void *all;
    SY_TRY(read_counted(path, columns, SY_ARRAY_LEN(columns), sizeof **out, fault_row, &all, n));
    SY_TRY(sorted_or_freed(all, (uint64_t)*n, sizeof **out, offsetof(struct sy_sim_fault, at_ns),
                           path));
    *out = all;
    return SY_OK;
}

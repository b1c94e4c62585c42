#include "runtime/sim/sim_trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MAX_COLUMNS 12

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
    char *line;
    size_t size;
    int n_lines;
    char *fields[MAX_COLUMNS]; /* by column; "" if it is not there */
};

static int split(char *line, char **fields, int n)
{
    int count = 0;
    line[strcspn(line, "\r\n")] = '\0';
    for (char *at = line; at && count < n; count++) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma++ = '\0';
        while (*at == ' ')
            at++;
        fields[count] = at;
        at = comma;
    }
    return count;
}

static int next_line(struct csv *csv)
{
    do {
        csv->n_lines++;
        if (getline(&csv->line, &csv->size, csv->file) < 0)
            return ferror(csv->file) ? sy_error_set(SY_EIO, "%s: %s", csv->path, strerror(errno))
                                     : 0;
    } while (csv->line[0] == '#' || csv->line[0] == '\n');
    return 1;
}

static int read_header(struct csv *csv)
{
    char *names[MAX_COLUMNS];
    int got = next_line(csv);
    if (got <= 0)
        return got < 0 ? got : sy_error_set(SY_EARG, "%s is empty", csv->path);
    int n = split(csv->line, names, MAX_COLUMNS);
    for (int i = 0; i < csv->n_columns; i++) {
        csv->place_of[i] = -1;
        for (int k = 0; k < n; k++)
            if (strcmp(names[k], csv->columns[i].name) == 0)
                csv->place_of[i] = k;
        if (csv->place_of[i] < 0 && csv->columns[i].needed)
            return sy_error_set(SY_EARG, "%s: the first line names no column %s", csv->path,
                                csv->columns[i].name);
    }
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
    csv->file = fopen(path, "r");
    if (!csv->file)
        return sy_error_set(SY_EIO, "cannot read %s: %s", path, strerror(errno));
    return read_header(csv);
}

/* 1: a row, 0: no more. */
static int csv_next(struct csv *csv)
{
    static char nothing[] = "";
    char *fields[MAX_COLUMNS];
    int got = next_line(csv);
    if (got <= 0)
        return got;
    int n = split(csv->line, fields, MAX_COLUMNS);
    for (int i = 0; i < csv->n_columns; i++)
        csv->fields[i] =
            csv->place_of[i] >= 0 && csv->place_of[i] < n ? fields[csv->place_of[i]] : nothing;
    return 1;
}

/* `otherwise` for an empty field. */
static int number(const struct csv *csv, int column, double otherwise, double *out)
{
    char *end;
    *out = otherwise;
    if (csv->fields[column][0] == '\0' && !csv->columns[column].needed)
        return SY_OK;
    *out = strtod(csv->fields[column], &end);
    if (end == csv->fields[column] || *end != '\0' || !(*out >= 0 && *out < 1e15))
        return sy_error_set(SY_EARG, "%s:%d: %s is \"%s\", not a number of at least 0", csv->path,
                            csv->n_lines, csv->columns[column].name, csv->fields[column]);
    return SY_OK;
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
            char *more = realloc(all, max * size);
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

static sy_ns ns_of(double seconds)
{
    return (sy_ns)(seconds * 1e9 + 0.5);
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

static int model_row(const struct csv *csv, void *element, void *ctx)
{
    struct sy_sim_model *m = element;
    double mb, ms, groups;
    (void)ctx;
    SY_TRY(word(csv, 0, m->name));
    SY_TRY(number(csv, 1, 0, &mb));
    SY_TRY(number(csv, 2, 0, &ms));
    SY_TRY(number(csv, 3, 16, &groups));
    m->bytes = (uint64_t)(mb * 1e6);
    m->compute_ns = ns_of(ms / 1e3);
    m->n_groups = (int)SY_MIN(groups, 1e6);
    return SY_OK;
}

int sy_sim_read_models(const char *path, struct sy_sim_model **out, int *n)
{
    static const struct column columns[] = {
        {"model", true}, {"mb", true}, {"compute_ms", true}, {"groups", false}};
    void *all;
    SY_TRY(read_counted(path, columns, SY_ARRAY_LEN(columns), sizeof **out, model_row, &all, n));
    *out = all;
    return SY_OK;
}

int sy_sim_example_models(int n, struct sy_sim_model **out)
{
    static const struct sy_sim_model examples[] = {{"resnet152", 240600000, 34000000, 24},
                                                   {"inception_v3", 95400000, 21000000, 14},
                                                   {"bert_base", 437900000, 28000000, 22}};
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
    double submit, n, ms, mb[2], tenant, priority, weight;
    (void)ctx;
    SY_TRY(word(csv, 0, j->name));
    SY_TRY(number(csv, 1, 0, &submit));
    SY_TRY(number(csv, 2, 0, &n));
    SY_TRY(number(csv, 3, 0, &ms));
    SY_TRY(number(csv, 4, 0, &mb[0]));
    SY_TRY(number(csv, 5, 0, &mb[1]));
    SY_TRY(number(csv, 6, 1, &j->utilization));
    SY_TRY(number(csv, 7, 0, &tenant));
    SY_TRY(number(csv, 8, 0, &priority));
    SY_TRY(number(csv, 9, 0, &weight));
    j->submit_ns = ns_of(submit);
    j->iterations = (uint64_t)n;
    j->iteration_ns = ns_of(ms / 1e3);
    j->persistent_bytes = (uint64_t)(mb[0] * 1e6);
    j->ephemeral_bytes = (uint64_t)(mb[1] * 1e6);
    j->tenant = (int)SY_MIN(tenant, 1e6);
    j->priority = (int)SY_MIN(priority, 1e6);
    j->weight = (unsigned)SY_MIN(weight, 1e6);
    return SY_OK;
}

static int compare_jobs(const void *a, const void *b)
{
    const struct sy_sim_job *x = a, *y = b;
    return (x->submit_ns > y->submit_ns) - (x->submit_ns < y->submit_ns);
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
    *out = all;
    if (*n > 0)
        qsort(*out, (size_t)*n, sizeof **out, compare_jobs);
    return SY_OK;
}

/* ---- requests ---- */

struct names {
    const struct sy_sim_model *models;
    int n_models, last; /* last: found last, since traces repeat themselves */
};

static int find_model(const struct csv *csv, struct names *names, int32_t *out)
{
    for (int i = 0; i < names->n_models; i++) {
        int at = (names->last + i) % names->n_models;
        if (strcmp(names->models[at].name, csv->fields[1]) == 0) {
            *out = names->last = at;
            return SY_OK;
        }
    }
    return sy_error_set(SY_EARG, "%s:%d: no model %s; --models names a file that describes it",
                        csv->path, csv->n_lines, csv->fields[1]);
}

static int request_row(const struct csv *csv, void *element, void *ctx)
{
    struct sy_sim_request *r = element;
    double time, class_, deadline;
    SY_TRY(number(csv, 0, 0, &time));
    SY_TRY(find_model(csv, ctx, &r->model));
    SY_TRY(number(csv, 2, 0, &class_));
    SY_TRY(number(csv, 3, 0, &deadline));
    r->at_ns = ns_of(time);
    r->class_ = (int32_t)SY_MIN(class_, 1e6);
    r->deadline_ns = ns_of(deadline / 1e3);
    return SY_OK;
}

static int compare_requests(const void *a, const void *b)
{
    const struct sy_sim_request *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

int sy_sim_read_requests(const char *path, const struct sy_sim_model *models, int n_models,
                         struct sy_sim_request **out, uint64_t *n)
{
    static const struct column columns[] = {
        {"time_s", true}, {"model", true}, {"class", false}, {"deadline_ms", false}};
    struct names names = {models, n_models, 0};
    void *all;
    SY_TRY(
        read_all(path, columns, SY_ARRAY_LEN(columns), sizeof **out, request_row, &names, &all, n));
    *out = all;
    if (*n > 0)
        qsort(*out, *n, sizeof **out, compare_requests);
    return SY_OK;
}

/* ---- faults ---- */

static int fault_row(const struct csv *csv, void *element, void *ctx)
{
    struct sy_sim_fault *f = element;
    double time, device, duration;
    (void)ctx;
    SY_TRY(number(csv, 0, 0, &time));
    SY_TRY(number(csv, 1, 0, &device));
    SY_TRY(number(csv, 3, 0, &duration));
    SY_TRY(number(csv, 4, 1, &f->factor));
    f->at_ns = ns_of(time);
    f->duration_ns = ns_of(duration);
    f->device = (int)SY_MIN(device, 1e9);
    if (strcmp(csv->fields[2], "link_slows") == 0)
        f->kind = SY_SIM_LINK_SLOWS;
    else if (strcmp(csv->fields[2], "worker_dies") != 0)
        return sy_error_set(SY_EARG, "%s:%d: kind %s: worker_dies or link_slows", csv->path,
                            csv->n_lines, csv->fields[2]);
    return SY_OK;
}

static int compare_faults(const void *a, const void *b)
{
    const struct sy_sim_fault *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
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
    *out = all;
    if (*n > 0)
        qsort(*out, (size_t)*n, sizeof **out, compare_faults);
    return SY_OK;
}

/* ---- generated ---- */

static int set_field(struct sy_sim_generator *g, const char *name, double value)
{
    const struct {
        const char *name;
        double *real;
        int *integer;
    } fields[] = {{"rate", &g->rate, NULL},
                  {"seconds", &g->seconds, NULL},
                  {"zipf", &g->zipf, NULL},
                  {"swing", &g->swing, NULL},
                  {"period", &g->period_s, NULL},
                  {"burst", &g->burst, NULL},
                  {"burst-every", &g->burst_every_s, NULL},
                  {"burst-last", &g->burst_last_s, NULL},
                  {"models", NULL, &g->n_models},
                  {"classes", NULL, &g->n_classes},
                  {"deadline-ms", &g->deadline_ms, NULL}};
    for (size_t i = 0; i < SY_ARRAY_LEN(fields); i++)
        if (strcmp(fields[i].name, name) == 0) {
            if (fields[i].real)
                *fields[i].real = value;
            else
                *fields[i].integer = (int)SY_MIN(value, 1e6);
            return SY_OK;
        }
    return sy_error_set(
        SY_EARG,
        "no generator option %s: rate, seconds, zipf, models, classes, deadline-ms, "
        "swing, period, burst, burst-every, burst-last",
        name);
}

static int check_generator(const struct sy_sim_generator *g)
{
    if (g->rate > 0 && g->seconds > 0 && g->n_models >= 1 && g->n_models <= 100000 &&
        g->n_classes >= 1 && g->n_classes <= SY_SIM_MAX_CLASSES && g->swing <= 1 &&
        g->period_s > 0 && g->burst >= 1 && g->burst_every_s > 0 && g->burst_last_s > 0)
        return SY_OK;
    return sy_error_set(SY_EARG,
                        "generated requests: rate, seconds, period, burst-every and "
                        "burst-last above 0, 1 to 100000 models, 1 to %d classes, swing at "
                        "most 1, burst at least 1",
                        SY_SIM_MAX_CLASSES);
}

int sy_sim_generator_parse(const char *text, struct sy_sim_generator *out)
{
    char copy[512], *at = copy, *item;
    *out = (struct sy_sim_generator){.rate = 20,
                                     .seconds = 60,
                                     .zipf = 1,
                                     .period_s = 86400,
                                     .burst = 1,
                                     .burst_every_s = 30,
                                     .burst_last_s = 2,
                                     .n_models = 3,
                                     .n_classes = 1,
                                     .n_at_most = 50000000};
    if (strlen(text) >= sizeof copy)
        return sy_error_set(SY_EARG, "generator options of more than %zu letters", sizeof copy - 1);
    memcpy(copy, text, strlen(text) + 1);
    while ((item = strsep(&at, ","))) {
        char *equals = strchr(item, '='), *end = NULL;
        double value = equals ? strtod(equals + 1, &end) : -1;
        if (item[0] == '\0')
            continue;
        if (!equals || end == equals + 1 || *end || !(value >= 0))
            return sy_error_set(SY_EARG, "generator option %s: NAME=NUMBER, at least 0", item);
        *equals = '\0';
        SY_TRY(set_field(out, item, value));
    }
    return check_generator(out);
}

struct dice {
    uint64_t state;
};

static double roll(struct dice *d)
{
    uint64_t x = d->state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    return ((double)(x >> 11) + 0.5) * 0x1p-53;
}

static double *zipf_sums(const struct sy_sim_generator *g)
{
    double *sums = malloc((size_t)g->n_models * sizeof *sums), sum = 0;
    for (int i = 0; sums && i < g->n_models; i++)
        sums[i] = sum += pow(i + 1, -g->zipf);
    for (int i = 0; sums && i < g->n_models; i++)
        sums[i] /= sum;
    return sums;
}

static int32_t pick(const double *sums, int n, double x)
{
    int low = 0, high = n - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (sums[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct burst {
    double from_s, to_s;
};

static double rate_at(const struct sy_sim_generator *g, const struct burst *burst, double t)
{
    double rate = g->rate * (1 + g->swing * sin(2 * M_PI * t / g->period_s));
    return t >= burst->from_s && t < burst->to_s ? rate * g->burst : rate;
}

static void next_burst(const struct sy_sim_generator *g, struct burst *burst, struct dice *dice,
                       double t)
{
    while (t >= burst->to_s) {
        burst->from_s = burst->to_s - log(roll(dice)) * g->burst_every_s;
        burst->to_s = burst->from_s - log(roll(dice)) * g->burst_last_s;
    }
}

static struct sy_sim_request make_request(const struct sy_sim_generator *g, struct dice *dice,
                                          const double *sums, double t)
{
    struct sy_sim_request r = {.at_ns = ns_of(t), .model = pick(sums, g->n_models, roll(dice))};
    r.class_ = (int32_t)(roll(dice) * g->n_classes);
    r.deadline_ns = ns_of(g->deadline_ms / 1e3 * pow(10, r.class_));
    return r;
}

/* By thinning: candidates at the highest rate there can be, each kept with the part that the rate has of it. */
int sy_sim_generate(const struct sy_sim_generator *g, uint64_t seed, struct sy_sim_request **out,
                    uint64_t *n)
{
    struct dice dice = {seed * 0x9e3779b97f4a7c15ull + 0x1234567};
    struct burst burst = {0, 0};
    double most = g->rate * (1 + g->swing) * g->burst, *sums;
    uint64_t max = 0;
    SY_TRY(check_generator(g));
    sums = zipf_sums(g);
    *out = NULL;
    *n = 0;
    for (double t = 0; sums;) {
        t -= log(roll(&dice)) / most;
        if (t >= g->seconds || *n >= g->n_at_most)
            break;
        next_burst(g, &burst, &dice, t);
        if (roll(&dice) * most > rate_at(g, &burst, t))
            continue;
        if (*n == max) {
            max = max ? 2 * max : 1024;
            struct sy_sim_request *more = realloc(*out, max * sizeof *more);
            if (!more)
                goto no_memory;
            *out = more;
        }
        (*out)[(*n)++] = make_request(g, &dice, sums, t);
    }
    if (sums) {
        free(sums);
        return SY_OK;
    }
no_memory:
    free(sums);
    free(*out);
    *out = NULL;
    return sy_error_set(SY_ENOMEM_HOST, "no memory for generated requests");
}

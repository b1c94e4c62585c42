#include "runtime/sim/sim_slices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_csv.h"

/* ---- parsing ---- */

struct parts {
    struct sy_slice_wish wishes[SY_SLICE_PLAN_MAX];
    char *sizes[SY_SLICE_PLAN_MAX];
    uint64_t listed[SY_SLICE_PLAN_MAX][SY_SIM_MAX_CORES];
    uint64_t cores[SY_SIM_MAX_CORES];
    int owner[SY_SIM_MAX_CORES];
    int n;
};

/* A comma in front of a word with '=' is one between two slices, others are of a list of cores. */
static char *end_of_slice(char *at)
{
    char *comma = strchr(at, ',');
    while (comma) {
        size_t n = strcspn(comma + 1, ",=");
        if (comma[1 + n] == '=')
            return comma;
        comma = strchr(comma + 1, ',');
    }
    return at + strlen(at);
}

static int split(char *text, struct parts *p)
{
    for (char *at = text, *end, *size; *at; at = end) {
        end = end_of_slice(at);
        bool more = *end == ',';
        *end = '\0';
        end += more;
        size = strchr(at, '=');
        if (!size || size == at || !size[1] || (size_t)(size - at) >= SY_SLICE_NAME ||
            at[sy_printable_length(at)])
            return sy_error_set(SY_EARG, "slice '%.60s': NAME=SIZE is expected, like train=12", at);
        if (p->n == SY_SLICE_PLAN_MAX)
            return sy_error_set(SY_EARG, "more than %d slices", SY_SLICE_PLAN_MAX);
        snprintf(p->wishes[p->n].name, SY_SLICE_NAME, "%.*s", (int)(size - at), at);
        p->sizes[p->n++] = size + 1;
    }
    return SY_OK;
}

static int read_size(struct parts *p, int i)
{
    struct sy_slice_wish *w = &p->wishes[i];
    const char *size = p->sizes[i];
    w->listed = p->listed[i];
    if (*size == '@') {
        w->by = SY_SLICE_BY_LIST;
        return sy_slice_parse_cores(size + 1, p->listed[i], SY_SIM_MAX_CORES, &w->n_listed);
    }
    bool weighs = *size == 'w';
    char *end;
    double value = strtod(size + weighs, &end);
    bool share = *end == '%' && !weighs;
    if (end == size + weighs || end[share] || !(value > 0 && value <= 1e6) ||
        (!share && value != (double)(unsigned)value))
        return sy_error_set(SY_EARG, "slice '%s': '%.40s' is not a size: 2, 50%%, w3 or @0-3",
                            w->name, size);
    w->by = share ? SY_SLICE_BY_SHARE : weighs ? SY_SLICE_BY_WEIGHT : SY_SLICE_BY_COUNT;
    w->amount = (unsigned)(share ? SY_MAX(value * 10 + 0.5, 1) : value);
    return SY_OK;
}

static int plan(struct parts *p, int n_cores, struct sy_sim_slices *out)
{
    for (int i = 0; i < p->n; i++)
        SY_TRY(read_size(p, i));
    for (int i = 0; i < n_cores; i++)
        p->cores[i] = (uint64_t)i;
    SY_TRY(sy_slice_plan(p->wishes, p->n, p->cores, (size_t)n_cores, p->owner));
    *out = (struct sy_sim_slices){.n = p->n, .n_cores = n_cores};
    for (int i = 0; i < p->n; i++)
        snprintf(out->all[i].name, SY_SLICE_NAME, "%s", p->wishes[i].name);
    for (int i = 0; i < n_cores; i++)
        if (p->owner[i] >= 0)
            out->all[p->owner[i]].n_cores++;
    return SY_OK;
}

int sy_sim_slices_parse(const char *text, int n_cores, struct sy_sim_slices *out)
{
    if (n_cores < 1 || n_cores > SY_SIM_MAX_CORES)
        return sy_error_set(SY_EARG, "%d cores: 1 to %d", n_cores, SY_SIM_MAX_CORES);
    struct parts *p = calloc(1, sizeof *p);
    char *copy = strdup(text);
    int status = p && copy ? split(copy, p) : sy_error_set(SY_ENOMEM_HOST, "no memory for slices");
    if (status == SY_OK)
        status = plan(p, n_cores, out);
    free(copy);
    free(p);
    return status;
}

/* ---- cutting ---- */

static int cut_one(const struct sy_sim_slices *slices, const struct sy_sim_kind *whole, int slice,
                   struct sy_sim_kind *out)
{
    const struct sy_sim_slice *c = &slices->all[slice];
    double part = (double)c->n_cores / slices->n_cores;
    *out = *whole;
    int n = snprintf(out->name, sizeof out->name, "%s%s%s", whole->name, whole->name[0] ? "/" : "",
                     c->name);
    if (n >= (int)sizeof out->name)
        return sy_error_set(SY_EARG,
                            "device %s, slice %s: both names together are at most %zu bytes",
                            whole->name, c->name, sizeof out->name - 2);
    out->speed = whole->speed * part;
    out->pool_bytes = (uint64_t)((double)whole->pool_bytes * part);
    return SY_OK;
}

int sy_sim_slices_cut(const struct sy_sim_slices *slices, const struct sy_sim_kind *kinds, int n,
                      struct sy_sim_kind **out, int *n_out)
{
    *n_out = n * slices->n;
    if (*n_out > SY_SIM_MAX_KINDS)
        return sy_error_set(SY_EARG, "%d kinds of devices in %d slices: at most %d together", n,
                            slices->n, SY_SIM_MAX_KINDS);
    *out = calloc((size_t)*n_out, sizeof **out);
    if (!*out)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d kinds of devices", *n_out);
    for (int i = 0; i < *n_out; i++) {
        int status = cut_one(slices, &kinds[i / slices->n], i % slices->n, &(*out)[i]);
        if (status == SY_OK)
            continue;
        free(*out);
        *out = NULL;
        return status;
    }
    return SY_OK;
}

/* ---- slices of tasks ---- */

static int find(const struct sy_sim_slices *slices, const char *name)
{
    for (int i = 0; i < slices->n; i++)
        if (strcmp(slices->all[i].name, name) == 0)
            return i;
    return -1;
}

static int place(const struct sy_sim_slices *slices, const char *own, const char *usual,
                 const char *what, const char *name, int *out)
{
    const char *wanted = *own ? own : usual;
    *out = *wanted ? find(slices, wanted) : 0;
    if (*out >= 0)
        return SY_OK;
    return sy_error_set(SY_EARG, "%s %s: there is no slice '%s'", what, name, wanted);
}

int sy_sim_slices_place_models(const struct sy_sim_slices *slices, const char *usual,
                               struct sy_sim_model *models, int n)
{
    for (int i = 0; i < n; i++)
        SY_TRY(
            place(slices, models[i].slice_name, usual, "model", models[i].name, &models[i].slice));
    return SY_OK;
}

int sy_sim_slices_place_jobs(const struct sy_sim_slices *slices, const char *usual,
                             struct sy_sim_job *jobs, int n)
{
    for (int i = 0; i < n; i++)
        SY_TRY(place(slices, jobs[i].slice_name, usual, "job", jobs[i].name, &jobs[i].slice));
    return SY_OK;
}

/* ---- pairs ---- */

static int pair_row(const struct sy_csv *csv, void *element, void *ctx)
{
    struct sy_sim_pair *p = element;
    (void)ctx;
    SY_TRY(sy_csv_word(csv, 0, p->task, sizeof p->task));
    SY_TRY(sy_csv_word(csv, 1, p->beside, sizeof p->beside));
    SY_TRY(sy_csv_number(csv, 2, 1, &p->slowdown));
    if (p->slowdown >= 0.1 && p->slowdown <= 100)
        return SY_OK;
    return sy_error_set(SY_EARG, "%s:%d: slowdown is %s, not a number from 0.1 to 100", csv->path,
                        csv->n_lines, csv->fields[2]);
}

int sy_sim_read_pairs(const char *path, struct sy_sim_pair **out, int *n)
{
    static const struct sy_csv_column columns[] = {
        {"task", true}, {"beside", true}, {"slowdown", true}};
    void *all;
    SY_TRY(
        sy_csv_read(path, columns, SY_ARRAY_LEN(columns), sizeof **out, pair_row, NULL, &all, n));
    *out = all;
    return SY_OK;
}

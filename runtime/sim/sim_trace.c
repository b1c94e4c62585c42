#include "runtime/sim/sim_trace.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_csv.h"

#define MIN_FACTOR 1e-12 /* lower bound for a slow link */

/* ---- tenants ---- */

static int find_tenant(const struct sy_sim_tenants *tenants, const char *name)
{
    for (int i = 0; i < tenants->n; i++)
        if (strcmp(tenants->all[i].name, name) == 0)
            return i;
    return -1;
}

/* They are shown on terminals and in JSON, by name. */
static int check_shown(const struct sy_csv *csv, const char *name)
{
    if (name[sy_printable_length(name)] == '\0')
        return SY_OK;
    return sy_error_set(SY_EARG, "%s:%d: a name has no control characters, and is UTF-8", csv->path,
                        csv->n_lines);
}

static int add_tenant(struct sy_sim_tenants *tenants, const char *name)
{
    if (tenants->n == SY_SIM_MAX_TENANTS)
        return sy_error_set(SY_EARG, "tenant %s: there are %d already", name, SY_SIM_MAX_TENANTS);
    snprintf(tenants->all[tenants->n].name, sizeof tenants->all[0].name, "%s", name);
    return tenants->n++;
}

/* A tenant without a row is elastic, and without a limit. */
static int take_tenant(struct sy_sim_tenants *tenants, const char *name, int *out)
{
    *out = find_tenant(tenants, name);
    if (*out < 0)
        *out = add_tenant(tenants, name);
    return SY_MIN(*out, SY_OK);
}

int sy_sim_default_tenant(struct sy_sim_tenants *tenants, int *out)
{
    return take_tenant(tenants, "default", out);
}

static int in_line(const struct sy_csv *csv, int status)
{
    char why[512];
    if (status == SY_OK)
        return SY_OK;
    snprintf(why, sizeof why, "%s", sy_error_text());
    return sy_error_set(status, "%s:%d: %s", csv->path, csv->n_lines, why);
}

static int tenant(const struct sy_csv *csv, int column, struct sy_sim_tenants *tenants, int *out)
{
    char name[SY_SIM_NAME_BYTES];
    if (csv->fields[column][0] == '\0')
        return in_line(csv, sy_sim_default_tenant(tenants, out));
    SY_TRY(sy_csv_word(csv, column, name, sizeof name));
    SY_TRY(check_shown(csv, name));
    return in_line(csv, take_tenant(tenants, name, out));
}

static int tenant_row(const struct sy_csv *csv, void *element, void *ctx)
{
    struct sy_sim_tenants *tenants = ctx;
    char name[SY_SIM_NAME_BYTES];
    double weight, hard_share, mb;
    (void)element;
    SY_TRY(sy_csv_word(csv, 0, name, sizeof name));
    SY_TRY(check_shown(csv, name));
    SY_TRY(sy_csv_counted(csv, 1, 1, 1e6, &weight));
    SY_TRY(sy_csv_number(csv, 2, 0, &hard_share));
    SY_TRY(sy_csv_number(csv, 3, 0, &mb));
    if (hard_share > 1 || (hard_share > 0 && hard_share < 0.001))
        return sy_error_set(SY_EARG, "%s:%d: hard_share is %s, not 0 or a number from 0.001 to 1",
                            csv->path, csv->n_lines, csv->fields[2]);
    if (mb > 0 && mb < 1e-6)
        return sy_error_set(SY_EARG, "%s:%d: memory_mb is %s, less than a byte", csv->path,
                            csv->n_lines, csv->fields[3]);
    if (find_tenant(tenants, name) >= 0)
        return sy_error_set(SY_EARG, "%s:%d: a second tenant is called %s", csv->path, csv->n_lines,
                            name);
    int at = 0;
    SY_TRY(in_line(csv, take_tenant(tenants, name, &at)));
    tenants->all[at].weight = (unsigned)weight;
    tenants->all[at].hard_permille = (unsigned)(hard_share * 1000 + 0.5);
    tenants->all[at].memory_bytes = (uint64_t)(mb * 1e6);
    return SY_OK;
}

int sy_sim_read_tenants(const char *path, struct sy_sim_tenants *tenants)
{
    static const struct sy_csv_column columns[] = {
        {"tenant", true}, {"weight", false}, {"hard_share", false}, {"memory_mb", false}};
    void *none;
    int n;
    SY_TRY(sy_csv_read(path, columns, SY_ARRAY_LEN(columns), 1, tenant_row, tenants, &none, &n));
    free(none);
    return SY_OK;
}

/* A slice name (runtime/sim/sim_slices.h); empty: the default slice. */
static int slice_name(const struct sy_csv *csv, int column, char *out)
{
    if (csv->fields[column][0] == '\0')
        return SY_OK;
    return sy_csv_word(csv, column, out, SY_SLICE_NAME);
}

/* ---- models ---- */

/* Milliseconds with spaces between. */
static int samples(const struct sy_csv *csv, int column, struct sy_sim_model *m)
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

static int model_row(const struct sy_csv *csv, void *element, void *ctx)
{
    struct sy_sim_model *m = element;
    double mb, groups;
    SY_TRY(sy_csv_word(csv, 0, m->name, sizeof m->name));
    SY_TRY(sy_csv_number(csv, 1, 0, &mb));
    SY_TRY(sy_csv_lasting(csv, 2, 1e-3, &m->compute_ns));
    SY_TRY(sy_csv_counted(csv, 3, 16, 1e6, &groups));
    m->bytes = (uint64_t)(mb * 1e6);
    m->n_groups = (int)groups;
    SY_TRY(tenant(csv, 5, ctx, &m->tenant));
    SY_TRY(slice_name(csv, 6, m->slice_name));
    SY_TRY(sy_csv_duration(csv, 7, 1e-3, &m->outside_ns));
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

int sy_sim_read_models(const char *path, struct sy_sim_tenants *tenants, struct sy_sim_model **out,
                       int *n)
{
    static const struct sy_csv_column columns[] = {
        {"model", true},       {"mb", true},      {"compute_ms", true}, {"groups", false},
        {"samples_ms", false}, {"tenant", false}, {"slice", false},     {"outside_ms", false}};
    void *all;
    SY_TRY(sy_csv_read(path, columns, SY_ARRAY_LEN(columns), sizeof **out, model_row, tenants, &all,
                       n));
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

/* ---- devices ---- */

static int device_row(const struct sy_csv *csv, void *element, void *ctx)
{
    struct sy_sim_kind *k = element;
    double n, mb, unified;
    *k = *(const struct sy_sim_kind *)ctx;
    SY_TRY(sy_csv_word(csv, 0, k->name, sizeof k->name));
    SY_TRY(check_shown(csv, k->name));
    SY_TRY(sy_csv_counted(csv, 1, 1, 1e6, &n));
    SY_TRY(sy_csv_number(csv, 2, (double)k->pool_bytes / 1e6, &mb));
    SY_TRY(sy_csv_number(csv, 3, k->link_gbps, &k->link_gbps));
    SY_TRY(sy_csv_number(csv, 4, k->lost_ns_per_byte, &k->lost_ns_per_byte));
    SY_TRY(sy_csv_whole(csv, 5, k->unified, 1, &unified));
    SY_TRY(sy_csv_number(csv, 6, k->speed, &k->speed));
    SY_TRY(sy_csv_number(csv, 7, k->contention, &k->contention));
    k->n_devices = (int)n;
    k->pool_bytes = csv->fields[2][0] ? (uint64_t)(mb * 1e6) : k->pool_bytes;
    k->unified = unified > 0;
    return in_line(csv, sy_sim_check_kind(k));
}

static int check_kinds(const char *path, const struct sy_sim_kind *kinds, int n)
{
    if (n < 1 || n > SY_SIM_MAX_KINDS)
        return sy_error_set(SY_EARG, "%s describes %d kinds of devices: 1 to %d", path, n,
                            SY_SIM_MAX_KINDS);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(kinds[i].name, kinds[k].name) == 0)
                return sy_error_set(SY_EARG, "%s: two kinds of devices are called %s", path,
                                    kinds[i].name);
    return SY_OK;
}

int sy_sim_read_devices(const char *path, const struct sy_sim_kind *otherwise,
                        struct sy_sim_kind **out, int *n)
{
    static const struct sy_csv_column columns[] = {{"device", true},
                                                   {"count", false},
                                                   {"pool_mb", false},
                                                   {"link_gbps", false},
                                                   {"lost_ns_per_byte", false},
                                                   {"unified", false},
                                                   {"speed", false},
                                                   {"contention", false}};
    struct sy_sim_kind base = *otherwise;
    void *all;
    SY_TRY(sy_csv_read(path, columns, SY_ARRAY_LEN(columns), sizeof **out, device_row, &base, &all,
                       n));
    int status = check_kinds(path, all, *n);
    *out = status == SY_OK ? all : NULL;
    if (status < 0)
        free(all);
    return status;
}

/* ---- jobs ---- */

static int job_row(const struct sy_csv *csv, void *element, void *ctx)
{
    struct sy_sim_job *j = element;
    double n, mb[2], priority, weight;
    SY_TRY(sy_csv_word(csv, 0, j->name, sizeof j->name));
    SY_TRY(sy_csv_duration(csv, 1, 1, &j->submit_ns));
    SY_TRY(sy_csv_counted(csv, 2, 0, 1e12, &n));
    SY_TRY(sy_csv_lasting(csv, 3, 1e-3, &j->iteration_ns));
    SY_TRY(sy_csv_number(csv, 4, 0, &mb[0]));
    SY_TRY(sy_csv_number(csv, 5, 0, &mb[1]));
    SY_TRY(sy_csv_number(csv, 6, 1, &j->utilization));
    if (j->utilization > 1)
        return sy_error_set(SY_EARG, "%s:%d: utilization is %s, not a number from 0 to 1",
                            csv->path, csv->n_lines, csv->fields[6]);
    SY_TRY(tenant(csv, 7, ctx, &j->tenant));
    SY_TRY(sy_csv_whole_from(csv, 8, -1e6, 0, 1e6, &priority));
    SY_TRY(sy_csv_whole(csv, 9, 0, 1e6, &weight));
    SY_TRY(slice_name(csv, 10, j->slice_name));
    j->iterations = (uint64_t)n;
    j->persistent_bytes = (uint64_t)(mb[0] * 1e6);
    j->ephemeral_bytes = (uint64_t)(mb[1] * 1e6);
    j->priority = (int)priority;
    j->weight = (unsigned)weight;
    return SY_OK;
}

int sy_sim_read_jobs(const char *path, struct sy_sim_tenants *tenants, struct sy_sim_job **out,
                     int *n)
{
    static const struct sy_csv_column columns[] = {
        {"name", true},         {"submit_s", true},      {"iterations", true},
        {"iteration_ms", true}, {"persistent_mb", true}, {"ephemeral_mb", true},
        {"utilization", false}, {"tenant", false},       {"priority", false},
        {"weight", false},      {"slice", false}};
    void *all;
    SY_TRY(
        sy_csv_read(path, columns, SY_ARRAY_LEN(columns), sizeof **out, job_row, tenants, &all, n));
    SY_TRY(sy_csv_sort_or_free(all, (uint64_t)*n, sizeof **out,
                               offsetof(struct sy_sim_job, submit_ns), path));
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

static int find_model(const struct sy_csv *csv, int column, struct names *names, int32_t *out)
{
    const char *name = csv->fields[column];
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

static int request_row(const struct sy_csv *csv, void *element, void *ctx)
{
    struct sy_sim_request *r = element;
    double class_;
    SY_TRY(sy_csv_duration(csv, 0, 1, &r->at_ns));
    SY_TRY(find_model(csv, 1, ctx, &r->model));
    SY_TRY(sy_csv_whole(csv, 2, 0, SY_SIM_MAX_CLASSES - 1, &class_));
    SY_TRY(sy_csv_duration(csv, 3, 1e-3, &r->deadline_ns));
    SY_TRY(sy_csv_duration(csv, 4, 1e-3, &r->served_ns));
    r->class_ = (int32_t)class_;
    return SY_OK;
}

int sy_sim_read_requests(const char *path, const struct sy_sim_model *models, int n_models,
                         struct sy_sim_request **out, uint64_t *n)
{
    static const struct sy_csv_column columns[] = {{"time_s", true},
                                                   {"model", true},
                                                   {"class", false},
                                                   {"deadline_ms", false},
                                                   {"served_ms", false}};
    struct names names = {.models = models, .n_models = n_models};
    void *all;
    SY_TRY(sort_names(path, models, n_models, &names.by_name));
    int status = sy_csv_read_all(path, columns, SY_ARRAY_LEN(columns), sizeof **out, request_row,
                                 &names, &all, n);
    free(names.by_name);
    SY_TRY(status);
    SY_TRY(
        sy_csv_sort_or_free(all, *n, sizeof **out, offsetof(struct sy_sim_request, at_ns), path));
    *out = all;
    return SY_OK;
}

/* ---- profiles ---- */

struct profiled {
    struct names names;
    const struct sy_sim_kind *kinds;
    int n_kinds;
};

static int find_kind(const struct sy_csv *csv, const struct profiled *of, int *out)
{
    for (int i = 0; i < of->n_kinds; i++)
        if (strcmp(of->kinds[i].name, csv->fields[1]) == 0) {
            *out = i;
            return SY_OK;
        }
    return sy_error_set(SY_EARG, "%s:%d: no device %s among the %d kinds that are described",
                        csv->path, csv->n_lines, csv->fields[1][0] ? csv->fields[1] : "\"\"",
                        of->n_kinds);
}

static int profile_row(const struct sy_csv *csv, void *element, void *ctx)
{
    struct sy_sim_profile *p = element;
    double groups;
    SY_TRY(find_model(csv, 0, &((struct profiled *)ctx)->names, &p->model));
    SY_TRY(find_kind(csv, ctx, &p->kind));
    SY_TRY(sy_csv_lasting(csv, 2, 1e-3, &p->compute_ns));
    SY_TRY(sy_csv_whole(csv, 3, 0, 1e6, &groups));
    p->n_groups = (int)groups;
    return SY_OK;
}

int sy_sim_read_profiles(const char *path, const struct sy_sim_input *in,
                         const struct sy_sim_config *config, struct sy_sim_profile **out, int *n)
{
    static const struct sy_csv_column columns[] = {
        {"model", true}, {"device", true}, {"compute_ms", true}, {"groups", false}};
    struct profiled of = {{.models = in->models, .n_models = in->n_models},
                          config->n_kinds > 0 ? config->kinds : &config->device,
                          SY_MAX(config->n_kinds, 1)};
    void *all;
    SY_TRY(sort_names(path, in->models, in->n_models, &of.names.by_name));
    int status =
        sy_csv_read(path, columns, SY_ARRAY_LEN(columns), sizeof **out, profile_row, &of, &all, n);
    free(of.names.by_name);
    *out = status == SY_OK ? all : NULL;
    return status;
}

/* ---- faults ---- */

static int fault_row(const struct sy_csv *csv, void *element, void *ctx)
{
    struct sy_sim_fault *f = element;
    double device;
    (void)ctx;
    SY_TRY(sy_csv_duration(csv, 0, 1, &f->at_ns));
    SY_TRY(sy_csv_whole(csv, 1, 0, 1e6, &device));
    SY_TRY(sy_csv_duration(csv, 3, 1, &f->duration_ns));
    SY_TRY(sy_csv_number(csv, 4, 1, &f->factor));
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
    static const struct sy_csv_column columns[] = {{"time_s", true},
                                                   {"device", true},
                                                   {"kind", true},
                                                   {"duration_s", true},
                                                   {"factor", false}};
    void *all;
    SY_TRY(
        sy_csv_read(path, columns, SY_ARRAY_LEN(columns), sizeof **out, fault_row, NULL, &all, n));
    SY_TRY(sy_csv_sort_or_free(all, (uint64_t)*n, sizeof **out,
                               offsetof(struct sy_sim_fault, at_ns), path));
    *out = all;
    return SY_OK;
}

#include "runtime/sim/sim_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "runtime/base/assert.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"

#define FIRST_BIN_NS (100 * SY_NS_PER_MS)

struct sy_sim_report *sy_sim_report_new(void)
{
    struct sy_sim_report *r = calloc(1, sizeof *r);
    if (r)
        r->bin_ns = FIRST_BIN_NS;
    return r;
}

void sy_sim_report_free(struct sy_sim_report *r)
{
    if (!r)
        return;
    free(r->jct_s);
    free(r->job_rate);
    free(r->kinds);
    free(r);
}

int sy_sim_report_add_kind(struct sy_sim_report *r, const char *name, int n_devices)
{
    struct sy_sim_kind_use *kinds = realloc(r->kinds, ((size_t)r->n_kinds + 1) * sizeof *kinds);
    if (!kinds)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a report of %d kinds of devices",
                            r->n_kinds + 1);
    r->kinds = kinds;
    kinds[r->n_kinds] = (struct sy_sim_kind_use){.n_devices = n_devices};
    snprintf(kinds[r->n_kinds].name, sizeof kinds->name, "%s", name);
    r->n_kinds++;
    r->n_devices += n_devices;
    return SY_OK;
}

void sy_sim_note_refused_job(struct sy_sim_report *r, const char *why)
{
    if (r->n_jobs_refused++ == 0)
        snprintf(r->refusal, sizeof r->refusal, "%s", why);
}

void sy_sim_note_refused_model(struct sy_sim_report *r, const char *why)
{
    if (r->n_models_refused++ == 0)
        snprintf(r->model_refusal, sizeof r->model_refusal, "%s", why);
}

/* ---- histogram: steps of equal ratio ---- */

static int bucket_of(sy_ns ns)
{
    if (ns < SY_SIM_STEPS)
        return (int)ns;
    int octave = 63 - __builtin_clzll(ns), shift = octave - 7;
    int at = (shift + 1) * SY_SIM_STEPS + (int)((ns >> shift) - SY_SIM_STEPS);
    return SY_MIN(at, SY_SIM_OCTAVES * SY_SIM_STEPS - 1);
}

static double middle_of(int bucket)
{
    int shift = bucket / SY_SIM_STEPS - 1;
    if (shift < 0)
        return bucket;
    return ((double)(bucket % SY_SIM_STEPS + SY_SIM_STEPS) + 0.5) * (double)(1ull << shift);
}

void sy_sim_note_latency(struct sy_sim_report *r, int class_, sy_ns ns)
{
    struct sy_sim_histogram *h = &r->latency[class_];
    h->n++;
    h->sum_ns += ns;
    h->counts[bucket_of(ns)]++;
}

double sy_sim_mean_ms(const struct sy_sim_histogram *h)
{
    return h->n ? (double)h->sum_ns / (double)h->n / 1e6 : 0;
}

double sy_sim_quantile_ms(const struct sy_sim_histogram *h, double q)
{
    uint64_t rank = (uint64_t)ceil(q * (double)h->n), seen = 0;
    for (int i = 0; i < SY_SIM_OCTAVES * SY_SIM_STEPS; i++) {
        seen += h->counts[i];
        if (seen > 0 && seen >= rank)
            return middle_of(i) / 1e6;
    }
    return 0;
}

/* ---- time line ---- */

static void widen(struct sy_sim_report *r)
{
    for (int i = 0; i < SY_SIM_BINS; i++)
        for (int use = 0; use < SY_SIM_N_USES; use++)
            r->bins[i][use] =
                i < SY_SIM_BINS / 2 ? r->bins[2 * i][use] + r->bins[2 * i + 1][use] : 0;
    r->bin_ns *= 2;
}

void sy_sim_note_use(struct sy_sim_report *r, int kind, enum sy_sim_use use, sy_ns from, sy_ns to)
{
    if (to <= from)
        return;
    r->used_ns[use] += to - from;
    r->kinds[kind].used_ns[use] += to - from;
    while (to > r->bin_ns * SY_SIM_BINS)
        widen(r);
    for (sy_ns at = from; at < to;) {
        sy_ns bin = at / r->bin_ns, end = SY_MIN((bin + 1) * r->bin_ns, to);
        r->bins[bin][use] += (double)(end - at);
        at = end;
    }
}

/* ---- jobs ---- */

double sy_sim_jct_mean_s(const struct sy_sim_report *r)
{
    double sum = 0;
    for (int i = 0; i < r->n_jct; i++)
        sum += r->jct_s[i];
    return r->n_jct ? sum / r->n_jct : 0;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *sorted_jct(const struct sy_sim_report *r)
{
    double *sorted = malloc(((size_t)r->n_jct + 1) * sizeof *sorted);
    if (!sorted || r->n_jct == 0)
        return sorted;
    memcpy(sorted, r->jct_s, (size_t)r->n_jct * sizeof *sorted);
    qsort(sorted, (size_t)r->n_jct, sizeof *sorted, compare_double);
    return sorted;
}

double sy_sim_jct_quantile_s(const struct sy_sim_report *r, double q)
{
    double *sorted = sorted_jct(r), value = 0;
    if (sorted && r->n_jct > 0)
        value = sorted[(int)SY_MAX(ceil(q * r->n_jct) - 1, 0)];
    free(sorted);
    return value;
}

double sy_sim_jain(const struct sy_sim_report *r)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < r->n_rates; i++) {
        sum += r->job_rate[i];
        squares += r->job_rate[i] * r->job_rate[i];
    }
    return r->n_rates > 1 && squares > 0 ? sum * sum / (r->n_rates * squares) : 1;
}

/* ---- printing ---- */

static double share(const struct sy_sim_report *r, double ns)
{
    double all = (double)r->makespan_ns * r->n_devices;
    return all > 0 ? ns / all : 0;
}

/* 21 of them, 0 to 100 %; empty without jobs. */
static json_t *jct_quantiles(const struct sy_sim_report *r)
{
    json_t *list = json_array();
    double *sorted = r->n_jct > 0 ? sorted_jct(r) : NULL;
    for (int i = 0; i <= 20 && sorted; i++)
        json_array_append_new(list, json_real(sorted[(r->n_jct - 1) * (int64_t)i / 20]));
    free(sorted);
    return list;
}

static void name_of_tenant(const struct sy_sim_report *r, int tenant, char out[SY_SIM_NAME_BYTES])
{
    if (*r->tenant_names[tenant])
        memcpy(out, r->tenant_names[tenant], SY_SIM_NAME_BYTES);
    else
        snprintf(out, SY_SIM_NAME_BYTES, "%d", tenant);
    sy_printable_make(out);
}

/* Share of the time of all devices of a kind. */
static double share_of_kind(const struct sy_sim_report *r, const struct sy_sim_kind_use *kind,
                            enum sy_sim_use use)
{
    double all = (double)r->makespan_ns * kind->n_devices;
    return all > 0 ? (double)kind->used_ns[use] / all : 0;
}

static json_t *kinds_of(const struct sy_sim_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_kinds; i++) {
        const struct sy_sim_kind_use *kind = &r->kinds[i];
        double requests = share_of_kind(r, kind, SY_SIM_USE_REQUESTS);
        double jobs = share_of_kind(r, kind, SY_SIM_USE_JOBS);
        char name[SY_SIM_NAME_BYTES];
        memcpy(name, kind->name, sizeof name);
        sy_printable_make(name);
        json_array_append_new(list, json_pack("{s:s, s:i, s:f, s:f, s:f}", "device", name, "n",
                                              kind->n_devices, "requests", requests, "jobs", jobs,
                                              "idle", 1 - requests - jobs));
    }
    return list;
}

static json_t *shares_of(const struct sy_sim_report *r)
{
    json_t *tenants = json_object(), *shares;
    double busy = 0;
    for (int i = 0; i < SY_SIM_N_USES; i++)
        busy += (double)r->used_ns[i];
    for (int i = 0; i < SY_SIM_MAX_TENANTS; i++) {
        char name[SY_SIM_NAME_BYTES];
        name_of_tenant(r, i, name);
        if (r->tenant_ns[i] > 0)
            json_object_set_new(tenants, name, json_real(share(r, (double)r->tenant_ns[i])));
    }
    shares = json_pack("{s:f, s:f, s:f, s:o}", "requests",
                       share(r, (double)r->used_ns[SY_SIM_USE_REQUESTS]), "jobs",
                       share(r, (double)r->used_ns[SY_SIM_USE_JOBS]), "idle", 1 - share(r, busy),
                       "tenants", tenants);
    return shares;
}

/* Names come from files, and a text may be cut within a letter. */
static void set_text(json_t *answer, const char *key, const char *text)
{
    char shown[512];
    snprintf(shown, sizeof shown, "%s", text);
    sy_printable_make(shown);
    json_object_set_new(answer, key, json_string(shown));
}

int sy_sim_print_json(const struct sy_sim_report *r, double wall_s, FILE *to)
{
    json_t *latency = json_object();
    for (int i = 0; i < SY_SIM_MAX_CLASSES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        if (r->latency[i].n > 0)
            json_object_set_new(latency, name,
                                json_pack("{s:f, s:f, s:f, s:I}", "mean",
                                          sy_sim_mean_ms(&r->latency[i]), "p50",
                                          sy_sim_quantile_ms(&r->latency[i], 0.5), "p99",
                                          sy_sim_quantile_ms(&r->latency[i], 0.99), "n",
                                          (json_int_t)r->latency[i].n));
    }
    json_t *answer = json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:{s:f, s:f, s:f, s:i, s:I, s:o}, s:f, "
        "s:o, "
        "s:f, "
        "s:{s:I, s:I, s:I, s:I}}",
        "latency_ms", latency, "requests", (json_int_t)r->n_requests, "refused",
        (json_int_t)r->n_refused, "late", (json_int_t)r->n_late, "failed", (json_int_t)r->n_failed,
        "swaps", (json_int_t)r->n_swaps, "bytes", (json_int_t)r->moved_bytes, "faults",
        (json_int_t)r->n_faults, "events", (json_int_t)r->n_events, "events_per_s",
        wall_s > 0 ? (double)r->n_events / wall_s : 0.0, "jct_s", "mean", sy_sim_jct_mean_s(r),
        "p95", sy_sim_jct_quantile_s(r, 0.95), "queue_mean", r->n_jct ? r->queue_s / r->n_jct : 0.0,
        "n", r->n_jct, "refused", (json_int_t)r->n_jobs_refused, "quantiles", jct_quantiles(r),
        "makespan_s", (double)r->makespan_ns / 1e9, "shares", shares_of(r), "jain", sy_sim_jain(r),
        "lanes", "moves", (json_int_t)r->n_lane_moves, "copied_bytes", (json_int_t)r->copied_bytes,
        "regrouped", (json_int_t)r->n_regrouped, "spilled_bytes", (json_int_t)r->spilled_bytes);
    if (answer && *r->refusal)
        set_text(answer, "first_refusal", r->refusal);
    if (answer && *r->model_refusal)
        set_text(answer, "first_refused_model", r->model_refusal);
    if (answer) {
        json_object_set_new(answer, "busy", json_integer((json_int_t)r->n_busy));
        json_object_set_new(answer, "models_refused",
                            json_integer((json_int_t)r->n_models_refused));
        json_object_set_new(answer, "not_loaded", json_integer((json_int_t)r->n_not_loaded));
        json_object_set_new(answer, "devices", kinds_of(r));
    }
    int written = answer ? json_dumpf(answer, to, JSON_INDENT(2)) : -1;
    json_decref(answer);
    if (written < 0 || fputc('\n', to) == EOF)
        return sy_error_set(SY_EIO, "cannot write the answer");
    return SY_OK;
}

static void print_requests(const struct sy_sim_report *r, FILE *to)
{
    fprintf(to, "requests     %llu: %llu done, %llu refused, %llu late, %llu failed\n",
            (unsigned long long)r->n_requests, (unsigned long long)r->n_done,
            (unsigned long long)r->n_refused, (unsigned long long)r->n_late,
            (unsigned long long)r->n_failed);
    if (r->n_refused > r->n_not_loaded)
        fprintf(to,
                "  refused    %llu since by prediction they, or others for them, would be late; "
                "%llu since the queue or the tensors' memory was full\n",
                (unsigned long long)(r->n_refused - r->n_busy - r->n_not_loaded),
                (unsigned long long)r->n_busy);
    if (r->n_models_refused > 0)
        fprintf(
            to,
            "  no device  has %llu of the models, over their tenants' quotas; %llu requests for "
            "them were refused\n             the first: %s\n",
            (unsigned long long)r->n_models_refused, (unsigned long long)r->n_not_loaded,
            r->model_refusal);
    for (int i = 0; i < SY_SIM_MAX_CLASSES; i++)
        if (r->latency[i].n > 0)
            fprintf(to, "  class %d    mean %.3f ms, p50 %.3f ms, p99 %.3f ms of %llu\n", i,
                    sy_sim_mean_ms(&r->latency[i]), sy_sim_quantile_ms(&r->latency[i], 0.5),
                    sy_sim_quantile_ms(&r->latency[i], 0.99), (unsigned long long)r->latency[i].n);
    fprintf(to, "swaps        %llu, %.3f GB over the link\n", (unsigned long long)r->n_swaps,
            (double)r->moved_bytes / 1e9);
}

/* Printed only with several tenants. */
static void print_tenants(const struct sy_sim_report *r, FILE *to)
{
    int n = 0;
    for (int i = 0; i < SY_SIM_MAX_TENANTS; i++)
        n += r->tenant_ns[i] > 0;
    for (int i = 0; i < SY_SIM_MAX_TENANTS && n > 1; i++) {
        char name[SY_SIM_NAME_BYTES];
        name_of_tenant(r, i, name);
        if (r->tenant_ns[i] > 0)
            fprintf(to, "  tenant     %s: %.1f %%\n", name,
                    100 * share(r, (double)r->tenant_ns[i]));
    }
}

int sy_sim_print_text(const struct sy_sim_report *r, double wall_s, FILE *to)
{
    if (r->n_requests > 0)
        print_requests(r, to);
    if (r->n_jobs > 0)
        fprintf(
            to,
            "jobs         %d done, %llu refused: completion mean %.1f s, p95 %.1f s, queue %.1f "
            "s\n             Jain index %.4f; lanes moved %llu times, %llu bytes copied\n",
            r->n_jct, (unsigned long long)r->n_jobs_refused, sy_sim_jct_mean_s(r),
            sy_sim_jct_quantile_s(r, 0.95), r->n_jct ? r->queue_s / r->n_jct : 0.0, sy_sim_jain(r),
            (unsigned long long)r->n_lane_moves, (unsigned long long)r->copied_bytes);
    if (*r->refusal)
        fprintf(to, "             the first that was refused: %s\n", r->refusal);
    fprintf(to, "makespan     %.1f s on %d device%s: requests %.1f %%, jobs %.1f %%\n",
            (double)r->makespan_ns / 1e9, r->n_devices, r->n_devices == 1 ? "" : "s",
            100 * share(r, (double)r->used_ns[SY_SIM_USE_REQUESTS]),
            100 * share(r, (double)r->used_ns[SY_SIM_USE_JOBS]));
    for (int i = 0; i < r->n_kinds && r->n_kinds > 1; i++)
        fprintf(to, "  %-10s %d: requests %.1f %%, jobs %.1f %%\n", r->kinds[i].name,
                r->kinds[i].n_devices, 100 * share_of_kind(r, &r->kinds[i], SY_SIM_USE_REQUESTS),
                100 * share_of_kind(r, &r->kinds[i], SY_SIM_USE_JOBS));
    print_tenants(r, to);
    fprintf(to, "events       %llu, %.2f million a second\n", (unsigned long long)r->n_events,
            wall_s > 0 ? (double)r->n_events / wall_s / 1e6 : 0);
    return ferror(to) ? sy_error_set(SY_EIO, "cannot write the answer") : SY_OK;
}

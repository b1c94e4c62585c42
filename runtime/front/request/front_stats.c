#include "runtime/front/request/front_stats.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MOST_MODELS 4096 /* names and versions; the statistics of more are not kept */

struct entry {
    struct sy_front_model_stats of; /* of.batches: what `batches` has */
    struct sy_front_batch_stats *batches;
    int batch_capacity;
    char name[SY_CORE_MODEL_NAME];
};

struct sy_front_stats {
    struct entry **entries;
    int n, capacity;
    int latest; /* found or added last: requests come in runs of one model */
};

int sy_front_stats_create(struct sy_front_stats **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for statistics");
}

void sy_front_stats_destroy(struct sy_front_stats *stats)
{
    if (!stats)
        return;
    for (int i = 0; i < stats->n; i++) {
        free(stats->entries[i]->batches);
        free(stats->entries[i]);
    }
    free(stats->entries);
    free(stats);
}

static bool is_of(const struct entry *entry, const char *name, int64_t version)
{
    return entry->of.version == version && strcmp(entry->name, name) == 0;
}

static int find(const struct sy_front_stats *stats, const char *name, int64_t version)
{
    if (stats->latest < stats->n && is_of(stats->entries[stats->latest], name, version))
        return stats->latest;
    for (int i = 0; i < stats->n; i++)
        if (is_of(stats->entries[i], name, version))
            return i;
    return -1;
}

static bool make_place(struct sy_front_stats *stats)
{
    int capacity = SY_MAX(2 * stats->capacity, 16);
    struct entry **entries;

    if (stats->n < stats->capacity)
        return true;
    if (stats->n == MOST_MODELS)
        return false;
    entries = realloc(stats->entries, (size_t)capacity * sizeof(*entries));
    if (!entries)
        return false;
    stats->entries = entries;
    stats->capacity = capacity;
    return true;
}

/* NULL: too many, or no memory. */
static struct entry *entry_of(struct sy_front_stats *stats, const char *name, int64_t version)
{
    int index = find(stats, name, version);
    struct entry *entry;

    if (index < 0) {
        entry = make_place(stats) ? calloc(1, sizeof *entry) : NULL;
        if (!entry)
            return NULL;
        strncpy(entry->name, name, sizeof entry->name - 1);
        entry->of.name = entry->name;
        entry->of.version = version;
        index = stats->n;
        stats->entries[stats->n++] = entry;
    }
    stats->latest = index;
    return stats->entries[index];
}

static bool grow_batches(struct entry *entry)
{
    int capacity = SY_MAX(2 * entry->batch_capacity, 4);
    struct sy_front_batch_stats *batches;

    if (entry->of.n_batches < entry->batch_capacity)
        return true;
    if (entry->of.n_batches == SY_FRONT_BATCH_SIZES)
        return false;
    batches = realloc(entry->batches, (size_t)capacity * sizeof *batches);
    if (!batches)
        return false;
    entry->of.batches = entry->batches = batches;
    entry->batch_capacity = capacity;
    return true;
}

/* NULL: too many sizes, or no memory. */
static struct sy_front_batch_stats *batch_of(struct entry *entry, int64_t rows)
{
    int at = 0, n = entry->of.n_batches;

    while (at < n && entry->batches[at].rows < rows)
        at++;
    if (at < n && entry->batches[at].rows == rows)
        return &entry->batches[at];
    if (!grow_batches(entry))
        return NULL;
    memmove(&entry->batches[at + 1], &entry->batches[at],
            (size_t)(n - at) * sizeof *entry->batches);
    entry->batches[at] = (struct sy_front_batch_stats){.rows = rows};
    entry->of.n_batches++;
    return &entry->batches[at];
}

static void add(struct sy_front_duration *duration, sy_ns from, sy_ns to)
{
    duration->count++;
    duration->ns += from && to > from ? to - from : 0;
}

static bool is_of_backend(int status)
{
    return status == SY_ENOMEM_DEVICE || status == SY_EDEVICE || status == SY_EPEER ||
           status == SY_ECORRUPT || status == SY_EIO || status == SY_EBUG;
}

void sy_front_stats_note(struct sy_front_stats *stats, const struct sy_core_model_ref *model,
                         int64_t rows, int status, const struct sy_request_report *report)
{
    struct entry *entry = entry_of(stats, model->name, model->version);
    struct timespec now;

    if (!entry)
        return;
    struct sy_front_model_stats *of = &entry->of;
    sy_ns from = report ? report->arrived_ns : 0, to = report ? report->finished_ns : 0;
    if (status < 0) {
        of->n_failures++;
        of->n_rejected += status == SY_EBUSY || status == SY_EDEADLINE;
        of->n_canceled += status == SY_ECANCELED;
        of->n_backend_failures += is_of_backend(status);
        add(&of->fail, from, to);
        return;
    }
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    of->last_inference_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    of->n_successes++;
    of->n_inferences += (uint64_t)SY_MAX(rows, 1);
    of->n_executions += !report || report->served_ns > 0 || report->run_ns == 0;
    add(&of->success, from, to);
    if (!report)
        return;
    /* Weights stream in while layers compute: what the first layer waited for is "input", the rest is "infer". */
    sy_ns computes = SY_MAX(report->first_layer_ns, report->run_ns);
    add(&of->queue, report->arrived_ns, report->started_ns);
    add(&of->compute_input, report->started_ns, computes);
    add(&of->compute_infer, computes, report->finished_ns);
    add(&of->compute_output, 0, 0); /* outputs are written where they are sent from */
    struct sy_front_batch_stats *batch =
        report->run_rows > 0 ? batch_of(entry, report->run_rows) : NULL;
    if (!batch)
        return;
    add(&batch->compute_input, report->started_ns, computes);
    add(&batch->compute_infer, computes, report->finished_ns);
    add(&batch->compute_output, 0, 0);
}

void sy_front_stats_of(const struct sy_front_stats *stats, const char *name, int64_t version,
                       struct sy_front_model_stats *out)
{
    int index = find(stats, name, version);

    *out = index < 0 ? (struct sy_front_model_stats){.name = name, .version = version}
                     : stats->entries[index]->of;
}

void sy_front_stats_walk(const struct sy_front_stats *stats,
                         void (*each)(void *ctx, const struct sy_front_model_stats *of), void *ctx)
{
    for (int i = 0; i < stats->n; i++)
        each(ctx, &stats->entries[i]->of);
}

#include "workers/process/worker_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jemalloc/jemalloc.h>

#include "loader/graph/graph_bind.h"
#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/wire/control_page.h"
#include "workers/engine/heap_held.h"
#include "workers/infer/transfer.h"

#define MAX_BATCH \
    (1u           \
     << 24) /* rows: far more than slab and pool hold, which are the limits; less than overflows anything */
#define LEAST_LAYER_BYTES 1024u

#define STRINGIZE_(x) #x
#define STRINGIZE(x)  STRINGIZE_(x)

/* Some 0.3 ms each time, beside the milliseconds that each of these programs took to make. */
#define DROPS_TO_RETURN 32

#define N_SLOTS (SY_MODEL_MAX_PROGRAMS + SY_MODEL_MAX_KEPT)

struct cached_program {
    struct sy_program *program;
    struct sy_graph *bound; /* NULL: of the usual sizes, the package's */
    uint64_t batch;
    struct sy_sizes sizes; /* where it is bound */
    int team;
    bool keep;
    uint64_t bytes; /* of host memory, as far as this thread took it */
    uint64_t last_use;
};

struct entry {
    struct sy_worker_model model; /* package NULL: free */
    struct cached_program programs[N_SLOTS];
};

struct sy_worker_models {
    const struct sy_engine_ops *engine;
    uint64_t n_uses, n_dropped, max_bytes;
    int team;
    struct entry entries[SY_MAX_MODELS];
};

int sy_worker_models_create(const struct sy_engine_ops *engine, uint64_t program_bytes,
                            struct sy_worker_models **out)
{
    struct sy_worker_models *m = calloc(1, sizeof *m);
    SY_TRY_ALLOC(m, "no memory for the model table");
    m->engine = engine;
    m->max_bytes = program_bytes;
    *out = m;
    return SY_OK;
}

void sy_worker_models_set_team(struct sy_worker_models *m, int team)
{
    m->team = team;
}

void sy_worker_models_destroy(struct sy_worker_models *m)
{
    if (!m)
        return;
    for (uint64_t id = 0; id < SY_MAX_MODELS; id++)
        sy_worker_models_drop(m, id);
    free(m);
}

static int find_entry(struct sy_worker_models *m, uint64_t id, struct entry **out)
{
    if (id >= SY_MAX_MODELS || !m->entries[id].model.package)
        return sy_error_set(SY_ENOTFOUND, "this worker has no model %llu", (unsigned long long)id);
    *out = &m->entries[id];
    return SY_OK;
}

/* Copies and checks the cuts: ascending from layer 0, inside the model. */
static int copy_cuts(const struct sy_package *package, const uint64_t *group_layers,
                     size_t n_groups, int **out)
{
    if (n_groups < 1 || n_groups > SY_RUN_MAX_GROUPS)
        return sy_error_set(SY_EARG, "%zu groups: 1 to %d are possible", n_groups,
                            SY_RUN_MAX_GROUPS);
    int *cuts = calloc(n_groups, sizeof *cuts);
    SY_TRY_ALLOC(cuts, "no memory for %zu groups", n_groups);
    for (size_t g = 0; g < n_groups; g++) {
        bool ascends = g == 0 ? group_layers[g] == 0 : group_layers[g] > group_layers[g - 1];
        if (!ascends || group_layers[g] >= (uint64_t)package->n_layers) {
            free(cuts);
            return sy_error_set(SY_EARG,
                                "group %zu begins at layer %llu of %d: cuts must ascend from 0", g,
                                (unsigned long long)group_layers[g], package->n_layers);
        }
        cuts[g] = (int)group_layers[g];
    }
    *out = cuts;
    return SY_OK;
}

int sy_worker_models_add(struct sy_worker_models *m, uint64_t id, int fd, const char *path,
                         const uint64_t *group_layers, size_t n_groups)
{
    if (id >= SY_MAX_MODELS || m->entries[id].model.package) {
        close(fd);
        return sy_error_set(SY_EARG, "model id %llu is taken or not below %u",
                            (unsigned long long)id, SY_MAX_MODELS);
    }
    struct sy_package *package = NULL;
    SY_TRY(sy_package_open_file(path, fd, &package));
    int *cuts = NULL;
    int status = sy_package_check_engine(package, m->engine);
    if (status == SY_OK && m->engine->use_choices && package->profile.choices)
        status = m->engine->use_choices(package->profile.choices);
    if (status == SY_OK)
        status = copy_cuts(package, group_layers, n_groups, &cuts);
    if (status < 0) {
        sy_package_close(package);
        return status;
    }
    m->entries[id].model = (struct sy_worker_model){
        .package = package, .group_layers = cuts, .n_groups = (int)n_groups};
    return SY_OK;
}

int sy_worker_models_regroup(struct sy_worker_models *m, uint64_t id, const uint64_t *group_layers,
                             size_t n_groups)
{
    struct entry *entry;
    int *cuts = NULL;
    SY_TRY(find_entry(m, id, &entry));
    SY_TRY(copy_cuts(entry->model.package, group_layers, n_groups, &cuts));
    free(entry->model.group_layers);
    entry->model.group_layers = cuts;
    entry->model.n_groups = (int)n_groups;
    return SY_OK;
}

/* Programs of new sizes come and go, and the heap keeps the pages that they leave for 10 s, in pieces that the next programs do not fill: a worker that is
 * sent new sizes only would hold a tenth more than it uses. */
static void return_pages(struct sy_worker_models *m)
{
    if (++m->n_dropped % DROPS_TO_RETURN != 0)
        return;
    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    mallctl("arena." STRINGIZE(MALLCTL_ARENAS_ALL) ".purge", NULL, NULL, NULL, 0);
}

static void drop_program(struct sy_worker_models *m, struct cached_program *slot)
{
    if (slot->program) {
        m->engine->program_destroy(slot->program);
        return_pages(m);
    }
    sy_graph_free(slot->bound);
    *slot = (struct cached_program){0};
}

void sy_worker_models_drop(struct sy_worker_models *m, uint64_t id)
{
    struct entry *entry;
    if (find_entry(m, id, &entry) < 0)
        return;
    for (int i = 0; i < N_SLOTS; i++)
        drop_program(m, &entry->programs[i]);
    free(entry->model.group_layers);
    sy_package_close(entry->model.package);
    *entry = (struct entry){0};
}

int sy_worker_models_find(struct sy_worker_models *m, uint64_t id, struct sy_worker_model **out)
{
    struct entry *entry;
    SY_TRY(find_entry(m, id, &entry));
    *out = &entry->model;
    return SY_OK;
}

static int read_sizes(const struct sy_package *package, const uint64_t *sizes, size_t n_sizes,
                      struct sy_sizes *out, bool *usual)
{
    struct sy_sizes laid_out;
    sy_graph_usual_sizes(package->graph, &laid_out);
    *out = laid_out;
    if (n_sizes != 0 && n_sizes != (size_t)package->graph->n_symbols)
        return sy_error_set(SY_EPROTO, "%zu sizes for model %s, which has %d", n_sizes,
                            package->name, package->graph->n_symbols);
    for (size_t i = 0; i < n_sizes; i++)
        out->of[i] = sizes[i] > INT64_MAX ? -1 : (int64_t)sizes[i];
    *usual = memcmp(out, &laid_out, sizeof laid_out) == 0;
    return SY_OK;
}

static bool is_for(const struct cached_program *slot, uint64_t batch, int team,
                   const struct sy_sizes *sizes, bool usual)
{
    return slot->program && slot->batch == batch && slot->team == team && !slot->bound == usual &&
           (usual || memcmp(&slot->sizes, sizes, sizeof *sizes) == 0);
}

/* A free slot, else the least recently used; of more than SY_MODEL_MAX_PROGRAMS that are not kept, one is always dropped. */
static struct cached_program *choose_slot(struct entry *entry)
{
    struct cached_program *oldest = NULL, *free_slot = NULL;
    int n = 0;
    for (int i = 0; i < N_SLOTS; i++) {
        struct cached_program *slot = &entry->programs[i];
        if (!slot->program)
            free_slot = slot;
        if (!slot->program || slot->keep)
            continue;
        n++;
        if (!oldest || slot->last_use < oldest->last_use)
            oldest = slot;
    }
    return n < SY_MODEL_MAX_PROGRAMS && free_slot ? free_slot : oldest;
}

static int n_kept(const struct entry *entry)
{
    int n = 0;
    for (int i = 0; i < N_SLOTS; i++)
        n += entry->programs[i].keep;
    return n;
}

/* "model bert, batch 3, seq 77" */
static const char *describe_run(const struct sy_package *package, uint64_t batch,
                                const struct sy_sizes *sizes, char *buffer, size_t bytes)
{
    int used = snprintf(buffer, bytes, "model %.100s, batch %llu", package->name,
                        (unsigned long long)batch);
    for (int i = 0; i < package->graph->n_symbols && used >= 0 && (size_t)used < bytes; i++)
        used += snprintf(buffer + used, bytes - (size_t)used, ", %.40s %lld",
                         package->graph->symbols[i].name, (long long)sizes->of[i]);
    return buffer;
}

/* At least what a layer of it cannot do without: under a sanitizer the heap is another's. */
static uint64_t bytes_since(uint64_t before, const struct sy_package *package)
{
    uint64_t now = sy_heap_held_bytes(), least = (uint64_t)package->n_layers * LEAST_LAYER_BYTES;
    return now > before && now - before > least ? now - before : least;
}

static int make_program(struct sy_worker_models *m, const struct sy_package *package,
                        struct cached_program *out, bool usual, sy_ns *took_ns)
{
    char text[512];
    sy_ns start = sy_clock_now();
    uint64_t before = sy_heap_held_bytes();
    int status = usual ? SY_OK : sy_graph_bind(package->graph, &out->sizes, &out->bound);
    if (status == SY_OK)
        status = m->engine->program_create(usual ? package->usual : out->bound, package->layers,
                                           package->n_layers, (int64_t)out->batch, &out->program);
    describe_run(package, out->batch, &out->sizes, text, sizeof text);
    if (status < 0) {
        status = sy_error_prefix(status, "%s", text);
        drop_program(m, out);
        return status;
    }
    out->bytes = bytes_since(before, package);
    *took_ns = SY_MAX(sy_clock_now() - start, 1);
    sy_log_debug("models", "event=program_ready %s ms=%.1f bytes=%llu", text,
                 (double)*took_ns / 1e6, (unsigned long long)out->bytes);
    return SY_OK;
}

/* ---- what may go ---- */

static const struct cached_program *program_at(const struct sy_worker_models *m, int i)
{
    const struct cached_program *slot = &m->entries[i / N_SLOTS].programs[i % N_SLOTS];
    return slot->program ? slot : NULL;
}

int sy_worker_models_n_programs(const struct sy_worker_models *m)
{
    int n = 0;
    for (int i = 0; i < (int)SY_MAX_MODELS * N_SLOTS; i++)
        n += program_at(m, i) != NULL;
    return n;
}

uint64_t sy_worker_models_program_bytes(const struct sy_worker_models *m)
{
    uint64_t sum = 0;
    for (int i = 0; i < (int)SY_MAX_MODELS * N_SLOTS; i++) {
        const struct cached_program *slot = program_at(m, i);
        sum += slot && !slot->keep ? slot->bytes : 0;
    }
    return sum;
}

/* Any model's; `but` is what is wanted now. NULL: there is no other. */
static struct cached_program *least_recent(struct sy_worker_models *m,
                                           const struct cached_program *but)
{
    struct cached_program *oldest = NULL;
    for (int i = 0; i < (int)SY_MAX_MODELS * N_SLOTS; i++) {
        struct cached_program *slot = &m->entries[i / N_SLOTS].programs[i % N_SLOTS];
        if (slot->program && !slot->keep && slot != but &&
            (!oldest || slot->last_use < oldest->last_use))
            oldest = slot;
    }
    return oldest;
}

/* Only where one was made: this looks at all of them. */
static void keep_within_bytes(struct sy_worker_models *m, const struct cached_program *made)
{
    uint64_t bytes = sy_worker_models_program_bytes(m);
    struct cached_program *gone;
    while (bytes > m->max_bytes && (gone = least_recent(m, made))) {
        bytes -= gone->bytes;
        drop_program(m, gone);
    }
}

int sy_worker_models_program(struct sy_worker_models *m, uint64_t id, uint64_t batch,
                             const uint64_t *sizes, size_t n_sizes, bool keep,
                             struct sy_worker_program *out)
{
    struct entry *entry;
    struct cached_program made = {.batch = batch, .team = m->team}, *slot = NULL;
    bool usual;
    sy_ns took_ns = 0;
    SY_TRY(find_entry(m, id, &entry));
    if (batch < 1 || batch > MAX_BATCH)
        return sy_error_set(SY_EARG, "batch %llu: 1 to %u are possible", (unsigned long long)batch,
                            MAX_BATCH);
    SY_TRY(read_sizes(entry->model.package, sizes, n_sizes, &made.sizes, &usual));
    for (int i = 0; i < N_SLOTS && !slot; i++)
        if (is_for(&entry->programs[i], batch, m->team, &made.sizes, usual))
            slot = &entry->programs[i];
    if (!slot) {
        SY_TRY(make_program(m, entry->model.package, &made, usual, &took_ns));
        slot = choose_slot(entry);
        drop_program(m, slot);
        *slot = made;
    }
    slot->keep |= keep && n_kept(entry) < SY_MODEL_MAX_KEPT;
    slot->last_use = ++m->n_uses;
    if (took_ns > 0)
        keep_within_bytes(m, slot);
    *out = (struct sy_worker_program){
        slot->program, slot->bound ? slot->bound : entry->model.package->usual, took_ns};
    return SY_OK;
}

#include "workers/worker_models.h"

#include <stdlib.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/wire/control_page.h"
#include "workers/transfer.h"

#define MAX_BATCH 4096u

struct cached_program {
    struct sy_program *program;
    uint64_t batch;
    uint64_t last_use;
};

struct entry {
    struct sy_worker_model model; /* package NULL: free */
    struct cached_program programs[SY_MODEL_MAX_PROGRAMS];
};

struct sy_worker_models {
    const struct sy_engine_ops *engine;
    uint64_t n_uses;
    struct entry entries[SY_MAX_MODELS];
};

int sy_worker_models_create(const struct sy_engine_ops *engine, struct sy_worker_models **out)
{
    struct sy_worker_models *m = calloc(1, sizeof *m);
    if (!m)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the model table");
    m->engine = engine;
    *out = m;
    return SY_OK;
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
    if (!cuts)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %zu groups", n_groups);
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

int sy_worker_models_add(struct sy_worker_models *m, uint64_t id, const char *path,
                         const uint64_t *group_layers, size_t n_groups)
{
    if (id >= SY_MAX_MODELS || m->entries[id].model.package)
        return sy_error_set(SY_EARG, "model id %llu is taken or not below %u",
                            (unsigned long long)id, SY_MAX_MODELS);
    struct sy_package *package = NULL;
    SY_TRY(sy_package_open(path, &package));
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

void sy_worker_models_drop(struct sy_worker_models *m, uint64_t id)
{
    struct entry *entry;
    if (find_entry(m, id, &entry) < 0)
        return;
    for (int i = 0; i < SY_MODEL_MAX_PROGRAMS; i++)
        if (entry->programs[i].program)
            m->engine->program_destroy(entry->programs[i].program);
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

/* The slot of this batch size, else a free one, else the least recently used. */
static struct cached_program *choose_slot(struct entry *entry, uint64_t batch)
{
    struct cached_program *best = &entry->programs[0];
    for (int i = 0; i < SY_MODEL_MAX_PROGRAMS; i++) {
        struct cached_program *slot = &entry->programs[i];
        if (slot->program && slot->batch == batch)
            return slot;
        if (best->program && (!slot->program || slot->last_use < best->last_use))
            best = slot;
    }
    return best;
}

int sy_worker_models_program(struct sy_worker_models *m, uint64_t id, uint64_t batch,
                             struct sy_program **out)
{
    struct entry *entry;
    SY_TRY(find_entry(m, id, &entry));
    if (batch < 1 || batch > MAX_BATCH)
        return sy_error_set(SY_EARG, "batch %llu: 1 to %u are possible", (unsigned long long)batch,
                            MAX_BATCH);
    struct cached_program *slot = choose_slot(entry, batch);
    if (!slot->program || slot->batch != batch) {
        const struct sy_package *package = entry->model.package;
        struct sy_program *program = NULL;
        sy_ns start = sy_clock_now();
        int status = m->engine->program_create(package->graph, package->layers, package->n_layers,
                                               (int64_t)batch, &program);
        if (status < 0)
            return sy_error_prefix(status, "model %s, batch %llu", package->name,
                                   (unsigned long long)batch);
        if (slot->program)
            m->engine->program_destroy(slot->program);
        *slot = (struct cached_program){.program = program, .batch = batch};
        sy_log_debug("models", "event=program_ready model=%s batch=%llu ms=%.1f", package->name,
                     (unsigned long long)batch, (double)(sy_clock_now() - start) / 1e6);
    }
    slot->last_use = ++m->n_uses;
    *out = slot->program;
    return SY_OK;
}

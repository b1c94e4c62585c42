/* Models by name and version, and references to them. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/core/core_internal.h"

static bool is_listed(const struct sy_core_model *m)
{
    return m->used && !m->leaving;
}

bool sy_core_model_is_named(const struct sy_core_model *m, const char *name, int64_t version)
{
    return is_listed(m) && strcmp(m->name, name) == 0 &&
           (version == 0 || m->ref.version == version);
}

/* The highest version that is ready, else the highest; -1: none. */
static int best_match(const struct sy_core *core, const char *name, int64_t version)
{
    int best = -1;
    for (int i = 0; i < (int)SY_MAX_MODELS; i++) {
        const struct sy_core_model *m = &core->models[i],
                                   *b = best < 0 ? NULL : &core->models[best];
        if (!sy_core_model_is_named(m, name, version))
            continue;
        bool is_ready = m->state == SY_MODEL_READY, best_is = b && b->state == SY_MODEL_READY;
        if (!b || is_ready > best_is || (is_ready == best_is && m->ref.version > b->ref.version))
            best = i;
    }
    return best;
}

/* True if another version of this name comes before it in the table. */
static bool is_listed_before(const struct sy_core *core, unsigned model)
{
    for (unsigned i = 0; i < model; i++)
        if (is_listed(&core->models[i]) &&
            strcmp(core->models[i].name, core->models[model].name) == 0)
            return true;
    return false;
}

/* Lists names as "a, b", or the versions of one name; at most 8. */
static int list_models(const struct sy_core *core, const char *of, char *list, size_t bytes)
{
    size_t used = 0;
    int n = 0;
    *list = '\0';
    for (unsigned i = 0; i < SY_MAX_MODELS; i++) {
        const struct sy_core_model *m = &core->models[i];
        if (!is_listed(m) || (of ? strcmp(m->name, of) != 0 : is_listed_before(core, i)))
            continue;
        if (n++ >= 8 || used >= bytes)
            continue;
        const char *comma = n > 1 ? ", " : "";
        used += (size_t)(of ? snprintf(list + used, bytes - used, "%s%lld", comma,
                                       (long long)m->ref.version)
                            : snprintf(list + used, bytes - used, "%s%s", comma, m->name));
    }
    return n;
}

int sy_core_model_lookup(const struct sy_core *core, const char *name, int64_t version)
{
    char list[300];
    int index = best_match(core, name, version);
    if (index >= 0)
        return index;
    if (version != 0 && list_models(core, name, list, sizeof list) > 0)
        return sy_error_set(SY_ENOTFOUND,
                            "there is no version %lld of model '%.100s'; there are: %s",
                            (long long)version, name, list);
    if (list_models(core, NULL, list, sizeof list) == 0)
        return sy_error_set(SY_ENOTFOUND,
                            "there is no model '%.100s'; there are none: load one first", name);
    return sy_error_set(SY_ENOTFOUND, "there is no model '%.100s'; there are: %s", name, list);
}

int sy_core_model_acquire(struct sy_core *core, const char *name, int64_t version,
                          struct sy_core_model_ref **out)
{
    int index = sy_core_model_lookup(core, name, version);
    SY_TRY(index);
    struct sy_core_model *m = &core->models[index];
    if (m->state == SY_MODEL_ADDING)
        return sy_error_set(SY_EBUSY, "model '%s' is loading", name);
    if (m->state == SY_MODEL_UNAVAILABLE)
        return sy_error_set(m->status, "model '%s' is not available until it is loaded again: %s",
                            name, m->error);
    sy_core_model_hold(core, index);
    *out = &m->ref;
    return SY_OK;
}

void sy_core_model_hold(struct sy_core *core, int model)
{
    core->models[model].n_held++;
}

void sy_core_model_unhold(struct sy_core *core, int model)
{
    struct sy_core_model *m = &core->models[model];
    assert(m->n_held > 0);
    if (--m->n_held == 0 && m->leaving)
        sy_core_pump_soon(core); /* sy_core_models_leave */
}

static int model_index(const struct sy_core *core, const struct sy_core_model_ref *ref)
{
    return (int)((const struct sy_core_model *)ref - core->models);
}

void sy_core_model_release(struct sy_core *core, struct sy_core_model_ref *ref)
{
    if (ref)
        sy_core_model_unhold(core, model_index(core, ref));
}

void sy_core_models_answer_left(struct sy_core *core)
{
    for (struct sy_core_model *m = core->models; m < core->models + SY_MAX_MODELS; m++) {
        sy_core_done done = m->used ? m->done : NULL;
        m->done = NULL;
        if (done)
            done(m->done_ctx, SY_EBUSY, "the runtime stopped before the model was loaded");
    }
}

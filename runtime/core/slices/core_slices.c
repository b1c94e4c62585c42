/* Slices of the device's compute: which cores each has, and which models and jobs belong to it. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"

void sy_core_slices_start(struct sy_core *core)
{
    struct sy_core_slice *all = &core->slices[0];
    snprintf(all->name, sizeof all->name, SY_CORE_ALL_SLICE);
    all->n_cores = core->units.n;
    memcpy(all->cores, core->units.ids, core->units.n * sizeof *core->units.ids);
    core->n_slices = 1;
}

const struct sy_core_slice *sy_core_slice_at(const struct sy_core *core, int slice)
{
    return &core->slices[slice < core->n_slices ? slice : 0];
}

bool sy_core_slice_has_all_cores(const struct sy_core *core, int slice)
{
    return sy_core_slice_at(core, slice)->n_cores == core->units.n;
}

struct sy_u64s sy_core_slice_cores(struct sy_core *core, int slice)
{
    struct sy_core_slice *c = &core->slices[slice < core->n_slices ? slice : 0];
    return sy_core_slice_has_all_cores(core, slice) ? (struct sy_u64s){0}
                                                    : (struct sy_u64s){c->n_cores, c->cores};
}

const char *sy_core_slice_name(const struct sy_core *core, int slice)
{
    return sy_core_slice_at(core, slice)->name;
}

static int find(const struct sy_core *core, const char *name)
{
    for (int i = 0; i < core->n_slices; i++)
        if (strcmp(core->slices[i].name, name) == 0)
            return i;
    return -1;
}

static int no_slice(const struct sy_core *core, const char *name)
{
    char list[300] = "";
    for (int i = 0; i < core->n_slices; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
                 core->slices[i].name);
    return sy_error_set(SY_ENOTFOUND, "there is no slice '%.60s'; there are: %s", name, list);
}

int sy_core_slice_check(const struct sy_core *core, const char *name)
{
    return !name || !*name || find(core, name) >= 0 ? SY_OK : no_slice(core, name);
}

/* ---- slices of tasks ------------------------------------------------------------------------------- */

static int wanted(const struct sy_core *core, const char *own, const char *usual)
{
    int slice = find(core, own);
    if (slice < 0)
        slice = find(core, usual);
    return SY_MAX(slice, 0);
}

int sy_core_slice_of_job(const struct sy_core *core, const struct sy_core_job *j)
{
    return wanted(core, j->slice, core->for_jobs);
}

void sy_core_slices_place(struct sy_core *core, int model, bool anew)
{
    int slice, was = sy_sched_model_slice(core->sched, model);
    const struct sy_core_model *m = &core->models[model];
    if (*m->slice && find(core, m->slice) < 0)
        sy_log_warn("slices", "event=no_such_slice model=%s slice=%s uses=%s", m->name, m->slice,
                    core->slices[wanted(core, m->slice, core->for_models)].name);
    slice = wanted(core, m->slice, core->for_models);
    (void)sy_sched_model_set_slice(core->sched, model, slice);
    if (anew || slice != was)
        sy_core_corun_reset(core, model);
    sy_core_corun_judge(core, model);
}

/* ---- status ------------------------------------------------------------------------------------- */

static json_t *slice_json(const struct sy_core *core, int i)
{
    char text[512];
    const struct sy_core_slice *c = &core->slices[i];
    json_t *models = json_array(), *jobs = json_array();
    const char *computes = NULL; /* by name */
    for (int m = 0; m < (int)SY_MAX_MODELS; m++)
        if (core->models[m].used && !core->models[m].leaving &&
            sy_sched_model_slice(core->sched, m) == i)
            json_array_append_new(models, json_string(core->models[m].name));
    for (const struct sy_core_job *j = core->jobs; j; j = j->next) {
        struct sy_sched_job_view view;
        if (!sy_sched_job_view(core->sched, j->id, &view) || view.slice != i)
            continue;
        json_array_append_new(jobs, json_integer((json_int_t)j->id));
        if (j->since_ns)
            computes = j->name;
    }
    for (const struct sy_core_request *r = core->requests; r; r = r->next)
        if (r->run && r->slice == i && r->report.worker >= 0 &&
            sy_sched_computes(core->sched, r->report.worker))
            computes = core->models[r->model].name;
    return json_pack("{s:s, s:s, s:i, s:i, s:o, s:o, s:s?, s:o}", "name", c->name, "cores",
                     sy_core_units_text(core, c, text, sizeof text), "n_cores",
                     (int)(c->n_cores * core->units.each), "cache_ways",
                     sy_core_cache_ways(core, i), "models", models, "jobs", jobs, "computes",
                     computes, "used_ns", json_integer((json_int_t)c->used_ns));
}

json_t *sy_core_slices_json(const struct sy_core *core)
{
    json_t *list = json_array();
    for (int i = 0; i < core->n_slices; i++)
        json_array_append_new(list, slice_json(core, i));
    return list;
}

static const char *there_is(const struct sy_core *core, const char *slice)
{
    return find(core, slice) >= 0 ? slice : "";
}

/* In the form that setting takes; a single slice of all cores counts as none. */
json_t *sy_core_slices_rules(const struct sy_core *core)
{
    char text[4096];
    json_t *list = json_array();
    bool any = core->n_slices > 1 || core->slices[0].n_cores < core->units.n;
    for (int i = 0; any && i < core->n_slices; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "name", core->slices[i].name, "cores",
                            sy_core_units_text(core, &core->slices[i], text, sizeof text)));
    return json_pack("{s:o, s:s, s:s, s:s, s:f, s:f}", "slices", list, "for_jobs",
                     there_is(core, core->for_jobs), "for_models", there_is(core, core->for_models),
                     "for_runtime", there_is(core, core->for_runtime), "bound", core->corun.bound,
                     "keep", core->fill.keep);
}

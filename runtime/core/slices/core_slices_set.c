/* Sets slices: read, check, plan; then move models, jobs and running work to them. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/printable.h"
#include "runtime/core/core_internal.h"
#include "runtime/core/core_jobs.h"

_Static_assert(SY_SLICE_PLAN_MAX == SY_SCHED_MAX_SLICES, "what is planned can be scheduled");

struct wishes {
    struct sy_slice_wish of[SY_SCHED_MAX_SLICES];
    uint64_t listed[SY_SCHED_MAX_SLICES][SY_CORE_MAX_CORES];
    int owner[SY_CORE_MAX_CORES];
};

static void place_all(struct sy_core *core, bool anew)
{
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        if (core->models[i].used && !core->models[i].leaving)
            sy_core_slices_place(core, i, anew);
    for (struct sy_core_job *j = core->jobs; j; j = j->next)
        (void)sy_sched_job_set_slice(core->sched, j->id, sy_core_slice_of_job(core, j));
}

static void confine_run(struct sy_core *core, const struct sy_core_request *r)
{
    struct sy_control_page *page = sy_supervisor_page(core->supervisor, r->report.worker);
    const struct sy_core_slice *c = sy_core_slice_at(core, r->slice);
    uint64_t words[SY_PAGE_CORE_WORDS] = {0};
    for (size_t i = 0; i < c->n_cores; i++)
        words[c->cores[i] / 64] |= 1ull << (c->cores[i] % 64);
    for (unsigned i = 0; i < SY_PAGE_CORE_WORDS; i++)
        atomic_store_explicit(&page->cores[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&page->confined_run, r->run, memory_order_relaxed);
    atomic_fetch_add_explicit(&page->cores_version, 1, memory_order_release);
}

static void confine_runs(struct sy_core *core)
{
    for (const struct sy_core_request *r = core->requests; r; r = r->next)
        if (r->run && r->report.run_ns && r->report.worker >= 0 &&
            sy_sched_computes(core->sched, r->report.worker))
            confine_run(core, r);
}

static int read_name(const json_t *entry, char *out)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    if (!name || !*name || strlen(name) >= SY_SLICE_NAME || name[sy_printable_length(name)])
        return sy_error_set(SY_EARG, "slice '%.60s': a name of 1 to %d bytes of UTF-8",
                            name ? name : "", SY_SLICE_NAME - 1);
    snprintf(out, SY_SLICE_NAME, "%s", name);
    return SY_OK;
}

static int read_amount(const json_t *value, const char *name, const char *key, double most,
                       double unit, unsigned *out)
{
    double amount = json_number_value(value) * unit;
    if (!json_is_number(value) || !(amount >= 1 && amount <= most))
        return sy_error_set(SY_EARG, "slice '%s': %s: a number from %g to %g", name, key, 1 / unit,
                            most / unit);
    *out = (unsigned)(amount + 0.5);
    return SY_OK;
}

/* {"name": ..., and one of "cores": 2 or "0-1", "share": 0.5, "weight": 3}. */
static int read_wish(const json_t *entry, struct sy_slice_wish *w, uint64_t *listed)
{
    const json_t *cores = json_object_get(entry, "cores"), *share = json_object_get(entry, "share"),
                 *weight = json_object_get(entry, "weight");
    *w = (struct sy_slice_wish){.listed = listed};
    SY_TRY(read_name(entry, w->name));
    if (!!cores + !!share + !!weight != 1)
        return sy_error_set(SY_EARG,
                            "slice '%s': one of \"cores\" (2, or \"0-1\"), \"share\" (0.5) and "
                            "\"weight\" (3) is expected",
                            w->name);
    if (json_is_string(cores)) {
        w->by = SY_SLICE_BY_LIST;
        return sy_slice_parse_cores(json_string_value(cores), listed, SY_CORE_MAX_CORES,
                                    &w->n_listed);
    }
    w->by = cores ? SY_SLICE_BY_COUNT : share ? SY_SLICE_BY_SHARE : SY_SLICE_BY_WEIGHT;
    if (cores)
        return read_amount(cores, w->name, "cores", SY_CORE_MAX_CORES, 1, &w->amount);
    return share ? read_amount(share, w->name, "share", 1000, 1000, &w->amount)
                 : read_amount(weight, w->name, "weight", 1000000, 1, &w->amount);
}

static void take_cores(struct sy_core *core, const struct wishes *w, int n)
{
    for (int i = 0; i < n; i++) {
        struct sy_core_slice *c = &core->slices[i];
        snprintf(c->name, sizeof c->name, "%s", w->of[i].name);
        c->n_cores = 0;
        for (size_t k = 0; k < core->units.n; k++)
            if (w->owner[k] == i)
                c->cores[c->n_cores++] = core->units.ids[k];
    }
    core->n_slices = n;
}

static void say(const struct sy_core *core)
{
    char text[256];
    for (int i = 0; i < core->n_slices; i++)
        sy_log_info("slices", "event=slice name=%s %s=%s", core->slices[i].name,
                    core->units.each > 1 ? "multiprocessors" : "cores",
                    sy_core_units_text(core, &core->slices[i], text, sizeof text));
}

static int set_list(struct sy_core *core, const json_t *list)
{
    static struct wishes w; /* used by one thread; too large for a stack */
    size_t n = json_array_size(list), i;
    json_t *entry;
    if (!json_is_array(list) || n > SY_SCHED_MAX_SLICES)
        return sy_error_set(SY_EARG, "slices: a list of 0 to %d", SY_SCHED_MAX_SLICES);
    SY_TRY(sy_core_units_check(core, n));
    json_array_foreach(list, i, entry)
    {
        SY_TRY(read_wish(entry, &w.of[i], w.listed[i]));
        SY_TRY(sy_core_units_read(core, &w.of[i], w.listed[i]));
    }
    if (n > 0)
        SY_TRY(sy_slice_plan(w.of, (int)n, core->units.ids, core->units.n, w.owner));
    SY_TRY(sy_sched_set_slices(core->sched, n ? (int)n : 1));
    if (n > 0)
        take_cores(core, &w, (int)n);
    else
        sy_core_slices_start(core);
    for (int k = 0; k < SY_SCHED_MAX_SLICES; k++)
        sy_sched_slice_resized(core->sched, k,
                               sy_core_slice_has_all_cores(core, k)
                                   ? 0
                                   : (int)(sy_core_slice_at(core, k)->n_cores * core->units.each));
    say(core);
    sy_core_cache_follow(core);
    return SY_OK;
}

/* Checks, before anything changes, that the slice exists or is among the new ones. */
static int check_slice(const struct sy_core *core, const json_t *list, const char *wanted)
{
    size_t i;
    json_t *entry;
    if (!json_is_array(list))
        return sy_core_slice_check(core, wanted);
    if (json_array_size(list) == 0 && strcmp(wanted, SY_CORE_ALL_SLICE) == 0)
        return SY_OK; /* the slice that exists without configuration */
    json_array_foreach(list, i, entry)
    {
        const char *is = json_string_value(json_object_get(entry, "name"));
        if (is && strcmp(is, wanted) == 0)
            return SY_OK;
    }
    return sy_error_set(SY_ENOTFOUND, "there is no slice '%.60s' in the list", wanted);
}

/* "": the first slice. */
static int check_usual(const struct sy_core *core, const json_t *list, const json_t *name)
{
    const char *wanted = json_string_value(name);
    if (!name || (wanted && !*wanted))
        return SY_OK;
    if (!wanted || strlen(wanted) >= SY_SLICE_NAME)
        return sy_error_set(SY_EARG, "for_jobs, for_models, for_runtime: a slice's name");
    return check_slice(core, list, wanted);
}

static void set_usual(const json_t *name, char *to)
{
    if (name)
        snprintf(to, SY_SLICE_NAME, "%s", json_string_value(name));
}

static int check_named(const struct sy_core *core, const char *name)
{
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        if (sy_core_model_is_named(&core->models[i], name, 0))
            return SY_OK;
    return sy_error_set(SY_ENOTFOUND, "there is no model '%.100s'", name);
}

/* Moves all versions of the model. */
static void move_model(struct sy_core *core, const char *name, const char *slice)
{
    for (int i = 0; i < (int)SY_MAX_MODELS; i++) {
        struct sy_core_model *m = &core->models[i];
        if (!sy_core_model_is_named(m, name, 0))
            continue;
        snprintf(m->slice, sizeof m->slice, "%s", slice);
        sy_core_slices_place(core, i, false);
    }
}

/* Checks {"model": NAME, "slice": S} or {"job": ID, "slice": S} before anything changes. */
static int check_move(struct sy_core *core, const json_t *list, const json_t *params)
{
    const json_t *model = json_object_get(params, "model"), *job = json_object_get(params, "job");
    const char *slice = json_string_value(json_object_get(params, "slice"));
    if (model && job)
        return sy_error_set(SY_EARG, "\"model\" and \"job\": one at a time");
    if (!model && !job)
        return slice
                   ? sy_error_set(SY_EARG, "slice '%.60s': of which \"model\", or \"job\"?", slice)
                   : SY_OK;
    if (!slice || !*slice)
        return sy_error_set(SY_EARG, "the parameter \"slice\" is missing: where to");
    SY_TRY(check_slice(core, list, slice));
    if (model && !json_is_string(model))
        return sy_error_set(SY_EARG, "the parameter \"model\": its name");
    if (model)
        return check_named(core, json_string_value(model));
    if (!json_is_integer(job) || json_integer_value(job) < 1)
        return sy_error_set(SY_EARG, "the parameter \"job\": its number");
    struct sy_core_job *live;
    return sy_core_job_find_live(core, (uint64_t)json_integer_value(job), &live);
}

static int move(struct sy_core *core, const json_t *params)
{
    const char *model = json_string_value(json_object_get(params, "model"));
    const char *slice = json_string_value(json_object_get(params, "slice"));
    const json_t *job = json_object_get(params, "job");
    if (model)
        move_model(core, model, slice);
    return job ? sy_core_job_move(core, (uint64_t)json_integer_value(job), slice) : SY_OK;
}

static int check_bound(const json_t *bound)
{
    double value = json_number_value(bound);
    if (bound && (!json_is_number(bound) || !(value == 0 || (value >= 1 && value <= 100))))
        return sy_error_set(SY_EARG, "bound: 0 (nothing takes turns), or 1 to 100");
    return SY_OK;
}

static int check_keep(const json_t *keep)
{
    double value = json_number_value(keep);
    if (keep && (!json_is_number(keep) || !(value >= 0 && value < 1)))
        return sy_error_set(SY_EARG, "keep: 0 (nothing is promised), or a part of 1, like 0.97");
    return SY_OK;
}

int sy_core_slices_apply(struct sy_core *core, const json_t *params)
{
    const json_t *list = json_object_get(params, "slices"),
                 *home = json_object_get(params, "for_runtime");
    const json_t *bound = json_object_get(params, "bound"), *keep = json_object_get(params, "keep");
    SY_TRY(check_usual(core, list, json_object_get(params, "for_jobs")));
    SY_TRY(check_usual(core, list, json_object_get(params, "for_models")));
    SY_TRY(check_usual(core, list, home));
    SY_TRY(sy_core_home_check(core, home ? json_string_value(home) : ""));
    SY_TRY(check_bound(bound));
    SY_TRY(check_keep(keep));
    SY_TRY(check_move(core, list, params));
    sy_core_tick(core);
    if (list)
        SY_TRY(set_list(core, list));
    set_usual(json_object_get(params, "for_jobs"), core->for_jobs);
    set_usual(json_object_get(params, "for_models"), core->for_models);
    set_usual(home, core->for_runtime);
    sy_core_home_follow(core);
    if (bound)
        core->corun.bound = json_number_value(bound);
    if (keep)
        core->fill.keep = json_number_value(keep);
    if (list)
        sy_core_fill_reset(core);
    if (bound || list || json_object_get(params, "for_jobs") ||
        json_object_get(params, "for_models"))
        place_all(core, list != NULL);
    if (list)
        confine_runs(core);
    SY_TRY(move(core, params));
    sy_core_fill_watch(core);
    sy_core_pump_soon(core);
    return SY_OK;
}

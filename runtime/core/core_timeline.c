/* The device's timeline as JSON: finished spans, and those in progress. */
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"

int sy_core_timeline_watch(struct sy_core *core, bool on)
{
    return sy_trace_watch(core->trace, on);
}

static json_t *ended_json(struct sy_timeline *t)
{
    json_t *list = json_array();
    for (int i = 0; t && i < t->n; i++) {
        const struct sy_timeline_span *s = &t->spans[i];
        json_array_append_new(list, json_pack("[i, s, I, I, I, i]", s->lane, s->name,
                                              (json_int_t)s->start, (json_int_t)s->end,
                                              (json_int_t)s->busy_ns, (int)s->n));
    }
    if (t)
        sy_timeline_clear(t);
    return list;
}

static void add_under_way(json_t *list, enum sy_trace_lane lane, const char *name, sy_ns since_ns)
{
    json_array_append_new(list, json_pack("[i, s, I]", (int)lane, name, (json_int_t)since_ns));
}

static json_t *under_way_json(const struct sy_core *core)
{
    json_t *list = json_array();
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        if (j->since_ns)
            add_under_way(list, SY_TRACE_TRAINING, j->name, j->since_ns);
    for (const struct sy_core_request *r = core->requests; r; r = r->next)
        if (r->run && r->report.run_ns && core->models[r->model].account.uses)
            add_under_way(list, SY_TRACE_INFERENCE, core->models[r->model].name, r->report.run_ns);
    return list;
}

int sy_core_timeline_take(struct sy_core *core, json_t **out)
{
    *out = json_pack("{s:I, s:o, s:o}", "now_ns", (json_int_t)sy_clock_now(), "spans",
                     ended_json(sy_trace_timeline(core->trace)), "under_way", under_way_json(core));
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the timeline");
}

#include "runtime/core/trace/trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

struct span {
    char name[48];
    sy_ns start, end;
    uint64_t request;
    enum sy_trace_lane lane;
};

struct sy_trace {
    bool enabled;
    struct span *spans;
    size_t n, capacity, n_dropped;
    sy_ns origin;
    struct sy_timeline *timeline; /* NULL: not watched */
};

int sy_trace_create(struct sy_trace **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the trace");
}

void sy_trace_destroy(struct sy_trace *t)
{
    if (!t)
        return;
    free(t->spans);
    free(t->timeline);
    free(t);
}

void sy_trace_enable(struct sy_trace *t, bool enable)
{
    t->enabled = enable;
    if (!enable)
        return;
    t->n = t->n_dropped = 0;
    t->origin = sy_clock_now();
}

static bool grow(struct sy_trace *t)
{
    size_t capacity = SY_MIN(t->capacity ? 2 * t->capacity : 1024, (size_t)SY_TRACE_MAX_EVENTS);
    if (capacity == t->capacity)
        return false;
    struct span *spans = realloc(t->spans, capacity * sizeof *spans);
    if (!spans)
        return false;
    t->spans = spans;
    t->capacity = capacity;
    return true;
}

void sy_trace_span(struct sy_trace *t, enum sy_trace_lane lane, const char *name, sy_ns start,
                   sy_ns end, uint64_t request)
{
    if (t->timeline && lane < SY_TIMELINE_LANES)
        sy_timeline_add(t->timeline, lane, name, start, end);
    if (!t->enabled || end <= start || end <= t->origin)
        return;
    if (t->n == t->capacity && !grow(t)) {
        t->n_dropped++;
        return;
    }
    struct span *s = &t->spans[t->n++];
    *s = (struct span){
        .start = SY_MAX(start, t->origin), .end = end, .request = request, .lane = lane};
    snprintf(s->name, sizeof s->name, "%s", name);
}

static int add_lanes(json_t *events)
{
    static const char *const names[] = {
#define X(name, text) text,
        SY_TRACE_LANE_TABLE(X)
#undef X
    };
    for (int i = 0; i < SY_TRACE_N_LANES; i++)
        if (json_array_append_new(events, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name",
                                                    "thread_name", "ph", "M", "pid", 1, "tid",
                                                    i + 1, "args", "name", names[i])) < 0)
            return SY_ENOMEM_HOST;
    return SY_OK;
}

static json_t *span_json(const struct sy_trace *t, const struct span *s)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:{s:I}}", "name", s->name, "ph", "X", "pid",
                     1, "tid", (int)s->lane + 1, "ts", (double)(s->start - t->origin) / 1e3, "dur",
                     (double)(s->end - s->start) / 1e3, "args", "request", (json_int_t)s->request);
}

int sy_trace_dump(const struct sy_trace *t, json_t **out)
{
    json_t *events = json_array();
    int status = events ? add_lanes(events) : SY_ENOMEM_HOST;
    for (size_t i = 0; i < t->n && status == SY_OK; i++)
        if (json_array_append_new(events, span_json(t, &t->spans[i])) < 0)
            status = SY_ENOMEM_HOST;
    if (status == SY_OK)
        *out = json_pack("{s:O, s:s, s:I}", "traceEvents", events, "displayTimeUnit", "ms",
                         "dropped", (json_int_t)t->n_dropped);
    json_decref(events);
    if (status < 0 || !*out)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a trace of %zu events", t->n);
    return SY_OK;
}

int sy_trace_watch(struct sy_trace *t, bool on)
{
    if (!on) {
        free(t->timeline);
        t->timeline = NULL;
    } else if (!t->timeline) {
        t->timeline = calloc(1, sizeof *t->timeline);
        SY_TRY_ALLOC(t->timeline, "no memory for the timeline");
    }
    return SY_OK;
}

struct sy_timeline *sy_trace_timeline(struct sy_trace *t)
{
    return t->timeline;
}

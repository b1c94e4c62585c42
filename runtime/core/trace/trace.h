/* The trace: spans in named lanes, kept in memory, given out as Chrome trace events. One thread. */
#ifndef SY_RUNTIME_CORE_TRACE_H
#define SY_RUNTIME_CORE_TRACE_H

#include <jansson.h>
#include <stdbool.h>

#include "runtime/core/trace/timeline.h"

#define SY_TRACE_MAX_EVENTS 200000

/* X(NAME, the lane's text); the value is the tid. */
#define SY_TRACE_LANE_TABLE(X) \
    X(STORAGE, "storage")      \
    X(LINK, "link")            \
    X(INFERENCE, "inference") X(TRAINING, "training") X(QUEUE, "queue") X(WAIT, "wait")

enum sy_trace_lane {
#define X(name, text) SY_TRACE_##name,
    SY_TRACE_LANE_TABLE(X)
#undef X
        SY_TRACE_N_LANES
};

struct sy_trace;

int sy_trace_create(struct sy_trace **out); /* ENOMEM_HOST */
void sy_trace_destroy(struct sy_trace *t);
void sy_trace_enable(struct sy_trace *t, bool enable); /* true clears and starts */
/* Ignored while disabled, above the limit (then counted), or for an empty span. `name` is copied (47 bytes). */
void sy_trace_span(struct sy_trace *t, enum sy_trace_lane lane, const char *name, sy_ns start,
                   sy_ns end, uint64_t request);
/* {"traceEvents": [...], "displayTimeUnit": "ms"}: the lanes' names first; the caller decrefs. ENOMEM_HOST. */
int sy_trace_dump(const struct sy_trace *t, json_t **out);

/* On: spans of the first SY_TIMELINE_LANES lanes also go to the timeline, whether the trace is enabled or not. Off: the timeline is dropped. ENOMEM_HOST. */
int sy_trace_watch(struct sy_trace *t, bool on);
/* NULL: not watched. The reader clears it. */
struct sy_timeline *sy_trace_timeline(struct sy_trace *t);

#endif

/* Which requests are traced, and their way to the collector: what front ends say of a request meets trace settings and exporter.
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_FRONT_REQUEST_FRONT_TRACE_H
#define SY_RUNTIME_FRONT_REQUEST_FRONT_TRACE_H

#include "runtime/front/request/front.h"
#include "runtime/telemetry/trace_context.h"

/* Trace context of a request; the caller's, zeroed at first. */
struct sy_front_trace {
    const char *protocol; /* a literal; NULL: "msgpack" */
    sy_ns received_ns;    /* when the request's first byte came; 0: not known */
    struct sy_trace_context context;
    char *tracestate; /* owned; NULL: none */
};

/* Headers as they came; NULL: none. What is malformed is as if it had not come. Once. */
void sy_front_trace_take(struct sy_front_trace *trace, const char *protocol, sy_ns received_ns,
                         const char *traceparent, const char *tracestate);
void sy_front_trace_finish(struct sy_front_trace *trace);

/* The request has ended. report: NULL for one that never ran. Nothing happens without a collector (front->otlp). */
void sy_front_trace_note(struct sy_front *front, const struct sy_front_trace *trace,
                         const struct sy_core_model_ref *model, int status, const char *error,
                         const struct sy_request_report *report);

#endif

/* Requests as spans, in OTLP's JSON (an ExportTraceServiceRequest). Pure.
 *
 *   client's span ─> infer MODEL (SERVER) ─┬─ queue
 *                                          ├─ storage, link      beside the others, where weights moved
 *                                          ├─ wait
 *                                          └─ compute
 *
 * J1: a child lies within its parent; it begins when runtime/core/phases.h says so.
 * J2: the ids of a request's spans follow from its own: the same records make the same text. */
#ifndef SY_TELEMETRY_OTLP_JSON_H
#define SY_TELEMETRY_OTLP_JSON_H

#include <stddef.h>

#include "runtime/core/core.h"
#include "runtime/telemetry/trace_context.h"

#define SY_OTLP_ERROR_BYTES 160

/* One request that has ended. */
struct sy_otlp_record {
    struct sy_trace_context context; /* trace_id is set, also where the client gave none */
    uint64_t span_id;                /* id of the server's span; not 0 */
    int64_t wall_offset_ns;          /* added to CLOCK_MONOTONIC gives the time since 1970 */
    char tracestate[SY_TRACE_STATE_BYTES], model[SY_CORE_MODEL_NAME], error[SY_OTLP_ERROR_BYTES];
    int64_t version;
    const char *protocol; /* "http", "grpc", "msgpack": a literal */
    int status;           /* enum sy_status */
    sy_ns from_ns, to_ns; /* of the server's span */
    bool has_report;
    struct sy_request_report report;
};

/* `service_version` is the program's. *out_text is the caller's to free, *out_bytes without its end. ENOMEM_HOST. */
int sy_otlp_json(const char *service_version, const struct sy_otlp_record *const *records, int n,
                 char **out_text, size_t *out_bytes);

#endif

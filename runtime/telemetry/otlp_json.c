#include "runtime/telemetry/otlp_json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/base/text_builder.h"
#include "runtime/core/phases.h"

#define KIND_INTERNAL 1
#define KIND_SERVER   2
#define STATUS_ERROR  2
/* Flags of a span: whether it is known that its parent is another process's, and whether it is. */
#define PARENT_IS_KNOWN  0x100u
#define PARENT_IS_REMOTE 0x200u

/* ---- text ---------------------------------------------------------------------------------------------------------- */

static void put_format(struct sy_text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Short pieces only: numbers and fixed text. */
static void put_format(struct sy_text *t, const char *format, ...)
{
    char piece[256];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    sy_assert_internal(n >= 0 && (size_t)n < sizeof piece);
    sy_text_add(t, piece, SY_MIN((size_t)n, sizeof piece - 1));
}

static void put_hex(struct sy_text *t, const uint8_t *bytes, int n)
{
    static const char hex[] = "0123456789abcdef";

    sy_text_add(t, "\"", 1);
    for (int i = 0; i < n; i++)
        sy_text_add(t, (char[]){hex[bytes[i] >> 4], hex[bytes[i] & 15]}, 2);
    sy_text_add(t, "\"", 1);
}

/* ---- attributes ---------------------------------------------------------------------------------------------------- */

static void begin_attribute(struct sy_text *t, const char *key)
{
    if (t->used > 0 && t->at[t->used - 1] != '[')
        sy_text_add(t, ",", 1);
    put_format(t, "{\"key\":\"%s\",\"value\":", key);
}

static void attribute_text(struct sy_text *t, const char *key, const char *value)
{
    begin_attribute(t, key);
    put_format(t, "{\"stringValue\":");
    sy_text_add_json_string(t, value);
    put_format(t, "}}");
}

/* 64-bit numbers are strings in OTLP's JSON. */
static void attribute_count(struct sy_text *t, const char *key, uint64_t value)
{
    begin_attribute(t, key);
    put_format(t, "{\"intValue\":\"%" PRIu64 "\"}}", SY_MIN(value, (uint64_t)INT64_MAX));
}

static void attribute_flag(struct sy_text *t, const char *key, bool value)
{
    begin_attribute(t, key);
    put_format(t, "{\"boolValue\":%s}}", value ? "true" : "false");
}

/* ---- spans --------------------------------------------------------------------------------------------------------- */

/* J2: another id for each phase, never 0 (splitmix64's last step: as good as chance). */
static uint64_t child_id(uint64_t span_id, int phase)
{
    uint64_t z = span_id + (uint64_t)(phase + 1) * 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return z ? z : 1;
}

static void put_span_id(struct sy_text *t, uint64_t id)
{
    put_format(t, "\"%016" PRIx64 "\"", id);
}

static void put_time(struct sy_text *t, const char *key, const struct sy_otlp_record *r, sy_ns at)
{
    put_format(t, ",\"%s\":\"%" PRIu64 "\"", key, (uint64_t)((int64_t)at + r->wall_offset_ns));
}

static void begin_span(struct sy_text *t, const struct sy_otlp_record *r, uint64_t id)
{
    put_format(t, "{\"traceId\":");
    put_hex(t, r->context.trace_id, SY_TRACE_ID_BYTES);
    put_format(t, ",\"spanId\":");
    put_span_id(t, id);
    if (*r->tracestate) {
        put_format(t, ",\"traceState\":");
        sy_text_add_json_string(t, r->tracestate);
    }
}

static void put_phase(struct sy_text *t, const struct sy_otlp_record *r, enum sy_phase phase,
                      const struct sy_phase_span *span)
{
    sy_ns from = SY_MIN(SY_MAX(span->from_ns, r->from_ns), r->to_ns);
    sy_ns to = SY_MAX(SY_MIN(span->to_ns, r->to_ns), from);

    sy_text_add(t, ",", 1);
    begin_span(t, r, child_id(r->span_id, (int)phase));
    put_format(t, ",\"parentSpanId\":");
    put_span_id(t, r->span_id);
    put_format(t, ",\"flags\":%u,\"name\":\"%s\",\"kind\":%d", PARENT_IS_KNOWN | r->context.flags,
               sy_phase_label(phase), KIND_INTERNAL);
    put_time(t, "startTimeUnixNano", r, from);
    put_time(t, "endTimeUnixNano", r, to);
    put_format(t, ",\"attributes\":[");
    attribute_count(t, "switchyard.phase_ns", span->ns);
    put_format(t, "]}");
}

static void put_report(struct sy_text *t, const struct sy_request_report *report)
{
    attribute_count(t, "switchyard.request", report->id);
    attribute_count(t, "switchyard.moved_bytes", report->moved_bytes);
    attribute_count(t, "switchyard.storage_bytes", report->storage_bytes);
    attribute_flag(t, "switchyard.swapped", report->swapped);
    attribute_flag(t, "switchyard.preempted", report->preempted);
    attribute_count(t, "switchyard.preempt_wait_ns", report->preempt_wait_ns);
    attribute_count(t, "switchyard.predicted_ns", report->predicted_ns);
    attribute_count(t, "switchyard.bound_ns", report->bound_ns);
    attribute_count(t, "switchyard.attempts", (uint64_t)SY_MAX(report->attempts, 0));
    if (report->worker >= 0)
        attribute_count(t, "switchyard.worker", (uint64_t)report->worker);
}

static void put_status(struct sy_text *t, const struct sy_otlp_record *r)
{
    if (r->status >= 0)
        return;
    put_format(t, ",\"status\":{\"code\":%d,\"message\":", STATUS_ERROR);
    sy_text_add_json_string(t, r->error);
    put_format(t, "}");
}

static void put_server_span(struct sy_text *t, const struct sy_otlp_record *r)
{
    begin_span(t, r, r->span_id);
    if (r->context.is_given) {
        put_format(t, ",\"parentSpanId\":");
        put_hex(t, r->context.parent_id, SY_SPAN_ID_BYTES);
    }
    put_format(t, ",\"flags\":%u,\"name\":",
               PARENT_IS_KNOWN | (r->context.is_given ? PARENT_IS_REMOTE : 0) | r->context.flags);
    char name[SY_CORE_MODEL_NAME + 8];
    snprintf(name, sizeof name, "infer %s", r->model);
    sy_text_add_json_string(t, name);
    put_format(t, ",\"kind\":%d", KIND_SERVER);
    put_time(t, "startTimeUnixNano", r, r->from_ns);
    put_time(t, "endTimeUnixNano", r, r->to_ns);
    put_format(t, ",\"attributes\":[");
    attribute_text(t, "switchyard.model", r->model);
    attribute_count(t, "switchyard.model_version", (uint64_t)SY_MAX(r->version, 0));
    attribute_text(t, "switchyard.protocol", r->protocol);
    attribute_text(t, "switchyard.status", sy_status_name(r->status));
    if (r->has_report)
        put_report(t, &r->report);
    put_format(t, "]");
    put_status(t, r);
    put_format(t, "}");
}

static void put_request(struct sy_text *t, const struct sy_otlp_record *r)
{
    struct sy_phase_span spans[SY_N_PHASES];

    put_server_span(t, r);
    if (!r->has_report)
        return;
    sy_phases_of(&r->report, spans);
    for (int i = 0; i < SY_N_PHASES; i++)
        if (spans[i].from_ns)
            put_phase(t, r, (enum sy_phase)i, &spans[i]);
}

int sy_otlp_json(const char *service_version, const struct sy_otlp_record *const *records, int n,
                 char **out_text, size_t *out_bytes)
{
    struct sy_text t = {0};

    put_format(&t, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    attribute_text(&t, "service.name", "switchyard");
    attribute_text(&t, "service.version", service_version);
    put_format(&t, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"switchyard\",\"version\":");
    sy_text_add_json_string(&t, service_version);
    put_format(&t, "},\"spans\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0)
            sy_text_add(&t, ",", 1);
        put_request(&t, records[i]);
    }
    put_format(&t, "]}]}]}");
    if (t.failed) {
        sy_text_finish(&t);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the spans of %d requests", n);
    }
    *out_text = t.at;
    *out_bytes = t.used;
    return SY_OK;
}

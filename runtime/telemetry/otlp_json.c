#include "runtime/telemetry/otlp_json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"
#include "runtime/metrics/phases.h"

#define FIRST_BYTES   (16u << 10)
#define KIND_INTERNAL 1
#define KIND_SERVER   2
#define STATUS_ERROR  2
/* Of a span's flags: whether its parent is another process's is known, and is so. */
#define PARENT_IS_KNOWN  0x100u
#define PARENT_IS_REMOTE 0x200u

/* ---- text ---------------------------------------------------------------------------------------------------------- */

struct text {
    char *bytes;
    size_t used, size;
    bool failed; /* no memory: nothing is added any more */
};

static bool has_room(struct text *t, size_t n)
{
    size_t size = SY_MAX(t->size, FIRST_BYTES);

    if (t->failed || t->used + n <= t->size)
        return !t->failed;
    while (size < t->used + n)
        size *= 2;
    char *bytes = realloc(t->bytes, size);
    t->failed = !bytes;
    if (!bytes)
        return false;
    t->bytes = bytes;
    t->size = size;
    return true;
}

static void put(struct text *t, const char *bytes, size_t n)
{
    if (!has_room(t, n))
        return;
    memcpy(t->bytes + t->used, bytes, n);
    t->used += n;
}

static void put_format(struct text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Short pieces only: numbers and fixed text. */
static void put_format(struct text *t, const char *format, ...)
{
    char piece[256];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    sy_assert_internal(n >= 0 && (size_t)n < sizeof piece);
    put(t, piece, SY_MIN((size_t)n, sizeof piece - 1));
}

/* What cannot be shown becomes '?': JSON takes UTF-8 only. */
static void put_string(struct text *t, const char *value)
{
    put(t, "\"", 1);
    while (*value) {
        size_t n = SY_MIN(sy_printable_length(value), strcspn(value, "\\\""));

        put(t, value, n);
        value += n;
        if (!*value)
            break;
        if (*value == '\\' || *value == '"')
            put(t, (char[]){'\\', *value}, 2);
        else
            put(t, "?", 1);
        value++;
    }
    put(t, "\"", 1);
}

static void put_hex(struct text *t, const uint8_t *bytes, int n)
{
    static const char hex[] = "0123456789abcdef";

    put(t, "\"", 1);
    for (int i = 0; i < n; i++)
        put(t, (char[]){hex[bytes[i] >> 4], hex[bytes[i] & 15]}, 2);
    put(t, "\"", 1);
}

/* ---- attributes ---------------------------------------------------------------------------------------------------- */

static void begin_attribute(struct text *t, const char *key)
{
    if (t->used > 0 && t->bytes[t->used - 1] != '[')
        put(t, ",", 1);
    put_format(t, "{\"key\":\"%s\",\"value\":", key);
}

static void attribute_text(struct text *t, const char *key, const char *value)
{
    begin_attribute(t, key);
    put_format(t, "{\"stringValue\":");
    put_string(t, value);
    put_format(t, "}}");
}

/* 64-bit numbers are strings in OTLP's JSON. */
static void attribute_count(struct text *t, const char *key, uint64_t value)
{
    begin_attribute(t, key);
    put_format(t, "{\"intValue\":\"%" PRIu64 "\"}}", SY_MIN(value, (uint64_t)INT64_MAX));
}

static void attribute_flag(struct text *t, const char *key, bool value)
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

static void put_span_id(struct text *t, uint64_t id)
{
    put_format(t, "\"%016" PRIx64 "\"", id);
}

static void put_time(struct text *t, const char *key, const struct sy_otlp_record *r, sy_ns at)
{
    put_format(t, ",\"%s\":\"%" PRIu64 "\"", key, (uint64_t)((int64_t)at + r->wall_offset_ns));
}

static void begin_span(struct text *t, const struct sy_otlp_record *r, uint64_t id)
{
    put_format(t, "{\"traceId\":");
    put_hex(t, r->context.trace_id, SY_TRACE_ID_BYTES);
    put_format(t, ",\"spanId\":");
    put_span_id(t, id);
    if (*r->tracestate) {
        put_format(t, ",\"traceState\":");
        put_string(t, r->tracestate);
    }
}

static void put_phase(struct text *t, const struct sy_otlp_record *r, enum sy_phase phase,
                      const struct sy_phase_span *span)
{
    sy_ns from = SY_MIN(SY_MAX(span->from_ns, r->from_ns), r->to_ns);
    sy_ns to = SY_MAX(SY_MIN(span->to_ns, r->to_ns), from);

    put(t, ",", 1);
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

static void put_report(struct text *t, const struct sy_request_report *report)
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

static void put_status(struct text *t, const struct sy_otlp_record *r)
{
    if (r->status >= 0)
        return;
    put_format(t, ",\"status\":{\"code\":%d,\"message\":", STATUS_ERROR);
    put_string(t, r->error);
    put_format(t, "}");
}

static void put_server_span(struct text *t, const struct sy_otlp_record *r)
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
    put_string(t, name);
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

static void put_request(struct text *t, const struct sy_otlp_record *r)
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
    struct text t = {0};

    put_format(&t, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    attribute_text(&t, "service.name", "switchyard");
    attribute_text(&t, "service.version", service_version);
    put_format(&t, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"switchyard\",\"version\":");
    put_string(&t, service_version);
    put_format(&t, "},\"spans\":[");
    for (int i = 0; i < n; i++) {
        if (i > 0)
            put(&t, ",", 1);
        put_request(&t, records[i]);
    }
    put_format(&t, "]}]}]}");
    if (t.failed) {
        free(t.bytes);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the spans of %d requests", n);
    }
    *out_text = t.bytes;
    *out_bytes = t.used;
    return SY_OK;
}

/* Sends requests' spans to a collector: OTLP over HTTP, in JSON.
 *
 *   sy_otlp_note ─> waiting (a ring) ─ 64 at once, or after a second ─> POST ─ 2xx ─> gone
 *                                            └──── 429, 502, 503, 504, no answer: again, later each time
 *
 * O1: it costs requests nothing but memory that is bounded: at most SY_OTLP_WAITING wait, more are dropped and counted.
 * O2: one POST is under way at a time, answered within 10 s. What is refused for good, or 6 times, is dropped and counted; the first failure after a
 *     success is logged, those that follow are not.
 * O3: building the text of 64 requests takes less than a millisecond of the loop.
 *
 * One thread, the event loop's. */
#ifndef SY_TELEMETRY_OTLP_H
#define SY_TELEMETRY_OTLP_H

#include "runtime/core/core.h"
#include "runtime/telemetry/trace_context.h"

#define SY_OTLP_WAITING 4096
#define SY_OTLP_BATCH   64

struct event_base;
struct sy_otlp;

struct sy_otlp_config {
    const char *url;     /* "http://host:4318", which is .../v1/traces, or with a path of its own */
    const char *version; /* of this program */
    sy_ns flush_ns;      /* maximum delay before spans are sent; 0: 1 s */
    sy_ns retry_ns;      /* before the first repetition, doubling up to 30 s; 0: 1 s */
};

/* The host is looked up here, once (which may block). EARG names what is wrong with the URL; https is EUNSUPPORTED: put a collector beside the server.
 * ENOMEM_HOST. A collector that is not there is no error. */
int sy_otlp_create(struct event_base *base, const struct sy_otlp_config *config,
                   struct sy_otlp **out);
/* Unsent spans are lost: call sy_otlp_drain first. NULL is fine. */
void sy_otlp_destroy(struct sy_otlp *otlp);

/* A request that has ended and is to be traced; copied. */
struct sy_otlp_request {
    const struct sy_trace_context
        *context;           /* as the client sent it; is_given false: a trace of its own */
    const char *tracestate; /* valid, or NULL */
    const char *model;
    int64_t version;
    const char *protocol; /* a literal */
    int status;           /* of sy_status */
    const char *error;    /* NULL: its text */
    sy_ns received_ns;    /* when the client's bytes began to come; 0: when it came to the core */
    const struct sy_request_report *report; /* NULL: it never ran */
};
void sy_otlp_note(struct sy_otlp *otlp, const struct sy_otlp_request *request);

struct sy_otlp_counts {
    uint64_t n_exported;                        /* requests */
    uint64_t n_dropped_full, n_dropped_refused; /* O1, O2 */
    uint64_t n_waiting;
};
void sy_otlp_counts(const struct sy_otlp *otlp, struct sy_otlp_counts *out);

/* When the server stops: sends what waits, once, for at most so long. Runs the loop meanwhile. */
void sy_otlp_drain(struct sy_otlp *otlp, sy_ns most_ns);

#endif

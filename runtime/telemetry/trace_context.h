/* W3C Trace Context: the headers traceparent and tracestate. Pure. */
#ifndef SY_TELEMETRY_TRACE_CONTEXT_H
#define SY_TELEMETRY_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#define SY_TRACE_ID_BYTES    16
#define SY_SPAN_ID_BYTES     8
#define SY_TRACE_SAMPLED     0x01u
#define SY_TRACE_STATE_BYTES 513 /* of a tracestate that is passed on, with its end */

struct sy_trace_context {
    bool is_given; /* by the client; else all is 0 */
    uint8_t trace_id[SY_TRACE_ID_BYTES], parent_id[SY_SPAN_ID_BYTES];
    uint8_t flags; /* SY_TRACE_SAMPLED, and what else the client sent */
};

/* Parses a traceparent's value; versions to come are read as version 00, as the specification asks. False: it is malformed, and *out is zeroed: the request
 * begins a trace of its own. NULL is malformed. */
bool sy_trace_context_parse(const char *traceparent, struct sy_trace_context *out);
/* Whether a tracestate's value may be passed on: at most 32 members, 512 bytes, keys and values of the allowed characters, no key twice. One that may not is
 * left out; the traceparent holds all the same. */
bool sy_trace_state_is_valid(const char *tracestate);

#endif

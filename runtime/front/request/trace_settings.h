/* Triton's trace settings, and which requests are traced by them.
 *
 * Settings are asked for and changed as JSON, by HTTP and gRPC alike:
 *
 *   {"trace_level": ["TIMESTAMPS"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0", "trace_file": "", "trace_mode": "opentelemetry"}
 *
 * A value is a string, a list of strings (gRPC has nothing else) or null, which gives the setting back: a model's to the global one, a global one to what
 * the server started with.
 *
 * T1: a model has the global value of each setting that it was not given itself. Models that never had one of their own share the global counting.
 * T2: one request in trace_rate is traced (0: none), until trace_count were (-1: no end). A client that sends a traceparent has decided already: its
 *     flag counts, not the rate.
 * T3: at trace_level OFF no request is traced.
 * T4: what cannot be changed here is refused by name: trace_file and trace_mode (traces go to the collector), level TENSORS, unknown settings. Then
 *     nothing is changed.
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_FRONT_REQUEST_TRACE_SETTINGS_H
#define SY_RUNTIME_FRONT_REQUEST_TRACE_SETTINGS_H

#include <jansson.h>
#include <stdbool.h>

struct sy_trace_settings;

/* is_on: the level is TIMESTAMPS (there is somewhere to send traces to). ratio: of requests, 0 to 1, that is traced while nobody has set a trace_rate, which
 * then says the nearest 1 in N. ENOMEM_HOST. */
int sy_trace_settings_create(bool is_on, double ratio, struct sy_trace_settings **out);
void sy_trace_settings_destroy(struct sy_trace_settings *settings); /* NULL is fine */

/* model NULL or "": the global ones. *out: all settings, the caller's reference. Whether the model exists is the caller's to check. ENOMEM_HOST. */
int sy_trace_settings_get(const struct sy_trace_settings *settings, const char *model,
                          json_t **out);
/* `changes` is an object (borrowed). EARG, EUNSUPPORTED: names the setting. EBUSY: 4096 models have settings of their own. ENOMEM_HOST. */
int sy_trace_settings_update(struct sy_trace_settings *settings, const char *model,
                             json_t *changes);

/* Whether this request is traced; counts it. has_parent: it came with a valid traceparent; is_sampled: that one's flag. */
bool sy_trace_settings_samples(struct sy_trace_settings *settings, const char *model,
                               bool has_parent, bool is_sampled);

#endif

#include "runtime/front/request/front_trace.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/front/request/trace_settings.h"
#include "runtime/telemetry/otlp.h"

void sy_front_trace_take(struct sy_front_trace *trace, const char *protocol, sy_ns received_ns,
                         const char *traceparent, const char *tracestate)
{
    trace->protocol = protocol;
    trace->received_ns = received_ns;
    if (sy_trace_context_parse(traceparent, &trace->context) &&
        trace->context.flags & SY_TRACE_SAMPLED && sy_trace_state_is_valid(tracestate))
        trace->tracestate = strdup(tracestate); /* without memory it is left out */
}

void sy_front_trace_finish(struct sy_front_trace *trace)
{
    free(trace->tracestate);
    trace->tracestate = NULL;
}

void sy_front_trace_note(struct sy_front *front, const struct sy_front_trace *trace,
                         const struct sy_core_model_ref *model, int status, const char *error,
                         const struct sy_request_report *report)
{
    const struct sy_trace_context *context = &trace->context;
    bool is_sampled = context->flags & SY_TRACE_SAMPLED;

    if (!front->otlp)
        return;
    if (front->trace_settings && !sy_trace_settings_samples(front->trace_settings, model->name,
                                                            context->is_given, is_sampled))
        return;
    sy_otlp_note(front->otlp, &(struct sy_otlp_request){
                                  .context = context,
                                  .tracestate = trace->tracestate,
                                  .model = model->name,
                                  .version = model->version,
                                  .protocol = trace->protocol ? trace->protocol : "msgpack",
                                  .status = status,
                                  .error = error,
                                  .received_ns = trace->received_ns,
                                  .report = report});
}

#include "runtime/core/phases.h"

#include "runtime/base/assert.h"

const char *sy_phase_label(enum sy_phase phase)
{
    static const char *const labels[] = {
#define X(name, label, what) label,
        SY_PHASE_TABLE(X)
#undef X
    };

    return labels[phase];
}

/* Workers report some of the times, so they are clipped to the request's duration. */
static struct sy_phase_span span_of(const struct sy_request_report *r, sy_ns from, sy_ns to)
{
    if (from == 0 || to == 0)
        return (struct sy_phase_span){0};
    from = SY_MIN(SY_MAX(from, r->arrived_ns), r->finished_ns);
    to = SY_MAX(SY_MIN(to, r->finished_ns), from);
    return (struct sy_phase_span){from, to, to - from};
}

void sy_phases_of(const struct sy_request_report *r, struct sy_phase_span spans[SY_N_PHASES])
{
    bool computed = r->run_ns > 0 && r->first_layer_ns > 0;
    sy_ns first = SY_MAX(r->first_layer_ns, r->run_ns);

    spans[SY_PHASE_QUEUE] =
        span_of(r, r->arrived_ns, r->started_ns ? r->started_ns : r->finished_ns);
    spans[SY_PHASE_STORAGE] = span_of(r, r->storage_start_ns, r->storage_end_ns);
    spans[SY_PHASE_LINK] = span_of(r, r->copy_start_ns, r->copy_end_ns);
    spans[SY_PHASE_WAIT] = span_of(r, computed ? r->run_ns : 0, first);
    spans[SY_PHASE_COMPUTE] = span_of(r, computed ? first : 0, r->finished_ns);

    struct sy_phase_span *wait = &spans[SY_PHASE_WAIT], *compute = &spans[SY_PHASE_COMPUTE];
    sy_ns both = wait->ns + compute->ns;
    wait->ns = SY_MIN(r->compute_wait_ns, both);
    compute->ns = both - wait->ns;
}

static void add(struct sy_histogram *h, struct sy_histogram *also, sy_ns duration)
{
    int bucket = sy_histogram_bucket(duration);

    sy_histogram_add_to(h, bucket, duration);
    sy_histogram_add_to(also, bucket, duration);
}

void sy_phases_add(struct sy_phase_histograms *h, struct sy_phase_histograms *also,
                   const struct sy_request_report *report)
{
    struct sy_phase_span spans[SY_N_PHASES];

    sy_phases_of(report, spans);
    for (int i = 0; i < SY_N_PHASES; i++)
        if (spans[i].from_ns)
            add(&h->of[i], &also->of[i], spans[i].ns);
    add(&h->total, &also->total,
        report->finished_ns - SY_MIN(report->arrived_ns, report->finished_ns));
}

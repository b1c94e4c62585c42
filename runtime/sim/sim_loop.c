/* The loop: the earliest of faults, jobs, requests and devices is next. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"

#define MAX_STANDING    100000 /* events at one device without time going on: a bug */
#define FAR_AHEAD       16
#define PROGRESS_EVENTS (1u << 16)

static uint64_t nth(const uint32_t *order, uint64_t i)
{
    return order ? order[i] : i;
}

/* One device's requests lie far apart. Behind its last come the next device's: a device has few enough for its first ones to matter. */
static void expect_in_order(const struct sim *s, const struct sy_sim_streams *at)
{
    if (at->request + FAR_AHEAD >= s->in->n_requests)
        return;
    const struct sy_sim_request *r = &s->in->requests[at->requests[at->request + FAR_AHEAD]];
    sy_sim_expect(r);
}

/* One event, the earliest; of those at one time faults, then jobs, then requests, then devices. Its device, negative: failed. */
static int one_event(struct sim *s, struct sy_sim_streams *at, sy_ns when, sy_ns fault, sy_ns job,
                     sy_ns request)
{
    s->now = when;
    s->report->n_events++;
    if (s->report->n_events % PROGRESS_EVENTS == 0 && s->config->progress)
        s->config->progress(s->config->progress_ctx, s->report);
    if (when == fault) {
        const struct sy_sim_fault *f = &s->in->faults[nth(at->faults, at->fault++)];
        int device = f->device - s->apart;
        sy_sim_fault(s, device, f);
        return device;
    }
    if (when == job)
        return sy_sim_submit(s, at->job++);
    if (when == request) {
        if (at->requests)
            expect_in_order(s, at);
        else
            sy_sim_expect_request(s, at->request);
        return sy_sim_arrive(s, nth(at->requests, at->request++));
    }
    int device = sy_sim_take_due(s);
    sy_sim_turn(s, device);
    return device;
}

static int broken(const struct sim *s, int device, const char *what)
{
    return sy_error_set(SY_EBUG, "device %d, event %llu at %.9f s: %s", s->apart + device,
                        (unsigned long long)s->report->n_events, (double)s->now / 1e9, what);
}

static int loop(struct sim *s, struct sy_sim_streams *at)
{
    const struct sy_sim_input *in = s->in;
    uint64_t n_standing = 0, limit = MAX_STANDING + at->n_requests + (uint64_t)in->n_jobs;
    for (;;) {
        sy_ns fault =
            at->fault < at->n_faults ? in->faults[nth(at->faults, at->fault)].at_ns : NEVER;
        sy_ns job = at->job < in->n_jobs ? in->jobs[at->job].submit_ns : NEVER;
        sy_ns request = at->request < at->n_requests
                            ? in->requests[nth(at->requests, at->request)].at_ns
                            : NEVER;
        sy_ns due = sy_sim_due_ns(s);
        sy_ns when = SY_MIN(SY_MIN(fault, job), SY_MIN(request, due));
        bool last = fault == when && job == NEVER && request == NEVER && due == NEVER;
        if (when == NEVER || last)
            return SY_OK; /* faults after everything else change nothing */
        if (s->config->end_ns > 0 && when > s->config->end_ns) {
            s->now = SY_MAX(s->now, s->config->end_ns);
            return SY_OK;
        }
        if (when >= LATEST_NS)
            return sy_error_set(
                SY_ETOOBIG,
                "at %.0f s of %llu events the next one is not before %.0f s: what runs "
                "takes too long to be simulated to its end; give --seconds",
                (double)s->now / 1e9, (unsigned long long)s->report->n_events,
                (double)LATEST_NS / 1e9);
        n_standing = when == s->now ? n_standing + 1 : 0;
        int device = one_event(s, at, when, fault, job, request);
        if (device < 0)
            return device;
        if (n_standing > limit)
            return broken(s, device, "time does not advance");
        if (s->config->check && !sy_sim_device_is_valid(s, device))
            return broken(s, device, "an invariant is broken");
    }
}

int sy_sim_loop(struct sim *s, struct sy_sim_streams *at)
{
    SY_TRY(loop(s, at));
    sy_sim_close_books(s);
    return SY_OK;
}

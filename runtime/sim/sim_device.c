/* One device: requests are served one by one, jobs' iterations run between them. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"

#define SAMPLE_DRAW 100 /* routers draw below */
#define NOISE_DRAW  101

static const struct sy_sim_request *request_of(const struct sim *s, uint64_t request)
{
    return &s->in->requests[request];
}

/* The next one's copies start as soon as the link is free. */
static void prefetch(struct sim *s, struct device *d)
{
    struct sy_admission_request next;
    int model = -1;
    if (d->serving && s->loads[d - s->devices] > 1 &&
        sy_admission_peek(sy_sim_queue(s, (int)(d - s->devices)), &next))
        model = request_of(s, next.id)->model;
    if (model == d->prefetch_model)
        return;
    d->prefetch_model = model;
    d->prefetch_from_ns = SY_MAX(s->now, d->link_free_ns);
}

static void tell(const struct sim *s, uint64_t request, int device, enum sy_sim_outcome outcome,
                 sy_ns served_ns)
{
    struct sy_sim_answer answer = {s->now, served_ns, request, s->apart + device, outcome};
    if (s->answers)
        sy_sim_answers_keep(s->answers, &answer);
    else
        sy_sim_tell(s, &answer);
}

/* The rest of a copy that was prefetched while another request computed. */
static sy_ns copy_left(const struct sim *s, const struct device *d, int model, uint64_t missing)
{
    if (d->prefetch_model != model || s->now <= d->prefetch_from_ns)
        return sy_sim_copy_ns(s, d, missing, s->now);
    sy_ns copy = sy_sim_copy_ns(s, d, missing, d->prefetch_from_ns);
    sy_ns done = s->now - d->prefetch_from_ns;
    return copy > done ? copy - done : 0;
}

/* M4 */
static sy_ns compute_ns(const struct sim *s, uint64_t request, sy_ns profile)
{
    const struct sy_sim_model *m = &s->in->models[request_of(s, request)->model];
    if (m->n_samples == 0)
        return sy_sim_ns((double)profile * sy_sim_noise_of(s, request, NOISE_DRAW));
    uint64_t which = sy_sim_draw(s, request, SAMPLE_DRAW) % (uint64_t)m->n_samples;
    return sy_sim_ns((double)profile * (double)m->samples[which]);
}

/* Its service time, copies included. */
static sy_ns bring_and_compute(struct sim *s, int device, uint64_t request)
{
    struct device *d = &s->devices[device];
    int model = request_of(s, request)->model;
    sy_ns profile = sy_sim_model_on(s, device, model)->compute_ns;
    sy_ns observed = request_of(s, request)->served_ns; /* R6 */
    uint64_t missing = sy_sim_missing_bytes(s, device, model);
    sy_ns copy = copy_left(s, d, model, missing);
    sy_ns compute = compute_ns(s, request, profile);
    sy_ns service = sy_sim_service_ns(s, device, model, copy, missing, compute);
    if (observed > 0) {
        service = observed;
        compute = missing > 0 ? SY_MIN(compute, observed) : observed;
    }
    if (missing > 0) {
        s->report->n_swaps++;
        s->report->moved_bytes += missing;
        sy_sim_bring_in(s, device, model);
        sy_predictor_observe_swap(s->predictor, model,
                                  sy_sim_profiled_swap_ns(s, device, model, missing),
                                  service - compute);
    } else {
        sy_sim_bring_in(s, device, model); /* it was used */
    }
    if (s->slowdowns)
        d->alone_compute_ns = compute; /* far away: R5 */
    else
        sy_predictor_observe_compute(s->predictor, model, profile, compute);
    d->link_free_ns = s->now + copy;
    if (s->in->n_faults > 0)
        d->swap = (struct swap){missing, observed > 0 ? 0 : compute, 0};
    return service;
}

/* Admission's record of a request that bypassed the queue (R5). */
static void tell_queue(struct sim *s, int device)
{
    struct device *d = &s->devices[device];
    if (!d->alone)
        return;
    struct sy_admission_request r = {
        .id = d->serves,
        .class_ = d->class_,
        .deadline_ns = sy_sim_deadline_ns(s, d->came_ns, d->deadline_ns),
        .duration = {d->serve_until_ns - d->serve_from_ns, 0},
    };
    sy_admission_take_over(sy_sim_queue(s, device), &r, d->serve_from_ns);
    d->alone = false;
}

/* M9 */
static void note_alone(struct device *d, sy_ns service, const struct sy_sim_request *r)
{
    d->stretches = r->served_ns == 0; /* observed times include it already (R6) */
    d->slow = 1;
    d->alone_ns = service;
}

static void serve(struct sim *s, int device, uint64_t request)
{
    const struct sy_sim_request *r = request_of(s, request);
    struct device *d = &s->devices[device];
    sy_ns service = s->left_ns ? s->left_ns[request] : 0;
    if (s->in->n_faults > 0)
        d->swap = (struct swap){0};
    if (s->slowdowns)
        d->alone_compute_ns = 0;
    if (service == 0)
        service = bring_and_compute(s, device, request);
    if (d->n_running > 0)
        service += d->swap.pause_ns = s->config->pause_ns; /* M2 */
    if (s->slowdowns)
        note_alone(d, service, r);
    d->serving = true;
    d->serves = (uint32_t)request;
    d->serve_from_ns = s->now;
    d->serve_until_ns = s->now + SY_MAX(service, 1);
    d->came_ns = r->at_ns;
    d->deadline_ns = r->deadline_ns;
    d->class_ = (uint8_t)r->class_;
    if (s->config->preempt_ns > 0)
        d->yield_at_ns = NEVER;
    if (d->alone && service > 0)
        return;
    tell_queue(s, device);
    sy_admission_expect(sy_sim_queue(s, device), (struct sy_duration){service, 0}, s->now);
}

static bool may_start(const struct sim *s, const struct device *d)
{
    return s->now >= sy_sim_down_until(s, d) &&
           (d->serving || s->now >= sy_sim_requests_from(s, d));
}

/* Whether it is taken. */
static int ask(struct sim *s, int device, const struct sy_admission_request *r, bool at_once)
{
    struct sy_prediction prediction;
    struct sy_admission *queue = at_once && s->idle ? s->idle : sy_sim_queue(s, device);
    if (!at_once) {
        tell_queue(s, device);
        return sy_admission_ask(queue, r, s->now, &prediction);
    }
    SY_TRY(sy_admission_ask_idle(queue, r, s->now, &prediction));
    if (s->idle) {
        sy_admission_done(s->idle);
        s->devices[device].alone = true;
    }
    return SY_OK;
}

static void stop_serving(struct sim *s, struct device *d)
{
    sy_sim_note_used(s, d, SY_SIM_USE_REQUESTS, d->serve_from_ns);
    d->serving = false;
    if (d->n_running > 0)
        d->advanced_ns = s->now;
    d->prefetch_model = d->serve_until_ns <= s->now ? d->prefetch_model : -1;
}

static void forget_request(struct sim *s, struct device *d)
{
    if (!d->alone)
        sy_admission_done(sy_sim_queue(s, (int)(d - s->devices)));
    d->alone = false;
    sy_sim_note_load(s, (int)(d - s->devices), -1);
}

/* M9: observes how much its neighbours slowed it down. An interrupted request is not a measurement. */
static void observe_slowdown(struct sim *s, const struct device *d)
{
    int model = request_of(s, d->serves)->model;
    if (d->alone_compute_ns == 0 || d->alone_ns == 0)
        return;
    double slower = (double)(s->now - d->serve_from_ns) / (double)d->alone_ns;
    sy_predictor_observe_compute(s->predictor, model,
                                 sy_sim_model_on(s, (int)(d - s->devices), model)->compute_ns,
                                 sy_sim_ns((double)d->alone_compute_ns * slower));
}

static void finish(struct sim *s, struct device *d)
{
    int device = (int)(d - s->devices);
    uint64_t request = d->serves;
    sy_ns served = s->now - d->came_ns, latency = served + sy_sim_outside_ns(s, request);
    if (s->slowdowns)
        observe_slowdown(s, d);
    stop_serving(s, d);
    forget_request(s, d);
    s->report->n_done++;
    s->report->n_late += d->deadline_ns > 0 && served > d->deadline_ns;
    sy_sim_note_latency(s->report, d->class_, latency);
    tell(s, request, device, SY_SIM_DONE, s->now - d->serve_from_ns);
    if (sy_sim_has_jobs(s, d) && d->share_permille > 0) {
        double share = d->share_permille / 1000.0;
        d->requests_from_ns =
            s->now + sy_sim_ns((double)(s->now - d->serve_from_ns) * share / (1 - share));
    }
}

static void pause_request(struct sim *s, struct device *d)
{
    s->left_ns[d->serves] = SY_MAX(sy_sim_ns((double)(d->serve_until_ns - s->now) / d->slow), 1);
    stop_serving(s, d);
    s->report->n_preempted++;
    sy_admission_paused(sy_sim_queue(s, (int)(d - s->devices)), s->now);
}

static void start_request(struct sim *s, int device)
{
    struct device *d = &s->devices[device];
    struct sy_admission_request next;
    if (s->loads[device] == d->serving || !may_start(s, d))
        return; /* no request waits, or none may start yet */
    if (s->slowdowns && !d->serving && sy_admission_peek(sy_sim_queue(s, device), &next) &&
        sy_sim_must_wait(s, device, next.id))
        return;
    switch (sy_admission_next(sy_sim_queue(s, (int)(d - s->devices)), s->now, &next)) {
    case SY_ADMISSION_START:
        serve(s, device, next.id);
        break;
    case SY_ADMISSION_PREEMPT:
        if (d->serve_until_ns > s->now + s->config->preempt_ns)
            d->yield_at_ns = s->now + s->config->preempt_ns;
        break;
    default:
        break;
    }
}

/* Requests wait for training's share, but no job may run: their tenants' hard shares are used up. */
static void give_up_share(struct sim *s, struct device *d)
{
    if (d->n_running > 0 || d->requests_from_ns <= s->now)
        return;
    d->requests_from_ns = 0;
    start_request(s, (int)(d - s->devices));
}

static void settle_one(struct sim *s, int device)
{
    struct device *d = &s->devices[device];
    sy_sim_advance(s, d);
    start_request(s, device);
    if (sy_sim_has_jobs(s, d) && !d->serving && s->now >= sy_sim_down_until(s, d)) {
        sy_sim_begin_iterations(s, d);
        give_up_share(s, d);
    }
    prefetch(s, d);
    sy_sim_reschedule(s, device);
}

/* M9: the served request's slow-down from now on. */
static void stretch(struct sim *s, int device, double slow)
{
    struct device *d = &s->devices[device];
    double left = (double)(d->serve_until_ns - SY_MIN(s->now, d->serve_until_ns));
    d->serve_until_ns = s->now + SY_MAX(sy_sim_ns(left * slow / d->slow), left > 0);
    d->slow = slow;
    sy_admission_expect(sy_sim_queue(s, device),
                        (struct sy_duration){SY_MAX(d->serve_until_ns - s->now, 1), 0}, s->now);
}

static void update_rates(struct sim *s, int device)
{
    struct device *d = &s->devices[device];
    if (d->serving && d->stretches) {
        double slow = sy_sim_request_slow_down(s, device);
        if (slow != d->slow)
            stretch(s, device, slow);
    }
    sy_sim_advance(s, d);
    if (d->n_running > 0)
        sy_sim_set_rates(s, d);
    sy_sim_reschedule(s, device);
}

/* After a change on one slice: the device's other slices start what can start now, and all continue at their new rates. */
static void settle_slowdown(struct sim *s, int device)
{
    for (int i = 0; i < s->config->n_slices; i++) {
        int at = sy_sim_slice_at(s, device, i);
        if (at != device && !s->devices[at].serving)
            settle_one(s, at);
    }
    for (int i = 0; i < s->config->n_slices; i++)
        update_rates(s, sy_sim_slice_at(s, device, i));
}

/* After each event: starts what can start. */
static void settle(struct sim *s, int device)
{
    settle_one(s, device);
    if (s->slowdowns)
        settle_slowdown(s, device);
}

/* ---- events ---- */

/* Its tenant's quota refused the model, everywhere: M8. */
static void refuse_unserved(struct sim *s, uint64_t request)
{
    s->report->n_requests++;
    s->report->n_refused++;
    s->report->n_not_loaded++;
    tell(s, request, -1 - s->apart, SY_SIM_REFUSED, 0);
}

int sy_sim_arrive(struct sim *s, uint64_t request)
{
    const struct sy_sim_request *r = request_of(s, request);
    struct sy_sim_asked asked = {.kind = NULL};
    if (sy_sim_fleet_of(s, r->model)->n_devices == 0) {
        refuse_unserved(s, request);
        return 0;
    }
    int device = sy_sim_route(s, r, &asked);
    struct device *d = &s->devices[device];
    sy_sim_expect_device(s, device, 0);
    const struct sy_admission_request *asks = sy_sim_ask_for(s, device, request, &asked);
    bool at_once = s->loads[device] == 0 && may_start(s, d) &&
                   !(s->slowdowns && sy_sim_must_wait(s, device, request));
    s->report->n_requests++;
    int status = ask(s, device, asks, at_once);
    if (status < 0) {
        s->report->n_refused++;
        s->report->n_busy += status == SY_EBUSY;
        tell(s, request, device, SY_SIM_REFUSED, 0);
        return device;
    }
    sy_sim_note_load(s, device, 1);
    sy_sim_advance(s, d);
    if (at_once)
        serve(s, device, request);
    settle(s, device);
    return device;
}

void sy_sim_turn(struct sim *s, int device)
{
    struct device *d = &s->devices[device];
    sy_sim_advance(s, d);
    if (d->serving && s->now >= d->serve_until_ns)
        finish(s, d);
    else if (d->serving && s->now >= sy_sim_yield_at(s, d))
        pause_request(s, d);
    else if (!d->serving)
        sy_sim_end_iterations(s, d);
    sy_sim_welcome(s, d);
    settle(s, device);
}

/* Copies, and the served request with them, take longer from now on. */
static void slow_link(struct sim *s, int device, const struct sy_sim_fault *f)
{
    struct device *d = &s->devices[device];
    uint64_t left = sy_sim_bytes_left(s, d);
    d->link_factor = f->factor;
    d->link_slow_from_ns = s->now;
    d->link_slow_until_ns = s->now + f->duration_ns;
    if (!d->serving || left == 0)
        return;
    d->link_free_ns = s->now + sy_sim_copy_ns(s, d, left, s->now);
    if (d->prefetch_from_ns > s->now)
        d->prefetch_from_ns = d->link_free_ns; /* it waits for the link */
    if (d->swap.compute_ns == 0)
        return; /* R6 */
    int model = request_of(s, d->serves)->model;
    sy_ns copy = d->link_free_ns - d->serve_from_ns, missing = d->swap.missing;
    sy_ns service = sy_sim_service_ns(s, device, model, copy, missing, d->swap.compute_ns);
    d->serve_until_ns = SY_MAX(d->serve_from_ns + service + d->swap.pause_ns, s->now);
    sy_admission_expect(sy_sim_queue(s, device),
                        (struct sy_duration){d->serve_until_ns - s->now, 0}, s->now);
    settle(s, device);
}

void sy_sim_fault(struct sim *s, int device, const struct sy_sim_fault *f)
{
    struct device *d = &s->devices[device];
    s->report->n_faults++;
    sy_sim_advance(s, d);
    if (f->kind == SY_SIM_LINK_SLOWS) {
        slow_link(s, device, f);
        return;
    }
    d->down_until_ns = SY_MAX(d->down_until_ns, s->now + f->duration_ns);
    if (d->serving) {
        uint32_t request = d->serves;
        stop_serving(s, d);
        sy_sim_stop_copy(s, device, request_of(s, request)->model);
        if (s->left_ns)
            s->left_ns[request] = 0;
        if (++s->deaths[request] < SY_SCHED_MOST_DEATHS) {
            struct sy_sim_asked asked = {.kind = NULL};
            sy_admission_again(sy_sim_queue(s, device),
                               sy_sim_ask_for(s, device, request, &asked)->duration, s->now);
        } else {
            s->report->n_failed++;
            tell(s, request, device, SY_SIM_FAILED, s->now - d->serve_from_ns);
            forget_request(s, d);
        }
    }
    sy_sim_lose_iterations(s, d);
    settle(s, device);
}

bool sy_sim_device_is_valid(const struct sim *s, int device)
{
    const struct device *d = &s->devices[device];
    const struct kind *kind = sy_sim_kind_of(s, device);
    uint64_t sum = 0,
             n_load = (uint64_t)sy_admission_n_waiting(sy_sim_queue(s, (int)(d - s->devices))) +
                      d->serving;
    for (int m = 0; m < s->in->n_models; m++) {
        const struct place *p = &s->places[(size_t)device * (size_t)s->in->n_models + (size_t)m];
        if (p->bytes > s->in->models[m].bytes || (p->bytes > 0) != (p->holder >= 0) ||
            (p->bytes > 0 && !kind->models[m].served))
            return false;
        if (sy_sim_missing_bytes(s, device, m) !=
            (kind->is->unified ? 0 : s->in->models[m].bytes - p->bytes))
            return false;
        sum += p->bytes;
    }
    return sum == d->resident_bytes && n_load == s->loads[device] &&
           sum + sy_sim_job_bytes(d) <= kind->is->pool_bytes &&
           (d->serving && !d->alone) ==
               sy_admission_is_busy(sy_sim_queue(s, (int)(d - s->devices))) &&
           sy_admission_is_valid(sy_sim_queue(s, (int)(d - s->devices))) &&
           (!d->lanes || sy_lanes_is_valid(d->lanes));
}

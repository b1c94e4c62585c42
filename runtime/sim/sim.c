#include "runtime/sim/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"
#include "runtime/sim/sim_memory.h"

#define MAX_DEVICES     100000
#define MAX_MODELS      100000
#define MAX_STANDING    100000 /* events at one device without time going on: a bug */
#define HIGH            0.99   /* quantile that promises are built on */
#define FAR_AHEAD       16
#define PROGRESS_EVENTS (1u << 16)

void sy_sim_config_default(struct sy_sim_config *config)
{
    *config = (struct sy_sim_config){
        .policy = {SY_POLICY_FIFO, 0, 0, 0},
        .device = {.name = "device",
                   .n_devices = 1,
                   .pool_bytes = 16000000000ull,
                   .link_gbps = 12.3,
                   .speed = 1},
        .regroup = true,
        .pause_ns = SY_NS_PER_MS / 2,
        .max_queue = 128,
        .seed = 1,
    };
}

const char *sy_sim_outcome_name(enum sy_sim_outcome outcome)
{
    static const char *const names[] = {"done", "refused", "failed"};
    return (unsigned)outcome < SY_ARRAY_LEN(names) ? names[outcome] : "?";
}

uint64_t sy_sim_random(struct sim *s)
{
    return sy_sim_mix(s->random += 0x9e3779b97f4a7c15ull);
}

static double lognormal(const struct sim *s, uint64_t first, uint64_t second)
{
    double a = ((double)(first >> 11) + 1) * 0x1p-53, b = (double)(second >> 11) * 0x1p-53;
    return exp(s->config->noise * sqrt(-2 * log(a)) * cos(2 * M_PI * b));
}

double sy_sim_noise(struct sim *s)
{
    if (s->config->noise <= 0)
        return 1;
    uint64_t first = sy_sim_random(s);
    return lognormal(s, first, sy_sim_random(s));
}

double sy_sim_noise_of(const struct sim *s, uint64_t request, int nth)
{
    if (s->config->noise <= 0)
        return 1;
    return lognormal(s, sy_sim_draw(s, request, nth), sy_sim_draw(s, request, nth + 1));
}

/* Of the next device: its waiting requests came long ago, and start when it ends. */
static void expect_waiting(const struct sim *s, int device)
{
    struct sy_admission_request next;
    if (s->n_devices >= SY_SIM_MANY && s->loads[device] > 1 &&
        sy_admission_peek(sy_sim_queue(s, device), &next))
        sy_sim_expect(&s->in->requests[next.id]);
}

/* The next of the devices with the least work gets a request soon. The residency router hardly ever asks for it. */
static void note_drained(struct sim *s, int device, sy_ns down)
{
    sy_ns drained = SY_MAX(sy_admission_drained_ns(sy_sim_queue(s, device), s->now), down);
    struct kind *kind = &s->kinds[s->kind_of ? s->kind_of[device] : 0];
    if (s->config->router == SY_SIM_RESIDENCY) {
        sy_sim_tree_set_later(&kind->load, device - kind->first, drained);
        return;
    }
    int soon = sy_sim_tree_set(&kind->load, device - kind->first, drained);
    if (soon >= 0 && soon + kind->first != device)
        sy_sim_expect_device(s, soon + kind->first, 0);
}

void sy_sim_reschedule(struct sim *s, int device)
{
    struct device *d = &s->devices[device];
    sy_ns due = NEVER, down = sy_sim_down_until(s, d);
    sy_ns held = SY_MAX(down, sy_sim_requests_from(s, d));
    if (d->serving)
        due = SY_MIN(d->serve_until_ns, sy_sim_yield_at(s, d));
    else if (s->loads[device] > 0 && held > s->now)
        due = held;
    due = SY_MIN(due, sy_sim_next_iteration_end(s, d));
    if (d->has_newcomers)
        due = s->now;
    if (sy_sim_has_jobs(s, d)) {
        due = down > s->now ? SY_MIN(due, down) : due;
        due = !d->serving && d->again_ns > s->now ? SY_MIN(due, d->again_ns) : due;
    }
    int soon = sy_sim_tree_set(&s->due, device, due);
    if (soon >= 0 && soon != device)
        sy_sim_expect_device(s, soon, 1);
    expect_waiting(s, sy_sim_tree_first(&s->due));
    if (s->n_devices > 1 && s->config->router >= SY_SIM_LEAST)
        note_drained(s, device, down);
}

/* ---- checking what comes in ---- */

static int check_tenant_of(const char *what, const char *name, int tenant)
{
    if (tenant >= 0 && tenant < SY_POLICY_MAX_TENANTS)
        return SY_OK;
    return sy_error_set(SY_EARG, "%s %s: tenant %d; 0 to %d", what, name, tenant,
                        SY_POLICY_MAX_TENANTS - 1);
}

static int check_model(const struct sy_sim_model *m)
{
    bool fine = m->n_samples >= 0 && m->n_samples <= SY_SIM_MAX_SAMPLES;
    for (int i = 0; fine && i < m->n_samples; i++)
        fine = m->samples[i] > 0 && m->samples[i] < 1e6f;
    if (!fine)
        return sy_error_set(SY_EARG,
                            "model %s: %d samples of its computation: at most %d, each above 0",
                            m->name, m->n_samples, SY_SIM_MAX_SAMPLES);
    if (m->compute_ns == 0 || m->n_groups < 1)
        return sy_error_set(SY_EARG, "model %s: it computes at least 1 ns, in at least one group",
                            m->name);
    return check_tenant_of("model", m->name, m->tenant);
}

static int check_job(const struct sy_sim_job *j, sy_ns before)
{
    if (j->iterations == 0 || j->iteration_ns == 0)
        return sy_error_set(SY_EARG, "job %s: %llu iterations of %llu ns; at least one of 1 ns",
                            j->name, (unsigned long long)j->iterations,
                            (unsigned long long)j->iteration_ns);
    if (j->submit_ns < before)
        return sy_error_set(SY_EARG, "job %s: jobs go by the time of their submission", j->name);
    if (!(j->utilization >= 0 && j->utilization <= 1))
        return sy_error_set(SY_EARG, "job %s: utilization %g; 0 to 1", j->name, j->utilization);
    return check_tenant_of("job", j->name, j->tenant);
}

static int check_request(const struct sy_sim_input *in, uint64_t i)
{
    const struct sy_sim_request *r = &in->requests[i];
    if (r->model >= 0 && r->model < in->n_models && r->class_ >= 0 &&
        r->class_ < SY_SIM_MAX_CLASSES && (i == 0 || r->at_ns >= in->requests[i - 1].at_ns))
        return SY_OK;
    return sy_error_set(
        SY_EARG, "request %llu: model %d of %d, class %d of %d, in the order of arrival",
        (unsigned long long)i, r->model, in->n_models, r->class_, SY_SIM_MAX_CLASSES);
}

static int check_range(const char *what, double value, double least, double most)
{
    if (value >= least && value <= most)
        return SY_OK;
    return sy_error_set(SY_EARG, "%s: %g is not a number from %g to %g", what, value, least, most);
}

int sy_sim_check_kind(const struct sy_sim_kind *k)
{
    SY_TRY(check_range("devices", k->n_devices, 1, MAX_DEVICES));
    SY_TRY(check_range("GB/s of the link", k->link_gbps, 1e-6, 1e6));
    SY_TRY(check_range("ns lost a byte", k->lost_ns_per_byte, 0, 1e6));
    SY_TRY(check_range("speed", k->speed, 1e-6, 1e6));
    return check_range("contention", k->contention, 0, 1e6);
}

static int check_kinds(const struct sy_sim_config *c)
{
    SY_TRY(check_range("kinds of devices", c->n_kinds, 0, SY_SIM_MAX_KINDS));
    if (c->n_kinds == 0)
        return sy_sim_check_kind(&c->device);
    for (int i = 0; i < c->n_kinds; i++) {
        char why[256];
        if (sy_sim_check_kind(&c->kinds[i]) == SY_OK)
            continue;
        snprintf(why, sizeof why, "%s", sy_error_text());
        return sy_error_set(SY_EARG, "device %s: %s", c->kinds[i].name, why);
    }
    return check_range("devices", sy_sim_n_devices(c), 1, MAX_DEVICES);
}

static int check_config(const struct sy_sim_config *c)
{
    SY_TRY(check_kinds(c));
    if (c->train_share != 0)
        SY_TRY(check_range("training's share", c->train_share, 0.001, 1));
    SY_TRY(check_range("noise", c->noise, 0, 2));
    return check_range("length of a queue", c->max_queue, 1, 65534);
}

static int check_profile(const struct sy_sim_config *c, const struct sy_sim_input *in,
                         const struct sy_sim_profile *p)
{
    if (p->model >= 0 && p->model < in->n_models && p->kind >= 0 &&
        p->kind < SY_MAX(c->n_kinds, 1) && p->n_groups >= 0)
        return SY_OK;
    return sy_error_set(SY_EARG, "a profile of model %d of %d on kind %d of %d, in %d groups",
                        p->model, in->n_models, p->kind, SY_MAX(c->n_kinds, 1), p->n_groups);
}

static int check_tenant(const struct sy_sim_tenant *t)
{
    if (t->weight <= 1000000 && t->hard_permille <= 1000)
        return SY_OK;
    return sy_error_set(SY_EARG,
                        "tenant %s: weight %u, hard share %u per mille: 0 to 1000000, 0 to 1000",
                        t->name, t->weight, t->hard_permille);
}

static int check_fault(const struct sy_sim_config *c, const struct sy_sim_fault *f, sy_ns before)
{
    double at_s = (double)f->at_ns / 1e9;
    if (f->device < 0 || f->device >= sy_sim_n_devices(c))
        return sy_error_set(SY_EARG, "the fault at %.9g s: device %d of %d; the first is 0", at_s,
                            f->device, sy_sim_n_devices(c));
    if (!(f->factor > 0))
        return sy_error_set(SY_EARG, "the fault at %.9g s: factor %g; above 0", at_s, f->factor);
    if (f->at_ns < before)
        return sy_error_set(SY_EARG, "the fault at %.9g s: faults go by time", at_s);
    return SY_OK;
}

static int check_input(const struct sy_sim_config *c, const struct sy_sim_input *in)
{
    SY_TRY(check_config(c));
    SY_TRY(check_range("models", in->n_models, 0, MAX_MODELS));
    SY_TRY(check_range("requests", (double)in->n_requests, 0, USE_MAX_REQUESTS));
    for (int i = 0; i < in->n_models; i++)
        SY_TRY(check_model(&in->models[i]));
    SY_TRY(check_range("tenants", in->n_tenants, 0, SY_POLICY_MAX_TENANTS));
    for (int i = 0; i < in->n_tenants; i++)
        SY_TRY(check_tenant(&in->tenants[i]));
    for (int i = 0; i < in->n_profiles; i++)
        SY_TRY(check_profile(c, in, &in->profiles[i]));
    for (int i = 0; i < in->n_jobs; i++)
        SY_TRY(check_job(&in->jobs[i], i ? in->jobs[i - 1].submit_ns : 0));
    for (uint64_t i = 0; i < in->n_requests; i++)
        SY_TRY(check_request(in, i));
    for (int i = 0; i < in->n_faults; i++)
        SY_TRY(check_fault(c, &in->faults[i], i ? in->faults[i - 1].at_ns : 0));
    return SY_OK;
}

/* ---- opening and closing ---- */

static struct sy_admission_config queue_config(const struct sim *s)
{
    return (struct sy_admission_config){.max_requests = s->config->max_queue,
                                        .preempt_ns = s->config->preempt_ns};
}

int sy_sim_empty_device(struct sim *s, int device)
{
    struct sy_admission_config admission = queue_config(s);
    struct sy_admission *queue;
    size_t at = (size_t)device;
    s->devices[at] = (struct device){.prefetch_model = -1, .link_factor = 1, .slow = 1};
    s->loads[at] = 0;
    SY_TRY(sy_admission_init(&admission, s->queues + at * s->queue_bytes,
                             s->far_queues + at * sy_admission_far_bytes(&admission), &queue));
    if (s->config->train_share <= 0 || s->in->n_jobs == 0) /* else by the jobs on each */
        sy_admission_share_rules(queue, sy_sim_queue(s, 0));
    sy_sim_tree_set(&s->due, device, NEVER);
    return SY_OK;
}

static int open_devices(struct sim *s)
{
    struct sy_admission_config admission = queue_config(s);
    size_t n = (size_t)s->n_devices;
    s->queue_bytes = sy_admission_bytes(&admission);
    s->order_at = sy_admission_order_at();
    s->devices = sy_sim_zeroed(n, sizeof *s->devices);
    s->loads = sy_sim_zeroed(n, sizeof *s->loads);
    s->queues = sy_sim_zeroed(n, s->queue_bytes);
    s->far_queues = calloc(n, sy_admission_far_bytes(&admission)); /* hardly ever touched */
    if (!s->devices || !s->loads || !s->queues || !s->far_queues)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d devices", s->n_devices);
    SY_TRY(sy_sim_tree_init(&s->due, s->n_devices));
    for (int i = 0; i < s->n_devices; i++)
        SY_TRY(sy_sim_empty_device(s, i));
    return SY_OK;
}

/* Where nothing interrupts a served request and the router asks no queue, a queue need not know of a request that comes alone. */
static int open_idle(struct sim *s)
{
    if (s->in->n_jobs > 0 || s->in->n_faults > 0 || s->config->preempt_ns > 0 ||
        s->config->router >= SY_SIM_LEAST || s->n_devices < SY_SIM_MANY || s->config->n_slices > 1)
        return SY_OK;
    struct sy_admission_config admission = queue_config(s);
    return sy_admission_create(&admission, &s->idle);
}

static int open_sim(struct sim *s)
{
    size_t n_jobs = (size_t)s->in->n_jobs + 1, n_requests = (size_t)s->in->n_requests + 1;
    s->jobs = calloc(n_jobs, sizeof *s->jobs);
    s->deaths = calloc(n_requests, 1);
    if (s->config->preempt_ns > 0)
        s->left_ns = calloc(n_requests, sizeof *s->left_ns);
    s->report->jct_s = calloc(n_jobs, sizeof(double));
    s->report->job_rate = calloc(n_jobs, sizeof(double));
    for (int i = 0; i < s->in->n_tenants; i++)
        memcpy(s->report->tenant_names[i], s->in->tenants[i].name, SY_SIM_NAME_BYTES);
    if (!s->jobs || !s->deaths || (s->config->preempt_ns > 0 && !s->left_ns) || !s->report->jct_s ||
        !s->report->job_rate)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %llu requests and %d jobs",
                            (unsigned long long)s->in->n_requests, s->in->n_jobs);
    SY_TRY(sy_predictor_create(SY_MAX(s->in->n_models, 1), HIGH, &s->predictor));
    SY_TRY(sy_sim_kinds_open(s));
    SY_TRY(open_devices(s));
    SY_TRY(open_idle(s));
    SY_TRY(sy_sim_residency_open(s));
    SY_TRY(sy_sim_beside_open(s));
    return sy_sim_router_open(s);
}

static void close_device(struct sim *s, struct device *d)
{
    if (d->lanes) {
        struct sy_lanes_counts counts = sy_lanes_counts(d->lanes);
        s->report->n_lane_moves += counts.n_moves;
        s->report->copied_bytes += counts.copied_bytes;
        s->report->n_regrouped += counts.n_regrouped;
    }
    sy_policy_destroy(d->policy);
    sy_lanes_free(d->lanes);
    sy_pool_free(d->pool);
    free(d->quotas);
    free(d->running);
}

static void close_sim(struct sim *s)
{
    for (int i = 0; s->devices && i < s->n_devices; i++)
        close_device(s, &s->devices[i]);
    sy_sim_residency_close(s);
    sy_sim_router_close(s);
    sy_sim_beside_close(s);
    sy_sim_tree_finish(&s->due);
    sy_sim_kinds_close(s);
    sy_predictor_destroy(s->predictor);
    free(s->devices);
    free(s->loads);
    sy_admission_destroy(s->idle);
    free(s->queues);
    free(s->far_queues);
    free(s->jobs);
    free(s->deaths);
    free(s->left_ns);
}

/* ---- the loop ---- */

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
    int device = sy_sim_tree_first(&s->due);
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
        sy_ns due = sy_sim_tree_first_key(&s->due);
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
            return broken(s, device, "time stands still");
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

int sy_sim_run(const struct sy_sim_config *config, const struct sy_sim_input *input,
               struct sy_sim_report *report)
{
    struct sim s = {.config = config, .in = input, .report = report, .random = config->seed};
    SY_TRY(check_input(config, input));
    s.n_all = sy_sim_n_devices(config);
    bool apart = sy_sim_is_apart(&s);
    struct sy_sim_streams all = {.n_requests = input->n_requests,
                                 .n_faults = (uint64_t)input->n_faults};
    s.n_devices = apart ? 1 : s.n_all;
    int status = open_sim(&s);
    if (status == SY_OK)
        status = apart ? sy_sim_loop_apart(&s) : sy_sim_loop(&s, &all);
    report->makespan_ns = s.now;
    close_sim(&s);
    return status;
}

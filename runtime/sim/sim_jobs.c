/* A simulated device's training jobs, on the real lanes and policy. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"

#define MAX_JOBS      512 /* waiting and running, a device */
#define MAX_OVERTAKES 64

static int open_quotas(const struct sim *s, struct device *d)
{
    const struct kind *kind = sy_sim_kind_of(s, (int)(d - s->devices));
    if (!kind->quotas)
        return SY_OK;
    d->quotas = malloc(sizeof *d->quotas);
    if (!d->quotas)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for quotas");
    *d->quotas = *kind->quotas;
    return SY_OK;
}

static int set_tenants(const struct sim *s, struct device *d)
{
    for (int i = 0; i < s->in->n_tenants; i++) {
        const struct sy_sim_tenant *t = &s->in->tenants[i];
        SY_TRY(sy_policy_set_tenant(d->policy, i, SY_MAX(t->weight, 1), t->hard_permille));
    }
    return SY_OK;
}

/* Allocates what the first job on a device needs. */
static int open_jobs(struct sim *s, struct device *d)
{
    int n = SY_MIN(SY_MAX(s->in->n_jobs, 1), MAX_JOBS);
    const struct kind *kind = sy_sim_kind_of(s, (int)(d - s->devices));
    struct sy_policy_config policy = s->config->policy;
    /* First come, first served, in memory too; under the other policies jobs that fit pass. */
    struct sy_lanes_config lanes = {sy_sim_bytes_for_jobs(s, kind), n,
                                    policy.kind == SY_POLICY_FIFO ? 0 : MAX_OVERTAKES,
                                    s->config->regroup};
    if (d->policy)
        return SY_OK;
    policy.max_jobs = n;
    d->job_bytes = lanes.capacity_bytes;
    d->running = calloc((size_t)n, sizeof *d->running);
    if (!d->running)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for jobs");
    SY_TRY(open_quotas(s, d));
    SY_TRY(sy_pool_new(kind->is->pool_bytes, &d->pool));
    SY_TRY(sy_lanes_new(d->pool, d->quotas, &lanes, &d->lanes));
    SY_TRY(sy_policy_create(&policy, &d->policy));
    return set_tenants(s, d);
}

/* Updates the part of training's share that jobs can use, and what predictions for requests leave to it. */
static void follow_share(struct sim *s, struct device *d)
{
    unsigned share = (unsigned)(s->config->train_share * 1000 + 0.5);
    if (share == 0 || !d->policy)
        return;
    unsigned usable = SY_MIN(SY_MIN(share, sy_policy_usable_permille(d->policy)), 999);
    if (usable == d->share_permille)
        return;
    d->share_permille = usable;
    (void)sy_admission_set_share(sy_sim_queue(s, (int)(d - s->devices)), 1000 - usable);
}

static const struct sy_sim_job *job_of(const struct sim *s, uint64_t id)
{
    return &s->in->jobs[id - 1];
}

/* Saturates instead of wrapping. */
static uint64_t time_of(const struct sy_sim_job *j, uint64_t iterations)
{
    uint64_t ns;
    return __builtin_mul_overflow(iterations, j->iteration_ns, &ns) ? UINT64_MAX : ns;
}

/* Admission order: as the policy would run them. */
static uint64_t rank_of(const struct sim *s, const struct sy_sim_job *j)
{
    if (s->config->policy.kind == SY_POLICY_SRTF)
        return time_of(j, j->iterations);
    if (s->config->policy.kind == SY_POLICY_PRIORITY)
        return (uint64_t)((int64_t)j->priority - INT32_MIN);
    return 0;
}

static sy_ns iteration_ns(const struct sim *s, const struct device *d, const struct sy_sim_job *j)
{
    return sy_sim_iteration_ns(sy_sim_kind_of(s, (int)(d - s->devices)), j);
}

static void admit_jobs(struct sim *s, struct device *d)
{
    struct sy_lanes_change change;
    while (sy_lanes_next(d->lanes, &change)) {
        const struct sy_sim_job *j = job_of(s, change.job);
        struct sy_policy_job job = {.id = change.job,
                                    .lane = change.lane,
                                    .tenant = j->tenant,
                                    .priority = j->priority,
                                    .iterations_left = s->jobs[change.job - 1].left,
                                    .iteration_ns = iteration_ns(s, d, j)};
        int status = change.admitted ? sy_policy_join(d->policy, &job, s->now)
                                     : sy_policy_set_lane(d->policy, change.job, change.lane);
        assert(status == SY_OK);
        s->jobs[change.job - 1].admitted = true;
    }
}

static uint64_t left_of(const struct sim *s, int job)
{
    return time_of(&s->in->jobs[job], s->jobs[job].left);
}

static bool runs(const struct device *d, int job)
{
    for (int i = 0; i < d->n_running; i++)
        if (d->running[i].job == job)
            return true;
    return false;
}

static int put_into_lanes(struct sim *s, struct device *d, int job, uint64_t rank)
{
    const struct sy_sim_job *j = &s->in->jobs[job];
    struct sy_lane_job lane_job = {
        (uint64_t)job + 1,   j->tenant, j->persistent_bytes, j->ephemeral_bytes, rank,
        SY_LANES_MAX_PIECES, false};
    return sy_lanes_join(d->lanes, &lane_job);
}

static void spill(struct sim *s, struct device *d, int job)
{
    uint64_t id = (uint64_t)job + 1, bytes = s->in->jobs[job].persistent_bytes;
    s->jobs[job].admitted = false;
    sy_ns owed = s->jobs[job].owed_ns + 2 * sy_sim_copy_ns(s, d, bytes, s->now);
    s->jobs[job].owed_ns = SY_MIN(owed, LATEST_NS);
    s->report->spilled_bytes += bytes;
    sy_policy_leave(d->policy, id);
    sy_lanes_leave(d->lanes, id);
    int status = put_into_lanes(s, d, job, left_of(s, job));
    assert(status == SY_OK); /* it fitted before */
}

struct extremes {
    int shortest, longest; /* of those that wait; of those admitted that do not run */
    uint64_t ephemeral;    /* the largest of admitted ones */
};

static struct extremes look_around(const struct sim *s, const struct device *d)
{
    struct extremes x = {-1, -1, 0};
    int device = (int)(d - s->devices);
    for (int i = 0; i < s->in->n_jobs; i++) {
        const struct job_state *j = &s->jobs[i];
        if (j->left == 0 || j->device != device)
            continue;
        if (j->admitted)
            x.ephemeral = SY_MAX(x.ephemeral, s->in->jobs[i].ephemeral_bytes);
        if (!j->admitted && (x.shortest < 0 || left_of(s, i) < left_of(s, x.shortest)))
            x.shortest = i;
        if (j->admitted && !runs(d, i) && (x.longest < 0 || left_of(s, i) > left_of(s, x.longest)))
            x.longest = i;
    }
    return x;
}

/* M5: spills longer jobs until the sums allow the shortest waiting one. True: something was spilled. */
static bool spill_for_shortest(struct sim *s, struct device *d)
{
    bool any = false;
    for (;;) {
        struct extremes x = look_around(s, d);
        if (x.shortest < 0 || x.longest < 0 || left_of(s, x.longest) <= left_of(s, x.shortest))
            return any;
        const struct sy_sim_job *j = &s->in->jobs[x.shortest];
        if (sy_lanes_persistent_bytes(d->lanes) + j->persistent_bytes + SY_POOL_ALIGN +
                SY_MAX(x.ephemeral, j->ephemeral_bytes) + SY_POOL_ALIGN <=
            d->job_bytes)
            return any;
        spill(s, d, x.longest);
        any = true;
    }
}

/* The sums allow it, but persistent parts lie where its lane must be: they are spilled too. */
static bool spill_in_the_way(struct sim *s, struct device *d)
{
    struct extremes x = look_around(s, d);
    if (sy_lanes_wanted_bytes(d->lanes) == 0 || x.shortest < 0 || x.longest < 0 ||
        left_of(s, x.longest) <= left_of(s, x.shortest))
        return false;
    spill(s, d, x.longest);
    return true;
}

static void admit(struct sim *s, struct device *d)
{
    admit_jobs(s, d);
    if (s->config->spill && s->config->policy.kind == SY_POLICY_SRTF &&
        sy_lanes_n_waiting(d->lanes) > 0 && !sy_lanes_draining(d->lanes)) {
        if (spill_for_shortest(s, d))
            admit_jobs(s, d);
        for (int i = 0; i < s->in->n_jobs && spill_in_the_way(s, d); i++)
            admit_jobs(s, d);
    }
    sy_sim_make_room(s, (int)(d - s->devices), 0, -1);
    follow_share(s, d);
}

/* Jobs submitted at one time are admitted together, at the device's next event: the policy chooses among all of them. */
void sy_sim_welcome(struct sim *s, struct device *d)
{
    if (d->has_newcomers)
        admit(s, d);
    d->has_newcomers = false;
}

static unsigned hard_permille(const struct sim *s, int tenant)
{
    return tenant < s->in->n_tenants ? s->in->tenants[tenant].hard_permille : 0;
}

int sy_sim_submit(struct sim *s, int job)
{
    const struct sy_sim_job *j = &s->in->jobs[job];
    int device = sy_sim_route_job(s, j);
    struct device *d = &s->devices[device];
    SY_TRY(open_jobs(s, d));
    sy_sim_advance(s, d);
    s->report->n_jobs++;
    if (j->weight > 0)
        SY_TRY(sy_policy_set_tenant(d->policy, j->tenant, j->weight, hard_permille(s, j->tenant)));
    if (put_into_lanes(s, d, job, rank_of(s, j)) < 0) {
        char why[sizeof s->report->refusal];
        snprintf(why, sizeof why, "job %s: %s", j->name, sy_error_text());
        sy_sim_note_refused_job(s->report, why);
        return device;
    }
    s->jobs[job] = (struct job_state){.left = j->iterations, .device = device};
    d->n_jobs++;
    d->has_newcomers = true;
    sy_sim_tree_set(&s->due, device, s->now);
    return device;
}

/* M3 */
static double sum_utilization(const struct sim *s, const struct device *d)
{
    double sum = 0;
    for (int i = 0; i < d->n_running; i++)
        sum += s->in->jobs[d->running[i].job].utilization;
    return sum;
}

void sy_sim_set_rates(struct sim *s, struct device *d)
{
    int device = (int)(d - s->devices);
    double sum = sum_utilization(s, d);
    double contention = sy_sim_kind_of(s, device)->is->contention;
    double rate = 1 / SY_MAX(1, sum) / (1 + contention * (d->n_running - 1));
    for (int i = 0; i < d->n_running; i++) {
        struct running *r = &d->running[i];
        r->rate = rate;
        if (s->slowdowns) /* M9 */
            r->rate = sy_sim_job_is_held(s, device, r->job)
                          ? 0
                          : rate / sy_sim_job_slow_down(s, device, r->job);
    }
}

static bool any_advances(const struct device *d)
{
    for (int i = 0; i < d->n_running; i++)
        if (d->running[i].rate > 0)
            return true;
    return false;
}

void sy_sim_advance(struct sim *s, struct device *d)
{
    if (d->n_running == 0)
        return;
    sy_ns from = d->advanced_ns;
    d->advanced_ns = s->now;
    if (d->serving || s->now == from || !any_advances(d))
        return;
    double passed = (double)(s->now - from), sum = sum_utilization(s, d);
    for (int i = 0; i < d->n_running; i++) {
        struct running *r = &d->running[i];
        double part = sum > 0 ? s->in->jobs[r->job].utilization / sum : 1.0 / d->n_running;
        r->left_ns -= passed * r->rate;
        r->used_ns += r->rate > 0 ? passed * part : 0;
    }
    sy_sim_note_used(s, d, SY_SIM_USE_JOBS, from);
}

sy_ns sy_sim_next_iteration_end(const struct sim *s, const struct device *d)
{
    double first = INFINITY;
    if (d->serving)
        return NEVER;
    for (int i = 0; i < d->n_running; i++)
        first = fmin(first, d->running[i].left_ns / d->running[i].rate);
    return isinf(first) ? NEVER : s->now + sy_sim_ns(fmax(ceil(first), 1));
}

static void note_rate(struct sim *s, int job)
{
    struct sy_sim_report *r = s->report;
    sy_ns there = s->now - s->in->jobs[job].submit_ns;
    r->job_rate[r->n_rates++] = (double)s->jobs[job].used_ns / (double)SY_MAX(there, 1);
}

static void note_job(struct sim *s, int job)
{
    struct sy_sim_report *r = s->report;
    const struct sy_sim_job *j = &s->in->jobs[job];
    sy_ns took = s->now - j->submit_ns;
    r->jct_s[r->n_jct++] = (double)took / 1e9;
    note_rate(s, job);
    r->queue_s += (double)(s->jobs[job].first_ns - j->submit_ns) / 1e9;
}

static void count_part(struct sim *s, const struct running *r)
{
    sy_ns used = (sy_ns)(r->used_ns + 0.5);
    s->jobs[r->job].used_ns += used;
    s->report->tenant_ns[s->in->jobs[r->job].tenant] += used;
}

static void end_one(struct sim *s, struct device *d, int at)
{
    struct running r = d->running[at];
    uint64_t id = (uint64_t)r.job + 1;
    struct job_state *j = &s->jobs[r.job];
    sy_ns used = (sy_ns)(r.used_ns + 0.5);
    d->running[at] = d->running[--d->n_running];
    count_part(s, &r);
    int status = sy_lanes_end(d->lanes, id);
    assert(status == SY_OK);
    status = sy_policy_done(d->policy, id, used, s->now);
    assert(status == SY_OK);
    if (--j->left > 0)
        return;
    note_job(s, r.job);
    sy_policy_leave(d->policy, id);
    sy_lanes_leave(d->lanes, id);
    d->n_jobs--;
}

void sy_sim_end_iterations(struct sim *s, struct device *d)
{
    bool any = false;
    for (int i = d->n_running - 1; i >= 0; i--)
        if (d->running[i].left_ns < 0.5) {
            end_one(s, d, i);
            any = true;
        }
    if (any)
        admit(s, d);
    if (any && d->n_running > 0)
        sy_sim_set_rates(s, d);
}

void sy_sim_begin_iterations(struct sim *s, struct device *d)
{
    uint64_t id, offset;
    bool any = false;
    d->again_ns = 0;
    if (d->n_running == 0)
        d->advanced_ns = s->now;
    while (!sy_lanes_draining(d->lanes) && sy_policy_next(d->policy, s->now, &id, &d->again_ns)) {
        struct job_state *j = &s->jobs[id - 1];
        int status = sy_lanes_begin(d->lanes, id, &offset);
        assert(status == SY_OK);
        if (!j->started)
            j->first_ns = s->now;
        j->started = any = true;
        double owed = (double)j->owed_ns;
        j->owed_ns = 0;
        d->running[d->n_running++] = (struct running){
            .job = (int)id - 1,
            .left_ns = owed + (double)iteration_ns(s, d, job_of(s, id)) * sy_sim_noise(s)};
    }
    if (any)
        sy_sim_set_rates(s, d);
}

/* The worker died: running iterations start again from persistent state; their time is lost. */
void sy_sim_lose_iterations(struct sim *s, struct device *d)
{
    while (d->n_running > 0) {
        struct running r = d->running[--d->n_running];
        uint64_t id = (uint64_t)r.job + 1;
        count_part(s, &r);
        sy_policy_undo(d->policy, id);
        sy_lanes_end(d->lanes, id);
    }
    if (d->policy)
        admit(s, d);
}

void sy_sim_close_books(struct sim *s)
{
    for (int i = 0; i < s->n_devices; i++) {
        struct device *d = &s->devices[i];
        sy_sim_advance(s, d);
        for (int k = 0; k < d->n_running; k++)
            count_part(s, &d->running[k]);
        if (d->serving)
            sy_sim_note_used(s, d, SY_SIM_USE_REQUESTS, d->serve_from_ns);
    }
    for (int i = 0; i < s->in->n_jobs; i++)
        if (s->jobs[i].left > 0)
            note_rate(s, i);
}

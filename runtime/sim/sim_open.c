/* The memory of a simulation: devices, queues, counters. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"
#include "runtime/sim/sim_memory.h"

#define HIGH           0.99 /* quantile that promises are built on */
#define AGENDA_DEVICES 512  /* with fewer the tree has two or three levels, and is as fast */

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
    if (!s->has_agenda)
        sy_sim_tree_set(&s->due, device, NEVER);
    return SY_OK;
}

/* A request that is served ends at the time that was known at its beginning, and devices have no other events. */
static bool ends_do_not_move(const struct sim *s)
{
    return s->in->n_jobs == 0 && s->in->n_faults == 0 && s->config->preempt_ns == 0 &&
           s->config->n_slices <= 1;
}

static int open_devices(struct sim *s)
{
    struct sy_admission_config admission = queue_config(s);
    size_t n = (size_t)s->n_devices;
    s->queue_bytes = sy_admission_bytes(&admission) | SY_SIM_LINE; /* R5 */
    s->order_at = sy_admission_order_at();
    s->devices = sy_sim_zeroed(n, sizeof *s->devices);
    s->loads = sy_sim_zeroed(n, sizeof *s->loads);
    s->queues = sy_sim_zeroed(n, s->queue_bytes);
    s->far_queues = calloc(n, sy_admission_far_bytes(&admission)); /* hardly ever touched */
    if (!s->devices || !s->loads || !s->queues || !s->far_queues)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d devices", s->n_devices);
    s->has_agenda = s->n_devices >= AGENDA_DEVICES && ends_do_not_move(s);
    if (s->has_agenda)
        SY_TRY(sy_sim_agenda_init(&s->agenda, s->n_devices));
    else
        SY_TRY(sy_sim_tree_init(&s->due, s->n_devices));
    for (int i = 0; i < s->n_devices; i++)
        SY_TRY(sy_sim_empty_device(s, i));
    return SY_OK;
}

/* A request alone on an idle device bypasses the queue if nothing interrupts a served request and the router reads no queue. */
static int open_idle(struct sim *s)
{
    if (!ends_do_not_move(s) || s->config->router >= SY_SIM_LEAST || s->n_devices < SY_SIM_MANY)
        return SY_OK;
    struct sy_admission_config admission = queue_config(s);
    return sy_admission_create(&admission, &s->idle);
}

int sy_sim_open(struct sim *s)
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
    for (int m = 0; m < s->in->n_models; m++)
        s->has_outside |= s->in->models[m].outside_ns > 0;
    SY_TRY(sy_sim_kinds_open(s));
    SY_TRY(open_devices(s));
    SY_TRY(open_idle(s));
    SY_TRY(sy_sim_residency_open(s));
    SY_TRY(sy_sim_slowdown_open(s));
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

void sy_sim_close(struct sim *s)
{
    for (int i = 0; s->devices && i < s->n_devices; i++)
        close_device(s, &s->devices[i]);
    sy_sim_residency_close(s);
    sy_sim_router_close(s);
    sy_sim_slowdown_close(s);
    sy_sim_tree_finish(&s->due);
    sy_sim_agenda_finish(&s->agenda);
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

/* Devices whose events do not depend on each other's are simulated one after the other, each in the memory of one: an event then costs
 * with thousands what it costs with one, where in the order of time each event would find another device's state, far away.
 *
 *   requests   0 1 2 3 4 5 6 7 ...      by time
 *   device     2 0 1 0 2 2 0 1 ...      drawn
 *   order      1 3 6 | 2 7 | 0 4 5      by device, then by time */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"
#include "runtime/sim/sim_memory.h"

struct order {
    uint32_t *items;
    uint64_t *begin; /* by device, and one more */
};

/* Routers but this one look at devices; jobs choose among them. */
bool sy_sim_is_independent(const struct sim *s)
{
    return s->n_all > 1 && s->config->router == SY_SIM_RANDOM && s->in->n_jobs == 0 &&
           s->config->n_slices <= 1;
}

static int request_device(const struct sim *s, uint64_t i)
{
    return sy_sim_route_at_random(s, i);
}

static int fault_device(const struct sim *s, uint64_t i)
{
    return s->in->faults[i].device;
}

/* Counting sort. */
static int sort(const struct sim *s, uint64_t n, int (*device_of)(const struct sim *, uint64_t),
                struct order *out)
{
    size_t n_devices = (size_t)s->n_all;
    uint32_t *devices = sy_sim_zeroed((size_t)n, sizeof *devices);
    out->items = sy_sim_zeroed((size_t)n, sizeof *out->items);
    out->begin = calloc(n_devices + 2, sizeof *out->begin);
    if (!devices || !out->items || !out->begin) {
        free(devices);
        return sy_error_set(SY_ENOMEM_HOST, "no memory to sort %llu by device",
                            (unsigned long long)n);
    }
    uint64_t *next =
        out->begin + 1; /* where a device's next one goes; its end, when all are there */
    for (uint64_t i = 0; i < n; i++)
        next[(devices[i] = (uint32_t)device_of(s, i)) + 1]++;
    for (size_t d = 0; d < n_devices; d++)
        next[d + 1] += next[d];
    for (uint64_t i = 0; i < n; i++)
        out->items[next[devices[i]]++] = (uint32_t)i;
    free(devices);
    return SY_OK;
}

static void finish_order(struct order *o)
{
    free(o->items);
    free(o->begin);
}

static int one_device(struct sim *s, int device, const struct order *requests,
                      const struct order *faults)
{
    struct sy_sim_streams own = {
        .requests = requests->items,
        .faults = faults->items,
        .request = requests->begin[device],
        .n_requests = requests->begin[device + 1],
        .fault = faults->begin[device],
        .n_faults = faults->begin[device + 1],
    };
    s->apart = device;
    s->now = 0;
    SY_TRY(sy_sim_empty_device(s, 0));
    sy_sim_residency_empty(s);
    for (int m = 0; m < s->in->n_models; m++)
        sy_predictor_forget(s->predictor, m);
    return sy_sim_loop(s, &own);
}

/* Faults before the end of all other events: later ones change nothing. */
static void count_idle_faults(struct sim *s)
{
    uint64_t n = 0;
    while (n < (uint64_t)s->in->n_faults && s->in->faults[n].at_ns <= s->now)
        n++;
    s->report->n_events += n - s->report->n_faults;
    s->report->n_faults = n;
}

static int each_device(struct sim *s, const struct order *requests, const struct order *faults)
{
    sy_ns end = 0;
    for (int device = 0; device < s->n_all; device++) {
        bool idle = requests->begin[device] == requests->begin[device + 1];
        if (!idle)
            SY_TRY(one_device(s, device, requests, faults));
        end = SY_MAX(end, s->now);
    }
    s->now = end;
    count_idle_faults(s);
    return SY_OK;
}

int sy_sim_loop_by_device(struct sim *s)
{
    struct order requests = {0}, faults = {0};
    int status =
        s->config->answered ? sy_sim_answers_create(s->in->n_requests, &s->answers) : SY_OK;
    if (status == SY_OK)
        status = sort(s, s->in->n_requests, request_device, &requests);
    if (status == SY_OK)
        status = sort(s, (uint64_t)s->in->n_faults, fault_device, &faults);
    if (status == SY_OK)
        status = each_device(s, &requests, &faults);
    if (status == SY_OK && s->answers)
        sy_sim_answers_tell(s);
    sy_sim_answers_destroy(s->answers);
    s->answers = NULL;
    finish_order(&requests);
    finish_order(&faults);
    return status;
}

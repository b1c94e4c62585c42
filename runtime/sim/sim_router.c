/* To which device a request goes. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"
#include "runtime/sim/sim_ring.h"

#define HASH_BOUND 1.25 /* times the mean load */
#define MAX_BOUND  2.0  /* of a device that has the model */
#define CANDIDATES 4

static const char *const names[] = {"random", "hash", "least", "residency"};

const char *sy_sim_router_name(enum sy_sim_router router)
{
    return (unsigned)router < SY_SIM_N_ROUTERS ? names[router] : "?";
}

int sy_sim_router_parse(const char *text, enum sy_sim_router *out)
{
    for (int i = 0; i < SY_SIM_N_ROUTERS; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum sy_sim_router)i;
            return SY_OK;
        }
    return sy_error_set(SY_EARG, "no router %s: random, hash, least or residency", text);
}

int sy_sim_router_open(struct sim *s)
{
    return s->config->router == SY_SIM_HASH
               ? sy_sim_ring_create(s->config->n_devices, s->in->n_models, &s->ring)
               : SY_OK;
}

void sy_sim_router_close(struct sim *s)
{
    sy_sim_ring_destroy(s->ring);
}

void sy_sim_note_load(struct sim *s, int device, int change)
{
    struct device *d = &s->devices[device];
    uint64_t before = d->n_load;
    d->n_load = before + (uint64_t)(int64_t)change;
    s->n_in_system += (uint64_t)(int64_t)change;
    if (s->ring)
        sy_sim_ring_set_load(s->ring, device, before, d->n_load);
}

static double mean_load(const struct sim *s)
{
    return ((double)s->n_in_system + 1) / s->config->n_devices;
}

/* The i-th device to be asked of those that have some of the model. */
static int holder(const struct sim *s, const struct sy_sim_request *r, int i)
{
    int n = s->n_holders[r->model];
    uint64_t request = (uint64_t)(r - s->in->requests);
    return s
        ->holders[r->model][n <= CANDIDATES ? i : (int)(sy_sim_draw(s, request, i) % (uint64_t)n)];
}

/* A device with nothing to do needs no look at its queue: `*idle`; nor one where it would not be done before `least` even so. */
static sy_ns finish_there(const struct sim *s, int device, uint64_t request, sy_ns least,
                          bool *idle)
{
    struct sy_admission_request r = sy_sim_ask_for(s, device, request);
    sy_ns soonest = s->now + r.duration.expected_ns;
    *idle = s->devices[device].n_load == 0 && s->config->train_share <= 0;
    return *idle || soonest > least + 1 /* of rounding */
               ? soonest
               : sy_admission_predict(sy_sim_queue(s, device), &r, s->now).finish_ns;
}

static int by_prediction(struct sim *s, const struct sy_sim_request *r)
{
    uint64_t request = (uint64_t)(r - s->in->requests);
    int best = sy_sim_heap_first(&s->load), n = SY_MIN(s->n_holders[r->model], CANDIDATES);
    bool idle;
    if (n == 0)
        return best;
    sy_ns least = finish_there(s, best, request, NEVER - 1, &idle);
    for (int i = 0; i < n; i++) {
        int device = holder(s, r, i);
        sy_ns finish = finish_there(s, device, request, least, &idle);
        if (finish < least) {
            least = finish;
            best = device;
        }
        if (idle && sy_sim_missing_bytes(s, device, r->model) == 0)
            break; /* nobody is done sooner */
    }
    return best;
}

static int by_residency(struct sim *s, const struct sy_sim_request *r)
{
    int n = SY_MIN(s->n_holders[r->model], CANDIDATES), best = -1;
    for (int i = 0; i < n; i++) {
        int device = holder(s, r, i);
        if (best < 0 || s->devices[device].n_load < s->devices[best].n_load)
            best = device;
    }
    if (best >= 0 && (double)s->devices[best].n_load < MAX_BOUND * mean_load(s))
        return best;
    return by_prediction(s, r);
}

int sy_sim_route_at_random(const struct sim *s, uint64_t request)
{
    return (int)(sy_sim_draw(s, request, 0) % (uint64_t)s->config->n_devices);
}

static void expect_place(const struct sim *s, int device, int model)
{
    sy_sim_expect_device(s, device);
    sy_sim_expect(&s->uses[(size_t)device * (size_t)s->in->n_models + (size_t)model]);
}

void sy_sim_expect_request(const struct sim *s, uint64_t request)
{
    if (s->n_devices < SY_SIM_MANY || request >= s->in->n_requests)
        return;
    const struct sy_sim_request *r = &s->in->requests[request];
    if (s->config->router == SY_SIM_RANDOM)
        expect_place(s, sy_sim_route_at_random(s, request), r->model);
    if (s->config->router == SY_SIM_HASH)
        expect_place(s, sy_sim_ring_find(s->ring, r->model, HASH_BOUND * mean_load(s)), r->model);
    if (s->config->router < SY_SIM_LEAST)
        return;
    expect_place(s, sy_sim_heap_first(&s->load), r->model);
    for (int i = 0; i < SY_MIN(s->n_holders[r->model], CANDIDATES); i++)
        expect_place(s, holder(s, r, i), r->model);
}

int sy_sim_route(struct sim *s, const struct sy_sim_request *r)
{
    if (s->n_devices == 1)
        return 0;
    switch (s->config->router) {
    case SY_SIM_HASH:
        return sy_sim_ring_find(s->ring, r->model, HASH_BOUND * mean_load(s));
    case SY_SIM_LEAST:
        return by_prediction(s, r);
    case SY_SIM_RESIDENCY:
        return by_residency(s, r);
    default:
        return sy_sim_route_at_random(s, (uint64_t)(r - s->in->requests));
    }
}

/* Of two at random, the one with fewer jobs. */
int sy_sim_route_job(struct sim *s)
{
    uint64_t n = (uint64_t)s->config->n_devices;
    int a = (int)(sy_sim_random(s) % n), b = (int)(sy_sim_random(s) % n);
    return s->devices[b].n_jobs < s->devices[a].n_jobs ? b : a;
}

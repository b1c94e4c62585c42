/* To which device a request goes. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"

#define HASH_BOUND 1.25 /* times the mean load */
#define MAX_BOUND  2.0  /* of a device that has the model */
#define CANDIDATES 4
#define AHEAD      4 /* requests: about as long as memory takes */
#define FAR_AHEAD  8

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
    uint64_t before = s->loads[device];
    s->loads[device] += (uint32_t)change;
    s->n_in_system += (uint64_t)(int64_t)change;
    if (s->ring)
        sy_sim_ring_set_load(s->ring, device, before, s->loads[device]);
}

static double mean_load(const struct sim *s)
{
    return ((double)s->n_in_system + 1) / s->config->n_devices;
}

/* The i-th to be asked of the n devices that have some of the model. */
static int holder_at(const struct sim *s, uint64_t request, int n, int i)
{
    return n <= CANDIDATES ? i : (int)(sy_sim_draw(s, request, i) % (uint64_t)n);
}

static int holder(const struct sim *s, const struct sy_sim_request *r, int i)
{
    uint64_t request = (uint64_t)(r - s->in->requests);
    return s->holders[r->model][holder_at(s, request, s->n_holders[r->model], i)];
}

/* The first of those asked that has the least to do; -1: nobody has any of the model. */
static int least_loaded_holder(const struct sim *s, const struct sy_sim_request *r)
{
    int n = SY_MIN(s->n_holders[r->model], CANDIDATES), best = -1;
    for (int i = 0; i < n; i++) {
        int device = holder(s, r, i);
        if (best < 0 || s->loads[device] < s->loads[best])
            best = device;
    }
    return best;
}

/* What is predicted of a request is the same wherever as much is missing: mostly nothing, or all. */
struct look {
    struct sy_admission_request asks;
    uint64_t missing;
    bool known, idle; /* idle: the device that was looked at last has nothing to do */
};

/* A device with nothing to do needs no look at its queue; nor one where it would not be done before `least` even so. */
static sy_ns finish_there(const struct sim *s, int device, const struct sy_sim_request *r,
                          sy_ns least, struct look *look)
{
    uint64_t missing = sy_sim_missing_bytes(s, device, r->model);
    if (!look->known || missing != look->missing) {
        look->asks = sy_sim_ask_for(s, device, (uint64_t)(r - s->in->requests));
        look->missing = missing;
        look->known = true;
    }
    sy_ns soonest = s->now + look->asks.duration.expected_ns;
    look->idle = s->loads[device] == 0 && s->config->train_share <= 0;
    return look->idle || soonest > least + 1 /* of rounding */
               ? soonest
               : sy_admission_predict(sy_sim_queue(s, device), &look->asks, s->now).finish_ns;
}

static int by_prediction(struct sim *s, const struct sy_sim_request *r)
{
    int best = sy_sim_tree_first(&s->load), n = SY_MIN(s->n_holders[r->model], CANDIDATES);
    struct look look = {.known = false};
    if (n == 0)
        return best;
    sy_ns least = finish_there(s, best, r, NEVER - 1, &look);
    for (int i = 0; i < n; i++) {
        int device = holder(s, r, i);
        sy_ns finish = finish_there(s, device, r, least, &look);
        if (finish < least) {
            least = finish;
            best = device;
        }
        if (look.idle && look.missing == 0)
            break; /* nobody is done sooner */
    }
    return best;
}

static int by_residency(struct sim *s, const struct sy_sim_request *r)
{
    int best = least_loaded_holder(s, r);
    if (best >= 0 && (double)s->loads[best] < MAX_BOUND * mean_load(s))
        return best;
    return by_prediction(s, r);
}

int sy_sim_route_at_random(const struct sim *s, uint64_t request)
{
    return (int)(sy_sim_draw(s, request, 0) % (uint64_t)s->config->n_devices);
}

static void expect_use(const struct sim *s, int device, int model)
{
    sy_sim_expect(&s->uses[(size_t)device * (size_t)s->in->n_models + (size_t)model]);
}

static void expect_place(const struct sim *s, int device, int model)
{
    sy_sim_expect_device(s, device);
    expect_use(s, device, model);
}

/* Which they are is in memory that comes first. */
static void expect_holders(const struct sim *s, uint64_t request)
{
    int model = s->in->requests[request].model, n = s->n_holders[model];
    for (int i = 0; i < SY_MIN(n, CANDIDATES); i++)
        sy_sim_expect(&s->holders[model][holder_at(s, request, n, i)]);
}

/* Of an idle one the queue is not asked. Whoever has least to do now is likely to get the request. */
static void expect_candidates(const struct sim *s, uint64_t request)
{
    int model = s->in->requests[request].model, n = s->n_holders[model];
    int likely = least_loaded_holder(s, &s->in->requests[request]);
    bool by_prediction = s->config->router == SY_SIM_LEAST;
    if (likely >= 0)
        expect_place(s, likely, model);
    for (int i = 0; i < SY_MIN(n, CANDIDATES); i++) {
        int device = s->holders[model][holder_at(s, request, n, i)];
        if (by_prediction && s->loads[device] > 0)
            sy_sim_expect_queue(s, device);
        expect_use(s, device, model);
    }
    if (by_prediction)
        expect_place(s, sy_sim_tree_first(&s->load), model);
}

void sy_sim_expect_request(const struct sim *s, uint64_t request)
{
    uint64_t far = request + FAR_AHEAD, near = request + AHEAD;
    if (s->n_devices < SY_SIM_MANY || far >= s->in->n_requests)
        return;
    int model = s->in->requests[near].model;
    switch (s->config->router) {
    case SY_SIM_RANDOM:
        expect_place(s, sy_sim_route_at_random(s, near), model);
        break;
    case SY_SIM_HASH:
        expect_place(s, sy_sim_ring_find(s->ring, model, HASH_BOUND * mean_load(s)), model);
        break;
    default:
        expect_holders(s, far);
        expect_candidates(s, near);
        break;
    }
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

/* To which device a request goes. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"

#define HASH_BOUND 1.25 /* times the mean load */
#define MAX_BOUND  2.0  /* limit for a device that has the model */
#define AHEAD      8    /* requests: measured, with 4 memory has not come yet */
#define FAR_AHEAD  16
#define READ_AHEAD 64 /* requests lie in the order in which they come */

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
    for (int i = 0; s->config->router == SY_SIM_HASH && i < s->n_fleets; i++)
        if (s->fleets[i].n_devices > 0)
            SY_TRY(sy_sim_ring_create(s->fleets[i].n_devices, s->in->n_models, &s->fleets[i].ring));
    return SY_OK;
}

void sy_sim_router_close(struct sim *s)
{
    for (int i = 0; i < s->n_fleets; i++)
        sy_sim_ring_destroy(s->fleets[i].ring);
}

void sy_sim_note_load(struct sim *s, int device, int change)
{
    uint64_t before = s->loads[device];
    s->loads[device] = (uint16_t)(s->loads[device] + change);
    if (s->config->router != SY_SIM_HASH && s->config->router != SY_SIM_RESIDENCY)
        return; /* not queried */
    for (struct fleet *f = s->fleets; f < s->fleets + s->n_fleets; f++) {
        int place = sy_sim_fleet_place(s, f, device);
        if (place < 0)
            continue;
        f->n_requests += (uint64_t)(int64_t)change;
        if (f->ring)
            sy_sim_ring_set_load(f->ring, place, before, s->loads[device]);
    }
}

static double mean_load(const struct fleet *f)
{
    return ((double)f->n_requests + 1) / f->n_devices;
}

static uint64_t request_number(const struct sim *s, const struct sy_sim_request *r)
{
    return (uint64_t)(r - s->in->requests);
}

/* Which of the n devices that have some of the model are asked: all of few. */
static const int *candidates(struct sim *s, uint64_t request, int n)
{
    static const int all[SY_SIM_CANDIDATES] = {0, 1, 2, 3};
    struct drawn *d = &s->drawn[request % SY_SIM_DRAWN];
    if (n <= SY_SIM_CANDIDATES)
        return all;
    if (d->next != request + 1 || d->n != n) {
        *d = (struct drawn){.next = request + 1, .n = n};
        for (int i = 0; i < SY_SIM_CANDIDATES; i++)
            d->at[i] = (int)(sy_sim_draw(s, request, i) % (uint64_t)n);
    }
    return d->at;
}

/* The first of those asked that has the least work; -1: none has any of the model. */
static int least_loaded_holder(struct sim *s, uint64_t request)
{
    int model = s->in->requests[request].model, n = s->n_holders[model], best = -1;
    const int *at = candidates(s, request, n);
    for (int i = 0; i < SY_MIN(n, SY_SIM_CANDIDATES); i++) {
        int device = s->holders[model][at[i]];
        if (best < 0 || s->loads[device] < s->loads[best])
            best = device;
    }
    return best;
}

/* is_best: the device that was looked at last is idle, misses nothing and is of the fastest kind, so that no other device ends earlier. */
struct look {
    struct sy_sim_asked *asked;
    bool is_best;
};

/* A device with nothing to do needs no look at its queue; nor one where it would not be done before `least` even so. */
static sy_ns finish_there(const struct sim *s, int device, const struct sy_sim_request *r,
                          sy_ns least, struct look *look)
{
    const struct sy_admission_request *asks =
        sy_sim_ask_for(s, device, request_number(s, r), look->asked);
    sy_ns soonest = s->now + asks->duration.expected_ns;
    bool idle = s->loads[device] == 0 && s->config->train_share <= 0;
    look->is_best = idle && look->asked->missing == 0 &&
                    (s->n_kinds == 1 ||
                     sy_sim_model_on(s, device, r->model)->compute_ns == s->fastest_ns[r->model]);
    return idle || soonest > least + 1 /* of rounding */
               ? soonest
               : sy_admission_predict(sy_sim_queue(s, device), asks, s->now).finish_ns;
}

/* Which device of the kind has least to do; -1: it does not serve the model. */
static int least_loaded_of(struct sim *s, int kind, int model)
{
    struct kind *k = &s->kinds[kind];
    if (!k->models[model].served)
        return -1;
    sy_sim_tree_settle(&k->load);
    return k->first + sy_sim_tree_first(&k->load);
}

static int by_prediction(struct sim *s, const struct sy_sim_request *r, struct sy_sim_asked *asked)
{
    int best = -1, n = s->n_holders[r->model];
    struct look look = {asked, false};
    sy_ns least = NEVER - 1;
    for (int i = 0; i < s->n_kinds && !look.is_best; i++) {
        int device = least_loaded_of(s, i, r->model);
        if (device < 0)
            continue;
        if (n == 0 && s->n_kinds == 1)
            return device;
        sy_ns finish = finish_there(s, device, r, least, &look);
        if (best < 0 || finish < least) {
            least = finish;
            best = device;
        }
    }
    if (look.is_best)
        return best;
    const int *at = candidates(s, request_number(s, r), n);
    for (int i = 0; i < SY_MIN(n, SY_SIM_CANDIDATES) && !look.is_best; i++) {
        int device = s->holders[r->model][at[i]];
        sy_ns finish = finish_there(s, device, r, least, &look);
        if (finish < least) {
            least = finish;
            best = device;
        }
    }
    return best;
}

static int by_residency(struct sim *s, const struct sy_sim_request *r, struct sy_sim_asked *asked)
{
    int best = least_loaded_holder(s, request_number(s, r));
    if (best >= 0 && (double)s->loads[best] < MAX_BOUND * mean_load(sy_sim_fleet_of(s, r->model)))
        return best;
    return by_prediction(s, r, asked);
}

int sy_sim_route_at_random(const struct sim *s, uint64_t request)
{
    const struct fleet *f = sy_sim_fleet_of(s, s->in->requests[request].model);
    if (f->n_devices == 0)
        return 0; /* it is refused there */
    return sy_sim_fleet_device(s, f, (int)(sy_sim_draw(s, request, 0) % (uint64_t)f->n_devices));
}

/* Which they are is in memory that comes first. */
static void expect_holders(struct sim *s, uint64_t request)
{
    int model = s->in->requests[request].model, n = s->n_holders[model];
    const int *at = candidates(s, request, n);
    for (int i = 0; i < SY_MIN(n, SY_SIM_CANDIDATES); i++)
        sy_sim_expect(&s->holders[model][at[i]]);
}

/* An idle device's queue is not inspected. The device with the least work now is likely to get the request. */
static void expect_candidates(struct sim *s, uint64_t request)
{
    int model = s->in->requests[request].model, n = s->n_holders[model];
    int likely = least_loaded_holder(s, request);
    const int *at = candidates(s, request, n);
    if (likely >= 0)
        sy_sim_expect_device(s, likely, 0);
    for (int i = 0; s->config->router == SY_SIM_LEAST && i < SY_MIN(n, SY_SIM_CANDIDATES); i++) {
        int device = s->holders[model][at[i]];
        sy_sim_expect(&s->held[(size_t)device * s->n_held]);
        sy_sim_expect(s->queues +
                      ((size_t)device * s->queue_bytes & sy_sim_all_if(s->loads[device] > 0)));
    }
}

static int by_hash(const struct sim *s, int model)
{
    const struct fleet *f = sy_sim_fleet_of(s, model);
    return sy_sim_fleet_device(s, f, sy_sim_ring_find(f->ring, model, HASH_BOUND * mean_load(f)));
}

void sy_sim_expect_request(struct sim *s, uint64_t request)
{
    uint64_t far = request + FAR_AHEAD, near = request + AHEAD;
    if (s->n_devices < SY_SIM_MANY || far >= s->in->n_requests)
        return;
    switch (s->config->router) {
    case SY_SIM_RANDOM:
        sy_sim_expect_device(s, sy_sim_route_at_random(s, near), 0);
        break;
    case SY_SIM_HASH:
        if (sy_sim_fleet_of(s, s->in->requests[near].model)->ring)
            sy_sim_expect_device(s, by_hash(s, s->in->requests[near].model), 0);
        break;
    default:
        sy_sim_expect(&s->in->requests[SY_MIN(request + READ_AHEAD, s->in->n_requests - 1)]);
        expect_holders(s, far);
        expect_candidates(s, near);
        break;
    }
}

int sy_sim_route(struct sim *s, const struct sy_sim_request *r, struct sy_sim_asked *asked)
{
    if (s->n_devices == 1)
        return 0;
    switch (s->config->router) {
    case SY_SIM_HASH:
        return by_hash(s, r->model);
    case SY_SIM_LEAST:
        return by_prediction(s, r, asked);
    case SY_SIM_RESIDENCY:
        return by_residency(s, r, asked);
    default:
        return sy_sim_route_at_random(s, request_number(s, r));
    }
}

/* ---- jobs ---- */

static uint64_t job_bytes(const struct sy_sim_job *j)
{
    return SY_ALIGN_UP(j->persistent_bytes, SY_POOL_ALIGN) +
           SY_ALIGN_UP(j->ephemeral_bytes, SY_POOL_ALIGN);
}

static bool has_its_slice(const struct sim *s, int kind, const struct sy_sim_job *j)
{
    return s->config->n_slices <= 1 || kind % s->config->n_slices == j->slice;
}

/* All devices, if it fits nowhere: one of them says so. */
static struct fleet fleet_for_job(const struct sim *s, const struct sy_sim_job *j)
{
    struct fleet f = {.n_devices = 0};
    for (int i = 0; i < s->n_kinds; i++) {
        const struct kind *k = &s->kinds[i];
        if (job_bytes(j) > sy_sim_bytes_for_jobs(s, k) || !has_its_slice(s, i, j))
            continue;
        f.kinds |= 1ull << i;
        f.n_devices += k->is->n_devices;
    }
    return f.n_devices > 0 ? f : (struct fleet){.n_devices = s->n_all};
}

static bool quota_has_room(const struct sim *s, int device, const struct sy_sim_job *j)
{
    const struct sy_quotas *q = s->devices[device].quotas;
    q = q ? q : sy_sim_kind_of(s, device)->quotas;
    return !q || q->limit_bytes[j->tenant] == 0 ||
           q->used_bytes[j->tenant] + job_bytes(j) <= q->limit_bytes[j->tenant];
}

/* Chooses between two random devices where the job fits: first by room in its tenant's quota, then by the number of jobs relative to speed. */
int sy_sim_route_job(struct sim *s, const struct sy_sim_job *j)
{
    struct fleet f = fleet_for_job(s, j);
    uint64_t n = (uint64_t)f.n_devices;
    int a = (int)(sy_sim_random(s) % n), b = (int)(sy_sim_random(s) % n);
    a = sy_sim_fleet_device(s, &f, a);
    b = sy_sim_fleet_device(s, &f, b);
    bool room = quota_has_room(s, a, j);
    if (room != quota_has_room(s, b, j))
        return room ? a : b;
    double speed_a = sy_sim_kind_of(s, a)->is->speed, speed_b = sy_sim_kind_of(s, b)->is->speed;
    return (s->devices[b].n_jobs + 1) * speed_a < (s->devices[a].n_jobs + 1) * speed_b ? b : a;
}

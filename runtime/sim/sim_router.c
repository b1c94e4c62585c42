/* To which device a request goes. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"

#define POINTS     16   /* of each device on the ring */
#define HASH_BOUND 1.25 /* times the mean load */
#define MAX_BOUND  2.0  /* of a device that has the model */
#define CANDIDATES 4

struct ring_point {
    uint64_t at;
    int device;
};

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

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static int compare_points(const void *a, const void *b)
{
    const struct ring_point *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->device - y->device;
}

static int first_point(const struct sim *s, uint64_t at)
{
    int low = 0, high = s->n_ring;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->ring[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low == s->n_ring ? 0 : low;
}

int sy_sim_router_open(struct sim *s)
{
    int n = s->config->n_devices * POINTS;
    if (s->config->router != SY_SIM_HASH)
        return SY_OK;
    s->ring = calloc((size_t)n, sizeof *s->ring);
    s->ring_start = calloc((size_t)SY_MAX(s->in->n_models, 1), sizeof *s->ring_start);
    if (!s->ring || !s->ring_start)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a ring of %d points", n);
    s->n_ring = n;
    for (int i = 0; i < n; i++)
        s->ring[i] = (struct ring_point){mix((uint64_t)i * 0x9e3779b97f4a7c15ull + 1), i / POINTS};
    qsort(s->ring, (size_t)n, sizeof *s->ring, compare_points);
    for (int m = 0; m < s->in->n_models; m++)
        s->ring_start[m] = first_point(s, mix(((uint64_t)m + 1) * 0xd6e8feb86659fd93ull));
    return SY_OK;
}

void sy_sim_router_close(struct sim *s)
{
    free(s->ring);
    free(s->ring_start);
}

static double mean_load(const struct sim *s)
{
    return ((double)s->n_in_system + 1) / s->config->n_devices;
}

/* The mean is over all devices, so somebody on the ring is below the bound. */
static int by_hash(const struct sim *s, int model)
{
    double bound = HASH_BOUND * mean_load(s);
    int at = s->ring_start[model];
    for (int i = 0; i < s->n_ring; i++) {
        int device = s->ring[at].device;
        if ((double)s->devices[device].n_load < bound)
            return device;
        at = at + 1 == s->n_ring ? 0 : at + 1;
    }
    return s->ring[s->ring_start[model]].device;
}

static sy_ns finish_there(const struct sim *s, int device, uint64_t request)
{
    struct sy_admission_request r = sy_sim_ask_for(s, device, request);
    return sy_admission_predict(s->devices[device].admission, &r, s->now).finish_ns;
}

static int by_prediction(struct sim *s, const struct sy_sim_request *r)
{
    uint64_t request = (uint64_t)(r - s->in->requests);
    int best = sy_sim_heap_first(&s->load), n = s->n_holders[r->model];
    if (n == 0)
        return best;
    sy_ns least = finish_there(s, best, request);
    for (int i = 0; i < SY_MIN(n, CANDIDATES); i++) {
        int at = n <= CANDIDATES ? i : (int)(sy_sim_random(s) % (uint64_t)n);
        int device = s->holders[r->model][at];
        sy_ns finish = finish_there(s, device, request);
        if (finish < least) {
            least = finish;
            best = device;
        }
    }
    return best;
}

static int by_residency(struct sim *s, const struct sy_sim_request *r)
{
    int n = s->n_holders[r->model], best = -1;
    for (int i = 0; i < SY_MIN(n, CANDIDATES); i++) {
        int at = n <= CANDIDATES ? i : (int)(sy_sim_random(s) % (uint64_t)n);
        int device = s->holders[r->model][at];
        if (best < 0 || s->devices[device].n_load < s->devices[best].n_load)
            best = device;
    }
    if (best >= 0 && (double)s->devices[best].n_load < MAX_BOUND * mean_load(s))
        return best;
    return by_prediction(s, r);
}

int sy_sim_route(struct sim *s, const struct sy_sim_request *r)
{
    if (s->config->n_devices == 1)
        return 0;
    switch (s->config->router) {
    case SY_SIM_HASH:
        return by_hash(s, r->model);
    case SY_SIM_LEAST:
        return by_prediction(s, r);
    case SY_SIM_RESIDENCY:
        return by_residency(s, r);
    default:
        return (int)(sy_sim_random(s) % (uint64_t)s->config->n_devices);
    }
}

/* Of two at random, the one with fewer jobs. */
int sy_sim_route_job(struct sim *s)
{
    uint64_t n = (uint64_t)s->config->n_devices;
    int a = (int)(sy_sim_random(s) % n), b = (int)(sy_sim_random(s) % n);
    return s->devices[b].n_jobs < s->devices[a].n_jobs ? b : a;
}

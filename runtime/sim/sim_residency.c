/* Which part of which model a simulated device holds: heads, in bytes. The runtime's residency works on groups and offsets; here
 * the bytes are enough, and thousands of devices are cheap. */
#include <stdlib.h>
#include <string.h>

#include "loader/plan/free_prefix.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"
#include "runtime/sim/sim_memory.h"

/* Whether the order of use matters: models and jobs together may exceed the pool. */
static bool needs_eviction(const struct sim *s)
{
    uint64_t room = UINT64_MAX;
    for (int i = 0; i < s->n_kinds; i++)
        room = SY_MIN(room, s->kinds[i].is->pool_bytes);
    for (int m = 0; m < s->in->n_models; m++) {
        if (s->in->models[m].bytes > room)
            return true;
        room -= s->in->models[m].bytes;
    }
    return s->in->n_jobs > 0;
}

int sy_sim_residency_open(struct sim *s)
{
    size_t n_models = (size_t)SY_MAX(s->in->n_models, 1);
    size_t n = n_models * (size_t)s->n_devices;
    s->places = sy_sim_zeroed(n, sizeof *s->places);
    if (needs_eviction(s))
        s->uses = sy_sim_zeroed(n, sizeof *s->uses);
    s->n_held = (n_models + 63) / 64;
    s->held = sy_sim_zeroed(s->n_held * (size_t)s->n_devices, sizeof *s->held);
    s->holders = calloc(n_models, sizeof *s->holders);
    s->n_holders = calloc(n_models, sizeof *s->n_holders);
    s->max_holders = calloc(n_models, sizeof *s->max_holders);
    if (!s->places || (needs_eviction(s) && !s->uses) || !s->held || !s->holders || !s->n_holders ||
        !s->max_holders)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d models on %d devices",
                            s->in->n_models, s->n_devices);
    for (size_t i = 0; i < n; i++)
        s->places[i].holder = -1;
    return SY_OK;
}

void sy_sim_residency_empty(struct sim *s)
{
    for (int m = 0; m < s->in->n_models; m++) {
        s->places[m] = (struct place){0, -1};
        s->n_holders[m] = 0;
    }
    memset(s->held, 0, s->n_held * sizeof *s->held);
}

void sy_sim_residency_close(struct sim *s)
{
    for (int m = 0; s->holders && m < s->in->n_models; m++)
        free(s->holders[m]);
    free(s->holders);
    free(s->n_holders);
    free(s->max_holders);
    free(s->places);
    free(s->uses);
    free(s->held);
}

static struct place *place_of(const struct sim *s, int device, int model)
{
    return &s->places[(size_t)device * (size_t)s->in->n_models + (size_t)model];
}

static uint32_t *use_of(const struct sim *s, int device, int model)
{
    return &s->uses[(size_t)device * (size_t)s->in->n_models + (size_t)model];
}

static struct held *held_of(const struct sim *s, int device, int model)
{
    return &s->held[(size_t)device * s->n_held + (size_t)model / 64];
}

static uint64_t bit_of(int model)
{
    return 1ull << (model % 64);
}

/* Call after changing its bytes. */
static void note_held(struct sim *s, int device, int model)
{
    uint64_t bytes = place_of(s, device, model)->bytes, bit = bit_of(model);
    struct held *held = held_of(s, device, model);
    held->some = bytes > 0 ? held->some | bit : held->some & ~bit;
    held->whole = bytes == s->in->models[model].bytes ? held->whole | bit : held->whole & ~bit;
}

static void add_holder(struct sim *s, int device, int model)
{
    struct place *p = place_of(s, device, model);
    int n = s->n_holders[model];
    if (p->holder >= 0)
        return;
    if (n == s->max_holders[model]) {
        int more = n ? 2 * n : 8;
        int *grown = realloc(s->holders[model], (size_t)more * sizeof *grown);
        if (!grown)
            return; /* routers then do not see it */
        s->holders[model] = grown;
        s->max_holders[model] = more;
    }
    s->holders[model][n] = device;
    p->holder = n;
    s->n_holders[model]++;
}

static void drop_holder(struct sim *s, int device, int model)
{
    struct place *p = place_of(s, device, model);
    if (p->holder < 0)
        return;
    int last = s->holders[model][--s->n_holders[model]];
    s->holders[model][p->holder] = last;
    place_of(s, last, model)->holder = p->holder;
    p->holder = -1;
}

uint64_t sy_sim_missing_bytes(const struct sim *s, int device, int model)
{
    const struct held *held = held_of(s, device, model);
    uint64_t bit = bit_of(model);
    if (sy_sim_kind_of(s, device)->is->unified || held->whole & bit)
        return 0;
    if (!(held->some & bit))
        return s->in->models[model].bytes;
    return s->in->models[model].bytes - place_of(s, device, model)->bytes;
}

static void cut(struct sim *s, int device, int model, uint64_t to, uint64_t wanted)
{
    struct device *d = &s->devices[device];
    struct place *p = place_of(s, device, model);
    uint64_t gone = SY_MIN(p->bytes - to, wanted);
    if (s->config->whole_models)
        gone = p->bytes;
    p->bytes -= gone;
    note_held(s, device, model);
    d->resident_bytes -= gone;
    if (p->bytes == 0)
        drop_holder(s, device, model);
}

/* The link has the fault's rate between these, its own before and after. */
struct link_times {
    sy_ns slow_from_ns, slow_until_ns;
};

static struct link_times link_from(const struct sim *s, const struct device *d, sy_ns from_ns)
{
    if (s->in->n_faults == 0 || d->link_slow_until_ns <= from_ns)
        return (struct link_times){from_ns, from_ns};
    return (struct link_times){SY_MAX(d->link_slow_from_ns, from_ns), d->link_slow_until_ns};
}

static double link_gbps(const struct sim *s, const struct device *d)
{
    return sy_sim_kind_of(s, (int)(d - s->devices))->is->link_gbps;
}

sy_ns sy_sim_copy_ns(const struct sim *s, const struct device *d, uint64_t bytes, sy_ns from_ns)
{
    struct link_times link = link_from(s, d, from_ns);
    double rate = link_gbps(s, d), left = (double)bytes;
    if (link.slow_until_ns == from_ns)
        return sy_sim_ns(left / rate);
    double before = (double)(link.slow_from_ns - from_ns) * rate;
    if (left <= before)
        return sy_sim_ns(left / rate);
    left -= before;
    double slow = (double)(link.slow_until_ns - link.slow_from_ns) * rate * d->link_factor;
    if (left <= slow)
        return link.slow_from_ns - from_ns + sy_sim_ns(left / (rate * d->link_factor));
    return link.slow_until_ns - from_ns + sy_sim_ns((left - slow) / rate);
}

uint64_t sy_sim_bytes_left(const struct sim *s, const struct device *d)
{
    struct link_times link = link_from(s, d, s->now);
    sy_ns end = SY_MAX(d->link_free_ns, s->now), from = SY_MIN(link.slow_from_ns, end);
    sy_ns until = SY_MIN(link.slow_until_ns, end);
    double ns = (double)(end - s->now) - (double)(until - from) * (1 - d->link_factor);
    return (uint64_t)SY_MIN(SY_MAX(ns, 0) * link_gbps(s, d), (double)d->swap.missing);
}

void sy_sim_stop_copy(struct sim *s, int device, int model)
{
    struct device *d = &s->devices[device];
    struct place *p = place_of(s, device, model);
    uint64_t lost = sy_sim_bytes_left(s, d), there = s->in->models[model].bytes - lost;
    s->report->moved_bytes -= lost;
    d->link_free_ns = s->now;
    if (p->bytes > there)
        cut(s, device, model, there, p->bytes - there);
}

static sy_ns beside_copies(const struct sy_sim_kind *kind, sy_ns copy_ns, uint64_t bytes,
                           sy_ns compute_ns)
{
    struct sy_link_cost cost = {.bytes_per_ns = (double)bytes / (double)copy_ns,
                                .lost_ns_per_byte = kind->lost_ns_per_byte};
    struct sy_compute_beside beside = sy_compute_beside(&cost, (double)bytes);
    return sy_sim_ns(sy_compute_until(&beside, (double)compute_ns));
}

/* M1 */
sy_ns sy_sim_service_ns(const struct sim *s, int device, int model, sy_ns copy_ns, uint64_t missing,
                        sy_ns compute_ns)
{
    const struct kind *kind = sy_sim_kind_of(s, device);
    bool has_head = missing < s->in->models[model].bytes;
    sy_ns n = (sy_ns)kind->models[model].n_groups;
    if (copy_ns == 0)
        return compute_ns;
    if (kind->is->lost_ns_per_byte > 0)
        compute_ns = beside_copies(kind->is, copy_ns, missing, compute_ns);
    if (has_head)
        return SY_MAX(compute_ns, copy_ns + compute_ns / n);
    return SY_MAX(copy_ns + compute_ns / n, compute_ns + copy_ns / n);
}

sy_ns sy_sim_profiled_swap_ns(const struct sim *s, int device, int model, uint64_t missing)
{
    const struct kind *kind = sy_sim_kind_of(s, device);
    sy_ns compute = kind->models[model].compute_ns;
    if (missing == 0)
        return 0;
    sy_ns copy = sy_sim_ns((double)missing / kind->is->link_gbps);
    return sy_sim_service_ns(s, device, model, copy, missing, compute) - compute;
}

/* The shortest head with which a swap costs nothing. */
static uint64_t free_head(const struct sim *s, const struct device *d, int model)
{
    const struct kind *kind = sy_sim_kind_of(s, (int)(d - s->devices));
    const struct model_here *m = &kind->models[model];
    uint64_t bytes = s->in->models[model].bytes;
    sy_ns hidden = m->compute_ns - m->compute_ns / (sy_ns)m->n_groups;
    sy_ns copy = sy_sim_copy_ns(s, d, bytes, s->now);
    double head = copy > hidden ? 1 - (double)hidden / (double)copy : 0;
    double lost = kind->is->lost_ns_per_byte * (double)bytes;
    double slack = (double)m->compute_ns / SY_FREE_PREFIX_SLACK_PART;
    head = lost > slack ? SY_MAX(head, 1 - slack / lost) : head;
    head = SY_MAX(head, 1.0 / m->n_groups);
    return (uint64_t)(head * (double)bytes);
}

static int victim(const struct sim *s, int device, int but_model, bool tails)
{
    const struct device *d = &s->devices[device];
    uint32_t oldest = UINT32_MAX;
    int best = -1;
    for (int m = 0; m < s->in->n_models; m++) {
        const struct place *p = place_of(s, device, m);
        if (m == but_model || p->bytes == 0 || (tails && p->bytes <= free_head(s, d, m)))
            continue;
        uint32_t used = *use_of(s, device, m);
        if (used < oldest) {
            oldest = used;
            best = m;
        }
    }
    return best;
}

void sy_sim_make_room(struct sim *s, int device, uint64_t bytes, int but_model)
{
    struct device *d = &s->devices[device];
    uint64_t pool = sy_sim_kind_of(s, device)->is->pool_bytes, jobs = sy_sim_job_bytes(d);
    uint64_t room = pool > jobs + bytes ? pool - jobs - bytes : 0;
    bool tails = !s->config->whole_models;
    while (d->resident_bytes > room) {
        int m = victim(s, device, but_model, tails);
        if (m >= 0)
            cut(s, device, m, tails ? free_head(s, d, m) : 0, d->resident_bytes - room);
        else if (tails)
            tails = false; /* then heads */
        else
            return;
    }
}

void sy_sim_bring_in(struct sim *s, int device, int model)
{
    struct device *d = &s->devices[device];
    struct place *p = place_of(s, device, model);
    if (s->uses)
        *use_of(s, device, model) = ++s->tick;
    if (held_of(s, device, model)->whole & bit_of(model))
        return;
    uint64_t missing = s->in->models[model].bytes - p->bytes;
    uint64_t pool = sy_sim_kind_of(s, device)->is->pool_bytes;
    sy_sim_make_room(s, device, missing, model);
    uint64_t jobs = sy_sim_job_bytes(d), used = d->resident_bytes + jobs;
    /* A model larger than its room cycles: what fits stays. */
    uint64_t fits = pool > used ? SY_MIN(missing, pool - used) : 0;
    p->bytes += fits;
    d->resident_bytes += fits;
    note_held(s, device, model);
    if (p->bytes > 0)
        add_holder(s, device, model);
}

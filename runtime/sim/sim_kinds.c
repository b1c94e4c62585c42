/* Kinds of devices: what each model takes on them, and which of them serve it. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"
#include "runtime/sim/sim_memory.h"

static_assert(SY_SIM_MAX_TENANTS == SY_POLICY_MAX_TENANTS &&
                  SY_SIM_MAX_TENANTS == SY_QUOTA_MAX_TENANTS,
              "each indexes the others' books");

int sy_sim_n_devices(const struct sy_sim_config *c)
{
    int64_t n = c->n_kinds > 0 ? 0 : c->device.n_devices;
    for (int i = 0; i < c->n_kinds; i++)
        n += c->kinds[i].n_devices;
    return (int)SY_MIN(n, INT32_MAX);
}

static sy_ns on_kind(const struct sy_sim_kind *kind, sy_ns stated)
{
    return kind->speed == 1 ? stated : SY_MAX(sy_sim_ns((double)stated / kind->speed), 1);
}

sy_ns sy_sim_iteration_ns(const struct kind *kind, const struct sy_sim_job *j)
{
    return on_kind(kind->is, j->iteration_ns);
}

/* M9 */
static bool belongs(const struct sim *s, const struct kind *k, int slice)
{
    return s->config->n_slices <= 1 || (int)(k - s->kinds) % s->config->n_slices == slice;
}

/* M7 */
static bool fits(const struct sim *s, const struct kind *k, const struct sy_sim_model *m,
                 const struct model_here *here)
{
    if (!belongs(s, k, m->slice))
        return false;
    return k->is->unified || m->bytes / (uint64_t)here->n_groups <= k->is->pool_bytes;
}

static bool any_memory_limit(const struct sy_sim_input *in)
{
    for (int i = 0; i < in->n_tenants; i++)
        if (in->tenants[i].memory_bytes > 0)
            return true;
    return false;
}

static int open_quotas(const struct sim *s, struct kind *k)
{
    if (!any_memory_limit(s->in))
        return SY_OK;
    k->quotas = calloc(1, sizeof *k->quotas);
    if (!k->quotas)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the quotas of %d tenants",
                            s->in->n_tenants);
    for (int i = 0; i < s->in->n_tenants; i++)
        SY_TRY(sy_quota_set(k->quotas, i, s->in->tenants[i].memory_bytes));
    return SY_OK;
}

/* M8. Without requests no model is loaded. */
static int charge_model(const struct sim *s, struct kind *k, const struct sy_sim_model *m)
{
    char what[SY_SIM_NAME_BYTES + 8];
    snprintf(what, sizeof what, "model %s", m->name);
    return k->quotas && s->in->n_requests > 0
               ? sy_quota_charge(k->quotas, m->tenant, m->bytes, what)
               : SY_OK;
}

static void take_profile(struct kind *k, const struct sy_sim_profile *p)
{
    struct model_here *here = &k->models[p->model];
    here->compute_ns = p->compute_ns > 0 ? p->compute_ns : here->compute_ns;
    here->n_groups = p->n_groups > 0 ? p->n_groups : here->n_groups;
}

static int open_models(const struct sim *s, struct kind *k)
{
    const struct sy_sim_input *in = s->in;
    k->models = calloc((size_t)in->n_models + 1, sizeof *k->models);
    if (!k->models)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d models", in->n_models);
    for (int m = 0; m < in->n_models; m++)
        k->models[m] = (struct model_here){.compute_ns = on_kind(k->is, in->models[m].compute_ns),
                                           .n_groups = in->models[m].n_groups};
    for (int i = 0; i < in->n_profiles; i++)
        if (in->profiles[i].kind == (int)(k - s->kinds))
            take_profile(k, &in->profiles[i]);
    SY_TRY(open_quotas(s, k));
    for (int m = 0; m < in->n_models; m++) {
        struct model_here *here = &k->models[m];
        here->fits = fits(s, k, &in->models[m], here);
        here->served = here->fits && charge_model(s, k, &in->models[m]) == SY_OK;
        if (here->served) /* M6 */
            k->largest_bytes = SY_MAX(k->largest_bytes, in->models[m].bytes);
    }
    return SY_OK;
}

static int no_device_fits(const struct sim *s, int model)
{
    const struct sy_sim_model *m = &s->in->models[model];
    const struct kind *k = &s->kinds[0];
    for (int i = 1; i < s->n_kinds; i++)
        if (s->kinds[i].is->pool_bytes > k->is->pool_bytes)
            k = &s->kinds[i];
    return sy_error_set(SY_EARG,
                        "model %s: %llu bytes in %d groups, one of which is more than the pool of "
                        "%llu bytes",
                        m->name, (unsigned long long)m->bytes, k->models[model].n_groups,
                        (unsigned long long)k->is->pool_bytes);
}

/* M6 */
uint64_t sy_sim_bytes_for_jobs(const struct sim *s, const struct kind *k)
{
    uint64_t pool = k->is->pool_bytes, model = s->in->n_requests > 0 ? k->largest_bytes : 0;
    return model < pool ? pool - model : pool;
}

/* ---- fleets ---- */

static uint64_t kinds_that_serve(const struct sim *s, int model)
{
    uint64_t kinds = 0;
    for (int i = 0; i < s->n_kinds; i++)
        kinds |= (uint64_t)s->kinds[i].models[model].served << i;
    return kinds;
}

static bool any_fits(const struct sim *s, int model)
{
    for (int i = 0; i < s->n_kinds; i++)
        if (s->kinds[i].models[model].fits)
            return true;
    return false;
}

static int find_fleet(struct sim *s, uint64_t kinds)
{
    for (int i = 0; i < s->n_fleets; i++)
        if (s->fleets[i].kinds == kinds)
            return i;
    if (s->n_fleets == MAX_FLEETS)
        return sy_error_set(SY_EARG,
                            "models are on more than %d combinations of kinds of devices; "
                            "describe fewer kinds",
                            MAX_FLEETS);
    struct fleet *f = &s->fleets[s->n_fleets];
    *f = (struct fleet){.kinds = kinds};
    for (int i = 0; i < s->n_kinds; i++)
        if (kinds >> i & 1)
            f->n_devices += s->kinds[i].is->n_devices;
    return s->n_fleets++;
}

/* It fits, and was refused for its tenant's quota; the reason is still so. */
static void note_refused(struct sim *s, int model)
{
    for (int i = 0; i < s->n_kinds; i++)
        if (s->kinds[i].models[model].fits &&
            charge_model(s, &s->kinds[i], &s->in->models[model]) < 0) {
            sy_sim_note_refused_model(s->report, sy_error_text());
            return;
        }
}

static int open_fleets(struct sim *s)
{
    s->fleet_of = calloc((size_t)s->in->n_models + 1, sizeof *s->fleet_of);
    if (!s->fleet_of)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d models", s->in->n_models);
    for (int m = 0; m < s->in->n_models; m++) {
        if (!any_fits(s, m))
            return no_device_fits(s, m);
        int fleet = find_fleet(s, kinds_that_serve(s, m));
        if (fleet < 0)
            return fleet;
        s->fleet_of[m] = (uint8_t)fleet;
        if (s->fleets[fleet].n_devices == 0)
            note_refused(s, m);
    }
    return SY_OK;
}

int sy_sim_device_of_part(const struct sim *s, const struct fleet *f, int nth)
{
    for (int i = 0; i < s->n_kinds; i++) {
        const struct kind *k = &s->kinds[i];
        if (!(f->kinds >> i & 1))
            continue;
        if (nth < k->is->n_devices)
            return k->first + nth;
        nth -= k->is->n_devices;
    }
    return -1;
}

int sy_sim_place_in_part(const struct sim *s, const struct fleet *f, int device)
{
    int place = 0;
    for (int i = 0; i < s->n_kinds; i++) {
        const struct kind *k = &s->kinds[i];
        bool in = f->kinds >> i & 1;
        if (device < k->first + k->is->n_devices)
            return in ? place + device - k->first : -1;
        place += in ? k->is->n_devices : 0;
    }
    return -1;
}

/* ---- opening and closing ---- */

static int open_kind(struct sim *s, int kind, const struct sy_sim_kind *is, int first)
{
    struct kind *k = &s->kinds[kind];
    *k = (struct kind){.is = is, .first = first};
    for (int i = 0; i < is->n_devices && s->kind_of; i++)
        s->kind_of[first + i] = (uint8_t)kind;
    if (s->n_all > 1 && s->config->router >= SY_SIM_LEAST) {
        SY_TRY(sy_sim_tree_init(&k->load, is->n_devices));
        for (int i = 0; i < is->n_devices; i++)
            sy_sim_tree_set(&k->load, i, 0);
    }
    SY_TRY(sy_sim_report_add_kind(s->report, is->name, is->n_devices));
    return open_models(s, k);
}

static void find_fastest(struct sim *s)
{
    for (int m = 0; m < s->in->n_models; m++)
        for (int i = 0; i < s->n_kinds; i++) {
            sy_ns here = s->kinds[i].models[m].compute_ns;
            s->fastest_ns[m] = i == 0 ? here : SY_MIN(s->fastest_ns[m], here);
        }
}

int sy_sim_kinds_open(struct sim *s)
{
    const struct sy_sim_config *c = s->config;
    const struct sy_sim_kind *kinds = c->n_kinds > 0 ? c->kinds : &c->device;
    int first = 0;
    s->n_kinds = SY_MAX(c->n_kinds, 1);
    s->kinds = calloc((size_t)s->n_kinds, sizeof *s->kinds);
    s->fastest_ns = calloc((size_t)s->in->n_models + 1, sizeof *s->fastest_ns);
    if (s->n_kinds > 1)
        s->kind_of = sy_sim_zeroed((size_t)s->n_all, sizeof *s->kind_of);
    if (!s->kinds || !s->fastest_ns || (s->n_kinds > 1 && !s->kind_of))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d kinds of devices", s->n_kinds);
    for (int i = 0; i < s->n_kinds; i++) {
        SY_TRY(open_kind(s, i, &kinds[i], first));
        first += kinds[i].n_devices;
    }
    find_fastest(s);
    return open_fleets(s);
}

void sy_sim_kinds_close(struct sim *s)
{
    for (int i = 0; s->kinds && i < s->n_kinds; i++) {
        sy_sim_tree_finish(&s->kinds[i].load);
        free(s->kinds[i].models);
        free(s->kinds[i].quotas);
    }
    free(s->kinds);
    free(s->kind_of);
    free(s->fleet_of);
    free(s->fastest_ns);
}

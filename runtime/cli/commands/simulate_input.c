#include "runtime/cli/commands/simulate_input.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/cli/doctor/link_probe.h"
#include "runtime/cli/package_models.h"

#define MANY_DEVICES  100 /* more have no memory for long queues */
#define QUEUE_OF_FEW  1024
#define QUEUE_OF_MANY 128

static int grow_profiles(struct simulate_input *l, int more)
{
    size_t n = (size_t)l->in.n_profiles + (size_t)more;
    struct sy_sim_profile *grown = realloc(l->profiles, (n + 1) * sizeof *grown);
    SY_TRY_ALLOC(grown, "no memory for %zu profiles", n);
    l->profiles = grown;
    return SY_OK;
}

static const struct sy_sim_kind *kind_at(const struct sy_sim_config *c, int i)
{
    return c->n_kinds > 0 ? &c->kinds[i] : &c->device;
}

static int take_packages(const struct simulate_options *o, const struct sy_link_cost *link,
                         int kind, struct sy_sim_model **models, int *n)
{
    const struct sy_sim_kind *k = kind_at(&o->config, kind);
    struct sy_link_cost cost = *link;
    cost.bytes_per_ns = k->link_gbps;
    cost.lost_ns_per_byte = k->lost_ns_per_byte;
    return sy_cli_package_models(o->packages, &cost, k, models, n);
}

/* A server cuts a model for its own link and pool: other kinds of devices than the first have other groups. */
static int load_packages(const struct simulate_options *o, const struct sy_link_cost *link,
                         struct simulate_input *l)
{
    SY_TRY(take_packages(o, link, 0, &l->models, &l->in.n_models));
    for (int i = 1; i < o->config.n_kinds; i++) {
        struct sy_sim_model *models;
        int n;
        SY_TRY(take_packages(o, link, i, &models, &n));
        int status = n == l->in.n_models
                         ? grow_profiles(l, n)
                         : sy_error_set(SY_EBUSY, "%s changed while it was read", o->packages);
        for (int m = 0; m < n && status == SY_OK; m++)
            l->profiles[l->in.n_profiles++] =
                (struct sy_sim_profile){.model = m, .kind = i, .n_groups = models[m].n_groups};
        free(models);
        SY_TRY(status);
    }
    return SY_OK;
}

/* Later ones hold. */
static int load_profiles(const struct simulate_options *o, struct simulate_input *l)
{
    struct sy_sim_profile *more;
    int n;
    if (!o->profiles)
        return SY_OK;
    SY_TRY(sy_sim_read_profiles(o->profiles, &l->in, &o->config, &more, &n));
    int status = grow_profiles(l, n);
    if (status == SY_OK)
        memcpy(l->profiles + l->in.n_profiles, more, (size_t)n * sizeof *more);
    l->in.n_profiles += status == SY_OK ? n : 0;
    free(more);
    return status;
}

static int give_to_default(struct simulate_input *l)
{
    int tenant;
    SY_TRY(sy_sim_default_tenant(&l->tenants, &tenant));
    for (int m = 0; m < l->in.n_models; m++)
        l->models[m].tenant = tenant;
    return SY_OK;
}

static int load_models(const struct simulate_options *o, const struct sy_link_cost *link,
                       int n_examples, struct simulate_input *l)
{
    if (o->models)
        SY_TRY(sy_sim_read_models(o->models, &l->tenants, &l->models, &l->in.n_models));
    else if (o->packages)
        SY_TRY(load_packages(o, link, l));
    else
        SY_TRY(sy_sim_example_models(l->in.n_models = n_examples, &l->models));
    if (!o->models)
        SY_TRY(give_to_default(l));
    l->in.models = l->models;
    return load_profiles(o, l);
}

static int load_requests(const struct simulate_options *o, const struct sy_link_cost *link,
                         struct simulate_input *l)
{
    struct sy_sim_generator generator = {.n_models = 3};
    if (o->generate)
        SY_TRY(sy_sim_generator_parse(o->generate, &generator));
    SY_TRY(load_models(o, link, generator.n_models, l));
    if (o->requests)
        return sy_sim_read_requests(o->requests, l->models, l->in.n_models, &l->requests,
                                    &l->in.n_requests);
    if (!o->generate)
        return SY_OK;
    generator.n_models = l->in.n_models;
    return sy_sim_generate(&generator, o->config.seed, &l->requests, &l->in.n_requests);
}

/* As measured, or as given with what a copy and a signal cost by default. */
static int find_link(struct simulate_options *o, struct sy_link_cost *out)
{
    *out = (struct sy_link_cost){
        .alpha_ns = 10000, .bytes_per_ns = o->config.device.link_gbps, .sigma_ns = 5000};
    if (!o->like)
        return SY_OK;
    if (strcmp(o->like, "host") == 0) {
        o->config.device.unified = true;
        return SY_OK;
    }
    SY_TRY(sy_link_probe(o->like, out));
    o->config.device.link_gbps = out->bytes_per_ns;
    o->config.device.lost_ns_per_byte = out->lost_ns_per_byte;
    return SY_OK;
}

static int cut_devices(struct simulate_options *o, struct simulate_input *l)
{
    struct sy_sim_config *c = &o->config;
    struct sy_sim_kind *whole = l->kinds, one = c->device;
    cpu_set_t here;
    if (o->n_cores == 0 && sched_getaffinity(0, sizeof here, &here) == 0)
        o->n_cores = CPU_COUNT(&here);
    SY_TRY(sy_sim_slices_parse(o->slices, SY_MAX(o->n_cores, 1), &l->slices));
    one.name[0] = '\0';
    int status = sy_sim_slices_cut(&l->slices, whole ? whole : &one, SY_MAX(c->n_kinds, 1),
                                   &l->kinds, &c->n_kinds);
    free(whole);
    c->kinds = l->kinds;
    c->n_slices = l->slices.n;
    return status;
}

static int place_in_slices(const struct simulate_options *o, struct simulate_input *l)
{
    if (!o->slices)
        return SY_OK;
    if (o->pairs)
        SY_TRY(sy_sim_read_pairs(o->pairs, &l->pairs, &l->in.n_pairs));
    l->in.pairs = l->pairs;
    SY_TRY(sy_sim_slices_place_models(&l->slices, o->for_models ? o->for_models : "", l->models,
                                      l->in.n_models));
    return sy_sim_slices_place_jobs(&l->slices, o->for_jobs ? o->for_jobs : "", l->jobs,
                                    l->in.n_jobs);
}

static int load_devices(struct simulate_options *o, struct simulate_input *l)
{
    struct sy_sim_config *c = &o->config;
    if (o->devices) {
        SY_TRY(sy_sim_read_devices(o->devices, &c->device, &l->kinds, &c->n_kinds));
        c->kinds = l->kinds;
    }
    if (o->slices)
        SY_TRY(cut_devices(o, l));
    if (c->max_queue == 0)
        c->max_queue = sy_sim_n_devices(c) <= MANY_DEVICES ? QUEUE_OF_FEW : QUEUE_OF_MANY;
    return SY_OK;
}

int sy_simulate_load(struct simulate_options *o, struct simulate_input *l)
{
    struct sy_link_cost link;
    SY_TRY(find_link(o, &link));
    SY_TRY(load_devices(o, l));
    if (o->tenants)
        SY_TRY(sy_sim_read_tenants(o->tenants, &l->tenants));
    SY_TRY(load_requests(o, &link, l));
    if (o->jobs)
        SY_TRY(sy_sim_read_jobs(o->jobs, &l->tenants, &l->jobs, &l->in.n_jobs));
    if (o->faults)
        SY_TRY(sy_sim_read_faults(o->faults, &l->faults, &l->in.n_faults));
    SY_TRY(place_in_slices(o, l));
    l->in.requests = l->requests;
    l->in.jobs = l->jobs;
    l->in.faults = l->faults;
    l->in.profiles = l->profiles;
    l->in.tenants = l->tenants.all;
    l->in.n_tenants = l->tenants.n;
    return SY_OK;
}

void sy_simulate_unload(struct simulate_input *l)
{
    free(l->models);
    free(l->requests);
    free(l->jobs);
    free(l->faults);
    free(l->kinds);
    free(l->pairs);
    free(l->profiles);
}

#include "runtime/sim/sim.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"

#define MAX_DEVICES 100000
#define MAX_MODELS  100000

void sy_sim_config_default(struct sy_sim_config *config)
{
    *config = (struct sy_sim_config){
        .policy = {SY_POLICY_FIFO, 0, 0, 0},
        .device = {.name = "device",
                   .n_devices = 1,
                   .pool_bytes = 16000000000ull,
                   .link_gbps = 12.3,
                   .speed = 1},
        .regroup = true,
        .pause_ns = SY_NS_PER_MS / 2,
        .max_queue = 128,
        .seed = 1,
    };
}

const char *sy_sim_outcome_name(enum sy_sim_outcome outcome)
{
    static const char *const names[] = {"done", "refused", "failed"};
    return (unsigned)outcome < SY_ARRAY_LEN(names) ? names[outcome] : "?";
}

/* ---- checking the input ---- */

static int check_tenant_of(const char *what, const char *name, int tenant)
{
    if (tenant >= 0 && tenant < SY_POLICY_MAX_TENANTS)
        return SY_OK;
    return sy_error_set(SY_EARG, "%s %s: tenant %d; 0 to %d", what, name, tenant,
                        SY_POLICY_MAX_TENANTS - 1);
}

static int check_model(const struct sy_sim_model *m)
{
    bool fine = m->n_samples >= 0 && m->n_samples <= SY_SIM_MAX_SAMPLES;
    for (int i = 0; fine && i < m->n_samples; i++)
        fine = m->samples[i] > 0 && m->samples[i] < 1e6f;
    if (!fine)
        return sy_error_set(SY_EARG,
                            "model %s: %d samples of its computation: at most %d, each above 0",
                            m->name, m->n_samples, SY_SIM_MAX_SAMPLES);
    if (m->compute_ns == 0 || m->n_groups < 1)
        return sy_error_set(SY_EARG, "model %s: it computes at least 1 ns, in at least one group",
                            m->name);
    return check_tenant_of("model", m->name, m->tenant);
}

static int check_job(const struct sy_sim_job *j, sy_ns before)
{
    if (j->iterations == 0 || j->iteration_ns == 0)
        return sy_error_set(SY_EARG, "job %s: %llu iterations of %llu ns; at least one of 1 ns",
                            j->name, (unsigned long long)j->iterations,
                            (unsigned long long)j->iteration_ns);
    if (j->submit_ns < before)
        return sy_error_set(SY_EARG, "job %s: jobs must be sorted by submission time", j->name);
    if (!(j->utilization >= 0 && j->utilization <= 1))
        return sy_error_set(SY_EARG, "job %s: utilization %g; 0 to 1", j->name, j->utilization);
    return check_tenant_of("job", j->name, j->tenant);
}

static int check_request(const struct sy_sim_input *in, uint64_t i)
{
    const struct sy_sim_request *r = &in->requests[i];
    if (r->model >= 0 && r->model < in->n_models && r->class_ >= 0 &&
        r->class_ < SY_SIM_MAX_CLASSES && (i == 0 || r->at_ns >= in->requests[i - 1].at_ns))
        return SY_OK;
    return sy_error_set(
        SY_EARG, "request %llu: model %d of %d, class %d of %d, in the order of arrival",
        (unsigned long long)i, r->model, in->n_models, r->class_, SY_SIM_MAX_CLASSES);
}

static int check_range(const char *what, double value, double least, double most)
{
    if (value >= least && value <= most)
        return SY_OK;
    return sy_error_set(SY_EARG, "%s: %g is not a number from %g to %g", what, value, least, most);
}

int sy_sim_check_kind(const struct sy_sim_kind *k)
{
    SY_TRY(check_range("devices", k->n_devices, 1, MAX_DEVICES));
    SY_TRY(check_range("GB/s of the link", k->link_gbps, 1e-6, 1e6));
    SY_TRY(check_range("ns lost a byte", k->lost_ns_per_byte, 0, 1e6));
    SY_TRY(check_range("speed", k->speed, 1e-6, 1e6));
    return check_range("contention", k->contention, 0, 1e6);
}

static int check_kinds(const struct sy_sim_config *c)
{
    SY_TRY(check_range("kinds of devices", c->n_kinds, 0, SY_SIM_MAX_KINDS));
    if (c->n_kinds == 0)
        return sy_sim_check_kind(&c->device);
    for (int i = 0; i < c->n_kinds; i++) {
        char why[256];
        if (sy_sim_check_kind(&c->kinds[i]) == SY_OK)
            continue;
        snprintf(why, sizeof why, "%s", sy_error_text());
        return sy_error_set(SY_EARG, "device %s: %s", c->kinds[i].name, why);
    }
    return check_range("devices", sy_sim_n_devices(c), 1, MAX_DEVICES);
}

static int check_config(const struct sy_sim_config *c)
{
    SY_TRY(check_kinds(c));
    if (c->train_share != 0)
        SY_TRY(check_range("training's share", c->train_share, 0.001, 1));
    SY_TRY(check_range("noise", c->noise, 0, 2));
    return check_range("length of a queue", c->max_queue, 1, 65534);
}

static int check_profile(const struct sy_sim_config *c, const struct sy_sim_input *in,
                         const struct sy_sim_profile *p)
{
    if (p->model >= 0 && p->model < in->n_models && p->kind >= 0 &&
        p->kind < SY_MAX(c->n_kinds, 1) && p->n_groups >= 0)
        return SY_OK;
    return sy_error_set(SY_EARG, "a profile of model %d of %d on kind %d of %d, in %d groups",
                        p->model, in->n_models, p->kind, SY_MAX(c->n_kinds, 1), p->n_groups);
}

static int check_tenant(const struct sy_sim_tenant *t)
{
    if (t->weight <= 1000000 && t->hard_permille <= 1000)
        return SY_OK;
    return sy_error_set(SY_EARG,
                        "tenant %s: weight %u, hard share %u per mille: 0 to 1000000, 0 to 1000",
                        t->name, t->weight, t->hard_permille);
}

static int check_fault(const struct sy_sim_config *c, const struct sy_sim_fault *f, sy_ns before)
{
    double at_s = (double)f->at_ns / 1e9;
    if (f->device < 0 || f->device >= sy_sim_n_devices(c))
        return sy_error_set(SY_EARG, "the fault at %.9g s: device %d of %d; the first is 0", at_s,
                            f->device, sy_sim_n_devices(c));
    if (!(f->factor > 0))
        return sy_error_set(SY_EARG, "the fault at %.9g s: factor %g; above 0", at_s, f->factor);
    if (f->at_ns < before)
        return sy_error_set(SY_EARG, "the fault at %.9g s: faults must be sorted by time", at_s);
    return SY_OK;
}

static int check_input(const struct sy_sim_config *c, const struct sy_sim_input *in)
{
    SY_TRY(check_config(c));
    SY_TRY(check_range("models", in->n_models, 0, MAX_MODELS));
    SY_TRY(check_range("requests", (double)in->n_requests, 0, USE_MAX_REQUESTS));
    for (int i = 0; i < in->n_models; i++)
        SY_TRY(check_model(&in->models[i]));
    SY_TRY(check_range("tenants", in->n_tenants, 0, SY_POLICY_MAX_TENANTS));
    for (int i = 0; i < in->n_tenants; i++)
        SY_TRY(check_tenant(&in->tenants[i]));
    for (int i = 0; i < in->n_profiles; i++)
        SY_TRY(check_profile(c, in, &in->profiles[i]));
    for (int i = 0; i < in->n_jobs; i++)
        SY_TRY(check_job(&in->jobs[i], i ? in->jobs[i - 1].submit_ns : 0));
    for (uint64_t i = 0; i < in->n_requests; i++)
        SY_TRY(check_request(in, i));
    for (int i = 0; i < in->n_faults; i++)
        SY_TRY(check_fault(c, &in->faults[i], i ? in->faults[i - 1].at_ns : 0));
    return SY_OK;
}

/* ---- running ---- */

int sy_sim_run(const struct sy_sim_config *config, const struct sy_sim_input *input,
               struct sy_sim_report *report)
{
    struct sim s = {.config = config, .in = input, .report = report, .random = config->seed};
    SY_TRY(check_input(config, input));
    s.n_all = sy_sim_n_devices(config);
    bool apart = sy_sim_is_independent(&s);
    struct sy_sim_streams all = {.n_requests = input->n_requests,
                                 .n_faults = (uint64_t)input->n_faults};
    s.n_devices = apart ? 1 : s.n_all;
    int status = sy_sim_open(&s);
    if (status == SY_OK)
        status = apart ? sy_sim_loop_by_device(&s) : sy_sim_loop(&s, &all);
    report->makespan_ns = s.now;
    sy_sim_close(&s);
    return status;
}

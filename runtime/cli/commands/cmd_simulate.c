/* simulate: what a policy would do with these jobs and requests, in virtual time. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/doctor/link_probe.h"
#include "runtime/cli/package_models.h"
#include "runtime/cli/train/run_progress.h"
#include "runtime/sim/sim.h"
#include "runtime/sim/sim_slices.h"
#include "runtime/sim/sim_trace.h"

#define MANY_DEVICES  100 /* more have no memory for long queues */
#define QUEUE_OF_FEW  1024
#define QUEUE_OF_MANY 128
#define USUAL_BOUND   1.1 /* a server's */

struct simulate_options {
    const char *jobs, *requests, *generate, *models, *packages, *profiles, *faults, *tenants,
        *devices, *plot, *like, *answers, *slices, *for_models, *for_jobs, *pairs;
    int n_cores; /* 0: as this machine */
    bool json;
    struct sy_sim_config config;
};

enum simulate_option {
    O_JOBS,
    O_REQUESTS,
    O_GENERATE,
    O_MODELS,
    O_PACKAGES,
    O_PROFILES,
    O_TENANTS,
    O_FAULTS,
    O_POLICY,
    O_AT_ONCE,
    O_MAX_WAIT,
    O_DEVICES,
    O_SLICES,
    O_CORES,
    O_FOR_MODELS,
    O_FOR_JOBS,
    O_PAIRS,
    O_BOUND,
    O_ROUTER,
    O_POOL,
    O_LINK,
    O_UNIFIED,
    O_LIKE,
    O_WHOLE,
    O_TAKE_ALL,
    O_NO_REGROUP,
    O_SPILL,
    O_CONTENTION,
    O_NOISE,
    O_SHARE,
    O_PREEMPT,
    O_PAUSE,
    O_QUEUE,
    O_SECONDS,
    O_SEED,
    O_CHECK,
    O_ANSWERS,
    O_PLOT,
    O_JSON
};

static const struct sy_cli_option options[] = {
    [O_JOBS] = {"jobs", "FILE",
                "CSV: name,submit_s,iterations,iteration_ms,persistent_mb,ephemeral_mb"
                "[,utilization,tenant,priority,weight,slice]"},
    [O_REQUESTS] = {"requests", "FILE",
                    "CSV: time_s,model[,class,deadline_ms,served_ms: as replay's answers have it]"},
    [O_GENERATE] =
        {"generate", "OPTIONS",
         "requests by chance: rate=20,seconds=60,zipf=1,models=3,classes=1,deadline-ms=0,"
         "swing=0,period=86400,burst=1,burst-every=30,burst-last=2"},
    [O_MODELS] = {"models", "FILE",
                  "CSV: model,mb,compute_ms[,groups,samples_ms: observed ones, spaces between,"
                  "tenant,slice]; else examples"},
    [O_PACKAGES] = {"packages", "DIR",
                    "models from packages as profiled: NAME/VERSION/model.sypkg, FILE.sypkg"},
    [O_PROFILES] =
        {"profiles", "FILE",
         "CSV: model,device,compute_ms[,groups]: where a device's speed does not say it"},
    [O_TENANTS] = {"tenants", "FILE",
                   "CSV: tenant[,weight,hard_share,memory_mb]: shares and quotas on each device"},
    [O_FAULTS] = {"faults", "FILE",
                  "CSV: time_s,device,kind,duration_s[,factor]; kind: worker_dies, link_slows"},
    [O_POLICY] = {"policy", "P", "fifo unless said, of" SY_POLICY_WORDS},
    [O_AT_ONCE] = {"at-once", "N", "iterations beside each other; 0: as the policy has it"},
    [O_MAX_WAIT] = {"max-wait", "SECONDS", "no ready job waits longer; 0: off"},
    [O_DEVICES] = {"devices", "N|FILE",
                   "1 to 100000 alike (1), or CSV, a line for each kind: device[,count,pool_mb,"
                   "link_gbps,lost_ns_per_byte,unified,speed,contention]; else the options"},
    [O_SLICES] = {"slices", "LIST",
                  "each device in parts that compute side by side: train=12,serve=25%,rest=w1"},
    [O_CORES] = {"cores", "N", "of a device, that slices are cut from (as many as are here)"},
    [O_FOR_MODELS] = {"for-models", "NAME", "the slice of models that name none (the first)"},
    [O_FOR_JOBS] = {"for-jobs", "NAME", "the slice of jobs that name none (the first)"},
    [O_PAIRS] =
        {"pairs", "FILE",
         "CSV: task,beside,slowdown: how much slower models and jobs are beside others, as\n"
         "        'switchyard slices --pairs' shows; pairs that are not there are predicted"},
    [O_BOUND] = {"bound", "X",
                 "models of class 0 or with deadlines take turns with what would make them slower\n"
                 "        (1.1); 0: with nobody"},
    [O_ROUTER] = {"router", "R", "random (default), hash, least, residency"},
    [O_POOL] = {"pool", "BYTES", "of each device (16G)"},
    [O_LINK] = {"link-gbps", "N", "host to device (12.3)"},
    [O_UNIFIED] = {"unified", NULL, "no copies: the device reads host memory"},
    [O_LIKE] = {"like-this-machine", "DEVICE",
                "measures this device's link: host, emulated, cuda:N"},
    [O_WHOLE] = {"whole-models", NULL, "evict whole models, not tails first"},
    [O_TAKE_ALL] = {"take-all", NULL, "refuse nothing for its deadline"},
    [O_NO_REGROUP] = {"no-regroup", NULL, "lanes exactly as in Salus' paper"},
    [O_SPILL] = {"spill", NULL,
                 "with --policy srtf: long jobs go to host memory when shorter ones wait"},
    [O_CONTENTION] = {"contention", "X", "each further lane slows all by this part (0)"},
    [O_NOISE] = {"noise", "X", "spread of durations, lognormal (0)"},
    [O_SHARE] = {"train-share", "X", "0 to 1: of the time, guaranteed to jobs beside requests (0)"},
    [O_PREEMPT] = {"preempt-ms", "N", "urgent classes stop others within this; 0: never"},
    [O_PAUSE] = {"pause-ms", "N", "until a job stands still for a request (0.5)"},
    [O_QUEUE] = {"queue", "N",
                 "requests that may wait at a device (1024 as at a server; 128 above 100 devices)"},
    [O_SECONDS] = {"seconds", "N", "virtual time to look at; 0: until all is done"},
    [O_SEED] = {"seed", "N", "equal seeds give equal results (1)"},
    [O_CHECK] = {"check", NULL, "walk the invariants after each event"},
    [O_ANSWERS] = {"answers", "FILE",
                   "CSV of each request: time_s,model,class,device (-1: none has the model),"
                   "outcome,latency_ms,served_ms"},
    [O_PLOT] = {"plot", "FILE", "SVG: devices over time, distribution"},
    [O_JSON] = {"json", NULL, "print JSON"},
    {NULL, NULL, NULL}};

static int real_option(const char *value, double scale, double *out)
{
    SY_TRY(sy_cli_real(value, out));
    *out *= scale;
    return SY_OK;
}

static int ns_option(const char *value, double scale, sy_ns *out)
{
    double ns;
    SY_TRY(real_option(value, scale, &ns));
    if (ns > 1e18)
        return sy_error_set(SY_EARG, "%s is more than 30 years", value);
    if (ns > 0 && ns < 1)
        return sy_error_set(SY_EARG, "%s is less than a nanosecond", value);
    *out = (sy_ns)ns;
    return SY_OK;
}

static int integer_option(const char *value, int least, int most, int *out)
{
    int64_t number;
    SY_TRY(sy_cli_integer(value, least, most, &number));
    *out = (int)number;
    return SY_OK;
}

static int set_seed(const char *value, uint64_t *out)
{
    int64_t number;
    SY_TRY(sy_cli_integer(value, 0, INT64_MAX, &number));
    *out = (uint64_t)number;
    return SY_OK;
}

static int set_switch(struct simulate_options *o, enum simulate_option option)
{
    struct sy_sim_config *c = &o->config;
    switch (option) {
    case O_UNIFIED:
        c->device.unified = true;
        break;
    case O_WHOLE:
        c->whole_models = true;
        break;
    case O_TAKE_ALL:
        c->take_all = true;
        break;
    case O_NO_REGROUP:
        c->regroup = false;
        break;
    case O_SPILL:
        c->spill = true;
        break;
    case O_CHECK:
        c->check = true;
        break;
    default:
        o->json = true;
        break;
    }
    return SY_OK;
}

static int set_text(struct simulate_options *o, enum simulate_option option, const char *value)
{
    const char **texts[] = {
        [O_JOBS] = &o->jobs,       [O_REQUESTS] = &o->requests, [O_GENERATE] = &o->generate,
        [O_MODELS] = &o->models,   [O_PACKAGES] = &o->packages, [O_PROFILES] = &o->profiles,
        [O_TENANTS] = &o->tenants, [O_FAULTS] = &o->faults,     [O_SLICES] = &o->slices,
        [O_PAIRS] = &o->pairs,     [O_FOR_JOBS] = &o->for_jobs, [O_FOR_MODELS] = &o->for_models};
    if (option == O_PLOT)
        o->plot = value;
    else if (option == O_ANSWERS)
        o->answers = value;
    else if (option == O_LIKE)
        o->like = value;
    else
        *texts[option] = value;
    return SY_OK;
}

/* What is no number is a file. */
static int set_devices(struct simulate_options *o, const char *value)
{
    char *end;
    strtod(value, &end);
    bool is_number = end > value && *end == '\0';
    o->devices = is_number ? NULL : value;
    return is_number ? integer_option(value, 1, 100000, &o->config.device.n_devices) : SY_OK;
}

static int bound_option(const char *value, double *out)
{
    SY_TRY(real_option(value, 1, out));
    if (*out == 0 || (*out >= 1 && *out <= 100))
        return SY_OK;
    return sy_error_set(SY_EARG, "%s is not 0, and no number from 1 to 100", value);
}

static int set_option(struct simulate_options *o, enum simulate_option option, const char *value)
{
    struct sy_sim_config *c = &o->config;
    switch (option) {
    case O_POLICY:
        return sy_policy_parse(value, &c->policy.kind);
    case O_AT_ONCE:
        return integer_option(value, 0, 4096, &c->policy.n_parallel);
    case O_MAX_WAIT:
        return ns_option(value, 1e9, &c->policy.max_wait_ns);
    case O_DEVICES:
        return set_devices(o, value);
    case O_CORES:
        return integer_option(value, 1, SY_SIM_MAX_CORES, &o->n_cores);
    case O_BOUND:
        return bound_option(value, &c->bound);
    case O_ROUTER:
        return sy_sim_router_parse(value, &c->router);
    case O_POOL:
        return sy_cli_bytes(value, &c->device.pool_bytes);
    case O_LINK:
        return real_option(value, 1, &c->device.link_gbps);
    case O_CONTENTION:
        return real_option(value, 1, &c->device.contention);
    case O_NOISE:
        return real_option(value, 1, &c->noise);
    case O_SHARE:
        return real_option(value, 1, &c->train_share);
    case O_PREEMPT:
        return ns_option(value, 1e6, &c->preempt_ns);
    case O_PAUSE:
        return ns_option(value, 1e6, &c->pause_ns);
    case O_QUEUE:
        return integer_option(value, 1, 65534, &c->max_queue);
    case O_SECONDS:
        return ns_option(value, 1e9, &c->end_ns);
    case O_SEED:
        return set_seed(value, &c->seed);
    default:
        return value ? set_text(o, option, value) : set_switch(o, option);
    }
}

/* ---- input ---- */

struct loaded {
    struct sy_sim_model *models;
    struct sy_sim_request *requests;
    struct sy_sim_job *jobs;
    struct sy_sim_fault *faults;
    struct sy_sim_kind *kinds;
    struct sy_sim_slices slices;
    struct sy_sim_pair *pairs;
    struct sy_sim_profile *profiles;
    struct sy_sim_tenants tenants;
    struct sy_sim_input in;
};

static int grow_profiles(struct loaded *l, int more)
{
    size_t n = (size_t)l->in.n_profiles + (size_t)more;
    struct sy_sim_profile *grown = realloc(l->profiles, (n + 1) * sizeof *grown);
    if (!grown)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %zu profiles", n);
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
                         struct loaded *l)
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
static int load_profiles(const struct simulate_options *o, struct loaded *l)
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

static int give_to_default(struct loaded *l)
{
    int tenant;
    SY_TRY(sy_sim_default_tenant(&l->tenants, &tenant));
    for (int m = 0; m < l->in.n_models; m++)
        l->models[m].tenant = tenant;
    return SY_OK;
}

static int load_models(const struct simulate_options *o, const struct sy_link_cost *link,
                       int n_examples, struct loaded *l)
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
                         struct loaded *l)
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

static int cut_devices(struct simulate_options *o, struct loaded *l)
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

static int place_in_slices(const struct simulate_options *o, struct loaded *l)
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

static int load_devices(struct simulate_options *o, struct loaded *l)
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

static int load(struct simulate_options *o, struct loaded *l)
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

static void unload(struct loaded *l)
{
    free(l->models);
    free(l->requests);
    free(l->jobs);
    free(l->faults);
    free(l->kinds);
    free(l->pairs);
    free(l->profiles);
}

/* ---- the command ---- */

static int plot(const struct simulate_options *o, const struct sy_sim_report *report)
{
    char title[256];
    FILE *file = fopen(o->plot, "w");
    if (!file)
        return sy_error_set(SY_EIO, "cannot write %s: %s", o->plot, strerror(errno));
    const char *requests = o->requests ? o->requests : o->generate;
    snprintf(title, sizeof title, "%s%s%s, policy %s, %d device%s, router %s (simulated)",
             o->jobs ? o->jobs : "", o->jobs && requests ? " and " : "", requests ? requests : "",
             sy_policy_name(o->config.policy.kind), report->n_devices,
             report->n_devices == 1 ? "" : "s", sy_sim_router_name(o->config.router));
    int status = sy_sim_plot_svg(report, title, file);
    if (fclose(file) != 0 && status == SY_OK)
        status = sy_error_set(SY_EIO, "cannot write %s: %s", o->plot, strerror(errno));
    return status;
}

struct answers {
    FILE *to;
    const struct sy_sim_model *models;
};

static void write_answer(void *ctx, const struct sy_sim_request *r, int device,
                         enum sy_sim_outcome outcome, sy_ns latency_ns, sy_ns served_ns)
{
    const struct answers *answers = ctx;
    fprintf(answers->to, "%.6f,%s,%d,%d,%s,%.3f,%.3f\n", (double)r->at_ns / 1e9,
            answers->models[r->model].name, r->class_, device, sy_sim_outcome_name(outcome),
            (double)latency_ns / 1e6, (double)served_ns / 1e6);
}

struct progress {
    struct sy_cli_run_progress line;
    const struct sy_sim_input *in;
};

static void show_progress(void *ctx, const struct sy_sim_report *so_far)
{
    struct progress *p = ctx;
    if (!sy_cli_run_progress_is_due(&p->line))
        return;
    sy_cli_run_progress_show(
        &p->line, "simulated %llu of %llu requests, %d of %d jobs, %.0f million events",
        (unsigned long long)so_far->n_requests, (unsigned long long)p->in->n_requests,
        so_far->n_jct, p->in->n_jobs, (double)so_far->n_events / 1e6);
}

static int run_shown(struct simulate_options *o, const struct loaded *l,
                     struct sy_sim_report *report)
{
    struct progress progress = {.in = &l->in};
    sy_cli_run_progress_begin(&progress.line);
    o->config.progress = show_progress;
    o->config.progress_ctx = &progress;
    int status = sy_sim_run(&o->config, &l->in, report);
    sy_cli_run_progress_end(&progress.line);
    return status;
}

static int run(struct simulate_options *o, const struct loaded *l, struct sy_sim_report *report)
{
    struct answers answers = {NULL, l->models};
    if (!o->answers)
        return run_shown(o, l, report);
    answers.to = fopen(o->answers, "w");
    if (!answers.to)
        return sy_error_set(SY_EIO, "cannot write %s: %s", o->answers, strerror(errno));
    fprintf(answers.to, "time_s,model,class,device,outcome,latency_ms,served_ms\n");
    o->config.answered = write_answer;
    o->config.answered_ctx = &answers;
    int status = run_shown(o, l, report);
    bool bad = ferror(answers.to) != 0;
    if ((fclose(answers.to) != 0 || bad) && status == SY_OK)
        status = sy_error_set(SY_EIO, "cannot write %s", o->answers);
    return status;
}

static int simulate(struct simulate_options *o)
{
    struct loaded l = {0};
    struct sy_sim_report *report = sy_sim_report_new();
    int status = report ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a report");
    if (status == SY_OK)
        status = load(o, &l);
    if (status == SY_OK) {
        sy_ns begun = sy_clock_now();
        status = run(o, &l, report);
        double wall_s = (double)(sy_clock_now() - begun) / 1e9;
        if (status == SY_OK)
            status = o->json ? sy_sim_print_json(report, wall_s, stdout)
                             : sy_sim_print_text(report, wall_s, stdout);
    }
    if (status == SY_OK && o->plot)
        status = plot(o, report);
    unload(&l);
    sy_sim_report_free(report);
    return status < 0 ? sy_cli_fail_status() : 0;
}

int sy_cmd_simulate(int argc, char **argv)
{
    struct simulate_options o = {0};
    struct sy_cli_parser parser = {"simulate [options]\n\nWhat a policy would do with these jobs "
                                   "and requests, in virtual time.",
                                   options, argc, argv, 0};
    const char *value;
    int got;

    sy_sim_config_default(&o.config);
    o.config.max_queue = 0;
    o.config.bound = USUAL_BOUND;
    while ((got = sy_cli_next(&parser, &value)) >= 0)
        if (set_option(&o, (enum simulate_option)got, value) < 0)
            return sy_cli_usage("--%s: %s", options[got].name, sy_error_text());
    if (got == SY_CLI_WORD)
        return sy_cli_usage("simulate takes no words: %s", value);
    if (got != SY_CLI_END)
        return got == SY_CLI_HELP ? 0 : 2;
    if (!o.jobs && !o.requests && !o.generate)
        return sy_cli_usage("simulate what? give --jobs, --requests or --generate");
    if (o.models && o.packages)
        return sy_cli_usage("models from a file or from packages, not both: --models, --packages");
    if (o.requests && o.generate)
        return sy_cli_usage("requests are read or generated, not both: --requests, --generate");
    if (!o.slices && (o.pairs || o.for_models || o.for_jobs || o.n_cores))
        return sy_cli_usage("--pairs, --cores, --for-models and --for-jobs go with --slices");
    if (o.config.spill && o.config.policy.kind != SY_POLICY_SRTF)
        return sy_cli_usage("--spill goes with --policy srtf; this is %s",
                            sy_policy_name(o.config.policy.kind));
    return simulate(&o);
}

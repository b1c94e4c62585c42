/* simulate: what a policy would do with these jobs and requests, in virtual time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/commands/simulate_input.h"
#include "runtime/cli/train/run_progress.h"

#define USUAL_BOUND 1.1 /* a server's */

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
    [O_GENERATE] = {"generate", "OPTIONS",
                    "random requests: rate=20,seconds=60,zipf=1,models=3,classes=1,deadline-ms=0,"
                    "swing=0,period=86400,burst=1,burst-every=30,burst-last=2"},
    [O_MODELS] = {"models", "FILE",
                  "CSV: model,mb,compute_ms[,groups,samples_ms: observed ones, spaces between,"
                  "tenant,slice,outside_ms: of a request besides wait and service]; else examples"},
    [O_PACKAGES] = {"packages", "DIR",
                    "models from packages as profiled: NAME/VERSION/model.sypkg, FILE.sypkg"},
    [O_PROFILES] =
        {"profiles", "FILE",
         "CSV: model,device,compute_ms[,groups]: where a device's speed factor is not exact"},
    [O_TENANTS] = {"tenants", "FILE",
                   "CSV: tenant[,weight,hard_share,memory_mb]: shares and quotas on each device"},
    [O_FAULTS] = {"faults", "FILE",
                  "CSV: time_s,device,kind,duration_s[,factor]; kind: worker_dies, link_slows"},
    [O_POLICY] = {"policy", "P", "fifo unless said, of" SY_POLICY_WORDS},
    [O_AT_ONCE] = {"at-once", "N", "iterations at the same time; 0: the policy's number"},
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
    [O_BOUND] =
        {"bound", "X",
         "models of class 0 or with deadlines take turns with tasks that slow them down by\n"
         "        more than X (1.1); 0: never"},
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
    [O_PAUSE] = {"pause-ms", "N", "from a request until a preempted job has stopped (0.5)"},
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

/* Anything but a number is a file. */
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

static int run_shown(struct simulate_options *o, const struct simulate_input *l,
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

static int run(struct simulate_options *o, const struct simulate_input *l,
               struct sy_sim_report *report)
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
    struct simulate_input l = {0};
    struct sy_sim_report *report = sy_sim_report_new();
    int status = report ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a report");
    if (status == SY_OK)
        status = sy_simulate_load(o, &l);
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
    sy_simulate_unload(&l);
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

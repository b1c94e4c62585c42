/* simulate: what a policy would do with these jobs and requests, in virtual time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/commands/simulate_input.h"
#include "runtime/cli/train/run_progress.h"

#define USUAL_BOUND 1.1 /* a server's */

static int set_policy(void *command, const char *value)
{
    return sy_policy_parse(value, &((struct simulate_options *)command)->config.policy.kind);
}

static int set_router(void *command, const char *value)
{
    return sy_sim_router_parse(value, &((struct simulate_options *)command)->config.router);
}

/* Anything but a number is a file. */
static int set_devices(void *command, const char *value)
{
    struct simulate_options *o = command;
    int64_t n;
    char *end;
    strtod(value, &end);
    if (end == value || *end) {
        o->devices = value;
        return SY_OK;
    }
    SY_TRY(sy_cli_integer(value, 1, 100000, &n));
    o->devices = NULL;
    o->config.device.n_devices = (int)n;
    return SY_OK;
}

static int set_bound(void *command, const char *value)
{
    double *bound = &((struct simulate_options *)command)->config.bound;
    SY_TRY(sy_cli_real(value, bound));
    return *bound == 0 || (*bound >= 1 && *bound <= 100)
               ? SY_OK
               : sy_error_set(SY_EARG, "%s is neither 0 nor a number from 1 to 100", value);
}

static const struct sy_cli_field fields[] = {
    {{"jobs", "FILE",
      "CSV: name,submit_s,iterations,iteration_ms,persistent_mb,ephemeral_mb"
      "[,utilization,tenant,priority,weight,slice]"},
     SY_CLI_TEXT(struct simulate_options, jobs)},
    {{"requests", "FILE",
      "CSV: time_s,model[,class,deadline_ms,served_ms: as replay's answers have it]"},
     SY_CLI_TEXT(struct simulate_options, requests)},
    {{"generate", "OPTIONS",
      "random requests: rate=20,seconds=60,zipf=1,models=3,classes=1,deadline-ms=0,"
      "swing=0,period=86400,burst=1,burst-every=30,burst-last=2"},
     SY_CLI_TEXT(struct simulate_options, generate)},
    {{"models", "FILE",
      "CSV: model,mb,compute_ms[,groups,samples_ms: observed ones, spaces between,"
      "tenant,slice,outside_ms: of a request besides wait and service]; else examples"},
     SY_CLI_TEXT(struct simulate_options, models)},
    {{"packages", "DIR", "models from packages as profiled: NAME/VERSION/model.sypkg, FILE.sypkg"},
     SY_CLI_TEXT(struct simulate_options, packages)},
    {{"profiles", "FILE",
      "CSV: model,device,compute_ms[,groups]: where a device's speed factor is not exact"},
     SY_CLI_TEXT(struct simulate_options, profiles)},
    {{"tenants", "FILE",
      "CSV: tenant[,weight,hard_share,memory_mb]: shares and quotas on each device"},
     SY_CLI_TEXT(struct simulate_options, tenants)},
    {{"faults", "FILE",
      "CSV: time_s,device,kind,duration_s[,factor]; kind: worker_dies, link_slows"},
     SY_CLI_TEXT(struct simulate_options, faults)},
    {{"policy", "P", "fifo unless said, of" SY_POLICY_WORDS}, SY_CLI_SET(set_policy)},
    {{"at-once", "N", "iterations at the same time; 0: the policy's number"},
     SY_CLI_INT(struct simulate_options, config.policy.n_parallel, 0, 4096)},
    {{"max-wait", "SECONDS", "no ready job waits longer; 0: off"},
     SY_CLI_TIME(struct simulate_options, config.policy.max_wait_ns, 1e9)},
    {{"devices", "N|FILE",
      "1 to 100000 alike (1), or CSV, a line for each kind: device[,count,pool_mb,"
      "link_gbps,lost_ns_per_byte,unified,speed,contention]; else the options"},
     SY_CLI_SET(set_devices)},
    {{"slices", "LIST",
      "each device in parts that compute side by side: train=12,serve=25%,rest=w1"},
     SY_CLI_TEXT(struct simulate_options, slices)},
    {{"cores", "N", "of a device, that slices are cut from (as many as are here)"},
     SY_CLI_INT(struct simulate_options, n_cores, 1, SY_SIM_MAX_CORES)},
    {{"for-models", "NAME", "the slice of models that name none (the first)"},
     SY_CLI_TEXT(struct simulate_options, for_models)},
    {{"for-jobs", "NAME", "the slice of jobs that name none (the first)"},
     SY_CLI_TEXT(struct simulate_options, for_jobs)},
    {{"pairs", "FILE",
      "CSV: task,beside,slowdown: how much slower models and jobs are beside others, as\n"
      "        'switchyard slices --pairs' shows; pairs that are not there are predicted"},
     SY_CLI_TEXT(struct simulate_options, pairs)},
    {{"bound", "X",
      "models of class 0 or with deadlines take turns with tasks that slow them down by\n"
      "        more than X (1.1); 0: never"},
     SY_CLI_SET(set_bound)},
    {{"router", "R", "random (default), hash, least, residency"}, SY_CLI_SET(set_router)},
    {{"pool", "BYTES", "of each device (16G)"},
     SY_CLI_BYTES(struct simulate_options, config.device.pool_bytes)},
    {{"link-gbps", "N", "host to device (12.3)"},
     SY_CLI_REAL(struct simulate_options, config.device.link_gbps)},
    {{"unified", NULL, "no copies: the device reads host memory"},
     SY_CLI_SWITCH(struct simulate_options, config.device.unified)},
    {{"like-this-machine", "DEVICE", "measures this device's link: host, emulated, cuda:N"},
     SY_CLI_TEXT(struct simulate_options, like)},
    {{"whole-models", NULL, "evict whole models, not tails first"},
     SY_CLI_SWITCH(struct simulate_options, config.whole_models)},
    {{"take-all", NULL, "refuse nothing for its deadline"},
     SY_CLI_SWITCH(struct simulate_options, config.take_all)},
    {{"no-regroup", NULL, "lanes exactly as in Salus' paper"},
     SY_CLI_OFF(struct simulate_options, config.regroup)},
    {{"spill", NULL, "with --policy srtf: long jobs go to host memory when shorter ones wait"},
     SY_CLI_SWITCH(struct simulate_options, config.spill)},
    {{"contention", "X", "each further lane slows all by this part (0)"},
     SY_CLI_REAL(struct simulate_options, config.device.contention)},
    {{"noise", "X", "spread of durations, lognormal (0)"},
     SY_CLI_REAL(struct simulate_options, config.noise)},
    {{"train-share", "X", "0 to 1: of the time, guaranteed to jobs beside requests (0)"},
     SY_CLI_REAL(struct simulate_options, config.train_share)},
    {{"preempt-ms", "N", "urgent classes stop others within this; 0: never"},
     SY_CLI_TIME(struct simulate_options, config.preempt_ns, 1e6)},
    {{"pause-ms", "N", "from a request until a preempted job has stopped (0.5)"},
     SY_CLI_TIME(struct simulate_options, config.pause_ns, 1e6)},
    {{"queue", "N",
      "requests that may wait at a device (1024 as at a server; 128 above 100 devices)"},
     SY_CLI_INT(struct simulate_options, config.max_queue, 1, 65534)},
    {{"seconds", "N", "virtual time to look at; 0: until all is done"},
     SY_CLI_TIME(struct simulate_options, config.end_ns, 1e9)},
    {{"seed", "N", "equal seeds give equal results (1)"},
     SY_CLI_INT64(struct simulate_options, config.seed, 0, INT64_MAX)},
    {{"check", NULL, "walk the invariants after each event"},
     SY_CLI_SWITCH(struct simulate_options, config.check)},
    {{"answers", "FILE",
      "CSV of each request: time_s,model,class,device (-1: none has the model),"
      "outcome,latency_ms,served_ms"},
     SY_CLI_TEXT(struct simulate_options, answers)},
    {{"plot", "FILE", "SVG: devices over time, distribution"},
     SY_CLI_TEXT(struct simulate_options, plot)},
    {{"json", NULL, "print JSON"}, SY_CLI_SWITCH(struct simulate_options, json)}};

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
    static const struct sy_cli_fields command = {"simulate [options]\n\nWhat a policy would do "
                                                 "with these jobs and requests, in virtual time.",
                                                 fields, SY_ARRAY_LEN(fields), NULL};

    sy_sim_config_default(&o.config);
    o.config.max_queue = 0;
    o.config.bound = USUAL_BOUND;
    int result = sy_cli_read(&command, argc, argv, &o);
    if (result != SY_CLI_END)
        return result;
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

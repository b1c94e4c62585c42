/* Simulated events a second: a trace of many requests on 1 to 10 000 devices, and Salus' training jobs. The models fit into each
 * device's pool, so that the events are the same kind at every size. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/gbench.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim.h"
#include "runtime/sim/sim_trace.h"

#define N_REQUESTS 2000000

struct shape {
    int n_devices;
    enum sy_sim_router router;
};

/* Requests for 60 % of the devices' capacity, over a period chosen so that their number is the same at every size. */
static int make_requests(const struct shape *shape, struct sy_sim_input *in,
                         struct sy_sim_model **models, struct sy_sim_request **requests)
{
    struct sy_sim_generator g;
    SY_TRY(sy_sim_generator_parse("models=20,zipf=1", &g));
    g.rate = 20.0 * shape->n_devices;
    g.seconds = N_REQUESTS / g.rate;
    SY_TRY(sy_sim_example_models(in->n_models = g.n_models, models));
    SY_TRY(sy_sim_generate(&g, 1, requests, &in->n_requests));
    in->models = *models;
    in->requests = *requests;
    return SY_OK;
}

static int simulate(struct gb_state *state, const struct sy_sim_config *c,
                    const struct sy_sim_input *in, uint64_t *n_events)
{
    struct sy_sim_report *r = sy_sim_report_new();
    sy_ns begun = sy_clock_now();
    int status = r ? sy_sim_run(c, in, r) : sy_error_set(SY_ENOMEM_HOST, "no memory for a report");
    gb_set_iteration_seconds(state, (double)(sy_clock_now() - begun) / 1e9);
    if (status == SY_OK && r->n_done + r->n_refused != in->n_requests)
        status = sy_error_set(SY_EBUG, "requests are lost");
    *n_events = r ? r->n_events : 0;
    sy_sim_report_free(r);
    return status;
}

static void report(struct gb_state *state, double events, double seconds)
{
    gb_set_counter(state, "events_per_s", seconds > 0 ? events / seconds : 0);
    gb_set_counter(state, "ns_per_event", events > 0 ? seconds * 1e9 / events : 0);
}

static void run_loop(struct gb_state *state, const struct sy_sim_config *c,
                     const struct sy_sim_input *in)
{
    double events = 0, seconds = 0;
    while (gb_keep_running(state)) {
        uint64_t n = 0;
        sy_ns begun = sy_clock_now();
        if (simulate(state, c, in, &n) < 0)
            gb_fail(state, sy_error_text());
        events += (double)n;
        seconds += (double)(sy_clock_now() - begun) / 1e9;
    }
    report(state, events, seconds);
}

static void run_requests(struct gb_state *state, void *arg)
{
    const struct shape *shape = arg;
    struct sy_sim_config c;
    struct sy_sim_input in = {0};
    struct sy_sim_model *models = NULL;
    struct sy_sim_request *requests = NULL;
    sy_sim_config_default(&c);
    c.device.n_devices = shape->n_devices;
    c.router = shape->router;
    if (make_requests(shape, &in, &models, &requests) < 0)
        gb_fail(state, sy_error_text());
    else
        run_loop(state, &c, &in);
    free(models);
    free(requests);
}

static void run_jobs(struct gb_state *state, void *arg)
{
    struct sy_sim_config c;
    struct sy_sim_input in = {0};
    static struct sy_sim_tenants tenants;
    struct sy_sim_job *jobs = NULL;
    sy_sim_config_default(&c);
    c.policy.kind = *(const enum sy_policy_kind *)arg;
    if (sy_sim_read_jobs("examples/traces/salus-100.csv", &tenants, &jobs, &in.n_jobs) < 0) {
        gb_fail(state, sy_error_text());
        return;
    }
    in.jobs = jobs;
    run_loop(state, &c, &in);
    free(jobs);
}

int main(int argc, char **argv)
{
    static const int sizes[] = {1, 10, 100, 1000, 10000};
    static struct shape shapes[5 * SY_SIM_N_ROUTERS];
    static enum sy_policy_kind policies[] = {SY_POLICY_FIFO, SY_POLICY_PACK, SY_POLICY_FAIR,
                                             SY_POLICY_SRTF};
    struct gb_options options = {.manual_time = true, .milliseconds = true};
    char name[96];
    gb_initialize(&argc, argv);
    for (int router = 0; router < SY_SIM_N_ROUTERS; router++)
        for (int i = 0; i < 5; i++) {
            struct shape *shape = &shapes[router * 5 + i];
            *shape = (struct shape){sizes[i], (enum sy_sim_router)router};
            snprintf(name, sizeof name, "simulator/requests/%s/devices:%d",
                     sy_sim_router_name(shape->router), sizes[i]);
            gb_register(name, run_requests, shape, &options);
        }
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        snprintf(name, sizeof name, "simulator/salus-100/%s", sy_policy_name(policies[i]));
        gb_register(name, run_jobs, &policies[i], &options);
    }
    return gb_run() > 0 ? 0 : 1;
}

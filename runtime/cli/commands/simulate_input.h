/* Options of `switchyard simulate`, and its input: files, packages, generated requests. */
#ifndef SY_CLI_COMMANDS_SIMULATE_INPUT_H
#define SY_CLI_COMMANDS_SIMULATE_INPUT_H

#include "runtime/sim/sim.h"
#include "runtime/sim/sim_slices.h"
#include "runtime/sim/sim_trace.h"

struct simulate_options {
    const char *jobs, *requests, *generate, *models, *packages, *profiles, *faults, *tenants,
        *devices, *plot, *like, *answers, *slices, *for_models, *for_jobs, *pairs;
    int n_cores; /* 0: as this machine */
    bool json;
    struct sy_sim_config config;
};

struct simulate_input {
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

/* All that the options name; completes their configuration by it (devices, their queues). `l` is zeroed, and to be unloaded after a failure too. EARG,
 * ENOTFOUND, ENOMEM_HOST, or as the files' readers. */
int sy_simulate_load(struct simulate_options *o, struct simulate_input *l);
void sy_simulate_unload(struct simulate_input *l);

#endif

/* Input of a simulation: CSV files, and generated requests. */
#ifndef SY_SIM_SIM_TRACE_H
#define SY_SIM_SIM_TRACE_H

#include "runtime/sim/sim.h"

/* CSV files: sim_csv.h. Columns in brackets may be left out. mb are 10^6 bytes.
 *
 *   models    model,mb,compute_ms[,groups][,samples_ms: computations that were observed, spaces between][,tenant,slice]
 *   jobs      name,submit_s,iterations,iteration_ms,persistent_mb,ephemeral_mb[,utilization,tenant,priority,weight,slice]
 *   requests  time_s,model[,class,deadline_ms,served_ms]   deadline after arrival, how long it is served as observed (replay's
 *             answers); 0 or nothing: none, by the model
 *   faults    time_s,device,kind,duration_s[,factor]        kind: worker_dies, link_slows
 *   devices   device[,count,pool_mb,link_gbps,lost_ns_per_byte,unified,speed,contention]   a line for each kind
 *   profiles  model,device,compute_ms[,groups]              what a model takes on that kind of device
 *   tenants   tenant[,weight,hard_share,memory_mb]          hard_share 0: elastic; memory_mb 0: no limit
 *   pairs     task,beside,slowdown                          of models and jobs, by name (sim_slices.h)
 *
 * The arrays are the caller's to free. EIO, EARG with file and line, ENOMEM_HOST. */
struct sy_sim_tenants {
    int n;
    struct sy_sim_tenant all[SY_SIM_MAX_TENANTS];
};

/* After those that are there. */
int sy_sim_read_tenants(const char *path, struct sy_sim_tenants *tenants);
/* `otherwise` is what fields say that are left out. What a device cannot be is refused as the simulator refuses it, with its name. */
int sy_sim_read_devices(const char *path, const struct sy_sim_kind *otherwise,
                        struct sy_sim_kind **out, int *n);
/* The number of "default", the tenant of all that name none. EARG: there are SY_SIM_MAX_TENANTS others. */
int sy_sim_default_tenant(struct sy_sim_tenants *tenants, int *out);
/* Tenants that are not known become so; nothing there is "default". */
int sy_sim_read_models(const char *path, struct sy_sim_tenants *tenants, struct sy_sim_model **out,
                       int *n);
int sy_sim_read_jobs(const char *path, struct sy_sim_tenants *tenants, struct sy_sim_job **out,
                     int *n);
int sy_sim_read_requests(const char *path, const struct sy_sim_model *models, int n_models,
                         struct sy_sim_request **out, uint64_t *n);
int sy_sim_read_faults(const char *path, struct sy_sim_fault **out, int *n);
/* For the models of `in` on the kinds of `config`. */
int sy_sim_read_profiles(const char *path, const struct sy_sim_input *in,
                         const struct sy_sim_config *config, struct sy_sim_profile **out, int *n);

/* The example models (resnet152, inception_v3, bert_base) in turns, `n` of them, as PipeSwitch's paper has them. */
int sy_sim_example_models(int n, struct sy_sim_model **out);

/* Requests are a Poisson process whose rate follows the day and bursts:
 *   rate x (1 + swing x sin(2 pi t / period)) x (burst while a burst lasts, else 1), models by Zipf. */
struct sy_sim_generator {
    double rate, seconds, zipf;
    double swing, period_s;                    /* diurnal; swing 0: none */
    double burst, burst_every_s, burst_last_s; /* mean distance and length; burst 1: none */
    int n_models, n_classes;
    double deadline_ms; /* of class 0; each further class has ten times as long; 0: none */
    uint64_t n_at_most;
};

/* "rate=100,seconds=60,zipf=1,models=20,classes=2,deadline-ms=100,swing=0.5,period=60,burst=5,burst-every=30,burst-last=2";
 * all may be left out. EARG. */
int sy_sim_generator_parse(const char *text, struct sy_sim_generator *out);
int sy_sim_generate(const struct sy_sim_generator *g, uint64_t seed, struct sy_sim_request **out,
                    uint64_t *n);

#endif

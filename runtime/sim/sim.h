/* What a policy would do: a discrete-event simulator over the same lanes, policies and admission as the runtime's. Pure: virtual time,
 * no I/O, equal input and seed give equal output.
 *
 *   jobs ────> lanes, policy ─┐
 *                             ├─ device 0..n-1 ──> results
 *   requests ─> router ─> admission, residency ─┘
 *
 * The model of a device, all of it (README.md gives the reasons):
 * M1: A request with T = missing bytes ÷ link and C = its computation takes max(T + C/G, C + T/G), with G groups; with a
 *     resident head max(C, T + C/G). The next one's copies start when the link is free.
 * M2: While a request is served no iteration advances; pause_ns is added if a running one is preempted for it.
 * M3: Iterations that run at once each advance at 1 ÷ max(1, sum of their utilizations) ÷ (1 + contention x (k - 1)).
 * M4: Iterations and computations take their stated time times a lognormal factor of spread `noise`; computations of a model with
 *     samples take one of these instead, by chance.
 * M5: With `spill` (srtf), the admitted job with most left goes to host memory for a waiting one with less, at a boundary; its
 *     next iteration is longer by its persistent bytes ÷ link, twice.
 * M6: Where there are requests, jobs may have the pool but for the largest model; all of it where that is as large as the pool.
 * M7: On a device of speed s computations and iterations take 1/s of what is stated; where a profile of a model on that kind of
 *     device is given, what it says. A device serves the models of which its pool holds each group, and gets requests for those alone.
 * M8: A tenant's models and jobs on a device together are at most its memory quota there: models are charged first, in their order. One
 *     that is refused is on no device of that kind.
 * M9: A device that is cut into slices is as many devices of a part of its speed and pool, each with the models and jobs that belong to it; what computes in one
 *     is slowed down by what computes in the others, as runtime/sched/interference.h predicts it from pairs; pairs beyond the bound take turns.
 * M10: A request's latency also has its model's outside_ns, which no other request waits for. */
#ifndef SY_SIM_SIM_H
#define SY_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/sched/policy.h"
#include "runtime/sched/slice_plan.h"
#include "runtime/sim/sim_report.h"

#define SY_SIM_MAX_SAMPLES 64
#define SY_SIM_MAX_KINDS   64

struct sy_sim_model {
    char name[SY_SIM_NAME_BYTES];
    uint64_t bytes;
    sy_ns compute_ns;
    sy_ns outside_ns;               /* time of a request outside of wait and service (M10) */
    int n_groups;                   /* at least 1 */
    int tenant;                     /* whose memory it takes (M8) */
    char slice_name[SY_SLICE_NAME]; /* "": the usual one */
    int slice;                      /* M9 */
    int n_samples;
    float samples
        [SY_SIM_MAX_SAMPLES]; /* computations that were observed / compute_ns, each above 0 (M4) */
};

struct sy_sim_request {
    sy_ns at_ns;
    int32_t model;
    int32_t class_;    /* 0..SY_SIM_MAX_CLASSES-1 */
    sy_ns deadline_ns; /* after its arrival; 0: none */
    /* observed service time, swap included, on any device; 0: by M1 and M4 */
    sy_ns served_ns;
};

struct sy_sim_job {
    char name[SY_SIM_NAME_BYTES];
    sy_ns submit_ns;
    uint64_t iterations; /* at least 1 */
    sy_ns iteration_ns;  /* alone on the device */
    uint64_t persistent_bytes, ephemeral_bytes;
    double utilization; /* of the device alone: 0..1 (M3) */
    int tenant, priority;
    unsigned weight;                /* weight of the tenant; 0: unchanged */
    char slice_name[SY_SLICE_NAME]; /* "": the usual one */
    int slice;                      /* M9 */
};

/* Devices that are alike. */
struct sy_sim_kind {
    char name[SY_SIM_NAME_BYTES];
    int n_devices;
    uint64_t pool_bytes;
    double link_gbps;
    double lost_ns_per_byte; /* of computing, for each byte copied meanwhile (M1) */
    bool unified;            /* no copies: every model counts as resident */
    double speed;            /* M7; 1: as stated */
    double contention;       /* M3 */
};

/* Measured times of a model on one kind of device, instead of those that M7 derives. */
struct sy_sim_profile {
    int model, kind;
    sy_ns compute_ns; /* 0: by M7 */
    int n_groups;     /* 0: as the model has */
};

struct sy_sim_tenant {
    char name[SY_SIM_NAME_BYTES];
    unsigned weight;        /* 0: as if never set */
    unsigned hard_permille; /* upper bound of a device's time, also when it is idle; 0: elastic */
    uint64_t memory_bytes;  /* on each device (M8); 0: no limit */
};

enum sy_sim_fault_kind {
    SY_SIM_WORKER_DIES, /* running work is lost; requests run again once; nothing runs for duration_ns */
    SY_SIM_LINK_SLOWS, /* the link has `factor` of its rate for duration_ns, or until the next of these */
};

struct sy_sim_fault {
    sy_ns at_ns, duration_ns;
    int device;
    enum sy_sim_fault_kind kind;
    double factor; /* above 0 */
};

enum sy_sim_router {
    SY_SIM_RANDOM,
    SY_SIM_HASH, /* consistent hashing of the model, at most 1.25 times the mean load */
    SY_SIM_LEAST, /* least predicted finish, of the least loaded device and up to four that have the model */
    SY_SIM_RESIDENCY, /* a device that has the model, unless it has more than twice the mean load; else as LEAST */
    SY_SIM_N_ROUTERS
};
const char *sy_sim_router_name(enum sy_sim_router router);
int sy_sim_router_parse(const char *text, enum sy_sim_router *out); /* EARG */

enum sy_sim_outcome { SY_SIM_DONE, SY_SIM_REFUSED, SY_SIM_FAILED };
const char *sy_sim_outcome_name(enum sy_sim_outcome outcome);

struct sy_sim_config {
    struct sy_policy_config policy; /* max_jobs is set by the simulator */
    struct sy_sim_kind device;      /* of all devices, without `kinds` */
    const struct sy_sim_kind
        *kinds;   /* (optional) devices of several kinds, numbered in this order from 0 */
    int n_kinds;  /* 0: all are as `device`; at most SY_SIM_MAX_KINDS */
    int n_slices; /* 0, 1: none. Else kinds k x n_slices and those that follow are the slices of devices that are cut alike, as sim_slices.h makes them (M9) */
    /* a model of class 0 or with deadlines takes turns with tasks that would slow it down by more (as `switchyard slices --bound`); 0: with none */
    double bound;
    enum sy_sim_router router;
    bool whole_models; /* evict whole models, least recently used, not tails first */
    bool take_all;     /* refuse nothing for its deadline */
    bool regroup;      /* lanes: allocator/lanes.h */
    bool spill;        /* M5 */
    bool check;        /* the invariants of the device after each event: EBUG */
    double noise;      /* M4; 0: none */
    sy_ns pause_ns;    /* M2 */
    sy_ns preempt_ns;  /* admission: 0 never */
    /* share of the time guaranteed to jobs beside requests: 0..1; requests keep a thousandth */
    double train_share;
    int max_queue; /* of requests a device */
    uint64_t seed;
    /* (optional) Told of each request when it ends; latency_ns counts from its arrival, served_ns from when it last began to be served,
     * 0 if it never did; device -1: none has the model (M8). */
    void (*answered)(void *ctx, const struct sy_sim_request *request, int device,
                     enum sy_sim_outcome outcome, sy_ns latency_ns, sy_ns served_ns);
    void *answered_ctx;
    /* (optional) Called each 65536 events, with the report so far. */
    void (*progress)(void *ctx, const struct sy_sim_report *so_far);
    void *progress_ctx;
    sy_ns end_ns; /* the simulation stops here; 0: when all requests and jobs have ended */
};

/* Defaults: one device, 16 GB, 12.3 GB/s, fifo, random. */
void sy_sim_config_default(struct sy_sim_config *config);

/* How much slower `task`, a model or a job by name, is beside `beside` (M9). */
struct sy_sim_pair {
    char task[SY_SIM_NAME_BYTES], beside[SY_SIM_NAME_BYTES];
    double slowdown; /* 0.1 to 100 */
};

struct sy_sim_input {
    const struct sy_sim_model *models;
    int n_models;
    const struct sy_sim_request *requests; /* by time */
    uint64_t n_requests;
    const struct sy_sim_job *jobs; /* by submission */
    int n_jobs;
    const struct sy_sim_fault *faults; /* by time */
    int n_faults;
    const struct sy_sim_profile *profiles;
    int n_profiles;
    /* by number; those that are not here are elastic, without a limit */
    const struct sy_sim_tenant *tenants;
    int n_tenants;
    const struct sy_sim_pair *pairs;
    int n_pairs;
};

/* EARG names the value that is out of range. */
int sy_sim_check_kind(const struct sy_sim_kind *kind);
/* Number of devices over all kinds. */
int sy_sim_n_devices(const struct sy_sim_config *c);

/* Runs it to its end. `report` is the caller's, empty (sy_sim_report_new). EARG with what is wrong in the input, ENOMEM_HOST, EBUG
 * when `check` found an invariant broken. */
int sy_sim_run(const struct sy_sim_config *config, const struct sy_sim_input *input,
               struct sy_sim_report *report);

#endif

/* Results of a simulation: quantiles, counts, device time over virtual time. */
#ifndef SY_SIM_SIM_REPORT_H
#define SY_SIM_SIM_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/base/clock.h"

#define SY_SIM_MAX_CLASSES 10 /* as the server has: 0 to 9 */
#define SY_SIM_BINS        240 /* bins of the time line; their width doubles when they do not reach */
#define SY_SIM_STEPS       128 /* bins per octave of the histogram: quantiles are within 0.8 % */
#define SY_SIM_OCTAVES     58  /* all that 64 bits hold */

#define SY_SIM_NAME_BYTES  128 /* as long as a server's names of models */
#define SY_SIM_MAX_TENANTS 256 /* as policies have */

enum sy_sim_use { SY_SIM_USE_REQUESTS, SY_SIM_USE_JOBS, SY_SIM_N_USES };

struct sy_sim_histogram {
    uint64_t n;
    unsigned __int128 sum_ns; /* whole, so that the order does not matter */
    uint32_t counts[SY_SIM_OCTAVES * SY_SIM_STEPS];
};

/* Devices that are alike. */
struct sy_sim_kind_use {
    char name[SY_SIM_NAME_BYTES];
    int n_devices;
    sy_ns used_ns[SY_SIM_N_USES]; /* summed over them */
};

struct sy_sim_report {
    struct sy_sim_histogram latency[SY_SIM_MAX_CLASSES];
    uint64_t n_requests, n_done, n_refused, n_failed,
        n_busy, /* of those that were refused: the queue, or a server, was full; the others by the prediction */
        n_late; /* late: taken, and past its deadline */
    uint64_t n_swaps, n_preempted, n_faults, moved_bytes, spilled_bytes, n_events;
    uint64_t n_jobs, n_jobs_refused;
    uint64_t n_models_refused, n_not_loaded; /* by quotas; requests for them, which were refused */
    char refusal[256],
        model_refusal[256]; /* of the first job and the first model that was rejected */
    double *jct_s;          /* of finished jobs, in the order of finishing */
    int n_jct;
    /* device time ÷ time in the system, by job; of those that finished or are there at the end */
    double *job_rate;
    int n_rates;
    double queue_s;                            /* sum over jobs, until their first iteration */
    sy_ns makespan_ns, used_ns[SY_SIM_N_USES]; /* used: summed over devices */
    sy_ns tenant_ns[SY_SIM_MAX_TENANTS];
    char tenant_names[SY_SIM_MAX_TENANTS][SY_SIM_NAME_BYTES]; /* "": its number */
    int n_devices;
    struct sy_sim_kind_use *kinds;
    int n_kinds;
    uint64_t n_lane_moves, copied_bytes, n_regrouped;
    sy_ns bin_ns; /* width */
    double bins[SY_SIM_BINS][SY_SIM_N_USES];
};

/* Zeroed, of no devices. NULL: no memory. */
struct sy_sim_report *sy_sim_report_new(void);
void sy_sim_report_free(struct sy_sim_report *r); /* NULL is fine */

/* Adds a kind with its devices; before anything is noted of them. ENOMEM_HOST. */
int sy_sim_report_add_kind(struct sy_sim_report *r, const char *name, int n_devices);
/* Records a rejected job, or a model that no device has; the first one is kept. */
void sy_sim_note_refused_job(struct sy_sim_report *r, const char *why);
void sy_sim_note_refused_model(struct sy_sim_report *r, const char *why);
void sy_sim_note_latency(struct sy_sim_report *r, int class_, sy_ns ns);
/* A device of the kind was used from `from` to `to`. */
void sy_sim_note_use(struct sy_sim_report *r, int kind, enum sy_sim_use use, sy_ns from, sy_ns to);

/* In milliseconds; 0 with nothing in it. */
double sy_sim_quantile_ms(const struct sy_sim_histogram *h, double q);
double sy_sim_mean_ms(const struct sy_sim_histogram *h); /* exact */
double sy_sim_jct_mean_s(const struct sy_sim_report *r);
double sy_sim_jct_quantile_s(const struct sy_sim_report *r, double q);
/* Jain's index of how evenly jobs got device time while they were there; 1 with fewer than two. */
double sy_sim_jain(const struct sy_sim_report *r);

/* `wall_s`: how long the run took, for events_per_s. EIO. */
int sy_sim_print_json(const struct sy_sim_report *r, double wall_s, FILE *to);
int sy_sim_print_text(const struct sy_sim_report *r, double wall_s, FILE *to);
/* Device occupation over time, and the distribution of latency (of completion times with jobs alone). EIO. */
int sy_sim_plot_svg(const struct sy_sim_report *r, const char *title, FILE *to);

#endif

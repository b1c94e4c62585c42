/* Devices that are cut into slices, for the simulator (M9): the same plan as the runtime's (runtime/sched/slice_plan.h), then a kind of device for each slice. */
#ifndef SY_SIM_SIM_SLICES_H
#define SY_SIM_SIM_SLICES_H

#include "runtime/sim/sim.h"

#define SY_SIM_MAX_CORES 1024

struct sy_sim_slice {
    char name[SY_SLICE_NAME];
    int n_cores; /* or whatever the device has of what is cut */
};

struct sy_sim_slices {
    int n, n_cores; /* n_cores: of a device */
    struct sy_sim_slice all[SY_SLICE_PLAN_MAX];
};

/* "train=12,serve=25%,rest=w1,odd=@13,15" of n_cores cores, 0 and so on: as `switchyard slices` has them, with commas between. EARG. */
int sy_sim_slices_parse(const char *text, int n_cores, struct sy_sim_slices *out);
/* Each kind becomes slices->n kinds, one after the other: KIND/SLICE, or SLICE of a kind without a name. *out is the caller's to free. EARG: too many, or a name
 * that is too long; ENOMEM_HOST. */
int sy_sim_slices_cut(const struct sy_sim_slices *slices, const struct sy_sim_kind *kinds, int n,
                      struct sy_sim_kind **out, int *n_out);
/* Sets the slice of each model or job: the one that it names, else `usual`; if that is "", the first. EARG: there is no slice of that name. */
int sy_sim_slices_place_models(const struct sy_sim_slices *slices, const char *usual,
                               struct sy_sim_model *models, int n);
int sy_sim_slices_place_jobs(const struct sy_sim_slices *slices, const char *usual,
                             struct sy_sim_job *jobs, int n);
/* CSV: task,beside,slowdown. *out is the caller's to free. EIO, EARG with file and line, ENOMEM_HOST. */
int sy_sim_read_pairs(const char *path, struct sy_sim_pair **out, int *n);

#endif

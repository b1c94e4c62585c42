/* The swap bench's test rig: one model, one device, one training job to be preempted, and the modes of PipeSwitch's
 * figures 5, 7, 8 and 9 (OSDI '20), all over the code that workers run (workers/infer_run, workers/transfer). */
#ifndef SY_BENCH_SWAP_RIG_H
#define SY_BENCH_SWAP_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"

/* X(NAME, "name", what it does) */
#define SWAP_MODE_TABLE(X)                                                                         \
    X(READY, "ready", "wholly resident, nothing to preempt: the baseline")                         \
    X(PIPELINED, "pipelined", "preempt, copy the planned groups, compute behind them")             \
    X(PREFIX, "prefix", "as pipelined, the free prefix (loader/plan/free_prefix.h) already there") \
    X(RESIDENT, "resident", "preempt, everything is in the pool already")                          \
    X(PER_LAYER, "per_layer", "as pipelined, one copy a layer")                                    \
    X(WHOLE, "whole", "one copy of everything, then compute")                                      \
    X(SEQUENTIAL, "sequential", "copy a layer, compute it, copy the next")                         \
    X(NO_POOL, "no_pool", "as pipelined, device memory taken and given back around each swap")     \
    X(ONE_PROCESS, "one_process", "no standby: the model is prepared after the preemption")        \
    X(RESTART, "restart", "stop and start: a fresh process")                                       \
    X(NO_PIN, "no_pin", "cuda: as pipelined, from host memory that is not pinned")                 \
    X(NO_IPC, "no_ipc", "cuda: as pipelined, the pool's handle opened and mapped in each swap")    \
    X(MANAGED, "managed", "cuda: unified memory, which the driver moves page by page")             \
    X(IN_IMAGE, "in_image", "host only: preempt, everything is in the image already")

enum swap_mode {
#define X(name, text, what) SWAP_##name,
    SWAP_MODE_TABLE(X)
#undef X
        SWAP_N_MODES
};

struct swap_result {
    sy_ns total_ns;       /* from the request to the outputs */
    sy_ns first_layer_ns; /* from the request to the start of the first layer */
    sy_ns preempt_wait_ns;
    uint64_t bytes; /* bytes moved */
    int n_groups;
    bool same_bits; /* the outputs equal the first ready run's */
};

struct swap_rig;

/* Opens the package, and the device with a link such that transfer / compute = ratio (0: as `device` says); starts the training victim. Prints nothing. */
int swap_rig_create(const char *program, const char *package, const char *device, double ratio,
                    int64_t batch, const char *job_model, struct swap_rig **out);
void swap_rig_destroy(struct swap_rig *rig);
int swap_rig_run(struct swap_rig *rig, enum swap_mode mode, struct swap_result *out);
double swap_rig_bound_ms(const struct swap_rig *rig);
double swap_rig_ready_ms(const struct swap_rig *rig);  /* median during setup */
double swap_rig_rate_gbps(const struct swap_rig *rig); /* link, or storage on a unified device */
/* Time to transfer all weights at that rate / the given time of a ready run: the ratio that was achieved. */
double swap_rig_ratio(const struct swap_rig *rig, double ready_ms);
const char *swap_rig_device_name(const struct swap_rig *rig);
bool swap_rig_has_mode(const struct swap_rig *rig,
                       enum swap_mode mode); /* no_pin, no_ipc, managed */

/* Unified device: reads the whole package from the disk (not from the page cache) without computing. */
int swap_rig_read(struct swap_rig *rig, sy_ns *took);

/* For the fresh process of stop-and-start: opens everything but measures and trains nothing; one run after all transfers. */
int swap_rig_create_cold(const char *program, const char *package, const char *device,
                         int64_t batch, struct swap_rig **out);
int swap_rig_run_cold(struct swap_rig *rig, sy_ns *first_layer_ns, sy_ns *end_ns);

#endif

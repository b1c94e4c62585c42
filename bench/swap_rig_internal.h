/* Internal declarations of the swap rig. */
#ifndef SY_BENCH_SWAP_RIG_INTERNAL_H
#define SY_BENCH_SWAP_RIG_INTERNAL_H

#include <sched.h>

#include "allocator/shared_memory.h"
#include "bench/swap_child.h"
#include "bench/swap_rig.h"
#include "loader/package/package.h"
#include "loader/plan/plan.h"
#include "workers/engine/engines.h"
#include "workers/infer/infer_run.h"

struct swap_rig {
    const char *program_path;
    char device_text[128];
    int64_t batch;
    cpu_set_t allowed; /* the cores that the calling thread may use while nothing is pinned */
    int cores[64], n_cores, link_core;
    const struct sy_engine_ops *engine;
    bool attached;
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_stream *compute;
    struct sy_event *run_done;            /* for engines that only enqueue */
    struct sy_shared_memory slab;         /* for those engines: inputs and outputs, pinned */
    const struct sy_cuda_managed *system; /* cuda: unified memory, allocated on first use */
    void *managed;
    struct sy_transfer *transfer;
    struct sy_package *package;
    struct sy_program *program;
    struct sy_shared_memory image; /* discrete device */
    void *inputs[16], *outputs[16];
    size_t output_bytes[16];
    void *reference[16];
    uint64_t workspace_offset;
    struct sy_plan_layer *layers;
    uint64_t *read_bytes; /* by layer: bytes read from tables that may stay in the image; else 0 */
    struct sy_link_cost cost;
    double ready_ms, bound_ms;
    _Atomic uint32_t arrivals[SY_RUN_MAX_GROUPS];
    struct swap_victim victim;
};

struct swap_cut {
    int n_groups;
    int n_there; /* number of head groups in the pool */
    int first[SY_RUN_MAX_GROUPS];
    bool direct[SY_RUN_MAX_GROUPS];
};

int swap_rig_make_cut(const struct swap_rig *rig, enum swap_mode mode, struct swap_cut *cut);
/* Drops the package from the page cache. */
void swap_rig_forget_file(const struct swap_rig *rig);
/* Everything from the arrival of the request to its outputs. */
int swap_rig_swap_in(struct swap_rig *rig, enum swap_mode mode, const struct swap_cut *cut,
                     struct sy_pool_memory *pool, struct sy_transfer *transfer,
                     struct swap_result *out);
int swap_rig_create_program(struct swap_rig *rig);
/* With all groups in the pool, as cut: spans[2i], [2i + 1] are group i's begin and end. */
int swap_rig_time_layers(struct swap_rig *rig, const struct swap_cut *cut, sy_ns *spans);
/* Allocates inputs and outputs; if the engine computes on a device, in memory registered with it. */
int swap_rig_make_tensors(struct swap_rig *rig);
/* Modes in which nothing moves. */
static inline bool swap_rig_has_all(enum swap_mode mode)
{
    return mode == SWAP_READY || mode == SWAP_RESIDENT || mode == SWAP_IN_IMAGE;
}
bool swap_rig_is_special(enum swap_mode mode);
int swap_rig_run_special(struct swap_rig *rig, enum swap_mode mode, const struct swap_cut *cut,
                         struct swap_result *out);

#endif

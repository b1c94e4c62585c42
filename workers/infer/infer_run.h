/* One inference run: layer after layer, each group behind its arrival. Used by the worker and by the swap bench. */
#ifndef SY_WORKERS_INFER_INFER_RUN_H
#define SY_WORKERS_INFER_INFER_RUN_H

#include "loader/graph/engine.h"
#include "loader/package/package.h"
#include "runtime/device/device.h"
#include "workers/infer/transfer.h"

struct sy_infer_run {
    const struct sy_engine_ops *engine;
    const struct sy_package *package;
    const struct sy_graph *graph; /* the package's, with the sizes that the program was made for */
    struct sy_program *program;
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_stream *compute;
    /* for engines that only enqueue: waited for between beats at the end; NULL: without beats */
    struct sy_event *done;
    struct sy_transfer *transfer;
    /* first layer of each group; n_groups of them, ascending, the first is 0 */
    const int *group_layers;
    int n_groups;
    int first_layer;           /* the results of earlier layers are in workspace and outputs */
    int64_t batch;             /* batch size that the program was made for */
    uint64_t workspace_offset; /* in the pool */
    const void *const *inputs; /* in the graph's order */
    void *const *outputs;
    bool (*is_interrupted)(
        void *ctx);          /* asked before each layer (engines that only enqueue: each group) */
    void (*beat)(void *ctx); /* between groups and while waiting */
    void (*group_done)(void *ctx, int group); /* after each group */
    void *ctx;
};

struct sy_infer_times {
    sy_ns first_layer_ns; /* when the first group's layers began */
    sy_ns end_ns;
    sy_ns wait_ns; /* the compute thread stood waiting for groups */
    sy_ns lost_ns; /* time in which the computing thread had no core; set by the caller */
    int next_layer; /* interrupted: where another run can go on, in any process; 0: from the beginning only */
    uint64_t read_bytes; /* of tables that stay in the host image; they crossed the link too */
    /* 2 a group: start, end; room for 2 * n_groups, the caller's; may be NULL */
    sy_ns *compute_spans;
};

/* Runs all layers; the transfer has been begun and all groups added. Returns when the outputs are written, or, after a failure, when
 * nothing that was enqueued runs any more. */
int sy_infer_run(const struct sy_infer_run *run, struct sy_infer_times *times);

/* ECANCELED, as what is_interrupted stops returns it; also for what stops within a layer, which then is run again from its start. */
int sy_infer_interrupted(void);

/* Offset in the package's weights where group g's bytes begin, and how many there are. */
void sy_infer_group_range(const struct sy_package *package, const int *group_layers, int n_groups,
                          int group, uint64_t *offset_bytes, uint64_t *bytes);

#endif

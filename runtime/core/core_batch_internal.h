/* Shared by gathering (core_batch.c) and running (core_batch_run.c) a batch. */
#ifndef SY_RUNTIME_CORE_CORE_BATCH_INTERNAL_H
#define SY_RUNTIME_CORE_CORE_BATCH_INTERNAL_H

#include "runtime/core/core_batch.h"
#include "runtime/core/core_internal.h"

struct member {
    struct member *next;
    uint64_t id;
    int64_t rows;
    uint64_t *inputs, *outputs; /* the caller's addresses; their regions are held */
    sy_core_infer_done done;
    void *ctx;
    sy_ns arrived_ns;
    bool canceled;
};

struct batch {
    struct batch *next;
    struct sy_core_batches *of;
    enum sy_batch_way way;
    int model, class_;
    char tenant[SY_CORE_TENANT_NAME];
    int64_t rows;      /* APART: of each member */
    sy_ns expected_ns; /* APART: of one member */
    struct sy_core_sizes *sizes;
    struct member *members; /* newest first */
    int n_members;
    sy_ns due_ns;
    sy_ns deadline_ns; /* HELD: its single member's deadline; 0: none */
    bool sent;
    uint64_t request; /* id of the run, once sent */
    uint64_t *inputs,
        *outputs; /* once sent. ROWS: the batch's own slab offsets; APART: those of all members in turn */
};

struct sy_core_batches {
    struct sy_core *core;
    struct event *timer;
    struct batch *batches; /* gathered or sent */
    sy_ns max_delay_ns;
    int64_t max_batch;
    int n_gathered;
    uint64_t n_sent;
};

static inline const struct sy_core_model *sy_batch_model(const struct sy_core_batches *b, int model)
{
    return &b->core->models[model];
}

static inline const struct sy_graph *sy_batch_graph(const struct sy_core_batches *b, int model)
{
    return sy_batch_model(b, model)->package->graph;
}

/* Makes a member, which holds its regions until it is freed. NULL: no memory. */
struct member *sy_batch_make_member(struct sy_core *core, int model, int64_t rows,
                                    const uint64_t *inputs, const uint64_t *outputs);
void sy_batch_free_member(struct sy_core *core, int model, struct member *m);
/* True unless all members are canceled. */
bool sy_batch_is_wanted(const struct batch *batch);
/* Answers all members with this status and frees the batch. */
void sy_batch_answer_unsent(struct batch *batch, int status, const char *why);
/* Sends the batch as one run; every member is answered now or when the run has ended. */
void sy_batch_send(struct batch *batch);
#endif

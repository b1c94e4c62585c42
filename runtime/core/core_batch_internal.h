/* Shared by gathering (core_batch.c) and running (core_batch_run.c) a batch. */
#ifndef SY_RUNTIME_CORE_CORE_BATCH_INTERNAL_H
#define SY_RUNTIME_CORE_CORE_BATCH_INTERNAL_H

#include "runtime/core/core_batch.h"
#include "runtime/core/core_internal.h"

struct member {
    struct member *next;
    uint64_t id;
    int64_t rows;
    uint64_t *inputs, *outputs; /* the caller's places; their regions are held */
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
    int64_t rows;      /* APART: of each */
    sy_ns expected_ns; /* APART: of one */
    struct sy_core_sizes *sizes;
    struct member *members; /* the latest first */
    int n_members;
    sy_ns due_ns;
    sy_ns deadline_ns; /* HELD: of its one member; 0: none */
    bool sent;
    uint64_t request; /* once it is sent */
    uint64_t *inputs,
        *outputs; /* once it is sent. ROWS: slab offsets of its own; APART: those of all members, one after the other */
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

/* A request that is gathered: its regions are held until it is freed. NULL: no memory. */
struct member *sy_batch_make_member(struct sy_core *core, int model, int64_t rows,
                                    const uint64_t *inputs, const uint64_t *outputs);
void sy_batch_free_member(struct sy_core *core, int model, struct member *m);
/* Not all of its members are canceled. */
bool sy_batch_is_wanted(const struct batch *batch);
/* All members get this answer; the batch is freed. */
void sy_batch_answer_unsent(struct batch *batch, int status, const char *why);
/* As one run; every member gets its answer, now or when that has ended. */
void sy_batch_send(struct batch *batch);
#endif

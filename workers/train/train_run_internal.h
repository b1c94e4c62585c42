/* Shared by train_run.c (stages) and train_run_state.c (state in memory and on disk). Private to those two. */
#ifndef SY_WORKERS_TRAIN_TRAIN_RUN_INTERNAL_H
#define SY_WORKERS_TRAIN_TRAIN_RUN_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "workers/data/prefetch.h"
#include "workers/data/train_data.h"
#include "workers/job/job.h"
#include "workers/train/snapshot.h"
#include "workers/train/train_run.h"

/* How long one advance may stand in a wait for the snapshot thread, and for a batch: the caller looks at the epoch in between. A job whose batches
 * come late waits for them most of its time, so a preemption would wait too. */
#define SY_RUN_WAIT_MS       1
#define SY_RUN_BATCH_WAIT_US 200

/* T3: first page of the persistent part. Written by the worker that trains; read after its death by the next. */
struct sy_run_header {
    _Atomic uint64_t magic; /* release, after the rest was written first */
    uint32_t version;
    _Atomic uint32_t phase; /* enum sy_train_phase: release on entry */
    uint64_t job_hash;
    uint64_t state_bytes; /* of the trainer's persistent part */
    _Atomic uint64_t step;
    _Atomic uint64_t loss_bits;
};

_Static_assert(sizeof(struct sy_run_header) <= 64, "one write of a device's");

/* The next advance's work. */
enum sy_run_stage {
    STAGE_LOAD,          /* put batch `step` in place */
    STAGE_GRADIENT,      /* run gradient step `at` */
    STAGE_UPDATE,        /* run update step `at` */
    STAGE_ITERATION_END, /* step + 1; take a snapshot if it is time */
    STAGE_LAST_SNAPSHOT, /* take the final one, when the thread is free */
    STAGE_EVALUATE_LOAD, /* put test batch `test_row` in place */
    STAGE_EVALUATE,      /* run forward step `at` */
    STAGE_DRAIN,         /* the final snapshot is being written */
    STAGE_GIVE_UP,       /* the last snapshot is being written; then the job ends with `why` */
    STAGE_FINISHED
};

struct sy_train_run {
    struct sy_job job;
    const struct sy_trainer_ops *ops;
    struct sy_train_callbacks callbacks;
    struct sy_graph *graph;
    struct sy_trainer *trainer;
    struct sy_data_want want;
    struct sy_train_data data;
    struct sy_prefetch *prefetch;
    bool holds_batches; /* they are made in the trainer's places */
    uint64_t total_steps;
    struct sy_safetensor *tensors;
    struct sy_snapshot_layout layout;
    struct sy_snapshot_writer *writer; /* NULL: no snapshots */
    struct sy_run_header *header;      /* since start */
    char *persistent;
    void *ephemeral;
    struct sy_run_header own; /* where memory is a device's: what is written there, or was read */
    struct sy_control_page *page;
    enum sy_run_stage stage;
    int at;
    uint64_t n_phases; /* of this iteration, done; a new worker begins the iteration again */
    double loss_sum;   /* of those */
    bool is_stopping, wants_evaluation;
    struct sy_exchange *exchange; /* NULL: one rank */
    bool all_stop;   /* some rank was stopping at the end of this iteration's gradient phase */
    bool is_between; /* this evaluation is one between two iterations */
    uint64_t step;
    double loss, accuracy;
    uint64_t test_row, n_correct;
    uint64_t last_snapshot_step, good_step; /* handed to the thread; known to be durable */
    sy_ns last_snapshot_ns;
    bool has_good;
    char failure[256]; /* why the last snapshot could not be written */
    int why_status;    /* the job gives up: with this status and text */
    char why[256];
    char good_path[SY_SNAPSHOT_PATH_BYTES];
};

/* ---- train_run_ranks.c: several ranks; of one, all of it does nothing ------------------------------ */

/* This rank's part of the job as it was read. EARG: its batch cannot be divided. */
int sy_run_take_part(struct sy_train_run *r);
/* Ranks of this job. */
uint64_t sy_run_n_ranks(const struct sy_train_run *r);
/* Which of the small batches this rank computes, where one rank would compute number `batch`. */
uint64_t sy_run_part_of_batch(const struct sy_train_run *r, uint64_t batch);
/* Rank 0's state and step to all; the run has been started, and has ranks. */
int sy_run_share_state(struct sy_train_run *r);
/* A gradient step, with what ranks exchange around it. is_last: of the iteration's phases. */
int sy_run_gradient_step(struct sy_train_run *r, bool is_last);
/* Once an iteration: the loss's mean over ranks, and whether all stop after this iteration. Of ranks that are apart, of some iterations before; there were
 * none: this rank's loss, and nobody stops. */
int sy_run_agree(struct sy_train_run *r, double *loss);

/* ---- train_run_state.c ----------------------------------------------------------------------------- */

uint64_t sy_run_bits_of(double x);
/* Header and page say so, on the device too. */
int sy_run_enter_phase(struct sy_train_run *r, enum sy_train_phase phase);
/* Step and loss, likewise. */
int sy_run_publish_step(struct sy_train_run *r);
/* STAGE_LOAD, or STAGE_LAST_SNAPSHOT when the run is over. */
enum sy_run_stage sy_run_next_iteration(const struct sy_train_run *r);
/* Takes note of a snapshot that has been written, or could not be; waits at most wait_ms for one in flight. */
void sy_run_collect(struct sy_train_run *r, int wait_ms);
/* *is_taken false while the thread is still busy with the last one. */
int sy_run_take_snapshot(struct sy_train_run *r, bool *is_taken);
bool sy_run_snapshot_is_due(const struct sy_train_run *r);

#endif

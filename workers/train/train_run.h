/* A training job as it runs in a worker: batches, phases, pauses, snapshots, resume.
 *
 *   JOB_PREPARE -> create      JOB_START -> start      advance, advance, advance ...
 *
 *   iteration:  [load batch][gradient step 0..n)[phase = UPDATE][update step 0..m)[step += 1][phase = GRADIENT][snapshot?]
 *
 * T1: advance does at most one step (one layer), so the caller can look at the preempt epoch in between.
 * T2: batch `i` is a pure function of (seed, i): nothing about data order is state.
 * T3: the first page of the persistent part is the run's header (job hash, step, phase, loss); it is what a
 *     new worker reads after a crash: phase GRADIENT means that the state is that of `step` finished iterations.
 * T4: a snapshot is taken at an iteration's end: the state is copied, a thread writes it (safetensors, fsync, rename,
 *     folder fsync) while training goes on; at most one is in flight, and the last two are kept. */
#ifndef SY_WORKERS_TRAIN_TRAIN_RUN_H
#define SY_WORKERS_TRAIN_TRAIN_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/wire/control_page.h"
#include "workers/engine/trainer.h"

struct sy_ranks;
struct sy_train_run;

struct sy_train_callbacks {
    void (*snapshot_done)(
        void *ctx, int status, uint64_t step,
        const char *path); /* called by advance or finish, in the caller's thread */
    void *ctx;
    /* ranks that train this job together, each with its part of the batch (ranks.h); borrowed; NULL: this process alone. Only rank 0 writes snapshots */
    const struct sy_ranks *ranks;
};

struct sy_train_needs {
    uint64_t persistent_bytes; /* header page included */
    uint64_t ephemeral_bytes;
    uint64_t exchange_bytes; /* of each rank's gradients, where there are several */
    uint64_t total_steps;
    uint64_t ranks;     /* ranks that the job asks for */
    bool opportunistic; /* its class: its persistent state may be spilled */
};

/* Reads the job (JSON text; keys in examples/training/README.md; unknown keys refused by name), its model and data. */
int sy_train_run_create(const char *job_text, const struct sy_trainer_ops *ops,
                        const struct sy_train_callbacks *callbacks, struct sy_train_run **out);
void sy_train_run_destroy(struct sy_train_run *run); /* waits for a snapshot in flight */
void sy_train_run_needs(const struct sy_train_run *run, struct sy_train_needs *out);

/* Binds memory and finds the state: in memory (T3; ECORRUPT if the header is not this job's or says UPDATE), else the newest good
 * snapshot (a bad one is named, logged, and the one before is taken), else initial weights. `page` gets phase, step, loss, busy time. */
int sy_train_run_start(struct sy_train_run *run, void *persistent, void *ephemeral, int in_memory,
                       struct sy_control_page *page);

/* Where the next iteration's memory lies; between two iterations only. */
void sy_train_run_set_ephemeral(struct sy_train_run *run, void *ephemeral);
/* The persistent part has moved there unchanged; call between two iterations only. */
void sy_train_run_set_persistent(struct sy_train_run *run, void *persistent);
/* Its place is another's: all that is read of it from now on, for a last snapshot, is this copy in host memory; between two iterations only. */
void sy_train_run_read_copy(struct sy_train_run *run, void *copy);
/* Nothing in the ephemeral part is needed any more, and training is not over: another job may have the memory. */
bool sy_train_run_is_between_iterations(const struct sy_train_run *run);

enum sy_train_state { SY_TRAIN_RUNNING, SY_TRAIN_FINISHED };

/* One step (T1). *state tells when the last iteration is done (and its snapshot and evaluation). */
int sy_train_run_advance(struct sy_train_run *run, enum sy_train_state *state);
enum sy_train_part {
    SY_TRAIN_DATA,
    SY_TRAIN_FORWARD, /* the loss too */
    SY_TRAIN_BACKWARD,
    SY_TRAIN_UPDATE,
    SY_TRAIN_OTHER /* ends of iterations, snapshots, evaluation */
};

/* The next advance's work; *name: its node, or NULL. */
enum sy_train_part sy_train_run_next(const struct sy_train_run *run, const char **name);

/* "forward", "snapshot", ...: of the next advance, more closely than its part. */
const char *sy_train_run_next_words(const struct sy_train_run *run);

/* From now on: finish the iteration, snapshot, evaluate if asked and if the job has test data; advance then returns FINISHED. */
void sy_train_run_stop(struct sy_train_run *run, int evaluate);

/* Waits for what is in flight on the device, bounded by the trainer; where steps are done when they return, nothing. */
int sy_train_run_synchronize(struct sy_train_run *run);

/* Iterations that are complete; the loss of the last. */
uint64_t sy_train_run_step(const struct sy_train_run *run);
double sy_train_run_loss(const struct sy_train_run *run);
/* Accuracy on the test set, 0..1; negative: not evaluated. */
double sy_train_run_accuracy(const struct sy_train_run *run);

#endif

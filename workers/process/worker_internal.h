/* Shared by the worker's files. */
#ifndef SY_WORKERS_PROCESS_WORKER_INTERNAL_H
#define SY_WORKERS_PROCESS_WORKER_INTERNAL_H

#include <stdbool.h>

#include "allocator/shared_memory.h"
#include "loader/graph/engine.h"
#include "runtime/device/device.h"
#include "runtime/wire/messages.h"
#include "runtime/wire/post_box.h"
#include "workers/infer/transfer.h"
#include "workers/process/worker_models.h"
#include "workers/train/spill.h"
#include "workers/train/train_run.h"

#define SY_WORKER_MAX_CORES 1024

/* Threads that compute, and the cores that they take turns on. */
struct sy_worker_cores {
    int team, n;
    int list[SY_WORKER_MAX_CORES];
};

struct sy_worker {
    int fd, index;
    struct sy_post post; /* messages, both ways */
    bool shutdown;       /* SHUTDOWN was received */
    bool device_lost; /* during training: the control page holds the phase, and is left as it is */
    struct sy_shared_memory page_memory, arrivals_memory, slab, image;
    struct sy_control_page *page;
    _Atomic uint32_t *arrivals;
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_stream *compute;
    struct sy_event *run_done; /* engines that only enqueue: the end of a run */
    const struct sy_engine_ops *engine;
    const struct sy_trainer_ops *trainer;
    struct sy_worker_cores home, cores; /* home: of WELCOME; cores: where the team is now */
    uint32_t cores_version;             /* last cores_version seen in the page */
    struct sy_transfer *transfer;
    struct sy_worker_models *models;

    /* The run between its first LOAD and its RUN_DONE. */
    bool loaded, fetching; /* fetching: it ends when its groups have arrived */
    uint64_t run, run_model;
    bool is_running; /* its layers compute: turns of a Loop may be interrupted, too */
    sy_ns received_ns;
    sy_ns run_end_ns; /* end of the last run, 0: none */

    /* The training job between JOB_PREPARE and JOB_ENDED. */
    struct sy_train_run *job;
    uint64_t job_id;
    bool job_started, has_turn,
        winding_up;         /* winding_up: stopped without an evaluation, so it needs no turn */
    uint64_t job_team;      /* threads that it is computed by */
    int spill_file;         /* the job's spill file, -1: none */
    struct sy_spill *spill; /* of a job that was spilled, or may be */
    struct sy_link_board *board;
    uint64_t persistent_offset; /* of the job, in the pool */
    bool leaving;               /* stops here, to continue in another worker */
    bool stop_after_return, evaluate_after_return;
    sy_ns turn_busy_ns;              /* computed in this turn */
    uint32_t announced_epoch;        /* the odd epoch that JOB_PAUSED was sent for */
    struct sy_worker_script *script; /* instead of `job`: a foreign process (worker_script.h) */
};

/* workers/process/worker_cores.c: where, and by how many threads, it computes. */
int sy_worker_set_home(struct sy_worker *worker, const struct sy_u64s *cores); /* EPROTO, EARG */
/* As messages say it: team 0, no cores: those of home. EPROTO, EARG. */
int sy_worker_set_cores(struct sy_worker *worker, uint64_t team, const struct sy_u64s *cores);
int sy_worker_restore_cores(struct sy_worker *worker, const struct sy_worker_cores *cores);
/* Moves the current run to the cores that the control page asks for. Cheap if it asks for none. */
void sy_worker_follow_page(struct sy_worker *worker);

void sy_worker_beat(void *worker);
/* Sends a heartbeat; ECANCELED if the current run is interrupted. */
int sy_worker_between_turns(void *worker);
int sy_worker_send(struct sy_worker *worker, const struct sy_message *message);
/* Reports that the job is paused at this preempt epoch: on the control page and to the runtime, once for each epoch. */
int sy_worker_announce_pause(struct sy_worker *worker, uint32_t epoch);

/* workers/process/worker_run.c: LOAD, RUN, CANCEL. A failure is reported by RUN_DONE; the status is that of the socket. */
int sy_worker_load(struct sy_worker *worker, const struct sy_msg_load *load);
int sy_worker_run(struct sy_worker *worker, const struct sy_msg_run *run);
int sy_worker_fetch(struct sy_worker *worker, const struct sy_msg_fetch *fetch);
int sy_worker_fetch_look(
    struct sy_worker *
        worker); /* ends a prefetch whose groups have arrived; called a few times a second while it fetches */
int sy_worker_cancel(struct sy_worker *worker, const struct sy_msg_cancel *cancel);

/* workers/process/worker_job.c: the training job. */
int sy_worker_job_prepare(struct sy_worker *worker, const struct sy_msg_job_prepare *prepare,
                          int *file);
/* Takes *file over and makes it -1, if the job is the one that is prepared. */
int sy_worker_job_start(struct sy_worker *worker, const struct sy_msg_job_start *start, int *file);
int sy_worker_job_turn(struct sy_worker *worker, const struct sy_msg_job_turn *turn);
int sy_worker_job_leave(struct sy_worker *worker, const struct sy_msg_job_leave *leave);
int sy_worker_job_spill(struct sy_worker *worker, const struct sy_msg_job_spill *spill);
int sy_worker_job_return(struct sy_worker *worker, const struct sy_msg_job_return *msg);
int sy_worker_job_stop(struct sy_worker *worker, const struct sy_msg_job_stop *stop);
/* True: sy_worker_job_advance has something to do. */
bool sy_worker_job_can_advance(const struct sy_worker *worker);
/* One step, or a pause of at most 20 ms when the epoch is odd. */
int sy_worker_job_advance(struct sy_worker *worker);
/* On SHUTDOWN: ends the iteration, even if it is preempted, and snapshots, until `deadline`. */
int sy_worker_job_finish_iteration(struct sy_worker *worker, sy_ns deadline);
void sy_worker_job_forget(struct sy_worker *worker);

#endif

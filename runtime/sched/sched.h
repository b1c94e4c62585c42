/* The scheduler: what runs when, and where in the pool. Pure: no I/O, no clock, no thread.
 *
 *   events (arrived, done, lost ...) ──> sched ──> actions (preempt, load, read, run ...)
 *
 *   queue: r5 r4 r3 ──> next (LOADed, streams)  ──> active (LOADed, then RUN) ──> ended
 *   training:  runs . . preempt . . paused . . . . . . . . . . . . . resume . . runs
 *
 * S1: at most one request computes, and only while training is paused.
 * S2: requests start by class, then by deadline, then by arrival (admission.h); training runs when no request has started. Among jobs, the policy chooses
 *     which one gets the next turn, and lanes which of them may run at once; a turn is one iteration, or several while no other job is ready.
 * S3: what a started request reads or computes on is pinned until its worker and its reads have finished.
 * S4: every request that was taken gets exactly one END.
 * S5: a request whose worker dies goes back to the queue's head twice; the third death ends it with EPEER.
 * S6: a training job's persistent memory keeps its pool offset until the job ends, whatever happens to its worker; its ephemeral
 *     memory is given with the turn.
 * S7: the workspace is one lane at the pool's top, shared by all requests, since one computes at a time. It changes
 *     size only when no request has started, and is as large as the largest of the last runs needed. A workspace that S8 keeps leaves the lane: the next
 *     request gets a new one.
 * S8: a running request is preempted between layers for one of a more urgent class, where admission.h allows it (Q5). Its workspace keeps its
 *     offset, and it resumes at the layer where it stopped; if that memory is needed, it starts again instead.
 * S9: while no request waits or has started, missing heads are prefetched into the pool, the most valuable first, one at a time, and evict only
 *     tails and less valuable heads. A request's arrival stops this at the next chunk; what has been copied stays.
 * S10: no guaranteed job waits for the worker of an opportunistic job that cannot compute: a spilled job releases its worker, and spilled state
 *     outlives every worker; nor for the memory of such a job without a worker: a job is spilled, if possible, before it releases its worker.
 *
 * S11: the device's compute is cut into slices. S1, S2, S5, S7 and S8 hold in each of them; memory and workers are the device's.
 *     One slice behaves as none. A model's requests, and a job, belong to one slice.
 * S12: tasks that must not compute side by side (sy_sched_set_exclusive) take turns: a job pauses while the model computes; a model waits for the
 *     other's running request, and for the other's first waiting request if that is of a more urgent class, or came first in the same one. All models
 *     wait for such a request that finds no memory beside what other slices have started.
 *
 * S13: an opportunistic job whose slice is in use computes in an unused slice of as many compute units, with the same threads. The owner of that slice
 *     gets it back: requests within a layer (S2), jobs at the next iteration boundary. A guaranteed job stops opportunistic jobs of its own slice only.
 *
 * Before each event set the time with sy_sched_set_time; after it fetch all actions with sy_sched_next and carry them out in
 * order, before the next event. */
#ifndef SY_SCHED_SCHED_H
#define SY_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/lanes.h"
#include "allocator/quota.h"
#include "allocator/residency.h"
#include "runtime/base/clock.h"
#include "runtime/sched/admission.h"
#include "runtime/sched/policy.h"

struct sy_sched;

#define SY_SCHED_MAX_SLICES 8

struct sy_sched_config {
    uint64_t pool_bytes;
    uint64_t image_bytes; /* 0: unified device, the pool is the image */
    int n_workers;        /* 2..64 */
    int max_queue;
    bool fetch_heads;  /* S9 */
    bool restarts;     /* an interrupted request cannot go on where it stopped (S8) */
    bool whole_models; /* as sy_residency_whole_models, in the pool: for comparison */
};

enum sy_sched_kind {
    SY_DO_PREEMPT, /* worker: pause training */
    SY_DO_RESUME,  /* worker: resume training */
    SY_DO_PREPARE, /* worker, model, batch, sizes: answer with sy_sched_workspace */
    SY_DO_LOAD, /* worker, run, model, batch, sizes, groups [first_group, +n_groups): places, image_places */
    SY_DO_READ, /* the same groups, those that are not resident: read from storage (to the image, or unified: to the pool) */
    SY_DO_FETCH, /* worker, run: a prefetch without a RUN; answered with sy_sched_run_done once the groups have arrived */
    SY_DO_CANCEL_READ, /* run: end its reads soon; sy_sched_read_done is still owed */
    SY_DO_RUN,         /* worker, run, model, batch, sizes, workspace_offset */
    SY_DO_CANCEL,      /* worker, run: forget it; answer with sy_sched_run_done */
    SY_DO_INTERRUPT, /* worker, run, which computes: stop between layers; answer with sy_sched_run_done (SY_OK: it was done already) */
    SY_DO_END,       /* request: status, why (SY_OK: done) */
    SY_DO_JOB_PREPARE, /* worker, job */
    SY_DO_JOB_START, /* worker, job, offsets, in_memory, or spilled: it comes back from host memory; it then waits for its turn */
    SY_DO_JOB_TURN, /* worker, job, ephemeral_offset; keeps: until SY_DO_JOB_YIELD, else for one iteration */
    SY_DO_JOB_YIELD, /* worker, job: give the turn back at the end of the iteration */
    SY_DO_JOB_SPILL, /* worker, job, persistent_offset: copy its persistent state to host memory; answer with sy_sched_job_spilled */
    SY_DO_JOB_RETURN, /* worker, job, persistent_offset: restore it to there; answer with sy_sched_job_returned */
    SY_DO_JOB_LEAVE, /* worker, job, between two turns or spilled: releases its worker, its persistent state keeps its pool offset; answer with sy_sched_job_left */
    SY_DO_JOB_STOP,  /* worker, job */
    SY_DO_JOB_REFUSE, /* job: status, why */
};

struct sy_sched_action {
    enum sy_sched_kind kind;
    int worker, model;
    uint64_t request, run, job;
    int slice; /* RUN, PREPARE, and all job actions */
    int team; /* RUN, PREPARE, JOB_PREPARE: the number of compute units that it is, or was, prepared for */
    int64_t batch;
    uint64_t sizes;
    int first_group, n_groups;
    const struct sy_group_place *places,
        *image_places; /* places from group 0 on; valid until the run ends */
    bool preempts;     /* LOAD: training had to be preempted */
    bool prefetch;     /* LOAD, READ: a prefetch; urgent reads go first */
    uint64_t workspace_offset, workspace_bytes, persistent_offset, ephemeral_offset;
    int first_layer; /* RUN: first layer to compute; the workspace holds the results of the layers before it */
    bool in_memory, spilled, keeps;
    int status;
    char why[256];
};

/* EARG, ENOMEM_HOST. */
int sy_sched_create(const struct sy_sched_config *config, struct sy_sched **out);
void sy_sched_destroy(struct sy_sched *s); /* NULL is fine; requests get no END */
/* Takes the next action. False: none is left. */
bool sy_sched_next(struct sy_sched *s, struct sy_sched_action *out);
bool sy_sched_has_next(const struct sy_sched *s);

/* ---- workers: 0..n_workers-1 ---- */
void sy_sched_worker_ready(struct sy_sched *s, int worker);
/* The worker still has this many models to load: it gets requests last and jobs first, and no prefetches. */
void sy_sched_worker_loads(struct sy_sched *s, int worker, int n_models);
/* How a worker was lost. */
struct sy_sched_loss {
    /* the worker knew of its run or job; false: its process died before, so the death counts against neither */
    bool heard;
    bool state_intact; /* the training job on it, if any, was in the gradient phase */
    /* it finished an iteration on that worker; three deaths in a row without one, each while the worker executed the job, end it */
    bool job_progressed;
    bool comes_back; /* false: the worker will not be replaced */
    const char *why;
};
/* Its process was reaped, so it cannot write to shared memory any more. */
void sy_sched_worker_lost(struct sy_sched *s, int worker, const struct sy_sched_loss *loss);

/* ---- models: ids 0..255 ---- */
/* ENOMEM_DEVICE with the sizes if the model can never run: its largest group and `workspace_bytes` exceed the pool, or it exceeds the image. */
int sy_sched_model_add(struct sy_sched *s, int model, int n_groups, const uint64_t *group_bytes,
                       uint64_t workspace_bytes);
/* The group's bytes are in the image at this offset already: it is placed there if the range is free at that time. Ignored without an image. */
void sy_sched_prefer_image_place(struct sy_sched *s, int model, int group, uint64_t offset);
/* direct[g] (discrete device; NULL: none): the group is computed from the image and takes no room in the pool. */
int sy_sched_model_add_direct(struct sy_sched *s, int model, int n_groups,
                              const uint64_t *group_bytes, const bool *direct,
                              uint64_t workspace_bytes);
/* As sy_residency_set_head, for the pool. */
int sy_sched_model_head(struct sy_sched *s, int model, int n_head, double worth);
/* Charges a model's bytes to its tenant's memory quota, as sy_quota_charge; sy_sched_release undoes it. */
int sy_sched_charge(struct sy_sched *s, int tenant, uint64_t bytes, const char *what);
void sy_sched_release(struct sy_sched *s, int tenant, uint64_t bytes);
int sy_sched_model_remove(struct sy_sched *s, int model); /* EBUSY while it has requests */
/* EBUSY while a request uses it */
int sy_sched_model_evict(struct sy_sched *s, int model, bool image_too);
/* The result of a PREPARE, or a report that a worker sent unasked; negative status: it cannot be prepared. worker: the one that is ready for such runs now and
 * is preferred; -1: all workers are, and their replacements will be. */
struct sy_sched_prepared {
    int team;          /* of the PREPARE; 0: of an unasked report */
    int worker, model; /* model -1: it was removed, or no request waits for these sizes any more */
    int64_t batch;
    uint64_t sizes;
    int status;
    const char *why;
    uint64_t workspace_bytes;
};
void sy_sched_workspace(struct sy_sched *s, const struct sy_sched_prepared *prepared);
/* Whether such runs can start without a PREPARE: a worker that is ready for them is idle, or serves requests. */
bool sy_sched_is_ready(const struct sy_sched *s, int model, int64_t batch, uint64_t sizes);

/* ---- requests ---- */
struct sy_sched_request {
    uint64_t id;
    int model;
    int64_t batch;
    uint64_t sizes;    /* number that the caller gave these open dimensions; 0: the usual ones */
    int class_;        /* 0 is the most urgent */
    sy_ns deadline_ns; /* absolute; 0: none */
    struct sy_duration duration; /* swap and compute, as predicted */
};
/* EBUSY: queue full; EDEADLINE: late by prediction, which is in *prediction (may be NULL); ENOTFOUND; EARG: batch < 1; ENOMEM_HOST. No END follows an error. */
int sy_sched_request(struct sy_sched *s, const struct sy_sched_request *request,
                     struct sy_prediction *prediction);
/* Corrects the remaining duration of the running request. */
void sy_sched_expect(struct sy_sched *s, uint64_t request, struct sy_duration left);
/* Expected time until all admitted requests there are finished. */
sy_ns sy_sched_busy_ns(const struct sy_sched *s, int slice);
/* Ends the request with ECANCELED: at once if it has not started, else when its worker has stopped (between two layers if it computes). A request that
 * completes first ends normally. */
void sy_sched_cancel(struct sy_sched *s, uint64_t request);
/* EPROTO if this worker has no such run. */
int sy_sched_run_done(struct sy_sched *s, int worker, uint64_t run, int status, const char *why);
/* Call before sy_sched_run_done: the leading n groups of the run are in the pool, whatever its result. Discrete devices only. */
void sy_sched_arrived(struct sy_sched *s, int worker, uint64_t run, uint64_t n);
/* Call before sy_sched_run_done with ECANCELED for an interrupted run: its workspace holds the results of the layers before `layer`. Any worker can resume
 * there; `left` is the expected remaining duration. */
void sy_sched_stopped_at(struct sy_sched *s, int worker, uint64_t run, int layer,
                         struct sy_duration left);
/* One READ has ended; arrived: flags for its n groups, in order. */
void sy_sched_read_done(struct sy_sched *s, uint64_t run, int first_group, int n_groups,
                        const bool *arrived);

/* ---- training ---- */
struct sy_sched_job {
    uint64_t id;
    int tenant, priority; /* priority: smaller is more urgent */
    int slice;            /* 0 if there is no slice of this number */
    /* the job has snapshots: it can be prepared again for another number of compute units, and resume from them */
    bool moves;
    /* gets no turn while a guaranteed job wants it, and gives its memory (spilled to the host) and worker to guaranteed jobs */
    bool opportunistic;
};
#define SY_SCHED_SPILL_AGAIN_NS      (1 * SY_NS_PER_S)
#define SY_SCHED_SPILL_AGAIN_MOST_NS (300 * SY_NS_PER_S)
#define SY_SCHED_MAX_JOBS            1024 /* jobs in workers and waiting */
int sy_sched_job_submit(
    struct sy_sched *s,
    const struct sy_sched_job *job); /* EBUSY: SY_SCHED_MAX_JOBS exist; ENOMEM_HOST */
/* While held, no further job gets a worker, and so none takes memory. */
void sy_sched_hold_jobs(struct sy_sched *s, bool hold);
/* EPROTO. total_iterations 0: not known. A job that can never fit causes JOB_REFUSE and JOB_STOP. */
int sy_sched_job_prepared(struct sy_sched *s, int worker, uint64_t job, uint64_t persistent_bytes,
                          uint64_t ephemeral_bytes, uint64_t total_iterations);
int sy_sched_job_started(struct sy_sched *s, int worker, uint64_t job, uint64_t iterations_done);
/* Updates the number of iterations; scripts learn it while they run. Unknown jobs are ignored. */
void sy_sched_job_set_total(struct sy_sched *s, uint64_t job, uint64_t total_iterations);
/* The job has ended its turn between two iterations. busy_ns: its compute time in this turn. EPROTO: it had no turn. */
int sy_sched_job_turn_over(struct sy_sched *s, int worker, uint64_t job, uint64_t iterations_done,
                           sy_ns busy_ns);
/* Only for the epoch of the last PREEMPT. */
int sy_sched_job_paused(struct sy_sched *s, int worker, uint64_t job);
/* EBUSY: the job is on no worker; it was dropped and no further event follows (the caller ends it). */
int sy_sched_job_stop(struct sy_sched *s, uint64_t job);
/* worked false: the spill failed and nothing changed; the job is asked again after SY_SCHED_SPILL_AGAIN_NS, twice as long after each further failure in a
 * row, at most SY_SCHED_SPILL_AGAIN_MOST_NS. EPROTO. */
int sy_sched_job_spilled(struct sy_sched *s, int worker, uint64_t job, bool worked);
int sy_sched_job_returned(struct sy_sched *s, int worker, uint64_t job); /* EPROTO */
/* has_snapshot false: the job could not write one; if it was to change to another team it continues with its present one, from memory. EPROTO. */
int sy_sched_job_left(struct sy_sched *s, int worker, uint64_t job, bool has_snapshot);
int sy_sched_job_ended(struct sy_sched *s, int worker, uint64_t job);
/* A suspended job is not scheduled and keeps its memory until it is resumed. ENOTFOUND. */
int sy_sched_job_suspend(struct sy_sched *s, uint64_t job, bool suspended);
int sy_sched_job_set_priority(struct sy_sched *s, uint64_t job, int priority); /* ENOTFOUND */

/* ---- rules ---- */
/* As sy_policy_set. */
int sy_sched_set_policy(struct sy_sched *s, enum sy_policy_kind kind, int n_parallel,
                        sy_ns max_wait_ns);
/* As sy_policy_set_tenant and sy_quota_set. */
int sy_sched_set_tenant(struct sy_sched *s, int tenant, unsigned weight, unsigned hard_permille,
                        uint64_t memory_limit_bytes);
/* While a job can compute, training gets at least this share of the time, whatever requests arrive. EARG above 1000. */
int sy_sched_set_train_share(struct sy_sched *s, unsigned permille);

/* ---- slices ---- */
/* Sets the number of slices, 1 to SY_SCHED_MAX_SLICES. Members of removed slices move to slice 0: jobs at their next boundary; requests admitted there end
 * there. EARG, ENOMEM_HOST. */
int sy_sched_set_slices(struct sy_sched *s, int n);
int sy_sched_n_slices(const struct sy_sched *s);
/* A request waits or has started there. */
bool sy_sched_slice_is_busy(const struct sy_sched *s, int slice);
/* For requests that arrive from now on. EARG: no such slice; ENOTFOUND. */
int sy_sched_model_set_slice(struct sy_sched *s, int model, int slice);
int sy_sched_model_slice(const struct sy_sched *s, int model);
/* Takes effect at the job's next boundary. EARG, ENOTFOUND. */
int sy_sched_job_set_slice(struct sy_sched *s, uint64_t job, int slice);
/* The slice has more or fewer compute units. team: a number for how many (0: those that workers begin with); what was prepared for another is prepared anew
 * before it runs there, a job at its next boundary (it goes on from its snapshot). Jobs in it give back turns that they keep. What has started ends as it
 * is. */
void sy_sched_slice_resized(struct sy_sched *s, int slice, int team);
/* S12, for two models, or a job and a model. ENOTFOUND. */
int sy_sched_set_exclusive(struct sy_sched *s, int model, int other, bool apart);
int sy_sched_job_set_exclusive(struct sy_sched *s, uint64_t job, int model, bool apart);

/* S13: while held, opportunistic jobs are paused between two layers, except where a guaranteed job waits for their turn to end. No effect with a single
 * slice. */
void sy_sched_hold_opportunistic(struct sy_sched *s, bool hold);

/* ---- time ---- */
/* Sets the time of all following calls, and decides what depends on time alone: also call it at sy_sched_wake_at. */
void sy_sched_set_time(struct sy_sched *s, sy_ns now);
sy_ns sy_sched_wake_at(const struct sy_sched *s); /* 0: no wake-up needed */

/* ---- looking ---- */
int sy_sched_n_waiting(const struct sy_sched *s);
int sy_sched_n_started(const struct sy_sched *s);
bool sy_sched_training_runs(const struct sy_sched *s);
/* A job's place and turn. False: no such job. */
struct sy_sched_job_view {
    int worker, lane; /* -1: none */
    int tenant, priority, slice, team;
    bool admitted, has_turn, suspended, opportunistic,
        spilled; /* spilled: its state is in host memory, or on its way there */
    uint64_t persistent_offset, persistent_bytes, ephemeral_bytes;
    sy_ns used_ns, left_ns; /* left: UINT64_MAX when not known */
};
bool sy_sched_job_view(const struct sy_sched *s, uint64_t job, struct sy_sched_job_view *out);
const struct sy_policy *sy_sched_policy(const struct sy_sched *s);
const struct sy_lanes *sy_sched_lanes(const struct sy_sched *s);
const struct sy_quotas *sy_sched_quotas(const struct sy_sched *s);
/* The minimum memory of the most demanding model: its largest group and its smallest workspace. */
uint64_t sy_sched_least_room(const struct sy_sched *s);
/* The worker computes a request now. */
bool sy_sched_computes(const struct sy_sched *s, int worker);
const struct sy_pool *sy_sched_pool(const struct sy_sched *s);
const struct sy_pool *sy_sched_image(const struct sy_sched *s); /* NULL: unified */
const struct sy_residency *sy_sched_residency(const struct sy_sched *s);
uint64_t sy_sched_n_evicted(const struct sy_sched *s);
bool sy_sched_is_valid(const struct sy_sched *s); /* the invariant walker */

#endif

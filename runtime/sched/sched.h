/* The scheduler: what runs when, and where in the pool. Pure: no I/O, no clock, no thread.
 *
 *   events (arrived, done, lost ...) ──> sched ──> actions (preempt, load, read, run ...)
 *
 *   queue: r5 r4 r3 ──> next (LOADed, streams)  ──> active (LOADed, then RUN) ──> ended
 *   training:  runs . . preempt . . still . . . . . . . . . . . . . . resume . . runs
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
 *     outlives every worker. Nor for memory of a job without a worker: a job is spilled, if it can be, before it releases its worker.
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
    SY_DO_PREEMPT, /* worker: training must pause */
    SY_DO_RESUME,  /* worker: training goes on */
    SY_DO_PREPARE, /* worker, model, batch, sizes: answer with sy_sched_workspace */
    SY_DO_LOAD, /* worker, run, model, batch, sizes, groups [first_group, +n_groups): places, image_places */
    SY_DO_READ, /* the same groups, those that are not resident: from storage (image, or unified: pool) */
    SY_DO_FETCH, /* worker, run: what was LOADed will not RUN; answer with sy_sched_run_done when it is there */
    SY_DO_CANCEL_READ, /* run: its reads shall end soon; sy_sched_read_done is still owed */
    SY_DO_RUN,         /* worker, run, model, batch, sizes, workspace_offset */
    SY_DO_CANCEL,      /* worker, run: forget it; answer with sy_sched_run_done */
    SY_DO_INTERRUPT, /* worker, run, which computes: stop between layers; answer with sy_sched_run_done (SY_OK: it was done already) */
    SY_DO_END,       /* request: status, why (SY_OK: done) */
    SY_DO_JOB_PREPARE, /* worker, job */
    SY_DO_JOB_START, /* worker, job, offsets, in_memory, or spilled: it comes back from host memory; it then waits for its turn */
    SY_DO_JOB_TURN, /* worker, job, ephemeral_offset; keeps: until SY_DO_JOB_YIELD, else one iteration */
    SY_DO_JOB_YIELD, /* worker, job: gives the turn back at its next iteration's end */
    SY_DO_JOB_SPILL, /* worker, job, persistent_offset: its persistent state goes to host memory; answer with sy_sched_job_spilled */
    SY_DO_JOB_RETURN, /* worker, job, persistent_offset: back to there; answer with sy_sched_job_returned */
    SY_DO_JOB_LEAVE, /* worker, job, between two turns or spilled: releases its worker, its persistent state keeps its pool offset; answer with sy_sched_job_left */
    SY_DO_JOB_STOP,  /* worker, job */
    SY_DO_JOB_REFUSE, /* job: status, why */
};

struct sy_sched_action {
    enum sy_sched_kind kind;
    int worker, model;
    uint64_t request, run, job;
    int slice; /* RUN, PREPARE, and all that is done to a job */
    int team;  /* RUN, PREPARE, JOB_PREPARE: what it is, or was, prepared for */
    int64_t batch;
    uint64_t sizes;
    int first_group, n_groups;
    const struct sy_group_place *places, *image_places; /* of group 0; valid until the run ends */
    bool preempts;                                      /* LOAD: training had to be preempted */
    bool prefetch; /* LOAD, READ: for later; what is urgent goes first */
    uint64_t workspace_offset, workspace_bytes, persistent_offset, ephemeral_offset;
    int first_layer; /* RUN: its workspace holds what those in front of it computed */
    bool in_memory, spilled, keeps;
    int status;
    char why[256];
};

/* EARG, ENOMEM_HOST. */
int sy_sched_create(const struct sy_sched_config *config, struct sy_sched **out);
void sy_sched_destroy(struct sy_sched *s); /* NULL is fine; requests get no END */
/* True and the next action, or false. */
bool sy_sched_next(struct sy_sched *s, struct sy_sched_action *out);
bool sy_sched_has_next(const struct sy_sched *s);

/* ---- workers: 0..n_workers-1 ---- */
void sy_sched_worker_ready(struct sy_sched *s, int worker);
/* It was told of so many models that it has not loaded yet: requests go to others first, jobs to it, and nothing is fetched by it. */
void sy_sched_worker_loads(struct sy_sched *s, int worker, int n_models);
/* How a worker was lost. */
struct sy_sched_loss {
    bool
        heard; /* it was told of its run or job; false: its process was gone before, which counts against neither */
    bool state_intact; /* the training job on it, if any, was in the gradient phase */
    bool
        job_progressed; /* it finished an iteration on that worker; three deaths in a row without one, at work for it, end the job */
    bool comes_back;    /* false: it will not be replaced */
    const char *why;
};
/* Its process is gone (reaped, so it writes nothing any more). */
void sy_sched_worker_lost(struct sy_sched *s, int worker, const struct sy_sched_loss *loss);

/* ---- models: ids 0..255 ---- */
/* ENOMEM_DEVICE with the sizes if it can never run (largest group beside `workspace_bytes`; image). */
int sy_sched_model_add(struct sy_sched *s, int model, int n_groups, const uint64_t *group_bytes,
                       uint64_t workspace_bytes);
/* The group's bytes lie at this offset of the image already: it is placed there if that is free when its turn comes. Of no consequence without an image. */
void sy_sched_prefer_image_place(struct sy_sched *s, int model, int group, uint64_t offset);
/* direct[g] (discrete device; NULL: none): the group takes no room in the pool, computing reads it in the image. */
int sy_sched_model_add_direct(struct sy_sched *s, int model, int n_groups,
                              const uint64_t *group_bytes, const bool *direct,
                              uint64_t workspace_bytes);
/* As sy_residency_set_head, in the pool. */
int sy_sched_model_head(struct sy_sched *s, int model, int n_head, double worth);
/* Charges a model's bytes to its tenant's memory quota, like a job's: as sy_quota_charge, and its release. */
int sy_sched_charge(struct sy_sched *s, int tenant, uint64_t bytes, const char *what);
void sy_sched_release(struct sy_sched *s, int tenant, uint64_t bytes);
int sy_sched_model_remove(struct sy_sched *s, int model); /* EBUSY while it has requests */
int sy_sched_model_evict(struct sy_sched *s, int model,
                         bool image_too); /* EBUSY while a request uses it */
/* What a PREPARE, or a worker by itself, found out; negative status: it cannot be done. worker: the one that is ready for such runs
 * now, and is taken before others; -1: all are, and will be after they were replaced. */
struct sy_sched_prepared {
    int team;          /* of the PREPARE; 0: of what workers find out by themselves */
    int worker, model; /* model -1: removed, or sizes that no request waits for any more */
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
    uint64_t
        sizes;  /* of the open dimensions, a number that the caller gave them; 0: the usual ones */
    int class_; /* 0 is the most urgent */
    sy_ns deadline_ns;           /* a point in time; 0: none */
    struct sy_duration duration; /* swap and compute, as predicted */
};
/* EBUSY: queue full; EDEADLINE: late by prediction, which *prediction has (may be NULL); ENOTFOUND; EARG: batch < 1; ENOMEM_HOST: then
 * there is no END. */
int sy_sched_request(struct sy_sched *s, const struct sy_sched_request *request,
                     struct sy_prediction *prediction);
/* Corrects the remaining duration of the running request. */
void sy_sched_expect(struct sy_sched *s, uint64_t request, struct sy_duration left);
sy_ns sy_sched_busy_ns(const struct sy_sched *s,
                       int slice); /* all that were taken there, as expected from now */
/* Ends with ECANCELED: at once if it has not started, else when its worker has stopped, between two layers if it computes. What is done by then
 * ends as it would have. */
void sy_sched_cancel(struct sy_sched *s, uint64_t request);
/* EPROTO if this worker has no such run. */
int sy_sched_run_done(struct sy_sched *s, int worker, uint64_t run, int status, const char *why);
/* Before sy_sched_run_done: the leading n groups of the run are in the pool, whatever became of it. Discrete devices. */
void sy_sched_arrived(struct sy_sched *s, int worker, uint64_t run, uint64_t n);
/* Before sy_sched_run_done with ECANCELED, of one that was interrupted: its workspace holds what the layers in front of this one computed,
 * and any worker can go on from there, which is expected to take so long. */
void sy_sched_stopped_at(struct sy_sched *s, int worker, uint64_t run, int layer,
                         struct sy_duration left);
/* One READ is over; arrived: flags for its n groups, in order. */
void sy_sched_read_done(struct sy_sched *s, uint64_t run, int first_group, int n_groups,
                        const bool *arrived);

/* ---- training ---- */
struct sy_sched_job {
    uint64_t id;
    int tenant, priority; /* priority: smaller is more urgent */
    int slice;            /* 0 where there is none of this number */
    bool moves; /* it has snapshots: it may be prepared for another team, and go on from them */
    bool
        opportunistic; /* no turn while a guaranteed one wants it; its memory too gives way, to host memory, and its worker */
};
#define SY_SCHED_MAX_JOBS 1024 /* in workers and waiting */
int sy_sched_job_submit(struct sy_sched *s,
                        const struct sy_sched_job *job); /* EBUSY: so many are there; ENOMEM_HOST */
/* While held, no job that has no worker gets one, so none takes memory. */
void sy_sched_hold_jobs(struct sy_sched *s, bool hold);
/* EPROTO. total_iterations 0: not known. A job that can never fit gets a JOB_REFUSE and a JOB_STOP. */
int sy_sched_job_prepared(struct sy_sched *s, int worker, uint64_t job, uint64_t persistent_bytes,
                          uint64_t ephemeral_bytes, uint64_t total_iterations);
int sy_sched_job_started(struct sy_sched *s, int worker, uint64_t job, uint64_t iterations_done);
/* A script says while it runs how many iterations there will be. A job that is not there: nothing. */
void sy_sched_job_set_total(struct sy_sched *s, uint64_t job, uint64_t total_iterations);
/* It is between two iterations and has no turn any more. busy_ns: what it computed in this turn. EPROTO: it had none. */
int sy_sched_job_turn_over(struct sy_sched *s, int worker, uint64_t job, uint64_t iterations_done,
                           sy_ns busy_ns);
/* For the epoch that the last PREEMPT made, no older. */
int sy_sched_job_paused(struct sy_sched *s, int worker, uint64_t job);
/* EBUSY: not on a worker now; it was dropped and nothing more comes (the caller ends it). */
int sy_sched_job_stop(struct sy_sched *s, uint64_t job);
/* worked false: it could not, and all is as it was. EPROTO. */
int sy_sched_job_spilled(struct sy_sched *s, int worker, uint64_t job, bool worked);
int sy_sched_job_returned(struct sy_sched *s, int worker, uint64_t job); /* EPROTO */
/* has_snapshot false: it could not write one; if it left for another team it goes on in the one that it had, from its memory. EPROTO. */
int sy_sched_job_left(struct sy_sched *s, int worker, uint64_t job, bool has_snapshot);
int sy_sched_job_ended(struct sy_sched *s, int worker, uint64_t job);
/* Not scheduled until it is resumed; keeps its memory. ENOTFOUND. */
int sy_sched_job_suspend(struct sy_sched *s, uint64_t job, bool suspended);
int sy_sched_job_set_priority(struct sy_sched *s, uint64_t job, int priority); /* ENOTFOUND */

/* ---- rules ---- */
/* As sy_policy_set. */
int sy_sched_set_policy(struct sy_sched *s, enum sy_policy_kind kind, int n_parallel,
                        sy_ns max_wait_ns);
/* As sy_policy_set_tenant and sy_quota_set. */
int sy_sched_set_tenant(struct sy_sched *s, int tenant, unsigned weight, unsigned hard_permille,
                        uint64_t memory_limit_bytes);
/* While a job could compute, so much of the time is training's, whatever requests come. EARG above 1000. */
int sy_sched_set_train_share(struct sy_sched *s, unsigned permille);

/* ---- slices ---- */
/* From now on there are so many, 1 to SY_SCHED_MAX_SLICES. What belonged to one that is gone belongs to slice 0: jobs from their next boundary on; requests
 * that were taken there end there. EARG, ENOMEM_HOST. */
int sy_sched_set_slices(struct sy_sched *s, int n);
int sy_sched_n_slices(const struct sy_sched *s);
bool sy_sched_slice_is_busy(const struct sy_sched *s,
                            int slice); /* a request waits there, or has started */
/* Requests that come from now on. EARG: there is no such slice; ENOTFOUND. */
int sy_sched_model_set_slice(struct sy_sched *s, int model, int slice);
int sy_sched_model_slice(const struct sy_sched *s, int model);
/* From its next boundary on. EARG, ENOTFOUND. */
int sy_sched_job_set_slice(struct sy_sched *s, uint64_t job, int slice);
/* The slice has more or fewer compute units. team: a number for how many (0: those that workers begin with); what was prepared for another is prepared anew before
 * it runs there, a job at its next boundary (it goes on from its snapshot). Jobs in it give back turns that they keep. What has started ends as it is. */
void sy_sched_slice_resized(struct sy_sched *s, int slice, int team);
/* S12. Between two models, and between a job and a model. ENOTFOUND. */
int sy_sched_set_exclusive(struct sy_sched *s, int model, int other, bool apart);
int sy_sched_job_set_exclusive(struct sy_sched *s, uint64_t job, int model, bool apart);

/* S13: while held, opportunistic jobs stand still (between two layers), but where a guaranteed one waits for their turn to end. With one slice nothing changes. */
void sy_sched_hold_opportunistic(struct sy_sched *s, bool hold);

/* ---- time ---- */
/* Of all that follows. What depends on it alone is decided here: call it when sy_sched_wake_at has come, too. */
void sy_sched_set_time(struct sy_sched *s, sy_ns now);
sy_ns sy_sched_wake_at(const struct sy_sched *s); /* 0: no need */

/* ---- looking ---- */
int sy_sched_n_waiting(const struct sy_sched *s);
int sy_sched_n_started(const struct sy_sched *s);
bool sy_sched_training_runs(const struct sy_sched *s);
/* A job's place, and the job that has the turn. False: no such job. */
struct sy_sched_job_view {
    int worker, lane; /* -1: none */
    int tenant, priority, slice, team;
    bool admitted, has_turn, suspended, opportunistic,
        spilled; /* spilled: it lies in host memory, or is on its way */
    uint64_t persistent_offset, persistent_bytes, ephemeral_bytes;
    sy_ns used_ns, left_ns; /* left: UINT64_MAX when not known */
};
bool sy_sched_job_view(const struct sy_sched *s, uint64_t job, struct sy_sched_job_view *out);
const struct sy_policy *sy_sched_policy(const struct sy_sched *s);
const struct sy_lanes *sy_sched_lanes(const struct sy_sched *s);
const struct sy_quotas *sy_sched_quotas(const struct sy_sched *s);
/* The least memory that the most demanding model needs: its largest group and its smallest workspace. */
uint64_t sy_sched_least_room(const struct sy_sched *s);
bool sy_sched_computes(const struct sy_sched *s, int worker); /* a request, now */
const struct sy_pool *sy_sched_pool(const struct sy_sched *s);
const struct sy_pool *sy_sched_image(const struct sy_sched *s); /* NULL: unified */
const struct sy_residency *sy_sched_residency(const struct sy_sched *s);
uint64_t sy_sched_n_evicted(const struct sy_sched *s);
bool sy_sched_is_valid(const struct sy_sched *s); /* the invariant walker */

#endif

/* Shared by the scheduler's files. */
#ifndef SY_SCHED_SCHED_INTERNAL_H
#define SY_SCHED_SCHED_INTERNAL_H

#include "runtime/sched/sched.h"

#define SY_SCHED_MAX_MODELS  256
#define SY_SCHED_MAX_WORKERS 64
#define SY_SCHED_WORKSPACES \
    32 /* remembered a model, by batch and sizes; the least recently used goes */
#define SY_SCHED_ALL_WORKERS UINT64_MAX
#define SY_SCHED_RECENT_RUNS 16

enum worker_use { WORKER_AWAY, WORKER_IDLE, WORKER_REQUEST, WORKER_JOB, WORKER_GONE };

struct workspace {
    int64_t batch; /* 0: free */
    int team;
    uint64_t sizes, bytes;
    uint64_t workers; /* bits: those that are ready for it; ALL: kept ready by each */
    uint64_t used;
};

struct model {
    bool used;
    int n_groups, n_requests; /* n_requests: not ended */
    uint64_t *group_bytes;    /* in the image */
    uint64_t
        *pool_bytes; /* as these, but 0 for groups that are read in the image; of the same block */
    bool has_direct;
    uint64_t largest_bytes; /* group in the pool */
    uint64_t least_bytes;   /* and smallest workspace */
    struct workspace workspaces[SY_SCHED_WORKSPACES];
    int slice;
    uint64_t apart[SY_SCHED_MAX_MODELS / 64]; /* S12: models that do not compute beside it */
};

struct request {
    struct request *next; /* of those that wait */
    uint64_t id, run;
    int model, worker, deaths, slice;
    int team; /* of the slice, when its workspace was found out */
    int64_t batch;
    uint64_t sizes;
    struct sy_duration duration;
    bool preparing;
    uint64_t workspace_bytes; /* known before it starts */
    /* from its start on */
    struct sy_group_place *places, *image_places;
    bool *pool_arrived, *image_arrived;
    int n_loaded, n_reads;
    bool prefetched; /* its groups come while another computes */
    bool pool_pinned, image_pinned, run_sent, restarting, worker_through, ended;
    bool canceled;           /* while it was started: ends when its worker is through */
    bool interrupted;        /* S8, or canceled */
    int next_layer;          /* where it goes on; 0: from its beginning */
    struct sy_duration left; /* from there on */
    int first_layer;         /* where its last run began */
    bool
        lost_layer; /* it stopped within that layer: such a one may be interrupted again and again without getting on (Q5) */
    uint64_t kept_offset, kept_bytes,
        kept_at;     /* its workspace while others compute, and since when */
    bool compacted;  /* lanes were moved for it once */
    bool wants_room; /* it is the head, and what other slices started lies where it has to (S12) */
    bool dropped, image_dropped; /* of a fetch: what came goes again */
};

/* PREPARED: its sizes are known, so it is among the lanes' jobs; waits there, or was admitted. */
enum job_state {
    JOB_QUEUED,
    JOB_PREPARING,
    JOB_PREPARED,
    JOB_LEAVING, /* sched_leave.c */
    JOB_STARTING,
    JOB_RUNNING,
    JOB_SPILLING, /* sched_spill.c */
    JOB_SPILLED,
    JOB_RETURNING
};

struct job {
    struct job *next;
    uint64_t id;
    enum job_state state;
    int worker, deaths, tenant, priority;
    int team; /* of the slice, when it was prepared (first, if it does not move) */
    bool was_prepared;
    int slice, wanted_slice; /* wanted: from the next boundary on */
    int lent;                /* S13: a slice that it has from the next boundary on; -1: none */
    bool resized;            /* its slice was, since its turn began */
    uint64_t apart[SY_SCHED_MAX_MODELS / 64]; /* S12: models that it stands still for */
    bool preempted, still, stop_wanted, suspended;
    bool in_lanes, admitted, in_memory; /* in_lanes: from JOB_PREPARED to its end */
    bool in_spill;        /* its persistent state is in host memory, whole; not in_memory */
    bool has_turn, keeps; /* STARTING: has the turn too */
    bool in_policy, opportunistic, cannot_spill, moves;
    bool for_team; /* LEAVING: for another one, with a snapshot */
    uint64_t persistent_bytes, ephemeral_bytes, persistent_offset;
    uint64_t total_iterations, iterations_done;
};

/* The share that training has whatever requests come (rule in sched_share.c). */
struct train_share {
    unsigned permille;
    int64_t credit_ns;
    bool first;         /* requests wait */
    unsigned predicted; /* per mille: what predictions leave to training */
    sy_ns used_at_ns;   /* when training last could use as much */
    sy_ns from_ns;      /* it earns nothing before */
};

/* A part of the device's compute, where one task computes at a time (S11). */
struct slice {
    struct sy_admission *admission;
    struct request *active, *next;
    uint64_t lane_offset, lane_bytes;
    uint64_t recent[SY_SCHED_RECENT_RUNS]; /* workspaces of the last runs, a ring */
    unsigned n_runs;
    struct sy_policy *policy;
    struct train_share share;
    sy_ns policy_wake_ns;
    int team; /* what its runs are prepared for: they differ by it (sy_sched_slice_resized) */
};

struct sy_sched {
    struct slice slices[SY_SCHED_MAX_SLICES];
    int n_slices, n_made; /* the first n_slices take work; of those behind them what is left ends */
    int first_slice;      /* whose jobs are asked first for a turn */
    struct slice *placing; /* whose request is being placed */
    struct sy_sched_config config;
    struct sy_pool *pool, *image;
    struct sy_residency *pool_residency, *image_residency; /* image: NULL when unified */
    enum worker_use workers[SY_SCHED_MAX_WORKERS];
    int n_preparing
        [SY_SCHED_MAX_WORKERS]; /* PREPAREs that a worker has not answered; others are taken first */
    int n_loading[SY_SCHED_MAX_WORKERS]; /* sy_sched_worker_loads */
    struct model models[SY_SCHED_MAX_MODELS];
    struct request
        *waiting; /* in no order: admissions have it, and all but those that are active */
    int n_waiting;
    struct request *fetch; /* S9: a run without a request */
    uint64_t last_run, last_use;
    uint64_t last_kept;
    struct job *jobs; /* by arrival */
    struct sy_lanes *lanes;
    struct sy_quotas quotas;
    bool
        admitting; /* a job could be admitted once nothing has started: nothing is prefetched meanwhile */
    bool admission_stuck; /* it could not after all; until jobs or models change */
    bool compacting; /* a request waits for all lanes to be empty, to be moved out of its way */
    bool any_hard;   /* some tenant has a hard share: no turn is kept */
    bool jobs_held;  /* sy_sched_hold_jobs */
    bool fill_held;  /* sy_sched_hold_opportunistic */
    sy_ns now;
    struct sy_sched_action *actions; /* a ring */
    int first_action, n_actions, max_actions;
};

static inline bool sy_sched_has_bit(const uint64_t *bits, int i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static inline void sy_sched_set_bit(uint64_t *bits, int i, bool on)
{
    uint64_t bit = 1ull << (i % 64);
    bits[i / 64] = on ? bits[i / 64] | bit : bits[i / 64] & ~bit;
}

/* Who calls whom, one way: events (sched.c, sched_end.c, sched_rules.c) end with a step; what a step does is below it.
 *
 *   sched.c  sched_end.c  sched_rules.c ──> sched_step.c ──> sched_turns.c ──> slice, leave, spill, job, model ──┐
 *                                               └──> sched_start.c ──> sched_keep.c  sched_hold.c  sched_queue.c ──> sched_facts.c */

/* ---- sched_facts.c: reads only ---- */
int sy_sched_idle_worker(const struct sy_sched *s);
/* An idle worker, one that is ready for `r` if there is any (*ready), and has nothing else to prepare; -1: none is idle. */
int sy_sched_worker_for(struct sy_sched *s, const struct request *r, bool *ready);
/* Known facts on runs of this batch and these sizes; NULL: none. */
struct workspace *sy_sched_find_workspace(struct sy_sched *s, int model, int64_t batch,
                                          uint64_t sizes, int team);
int sy_sched_team_of(const struct sy_sched *s, int model); /* of requests that come now */
/* ENOMEM_DEVICE with the sizes: no state of the pool could ever hold its workspace and its largest group. */
int sy_sched_check_room(const struct sy_sched *s, const struct request *r);
bool sy_sched_are_exclusive(const struct sy_sched *s, int model, int other);
int sy_sched_open_slice(const struct sy_sched *s, int wanted); /* 0 where there is no such slice */
struct slice *sy_sched_slice_of(const struct sy_sched *s, const struct request *r);
bool sy_sched_others_started(const struct sy_sched *s, const struct slice *c);
int sy_sched_computing_in(const struct slice *c); /* the worker, or -1 */
bool sy_sched_trains_in(const struct sy_sched *s, const struct slice *c);
bool sy_sched_training_is_ready(const struct sy_sched *s,
                                const struct slice *c); /* some job could compute */
uint64_t sy_sched_job_bytes(const struct sy_sched *s);  /* of the pool, that training jobs hold */
uint64_t sy_sched_lane_bytes(const struct sy_sched *s); /* of all slices' workspaces */
uint64_t sy_sched_kept_bytes(const struct sy_sched *s); /* by interrupted requests (S8) */
struct job *sy_sched_job_by_id(const struct sy_sched *s, uint64_t id); /* NULL: none */
uint64_t sy_sched_job_rank(const struct job *j);                       /* in the lanes' queue */
/* EPROTO unless `worker` has it. */
int sy_sched_find_job(struct sy_sched *s, int worker, uint64_t id, struct job **out);
int sy_sched_slice_wanted(const struct job *j); /* its own, or the one that is lent to it */
/* A ready job of another slice needs the same memory for its iteration. */
bool sy_sched_lane_is_wanted(const struct sy_sched *s, const struct job *j);
bool sy_sched_jobs_hold_workers(const struct sy_sched *s); /* all but the one left to requests */
struct job *sy_sched_next_for_worker(const struct sy_sched *s); /* NULL: none waits for one */
bool sy_sched_may_leave(const struct job *j);                   /* its worker */
int sy_sched_n_lacking(const struct sy_sched *s);
/* A guaranteed job waits for a worker that an opportunistic one is to let go, and none does yet. */
bool sy_sched_worker_is_wanted(const struct sy_sched *s);
bool sy_sched_guaranteed_waits_for_memory(const struct sy_sched *s);
/* It has memory in the pool that it gives up by being spilled, for which it needs a worker. */
bool sy_sched_may_be_spilled(const struct job *j);
bool sy_sched_trip_is_under_way(const struct sy_sched *s); /* out, or back */

/* ---- sched_queue.c ---- */
struct sy_sched_action *sy_sched_act(struct sy_sched *s, enum sy_sched_kind kind);
struct sy_sched_action *sy_sched_act_run(struct sy_sched *s, enum sy_sched_kind kind,
                                         const struct request *r);
struct sy_sched_action *sy_sched_act_job(struct sy_sched *s, enum sy_sched_kind kind,
                                         const struct job *j);
int sy_sched_make_request(const struct sy_sched *s, const struct sy_sched_request *wants,
                          struct request **out);
void sy_sched_free_request(struct request *r);
/* The request whose turn it is, among those that wait and the one that is prefetched. NULL: none. */
struct request *sy_sched_head(const struct sy_sched *s, const struct slice *c);
void sy_sched_push(struct sy_sched *s, struct request *r);   /* it waits, again */
void sy_sched_unlink(struct sy_sched *s, struct request *r); /* it waits no more */
void sy_sched_drop_waiting(struct sy_sched *s, struct request *r, int status, const char *why);
void sy_sched_end(struct sy_sched *s, struct request *r, int status, const char *why);
void sy_sched_end_hopeless(struct sy_sched *s); /* all waiting requests, once no worker is left */

/* ---- sched_keep.c (S8): an interrupted request leaves the device, and comes back to it ---- */
void sy_sched_leave_device(struct sy_sched *s, struct request *r);
bool sy_sched_would_keep(struct sy_sched *s, const struct request *urgent);
void sy_sched_keep_workspace(struct sy_sched *s, struct request *r);
void sy_sched_take_up_workspace(struct sy_sched *s, struct request *r);
void sy_sched_forget_workspace(struct sy_sched *s, struct request *r);
bool sy_sched_release_workspace(struct sy_sched *s); /* one, for room; false: there is none */
bool sy_sched_give_workspaces(
    struct sy_sched *s); /* all; only when nothing has started (S7). False: there were none */
void sy_sched_give_workspace_lane(struct sy_sched *s,
                                  struct slice *c); /* S7: only when nothing has started */

/* ---- sched_hold.c (S12, S13) ---- */
/* While `r` is started, `j` stands still: they share a slice, or S12. */
bool sy_sched_holds(const struct request *r, const struct job *j);
bool sy_sched_is_held_elsewhere(const struct sy_sched *s, const struct job *j); /* S12 */
bool sy_sched_job_is_held(const struct sy_sched *s, const struct job *j);
void sy_sched_forget_exclusive(struct sy_sched *s, int model);
bool sy_sched_is_blocked(const struct sy_sched *s, const struct job *j); /* it may have no turns */
void sy_sched_sync_blocked(struct sy_sched *s, const struct job *j);     /* tells the policy */
/* Jobs that are to stand still are told so, others that they go on. True if some job had to be preempted. */
bool sy_sched_hold_training(struct sy_sched *s);
bool sy_sched_hold_training_for(struct sy_sched *s, const struct request *r);
bool sy_sched_stands_still(const struct job *j);
bool sy_sched_training_still_for(const struct sy_sched *s, const struct slice *c);
bool sy_sched_training_still(const struct sy_sched *s);
void sy_sched_step_lending(struct sy_sched *s);
bool sy_sched_fill_holds(const struct sy_sched *s, const struct job *j);

/* ---- sched_start.c: puts a request's memory in place ---- */
int sy_sched_start(struct sy_sched *s, struct request *r, bool prefetch); /* EBUSY: not now */
int sy_sched_complete(struct sy_sched *s, struct request *r);
void sy_sched_give_up_run(struct sy_sched *s,
                          struct request *r); /* it was loaded; its worker forgets it */
void sy_sched_unpin(struct sy_sched *s, struct request *r);
/* S9 */
void sy_sched_step_fetch(struct sy_sched *s);
void sy_sched_drop_fetch(struct sy_sched *s, bool image_too); /* its model is being evicted */
void sy_sched_end_fetch(struct sy_sched *s); /* its worker and its reads are through */

/* ---- sched_model.c ---- */
void sy_sched_drop_idle_models(struct sy_sched *s); /* nothing has started */
void sy_sched_workspaces_lost(struct sy_sched *s, int worker);

/* ---- sched_job.c ---- */
void sy_sched_let_in(struct sy_sched *s); /* jobs that wait for memory */
void sy_sched_join_lanes(struct sy_sched *s, struct job *j);
int sy_sched_join_policy(struct sy_sched *s, struct job *j);
/* The job has so many iterations behind it. */
void sy_sched_note_progress(struct sy_sched *s, struct job *j, uint64_t iterations_done);
/* The scheduler ends it by itself. */
void sy_sched_refuse_job(struct sy_sched *s, struct job *j, int status, const char *why);
void sy_sched_remove_job(struct sy_sched *s, struct job *j); /* all that it had is free at once */
void sy_sched_free_jobs(struct sy_sched *s);
bool sy_sched_jobs_are_valid(const struct sy_sched *s);

/* ---- sched_spill.c ---- */
void sy_sched_spilled_join_lanes(struct sy_sched *s); /* those that may wait for memory again */
void sy_sched_step_spills(struct sy_sched *s);
void sy_sched_spill(struct sy_sched *s,
                    struct job *j); /* may be spilled, runs, has no turn; no trip is under way */

/* ---- sched_leave.c ---- */
void sy_sched_step_leaving(struct sy_sched *s);
/* Its persistent state moves by snapshot, not in memory, once it has one. */
void sy_sched_leave_for_team(struct sy_sched *s, struct job *j);

/* ---- sched_slice.c ---- */
int sy_sched_make_slice(struct sy_sched *s, struct slice *c); /* its queues */
void sy_sched_drop_slices(struct sy_sched *s); /* closed ones, where nothing is left */
/* Now `r`, the head of `c`'s queue, has to wait for what other slices do. */
bool sy_sched_must_wait(const struct sy_sched *s, const struct slice *c, const struct request *r);
void sy_sched_move_jobs(struct sy_sched *s); /* between turns, to where they want to be */

/* ---- sched_share.c ---- */
void sy_sched_share_pass(const struct sy_sched *s, struct slice *c, sy_ns from, sy_ns to);
sy_ns sy_sched_share_wake_at(const struct sy_sched *s, const struct slice *c);
/* After anything that may have changed which requests are ready, before one is asked for. */
void sy_sched_share_follow(struct sy_sched *s);
void sy_sched_share_predict(struct slice *c, unsigned permille); /* with so much of it for jobs */

/* ---- sched_turns.c ---- */
void sy_sched_step_jobs(struct sy_sched *s);

/* ---- sched_step.c ---- */
void sy_sched_step(struct sy_sched *s); /* does all that can be done now */
void sy_sched_interrupt(struct sy_sched *s, struct request *r);

/* ---- sched_end.c ---- */
void sy_sched_job_lost(struct sy_sched *s, int worker, const struct sy_sched_loss *loss);

#endif

/* Internal declarations, shared by the scheduler's files. */
#ifndef SY_SCHED_SCHED_INTERNAL_H
#define SY_SCHED_SCHED_INTERNAL_H

#include "runtime/sched/sched.h"

#define SY_SCHED_MAX_MODELS  256
#define SY_SCHED_MAX_WORKERS 64
/* Workspaces remembered per model, by batch and sizes; the least recently used is replaced. */
#define SY_SCHED_WORKSPACES  32
#define SY_SCHED_ALL_WORKERS UINT64_MAX
#define SY_SCHED_RECENT_RUNS 16

enum worker_use { WORKER_AWAY, WORKER_IDLE, WORKER_REQUEST, WORKER_JOB, WORKER_GONE };

struct workspace {
    int64_t batch; /* 0: unused entry */
    int team;
    uint64_t sizes, bytes;
    /* bit mask of the workers that are ready for it; ALL: every worker keeps it ready */
    uint64_t workers;
    uint64_t used;
};

struct model {
    bool used;
    int n_groups, n_requests; /* n_requests: those that have not ended */
    uint64_t *group_bytes;    /* bytes in the image */
    /* bytes in the pool: 0 for groups that are read in the image; same allocation as group_bytes */
    uint64_t *pool_bytes;
    bool has_direct;
    uint64_t largest_bytes; /* largest group in the pool */
    uint64_t least_bytes;   /* largest group and smallest workspace */
    struct workspace workspaces[SY_SCHED_WORKSPACES];
    int slice;
    uint64_t apart[SY_SCHED_MAX_MODELS / 64]; /* S12: models that do not compute beside it */
};

struct request {
    struct request *next; /* in the list of waiting requests */
    uint64_t id, run;
    int model, worker, deaths, slice;
    int team; /* the slice's team when the workspace size was determined */
    int64_t batch;
    uint64_t sizes;
    struct sy_duration duration;
    bool preparing;
    uint64_t workspace_bytes; /* known before the request starts */
    /* valid from its start on */
    struct sy_group_place *places, *image_places;
    bool *pool_arrived, *image_arrived;
    int n_loaded, n_reads;
    bool prefetched; /* its groups are loaded while another request computes */
    bool pool_pinned, image_pinned, run_sent, restarting, worker_through, ended;
    bool canceled;           /* canceled while it was started: ends when its worker has finished */
    bool interrupted;        /* interrupted by S8, or canceled */
    int next_layer;          /* layer to resume at; 0: from the beginning */
    struct sy_duration left; /* remaining duration from there */
    int first_layer;         /* layer at which its last run began */
    /* a run of it stopped within the layer at which it began: interrupted again and again it would make no progress (Q5) */
    bool lost_layer;
    /* its workspace, kept while others compute: place, bytes, and number in the order in which workspaces were kept */
    uint64_t kept_offset, kept_bytes, kept_at;
    bool compacted; /* lanes were compacted for it once */
    /* it is at the head, and other slices' requests have to leave their places for it (S12) */
    bool wants_room;
    bool dropped, image_dropped; /* of a fetch: its groups are evicted again */
};

/* From PREPARED on the sizes are known, and the job is in the lanes: waiting or admitted. */
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
    int team; /* of its slice when the job was prepared (the first time, if the job cannot move) */
    bool was_prepared;
    int slice, wanted_slice; /* wanted_slice: takes effect at the next boundary */
    int lent;                /* S13: slice lent to it from the next boundary on; -1: none */
    bool resized;            /* its slice was resized since its turn began */
    uint64_t apart[SY_SCHED_MAX_MODELS / 64]; /* S12: models that it is paused for */
    bool preempted, still, stop_wanted, suspended;
    bool in_lanes, admitted, in_memory; /* in_lanes: from JOB_PREPARED to its end */
    bool in_spill;        /* its whole persistent state is in host memory; excludes in_memory */
    bool has_turn, keeps; /* STARTING also has the turn */
    bool in_policy, opportunistic, moves;
    bool cannot_spill; /* its last spill failed: it is not asked again before spill_again_ns */
    sy_ns spill_again_ns, spill_pause_ns; /* spill_pause_ns: the next failure's, twice the last */
    bool for_team; /* LEAVING in order to change to another team, with a snapshot */
    uint64_t persistent_bytes, ephemeral_bytes, persistent_offset;
    uint64_t total_iterations, iterations_done;
};

/* Training's guaranteed share of the time (rule in sched_share.c). */
struct train_share {
    unsigned permille;
    int64_t credit_ns;
    bool first;         /* training goes first: requests wait */
    unsigned predicted; /* per mille: what predictions reserve for training */
    sy_ns used_at_ns;   /* when training last could use its share */
    sy_ns from_ns;      /* credit accrues from then on */
};

/* A part of the device's compute, where one task computes at a time (S11). */
struct slice {
    struct sy_admission *admission;
    struct request *active, *next;
    uint64_t lane_offset, lane_bytes;
    uint64_t recent[SY_SCHED_RECENT_RUNS]; /* workspace sizes of the last runs, a ring */
    unsigned n_runs;
    struct sy_policy *policy;
    struct train_share share;
    sy_ns policy_wake_ns;
    int team; /* team (sy_sched_slice_resized): programs are prepared for one team */
};

struct sy_sched {
    struct slice slices[SY_SCHED_MAX_SLICES];
    int n_slices, n_made;  /* the first n_slices accept work; those behind them are closing */
    int first_slice;       /* the slice whose jobs are asked first for a turn */
    struct slice *placing; /* the slice whose request is being placed */
    struct sy_sched_config config;
    struct sy_pool *pool, *image;
    struct sy_residency *pool_residency, *image_residency; /* image_residency: NULL when unified */
    enum worker_use workers[SY_SCHED_MAX_WORKERS];
    int n_preparing
        [SY_SCHED_MAX_WORKERS]; /* unanswered PREPAREs per worker; workers without one are preferred */
    int n_loading[SY_SCHED_MAX_WORKERS]; /* sy_sched_worker_loads */
    struct model models[SY_SCHED_MAX_MODELS];
    /* the waiting ones are unordered (admission keeps the order); active ones are in their slices */
    struct request *waiting;
    int n_waiting;
    struct request *fetch; /* S9: a run without a request */
    uint64_t last_run, last_use;
    uint64_t last_kept;
    struct job *jobs; /* in order of arrival */
    struct sy_lanes *lanes;
    struct sy_quotas quotas;
    /* a job could be admitted once nothing has started: prefetching stops meanwhile */
    bool admitting;
    bool admission_stuck; /* that job could not be admitted; reset when jobs or models change */
    bool compacting;      /* a request waits for all lanes to be empty, so that they can be moved */
    bool any_hard;        /* some tenant has a hard share: no job keeps its turn */
    bool jobs_held;       /* sy_sched_hold_jobs */
    bool fill_held;       /* sy_sched_hold_opportunistic */
    sy_ns now;
    struct sy_sched_action *actions; /* a ring buffer */
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
/* An idle worker without another PREPARE, preferably one that is ready for `r` (*ready); -1: none is idle. */
int sy_sched_worker_for(struct sy_sched *s, const struct request *r, bool *ready);
/* The known workspace of runs with this batch and these sizes; NULL: unknown. */
struct workspace *sy_sched_find_workspace(struct sy_sched *s, int model, int64_t batch,
                                          uint64_t sizes, int team);
int sy_sched_team_of(const struct sy_sched *s, int model); /* of requests that arrive now */
/* ENOMEM_DEVICE with the sizes: the workspace and the largest group cannot fit into the pool in any state. */
int sy_sched_check_room(const struct sy_sched *s, const struct request *r);
bool sy_sched_are_exclusive(const struct sy_sched *s, int model, int other);
int sy_sched_open_slice(const struct sy_sched *s, int wanted); /* 0 if there is no such slice */
struct slice *sy_sched_slice_of(const struct sy_sched *s, const struct request *r);
bool sy_sched_others_started(const struct sy_sched *s, const struct slice *c);
/* The worker that computes a request there, or -1. */
int sy_sched_computing_in(const struct slice *c);
bool sy_sched_trains_in(const struct sy_sched *s, const struct slice *c);
/* Whether some job can compute there. */
bool sy_sched_training_is_ready(const struct sy_sched *s, const struct slice *c);
uint64_t sy_sched_job_bytes(const struct sy_sched *s); /* bytes of the pool held by training jobs */
uint64_t sy_sched_lane_bytes(const struct sy_sched *s); /* bytes of all slices' workspaces */
/* Bytes held by interrupted requests (S8). */
uint64_t sy_sched_kept_bytes(const struct sy_sched *s);
struct job *sy_sched_job_by_id(const struct sy_sched *s, uint64_t id); /* NULL: none */
uint64_t sy_sched_job_rank(const struct job *j); /* sort key in the lanes' queue */
/* EPROTO if `worker` does not have the job. */
int sy_sched_find_job(struct sy_sched *s, int worker, uint64_t id, struct job **out);
int sy_sched_slice_wanted(const struct job *j); /* its home slice, or the one lent to it */
/* A ready job of another slice needs the same lane for its iteration. */
bool sy_sched_lane_is_wanted(const struct sy_sched *s, const struct job *j);
/* All workers but the one reserved for requests. */
bool sy_sched_jobs_hold_workers(const struct sy_sched *s);
struct job *sy_sched_next_for_worker(const struct sy_sched *s); /* NULL: none waits for one */
bool sy_sched_may_leave(const struct job *j);                   /* may release its worker */
int sy_sched_n_lacking(const struct sy_sched *s);
/* A guaranteed job waits for a worker that an opportunistic job has to release, and no release is in progress. */
bool sy_sched_worker_is_wanted(const struct sy_sched *s);
bool sy_sched_guaranteed_waits_for_memory(const struct sy_sched *s);
/* It has memory in the pool that spilling would free, and needs a worker for that. */
bool sy_sched_may_be_spilled(const struct job *j);
bool sy_sched_trip_is_under_way(const struct sy_sched *s); /* a spill or restore */

/* ---- sched_queue.c ---- */
struct sy_sched_action *sy_sched_act(struct sy_sched *s, enum sy_sched_kind kind);
struct sy_sched_action *sy_sched_act_run(struct sy_sched *s, enum sy_sched_kind kind,
                                         const struct request *r);
struct sy_sched_action *sy_sched_act_job(struct sy_sched *s, enum sy_sched_kind kind,
                                         const struct job *j);
int sy_sched_make_request(const struct sy_sched *s, const struct sy_sched_request *wants,
                          struct request **out);
void sy_sched_free_request(struct request *r);
/* The next request of the slice, among the waiting ones and the prefetched one. NULL: none. */
struct request *sy_sched_head(const struct sy_sched *s, const struct slice *c);
void sy_sched_push(struct sy_sched *s, struct request *r);   /* the request waits (again) */
void sy_sched_unlink(struct sy_sched *s, struct request *r); /* the request no longer waits */
void sy_sched_drop_waiting(struct sy_sched *s, struct request *r, int status, const char *why);
void sy_sched_end(struct sy_sched *s, struct request *r, int status, const char *why);
/* Ends all waiting requests once no worker is left. */
void sy_sched_end_hopeless(struct sy_sched *s);

/* ---- sched_keep.c (S8): an interrupted request leaves the device, and comes back to it ---- */
void sy_sched_leave_device(struct sy_sched *s, struct request *r);
bool sy_sched_would_keep(struct sy_sched *s, const struct request *urgent);
void sy_sched_keep_workspace(struct sy_sched *s, struct request *r);
void sy_sched_take_up_workspace(struct sy_sched *s, struct request *r);
void sy_sched_forget_workspace(struct sy_sched *s, struct request *r);
/* Frees one workspace for room; false: none was left. */
bool sy_sched_release_workspace(struct sy_sched *s);
/* Frees all; only when nothing has started (S7). False: there were none. */
bool sy_sched_give_workspaces(struct sy_sched *s);
/* S7: only when nothing has started */
void sy_sched_give_workspace_lane(struct sy_sched *s, struct slice *c);

/* ---- sched_hold.c (S12, S13) ---- */
/* `j` is paused while `r` is started: they share a slice, or S12 separates them. */
bool sy_sched_holds(const struct request *r, const struct job *j);
bool sy_sched_is_held_elsewhere(const struct sy_sched *s, const struct job *j); /* S12 */
bool sy_sched_job_is_held(const struct sy_sched *s, const struct job *j);
void sy_sched_forget_exclusive(struct sy_sched *s, int model);
bool sy_sched_is_blocked(const struct sy_sched *s,
                         const struct job *j);                       /* the job may have no turns */
void sy_sched_sync_blocked(struct sy_sched *s, const struct job *j); /* updates the policy */
/* Pauses the jobs that must pause and resumes the others. True if some job had to be preempted. */
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
/* The request was loaded; its worker drops it. */
void sy_sched_give_up_run(struct sy_sched *s, struct request *r);
void sy_sched_unpin(struct sy_sched *s, struct request *r);
/* S9 */
void sy_sched_step_fetch(struct sy_sched *s);
void sy_sched_drop_fetch(struct sy_sched *s,
                         bool image_too);    /* because its model is being evicted */
void sy_sched_end_fetch(struct sy_sched *s); /* when its worker and its reads have finished */

/* ---- sched_model.c ---- */
void sy_sched_drop_idle_models(struct sy_sched *s); /* only when nothing has started */
void sy_sched_workspaces_lost(struct sy_sched *s, int worker);

/* ---- sched_job.c ---- */
void sy_sched_let_in(struct sy_sched *s); /* admits jobs that wait for memory */
void sy_sched_join_lanes(struct sy_sched *s, struct job *j);
int sy_sched_join_policy(struct sy_sched *s, struct job *j);
/* The job has completed this many iterations. */
void sy_sched_note_progress(struct sy_sched *s, struct job *j, uint64_t iterations_done);
/* The scheduler ends the job on its own initiative. */
void sy_sched_refuse_job(struct sy_sched *s, struct job *j, int status, const char *why);
/* All its resources are free at once. */
void sy_sched_remove_job(struct sy_sched *s, struct job *j);
void sy_sched_free_jobs(struct sy_sched *s);
bool sy_sched_jobs_are_valid(const struct sy_sched *s);

/* ---- sched_spill.c ---- */
void sy_sched_spilled_join_lanes(struct sy_sched *s); /* those that may wait for memory again */
void sy_sched_step_spills(struct sy_sched *s);
/* The job may be spilled, runs and has no turn; no spill or restore is in progress. */
void sy_sched_spill(struct sy_sched *s, struct job *j);
void sy_sched_spill_failed(struct sy_sched *s, struct job *j);
bool sy_sched_spills_pass(struct sy_sched *s); /* whether one may be asked again from now on */
sy_ns sy_sched_spills_wake_at(const struct sy_sched *s); /* 0: none is to be asked again */

/* ---- sched_leave.c ---- */
void sy_sched_step_leaving(struct sy_sched *s);
/* The job changes to another team: its state moves by snapshot, not in memory, once a snapshot exists. */
void sy_sched_leave_for_team(struct sy_sched *s, struct job *j);

/* ---- sched_slice.c ---- */
int sy_sched_make_slice(struct sy_sched *s, struct slice *c); /* allocates its queues */
void sy_sched_drop_slices(struct sy_sched *s);                /* closed slices that are empty */
/* `r`, the head of `c`'s queue, has to wait for other slices now. */
bool sy_sched_must_wait(const struct sy_sched *s, const struct slice *c, const struct request *r);
void sy_sched_move_jobs(struct sy_sched *s); /* between turns, to the slices they want */

/* ---- sched_share.c ---- */
void sy_sched_share_pass(const struct sy_sched *s, struct slice *c, sy_ns from, sy_ns to);
sy_ns sy_sched_share_wake_at(const struct sy_sched *s, const struct slice *c);
/* Call after any change to which requests are ready, before choosing one. */
void sy_sched_share_follow(struct sy_sched *s);
void sy_sched_share_predict(struct slice *c, unsigned permille); /* reserves this share for jobs */

/* ---- sched_turns.c ---- */
void sy_sched_step_jobs(struct sy_sched *s);

/* ---- sched_step.c ---- */
void sy_sched_step(struct sy_sched *s); /* performs everything that can be done now */
void sy_sched_interrupt(struct sy_sched *s, struct request *r);

/* ---- sched_end.c ---- */
void sy_sched_job_lost(struct sy_sched *s, int worker, const struct sy_sched_loss *loss);

#endif

/* A model of the world around the scheduler: workers, reads, jobs and their memory, as the scheduler's actions change them. It checks
 * the promises of sched.h after each action; a promise that is broken fails the test. */
#ifndef SY_TESTS_FAKES_SCHED_WORLD_H
#define SY_TESTS_FAKES_SCHED_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/sched/sched.h"

#define MIB       (1ull << 20)
#define N_WORKERS 4
#define N_MODELS  5
#define MAX_IDS   4096
#define MAX_BATCH 8
#define MAX_SIZES 16
#define CELL      (MIB / 2) /* all sizes here are multiples of it */
#define MAX_CELLS 1024

enum worker_doing {
    AWAY,
    IDLE,
    LOADED,
    RUNNING,
    CANCELING,
    PREPARING_JOB,
    JOB_READY,
    LEAVING,
    SPILLED, /* its memory is nobody's */
    STARTING_JOB,
    SPILLING,
    RETURNING,
    WAITING_TURN,
    TRAINING
};

struct world {
    uint64_t pool_bytes;
    struct sy_sched *s;
    bool unified;
    enum worker_doing workers[N_WORKERS];
    uint64_t run_of[N_WORKERS], job_of[N_WORKERS], request_of[N_WORKERS];
    int deaths[MAX_IDS];
    int slice_of[N_WORKERS], model_of[N_WORKERS]; /* of what it runs, or trains */
    uint64_t workspace_at[N_WORKERS], workspace_bytes[N_WORKERS];
    uint64_t teams[N_WORKERS][N_MODELS][MAX_BATCH + 1][MAX_SIZES]; /* bits: prepared for */
    bool apart[N_MODELS][N_MODELS], job_apart[MAX_IDS][N_MODELS];
    bool moves[MAX_IDS];      /* jobs that leave for another team */
    bool for_team[N_WORKERS]; /* LEAVING */
    bool snapshots_fail;      /* of jobs that leave for another team */
    int most_at_once, n_left_for_team, n_without_snapshot;
    int team_of[MAX_IDS];                   /* jobs' */
    uint64_t log;                           /* a hash of all actions, in their order */
    bool held[N_WORKERS], still[N_WORKERS]; /* the epoch is odd; training has seen it */
    bool keeps[N_WORKERS];                  /* the turn, over iterations */
    uint64_t iterations[MAX_IDS];           /* of each job */
    uint64_t persistent[MAX_IDS], persistent_at[MAX_IDS];
    uint64_t turn_at[N_WORKERS], ephemeral[MAX_IDS];
    sy_ns now;
    int n_turns, n_yields, n_interrupts;
    bool fetching[N_WORKERS];
    int n_fetches, n_fetched;
    bool interrupted[N_WORKERS], mixed; /* mixed: requests of several classes */
    uint64_t content
        [MAX_CELLS]; /* of the pool: the request that computed there last; 0: something else */
    int stops_at, stopped_at[MAX_IDS]; /* layers; stops_at 0: any */
    struct sy_duration left;           /* what is said to be left from there on */
    int n_continued;
    uint64_t job_mib; /* 0: any */
    bool opportunistic[MAX_IDS], next_is_opportunistic;
    int n_spills, n_left, n_left_spilled;
    bool away[MAX_IDS];            /* in host memory, whole; nowhere else */
    sy_ns spill_again[MAX_IDS];    /* a spill of it failed: not before then */
    sy_ns spill_pause[MAX_IDS];    /* that followed its last failure */
    bool spills_work, spills_fail; /* none fails; all do */
    bool kept[MAX_IDS];            /* on no worker; its persistent part keeps its place */
    bool no_progress;              /* jobs whose workers die had finished no iteration on them */
    int n_ends[MAX_IDS], end_status[MAX_IDS];
    uint64_t started_order, last_started; /* FIFO */
    struct {
        uint64_t run;
        int first, n;
        bool canceled;
    } reads[16];
    int n_reads;
    struct {
        int worker, model;
        int64_t batch;
        uint64_t sizes;
        int team;
    } prepares[256];
    int n_prepares, n_prepared;
    bool everywhere[N_MODELS][MAX_BATCH + 1]; /* workers prepare it whenever they start */
    bool ready[N_WORKERS][N_MODELS][MAX_BATCH + 1][MAX_SIZES]; /* for what the worker prepared */
    uint64_t stop_job[N_WORKERS];
    bool loaded_without_run[N_WORKERS];
    int refused_job_status;
    uint64_t next_request, next_job, jobs_refused;
    bool check_fifo, check_spills;
    int n_runs, n_loads, n_preempts, n_resumes;
    uint64_t random;
};

extern const uint64_t world_model_groups[N_MODELS];

/* N_MODELS models, N_WORKERS idle workers. Odd seeds fetch heads. Whoever made it destroys w->s. */
void world_make(struct world *w, bool unified, uint64_t pool_mib, uint64_t seed);
uint64_t world_pick(struct world *w, uint64_t n); /* random: 0 .. n - 1 */

/* Takes the scheduler's actions, one after the other, until it has none. After each call that may have made some. */
void world_settle(struct world *w);
bool world_trains(const struct world *w); /* some job computes */
int world_n_running(const struct world *w);
int world_n_at_once(const struct world *w); /* requests and jobs that compute now */

/* Events, each with what follows. */
void world_request(struct world *w, int model, int64_t batch); /* of the usual sizes */
void world_sized_request(struct world *w, int model, int64_t batch, uint64_t sizes);
/* Workspace of such a run. */
uint64_t world_workspace_bytes(int64_t batch, uint64_t sizes);
/* As every worker says at its start. */
void world_all_prepared(struct world *w, int model, int64_t batch);
void world_submit_job(struct world *w);
/* A job of 20 MiB, until it trains. */
void world_start_training(struct world *w);
void world_finish_read(struct world *w, int i, bool ok);
void world_finish_run(struct world *w, int worker, int status);
/* The next thing that the worker's job does; false: there is none. */
bool world_advance_job(struct world *w, int worker);
void world_end_job(struct world *w, int worker);
void world_lose_worker(struct world *w, int worker);
/* One thing that is on its way happens; false: nothing is on its way. */
bool world_deliver(struct world *w, bool may_fail);
/* Until every request has its one end. */
void world_drain(struct world *w);

#endif

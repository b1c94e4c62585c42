/* Scheduling policies of training jobs (Salus): which job runs the next iteration, and on which lane. Pure: time is an argument.
 *
 *   events (joined, done, blocked, left ...) ──> policy ──> sy_policy_next: this job, on its lane
 *
 * | policy   | next is                                              | at once | a ready job waits at most |
 * |----------|------------------------------------------------------|---------|---------------------------|
 * | fifo     | first come, first served                             | 1       | for those that came before |
 * | srtf     | least remaining iterations x measured iteration time | 1       | max_wait_ns + n x L       |
 * | pack     | of each lane, the least recently run                 | lanes   | (n-1) x L, n of its lane  |
 * | fair     | least device time since it joined                    | 1       | 2 x (n-1) x L             |
 * | rr       | the least recently run                               | 1       | (n-1) x L                 |
 * | weighted | least time ÷ weight of tenants, then of its jobs     | 1       | see P4                    |
 * | priority | most urgent; among equals the least recently run     | 1       | max_wait_ns + n x L       |
 * | las      | least device time so far                             | 1       | max_wait_ns + n x L       |
 *
 * n jobs, L the longest iteration. "At once" is what `n_parallel` 0 means; any other number may be set.
 *
 * P1: a lane has at most one iteration at a time, and all lanes together at most n_parallel.
 * P2: work conserving: if a ready job's lane is free and fewer than n_parallel run, some job is next (P5 aside). A
 *     blocked job keeps no other waiting.
 * P3: with max_wait_ns, a job that was ready and did not run for that long gets the next iteration, longest wait first.
 * P4: fair and weighted count device time from when a job joined or came back, the policy was chosen, or a tenant got its hard share: an absent job
 *     earns no claim to what others used meanwhile, and no debt. A tenant's lag behind its share is at most L x (1 + the sum of weights ÷ its
 *     weight).
 * P5: no iteration of a tenant with a hard share begins while the tenant has used more than that share of the device since it came; it may
 *     catch up on at most one second that it missed.
 * P6: equal calls give equal answers. */
#ifndef SY_SCHED_POLICY_H
#define SY_SCHED_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/sched/policies/policy_table.h"

const char *sy_policy_name(enum sy_policy_kind kind);
const char *sy_policy_text(enum sy_policy_kind kind); /* The policy's order in words. */
/* EARG lists the policy names. */
int sy_policy_parse(const char *text, enum sy_policy_kind *out);

struct sy_policy;

#define SY_POLICY_MAX_TENANTS 256

struct sy_policy_config {
    enum sy_policy_kind kind;
    int max_jobs;      /* 1..4096 */
    int n_parallel;    /* 0: the policy's default */
    sy_ns max_wait_ns; /* P3; 0: off */
};

struct sy_policy_job {
    uint64_t id;
    int lane; /* 0..max_jobs-1; jobs on one lane take turns */
    int tenant;
    int priority; /* smaller is more urgent */
    /* 0: not known; srtf schedules such jobs after those with a known number */
    uint64_t iterations_left;
    sy_ns iteration_ns; /* 0: not known; srtf runs the job once to measure it */
};

/* EARG, ENOMEM_HOST. */
int sy_policy_create(const struct sy_policy_config *config, struct sy_policy **out);
void sy_policy_destroy(struct sy_policy *p); /* NULL is fine */

/* Takes effect with the next decision; running iterations continue. EARG. */
int sy_policy_set(struct sy_policy *p, enum sy_policy_kind kind, int n_parallel, sy_ns max_wait_ns);
/* Copies to a policy without jobs all that sy_policy_set and sy_policy_set_tenant have set in `from`. */
void sy_policy_copy_rules(struct sy_policy *p, const struct sy_policy *from);
/* weight: at least 1 (the default). hard_permille: upper bound of the tenant's device time, also when the device is idle (P5); 0: elastic: any tenant may use
 * the time that others leave idle. EARG. */
int sy_policy_set_tenant(struct sy_policy *p, int tenant, unsigned weight, unsigned hard_permille);

/* The job is ready from now on. EBUSY: full; EARG: id in use, lane, tenant. */
int sy_policy_join(struct sy_policy *p, const struct sy_policy_job *job, sy_ns now);
/* Moves the job with its statistics: device time so far, iteration time, iterations left. EBUSY, EARG as for join: then it stays where it was. ENOTFOUND. */
int sy_policy_move(struct sy_policy *from, struct sy_policy *to, uint64_t job, sy_ns now);
/* Removes the job in any state. The functions below return ENOTFOUND for an unknown job. */
int sy_policy_leave(struct sy_policy *p, uint64_t job);
/* Blocked: the job has nothing to run now (it waits for data or its client, or is paused). Its current iteration may still be running. */
int sy_policy_block(struct sy_policy *p, uint64_t job, bool blocked, sy_ns now);
/* EARG while the job runs. */
int sy_policy_set_lane(struct sy_policy *p, uint64_t job, int lane);
int sy_policy_set_priority(struct sy_policy *p, uint64_t job, int priority);
int sy_policy_set_left(struct sy_policy *p, uint64_t job, uint64_t iterations_left);

/* True: *job begins an iteration on its lane now, and counts as running. False: no job does; *again_ns is when to ask again if
 * nothing happens before (P5), or 0. Ask until it gives false, after every event. Linear in the jobs. */
bool sy_policy_next(struct sy_policy *p, sy_ns now, uint64_t *job, sy_ns *again_ns);
/* The iteration is over; `ns` is the device time that it took, without the time that it was paused. EARG: it does not run. */
int sy_policy_done(struct sy_policy *p, uint64_t job, sy_ns ns, sy_ns now);
/* As sy_policy_done, for `n` consecutive iterations that took `ns` together; 0: the job gave its turn back within an iteration. */
int sy_policy_done_many(struct sy_policy *p, uint64_t job, uint64_t n, sy_ns ns, sy_ns now);
/* The iteration did not take place or was lost: no time is charged, and the job is ready again. EARG: it does not run. */
int sy_policy_undo(struct sy_policy *p, uint64_t job);

/* ---- looking ---- */
enum sy_policy_kind sy_policy_kind(const struct sy_policy *p);
int sy_policy_n_jobs(const struct sy_policy *p);
int sy_policy_n_ready(const struct sy_policy *p); /* not blocked, running or not */
/* Whether training can use device time: a job runs, or is ready and not held back by its tenant's hard share (P5). */
bool sy_policy_can_use(const struct sy_policy *p, sy_ns now);
/* The part of the time, per mille, that training can use with the jobs that are ready now: all, or the sum of their tenants' hard shares. */
unsigned sy_policy_usable_permille(const struct sy_policy *p);
/* Device time so far; 0: no such job. */
sy_ns sy_policy_job_ns(const struct sy_policy *p, uint64_t job);
sy_ns sy_policy_tenant_ns(const struct sy_policy *p, int tenant);
/* Remaining time by measurement; UINT64_MAX: not known. */
sy_ns sy_policy_left_ns(const struct sy_policy *p, uint64_t job);

#endif

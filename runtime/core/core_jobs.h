/* Training jobs (jobs/), as the other files of the core see them. */
#ifndef SY_RUNTIME_CORE_CORE_JOBS_H
#define SY_RUNTIME_CORE_CORE_JOBS_H

#include "runtime/core/core_internal.h"

/* jobs/core_job_table.c */
struct sy_core_job *sy_core_find_job(struct sy_core *core, uint64_t id);
void sy_core_job_free(struct sy_core_job *j);
void sy_core_free_jobs(struct sy_core *core);
bool sy_core_job_is_over(const struct sy_core_job *j);
/* Status remembers the last ones that ended, and all whose files stay; jobs are in the order of their ids. */
void sy_core_jobs_forget_old(struct sy_core *core);
/* "training", "paused" ...: STATUS.md. */
const char *sy_core_job_state_name(const struct sy_core *core, const struct sy_core_job *j);
void sy_core_job_close_spill(struct sy_core_job *j); /* what was spilled is needed no more */
/* A job's longest stretch outlives the worker that had it. */
void sy_core_job_longest(struct sy_core_job *j, const struct sy_control_page *page);
void sy_core_job_look(struct sy_core *core, struct sy_core_job *job); /* from the control page */
/* Into the state folder: so they hold after a restart. */
int sy_core_job_keep_settings(struct sy_core *core, const struct sy_core_job *j, bool suspended,
                              const int *priority, const char *slice);
int sy_core_job_keep(struct sy_core *core, const struct sy_core_job *j); /* as its settings are */

/* jobs/core_jobs.c */
/* ENOTFOUND; EBUSY: it is over, or is being stopped. */
int sy_core_job_find_live(struct sy_core *core, uint64_t id, struct sy_core_job **out);
int sy_core_job_move(struct sy_core *core, uint64_t id, const char *slice);
/* Answers the clients that wait for its start, later those that wait for its end. */
void sy_core_answer_start(struct sy_core_job *j, int status, const char *error);
void sy_core_end_job(struct sy_core *core, struct sy_core_job *j, int status, const char *error);
int sy_core_job_add(struct sy_core *core, uint64_t id, const char *text, bool enqueue,
                    struct sy_core_job **out); /* not enqueued: it gets no worker */
int sy_core_job_enqueue(struct sy_core *core, const struct sy_core_job *j);
void sy_core_job_lost(struct sy_core *core, int worker, bool *intact, bool *progressed);
/* With fewer than two workers left, jobs that wait end with EPEER; their files stay for the next start. */
void sy_core_end_hopeless_jobs(struct sy_core *core);
void sy_core_job_computes(struct sy_core *core, struct sy_core_job *j, sy_ns at);
void sy_core_job_stands(struct sy_core *core, struct sy_core_job *j, sy_ns at);

/* jobs/core_job_keep.c */
int sy_core_resume_jobs(struct sy_core *core);
/* The runtime stops: callers that wait for a job's start or end are answered (EBUSY). */
void sy_core_jobs_answer_left(struct sy_core *core);
/* jobs/core_job_messages.c */
int sy_core_job_message(struct sy_core *core, int worker, const struct sy_message *message);
void sy_core_act_job(struct sy_core *core, const struct sy_sched_action *a);

#endif

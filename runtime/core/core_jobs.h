/* Internal interface of training jobs (jobs/) to the core's other files. */
#ifndef SY_RUNTIME_CORE_CORE_JOBS_H
#define SY_RUNTIME_CORE_CORE_JOBS_H

#include "runtime/core/core_internal.h"

/* jobs/core_job_table.c */
struct sy_core_job *sy_core_find_job(struct sy_core *core, uint64_t id);
void sy_core_job_free(struct sy_core_job *j);
void sy_core_free_jobs(struct sy_core *core);
bool sy_core_job_is_over(const struct sy_core_job *j);
/* Forgets jobs so that the status keeps the last ones that ended and all whose files remain; the list is ordered by id. */
void sy_core_jobs_forget_old(struct sy_core *core);
/* The state's name, such as "training" or "paused": STATUS.md. */
const char *sy_core_job_state_name(const struct sy_core *core, const struct sy_core_job *j);
void sy_core_job_close_spill(struct sy_core_job *j); /* the spilled state is no longer needed */
/* Saves the job's longest stretch from the control page, so that it outlives the worker. */
void sy_core_job_longest(struct sy_core_job *j, const struct sy_control_page *page);
/* Updates it from the control page. */
void sy_core_job_refresh(struct sy_core *core, struct sy_core_job *job);
/* Writes settings made at run time to the state folder, so that they survive a restart. */
int sy_core_job_keep_settings(struct sy_core *core, const struct sy_core_job *j, bool suspended,
                              const int *priority, const char *slice);
/* Stores the job with its present settings. */
int sy_core_job_keep(struct sy_core *core, const struct sy_core_job *j);

/* jobs/core_jobs.c */
/* ENOTFOUND; EBUSY: it is over, or is being stopped. */
int sy_core_job_find_live(struct sy_core *core, uint64_t id, struct sy_core_job **out);
int sy_core_job_move(struct sy_core *core, uint64_t id, const char *slice);
/* Answers the clients that wait for its start, later those that wait for its end. */
void sy_core_answer_start(struct sy_core_job *j, int status, const char *error);
void sy_core_end_job(struct sy_core *core, struct sy_core_job *j, int status, const char *error);
/* The job is not enqueued, so it gets no worker. */
int sy_core_job_add(struct sy_core *core, uint64_t id, const char *text, bool enqueue,
                    struct sy_core_job **out);
int sy_core_job_enqueue(struct sy_core *core, const struct sy_core_job *j);
void sy_core_job_lost(struct sy_core *core, int worker, bool *intact, bool *progressed);
/* With fewer than two workers left, waiting jobs end with EPEER; their files stay for the next start. */
void sy_core_end_hopeless_jobs(struct sy_core *core);
void sy_core_job_compute_begin(struct sy_core *core, struct sy_core_job *j, sy_ns at);
void sy_core_job_compute_end(struct sy_core *core, struct sy_core_job *j, sy_ns at);

/* jobs/core_job_keep.c */
int sy_core_resume_jobs(struct sy_core *core);
/* The runtime stops: answers callers that wait for a job's start or end (EBUSY). */
void sy_core_jobs_answer_left(struct sy_core *core);
/* jobs/core_job_messages.c */
int sy_core_job_message(struct sy_core *core, int worker, const struct sy_message *message);
void sy_core_act_job(struct sy_core *core, const struct sy_sched_action *a);

#endif

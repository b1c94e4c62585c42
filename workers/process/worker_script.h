/* A worker whose job is a foreign process: carries out the runtime's messages to a training worker on a script (workers/torch/script_job.h).
 *
 * To the runtime it is a job like any other, except that its memory is the script's own: the persistent part is a lease on pool bytes that stay unused, the
 * script itself spills, and the ephemeral part is empty. So a turn may end between any two operators; it ends at an iteration's end, or after
 * SY_SCRIPT_TURN_NS if no step is counted. */
#ifndef SY_WORKERS_PROCESS_WORKER_SCRIPT_H
#define SY_WORKERS_PROCESS_WORKER_SCRIPT_H

#include "workers/process/worker_internal.h"
#include "workers/torch/script_job.h"

#define SY_SCRIPT_TURN_NS SY_NS_PER_S

/* The messages of the same name. The status is that of the control socket. */
/* link: to its `switchyard run`; a callee that takes it over sets -1. */
int sy_worker_script_prepare(struct sy_worker *w, const struct sy_msg_job_prepare *msg, int *link);
int sy_worker_script_start(struct sy_worker *w, const struct sy_msg_job_start *msg);
int sy_worker_script_turn(struct sy_worker *w, const struct sy_msg_job_turn *msg);
int sy_worker_script_spill(struct sy_worker *w, const struct sy_msg_job_spill *msg);
int sy_worker_script_return(struct sy_worker *w, const struct sy_msg_job_return *msg);
int sy_worker_script_leave(struct sy_worker *w, const struct sy_msg_job_leave *msg);
int sy_worker_script_stop(struct sy_worker *w, const struct sy_msg_job_stop *msg);
/* Looks at the epoch and at the script; waits a few ms for either to change. */
int sy_worker_script_advance(struct sy_worker *w);
/* On SHUTDOWN: the job ends here, the script goes on without it. */
int sy_worker_script_detach(struct sy_worker *w);
void sy_worker_script_forget(struct sy_worker *w);

#endif

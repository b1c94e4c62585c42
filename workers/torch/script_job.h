/* A foreign job as its worker sees it: a gate that opens and closes, and a process that steps, is paused, or ends.
 *
 *          open                     close                     look: STILL                  open
 *   RUNNING ───> script computes ───> (operators end, park) ───> nothing computes ───────────> ...
 *                                       │ grace passed
 *                                       └─> STOP to run: SIGSTOP of the process group; STOPPED comes back ──> STILL
 *
 * It knows neither the scheduler nor the messages of workers (workers/process/worker_script.c speaks those). One thread. */
#ifndef SY_WORKERS_TORCH_SCRIPT_JOB_H
#define SY_WORKERS_TORCH_SCRIPT_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"

struct sy_script_job;

struct sy_script_needs {
    uint64_t memory_bytes;        /* limit of its CPU tensors, 0: none */
    uint64_t device_memory_bytes; /* limit on each accelerator, 0: none */
    uint64_t total_steps;         /* 0: not known */
};

struct sy_script_progress {
    uint64_t step, total_steps, open_ns, used_bytes;
    double loss;
    sy_ns longest_close_ns; /* from closing to STILL */
    int hook;               /* enum sy_script_hook */
};

/* Where its large tensors are; FAILED: where they were, and why as the thread's error text. */
enum sy_script_place { SY_SCRIPT_IN, SY_SCRIPT_MOVING, SY_SCRIPT_OUT, SY_SCRIPT_FAILED };

enum sy_script_state { SY_SCRIPT_RUNNING, SY_SCRIPT_STILL, SY_SCRIPT_OVER };

/* Whether a job's text (JSON) is of a script: it has an object "script". */
bool sy_script_job_is(const char *text);
/* link: the connection to the script's `switchyard run`, taken over whatever comes of it; -1: there is none. EARG names a key, ENOTFOUND: it is gone,
 * EPROTO. */
int sy_script_job_create(const char *text, int link, struct sy_script_job **out);
/* Closes the gate and the connection; run waits for another worker then. NULL is fine. */
void sy_script_job_destroy(struct sy_script_job *job);
void sy_script_job_needs(const struct sy_script_job *job, struct sy_script_needs *out);

void sy_script_job_open(struct sy_script_job *job);
void sy_script_job_close(struct sy_script_job *job);
/* Waits up to timeout_ns for something to happen (0: not at all). STILL: the gate is closed, no operator computes and nothing that one launched; at the
 * latest a second after the grace time, whatever the script and its run do. RUNNING: else. */
enum sy_script_state sy_script_job_look(struct sy_script_job *job, sy_ns timeout_ns);
/* It is OVER because it was terminated and nothing came of it in time. */
bool sy_script_job_is_given_up(const struct sy_script_job *job);
/* How it ended, once it is OVER: SY_OK for exit status 0, else EPEER with the reason as the thread's error text. */
int sy_script_job_result(const struct sy_script_job *job);
void sy_script_job_progress(const struct sy_script_job *job, struct sy_script_progress *out);

/* The script writes its large tensors to a file of its own and gives their memory back; it is paused until they are restored (G4). The gate is closed. Look
 * until its place is OUT or FAILED; after FAILED, unspill. EUNSUPPORTED: nothing in it can do that (no memory limit, no hook, an accelerator, not
 * opportunistic). */
int sy_script_job_spill(struct sy_script_job *job);
/* They come back to where they were; opening the gate does it too. Look until the place is IN. */
void sy_script_job_unspill(struct sy_script_job *job);
/* The place does not stay MOVING for ever: FAILED once the script has not answered for a time by its size; that of a script which does not come back, too. */
enum sy_script_place sy_script_job_place(struct sy_script_job *job);
uint64_t sy_script_job_spilled_bytes(const struct sy_script_job *job);

/* Ends the script: SIGTERM, later SIGKILL. The gate is open from then on, so that it can write a checkpoint. It is OVER 3 s after the job's kill_after_s
 * (10), whatever its run does. */
void sy_script_job_terminate(struct sy_script_job *job);
/* The script goes on without a server. */
void sy_script_job_detach(struct sy_script_job *job);

#endif

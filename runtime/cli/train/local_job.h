/* A training job in this process, without a server: the same run that a worker drives, on the host engine or on a GPU. */
#ifndef SY_CLI_LOCAL_JOB_H
#define SY_CLI_LOCAL_JOB_H

#include "workers/train/train_run.h"

enum sy_huge_pages { SY_HUGE_AS_IS, SY_HUGE_ALWAYS, SY_HUGE_NEVER };

struct sy_device;
struct sy_engine_ops;
struct sy_pool_memory;
struct sy_ranks;
struct sy_stream;

struct sy_local_job {
    struct sy_train_run *run;
    struct sy_control_page *page;
    struct sy_train_needs needs;
    void *memory; /* the host's: the page, and on the host engine the job's */
    uint64_t memory_bytes;
    struct sy_device *device; /* a GPU, and what is opened on it; NULL: the host engine */
    struct sy_stream *compute;
    const struct sy_engine_ops *engine; /* attached to it */
    struct sy_pool_memory *pool;
};

/* The engine's threads wait for each other by spinning, which starves them where others want the cores too: they are to sleep after less than a
 * millisecond, as a server's workers do. libgomp reads that when it is loaded, so the process begins again, `argv` being its whole command
 * line; it returns in the new one, and where the environment says already how threads wait. */
void sy_local_job_bound_spinning(char **argv);

/* If the engine has a thread for each core that this process may use, each stays on its core, as a server's workers do; the calling thread and
 * those that it makes from then on stay on the first. Left as they are: fewer threads, which are to share the cores with other processes, and where
 * the environment says already where threads run. Errors: those of the engine's set_threads. */
int sy_local_job_pin_threads(void);

/* Memory, model, data, and the newest snapshot. Finish also after a failure. device: "cuda:N"; NULL or "host": this process's cores. ranks: that train it
 * together (workers/train/ranks.h), borrowed until finish; NULL: this process alone. */
int sy_local_job_open(const char *text, enum sy_huge_pages huge, const char *device,
                      const struct sy_ranks *ranks, struct sy_local_job *job);
/* Device memory that one of n_ranks would need; nothing stays open. */
int sy_local_job_needs(const char *text, const char *device, int n_ranks,
                       struct sy_train_needs *needs);
void sy_local_job_finish(struct sy_local_job *job);

#endif

/* A training job in this process, without a server: the same run that a worker drives, on the host engine. */
#ifndef SY_CLI_LOCAL_JOB_H
#define SY_CLI_LOCAL_JOB_H

#include "workers/train_run.h"

enum sy_huge_pages { SY_HUGE_AS_IS, SY_HUGE_ALWAYS, SY_HUGE_NEVER };

struct sy_local_job {
    struct sy_train_run *run;
    struct sy_control_page *page;
    struct sy_train_needs needs;
    void *memory;
    uint64_t memory_bytes;
};

/* Memory, model, data, and the newest snapshot. Finish also after a failure. */
int sy_local_job_open(const char *text, enum sy_huge_pages huge, struct sy_local_job *job);
void sy_local_job_finish(struct sy_local_job *job);

#endif

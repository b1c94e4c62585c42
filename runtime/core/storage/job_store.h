/* Durable state of the runtime: training jobs, one JSON file each, FOLDER/job-ID.json, and the rules that were set,
 * FOLDER/rules.json. One runtime at a time has the folder. */
#ifndef SY_RUNTIME_CORE_JOB_STORE_H
#define SY_RUNTIME_CORE_JOB_STORE_H

#include <jansson.h>
#include <stdint.h>

struct sy_job_store;

/* Makes the folder if it is missing (one level). folder NULL: nothing is kept, all calls succeed. EIO, ENOMEM_HOST; EBUSY: another
 * runtime has it, still after a second of asking (the kernel may take so long to end one that was killed). May block so long. */
int sy_job_store_open(const char *folder, struct sy_job_store **out);
void sy_job_store_close(struct sy_job_store *store); /* NULL is fine */
/* set: what was set for the job since it came (an object; borrowed, NULL: nothing); kept beside its text. What was kept for this
 * job before is replaced, or stays if this fails. */
int sy_job_store_put(struct sy_job_store *store, uint64_t job, const char *text, json_t *set);
/* Removing a missing job succeeds. EIO: the next start would resume the job. */
int sy_job_store_remove(struct sy_job_store *store, uint64_t job);
/* Calls take for each stored job, ids ascending; what it returns, if negative, ends the walk. A file that cannot be read is
 * logged and left where it is. *last: the greatest id that a file has, also one that cannot be read (0: none). */
int sy_job_store_load(struct sy_job_store *store,
                      int (*take)(void *ctx, uint64_t job, const char *text, const json_t *set),
                      void *ctx, uint64_t *last);

int sy_job_store_put_rules(struct sy_job_store *store, json_t *rules); /* borrowed */
/* The caller's, to be given to json_decref; NULL: none are kept, or the file cannot be read, which is logged. */
json_t *sy_job_store_rules(struct sy_job_store *store);

#endif

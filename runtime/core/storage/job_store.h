/* Durable state of the runtime: training jobs, one JSON file each, FOLDER/job-ID.json, and the rules that were set, FOLDER/rules.json. Only one runtime at a
 * time can open the folder. */
#ifndef SY_RUNTIME_CORE_JOB_STORE_H
#define SY_RUNTIME_CORE_JOB_STORE_H

#include <jansson.h>
#include <stdint.h>

struct sy_job_store;

/* Creates the folder if it is missing (one level). folder NULL: nothing is stored, all calls succeed. EIO, ENOMEM_HOST; EBUSY: another runtime holds the
 * folder, after retries for a second (the kernel may take so long to end a killed one). May block that long. */
int sy_job_store_open(const char *folder, struct sy_job_store **out);
void sy_job_store_close(struct sy_job_store *store); /* NULL is fine */
/* set: settings made for the job at run time (an object; borrowed, NULL: none); stored beside its text. Replaces the job's stored state, which stays if this
 * fails. */
int sy_job_store_put(struct sy_job_store *store, uint64_t job, const char *text, json_t *set);
/* Removing a missing job succeeds. EIO: the next start would resume the job. */
int sy_job_store_remove(struct sy_job_store *store, uint64_t job);
/* Calls take for each stored job, in ascending order of ids; a negative result ends the walk. An unreadable file is logged and stays in place. *last: the
 * greatest id of any file, readable or not (0: none). */
int sy_job_store_load(struct sy_job_store *store,
                      int (*take)(void *ctx, uint64_t job, const char *text, const json_t *set),
                      void *ctx, uint64_t *last);

int sy_job_store_put_rules(struct sy_job_store *store, json_t *rules); /* borrowed */
/* The caller decrefs. NULL: none are stored, or the file cannot be read, which is logged. */
json_t *sy_job_store_rules(struct sy_job_store *store);

#endif

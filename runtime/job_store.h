/* Training jobs that must survive the runtime: one durable JSON file each, FOLDER/job-ID.json. */
#ifndef SY_JOB_STORE_H
#define SY_JOB_STORE_H

#include <stdint.h>

struct sy_job_store;

/* Makes the folder if it is missing (one level). folder NULL: nothing is kept, all calls succeed. EIO, ENOMEM_HOST. */
int sy_job_store_open(const char *folder, struct sy_job_store **out);
void sy_job_store_close(struct sy_job_store *store); /* NULL is fine */
int sy_job_store_put(struct sy_job_store *store, uint64_t job, const char *text);
void sy_job_store_remove(struct sy_job_store *store, uint64_t job);
/* Calls take for each stored job, ids ascending; what it returns, if negative, ends the walk. A file that cannot be read is
 * logged and left where it is. */
int sy_job_store_load(struct sy_job_store *store,
                      int (*take)(void *ctx, uint64_t job, const char *text), void *ctx);

#endif

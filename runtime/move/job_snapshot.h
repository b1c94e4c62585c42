/* A job's snapshots as files (workers/train/snapshot.h), for sending and receiving one: no model is needed to check them. */
#ifndef SY_RUNTIME_MOVE_JOB_SNAPSHOT_H
#define SY_RUNTIME_MOVE_JOB_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#define SY_JOB_SNAPSHOT_PATH_BYTES 4096

struct sy_job_snapshot {
    uint64_t step, bytes, xxh3; /* bytes, xxh3: of the whole file */
};

/* FOLDER/NAME-STEP.safetensors. EARG: too long. */
int sy_job_snapshot_path(const char *folder, const char *name, uint64_t step,
                         char path[SY_JOB_SNAPSHOT_PATH_BYTES]);
/* Whether the file is a whole snapshot of this job: its header says name and step, its data has the hash that the header says. ECORRUPT, EIO, ENOTFOUND;
 * ECANCELED: *stop became true (NULL: never). Blocks. */
int sy_job_snapshot_check(const char *path, const char *name, uint64_t step,
                          const _Atomic bool *stop, struct sy_job_snapshot *out);
/* The newest good one; a damaged one is logged, and the one before is taken. ENOTFOUND: there is none (also: no folder). ECORRUPT: none is good;
 * ECANCELED as above. Blocks. */
int sy_job_snapshot_find(const char *folder, const char *name, const _Atomic bool *stop,
                         struct sy_job_snapshot *out);

#endif

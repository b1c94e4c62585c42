/* Snapshots of a training state: one safetensors file each (loader/package/safetensors.h), NAME-STEP.safetensors, written durably.
 *
 *   write to NAME-STEP.safetensors.tmp-PID -> fsync -> rename -> fsync the folder -> remove all but the newest two
 *
 * N1: a file that has its final name is complete; a killed writer's file ends in .tmp-PID and is removed at start.
 * N2: __metadata__ holds format, job, job_hash, step, loss, data_xxh3 (of all bytes behind the header) and header_xxh3 (of the others and
 *     of names, types, shapes and places of the tensors). A later format is refused, whatever else the file holds. Then a reader
 *     checks the header's hash. If it matches, a wrong job or model is refused by name; if it does not, the file is damaged, and the
 *     previous one is used.
 * N3: a write that fails removes its own .tmp and touches no older snapshot.
 * N4: one writer at a time has a job's name in a folder, on this machine. */
#ifndef SY_WORKERS_TRAIN_SNAPSHOT_H
#define SY_WORKERS_TRAIN_SNAPSHOT_H

#include <stdint.h>

#include "loader/package/safetensors.h"

#define SY_SNAPSHOT_FORMAT     "switchyard-snapshot-2"
#define SY_SNAPSHOT_KEPT       2
#define SY_SNAPSHOT_PATH_BYTES 4096

/* The content of a snapshot; borrowed while it is in use. */
struct sy_snapshot_layout {
    const char *folder, *job_name;
    uint64_t job_hash;
    const struct sy_safetensor *tensors; /* one after the other in the data */
    int n_tensors;
    uint64_t data_bytes;
};

struct sy_snapshot_info {
    uint64_t step;
    double loss;
};

/* Writes data (data_bytes, packed) durably and removes older ones. path: SY_SNAPSHOT_PATH_BYTES bytes. Blocks. EIO names file and reason. */
int sy_snapshot_write(const struct sy_snapshot_layout *layout, const struct sy_snapshot_info *info,
                      const void *data, char *path);
/* Newest good snapshot into data. A damaged one is logged and the one before is tried. ENOTFOUND when there is none
 * (error text is not for people); EARG when a good one is of another job with this name or of another model, EUNSUPPORTED of another
 * format. */
int sy_snapshot_read_newest(const struct sy_snapshot_layout *layout, struct sy_snapshot_info *info,
                            void *data, char *path);

/* ---- one thread that writes ---------------------------------------------------------------------- */

struct sy_snapshot_writer;

/* Makes the folder if it is missing and removes what killed writers left there (N1). EBUSY: another job writes under this name there
 * (N4; waits up to 2 s for one that is about to end); EIO, ENOMEM_HOST. */
int sy_snapshot_writer_create(const struct sy_snapshot_layout *layout,
                              struct sy_snapshot_writer **out);
/* Waits for the write in flight. NULL is fine. */
void sy_snapshot_writer_destroy(struct sy_snapshot_writer *writer);
/* Room for the next state (data_bytes), or NULL while a write is in flight. */
void *sy_snapshot_writer_room(struct sy_snapshot_writer *writer);
/* Hands the filled room over. */
void sy_snapshot_writer_submit(struct sy_snapshot_writer *writer,
                               const struct sy_snapshot_info *info);

struct sy_snapshot_result {
    int status;
    uint64_t step;
    char path
        [SY_SNAPSHOT_PATH_BYTES]; /* path of the snapshot, or of the newest good one if it failed */
    char error[512];
};

/* 1 and the result of a write that has ended since the last call; 0: none. wait_ms: at most that long for one in flight. */
int sy_snapshot_writer_poll(struct sy_snapshot_writer *writer, int wait_ms,
                            struct sy_snapshot_result *out);

#endif

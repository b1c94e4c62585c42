/* Spill and restore of one job's persistent memory, to host memory and back, chunk by chunk (as AntMan does, with the same bits).
 *
 * X: at most half a chunk of SY_LINK_CHUNK_BYTES is in flight, and begins only when the link's rule lets it (runtime/wire/link_turn.h): an
 * urgent swap waits for one chunk at most. One thread. */
#ifndef SY_WORKERS_TRAIN_SPILL_H
#define SY_WORKERS_TRAIN_SPILL_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/device/device.h"
#include "runtime/wire/link_turn.h"

struct sy_spill;

/* board NULL: nobody else uses the link. `file`: of sy_shared_memory_file, as large as what is spilled; borrowed like `device` and `pool`, which outlive the
 * spill. Spilled state lies in it, also after this process has ended. */
int sy_spill_create(struct sy_device *device, struct sy_pool_memory *pool,
                    struct sy_link_board *board, int slot, int file, struct sy_spill **out);
void sy_spill_destroy(struct sy_spill *spill); /* NULL is fine */

/* Takes host memory for a spill of so many bytes, so that its pages exist when the spill begins (workers/train/spill_room.h), and has the device pin it.
 * Kept until destroy. ENOMEM_HOST: a spill may still be tried later. Not while the state is spilled or moves. */
int sy_spill_prepare(struct sy_spill *spill, uint64_t bytes);
bool sy_spill_is_prepared(const struct sy_spill *spill); /* all pages are there; NULL: no */

/* Takes over a state that another process has spilled to the file. ENOMEM_HOST, EARG: the file is too small. */
int sy_spill_adopt(struct sy_spill *spill, uint64_t bytes);
/* Spill: prepares, if that was not done, and copies from the pool to host memory; ENOMEM_HOST. Restore: copies from host memory to `pool_offset`. */
int sy_spill_begin_spill(struct sy_spill *spill, uint64_t pool_offset, uint64_t bytes);
void sy_spill_begin_restore(struct sy_spill *spill, uint64_t pool_offset);
/* Queues at most one chunk, or nothing while the link is another's (it waits for at most 20 ms); what it queued may still be in flight. *done: all has
 * arrived. A failure ends the spill or the restore. */
int sy_spill_step(struct sy_spill *spill, bool *done);

bool sy_spill_is_moving(const struct sy_spill *spill);   /* between a begin and done */
bool sy_spill_is_outbound(const struct sy_spill *spill); /* the last begin was a spill */
bool sy_spill_is_complete(const struct sy_spill *spill); /* all of it is in host memory */
/* Spilled, or being restored: host memory has all of it. */
bool sy_spill_holds(const struct sy_spill *spill);
void *sy_spill_host(struct sy_spill *spill); /* while it holds it */

#endif

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

/* `board` may be NULL: then it has the link to itself. `file`: of sy_shared_memory_file, as large as the trips, borrowed like `device` and
 * `pool`, which outlive it; what is out lies there, also when this process is gone. */
int sy_spill_create(struct sy_device *device, struct sy_pool_memory *pool,
                    struct sy_link_board *board, int slot, int file, struct sy_spill **out);
void sy_spill_destroy(struct sy_spill *spill); /* NULL is fine */

/* Takes host memory for a trip of so many bytes, so that its pages are there when the trip begins (workers/train/spill_room.h), and has the device pin
 * it. Kept until the spill is destroyed. ENOMEM_HOST: a spill may still be tried later. Not while it is being spilled or is out. */
int sy_spill_prepare(struct sy_spill *spill, uint64_t bytes);
bool sy_spill_is_prepared(const struct sy_spill *spill); /* all pages are there; NULL: no */

/* Takes over a state that another process has spilled to the file. ENOMEM_HOST, EARG: the file is too small. */
int sy_spill_adopt(struct sy_spill *spill, uint64_t bytes);
/* Out: prepares, if that was not done, and copies there; ENOMEM_HOST. Back: copies what is in host memory to `pool_offset`. */
int sy_spill_begin_spill(struct sy_spill *spill, uint64_t pool_offset, uint64_t bytes);
void sy_spill_begin_restore(struct sy_spill *spill, uint64_t pool_offset);
/* At most one chunk, or nothing when it has to wait (for at most 20 ms); what it began may still be on its way. *done when all is there. After a
 * failure the trip is over. */
int sy_spill_step(struct sy_spill *spill, bool *done);

bool sy_spill_is_moving(const struct sy_spill *spill);   /* between a begin and done */
bool sy_spill_is_outbound(const struct sy_spill *spill); /* the last begin was an out */
bool sy_spill_is_complete(const struct sy_spill *spill); /* all of it is in host memory */
/* Out, or on its way back: host memory has all of it. */
bool sy_spill_holds(const struct sy_spill *spill);
void *sy_spill_host(struct sy_spill *spill); /* while it holds it */

#endif

/* Host memory for spilled state, touched before it is needed: fresh pages cost the copying thread more than the copy does (measured: 0.13 to 2.1 s
 * of CPU time for 1 GB, which the link moves in 0.5 s).
 *
 *   take      |touch|...sleep...|touch|...sleep...   a thread of its own, a tenth of a core
 *   hurry     |touch|touch|touch|...                 once the spill has begun
 */
#ifndef SY_WORKERS_TRAIN_SPILL_ROOM_H
#define SY_WORKERS_TRAIN_SPILL_ROOM_H

#include <stdbool.h>
#include <stdint.h>

struct sy_spill_room;

/* Bytes of host memory that this machine, and the control group of this process, can still give. */
uint64_t sy_spill_room_available(void);

/* The first `bytes` of a file of shared memory (borrowed), its pages to come in the background. ENOMEM_HOST with the sizes when the machine has
 * less than those that are not there yet; EARG: the file is smaller. What was written stays in the file. */
int sy_spill_room_take(int file, uint64_t bytes, struct sy_spill_room **out);
void sy_spill_room_give(struct sy_spill_room *room); /* NULL is fine */

/* The mapped memory, valid until give, and its size; pages that have not come yet are made on first use. */
unsigned char *sy_spill_room_base(struct sy_spill_room *room);
uint64_t sy_spill_room_bytes(const struct sy_spill_room *room);
/* The spill begins: takes the remaining pages without pauses. */
void sy_spill_room_hurry(struct sy_spill_room *room);
/* All pages are there, or as many as could be had ahead. */
bool sy_spill_room_is_ready(const struct sy_spill_room *room);

#endif

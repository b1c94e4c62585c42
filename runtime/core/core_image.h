/* A host image that outlives the runtime (runtime/keeper/): which of its bytes an earlier runtime has read, and the record for the next one.
 *
 *   model added ──> its groups get the offsets that they had (sched's residency prefers them)
 *   READ ─────────> such a group is verified in place; other groups' records are dropped, then they are read
 *   read done ────> the group is recorded; one that a canceled read has not looked at keeps its record
 *
 * Without a record these functions do nothing. The event loop's thread. */
#ifndef SY_RUNTIME_CORE_IMAGE_H
#define SY_RUNTIME_CORE_IMAGE_H

#include <stdint.h>

#include "runtime/core/core_internal.h"
#include "runtime/core/storage/storage_thread.h"

/* Uses this file, which the caller owns, as the image. EARG, ENOMEM_HOST. */
int sy_core_image_take(struct sy_core *core, int fd, uint64_t bytes, struct sy_image_book *book);
/* Call once the scheduler has the model: tells it the offsets at which the model's groups are already. */
void sy_core_image_prefer(struct sy_core *core, int model);
/* Call before the job is added: marks the groups that are in the image already (IB1). */
void sy_core_image_before_read(struct sy_core *core, struct sy_storage_job *job);
void sy_core_image_after_read(struct sy_core *core, const struct sy_storage_job *job);

#endif

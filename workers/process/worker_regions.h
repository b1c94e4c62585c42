/* Memory that clients share, mapped in this worker (runtime/wire/tensor_at.h). One table a process, since the fault handler must find it.
 *
 * E1: truncating a file that is not sealed never kills the worker, nor does a full file system: an access to a page that the file does not have, by any
 *     thread, finds zeros, and the region is broken. Runs that name a broken region fail: EARG if the file was truncated, ENOMEM_HOST if its file
 *     system is full.
 * E2: every other SIGBUS ends the process, as without this.
 * E3: mapped and unmapped between runs only, by the thread that reads the socket. */
#ifndef SY_WORKERS_PROCESS_WORKER_REGIONS_H
#define SY_WORKERS_PROCESS_WORKER_REGIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/wire/messages.h"

struct sy_device;

/* Takes over SIGBUS (E1, E2). */
int sy_worker_regions_start(void);
void sy_worker_regions_finish(struct sy_device *device); /* unmaps all */

/* fd: borrowed. A region that cannot be mapped is remembered, and runs that name it fail; EPROTO: a bad id, or one in use. */
int sy_worker_region_add(struct sy_device *device, const struct sy_msg_region_add *add, int fd);
void sy_worker_region_drop(struct sy_device *device, uint64_t region); /* unknown ids are fine */

/* A tensor of `bytes` at a place in a region. EPROTO: no such region; EARG: it does not lie in the region; EARG, ENOMEM_HOST: the region is broken (E1); EIO: mapping
 * failed. `name`: the tensor's. */
int sy_worker_region_locate(uint64_t at, uint64_t bytes, const char *name, void **out);
/* EARG, ENOMEM_HOST: one of these places is in a region that is broken by now (E1). */
int sy_worker_regions_check(const struct sy_u64s *at);

#endif

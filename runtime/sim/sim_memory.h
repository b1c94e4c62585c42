/* Large arrays that events access at random (devices' state, requests), on huge pages where the system has them: address translation would
 * otherwise be most of an event's time. */
#ifndef SY_SIM_SIM_MEMORY_H
#define SY_SIM_SIM_MEMORY_H

#include <stddef.h>

/* At least one byte; to be given back with free(). NULL: no memory. */
void *sy_sim_zeroed(size_t n, size_t size);
/* As realloc, growing only; new bytes are undefined. NULL: no memory, and `old` is unchanged. */
void *sy_sim_grow(void *old, size_t old_bytes, size_t bytes);

#endif

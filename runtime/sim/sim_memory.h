/* Memory that events find their way about in: many devices' state, millions of requests. On huge pages where there are any: each event is
 * somewhere else, and most of its time would be address translation. */
#ifndef SY_SIM_SIM_MEMORY_H
#define SY_SIM_SIM_MEMORY_H

#include <stddef.h>

/* At least one byte; to be given back with free(). NULL: no memory. */
void *sy_sim_zeroed(size_t n, size_t size);
/* As realloc, to more: what is new is as it is. NULL: no memory, `old` is as it was. */
void *sy_sim_grow(void *old, size_t old_bytes, size_t bytes);

#endif

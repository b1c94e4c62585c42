/* Zeroed memory that many devices' state lies in: on huge pages where there are any. With thousands of devices each event
 * finds another one's state, and then most of its time would be address translation. */
#ifndef SY_SIM_SIM_MEMORY_H
#define SY_SIM_SIM_MEMORY_H

#include <stddef.h>

/* At least one byte; to be given back with free(). NULL: no memory. */
void *sy_sim_zeroed(size_t n, size_t size);

#endif

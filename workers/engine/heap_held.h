/* Heap memory that a thread holds. */
#ifndef SY_WORKERS_ENGINE_HEAP_HELD_H
#define SY_WORKERS_ENGINE_HEAP_HELD_H

#include <stdint.h>

/* Bytes that this thread has allocated, libraries included, less those that it has freed; 0 where the allocator does not count (sanitizers). */
uint64_t sy_heap_held_bytes(void);

#endif

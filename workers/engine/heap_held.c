#include "workers/engine/heap_held.h"

#include <jemalloc/jemalloc.h>
#include <stddef.h>

uint64_t sy_heap_held_bytes(void)
{
    uint64_t taken = 0, given = 0;
    size_t size = sizeof taken;
    if (mallctl("thread.allocated", &taken, &size, NULL, 0) != 0 ||
        mallctl("thread.deallocated", &given, &size, NULL, 0) != 0)
        return 0;
    return taken - given;
}

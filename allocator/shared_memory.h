/* Shared memory that processes map by file descriptor: host image, tensor slab, control pages.
 * A memfd, sealed against shrinking; huge pages are asked for by madvise where the kernel has them. */
#ifndef SY_ALLOCATOR_SHARED_MEMORY_H
#define SY_ALLOCATOR_SHARED_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct sy_shared_memory {
    void *base;
    uint64_t bytes;
    int fd;
    bool writable;
};

/* A file of `bytes` (rounded up to the page) for others to map, zeroed, not yet touched: its CLOEXEC descriptor, which the caller closes. EARG,
 * ENOMEM_HOST as below. */
int sy_shared_memory_file(const char *name, uint64_t bytes);
/* Creates and maps `bytes` (rounded up to the page), zeroed, not yet touched. `name` shows in
 * /proc. The fd is CLOEXEC. EARG for 0 bytes, ENOMEM_HOST with the size and the reason. */
int sy_shared_memory_create(struct sy_shared_memory *m, const char *name, uint64_t bytes);
/* Maps an fd that another process created and takes it over: finish closes it. EARG if the file is
 * smaller than `bytes`, ENOMEM_HOST if it cannot be mapped; on failure the fd stays the caller's. */
int sy_shared_memory_map(struct sy_shared_memory *m, int fd, uint64_t bytes, bool writable);
void sy_shared_memory_finish(
    struct sy_shared_memory *m); /* unmaps, closes; zeroed struct is fine */

#endif

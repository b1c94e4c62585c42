/* The tensor slab: request and response tensors in shared memory. A jemalloc arena whose extent
 * hooks hand out pieces of one sy_shared_memory, so that an address in the runtime is an offset
 * that workers understand. Bounded: SY_ENOMEM_HOST when full. One slab per process (the runtime);
 * thread safe as jemalloc is. */
#ifndef SY_ALLOCATOR_SLAB_H
#define SY_ALLOCATOR_SLAB_H

#include <stdint.h>

struct sy_slab;

/* `bytes` is rounded up to a size class of jemalloc (by less than a quarter) and a page; the size is
 * what workers map. EARG for 0 bytes, ENOMEM_HOST. Destroy takes NULL; nothing may be in use then. */
int sy_slab_create(uint64_t bytes, struct sy_slab **out);
void sy_slab_destroy(struct sy_slab *slab);
int sy_slab_fd(const struct sy_slab *slab); /* borrowed */
uint64_t sy_slab_size(const struct sy_slab *slab);
/* 64-byte aligned, uninitialised, until released. EARG for 0 bytes; ENOMEM_HOST with the size asked
 * for and what is in use. */
int sy_slab_alloc(struct sy_slab *slab, uint64_t bytes, uint64_t *out_offset);
void sy_slab_release(struct sy_slab *slab, uint64_t offset);
/* Bytes that a tensor occupies, rounding included. */
uint64_t sy_slab_piece_bytes(const struct sy_slab *slab, uint64_t offset);
/* This process's view of `offset`, valid until released; asserts offset < size. */
void *sy_slab_pointer(struct sy_slab *slab, uint64_t offset);
uint64_t sy_slab_used_bytes(const struct sy_slab *slab); /* 0 when everything was released */

#endif

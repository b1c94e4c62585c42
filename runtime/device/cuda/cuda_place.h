/* Where pools lie: the same address in every process (rule D1), so that pointers and captured graphs hold everywhere.
 *
 *   base            base + 1 TiB     base + 2 TiB
 *   | pool of slot 0 ...| slot 1 ...     | slot 2 ...
 *
 * The exporter's address travels with the pool; an importer takes the same slot. Pure: the process's slots are the caller's.
 * Not thread safe: the caller locks. */
#ifndef SY_DEVICE_CUDA_CUDA_PLACE_H
#define SY_DEVICE_CUDA_CUDA_PLACE_H

#include <stdbool.h>
#include <stdint.h>

/* 64 TiB: within the 47 bits of user addresses, below the host device's pools and programs, above everything else, and not where the
 * address sanitizer puts its heap (96 TiB). */
#if defined __SANITIZE_THREAD__ /* allows few ranges */
#define SY_CUDA_PLACE_BASE   0x3000000000ull
#define SY_CUDA_PLACE_STRIDE 0x100000000ull
#else
#define SY_CUDA_PLACE_BASE   0x400000000000ull
#define SY_CUDA_PLACE_STRIDE 0x10000000000ull /* 1 TiB: no GPU has as much */
#endif
#define SY_CUDA_PLACE_SLOTS 16

struct sy_cuda_place {
    uint64_t base; /* a multiple of 2 MiB */
    bool taken[SY_CUDA_PLACE_SLOTS];
};

/* `text`: SY_CUDA_POOL_BASE of the environment, or NULL. EARG: not a number, not a multiple of 1 GiB, or not within 47 bits. */
int sy_cuda_place_init(struct sy_cuda_place *place, const char *text);
/* Takes the slot at `wish` (0: any) for `bytes`; if this process has that one already, the first that is free. ENOMEM_HOST: no slot is
 * left; ENOMEM_DEVICE: more than a slot holds. */
int sy_cuda_place_take(struct sy_cuda_place *place, uint64_t wish, uint64_t bytes,
                       uint64_t *out_address);
/* Gives back what take returned. */
void sy_cuda_place_give(struct sy_cuda_place *place, uint64_t address);
/* Is this the address of a slot? An exporter whose driver would not have its slots uses another. */
bool sy_cuda_place_is_slot(const struct sy_cuda_place *place, uint64_t address);

#endif

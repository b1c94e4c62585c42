#include "runtime/device/cuda/cuda_place.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define BASE_ALIGN  (1ull << 30)
#define USER_END    (1ull << 47)
#define LOWEST      (1ull << 32) /* below lie programs that are not position independent */
#define PLACE_BYTES (SY_CUDA_PLACE_SLOTS * SY_CUDA_PLACE_STRIDE)

int sy_cuda_place_init(struct sy_cuda_place *place, const char *text)
{
    *place = (struct sy_cuda_place){.base = SY_CUDA_PLACE_BASE};
    if (!text || !*text)
        return SY_OK;
    char *end;
    errno = 0;
    unsigned long long base = strtoull(text, &end, 0);
    if (end == text || *end || errno != 0 || base % BASE_ALIGN != 0 || base < LOWEST ||
        base > USER_END - PLACE_BYTES)
        return sy_error_set(SY_EARG,
                            "SY_CUDA_POOL_BASE=%s is not a multiple of 1 GiB from 0x%llx to 0x%llx",
                            text, LOWEST, USER_END - PLACE_BYTES);
    place->base = base;
    return SY_OK;
}

static int free_slot(const struct sy_cuda_place *place, uint64_t wish)
{
    for (int i = 0; i < SY_CUDA_PLACE_SLOTS; i++)
        if (!place->taken[i] && place->base + (uint64_t)i * SY_CUDA_PLACE_STRIDE == wish)
            return i;
    for (int i = 0; i < SY_CUDA_PLACE_SLOTS; i++)
        if (!place->taken[i])
            return i;
    return -1;
}

int sy_cuda_place_take(struct sy_cuda_place *place, uint64_t wish, uint64_t bytes,
                       uint64_t *out_address)
{
    if (bytes > SY_CUDA_PLACE_STRIDE)
        return sy_error_set(SY_ENOMEM_DEVICE, "a pool of %llu bytes; %llu at most",
                            (unsigned long long)bytes, SY_CUDA_PLACE_STRIDE);
    int slot = free_slot(place, wish);
    if (slot < 0)
        return sy_error_set(SY_ENOMEM_HOST, "no room for another pool in this process (%d at most)",
                            SY_CUDA_PLACE_SLOTS);
    place->taken[slot] = true;
    *out_address = place->base + (uint64_t)slot * SY_CUDA_PLACE_STRIDE;
    return SY_OK;
}

void sy_cuda_place_give(struct sy_cuda_place *place, uint64_t address)
{
    uint64_t slot = (address - place->base) / SY_CUDA_PLACE_STRIDE;
    assert(address >= place->base && slot < SY_CUDA_PLACE_SLOTS && place->taken[slot]);
    place->taken[slot] = false;
}

bool sy_cuda_place_is_slot(const struct sy_cuda_place *place, uint64_t address)
{
    return address >= place->base && (address - place->base) % SY_CUDA_PLACE_STRIDE == 0 &&
           (address - place->base) / SY_CUDA_PLACE_STRIDE < SY_CUDA_PLACE_SLOTS;
}

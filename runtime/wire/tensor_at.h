/* Where a tensor of a run lies, as one number: in the slab, or in memory that a client shares (a region).
 *
 *   63        44 43                      0
 *   |  region   |         offset          |     region 0: the slab
 *
 * Regions live in SY_MAX_REGIONS slots, in the runtime as in each worker; the slot follows from the id. */
#ifndef SY_WIRE_TENSOR_AT_H
#define SY_WIRE_TENSOR_AT_H

#include <stdint.h>

#define SY_TENSOR_REGION_SHIFT 44
#define SY_MAX_REGIONS         1024u
#define SY_REGION_MAX_BYTES    (1ull << SY_TENSOR_REGION_SHIFT)

static inline uint64_t sy_tensor_region(uint64_t at)
{
    return at >> SY_TENSOR_REGION_SHIFT;
}

static inline uint64_t sy_tensor_offset(uint64_t at)
{
    return at & (SY_REGION_MAX_BYTES - 1);
}

static inline unsigned sy_region_slot(uint64_t region)
{
    return (unsigned)(region % SY_MAX_REGIONS);
}

#endif

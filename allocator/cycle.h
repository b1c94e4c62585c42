/* Places the groups of a model that is larger than its memory. Pure.
 *
 * The model's groups are read in order 0..n-1, once per run, run after run. For such a cyclic order the
 * best that a cache can do is to keep the first groups resident and to replace the others in turn: a head
 * stays, and the tail cycles through the remaining memory, oldest bytes first:
 *
 *   room   | g0 | g1 | g2 |  g3   g4  |        g0..g2 stay; g5 lands on g3 after 3, g6 on g4 after 4
 *                         |  g5   g6  |
 *
 * The head is as long as it can be while each group of the tail may be copied while the two groups
 * before it (else: the one before it) compute. If even that is impossible, nothing stays and a group
 * may wait for the one just before it. */
#ifndef SY_ALLOCATOR_CYCLE_H
#define SY_ALLOCATOR_CYCLE_H

#include <stdint.h>

/* A stretch of pool that the model may use. */
struct sy_cycle_region {
    uint64_t offset;
    uint64_t bytes;
};

struct sy_cycle_group {
    uint64_t bytes;      /* 0: takes no room */
    uint64_t offset;     /* in: of the first n_resident groups; out: of each group */
    int32_t after_group; /* out: see struct sy_group_place */
};

/* Regions in address order, not touching; the resident groups lie within them. ENOMEM_DEVICE if a group
 * fits into no region (with the sizes), ENOMEM_HOST; on failure `groups` is not to be used. */
int sy_cycle_plan(const struct sy_cycle_region *regions, int n_regions,
                  struct sy_cycle_group *groups, int n_groups, int n_resident);

#endif

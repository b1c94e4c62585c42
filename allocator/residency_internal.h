/* The residency's books, shared by residency.c and its walker. */
#ifndef SY_ALLOCATOR_RESIDENCY_INTERNAL_H
#define SY_ALLOCATOR_RESIDENCY_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/cycle.h"
#include "allocator/residency.h"

struct sy_group_books {
    uint64_t bytes;
    uint64_t offset;       /* valid for groups < n_placed; while cycling, for all */
    uint64_t trial_offset; /* while placing */
    int32_t after_group;   /* while cycling */
    bool lost;             /* placed, pinned, but a run that ended said that it never arrived */
};

/* States:  idle (pins 0): groups 0..n_placed-1 have blocks of their own (R1)
 *          head (pins 1, head_only): the same, and no one evicts them (R2)
 *          placed (pins > 0): n_placed = n_groups
 *          cycles (pins 1): the regions are its blocks, groups lie in them and share bytes (R3) */
struct sy_model_books {
    int n_groups;
    int n_placed;
    int n_kept; /* what n_placed becomes if the current trial is committed */
    int pins;
    bool head_only;
    bool cycles;
    int n_undisturbed; /* while cycling: head groups whose place no later group takes */
    uint64_t last_used;
    struct sy_group_books *groups;
    struct sy_cycle_region *regions; /* while cycling */
    int n_regions;
};

struct sy_residency {
    struct sy_pool *pool;  /* borrowed */
    struct sy_pool *trial; /* scratch: contents mean nothing between calls */
    struct sy_model_books *models[SY_RESIDENCY_MAX_MODELS];
    int n_ids; /* highest id in use + 1 */
    uint64_t tick;
    uint64_t n_evicted;
};

#endif

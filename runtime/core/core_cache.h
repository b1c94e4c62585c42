/* Partitions of the last-level cache for slices (slices/core_cache.c). */
#ifndef SY_RUNTIME_CORE_CORE_CACHE_H
#define SY_RUNTIME_CORE_CORE_CACHE_H

#include <jansson.h>
#include <stdbool.h>

#include "runtime/device/cache_ways.h"
#include "runtime/sched/sched.h"

struct sy_core;

struct sy_core_cache {
    struct sy_cache_ways ways;
    bool is_there;                       /* the kernel supports cache partitions */
    uint64_t masks[SY_SCHED_MAX_SLICES]; /* by slice; 0: it shares the whole cache */
    char why[256]; /* why caches are shared; "": they are partitioned, or there is one slice */
};

/* root: the mount point of resctrl, if mounted; NULL: caches stay shared. */
void sy_core_cache_start(struct sy_core *core, const char *root);
void sy_core_cache_follow(struct sy_core *core); /* call after slices were set */
void sy_core_cache_finish(struct sy_core *core); /* also valid without a start */
int sy_core_cache_ways(const struct sy_core *core,
                       int slice);                      /* ways reserved for the slice; 0: none */
json_t *sy_core_cache_json(const struct sy_core *core); /* STATUS.md */

#endif

/* Partitions the last-level cache between slices of cores where resctrl is mounted: each slice gets ways in proportion to its cores. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"

#define CORES_TEXT 4096

static void say_why_not(struct sy_core_cache *cache)
{
    snprintf(cache->why, sizeof cache->why, "%s", sy_error_text());
    memset(cache->masks, 0, sizeof cache->masks);
}

void sy_core_cache_start(struct sy_core *core, const char *root)
{
    struct sy_core_cache *cache = &core->cache;
    *cache = (struct sy_core_cache){.is_there = false};
    if (!root || strcmp(core->spec.kind, "cuda") == 0) {
        snprintf(cache->why, sizeof cache->why, "cache ways are not looked at");
        return;
    }
    cache->is_there = sy_cache_ways_open(root, &cache->ways) == SY_OK;
    if (!cache->is_there)
        say_why_not(cache);
}

static int divide(struct sy_core *core)
{
    static char cores[SY_SCHED_MAX_SLICES]
                     [CORES_TEXT]; /* used by one thread; too large for a stack */
    struct sy_cache_group groups[SY_SCHED_MAX_SLICES];
    size_t n_cores[SY_SCHED_MAX_SLICES];
    struct sy_core_cache *cache = &core->cache;
    for (int i = 0; i < core->n_slices; i++)
        n_cores[i] = core->slices[i].n_cores;
    SY_TRY(sy_cache_ways_plan(cache->ways.n_ways, cache->ways.min_ways, n_cores, core->n_slices,
                              cache->masks));
    for (int i = 0; i < core->n_slices; i++)
        groups[i] = (struct sy_cache_group){sy_slice_cores_text(core->slices[i].cores,
                                                                core->slices[i].n_cores, cores[i],
                                                                CORES_TEXT),
                                            cache->masks[i]};
    return sy_cache_ways_set(&cache->ways, groups, core->n_slices);
}

void sy_core_cache_follow(struct sy_core *core)
{
    struct sy_core_cache *cache = &core->cache;
    if (!cache->is_there)
        return;
    *cache->why = '\0';
    memset(cache->masks, 0, sizeof cache->masks);
    if (core->n_slices == 1) {
        sy_cache_ways_clear(&cache->ways);
        return;
    }
    if (divide(core) == SY_OK) {
        for (int i = 0; i < core->n_slices; i++)
            sy_log_info("slices", "event=cache name=%s ways=%d of=%u", core->slices[i].name,
                        sy_core_cache_ways(core, i), cache->ways.n_ways);
        return;
    }
    say_why_not(cache);
    sy_cache_ways_clear(&cache->ways);
    sy_log_warn("slices", "event=cache_shared why=\"%s\"", cache->why);
}

int sy_core_cache_ways(const struct sy_core *core, int slice)
{
    return __builtin_popcountll(core->cache.masks[slice]);
}

void sy_core_cache_finish(struct sy_core *core)
{
    if (core->cache.is_there)
        sy_cache_ways_clear(&core->cache.ways);
}

json_t *sy_core_cache_json(const struct sy_core *core)
{
    const struct sy_core_cache *cache = &core->cache;
    return json_pack("{s:b, s:i, s:s?}", "divided", cache->masks[0] != 0, "ways",
                     (int)cache->ways.n_ways, "why_not", *cache->why ? cache->why : NULL);
}

#include "allocator/cycle.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define NEVER INT_MAX /* when bytes of the head become free */

/* The room as segments in address order, each with the last group that lies there (-1: none). Each stamp
 * adds at most two, so their number is bounded. A few hundred at most: scans beat trees. */
struct segment {
    uint64_t offset;
    uint64_t bytes;
    int last;
};

struct cycle {
    const struct sy_cycle_region *regions;
    int n_regions;
    struct sy_cycle_group *groups;
    int n_groups;
    int n_resident;
    struct segment *segments;
    int n_segments;
};

/* Makes a segment start at `offset`; returns its index. */
static int cut_at(struct cycle *c, uint64_t offset)
{
    int i = 0;
    while (i < c->n_segments && c->segments[i].offset + c->segments[i].bytes <= offset)
        i++;
    if (i == c->n_segments || c->segments[i].offset >= offset)
        return i;
    struct segment *s = &c->segments[i];
    memmove(s + 1, s, (size_t)(c->n_segments - i) * sizeof *s);
    c->n_segments++;
    s[0].bytes = offset - s[0].offset;
    s[1].offset = offset;
    s[1].bytes -= s[0].bytes;
    return i + 1;
}

static void stamp(struct cycle *c, uint64_t offset, uint64_t bytes, int last)
{
    int from = cut_at(c, offset), to = cut_at(c, offset + bytes);
    assert(from < to);
    c->segments[from] = (struct segment){.offset = offset, .bytes = bytes, .last = last};
    memmove(&c->segments[from + 1], &c->segments[to],
            (size_t)(c->n_segments - to) * sizeof *c->segments);
    c->n_segments -= to - from - 1;
}

/* The last group that lies anywhere in the `bytes` from segment i on; NEVER if they do not all exist. */
static int last_in_window(const struct cycle *c, int i, uint64_t bytes)
{
    uint64_t covered = 0;
    int last = -1;
    for (; covered < bytes; i++) {
        const struct segment *s = &c->segments[i];
        if (i == c->n_segments || s->last == NEVER)
            return NEVER;
        if (covered > 0 && s->offset != s[-1].offset + s[-1].bytes)
            return NEVER;
        last = SY_MAX(last, s->last);
        covered += s->bytes;
    }
    return last;
}

/* The window whose bytes are free for the longest, the lowest of these. A window that starts inside a
 * segment is never better than the one shifted to the segment's start. */
static int oldest_window(const struct cycle *c, uint64_t bytes, uint64_t *offset)
{
    int oldest = NEVER;
    for (int i = 0; i < c->n_segments && oldest >= 0; i++) {
        int last = last_in_window(c, i, bytes);
        if (last < oldest) {
            oldest = last;
            *offset = c->segments[i].offset;
        }
    }
    return oldest;
}

/* Lays out the run with groups 0..n_kept-1 never overwritten; false if a group then fits nowhere, or
 * must wait for one of the `slack` - 1 groups before it. */
static bool try_layout(struct cycle *c, int n_kept, int slack)
{
    c->n_segments = 0;
    for (int i = 0; i < c->n_regions; i++)
        c->segments[c->n_segments++] =
            (struct segment){c->regions[i].offset, c->regions[i].bytes, -1};
    for (int g = 0; g < c->n_groups; g++) {
        struct sy_cycle_group *group = &c->groups[g];
        if (g < c->n_resident && group->bytes > 0)
            stamp(c, group->offset, group->bytes, g < n_kept ? NEVER : g);
    }
    for (int g = 0; g < c->n_groups; g++) {
        struct sy_cycle_group *group = &c->groups[g];
        group->after_group = -1;
        if (g < c->n_resident || group->bytes == 0)
            continue;
        int last = oldest_window(c, group->bytes, &group->offset);
        if (last == NEVER || (last >= 0 && last > g - slack))
            return false;
        group->after_group = last;
        stamp(c, group->offset, group->bytes, g < n_kept ? NEVER : g);
    }
    return true;
}

/* Leaves the layout with the longest head that allows `slack`. */
static bool find_layout(struct cycle *c, int slack)
{
    if (!try_layout(c, 0, slack))
        return false;
    int good = 0, bad = c->n_groups + 1;
    while (bad - good > 1) {
        int middle = (good + bad) / 2;
        if (try_layout(c, middle, slack))
            good = middle;
        else
            bad = middle;
    }
    return try_layout(c, good, slack);
}

static int refuse(const struct cycle *c)
{
    uint64_t group = 0, room = 0;
    for (int i = 0; i < c->n_groups; i++)
        group = SY_MAX(group, c->groups[i].bytes);
    for (int i = 0; i < c->n_regions; i++)
        room = SY_MAX(room, c->regions[i].bytes);
    return sy_error_set(SY_ENOMEM_DEVICE,
                        "its largest group needs %llu bytes in one piece, the pool has room for "
                        "%llu; make the pool larger (--pool-bytes) or the groups smaller",
                        (unsigned long long)group, (unsigned long long)room);
}

int sy_cycle_plan(const struct sy_cycle_region *regions, int n_regions,
                  struct sy_cycle_group *groups, int n_groups, int n_resident)
{
    struct cycle c = {.regions = regions,
                      .n_regions = n_regions,
                      .groups = groups,
                      .n_groups = n_groups,
                      .n_resident = n_resident};
    size_t n = (size_t)n_regions + 2 * (size_t)n_groups + 2;
    c.segments = malloc(n * sizeof *c.segments);
    SY_TRY_ALLOC(c.segments, "no memory to plan the cycling of %d groups", n_groups);
    bool found = find_layout(&c, 3) || find_layout(&c, 2) || try_layout(&c, 0, 1);
    free(c.segments);
    return found ? SY_OK : refuse(&c);
}

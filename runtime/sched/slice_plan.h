/* Assigns cores to slices. Pure.
 *
 * Requests are served in this order: lists of cores; numbers of cores; shares of all cores; weights, which divide the rest. Those of one kind in their given
 * order, from the first free core on, so that equal calls give equal answers. Each slice has at least one core and no core has two slices. Cores may be left
 * over.
 *
 * Shares take the nearest number of cores to their sum, where so many are left, and divide them as near to each one's share as whole cores can be: shares that
 * sum to 100 % fit wherever each slice can have a core, and a share of one core or more is met within one core unless slices below one core take from it. */
#ifndef SY_SCHED_SLICE_PLAN_H
#define SY_SCHED_SLICE_PLAN_H

#include <stddef.h>
#include <stdint.h>

#define SY_SLICE_PLAN_MAX 8  /* maximum number of slices */
#define SY_SLICE_NAME     32 /* bytes of a slice's name, with its terminator */

enum sy_slice_by { SY_SLICE_BY_LIST, SY_SLICE_BY_COUNT, SY_SLICE_BY_SHARE, SY_SLICE_BY_WEIGHT };

struct sy_slice_wish {
    char name[SY_SLICE_NAME];
    enum sy_slice_by by;
    /* COUNT: cores; SHARE: per mille of all cores, all together at most 1000; WEIGHT: 1 or more */
    unsigned amount;
    size_t n_listed; /* length of the LIST */
    const uint64_t *listed;
};

/* owner[i]: the slice of cores[i], or -1. EARG names the wish that does not fit, with the numbers, or the duplicate name or core. */
int sy_slice_plan(const struct sy_slice_wish *wishes, int n, const uint64_t *cores, size_t n_cores,
                  int *owner);
/* Parses "0-3,6". EARG. */
int sy_slice_parse_cores(const char *text, uint64_t *list, size_t room, size_t *n);
/* The reverse; "-" for an empty list. Returns buffer. */
const char *sy_slice_cores_text(const uint64_t *list, size_t n, char *buffer, size_t bytes);

#endif

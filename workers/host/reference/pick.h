/* A result each of whose elements comes from its input, or is padding, dimension by dimension: padding, repeats, parts, broadcasting. */
#ifndef SY_WORKERS_HOST_REFERENCE_PICK_H
#define SY_WORKERS_HOST_REFERENCE_PICK_H

#include "workers/host/reference/kernel.h"

/* For every dimension of the result and place on it an offset into the input, in elements, or -1: padding. Where an element comes from is
 * the sum of its places' offsets; it is padding if one of its places is. */
struct sy_pick {
    int64_t *from[SY_MAX_RANK]; /* each of the result's extent, in the scratch memory */
    int64_t *
        runs; /* of places of one dimension: from each how many follow one another in the input, too */
};

/* Bytes of scratch memory for a result of this shape. */
int64_t sy_pick_scratch(const struct sy_array *y);
/* The tables, not yet filled in, in `scratch`. */
void sy_pick_start(struct sy_pick *pick, const struct sy_array *y, void *scratch);
/* y, of x's type; padding: one element, not read if no place is padding. On the engine's threads. */
void sy_pick(const struct sy_pick *pick, const struct sy_array *x, const struct sy_array *y,
             const void *padding);

#endif

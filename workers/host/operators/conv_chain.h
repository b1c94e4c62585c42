/* Convolutions whose results do not fit the second caches, run as one: a few rows through all of them, then the next rows, so that what lies
 * between two of them stays in a core's own cache. Each thread takes images (or bands of rows of them) as it comes to them, and computes
 * alone: nobody waits inside.
 *
 *   level 0   ... input, in memory
 *             ▓▓▓▓ rows of this turn                  stage 0 = layer `first`
 *   level 1   ░▓▓▓▓ a buffer of a few rows: ░ those of the last turn that the next window still reads, moved to the front
 *             ▓▓▓▓                                    stage 1
 *   level 2   ... result, in memory
 *
 * All but the last layer only keep their weights (they are small) in the workspace, since their group may be gone when the last one runs (P4);
 * the last one runs the chain. A chain has the work of one larger layer at most, so the time between two looks stays as it was. */
#ifndef SY_WORKERS_HOST_OPERATORS_CONV_CHAIN_H
#define SY_WORKERS_HOST_OPERATORS_CONV_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "workers/host/program/program_internal.h"

/* Limits for joining two convolutions. Tests lower them to join small ones. */
struct sy_chain_limits {
    int64_t least_bytes; /* of the intermediate result, per thread */
    /* no gain if there are more multiplications per byte that stays in the cache */
    int64_t macs_a_byte;
    int64_t macs;          /* of a chain */
    int64_t weights_bytes; /* of a chain */
    int64_t buffer_bytes;  /* per thread; 0: half of the second-level cache */
};
extern struct sy_chain_limits sy_chain_limits;

bool sy_step_is_chain(const struct sy_step *step);

#endif

/* How slowly a client may send a body or take an answer. Within each stall period enough bytes must move, not only one: a client that sends a
 * byte a minute would hold its memory for good.
 *
 *   at_ns: when so many bytes had moved last, or a pause of ours ended; moved_bytes: since then
 *
 * A transfer has stalled when the stall period has passed since at_ns. One thread, the event loop's. */
#ifndef SY_FRONT_LEAST_RATE_H
#define SY_FRONT_LEAST_RATE_H

#include <stdint.h>

#include "runtime/base/clock.h"

#define SY_LEAST_BYTES_PER_S 1024u /* unless `serve --least-rate` says otherwise */

struct sy_transfer_pace {
    sy_ns at_ns;
    uint64_t moved_bytes;
};

/* A transfer begins, or goes on after a pause of ours. */
static inline void sy_pace_anew(struct sy_transfer_pace *pace)
{
    *pace = (struct sy_transfer_pace){.at_ns = sy_clock_now()};
}

/* n bytes have moved. least_bytes_per_s 0: SY_LEAST_BYTES_PER_S. */
static inline void sy_pace_moved(struct sy_transfer_pace *pace, uint64_t n,
                                 uint64_t least_bytes_per_s, sy_ns stall_ns)
{
    double least = (double)(least_bytes_per_s ? least_bytes_per_s : SY_LEAST_BYTES_PER_S);
    pace->moved_bytes += n;
    if ((double)pace->moved_bytes >= least * (double)stall_ns / 1e9)
        sy_pace_anew(pace);
}

#endif

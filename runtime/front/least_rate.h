/* How slowly a client may send a body or take an answer. Within each stall period enough bytes must move, not only one: a client that sends a
 * byte a minute would hold its memory for good.
 *
 *   at_ns: when so many bytes had moved last, or a pause of ours ended; moved_bytes: since then
 *
 * A transfer has stalled when the stall period has passed since at_ns. Servers look for those with a timer. A look that comes late says nothing of
 * clients: the loop was stopped (SIGSTOP, a suspended machine), and what they sent meanwhile lies in the sockets. One thread, the event loop's. */
#ifndef SY_FRONT_LEAST_RATE_H
#define SY_FRONT_LEAST_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"

#define SY_LEAST_BYTES_PER_S 1024u /* unless `serve --least-rate` says otherwise */

struct sy_transfer_pace {
    sy_ns at_ns;
    uint64_t moved_bytes;
};

/* A transfer begins, or goes on after a pause of ours. */
static inline void sy_pace_restart(struct sy_transfer_pace *pace)
{
    *pace = (struct sy_transfer_pace){.at_ns = sy_clock_now()};
}

/* n bytes have moved. least_bytes_per_s 0: SY_LEAST_BYTES_PER_S. */
static inline void sy_pace_add_bytes(struct sy_transfer_pace *pace, uint64_t n,
                                     uint64_t least_bytes_per_s, sy_ns stall_ns)
{
    double least = (double)(least_bytes_per_s ? least_bytes_per_s : SY_LEAST_BYTES_PER_S);
    pace->moved_bytes += n;
    if ((double)pace->moved_bytes >= least * (double)stall_ns / 1e9)
        sy_pace_restart(pace);
}

/* A server's looks for clients that have stalled. */
struct sy_stall_looks {
    sy_ns at_ns; /* time of the last look, or of the timer's start */
    sy_ns period_ns;
    bool was_late;
};

/* Before each look: false if it is more than a period late. The next one comes after a turn of the loop, which reads what is there, and counts however
 * late it is. */
static inline bool sy_stall_look_is_timely(struct sy_stall_looks *looks, sy_ns now)
{
    looks->was_late = !looks->was_late && now > looks->at_ns + 2 * looks->period_ns;
    looks->at_ns = now;
    return !looks->was_late;
}

#endif

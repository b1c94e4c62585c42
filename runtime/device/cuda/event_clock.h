/* When an event of the device's clock happened in CLOCK_MONOTONIC. Pure.
 *
 * CUDA tells only the time between two events. A reference event is recorded between two readings of the host's clock; what it
 * says of others is shifted by where it is taken to lie. Each event narrows that down: it cannot be signalled before the host
 * had recorded it, nor after the host saw it signalled.
 *
 *      |<------- first guess ------->|        host time before the record .. when it was seen done
 *            |<-- known so far -->|           after some events
 *                    x                        point: moves only when an event says that it must
 *
 * So a difference of two times of one stream is as exact as CUDA's (about 0.5 us), and a time of the host's clock as exact as
 * `known so far` is narrow. Not thread safe: the caller locks. */
#ifndef SY_DEVICE_CUDA_EVENT_CLOCK_H
#define SY_DEVICE_CUDA_EVENT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"

/* CUDA counts in float milliseconds: 4 s away from the reference one step is 0.24 us. Then a new reference is due. */
#define SY_EVENT_CLOCK_SPAN_NS (4 * SY_NS_PER_S)

struct sy_event_clock {
    bool set;
    int64_t point;           /* host time that the reference event is taken to have */
    int64_t lowest, highest; /* where it can be */
    int64_t last_elapsed;    /* of the last time that was asked for, */
    sy_ns
        last_time; /* and what was answered (0: nothing): order is kept although the point moves */
};

/* The reference was recorded after `before` and seen done at `after`. If that was looked at late, it is taken to have come soon
 * after the record, as on an idle stream. */
void sy_event_clock_set(struct sy_event_clock *clock, sy_ns before, sy_ns after);
/* A new reference, elapsed_ns after the old one, recorded after `before` and seen done at `after`: the old point goes along. */
void sy_event_clock_move(struct sy_event_clock *clock, int64_t elapsed_ns, sy_ns before,
                         sy_ns after);
/* The host time of an event elapsed_ns after the reference, which was recorded no earlier than `recorded` and seen done at
 * `seen` (recorded <= seen). Within both. */
sy_ns sy_event_clock_time(struct sy_event_clock *clock, int64_t elapsed_ns, sy_ns recorded,
                          sy_ns seen);
/* How far off a time may be, ns. */
uint64_t sy_event_clock_error_ns(const struct sy_event_clock *clock);

#endif

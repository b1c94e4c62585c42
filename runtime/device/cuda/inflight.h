/* Bounded work in flight: how far the host may run ahead of the device in training, so that a preemption waits for at most the
 * configured time. Pure: durations come from the profile, events are the caller's.
 *
 *   launched   | layer | layer | layer E0 layer | layer E1 layer |            E: an event, every quarter of the limit
 *   running          ^ here                                      ^ host
 *              |     |<-------- limit_ns and a layer at most --->|
 *
 * Before each layer the caller asks sy_inflight_next, with the epoch compared (one relaxed load), and does what it says:
 *
 *   LAUNCH   launch the layer, tell sy_inflight_launched, record an event where that says so
 *   RECORD   record event `slot` behind what is launched, then ask again
 *   WAIT     wait for event `slot`, tell sy_inflight_passed, ask again
 *   STOP     preempted and nothing in flight: save where it stands
 *
 * The device is never synchronised as a whole. Rules, for limits that the caller cites:
 *   F1: what is launched and not known to be done is less than limit_ns by estimate, and one layer. Long layers are two at a time: waiting
 *       for one alone would leave the device idle until the host has woken up (50 to 100 us; of BERT-base in float32 30 of 100 ms).
 *   F2: after a preemption nothing is launched; STOP comes after at most SY_INFLIGHT_EVENTS + 1 waits.
 *   F3: estimates are corrected by what the events measured, within a factor of 8. */
#ifndef SY_DEVICE_CUDA_INFLIGHT_H
#define SY_DEVICE_CUDA_INFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#define SY_INFLIGHT_LIMIT_NS 500000u /* the default */
#define SY_INFLIGHT_EVENTS   8u /* that the caller makes; a few layers behind, not one a layer */

enum sy_inflight_answer {
    SY_INFLIGHT_LAUNCH,
    SY_INFLIGHT_RECORD,
    SY_INFLIGHT_WAIT,
    SY_INFLIGHT_STOP
};

struct sy_inflight {
    uint64_t limit_ns;
    double ratio;              /* measured over estimated */
    uint64_t open_ns;          /* estimate of what is launched behind the last event */
    uint64_t closed_ns;        /* and in front of it, not yet passed */
    unsigned oldest, n_events; /* ring of recorded events */
    uint64_t estimates[SY_INFLIGHT_EVENTS];
};

/* limit_ns 0: the default. */
void sy_inflight_init(struct sy_inflight *f, uint64_t limit_ns);
/* The action before a layer. *out_slot: the event to record or to wait for. */
enum sy_inflight_answer sy_inflight_next(const struct sy_inflight *f, bool preempted,
                                         unsigned *out_slot);
/* A layer of layer_ns (0: not known, counts a quarter of the limit) was launched. true: record event *out_slot now and tell sy_inflight_recorded. */
bool sy_inflight_launched(struct sy_inflight *f, uint64_t layer_ns, unsigned *out_slot);
/* Event `slot`, as asked for, was recorded. */
void sy_inflight_recorded(struct sy_inflight *f, unsigned slot);
/* Event `slot`, the oldest, is signalled. measured_ns: since the event before it, if the device was busy all the time; 0: not known. */
void sy_inflight_passed(struct sy_inflight *f, unsigned slot, uint64_t measured_ns);
/* The estimate of what is in flight. */
uint64_t sy_inflight_ns(const struct sy_inflight *f);

#endif

/* Streams and events of the devices that run on this CPU (host and emulated).
 *
 *   COPY stream:    ring of entries ── thread: copy | record | wait | launch, in order
 *   COMPUTE stream: no thread; work runs where it is launched, a wait blocks the caller
 *
 * The numbered rules (D1...) are in this folder's README.md. */
#ifndef SY_DEVICE_HOST_STREAM_H
#define SY_DEVICE_HOST_STREAM_H

#include "runtime/device/device_ops.h"
#include "runtime/device/link_clock.h"

#define SY_STREAM_RING 4096

/* A device on this CPU. `clock` paces the link: NULL on `host`; on `emulated` the one in the first pool that is mapped, which
 * other processes share, and `own_clock` while there is none. */
struct sy_host_device {
    struct sy_device base;
    struct sy_link_clock *clock;
    struct sy_link_clock own_clock;
    int link_core;      /* of copy threads; -1: any */
    _Atomic int status; /* D5: the first failure of a copy; any copy thread writes it */
};

extern const struct sy_stream_ops sy_host_stream_ops;

/* sy_device_host_read of the paced link. */
void sy_host_paced_read(struct sy_device *device, uint64_t bytes);

#endif

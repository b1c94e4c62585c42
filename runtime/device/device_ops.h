/* A backend: three small const tables. Callers use device.h.
 *
 * Every object begins with a pointer to its device, which has the tables; a backend embeds the structs below in its own. Slots
 * return sy_status with the error text set. The wrappers (device.c) have checked the arguments as said at each slot, and
 * injected the faults. A slot marked (optional) may be NULL; what the wrapper then does is said there.
 *
 * A new backend is one more line in device.c's list; if it lives in a plugin, that line's open() loads the plugin. */
#ifndef SY_DEVICE_DEVICE_OPS_H
#define SY_DEVICE_DEVICE_OPS_H

#include "runtime/device/device.h"

struct sy_memory_ops {
    /* Takes `bytes` > 0 (at most properties.memory_bytes), rounded up to the page; zeroed or not. */
    int (*pool_create)(struct sy_device *device, uint64_t bytes, struct sy_pool_memory **out);
    /* Maps another process's pool at the same address. The fd stays the caller's. EARG when it is no pool of `bytes`. */
    int (*pool_import)(struct sy_device *device, int fd, uint64_t bytes,
                       struct sy_pool_memory **out);
    /* An fd (CLOEXEC, the caller's) that pool_import takes in another process. */
    int (*pool_export)(struct sy_pool_memory *pool, int *out_fd);
    /* Gives the memory back, once no stream uses it. Not NULL. */
    void (*pool_destroy)(struct sy_pool_memory *pool);
    /* (optional: NULL, the host sees nothing) The host's view of an address in a pool. */
    void *(*host_pointer)(struct sy_device *device, sy_device_address address);
    /* (optional: nothing to do) As sy_pool_touch, with a range within the pool. */
    void (*pool_touch)(struct sy_pool_memory *pool, uint64_t offset, uint64_t bytes);
    /* (optional: nothing to do) As sy_device_host_read, with bytes > 0. */
    void (*host_read)(struct sy_device *device, uint64_t bytes);
    /* (optional: nothing to do) Pins [base, base+bytes) so that copies need no staging; not NULL, not empty. */
    int (*host_register)(struct sy_device *device, void *base, uint64_t bytes);
    /* (optional: nothing to do) Undoes host_register. */
    int (*host_unregister)(struct sy_device *device, void *base);
    /* (optional: SY_OK, host_register had done it all) As sy_device_host_register_wait. */
    int (*host_register_wait)(struct sy_device *device, sy_ns timeout_ns);
};

struct sy_stream_ops {
    int (*create)(struct sy_device *device, enum sy_stream_kind kind, struct sy_stream **out);
    /* Finishes what is queued. Not NULL. */
    void (*destroy)(struct sy_stream *stream);
    /* Blocks until the queue is empty; the first failure of its work. */
    int (*synchronize)(struct sy_stream *stream);
    /* (optional: EUNSUPPORTED) As sy_stream_confine. */
    int (*confine)(struct sy_stream *stream, const int *parts, int n);
    /* Queues a copy of `bytes` > 0 between `host` and `address`; EBUSY when the queue is full, never blocks on it. */
    int (*copy)(struct sy_stream *stream, void *host, sy_device_address address, uint64_t bytes,
                bool to_device);
    /* Queues a call of fn on some thread of the host. */
    int (*launch)(struct sy_stream *stream, void (*fn)(void *arg), void *arg);
    /* Queues a wait for the event's last record before this call; none: passes. */
    int (*wait_event)(struct sy_stream *stream, struct sy_event *event);
    int (*event_create)(struct sy_device *device, struct sy_event **out);
    /* No stream has it queued any more. Not NULL. */
    void (*event_destroy)(struct sy_event *event);
    /* Resets the event; queues its signal. If that fails, waiters of this record are told so and do not hang. */
    int (*event_record)(struct sy_event *event, struct sy_stream *stream);
    /* 1, 0 or the failure, as sy_event_query. Never blocks. */
    int (*event_query)(struct sy_event *event);
    /* As sy_event_synchronize; sleeps, does not spin. */
    int (*event_synchronize)(struct sy_event *event, sy_ns timeout_ns);
    /* CLOCK_MONOTONIC of the signal; 0 when it is not signalled. */
    sy_ns (*event_time)(struct sy_event *event);
};

struct sy_device_ops {
    const char *kind; /* as in the spec: "host" */
    /* ENODEVICE with the reason (no driver, no such number). Fills in ops, spec and properties. */
    int (*open)(const struct sy_device_spec *spec, struct sy_device **out);
    void (*close)(struct sy_device *device); /* not NULL */
    /* (optional: SY_OK, the device has no such threads) As sy_device_set_link_core. */
    int (*set_link_core)(struct sy_device *device, int core);
    /* (optional: EUNSUPPORTED) As sy_device_compute_parts. */
    int (*compute_parts)(struct sy_device *device, struct sy_compute_parts *out);
    const struct sy_memory_ops *memory;
    const struct sy_stream_ops *stream;
};

struct sy_device {
    const struct sy_device_ops *ops;
    struct sy_device_spec spec;
    struct sy_device_properties properties;
};

struct sy_pool_memory {
    struct sy_device *device;
    uint64_t bytes;
    sy_device_address base;
};

struct sy_stream {
    struct sy_device *device;
    enum sy_stream_kind kind;
};

struct sy_event {
    struct sy_device *device;
};

extern const struct sy_device_ops sy_device_host_ops;
extern const struct sy_device_ops sy_device_emulated_ops; /* cuda's: device_cuda.h */

#endif

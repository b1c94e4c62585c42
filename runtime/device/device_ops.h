/* What a backend fills in: three small const tables. Callers use device.h.
 *
 * Every object begins with a pointer to its device, which has the tables; a backend embeds the structs below in its own.
 * Functions return sy_status with the error text set. Arguments have been checked by the wrappers (device.c). */
#ifndef SY_DEVICE_DEVICE_OPS_H
#define SY_DEVICE_DEVICE_OPS_H

#include "runtime/device/device.h"

struct sy_memory_ops {
    int (*pool_create)(struct sy_device *device, uint64_t bytes, struct sy_pool_memory **out);
    int (*pool_import)(struct sy_device *device, int fd, uint64_t bytes, struct sy_pool_memory **out);
    int (*pool_export)(struct sy_pool_memory *pool, int *out_fd);
    void (*pool_destroy)(struct sy_pool_memory *pool);
    void *(*host_pointer)(struct sy_device *device, sy_device_address address); /* (optional) NULL: the host sees nothing */
    int (*host_register)(struct sy_device *device, void *base, uint64_t bytes); /* (optional) nothing to do */
    int (*host_unregister)(struct sy_device *device, void *base);               /* (optional) nothing to do */
};

struct sy_stream_ops {
    int (*create)(struct sy_device *device, enum sy_stream_kind kind, struct sy_stream **out);
    void (*destroy)(struct sy_stream *stream);
    int (*synchronize)(struct sy_stream *stream);
    int (*copy)(struct sy_stream *stream, void *host, sy_device_address address, uint64_t bytes, bool to_device);
    int (*launch)(struct sy_stream *stream, void (*fn)(void *arg), void *arg);
    int (*wait_event)(struct sy_stream *stream, struct sy_event *event);
    int (*event_create)(struct sy_device *device, struct sy_event **out);
    void (*event_destroy)(struct sy_event *event);
    int (*event_record)(struct sy_event *event, struct sy_stream *stream);
    int (*event_query)(struct sy_event *event);
    int (*event_synchronize)(struct sy_event *event, sy_ns timeout_ns);
    sy_ns (*event_time)(struct sy_event *event);
};

struct sy_device_ops {
    const char *kind; /* as in the spec: "host" */
    int (*open)(const struct sy_device_spec *spec, struct sy_device **out);
    void (*close)(struct sy_device *device);
    int (*set_link_core)(struct sy_device *device, int core); /* (optional) there is no such thread */
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
extern const struct sy_device_ops sy_device_emulated_ops;

#endif

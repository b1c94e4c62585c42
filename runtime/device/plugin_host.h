/* Functions that a device plugin gets from the process that opens it, and the one symbol that it exports.
 *
 * A plugin is linked with its own copies of the base's pure parts (clock, containers), but errors, the log and the faults
 * are the process's: their state must not exist twice. So the plugin's sy_error_*, sy_log_* and sy_fault_check are a bridge
 * (cuda/plugin_bridge.c) onto this table. Texts therefore land in the process's own sy_error_text(). */
#ifndef SY_DEVICE_PLUGIN_HOST_H
#define SY_DEVICE_PLUGIN_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/device_ops.h"

/* Raised whenever this table or a struct of device_ops.h changes its meaning without changing its size. */
#define SY_PLUGIN_ABI 1u

/* The sizes of what both sides see, added up: a plugin of another build is refused, not called. */
#define SY_PLUGIN_LAYOUT_BYTES                                                \
    ((uint32_t)(sizeof(struct sy_device_ops) + sizeof(struct sy_memory_ops) + \
                sizeof(struct sy_stream_ops) + sizeof(struct sy_device) +     \
                sizeof(struct sy_pool_memory) + sizeof(struct sy_stream) +    \
                sizeof(struct sy_event) + sizeof(struct sy_plugin_host)))

struct sy_plugin_host {
    uint32_t abi;          /* SY_PLUGIN_ABI */
    uint32_t layout_bytes; /* SY_PLUGIN_LAYOUT_BYTES */
    void (*error_write)(const char *format, ...) __attribute__((format(printf, 1, 2)));
    void (*error_write_prefix)(const char *format, ...) __attribute__((format(printf, 1, 2)));
    const char *(*error_text)(void);
    const char *(*status_name)(int status);
    const char *(*status_text)(int status);
    void (*log_write)(enum sy_log_level level, const char *component, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
    const enum sy_log_level *log_threshold; /* read when the plugin is opened */
    int (*fault_check)(const char *op);
    const bool *fault_enabled; /* set before main */
};

/* The exported function: keeps `host` (valid as long as the process), returns the backend's const table. NULL, with the
 * process's error text set, when abi or layout differ. */
typedef const struct sy_device_ops *(*sy_plugin_entry)(const struct sy_plugin_host *host);

#endif

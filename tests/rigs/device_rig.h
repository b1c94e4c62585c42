/* What tests of a device stand on: one that is open, with a pool, a stream of each kind, two events and registered memory. */
#ifndef SY_TESTS_RIGS_DEVICE_RIG_H
#define SY_TESTS_RIGS_DEVICE_RIG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "runtime/device/device.h"

#define DEVICE_RIG_POOL_BYTES (8u << 20)

/* The device that set_up opens, as sy_device_spec_parse reads it. */
extern const char *device_rig_spec;

struct device_rig {
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_stream *h2d, *d2h, *compute;
    struct sy_event *event, *other;
    unsigned char *host, *back;
};

/* cmocka's set-up and tear-down: *state is a struct device_rig. */
int device_rig_set_up(void **state);
int device_rig_tear_down(void **state);
/* The stream is held until *gate is true. */
void device_rig_close_gate(struct sy_stream *stream, _Atomic bool *gate);
/* Runs this binary's device_child_main with `role`, the pool's fd open in it, with SY_FAULT=fault if that is not NULL. Returns its pid. */
pid_t device_rig_start_child(struct device_rig *r, const char *role, const char *fault);
/* Its exit status; -1: it was killed. */
int device_rig_finish_child(pid_t child);

#endif

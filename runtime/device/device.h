/* The seam to hardware: one const table of functions per kind of table below and backend.
 *
 * A device computes and has memory of its own. `host` is this CPU (a unified device: pool and host
 * image are one thing), `emulated` is this CPU behind a paced link, to stand in for a discrete
 * accelerator, `cuda:N` is an NVIDIA GPU, by a plugin that is loaded when it is opened. A backend fills in three small tables; callers use the sy_device_*,
 * sy_pool_*,
 * sy_stream_* and sy_event_* wrappers below, which check arguments, inject faults for tests
 * (SY_FAULT=copy_h2d:3:EDEVICE: the third such call in this process fails with that status; also
 * pool_create, pool_import, host_register, copy_d2h, event_record, stream_launch, and copy_run: a
 * copy that fails while it runs) and apply the default where an optional slot is NULL.
 *
 *   stream COPY   c0 c1 [e0] c2 [e1]          work of one stream runs in order, streams run at once
 *   stream COMPUTE   wait e0 | launch | wait e1 | launch
 *
 * Work in a stream is asynchronous to the caller, except that a backend may run the work of a
 * COMPUTE stream in the calling thread (host and emulated do: compute happens where it is
 * launched, and sy_stream_wait_event then blocks the caller). A caller may not rely on either.
 *
 * Threads: a device, a pool and a stream are used by one thread at a time; an event may be queried
 * and waited for by any thread. Errors stay in the process that made them: after SY_EDEVICE this
 * process's device is unusable, other processes' are not. */
#ifndef SY_DEVICE_DEVICE_H
#define SY_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"

struct sy_device;
struct sy_pool_memory;
struct sy_stream;
struct sy_event;

/* An address in device memory. On a discrete device the host cannot read through it, so it has a
 * type of its own; sy_device_host_pointer gives the host's view where there is one. */
typedef struct {
    uint64_t value;
} sy_device_address;

struct sy_device_spec {
    char kind[16];          /* "host", "emulated", "cuda" */
    char text[128];         /* as the user wrote it */
    double link_gbps;       /* emulated: link rate, 10^9 bytes per second; default 12.3. cuda: what
                             * plans assume until the link was measured */
    uint64_t link_alpha_ns; /* emulated: fixed cost of one copy; default 10000. cuda: as above */
    int ordinal;            /* cuda:N: N */
    char uuid[48];          /* cuda:UUID: "GPU-..." or "MIG-..."; "" otherwise */
};

struct sy_device_properties {
    char name[64];           /* "host", "emulated (12.3 GB/s link)" */
    bool unified;            /* reads host memory at full speed: no copy needed */
    bool emulated;           /* results must be labelled so */
    double link_gbps;        /* nominal; 0 when unified */
    uint64_t memory_bytes;   /* what a pool may take at most */
    unsigned reserved_cores; /* cores that compute must leave to the link (emulated: 1) */
    unsigned queue_entries;  /* copies, launches, records and waits that one stream holds */
    int numa_node;           /* of the host's memory that is nearest; -1: not known, or no matter */
    bool host_reads;         /* computing reads host memory where it lies, at the link's rate */
    char uuid[48];           /* of the hardware, "GPU-..." or "MIG-..."; "" where there is none */
    /* a pool's address differs from process to process (cuda, where its driver says so) */
    bool own_addresses;
};

/* Units of the device's compute that slices are made of: n equal parts, with the same numbers in every process. */
struct sy_compute_parts {
    int n, n_sms; /* multiprocessors of each */
    /* streams of several processes compute at the same time (cuda: under MPS), not by turns */
    bool beside;
};

enum sy_stream_kind { SY_STREAM_COMPUTE, SY_STREAM_COPY_H2D, SY_STREAM_COPY_D2H };

/* Parses "host", "emulated[,link-gbps=12.3][,link-alpha-us=10]" or "cuda[:N]", "cuda:GPU-UUID", "cuda:MIG-UUID". EARG names the key and
 * value. */
int sy_device_spec_parse(const char *text, struct sy_device_spec *out);

/* All backends in a fixed order; NULL-terminated list of kinds ("host", "emulated", "cuda"). */
const char *const *sy_device_kinds(void);

/* Opens the device in this process. SY_ENODEVICE with the reason if it cannot be had. */
int sy_device_open(const struct sy_device_spec *spec, struct sy_device **out);
void sy_device_close(struct sy_device *device); /* NULL is fine; pools and streams closed before */
const struct sy_device_properties *sy_device_get_properties(const struct sy_device *device);

/* The core that the emulated link's threads are pinned to (-1: any); call before streams are created. No-op on other devices.
 * EARG on a core that no thread can be pinned to (beyond 1023). */
int sy_device_set_link_core(struct sy_device *device, int core);

/* Pool: the device's memory, taken once. The runtime creates it and exports an fd (CLOEXEC, owned
 * by the caller) that workers import; all map it at the same address. `bytes` is rounded up to the page. The emulated
 * device keeps its shared link clock in the pool's last page, beyond `bytes`. */
int sy_pool_create(struct sy_device *device, uint64_t bytes, struct sy_pool_memory **out);
int sy_pool_export(struct sy_pool_memory *pool, int *out_fd);
int sy_pool_import(struct sy_device *device, int fd, uint64_t bytes, struct sy_pool_memory **out);
void sy_pool_destroy(struct sy_pool_memory *pool);
uint64_t sy_pool_size(const struct sy_pool_memory *pool);
/* The address of byte `offset`; asserts offset <= size. Same value in every process. */
sy_device_address sy_pool_address(const struct sy_pool_memory *pool, uint64_t offset);
/* [offset, offset+bytes), which must lie in the pool, is about to be used, perhaps for the first time: where the pool is memory of this
 * CPU its pages are made now, large ones if the kernel has them. What is there stays. Any thread. Not needed, only faster. */
void sy_pool_touch(struct sy_pool_memory *pool, uint64_t offset, uint64_t bytes);
/* The host's view of `address`, or NULL on a device whose memory the host cannot touch. On
 * `emulated` the engine computes on it (it is the device); host code must go through copies. */
void *sy_device_host_pointer(struct sy_device *device, sy_device_address address);

/* Where properties.host_reads: `bytes` of host memory are about to be read by computing in the calling thread. Returns when the link would
 * have carried them (emulated paces here, with the bytes in line with all copies). Elsewhere a no-op. */
void sy_device_host_read(struct sy_device *device, uint64_t bytes);

/* Lets the device copy straight from and to [base, base+bytes). May return before it is done (pinning takes seconds): until then,
 * and if it failed, copies are right but slower and may hold the caller. The range stays mapped until it is unregistered.
 * Optional in a backend: no-op. */
int sy_device_host_register(struct sy_device *device, void *base, uint64_t bytes);
int sy_device_host_unregister(struct sy_device *device, void *base);
/* Waits until all that was registered is pinned; EDEADLINE after timeout_ns, or the first failure. For those who measure. */
int sy_device_host_register_wait(struct sy_device *device, sy_ns timeout_ns);

int sy_stream_create(struct sy_device *device, enum sy_stream_kind kind, struct sy_stream **out);
void sy_stream_destroy(struct sy_stream *stream); /* finishes what is queued first */
/* Waits until all queued work is done; returns the first failure of that work. */
int sy_stream_synchronize(struct sy_stream *stream);

/* The parts that the device's compute can be cut into. EUNSUPPORTED, with the reason: none (host: a slice is a set of cores there, its
 * threads' affinity). Makes no context. */
int sy_device_compute_parts(struct sy_device *device, struct sy_compute_parts *out);
/* Confines the stream's further work to these parts; n 0: the whole device. Waits for what is queued. The stream's
 * thread only, with no capture under way. EARG: no such part. EUNSUPPORTED: the device refuses; like after any failure the stream computes where it did. */
int sy_stream_confine(struct sy_stream *stream, const int *parts, int n);

/* Queue a copy. Source and destination stay valid until it is done. Returns at once. Bounded
 * queue (properties.queue_entries): SY_EBUSY when full. SY_EARG: host pointer NULL, or against the direction of a copy stream. No bytes: nothing
 * is queued. */
int sy_copy_h2d(struct sy_stream *stream, sy_device_address to, const void *from, uint64_t bytes);
int sy_copy_d2h(struct sy_stream *stream, void *to, sy_device_address from, uint64_t bytes);

/* Runs fn(arg) in the stream's order. `fn` must not call into the device. Functions of different streams may wait for each other. */
int sy_stream_launch(struct sy_stream *stream, void (*fn)(void *arg), void *arg);

/* An event is signalled when the work queued in `stream` before the record is done; recording it
 * again resets it. A wait on an event that was never recorded passes (as in CUDA). */
int sy_event_create(struct sy_device *device, struct sy_event **out);
void sy_event_destroy(struct sy_event *event);
int sy_event_record(struct sy_event *event, struct sy_stream *stream);
int sy_stream_wait_event(struct sy_stream *stream, struct sy_event *event);
/* 1: signalled, 0: not yet, negative: the work before it failed. */
int sy_event_query(struct sy_event *event);
/* Blocks the calling thread until signalled or `timeout_ns` passed (SY_EDEADLINE); UINT64_MAX
 * waits for ever. */
int sy_event_synchronize(struct sy_event *event, sy_ns timeout_ns);
/* When the event was signalled, CLOCK_MONOTONIC; 0 when it is not. Of a clock of the device's own it is converted, see the
 * backend's README.md for how exactly; it is never before the record nor after now. */
sy_ns sy_event_time(struct sy_event *event);

#endif

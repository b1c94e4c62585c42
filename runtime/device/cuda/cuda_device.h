/* The CUDA device: what a plugin's other parts (the compute engine) need of it beyond device.h.
 *
 * All of it holds for devices, streams and events of this backend only; asserted. The engine queues its own kernels, copies and
 * captures on these handles; it need not count them (queue_bound.h counts what goes through device.h), but must report what
 * CUDA answers through sy_cuda_device_check, so that a sticky error is seen once and by all.
 *
 * Opening a MIG instance sets CUDA_VISIBLE_DEVICES to its UUID, in this process and so for its children; where that is set already it has to name the instance
 * (else ENODEVICE). */
#ifndef SY_DEVICE_CUDA_CUDA_DEVICE_H
#define SY_DEVICE_CUDA_CUDA_DEVICE_H

#include "runtime/device/cuda/cuda_api.h"
#include "runtime/device/device_ops.h"

extern const struct sy_device_ops sy_cuda_ops;

/* Makes the device's primary context, if this process has none yet, maps the pools that wait for one, and makes it current in the calling
 * thread. Cheap when that is so already. Every function of device.h that needs it calls it; the engine calls it once in each of its threads. */
int sy_cuda_device_enter(struct sy_device *device);

/* Converts `error`, the answer of a call of CUDA (runtime or driver), or of the one below cuBLASLt or cuDNN: 0 is SY_OK. Otherwise the status of
 * cuda_error.h with a text made of `format` and CUDA's own; a sticky error marks the device (D5): from then on every call of this process that queues or
 * waits returns SY_EDEVICE. Clears CUDA's last error. Any thread. */
int sy_cuda_device_check(struct sy_device *device, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* SY_OK, or the failure that stuck, with its text. */
int sy_cuda_device_failed(struct sy_device *device);

/* CUDA's own handles (cudaStream_t, cudaEvent_t), valid as long as the object. A caller that records the event itself must not also use it
 * through device.h. */
struct CUstream_st *sy_cuda_stream_handle(struct sy_stream *stream);
struct CUevent_st *sy_cuda_event_handle(struct sy_event *event);
/* sy_stream_confine, for the engine. EUNSUPPORTED: a stream of another backend, or none. */
int sy_cuda_stream_confine(struct sy_stream *stream, const int *parts, int n);
/* sy_stream_confine gives a stream another handle: `moved` hears of it, after the old one has run empty and before it is destroyed; what it
 * returns is what confine returns. One listener a stream; NULL: none. */
void sy_cuda_stream_on_move(struct sy_stream *stream,
                            int (*moved)(void *ctx, struct CUstream_st *handle), void *ctx);

/* Queues a copy between host memory and an address that the device follows, on a handle, in the pieces in which the host memory is pinned
 * (C6). Uncounted, as all that the engine queues. In the device's context. */
int sy_cuda_device_copy(struct sy_device *device, struct CUstream_st *stream, void *host,
                        uint64_t address, uint64_t bytes, bool to_device);

#endif

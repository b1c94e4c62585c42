/* Streams and events of the fake table: the host device's. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_error.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_cuda_internal.h"

struct CUgreenCtx_st {
    uint64_t parts;
    int n_streams;
};

struct CUstream_st {
    struct sy_stream *host;
    struct CUgreenCtx_st *slice; /* NULL: the whole device */
};

struct CUevent_st {
    struct sy_event *host;
    bool timing;
    _Atomic bool recorded;
};

static int n_alive;

int fake_cuda_n_streams(void)
{
    return n_alive;
}

int fake_stream_create(struct CUstream_st **out, int level)
{
    NEED_CONTEXT();
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream || level < 0 ||
        sy_host_stream_ops.create(fake_cuda_host_device, SY_STREAM_COPY_H2D, &stream->host) < 0)
        abort();
    n_alive++;
    *out = stream;
    return 0;
}

int fake_slice_create(int ordinal, const int *parts, int n, struct CUgreenCtx_st **out)
{
    NEED_CONTEXT();
    if (fake_cuda.n_parts == 0)
        return SY_CUDA_NotSupported;
    if (ordinal != 0 || n < 1)
        return SY_CUDA_InvalidValue;
    struct CUgreenCtx_st *slice = calloc(1, sizeof *slice);
    if (!slice)
        abort();
    for (int i = 0; i < n; i++)
        slice->parts |= 1ull << parts[i];
    n_alive++;
    *out = slice;
    return 0;
}

/* A driver leaks what streams are left; here it is found. */
int fake_slice_destroy(struct CUgreenCtx_st *slice)
{
    if (slice->n_streams != 0)
        abort();
    n_alive--;
    free(slice);
    return fake_cuda_check_context();
}

int fake_slice_stream(struct CUgreenCtx_st *slice, struct CUstream_st **out, int level)
{
    int error = fake_stream_create(out, level);
    if (error)
        return error;
    (*out)->slice = slice;
    slice->n_streams++;
    return 0;
}

uint64_t fake_cuda_stream_parts(const struct CUstream_st *stream)
{
    return stream->slice ? stream->slice->parts : 0;
}

int fake_stream_destroy(struct CUstream_st *stream)
{
    if (stream->slice)
        stream->slice->n_streams--;
    sy_host_stream_ops.destroy(stream->host);
    n_alive--;
    free(stream);
    return fake_cuda_check_context();
}

int fake_stream_synchronize(struct CUstream_st *stream)
{
    NEED_CONTEXT();
    return sy_host_stream_ops.synchronize(stream->host) == SY_OK ? fake_cuda.broken
                                                                 : SY_CUDA_LaunchFailure;
}

struct copy {
    void *to;
    const void *from;
    uint64_t bytes;
};

static void run_copy(void *arg)
{
    struct copy *copy = arg;
    memcpy(copy->to, copy->from, copy->bytes);
    free(copy);
}

int fake_copy(struct CUstream_st *stream, void *at, uint64_t address, uint64_t bytes,
              bool to_device)
{
    void *device = (void *)(uintptr_t)address;
    NEED_CONTEXT();
    struct copy *copy = malloc(sizeof *copy);
    if (!copy)
        abort();
    *copy = to_device ? (struct copy){device, at, bytes} : (struct copy){at, device, bytes};
    return sy_host_stream_ops.launch(stream->host, run_copy, copy) == SY_OK
               ? 0
               : (free(copy), SY_CUDA_LaunchOutOfResources);
}

int fake_launch_host(struct CUstream_st *stream, void (*fn)(void *arg), void *arg)
{
    NEED_CONTEXT();
    return sy_host_stream_ops.launch(stream->host, fn, arg) == SY_OK ? 0
                                                                     : SY_CUDA_LaunchOutOfResources;
}

int fake_wait_event(struct CUstream_st *stream, struct CUevent_st *event)
{
    NEED_CONTEXT();
    return sy_host_stream_ops.wait_event(stream->host, event->host) == SY_OK
               ? 0
               : SY_CUDA_LaunchOutOfResources;
}

int fake_event_create(struct CUevent_st **out, bool timing)
{
    NEED_CONTEXT();
    struct CUevent_st *event = calloc(1, sizeof *event);
    if (!event || sy_host_stream_ops.event_create(fake_cuda_host_device, &event->host) < 0)
        abort();
    event->timing = timing;
    n_alive++;
    *out = event;
    return 0;
}

int fake_event_destroy(struct CUevent_st *event)
{
    sy_host_stream_ops.event_destroy(event->host);
    n_alive--;
    free(event);
    return fake_cuda_check_context();
}

int fake_event_record(struct CUevent_st *event, struct CUstream_st *stream)
{
    NEED_CONTEXT();
    event->recorded = true;
    return sy_host_stream_ops.event_record(event->host, stream->host) == SY_OK
               ? 0
               : SY_CUDA_LaunchOutOfResources;
}

/* As in CUDA, one that was never recorded is done. */
int fake_event_query(struct CUevent_st *event)
{
    NEED_CONTEXT();
    if (!event->recorded)
        return 0;
    return sy_host_stream_ops.event_query(event->host) == 1 ? 0 : SY_CUDA_NotReady;
}

int fake_event_synchronize(struct CUevent_st *event)
{
    NEED_CONTEXT();
    if (event->recorded)
        (void)sy_host_stream_ops.event_synchronize(event->host, UINT64_MAX);
    return fake_cuda.broken;
}

int fake_event_elapsed(float *out_ms, struct CUevent_st *from, struct CUevent_st *to)
{
    NEED_CONTEXT();
    if (!from->recorded || !to->recorded || !from->timing || !to->timing)
        return SY_CUDA_InvalidResourceHandle;
    sy_ns start = sy_host_stream_ops.event_time(from->host);
    sy_ns end = sy_host_stream_ops.event_time(to->host);
    if (!start || !end)
        return SY_CUDA_NotReady;
    *out_ms = (float)((double)((int64_t)end - (int64_t)start) / 1e6);
    return 0;
}

/* What the files of the fake table share: whether there is a context, and the calls of streams and events. */
#ifndef SY_TESTS_FAKES_FAKE_CUDA_INTERNAL_H
#define SY_TESTS_FAKES_FAKE_CUDA_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/device/host_stream.h"

struct CUstream_st;
struct CUevent_st;
struct CUgreenCtx_st;

extern struct sy_device *fake_cuda_host_device; /* whose streams these are */

/* C2, and what a broken context does to every call: CUDA's error number. */
int fake_cuda_check_context(void);
#define NEED_CONTEXT()                            \
    do {                                          \
        int context_ = fake_cuda_check_context(); \
        if (context_)                             \
            return context_;                      \
    } while (0)

/* ---- fake_cuda_streams.c ---- */
int fake_cuda_n_streams(void); /* and events that are there */
int fake_stream_create(struct CUstream_st **out, int level);
int fake_slice_create(int ordinal, const int *parts, int n, struct CUgreenCtx_st **out);
int fake_slice_destroy(struct CUgreenCtx_st *slice);
int fake_slice_stream(struct CUgreenCtx_st *slice, struct CUstream_st **out, int level);
int fake_stream_destroy(struct CUstream_st *stream);
int fake_stream_synchronize(struct CUstream_st *stream);
int fake_copy(struct CUstream_st *stream, void *at, uint64_t address, uint64_t bytes,
              bool to_device);
int fake_launch_host(struct CUstream_st *stream, void (*fn)(void *arg), void *arg);
int fake_wait_event(struct CUstream_st *stream, struct CUevent_st *event);
int fake_event_create(struct CUevent_st **out, bool timing);
int fake_event_destroy(struct CUevent_st *event);
int fake_event_record(struct CUevent_st *event, struct CUstream_st *stream);
int fake_event_query(struct CUevent_st *event);
int fake_event_synchronize(struct CUevent_st *event);
int fake_event_elapsed(float *out_ms, struct CUevent_st *from, struct CUevent_st *to);

#endif

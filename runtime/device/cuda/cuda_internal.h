/* Shared by the parts of the CUDA device. The numbered rules (D..., C...) are in README.md here and in runtime/device/. */
#ifndef SY_DEVICE_CUDA_CUDA_INTERNAL_H
#define SY_DEVICE_CUDA_CUDA_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "runtime/device/cuda/cuda_api.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/event_clock.h"
#include "runtime/device/cuda/pool_fallback.h"

#define SY_CUDA_MAX_REGISTERED 32 /* host ranges of one process */

enum sy_registered_state { SY_REGISTER_QUEUED, SY_REGISTER_BUSY, SY_REGISTER_DONE };

struct sy_registered {
    void *base;
    uint64_t bytes;
    uint64_t pinned_bytes; /* from base on */
    enum sy_registered_state state;
    bool cancel; /* stop behind the piece that is being pinned */
    int status;  /* when DONE */
    char why[256];
};

/* Pins host memory in a thread of its own, one range after the other (C6). */
struct sy_cuda_registrar {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_thread, running; /* to be joined; not yet at its end */
    pthread_t thread;
    int n;
    struct sy_registered ranges[SY_CUDA_MAX_REGISTERED];
};

/* The device's clock against the host's (event_clock.h). `stream` and the events are NULL until the first event is made. */
struct sy_cuda_clock {
    pthread_mutex_t lock;
    struct CUstream_st *stream;
    struct CUevent_st *reference, *next;
    bool next_pending; /* recorded at next_before, not seen done */
    sy_ns next_before;
    struct sy_event_clock clock;
};

struct sy_cuda_pool {
    struct sy_pool_memory base; /* base.base is 0 until a keeper's pool is mapped */
    enum sy_pool_way way;
    bool mapped; /* either way */
    /* By fd: */
    uint64_t memory; /* the driver's handle */
    uint64_t slot;   /* of the process's places; 0: none */
    bool reserved;   /* base.base, with the driver */
    /* By keeper: */
    pid_t keeper;      /* in the process that started it; 0: none */
    int keeper_socket; /* closing it ends the keeper */
    unsigned char ipc[SY_CUDA_IPC_BYTES];
    struct sy_cuda_pool *next;
};

struct sy_cuda_device {
    struct sy_device base;
    const struct sy_cuda_api *api;
    unsigned char uuid[SY_CUDA_UUID_BYTES];
    char name[48];            /* as the driver says it */
    bool read_only_register;  /* the device can register memory that is mapped read-only */
    _Atomic int status;       /* D5: any thread writes it, once */
    char failed_why[256];     /* written before status */
    pthread_mutex_t failing;  /* held while these two are written; taken last */
    pthread_mutex_t lock;     /* of what follows */
    _Atomic bool has_context; /* may be read without */
    bool way_known;
    enum sy_pool_way way;
    struct sy_cuda_pool *pools;
    struct sy_cuda_registrar registrar;
    struct sy_cuda_clock clock;
};

extern const struct sy_memory_ops sy_cuda_memory_ops;
extern const struct sy_stream_ops sy_cuda_stream_ops;

/* ---- cuda_slice.c ---- */

/* Placement of a stream's work. */
struct sy_cuda_slice {
    struct CUgreenCtx_st *context; /* NULL: the whole device */
    uint64_t parts;                /* a bit each */
};

int sy_cuda_compute_parts(struct sy_device *device, struct sy_compute_parts *out);
/* A bit for each part; 0 for n 0. EARG: none that there is. */
int sy_cuda_parts_read(struct sy_cuda_device *device, const int *parts, int n, uint64_t *out);
/* In the context: a slice of these parts, and a stream on it. parts 0: the whole device. On failure nothing is left. */
int sy_cuda_slice_open(struct sy_cuda_device *device, uint64_t parts, int level,
                       struct sy_cuda_slice *out, struct CUstream_st **out_stream);
/* Its streams are destroyed. */
void sy_cuda_slice_close(struct sy_cuda_device *device, struct sy_cuda_slice *slice);

#define SY_CUDA_KEPT_SLICES 8

/* Slices that a stream has left, with their idle streams: a green context that is destroyed leaves 4 MiB of the GPU's memory behind (driver 580). The
 * stream's owner uses it; zeroed is empty. */
struct sy_cuda_kept_slices {
    struct {
        struct sy_cuda_slice slice;
        struct CUstream_st *stream; /* NULL: free */
    } at[SY_CUDA_KEPT_SLICES];
    unsigned oldest;
};

/* Gives the slice of these parts up to the caller. False: it is not kept. */
bool sy_cuda_kept_take(struct sy_cuda_kept_slices *kept, uint64_t parts, struct sy_cuda_slice *out,
                       struct CUstream_st **out_stream);
/* Nothing is queued in the stream. Of more than SY_CUDA_KEPT_SLICES the one that was put first is destroyed. */
void sy_cuda_kept_put(struct sy_cuda_device *device, struct sy_cuda_kept_slices *kept,
                      const struct sy_cuda_slice *slice, struct CUstream_st *stream);
void sy_cuda_kept_finish(struct sy_cuda_device *device, struct sy_cuda_kept_slices *kept);

/* ---- cuda_failure.c: and sy_cuda_device_check, sy_cuda_device_failed ---- */

/* Sets the error's text, of `what` and CUDA's own; gives its status. */
int sy_cuda_device_set_text(struct sy_cuda_device *device, int error, const char *what);

/* ---- cuda_context.c: and sy_cuda_device_enter ---- */

/* Has this process asked for a context, on any device? */
bool sy_cuda_made_context(void);

/* ---- cuda_pool_map.c ---- */

/* C3, the maker's side: keeps the pool's place from now on, without a context. */
void sy_cuda_pool_reserve(struct sy_cuda_device *device, struct sy_cuda_pool *pool);
/* Maps one pool; in the context. With the device's lock held, as enter does it. */
int sy_cuda_pool_map(struct sy_cuda_device *device, struct sy_cuda_pool *pool);

/* ---- cuda_register.c ---- */

void sy_cuda_registrar_init(struct sy_cuda_registrar *registrar);
/* Waits for its thread; unregisters what is left. */
void sy_cuda_registrar_finish(struct sy_cuda_device *device);
int sy_cuda_host_register(struct sy_device *device, void *base, uint64_t bytes);
int sy_cuda_host_unregister(struct sy_device *device, void *base);
int sy_cuda_host_register_wait(struct sy_device *device, sy_ns timeout_ns);
/* How much of [host, host+bytes) one copy may take: no more than what lies in one piece that is or may be pinned, or outside of all (C6). */
uint64_t sy_cuda_copy_piece(struct sy_cuda_device *device, const void *host, uint64_t bytes);

/* ---- cuda_clock.c ---- */

void sy_cuda_clock_init(struct sy_cuda_clock *clock);
/* Makes the reference, once; in the context. */
int sy_cuda_clock_open(struct sy_cuda_device *device);
void sy_cuda_clock_finish(struct sy_cuda_device *device);
/* An event is about to be recorded: starts a new reference when the old one is far away. Never fails, never waits. */
void sy_cuda_clock_tick(struct sy_cuda_device *device, sy_ns now);
/* When `event`, recorded at `recorded` and seen done at `seen`, was signalled. Falls back to `seen`. */
sy_ns sy_cuda_clock_time(struct sy_cuda_device *device, struct CUevent_st *event, sy_ns recorded,
                         sy_ns seen);

#endif

/* The table of device mathematics on CUDA: opening, memory, graphs; and the plugin's symbol. */
#include "workers/cuda/math_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_device.h"
#include "workers/cuda/kernels/kernel_ops.h"
#include "workers/cuda/kernels/kernels.h"
#include "workers/cuda/library/math_internal.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/cuda/program/host_ops.h"
#include "workers/cuda/train/cuda_trainer.h"

#define MOST_READ (1ull << 30) /* bytes that a kernel reads in the host's memory */

static void plan_drop(struct sy_math *math, struct sy_math_plan *plan)
{
    (void)math;
    (void)plan; /* remembered until close */
}

/* ---- life -------------------------------------------------------------------------------------------- */

static void close_math(struct sy_math *math)
{
    if (!math)
        return;
    if (math->compute)
        sy_cuda_stream_on_move(math->compute, NULL, NULL);
    while (math->plans) {
        struct sy_math_plan *p = math->plans;
        math->plans = p->next;
        sy_math_conv_finish(p);
        sy_math_matmul_finish(p);
        free(p);
    }
    sy_cudnn_library_finish(math);
    sy_choices_destroy(math->choices);
    sy_choices_destroy(math->warm);
    if (math->cudnn)
        cudnnDestroy(math->cudnn);
    if (math->lt)
        cublasLtDestroy(math->lt);
    if (math->start)
        (void)cudaEventDestroy(math->start);
    if (math->stop)
        (void)cudaEventDestroy(math->stop);
    for (unsigned i = 0; i < SY_MATH_MARKS; i++)
        if (math->marks[i])
            (void)cudaEventDestroy(math->marks[i]);
    free(math);
}

/* Text by which measurements of another kind of device, or by other libraries, are told apart. */
static int open_choices(struct sy_math *math)
{
    char label[256];
    int ordinal = 0;
    struct cudaDeviceProp properties;
    SY_CUDA(math, cudaGetDevice(&ordinal));
    SY_CUDA(math, cudaGetDeviceProperties(&properties, ordinal));
    snprintf(label, sizeof label, "%.100s sm_%d%d cudnn %zu cublaslt %zu %s", properties.name,
             properties.major, properties.minor, cudnnGetVersion(), cublasLtGetVersion(),
             math->tf32 ? "tf32" : "f32");
    SY_TRY(sy_choices_create("warm", &math->warm));
    return sy_choices_create(label, &math->choices);
}

/* What attention's kernel is launched with. */
static int check_shared(struct sy_math *math)
{
    int ordinal = 0, bytes = 0;
    SY_CUDA(math, cudaGetDevice(&ordinal));
    SY_CUDA(math, cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal));
    if (bytes < SY_KERNEL_SHARED_BYTES)
        return sy_error_set(SY_ENODEVICE,
                            "cuda:%d gives a block %d bytes of shared memory, %d needed", ordinal,
                            bytes, SY_KERNEL_SHARED_BYTES);
    return SY_OK;
}

static int open_parts(struct sy_math *math)
{
    SY_TRY(check_shared(math));
    SY_TRY(open_choices(math));
    SY_CUDA(math, cudaEventCreate(&math->start));
    SY_CUDA(math, cudaEventCreate(&math->stop));
    for (unsigned i = 0; i < SY_MATH_MARKS; i++) /* waits sleep */
        SY_CUDA(math, cudaEventCreateWithFlags(&math->marks[i], cudaEventBlockingSync));
    SY_CUDNN(math, cudnnCreate(&math->cudnn));
    SY_CUDNN(math, cudnnSetStream(math->cudnn, math->stream));
    SY_LT(math, cublasLtCreate(&math->lt));
    sy_math_load_kernels();
    return SY_OK;
}

/* The stream goes on under another handle, in another slice. Plans stay: what was chosen for the whole device gives the same bits on a part
 * of it, which no choice by the slice's size would. */
static int follow(void *ctx, cudaStream_t stream)
{
    struct sy_math *math = ctx;
    SY_CUDNN(math, cudnnSetStream(math->cudnn, stream));
    math->stream = stream;
    return SY_OK;
}

static int open_math(struct sy_device *device, struct sy_stream *compute, struct sy_math **out)
{
    const char *tf32 = getenv("SY_CUDA_TF32");
    SY_TRY(sy_cuda_device_enter(device));
    struct sy_math *math = calloc(1, sizeof *math);
    SY_TRY_ALLOC(math, "no memory for the CUDA engine");
    math->device = device;
    math->stream = sy_cuda_stream_handle(compute);
    math->tf32 = tf32 && strcmp(tf32, "1") == 0;
    int status = open_parts(math);
    if (status < 0) {
        close_math(math);
        return status;
    }
    math->compute = compute;
    sy_cuda_stream_on_move(compute, follow, math);
    *out = math;
    return SY_OK;
}

static void tune(struct sy_math *math, bool on)
{
    math->tune = on;
}

static int choices(struct sy_math *math, char **out)
{
    return sy_choices_write(math->choices, out);
}

static int use_choices(struct sy_math *math, const char *text)
{
    return sy_choices_read(math->choices, text);
}

static int host_take(struct sy_math *math, uint64_t bytes, void **out)
{
    return sy_math_pinned_take(math, bytes, cudaHostAllocMapped, out);
}

static void host_drop(struct sy_math *math, void *memory)
{
    (void)math;
    if (memory)
        (void)cudaFreeHost(memory);
}

/* ---- marks ------------------------------------------------------------------------------------------- */

static int mark(struct sy_math *math, unsigned slot)
{
    assert(slot < SY_MATH_MARKS);
    SY_CUDA(math, cudaEventRecord(math->marks[slot], math->stream));
    math->marked[slot] = true;
    return SY_OK;
}

static int wait_mark(struct sy_math *math, unsigned slot, int before, uint64_t *out_ns)
{
    float ms = 0;
    *out_ns = 0;
    SY_CUDA(math, cudaEventSynchronize(math->marks[slot]));
    if (before < 0 || !math->marked[before])
        return SY_OK;
    cudaError_t error = cudaEventElapsedTime(&ms, math->marks[before], math->marks[slot]);
    if (error == cudaErrorNotReady) { /* `before` is noted anew: what it says is of later work */
        (void)cudaGetLastError();
        return SY_OK;
    }
    SY_TRY(sy_math_cuda_check(math, error, "cudaEventElapsedTime"));
    *out_ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return SY_OK;
}

static int synchronize(struct sy_math *math)
{
    SY_CUDA(math, cudaStreamSynchronize(math->stream));
    return SY_OK;
}

/* ---- copies ------------------------------------------------------------------------------------------- */

/* By their addresses: parameters and results may lie in host memory that the device maps. */
static int copy(struct sy_math *math, const void *from, void *to, uint64_t bytes)
{
    SY_CUDA(math, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, math->stream));
    return SY_OK;
}

static int zero(struct sy_math *math, void *to, uint64_t bytes)
{
    SY_CUDA(math, cudaMemsetAsync(to, 0, bytes, math->stream));
    return SY_OK;
}

/* Pinned, and mapped where the host has it. Both ends are looked at: so many bytes lie in two pinned pieces at most. */
static bool device_reads(const void *host, uint64_t bytes)
{
    const char *ends[] = {host, (const char *)host + bytes - 1};
    for (int i = 0; i < 2; i++) {
        struct cudaPointerAttributes a;
        bool mapped = cudaPointerGetAttributes(&a, ends[i]) == cudaSuccess &&
                      a.type == cudaMemoryTypeHost && a.devicePointer == ends[i];
        if (!mapped) {
            sy_math_forget_errors();
            return false;
        }
    }
    return true;
}

/* Inputs of a run are read by a kernel: the copy engine would take them behind the weights that a swap has queued on another stream, and the
 * first layer would wait for the last group (an H200: 2 ms of Inception-v3). */
static int to_device(struct sy_math *math, const void *host, void *to, uint64_t bytes)
{
    if (bytes > 0 && bytes <= MOST_READ && (uintptr_t)host % 16 == 0 && (uintptr_t)to % 16 == 0 &&
        device_reads(host, bytes)) {
        struct sy_math_move move = {.element_bytes = 1,
                                    .rank = 1,
                                    .dims = {(int64_t)bytes},
                                    .from_strides = {1},
                                    .to_strides = {1}};
        return sy_kernel_ops_move(math, &move, host, to);
    }
    return sy_cuda_device_copy(math->device, math->stream, (void *)(uintptr_t)host, /* is read */
                               (uint64_t)(uintptr_t)to, bytes, true);
}

static int to_host(struct sy_math *math, const void *from, void *host, uint64_t bytes)
{
    return sy_cuda_device_copy(math->device, math->stream, host, (uint64_t)(uintptr_t)from, bytes,
                               false);
}

static const struct sy_math_ops sy_cuda_math = {
    .name = "cuda",
    .scratch_bytes = SY_MATH_SCRATCH_BYTES,
    .back_scratch_bytes = SY_MATH_BACK_SCRATCH_BYTES,
    .open = open_math,
    .close = close_math,
    .host_take = host_take,
    .host_drop = host_drop,
    .conv_plan = sy_math_conv_plan,
    .matmul_plan = sy_math_matmul_plan,
    .plan_drop = plan_drop,
    .tune = tune,
    .choices = choices,
    .use_choices = use_choices,
    .conv = sy_math_conv_run,
    .matmul = sy_math_matmul_run,
    .zero = zero,
    SY_KERNEL_OPS,
    .library = &sy_cudnn_library,
    .mark = mark,
    .wait_mark = wait_mark,
    .synchronize = synchronize,
    .copy = copy,
    .to_device = to_device,
    .to_host = to_host,
    .capture_begin = sy_math_capture_begin,
    .capture_end = sy_math_capture_end,
    .graph_launch = sy_math_graph_launch,
    .graph_drop = sy_math_graph_drop,
};

const struct sy_engine_ops *sy_cuda_engine_v1(uint32_t layout_bytes,
                                              const struct sy_engine_ops *host)
{
    if (layout_bytes != SY_ENGINE_LAYOUT_BYTES)
        return NULL;
    sy_cuda_host_engine_use(host);
    sy_cuda_engine_use(&sy_cuda_math);
    return &sy_cuda_engine;
}

const struct sy_trainer_ops *sy_cuda_trainer_v1(uint32_t layout_bytes)
{
    return layout_bytes == SY_TRAINER_LAYOUT_BYTES ? &sy_cuda_trainer : NULL;
}

/* device_side.h on CUDA. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_device.h"
#include "workers/cuda/kernels/kernels_ranks.h"
#include "workers/cuda/library/math_internal.h"
#include "workers/cuda/math/device_side.h"

#define MOST_BLOCKS 2

struct sy_side {
    struct sy_math *math;
    cudaStream_t stream;
    cudaEvent_t *marks;
    unsigned n_marks;
    void *blocks[MOST_BLOCKS], *host_blocks[MOST_BLOCKS];
    int n_blocks, n_host_blocks;
};

/* S1: both kernels are loaded now. */
static int run_once(struct sy_side *side)
{
    void *room;
    struct sy_math *math = side->math;
    SY_CUDA(math, cudaMalloc(&room, 2 * sizeof(float)));
    cudaError_t error =
        (cudaError_t)sy_kernel_add_ranks(side->stream, 1, 1, room, (float *)room + 1);
    if (error == cudaSuccess)
        error = (cudaError_t)sy_kernel_scale(side->stream, 1, 1, room, (float *)room + 1);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(side->stream);
    (void)cudaFree(room);
    return sy_math_cuda_check(math, error, "the kernels of ranks");
}

static int make_parts(struct sy_side *side)
{
    int least, greatest;
    struct sy_math *math = side->math;
    SY_CUDA(math, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    SY_CUDA(math, cudaStreamCreateWithPriority(&side->stream, cudaStreamNonBlocking, greatest));
    for (unsigned i = 0; i < side->n_marks; i++)
        SY_CUDA(math, cudaEventCreateWithFlags(&side->marks[i], cudaEventDisableTiming));
    return run_once(side);
}

int sy_side_open(struct sy_math *math, unsigned n_marks, struct sy_side **out)
{
    struct sy_side *side = calloc(1, sizeof *side);
    SY_TRY_ALLOC(side, "no memory for a second stream");
    *side = (struct sy_side){
        .math = math, .n_marks = n_marks, .marks = calloc(n_marks + 1u, sizeof(cudaEvent_t))};
    int status = side->marks ? make_parts(side)
                             : sy_error_set(SY_ENOMEM_HOST, "no memory for %u marks", n_marks);
    if (status < 0) {
        sy_side_close(side);
        return status;
    }
    *out = side;
    return SY_OK;
}

void sy_side_close(struct sy_side *side)
{
    if (!side)
        return;
    if (side->stream)
        (void)cudaStreamDestroy(side->stream);
    for (unsigned i = 0; side->marks && i < side->n_marks && side->marks[i]; i++)
        (void)cudaEventDestroy(side->marks[i]);
    for (int i = 0; i < side->n_blocks; i++)
        (void)cudaFree(side->blocks[i]);
    for (int i = 0; i < side->n_host_blocks; i++)
        (void)cudaFreeHost(side->host_blocks[i]);
    free(side->marks);
    free(side);
}

int sy_side_take(struct sy_side *side, uint64_t bytes, void **out)
{
    assert(side->n_blocks < MOST_BLOCKS);
    SY_CUDA(side->math, cudaMalloc(out, bytes));
    side->blocks[side->n_blocks++] = *out;
    return SY_OK;
}

int sy_side_take_host(struct sy_side *side, uint64_t bytes, void **out)
{
    assert(side->n_host_blocks < MOST_BLOCKS);
    SY_TRY(sy_math_pinned_take(side->math, bytes, cudaHostAllocDefault, out));
    side->host_blocks[side->n_host_blocks++] = *out;
    return SY_OK;
}

/* ---- into the stream that computes ---------------------------------------------------------------------- */

int sy_side_gather(struct sy_side *side, const void *from, void *to, uint64_t bytes)
{
    SY_CUDA(side->math,
            cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, side->math->stream));
    return SY_OK;
}

int sy_side_mark(struct sy_side *side, unsigned mark)
{
    assert(mark < side->n_marks);
    SY_CUDA(side->math, cudaEventRecord(side->marks[mark], side->math->stream));
    return SY_OK;
}

int sy_side_scale(struct sy_side *side, const void *from, float share, uint64_t n, void *to)
{
    return sy_math_kernel_check(
        side->math, sy_kernel_scale(side->math->stream, (int64_t)n, share, from, to), "mean");
}

int sy_side_clear(struct sy_side *side, void *to, uint64_t bytes)
{
    SY_CUDA(side->math, cudaMemsetAsync(to, 0, bytes, side->math->stream));
    return SY_OK;
}

/* ---- the other thread ------------------------------------------------------------------------------------- */

int sy_side_enter(struct sy_side *side)
{
    return sy_cuda_device_enter(side->math->device);
}

static int is_done(struct sy_side *side, cudaError_t error, const char *call, bool *done)
{
    *done = error == cudaSuccess;
    if (error != cudaErrorNotReady)
        return sy_math_cuda_check(side->math, error, call);
    (void)cudaGetLastError();
    return SY_OK;
}

int sy_side_passed(struct sy_side *side, unsigned mark, bool *passed)
{
    assert(mark < side->n_marks);
    return is_done(side, cudaEventQuery(side->marks[mark]), "cudaEventQuery", passed);
}

int sy_side_idle(struct sy_side *side, bool *idle)
{
    return is_done(side, cudaStreamQuery(side->stream), "cudaStreamQuery", idle);
}

void *sy_side_handle(struct sy_side *side)
{
    return side->stream;
}

int sy_side_add(struct sy_side *side, int n_parts, const void *from, uint64_t n, void *to)
{
    return sy_math_kernel_check(side->math,
                                sy_kernel_add_ranks(side->stream, n_parts, (int64_t)n, from, to),
                                "sum of ranks");
}

int sy_side_to_host(struct sy_side *side, const void *from, void *host, uint64_t bytes)
{
    SY_CUDA(side->math, cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, side->stream));
    return SY_OK;
}

int sy_side_to_device(struct sy_side *side, const void *host, void *to, uint64_t bytes)
{
    SY_CUDA(side->math, cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, side->stream));
    return SY_OK;
}

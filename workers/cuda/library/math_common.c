/* Shared by kernels and libraries of an open device: answers of CUDA's libraries as a status, plans by description, trials, captured graphs. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_device.h"
#include "workers/cuda/library/math_internal.h"

#define N_TIMED          3
#define CUDNN_TEXT_BYTES 360

/* ---- answers ------------------------------------------------------------------------------------------ */

int sy_math_cuda_check(struct sy_math *math, cudaError_t error, const char *call)
{
    return error == cudaSuccess ? SY_OK
                                : sy_cuda_device_check(math->device, (int)error, "%.80s", call);
}

int sy_math_pinned_take(struct sy_math *math, uint64_t bytes, unsigned flags, void **out)
{
    cudaError_t error = cudaHostAlloc(out, bytes, flags);
    if (error != cudaErrorMemoryAllocation)
        return sy_math_cuda_check(math, error, "cudaHostAlloc");
    (void)cudaGetLastError();
    return sy_error_set(SY_ENOMEM_HOST, "cudaHostAlloc: no %llu bytes of pinned memory",
                        (unsigned long long)bytes);
}

/* If CUDA itself has failed behind a library's answer, that is what is told. */
static int library_failed(struct sy_math *math, int status, const char *call, const char *text)
{
    cudaError_t behind = cudaPeekAtLastError();
    if (behind != cudaSuccess)
        SY_TRY(sy_math_cuda_check(math, behind, call));
    return sy_error_set(status, "%.120s: %s", call, text);
}

/* The answer's name and, on the same line, what cuDNN says of the condition that was not met. */
static const char *describe_cudnn(cudnnStatus_t answer, char text[CUDNN_TEXT_BYTES])
{
    char why[CUDNN_TEXT_BYTES / 2] = "";
    cudnnGetLastErrorString(why, sizeof why);
    for (char *at = why; *at; at++)
        *at = *at == '\n' ? ' ' : *at;
    snprintf(text, CUDNN_TEXT_BYTES, "%s%s%s", cudnnGetErrorString(answer), *why ? ": " : "", why);
    return text;
}

int sy_math_cudnn_check(struct sy_math *math, cudnnStatus_t answer, const char *call)
{
    int status = SY_EBUG, number = (int)answer;
    char text[CUDNN_TEXT_BYTES];
    if (answer == CUDNN_STATUS_SUCCESS)
        return SY_OK;
    if (number >= 3000 && number < 4000) /* CUDNN_STATUS_NOT_SUPPORTED and its kinds */
        status = SY_EUNSUPPORTED;
    else if (answer == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
        status = SY_ENOMEM_HOST;
    else if (answer == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        status = SY_ENOMEM_DEVICE;
    else if (number >= 5000) /* CUDNN_STATUS_EXECUTION_FAILED and its kinds */
        status = SY_EDEVICE;
    else if (number >= 1000 && number < 2000) /* not initialized, and its kinds */
        status = SY_ENODEVICE;
    return library_failed(math, status, call, describe_cudnn(answer, text));
}

int sy_math_lt_check(struct sy_math *math, cublasStatus_t answer, const char *call)
{
    int status = SY_EBUG;
    if (answer == CUBLAS_STATUS_SUCCESS)
        return SY_OK;
    if (answer == CUBLAS_STATUS_NOT_SUPPORTED || answer == CUBLAS_STATUS_ARCH_MISMATCH)
        status = SY_EUNSUPPORTED;
    else if (answer == CUBLAS_STATUS_ALLOC_FAILED)
        status = SY_ENOMEM_DEVICE;
    else if (answer == CUBLAS_STATUS_NOT_INITIALIZED)
        status = SY_ENODEVICE;
    else if (answer == CUBLAS_STATUS_EXECUTION_FAILED || answer == CUBLAS_STATUS_MAPPING_ERROR ||
             answer == CUBLAS_STATUS_INTERNAL_ERROR)
        status = SY_EDEVICE;
    return library_failed(math, status, call, cublasLtGetStatusString(answer));
}

struct CUstream_st *sy_math_kernel_stream(struct sy_math *math)
{
    return math->stream;
}

uint64_t sy_math_kernel_scratch(void)
{
    return SY_MATH_SCRATCH_BYTES;
}

bool sy_math_kernel_tf32(const struct sy_math *math)
{
    return math->tf32;
}

int sy_math_kernel_check(struct sy_math *math, int error, const char *name)
{
    return error == 0 ? SY_OK : sy_cuda_device_check(math->device, error, "the %s kernel", name);
}

/* ---- plans ------------------------------------------------------------------------------------------- */

struct sy_math_plan *sy_math_find(struct sy_math *math, const int64_t *key)
{
    struct sy_math_plan *p = math->plans;
    while (p && memcmp(p->key, key, sizeof p->key) != 0)
        p = p->next;
    return p;
}

void sy_math_keep(struct sy_math *math, struct sy_math_plan *plan)
{
    plan->next = math->plans;
    math->plans = plan;
}

const struct sy_choice *sy_math_chosen(struct sy_math *math, const int64_t *key, int batch_word)
{
    return sy_choices_find_any(math->choices, key, SY_MATH_KEY, (size_t)batch_word);
}

int sy_math_choose(struct sy_math *math, const int64_t *key, int batch_word,
                   struct sy_choice *choice)
{
    return sy_choices_put_any(math->choices, key, SY_MATH_KEY, (size_t)batch_word, choice);
}

bool sy_math_trial_take(struct sy_math *math, uint64_t bytes, unsigned char **out)
{
    void *memory = NULL;
    *out = NULL;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        if (math->tune)
            sy_log_info("cuda",
                        "event=no_trial bytes=%llu why=\"no memory beside the pool to time "
                        "algorithms\"",
                        (unsigned long long)bytes);
        return false;
    }
    if (cudaMemsetAsync(memory, 0, bytes, math->stream) != cudaSuccess) {
        (void)cudaGetLastError();
        cudaFree(memory);
        return false;
    }
    *out = memory;
    return true;
}

void sy_math_trial_drop(struct sy_math *math, unsigned char *memory)
{
    (void)math;
    if (memory)
        (void)cudaFree(memory);
}

int sy_math_time(struct sy_math *math, int (*run)(void *arg), void *arg, float *out_ms)
{
    SY_TRY(run(arg));
    SY_CUDA(math, cudaStreamSynchronize(math->stream));
    SY_CUDA(math, cudaEventRecord(math->start, math->stream));
    for (int i = 0; i < N_TIMED; i++)
        SY_TRY(run(arg));
    SY_CUDA(math, cudaEventRecord(math->stop, math->stream));
    SY_CUDA(math, cudaEventSynchronize(math->stop));
    SY_CUDA(math, cudaEventElapsedTime(out_ms, math->start, math->stop));
    *out_ms /= N_TIMED;
    return SY_OK;
}

/* ---- graphs ------------------------------------------------------------------------------------------- */

/* Captures this thread's calls only: another one goes on pinning host memory. */
int sy_math_capture_begin(struct sy_math *math)
{
    SY_CUDA(math, cudaStreamBeginCapture(math->stream, cudaStreamCaptureModeThreadLocal));
    return SY_OK;
}

/* A call that invalidates the capture is not a device failure: the program then runs call by call. */
int sy_math_capture_end(struct sy_math *math, struct sy_math_graph **out)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t runnable = NULL;
    *out = NULL;
    cudaError_t error = cudaStreamEndCapture(math->stream, &graph);
    if (error == cudaSuccess)
        error = cudaGraphInstantiate(&runnable, graph, 0);
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (error == cudaSuccess) {
        *out = (struct sy_math_graph *)runnable;
        return SY_OK;
    }
    sy_log_info("cuda", "event=no_graph why=\"%s\"", cudaGetErrorString(error));
    (void)cudaGetLastError();
    return sy_cuda_device_failed(math->device);
}

int sy_math_graph_launch(struct sy_math *math, struct sy_math_graph *graph)
{
    SY_CUDA(math, cudaGraphLaunch((cudaGraphExec_t)graph, math->stream));
    return SY_OK;
}

void sy_math_graph_drop(struct sy_math *math, struct sy_math_graph *graph)
{
    (void)math;
    if (graph)
        (void)cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

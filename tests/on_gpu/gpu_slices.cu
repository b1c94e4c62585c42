// Where kernels run, and work whose result and time can be compared: what slices of a GPU are proved by. Loaded by test_gpu_slices.

#define SHOWS extern "C" __attribute__((visibility("default")))

/* Each block says on which multiprocessor it is, and stays there so long that all of the slice are wanted. */
__global__ void where(unsigned *on, long long clocks)
{
    long long begin = clock64();
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    while (clock64() - begin < clocks)
        ;
    if (threadIdx.x == 0)
        on[blockIdx.x] = sm;
}

/* A chain of sums that depend on one another, as many as `steps`; sums over threads have a fixed order. */
__global__ void work(float *out, int steps)
{
    __shared__ float part[256];
    float x = (float)(blockIdx.x * blockDim.x + threadIdx.x) * 1e-3f;
    for (int i = 0; i < steps; i++)
        x = x * 0.999f + __sinf(x) * 1e-2f;
    part[threadIdx.x] = x;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}

static int used;

/* The GPU that all that follows is on, whichever thread calls it. */
SHOWS void gpu_use(int ordinal)
{
    used = ordinal;
}

/* The multiprocessors that n blocks were on, n <= 4096. CUDA's error. */
SHOWS int gpu_where(void *stream, int n, unsigned *on)
{
    unsigned *device = nullptr;
    cudaError_t error = cudaSetDevice(used);
    if (error == cudaSuccess)
        error = cudaMalloc(&device, (size_t)n * sizeof *device);
    if (error != cudaSuccess)
        return (int)error;
    where<<<n, 32, 0, (cudaStream_t)stream>>>(device, 200000);
    error = cudaGetLastError();
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(on, device, (size_t)n * sizeof *on, cudaMemcpyDeviceToHost, (cudaStream_t)stream);
    cudaError_t ended = cudaStreamSynchronize((cudaStream_t)stream);
    cudaFree(device);
    return (int)(error ? error : ended);
}

/* Runs `work` so many times, of n blocks and so many steps, and waits for it. out: a float a block, on the host. */
SHOWS int gpu_work(void *stream, int times, int n, int steps, float *out)
{
    float *device = nullptr;
    cudaError_t error = cudaSetDevice(used);
    if (error == cudaSuccess)
        error = cudaMalloc(&device, (size_t)n * sizeof *device);
    if (error != cudaSuccess)
        return (int)error;
    for (int i = 0; i < times; i++)
        work<<<n, 256, 0, (cudaStream_t)stream>>>(device, steps);
    error = cudaGetLastError();
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(out, device, (size_t)n * sizeof *out, cudaMemcpyDeviceToHost, (cudaStream_t)stream);
    cudaError_t ended = cudaStreamSynchronize((cudaStream_t)stream);
    cudaFree(device);
    return (int)(error ? error : ended);
}

/* Bytes of the device that are free; 0: it cannot be read. */
SHOWS unsigned long long gpu_free_bytes(void)
{
    size_t left = 0, all = 0;
    return cudaSetDevice(used) == cudaSuccess && cudaMemGetInfo(&left, &all) == cudaSuccess ? left : 0;
}

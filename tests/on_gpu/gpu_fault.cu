// A kernel that writes where nothing is: what a worker must survive, on another worker's behalf. Loaded by test_gpu_device.

__global__ void write_to(int *place)
{
    *place = 1;
}

/* Runs it on the GPU in this process's context. CUDA's error of it; 0: it did not fail. */
extern "C" __attribute__((visibility("default"))) int gpu_fault(int ordinal)
{
    cudaError_t error = cudaSetDevice(ordinal);
    if (error != cudaSuccess)
        return (int)error;
    write_to<<<1, 1>>>(reinterpret_cast<int *>(64));
    return (int)cudaDeviceSynchronize();
}

/* For AVX-512: 24 sums of 16 floats in its 32 registers. */
#define LANES    16
#define ROWS     12
#define COMPILED __attribute__((target("avx512f")))
#define KERNELS  winograd_kernels_16
#include "workers/host/products/winograd_kernels.h"

/* For CPUs without AVX-512: 12 sums of 8 floats in 16 registers. */
#include "workers/host/base/clones.h"

#define LANES    8
#define ROWS     6
#define COMPILED SY_CLONES
#define KERNELS  winograd_kernels_8
#include "workers/host/products/winograd_kernels.h"

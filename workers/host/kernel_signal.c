/* signal */
#include "workers/host/kernel.h"

const struct sy_kernel sy_kernels_signal[] = {{0}};

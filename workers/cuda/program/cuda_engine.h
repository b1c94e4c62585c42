/* The CUDA engine: struct sy_engine_ops over a table of device mathematics. */
#ifndef SY_WORKERS_CUDA_PROGRAM_CUDA_ENGINE_H
#define SY_WORKERS_CUDA_PROGRAM_CUDA_ENGINE_H

#include "loader/graph/engine.h"
#include "workers/cuda/math/device_math.h"

/* Layouts and packing work at once; programs from attach to detach. One device a process. */
extern const struct sy_engine_ops sy_cuda_engine;

/* The mathematics that attach opens; static. Before attach. */
void sy_cuda_engine_use(const struct sy_math_ops *ops);

/* The attached device's mathematics; ENODEVICE: none is attached. */
int sy_cuda_engine_math(const struct sy_math_ops **ops, struct sy_math **math);

#endif

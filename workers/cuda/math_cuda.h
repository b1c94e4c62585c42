/* The engine's entry points that the plugin exports. */
#ifndef SY_WORKERS_CUDA_MATH_CUDA_H
#define SY_WORKERS_CUDA_MATH_CUDA_H

#include "runtime/device/cuda/plugin_entry.h"
#include "workers/cuda/math/device_math.h"
#include "workers/engine/engines.h"

/* workers/engine/engines.h says what it is. */
const struct sy_engine_ops *sy_cuda_engine_v1(uint32_t layout_bytes,
                                              const struct sy_engine_ops *host);
const struct sy_trainer_ops *sy_cuda_trainer_v1(uint32_t layout_bytes);

#endif

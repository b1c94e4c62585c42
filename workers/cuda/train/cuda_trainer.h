/* Training on the CUDA engine: struct sy_trainer_ops over device_math.h. */
#ifndef SY_WORKERS_CUDA_TRAIN_CUDA_TRAINER_H
#define SY_WORKERS_CUDA_TRAIN_CUDA_TRAINER_H

#include "workers/engine/trainer.h"

/* Between the engine's attach and detach. Memory that is bound is the device's. */
extern const struct sy_trainer_ops sy_cuda_trainer;

#endif

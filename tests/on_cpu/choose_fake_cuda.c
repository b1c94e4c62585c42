/* Linked to the engine's tests, makes them those of the CUDA engine, its kernels on the CPU. */
#include <stdlib.h>

#include "tests/on_cpu/fake_math.h"
#include "tests/rigs/engine_rig.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/cuda/program/host_ops.h"
#include "workers/cuda/train/cuda_trainer.h"

/* SY_FAKE_HOST_OPS: all that the engine lacks is computed by the host engine, not only what only a run can size, so that nothing is passed
 * over. */
void rig_choose_engine(struct rig_engine *out)
{
    bool host_ops = getenv("SY_FAKE_HOST_OPS") != NULL;
    sy_cuda_engine_use(&fake_math);
    sy_cuda_host_engine_use(&sy_host_engine);
    sy_cuda_engine.allow_host_ops(host_ops);
    if (sy_cuda_engine.attach(NULL, NULL) < 0)
        abort();
    *out = (struct rig_engine){.ops = &sy_cuda_engine,
                               .lacks_operators = !host_ops,
                               .device_view = fake_math_device,
                               .synchronize = fake_math_synchronize};
    atexit(sy_cuda_engine.detach); /* the fake asserts that nothing is left */
}

void rig_choose_trainer(const struct sy_trainer_ops **out, void *(**view)(void *memory));

void rig_choose_trainer(const struct sy_trainer_ops **out, void *(**view)(void *memory))
{
    sy_cuda_engine_use(&fake_math);
    if (sy_cuda_engine.attach(NULL, NULL) < 0)
        abort();
    *out = &sy_cuda_trainer;
    *view = fake_math_device;
    atexit(sy_cuda_engine.detach);
}

void rig_lose_queue(void);

void rig_lose_queue(void)
{
    fake_math_lose();
}

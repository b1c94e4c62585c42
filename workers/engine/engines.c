#include "workers/engine/engines.h"

#include <string.h>

#include "runtime/base/status.h"
#include "runtime/device/device_cuda.h"

static int cuda_engine(const struct sy_engine_ops **out)
{
    static const struct sy_engine_ops *known;
    void *symbol;
    if (!known) {
        int status = sy_device_cuda_symbol(SY_CUDA_ENGINE_ENTRY, &symbol);
        if (status < 0)
            return sy_error_prefix(status,
                                   "the CUDA engine (built where there are nvcc and cuDNN)");
        known = ((sy_engine_entry)symbol)(SY_ENGINE_LAYOUT_BYTES, &sy_host_engine);
    }
    *out = known;
    return known ? SY_OK
                 : sy_error_set(SY_ENODEVICE, "the CUDA engine is of another build of switchyard: "
                                              "build both again with make");
}

int sy_engine_for_device(const char *kind, const struct sy_engine_ops **out)
{
    if (strcmp(kind, "cuda") == 0)
        return cuda_engine(out);
    *out = &sy_host_engine;
    return SY_OK;
}

int sy_trainer_for_device(const char *kind, const struct sy_trainer_ops **out)
{
    void *symbol;
    *out = &sy_host_trainer;
    if (strcmp(kind, "cuda") != 0)
        return SY_OK;
    int status = sy_device_cuda_symbol(SY_CUDA_TRAINER_ENTRY, &symbol);
    if (status < 0)
        return sy_error_prefix(status, "training on cuda (built where there are nvcc and cuDNN): ");
    *out = ((sy_trainer_entry)symbol)(SY_TRAINER_LAYOUT_BYTES);
    return *out ? SY_OK
                : sy_error_set(SY_ENODEVICE, "the CUDA trainer is of another build of switchyard: "
                                             "build both again with make");
}

/* What nccl_api.h writes down of NCCL, compared with its header where that is. */
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>

#include "workers/cuda/ranks/nccl_api.h"

_Static_assert(NCCL_VERSION(2, 14, 0) == SY_NCCL_VERSION_2_14, "how versions are numbered");
_Static_assert(sizeof(ncclUniqueId) == sizeof(struct sy_nccl_id), "an id by value");
_Static_assert((int)ncclFloat32 == SY_NCCL_FLOAT32, "a data type");
_Static_assert((int)ncclSuccess == SY_NCCL_SUCCESS && (int)ncclInProgress == SY_NCCL_IN_PROGRESS,
               "answers");
_Static_assert((int)ncclUnhandledCudaError == SY_NCCL_CUDA_ERROR &&
                   (int)ncclInvalidUsage == SY_NCCL_INVALID_USAGE &&
                   (int)ncclRemoteError == SY_NCCL_REMOTE_ERROR,
               "answers");
_Static_assert(offsetof(ncclConfig_t, size) == offsetof(struct sy_nccl_config, size) &&
                   offsetof(ncclConfig_t, magic) == offsetof(struct sy_nccl_config, magic) &&
                   offsetof(ncclConfig_t, version) == offsetof(struct sy_nccl_config, version) &&
                   offsetof(ncclConfig_t, blocking) == offsetof(struct sy_nccl_config, blocking),
               "the config's first members");
#endif

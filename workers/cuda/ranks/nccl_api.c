#include "workers/cuda/ranks/nccl_api.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define LIBRARY "libnccl.so.2"

static int find_calls(void *library, const char *path, struct sy_nccl_api *api)
{
    const struct {
        const char *name;
        void *to;
    } calls[] = {
#define X(name, parameters) {"nccl" #name, &api->name},
        SY_NCCL_CALL_TABLE(X)
#undef X
            {"ncclGetErrorString", &api->GetErrorString},
        {"ncclGetLastError", &api->GetLastError},
    };
    for (size_t i = 0; i < SY_ARRAY_LEN(calls); i++) {
        void *symbol = dlsym(library, calls[i].name);
        if (!symbol)
            return sy_error_set(SY_EUNSUPPORTED,
                                "%s has no %s: ranks on GPUs need NCCL 2.14 or later", path,
                                calls[i].name);
        *(void **)calls[i].to = symbol;
    }
    return SY_OK;
}

static int check_version(const char *path, const struct sy_nccl_api *api)
{
    int version = 0;
    SY_TRY(sy_nccl_check(api, NULL, api->GetVersion(&version), "ncclGetVersion"));
    return version >= SY_NCCL_VERSION_2_14
               ? SY_OK
               : sy_error_set(SY_EUNSUPPORTED,
                              "%s is NCCL's version %d: ranks on GPUs need 21400 (2.14) or later",
                              path, version);
}

int sy_nccl_api_get(const struct sy_nccl_api **out)
{
    static struct sy_nccl_api api;
    static void *library;
    const char *named = getenv("SY_NCCL_LIBRARY"), *path = named && *named ? named : LIBRARY;
    *out = &api;
    if (library)
        return SY_OK;
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!opened)
        return sy_error_set(SY_EUNSUPPORTED,
                            "ranks on GPUs need NCCL (Debian: libnccl2; pip: nvidia-nccl-cu13; "
                            "SY_NCCL_LIBRARY names its file), or \"exchange\": \"host\" in the job "
                            "file: %s",
                            dlerror());
    SY_TRY(find_calls(opened, path, &api));
    SY_TRY(check_version(path, &api));
    library = opened;
    return SY_OK;
}

int sy_nccl_check(const struct sy_nccl_api *api, struct ncclComm *comm, int result,
                  const char *what)
{
    if (result == SY_NCCL_SUCCESS || result == SY_NCCL_IN_PROGRESS)
        return SY_OK;
    const char *last = api->GetLastError(comm);
    int status = result == SY_NCCL_CUDA_ERROR      ? SY_EDEVICE
                 : result == SY_NCCL_INVALID_USAGE ? SY_EUNSUPPORTED
                                                   : SY_EPEER;
    return sy_error_set(status, "%s: %s%s%.150s", what, api->GetErrorString(result),
                        last && *last ? ": " : "", last ? last : "");
}

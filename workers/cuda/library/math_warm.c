/* Kernels onto the device before the first run asks for them. CUDA loads a kernel when it is first launched unless CUDA_MODULE_LOADING=EAGER,
 * which would load all of cuDNN's and cuBLASLt's too, for gigabytes: here it is all of ours, once, and of the libraries' what a plan has
 * chosen, by one run of it. */
#include <cuda.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_device.h"
#include "workers/cuda/kernels/kernels.h"
#include "workers/cuda/library/math_internal.h"

/* Driver calls of CUDA 12.4. */
struct loader {
    CUresult (*module_of)(CUmodule *module, CUfunction function);
    CUresult (*count)(unsigned *n, CUmodule module);
    CUresult (*list)(CUfunction *functions, unsigned n, CUmodule module);
    CUresult (*load)(CUfunction function);
};

static bool find_call(const char *name, void *to)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *entry = NULL;
    if (cudaGetDriverEntryPointByVersion(name, &entry, 12040, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess || !entry)
        return false;
    memcpy(to, &entry, sizeof entry);
    return true;
}

/* The kernels of the file that has this one; how many, -1: they are not to be had this way. */
static int load_file(const struct loader *l, const void *symbol)
{
    cudaFunction_t function;
    CUmodule module;
    unsigned n = 0;
    int loaded = 0;
    if (cudaGetFuncBySymbol(&function, symbol) != cudaSuccess ||
        l->module_of(&module, function) != CUDA_SUCCESS || l->count(&n, module) != CUDA_SUCCESS)
        return -1;
    CUfunction *list = calloc(n + 1u, sizeof(CUfunction));
    if (list && l->list(list, n, module) == CUDA_SUCCESS)
        for (unsigned i = 0; i < n; i++)
            loaded += l->load(list[i]) == CUDA_SUCCESS;
    free(list);
    return loaded;
}

void sy_math_load_kernels(void)
{
    const void *const files[] = {
#define X(name) sy_kernel_file_##name(),
        SY_KERNEL_FILE_TABLE(X)
#undef X
    };
    struct loader l;
    sy_ns start = sy_clock_now();
    int loaded = 0, missed = 0;
    bool can = find_call("cuFuncGetModule", &l.module_of) &&
               find_call("cuModuleGetFunctionCount", &l.count) &&
               find_call("cuModuleEnumerateFunctions", &l.list) && find_call("cuFuncLoad", &l.load);
    for (size_t i = 0; can && i < sizeof files / sizeof *files; i++) {
        int n = load_file(&l, files[i]);
        loaded += n < 0 ? 0 : n;
        missed += n < 0;
    }
    sy_math_forget_errors();
    if (can && missed == 0)
        sy_log_debug("cuda", "event=kernels_loaded n=%d us=%llu", loaded,
                     (unsigned long long)((sy_clock_now() - start) / 1000));
    else
        sy_log_info("cuda", "event=kernels_load_late files=%d why=\"%s\"", missed,
                    can ? "the driver does not list them" : "the driver is older than CUDA 12.4");
}

enum sy_math_warmth sy_math_warmth(struct sy_math *math, const int64_t *words, size_t n)
{
    struct sy_choice one = {.key = sy_choices_key(words, n), .way = SY_MATH_WARM};
    const struct sy_choice *known = sy_choices_find(math->warm, one.key);
    if (known)
        return (enum sy_math_warmth)known->way;
    return sy_choices_put(math->warm, &one) == SY_OK ? SY_MATH_COLD : SY_MATH_WARM;
}

void sy_math_note_failure(struct sy_math *math, const int64_t *words, size_t n)
{
    struct sy_choice one = {.key = sy_choices_key(words, n), .way = SY_MATH_FAILED};
    (void)sy_choices_put(math->warm, &one); /* it is there, and is replaced */
}

int sy_math_warm(struct sy_math *math, int (*run)(void *arg), void *arg)
{
    int status = run(arg);
    if (status == SY_OK)
        status = sy_math_cuda_check(math, cudaStreamSynchronize(math->stream),
                                    "the first run of a plan");
    sy_math_forget_errors();
    SY_TRY(sy_cuda_device_failed(math->device));
    if (status < 0)
        sy_log_warn("cuda", "event=plan_fails why=\"%s\"", sy_error_text());
    return status;
}

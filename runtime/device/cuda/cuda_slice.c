/* Slices of the GPU's multiprocessors: green contexts, one for a stream that is confined. */
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_internal.h"

_Static_assert(SY_CUDA_MAX_PARTS <= 64, "a bit for each");

int sy_cuda_compute_parts(struct sy_device *base, struct sy_compute_parts *out)
{
    struct sy_cuda_device *device = (struct sy_cuda_device *)base;
    int ordinal = base->spec.ordinal, mps = 0;
    int error = device->api->sm_parts(ordinal, &out->n, &out->n_sms);
    if (error == SY_CUDA_NotSupported) {
        device->api->error_clear();
        return sy_error_set(SY_EUNSUPPORTED,
                            "cuda:%d: this driver or GPU has no green contexts (driver 550, CUDA "
                            "12.5 or later): tasks share the whole device by turns",
                            ordinal);
    }
    SY_TRY(sy_cuda_device_check(base, error, "cannot read how its multiprocessors split"));
    SY_TRY(sy_cuda_device_check(base, device->api->device_attribute(ordinal, SY_CUDA_MPS, &mps),
                                "cannot read whether MPS runs"));
    out->beside = mps != 0;
    if (out->n >= 2 && out->n_sms > 0)
        return SY_OK;
    return sy_error_set(SY_EUNSUPPORTED,
                        "cuda:%d: its multiprocessors split into %d part%s: tasks share the whole "
                        "device by turns",
                        ordinal, out->n, out->n == 1 ? "" : "s");
}

int sy_cuda_parts_read(struct sy_cuda_device *device, const int *parts, int n, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < n; i++) {
        if (parts[i] < 0 || parts[i] >= SY_CUDA_MAX_PARTS)
            return sy_error_set(SY_EARG, "cuda:%d: part %d of its compute: 0 to %d",
                                device->base.spec.ordinal, parts[i], SY_CUDA_MAX_PARTS - 1);
        *out |= 1ull << parts[i];
    }
    return SY_OK;
}

static int open_slice(struct sy_cuda_device *device, uint64_t parts, struct CUgreenCtx_st **out)
{
    int list[SY_CUDA_MAX_PARTS], n = 0;
    struct sy_compute_parts all;
    SY_TRY(sy_cuda_compute_parts(&device->base, &all));
    for (int i = 0; i < SY_CUDA_MAX_PARTS; i++)
        if (parts >> i & 1)
            list[n++] = i;
    if (list[n - 1] >= all.n)
        return sy_error_set(SY_EARG,
                            "cuda:%d: part %d of its compute: there are %d, of %d "
                            "multiprocessors each",
                            device->base.spec.ordinal, list[n - 1], all.n, all.n_sms);
    return sy_cuda_device_check(&device->base,
                                device->api->slice_create(device->base.spec.ordinal, list, n, out),
                                "cannot make a slice of %d of its %d parts", n, all.n);
}

int sy_cuda_slice_open(struct sy_cuda_device *device, uint64_t parts, int level,
                       struct sy_cuda_slice *out, struct CUstream_st **out_stream)
{
    *out = (struct sy_cuda_slice){.parts = parts};
    if (parts)
        SY_TRY(open_slice(device, parts, &out->context));
    int error = parts ? device->api->slice_stream(out->context, out_stream, level)
                      : device->api->stream_create(out_stream, level);
    int status = sy_cuda_device_check(&device->base, error, "cannot make a stream");
    if (status < 0)
        sy_cuda_slice_close(device, out);
    return status;
}

void sy_cuda_slice_close(struct sy_cuda_device *device, struct sy_cuda_slice *slice)
{
    if (slice->context) /* C9 */
        device->api->slice_destroy(slice->context);
    *slice = (struct sy_cuda_slice){0};
}

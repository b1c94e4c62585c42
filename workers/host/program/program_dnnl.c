/* Descriptors and types of oneDNN. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program/program_internal.h"

int sy_dnnl_check(dnnl_status_t status, const char *what, const char *name)
{
    if (status == dnnl_success)
        return SY_OK;
    if (status == dnnl_unimplemented)
        return sy_error_set(SY_EUNSUPPORTED, "node %s: oneDNN has no implementation: %s", name,
                            what);
    return sy_error_set(status == dnnl_out_of_memory ? SY_ENOMEM_HOST : SY_EBUG,
                        "node %s: oneDNN status %d in %s", name, (int)status, what);
}

static bool is_countable(const dnnl_memory_desc_t *md)
{
    int64_t n = 1;
    for (int d = 0; d < md->ndims; d++)
        if (md->dims[d] < 0 || __builtin_mul_overflow(n, md->dims[d], &n))
            return false;
    return n < (int64_t)1 << 32;
}

int sy_dnnl_check_sizes(const char *name, const dnnl_memory_desc_t *source,
                        const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *destination)
{
    const dnnl_memory_desc_t *const all[] = {source, weights, destination};
    static const char *const what[] = {"first input", "second input", "output"};
    for (size_t i = 0; i < SY_ARRAY_LEN(all); i++)
        if (!is_countable(all[i]))
            return sy_error_set(SY_EUNSUPPORTED,
                                "node %s: its %s has 2^32 elements or more, too many for oneDNN",
                                name, what[i]);
    return SY_OK;
}

dnnl_engine_t sy_dnnl_engine(void)
{
    static dnnl_engine_t engine;
    if (!engine && dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
    return engine;
}

dnnl_data_type_t sy_dnnl_type(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_F32  ? dnnl_f32
           : dtype == SY_DTYPE_U8 ? dnnl_u8
           : dtype == SY_DTYPE_I8 ? dnnl_s8
                                  : dnnl_data_type_undef;
}

void sy_dnnl_plain_md_of(dnnl_memory_desc_t *md, dnnl_data_type_t type, int rank,
                         const int64_t *dims)
{
    dnnl_dims_t d, strides;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        d[i] = dims[i];
        strides[i] = stride;
        stride *= dims[i];
    }
    if (rank == 0) { /* a scalar */
        d[0] = strides[0] = 1;
        rank = 1;
    }
    dnnl_memory_desc_init_by_strides(md, rank, d, type, strides);
}

void sy_dnnl_plain_md(dnnl_memory_desc_t *md, int rank, const int64_t *dims)
{
    sy_dnnl_plain_md_of(md, dnnl_f32, rank, dims);
}

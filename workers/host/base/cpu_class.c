#include "workers/host/base/cpu_class.h"

#include "workers/host/base/dnnl_compat.h"

static bool has_isa(dnnl_cpu_isa_t isa)
{
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)isa) == (unsigned)isa;
}

bool sy_dnnl_has_int8(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core_vnni);
}

bool sy_dnnl_has_bf16(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core_bf16);
}

bool sy_dnnl_has_avx2(void)
{
    return has_isa(dnnl_cpu_isa_avx2);
}

bool sy_dnnl_has_avx512(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core);
}

#include "workers/host/base/cpu_class.h"

#include <stdatomic.h>

#include "workers/host/base/dnnl_compat.h"

/* Cached, since even products of some 100 ns ask for it and it does not change. */
static unsigned effective_isa(void)
{
    static atomic_uint known;
    unsigned isa = atomic_load_explicit(&known, memory_order_relaxed);
    if (isa == 0) {
        isa = (unsigned)dnnl_get_effective_cpu_isa();
        atomic_store_explicit(&known, isa, memory_order_relaxed);
    }
    return isa;
}

static bool has_isa(dnnl_cpu_isa_t isa)
{
    return (effective_isa() & (unsigned)isa) == (unsigned)isa;
}

bool sy_dnnl_has_int8(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core_vnni);
}

bool sy_dnnl_has_int8_tiles(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core_amx);
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

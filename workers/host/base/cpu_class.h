/* The CPU's vector instructions that oneDNN may use (ONEDNN_MAX_CPU_ISA). Any thread. */
#ifndef SY_WORKERS_HOST_BASE_CPU_CLASS_H
#define SY_WORKERS_HOST_BASE_CPU_CLASS_H

#include <stdbool.h>

/* Whether the CPU multiplies 8 bits exactly: without VNNI oneDNN sums pairs in 16 bits, which overflow. */
bool sy_dnnl_has_int8(void);
/* Whether the CPU multiplies tiles of 8-bit numbers (AMX), and the system lets this process do so. */
bool sy_dnnl_has_int8_tiles(void);
/* Whether the CPU multiplies bf16; if not, a bf16 graph only stores its weights in bf16 (program_narrow.c). */
bool sy_dnnl_has_bf16(void);
/* Whether it has AVX2, AVX-512, and oneDNN may use it. */
bool sy_dnnl_has_avx2(void);
bool sy_dnnl_has_avx512(void);

#endif

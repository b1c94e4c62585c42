/* Loops compiled for several CPU classes (x86-64-v4: AVX-512 F, BW, DQ, VL; v3: AVX2 and FMA, which
 * "avx512f" alone lacks below 512 bits); the loader picks one. Not under sanitizers: their runtime is not up yet when it does. */
#ifndef SY_WORKERS_HOST_BASE_CLONES_H
#define SY_WORKERS_HOST_BASE_CLONES_H

#ifdef SY_SANITIZED
#define SY_CLONES __attribute__((noinline))
#else
#define SY_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

#endif

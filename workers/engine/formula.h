/* Formulas of operators that stand once for the host's loops and for CUDA's kernels. */
#ifndef SY_WORKERS_ENGINE_FORMULA_H
#define SY_WORKERS_ENGINE_FORMULA_H

#ifdef __CUDACC__
#define SY_FORMULA __host__ __device__ static inline
#else
#define SY_FORMULA static inline
#endif

#endif

/* Loops of curve_rows.c for CPUs with AVX-512. In the calling thread; `out` may be `in`. Each element only depends on itself. */
#ifndef SY_WORKERS_HOST_ROWS_CURVE_ROWS_16_H
#define SY_WORKERS_HOST_ROWS_CURVE_ROWS_16_H

#include <stdint.h>

#include "workers/engine/curve_formulas.h"

/* 4 ulp. */
void sy_curve_sigmoid_16(const struct sy_curve *c, int64_t n, const float *in, float *out);
/* x times the sigmoid of a x. 5 ulp. */
void sy_curve_swish_16(const struct sy_curve *c, int64_t n, const float *in, float *out);

#endif

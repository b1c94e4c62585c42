/* Operators of one input over floats, in loops that the compiler vectorises; the same bits for any number of threads. */
#ifndef SY_WORKERS_HOST_ROWS_CURVE_ROWS_H
#define SY_WORKERS_HOST_ROWS_CURVE_ROWS_H

#include "workers/engine/curve_formulas.h"

/* Whether sy_curve_rows has this operator with these parameters. */
bool sy_curve_rows_has(const struct sy_curve *c);
/* n floats, on the threads; `out` may be `in`. */
void sy_curve_rows(const struct sy_curve *c, int64_t n, const float *in, float *out);
/* As sy_curve_rows, in the calling thread. */
void sy_curve_rows_here(const struct sy_curve *c, int64_t n, const float *in, float *out);

/* To 1 or 0: whether it is NaN; whether it is the positive, the negative infinity. In the calling thread. */
void sy_curve_is_nan(int64_t n, const float *restrict in, uint8_t *restrict out);
void sy_curve_is_infinite(bool positive, bool negative, int64_t n, const float *restrict in,
                          uint8_t *restrict out);

#endif

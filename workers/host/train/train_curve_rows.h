/* Operators of one input over rows of memory: vectorised where they are common. */
#ifndef SY_WORKERS_HOST_TRAIN_TRAIN_CURVE_ROWS_H
#define SY_WORKERS_HOST_TRAIN_TRAIN_CURVE_ROWS_H

#include <stdint.h>

#include "workers/engine/train_formulas.h"

/* y = c(x), n elements; y is not x. */
void sy_curve_row(const struct sy_curve *c, const float *x, float *y, uint64_t n);
/* dx = dy * c'(x), where y = c(x). */
void sy_curve_row_back(const struct sy_curve *c, const float *x, const float *y, const float *dy,
                       float *dx, uint64_t n);

#endif

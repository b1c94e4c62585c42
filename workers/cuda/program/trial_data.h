/* Numbers to try a candidate with, and whether two results are the same. No CUDA here. */
#ifndef SY_WORKERS_CUDA_PROGRAM_TRIAL_DATA_H
#define SY_WORKERS_CUDA_PROGRAM_TRIAL_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"

/* n numbers of the type, F32, F16 or BF16, uniform in [-scale, scale]. odd: among them NaN and infinities, and -infinity alone in the first
 * eighth. Equal seeds, equal numbers. */
void sy_trial_fill(enum sy_dtype type, float scale, bool odd, uint64_t seed, int64_t n, void *out);

/* Whether |got - want| <= tolerance * (1 + |want|) for each of n; equal infinities are the same, so is NaN beside NaN. *out_off: the largest
 * |got - want| / (1 + |want|), infinity where one of the two is not finite and they are not the same. */
bool sy_trial_agrees(enum sy_dtype type, double tolerance, int64_t n, const void *want,
                     const void *got, double *out_off);

#endif

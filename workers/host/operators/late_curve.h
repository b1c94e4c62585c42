/* A late curve: an activation that runs as a loop over a convolution's result while that is in the second cache, not fused into the convolution by oneDNN.
 * Worth it where oneDNN's fused code is slower: Swish with AVX-512 takes 0.17 ns an element as a loop, 0.25 fused. Small results are not worth another step.
 * The curve must map 0 to 0, so that the padding of a layout stays zero (P7). */
#ifndef SY_WORKERS_HOST_OPERATORS_LATE_CURVE_H
#define SY_WORKERS_HOST_OPERATORS_LATE_CURVE_H

#include "workers/engine/curve_formulas.h"
#include "workers/host/program/program_internal.h"

/* The node's fused activation as a curve; false: it has none. */
bool sy_fused_curve_read(const struct sy_node *node, struct sy_curve *curve);
/* Whether a loop is faster for a result of `elements` floats; fills *curve. */
bool sy_late_curve_is_gain(const struct sy_node *node, int64_t elements, struct sy_curve *curve);
/* Adds a step that applies the curve to the value's floats in place. */
int sy_late_curve_add(struct sy_program *p, int value, const struct sy_curve *curve);

#endif

/* Elementwise operators on some channels of a value that lies with channels last: a part that Split shows (program_parts.c) is read where it lies. A copy
 * in front took as long as the operator: in gated convolutions (WaveNet, GLU) half of all that is not a product. */
#ifndef SY_WORKERS_HOST_OPERATORS_PART_ROWS_H
#define SY_WORKERS_HOST_OPERATORS_PART_ROWS_H

#include "workers/host/program/program_internal.h"
#include "workers/host/rows/curve_rows.h"

/* Adds the steps of the layer being built if its input 0 is such a part; *built false: it is not, and nothing was added. */
int sy_part_curve_build(struct sy_program *p, const struct sy_curve *curve, bool *built);
/* As sy_part_curve_build, for Add, Sub and Mul of float32 inputs 0 and 1 of the same shape: at least one is such a part, the other a part or a value with
 * channels last. */
int sy_part_pair_build(struct sy_program *p, enum sy_op op, bool *built);

#endif

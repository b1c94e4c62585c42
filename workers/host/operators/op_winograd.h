/* Conv of 3x3 as winograd.h does it: the weights transformed, from where they are stored; then the run, and activations that it does not have. */
#ifndef SY_WORKERS_HOST_OPERATORS_OP_WINOGRAD_H
#define SY_WORKERS_HOST_OPERATORS_OP_WINOGRAD_H

#include "workers/host/operators/op_conv.h"

/* Adds the steps of the layer being built, if that is a gain; *built false: nothing was added. */
int sy_winograd_build(struct sy_program *p, const struct sy_conv_shape *c, bool *built);

#endif

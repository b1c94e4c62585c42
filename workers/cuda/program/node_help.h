/* Large products and convolutions among the nodes that the host engine sizes one by one (AtRun): it makes their shapes known, this device computes
 * them. Inputs, weights and results go over the link in each run; in a place in the step's workspace, as large as follows from the graph: what does
 * not fit there the host computes itself. */
#ifndef SY_WORKERS_CUDA_PROGRAM_NODE_HELP_H
#define SY_WORKERS_CUDA_PROGRAM_NODE_HELP_H

#include "workers/cuda/program/cuda_program.h"

extern const struct sy_node_helper sy_cuda_node_helper;

/* The place for the layer being built; *value is -1 if no node of it could need one. */
int sy_cuda_node_help_place(struct sy_program *program, int *value, uint64_t *bytes);
/* Around the host engine's run: what it asks for is computed in this place. value: -1, nothing is. */
void sy_cuda_node_help_begin(struct sy_program *program, int value, uint64_t bytes);
void sy_cuda_node_help_end(void);

#endif

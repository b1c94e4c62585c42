/* If and Loop whose turns import could not write out: the step waits for the device, reads the condition, runs a body.
 *
 *   Loop   constants, what is carried, the counts ──> place;  wait
 *          turn:  the body's program, which copies what it carries and gives back ──> place;  rows of results ──> results;  wait, look
 *          what was carried ──> results
 *
 * At most one turn is in flight. How large everything is was known when the program was made. */
#ifndef SY_WORKERS_CUDA_CUDA_OP_CONTROL_H
#define SY_WORKERS_CUDA_CUDA_OP_CONTROL_H

#include "workers/cuda/cuda_program.h"

struct sy_cuda_control;

/* program: whose step has it. NULL is fine. */
void sy_cuda_control_destroy(const struct sy_program *program, struct sy_cuda_control *control);

#endif

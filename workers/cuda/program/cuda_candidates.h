/* Steps that a library may compute in the place of our own kernels: which of the two a program takes. */
#ifndef SY_WORKERS_CUDA_PROGRAM_CUDA_CANDIDATES_H
#define SY_WORKERS_CUDA_PROGRAM_CUDA_CANDIDATES_H

#include "workers/cuda/program/cuda_program.h"

/* For all steps of a program whose memory is planned: by what was measured; while the engine tunes both are run on the same random numbers
 * first, timed, and the library is taken where it is faster and its results are ours, within the engine's tolerance. What was left out,
 * and why, is in the log. Waits for the device where something is run. */
int sy_cuda_candidates_settle(struct sy_program *p);

#endif

/* Ranks over MPI, as libswitchyard-mpi.so shows them. */
#ifndef SY_WORKERS_MPI_RANKS_MPI_H
#define SY_WORKERS_MPI_RANKS_MPI_H

#include "workers/train/ranks.h"

/* A sy_ranks_entry. */
const struct sy_ranks_ops *sy_ranks_mpi(int (*say_error)(int status, const char *text));

#endif

/* `switchyard train --ranks N`: the job's ranks under mpirun, begun again with those that are left when one dies. */
#ifndef SY_CLI_RANK_LAUNCH_H
#define SY_CLI_RANK_LAUNCH_H

#include <stdint.h>

struct sy_rank_order {
    const char *path; /* of the job file */
    int n_ranks;
    /* Words for mpirun, as "--hostfile F --map-by numa"; NULL: this machine's cores, cut evenly. */
    const char *mpi_options;
    const char *devices; /* of ranks, "cuda:0,cuda:1"; NULL: cores */
    int64_t batch;       /* the job's batch: the remaining ranks must divide it evenly */
};

/* Blocks until the job is over; the process's exit status, what went wrong said. SIGINT and SIGTERM end it with a snapshot. */
int sy_rank_launch(const struct sy_rank_order *order);

#endif

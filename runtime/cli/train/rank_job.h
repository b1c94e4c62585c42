/* `switchyard train JOB.json` of several ranks at a server: one job to the server, as a script under `switchyard run` is.
 *
 *   this process becomes   switchyard run ── page, gate ──> worker of the server (pause, turn, cancel: workers/torch/README.md)
 *                            └─> switchyard train --local --ranks N        owns mpirun, begins again without a rank that died
 *                                  └─> mpirun ─> rank 0 .. N-1             look at the page's gate in front of each operator
 *
 * The server leases from its pool the memory of all ranks, or on GPUs of as many as share one. */
#ifndef SY_CLI_RANK_JOB_H
#define SY_CLI_RANK_JOB_H

#include <stdint.h>

struct sy_rank_job {
    const char *path, *text; /* the job file, and what was read of it */
    const char *address;     /* of the server; NULL: the usual one */
    const char *mpi_options; /* NULL: none */
    const char *devices;     /* NULL: cores */
    int n_ranks;
};

/* Reads model and data, and becomes `switchyard run`; returns only where that fails: the exit status, what went wrong said. */
int sy_rank_job_exec(const struct sy_rank_job *job);

#endif

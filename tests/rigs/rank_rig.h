/* Ranks as processes of a test, joined by sockets: what mpirun and ranks over MPI are to a job, without them. */
#ifndef SY_TESTS_RIGS_RANK_RIG_H
#define SY_TESTS_RIGS_RANK_RIG_H

#include <sys/types.h>

#include "workers/train/ranks.h"

#define RANK_RIG_MOST  4
#define RANK_RIG_LEAKS 99 /* the exit status of one that leaks, under the address sanitizer */

struct rank_rig {
    int n;
    pid_t pids[RANK_RIG_MOST];
};

/* Starts n processes, each of which ends with what `run` returns. Nothing else of this process may have threads. */
void rank_rig_start(struct rank_rig *rig, int n,
                    int (*run)(const struct sy_ranks *ranks, void *ctx), void *ctx);
/* Until that rank has ended: its exit status, or 128 and the number of the signal that killed it. One that hangs is killed after a minute, and counts as
 * killed. */
int rank_rig_wait(struct rank_rig *rig, int rank);

#endif

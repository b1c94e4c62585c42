/* Ranks that train one job together: each computes on its part of the batch, and all take the same step.
 *
 * The seam to what carries bytes between them: a table of functions. `libswitchyard-mpi.so` (ranks_mpi.c) fills it in over MPI; it is opened when it is
 * needed, so a machine without MPI trains with one rank.
 *
 * RK1: every rank makes the same calls in the same order; a call returns when this rank's part is done.
 * RK2: a sum is added in the order of ranks, 0 first, whatever the order of arrival: the same numbers on all ranks, and the same bits from run to run.
 * RK3: calls are made by one thread at a time.
 * RK4: if requests preempt ranks, all code of ranks that computes runs between enter and leave of their gate; code that waits for other ranks runs
 * outside. */
#ifndef SY_WORKERS_TRAIN_RANKS_H
#define SY_WORKERS_TRAIN_RANKS_H

#include <stdint.h>

struct sy_ranks_ops {
    uint32_t bytes; /* of this table, as its maker knows it */
    const char *name;
    /* Joins the others; once in a process. EUNSUPPORTED, EPEER: with the library's words. */
    int (*join)(int *rank, int *n_ranks);
    /* values[i] of all ranks. `scratch`: room for n floats. Waits without taking the core from computing threads. */
    int (*sum)(float *values, float *scratch, uint64_t n);
    int (*sum_doubles)(double *values, int n); /* n <= 16 */
    int (*share)(void *bytes, uint64_t n);     /* rank 0's to all */
    void (*leave)(
        void); /* all do; a rank that fails ends its process instead, and the others with it */
};

/* The symbol that the library exports as "sy_ranks_mpi". fail: the process's sy_error_set; returns the status. */
typedef const struct sy_ranks_ops *(*sy_ranks_entry)(int (*fail)(int status, const char *text));

/* The gate around all computing of ranks that a server's requests preempt. Waiting for other ranks is outside of it: a rank that
 * waits for a paused one does not count as computing. Called by any thread. */
struct sy_rank_gate {
    void (*enter)(void *ctx); /* returns once it may compute */
    void (*leave)(void *ctx);
    void *ctx;
};

struct sy_ranks {
    const struct sy_ranks_ops *ops;
    int rank, n;
    const struct sy_rank_gate *gate; /* borrowed; NULL: nothing stops this rank */
};

static inline void sy_ranks_enter(const struct sy_ranks *ranks)
{
    if (ranks && ranks->gate)
        ranks->gate->enter(ranks->gate->ctx);
}

static inline void sy_ranks_leave(const struct sy_ranks *ranks)
{
    if (ranks && ranks->gate)
        ranks->gate->leave(ranks->gate->ctx);
}

/* Joins over MPI, in a process that mpirun started. EUNSUPPORTED: it was built without. */
int sy_ranks_join_mpi(struct sy_ranks *out);

#endif

#include "workers/mpi/ranks_mpi.h"

#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/train/ranks.h"

#define MAX_RANKS   64
#define MAX_DOUBLES 16
/* MP2. Between two looks at what is under way: spinning would take the core from computing threads, and over TCP each look makes system calls. */
#define FIRST_NAP_NS 50000L
#define LAST_NAP_NS  400000L
#define MOST         (1u << 28) /* floats of one message: MPI counts in int */

static int own_rank, n_all;
static int (*say)(int status,
                  const char *text); /* of the process: this library has no error text of its own */

__attribute__((format(printf, 2, 3))) static int fail(int status, const char *format, ...)
{
    char text[MPI_MAX_ERROR_STRING + 200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return say(status, text);
}

static int check(int got, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;
    if (got == MPI_SUCCESS)
        return SY_OK;
    MPI_Error_string(got, text, &n);
    return fail(SY_EPEER, "rank %d of %d, %s: %s", own_rank, n_all, what, text);
}

static int join(int *rank, int *n_ranks)
{
    int level;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
        return fail(SY_EUNSUPPORTED, "MPI cannot start");
    MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_all);
    *rank = own_rank;
    *n_ranks = n_all;
    if (level < MPI_THREAD_SERIALIZED)
        return fail(SY_EUNSUPPORTED, "this MPI may not be called from threads");
    if (n_all > MAX_RANKS)
        return fail(SY_EUNSUPPORTED, "%d ranks; at most %d", n_all, MAX_RANKS);
    return SY_OK;
}

static int wait_all(MPI_Request *requests, int n, const char *what)
{
    struct timespec nap = {0, FIRST_NAP_NS};
    for (int all = 0;;) {
        SY_TRY(check(MPI_Testall(n, requests, &all, MPI_STATUSES_IGNORE), what));
        if (all)
            return SY_OK;
        nanosleep(&nap, NULL);
        nap.tv_nsec = SY_MIN(nap.tv_nsec + nap.tv_nsec / 8, LAST_NAP_NS);
    }
}

static uint64_t begin_of(uint64_t n, int rank)
{
    return n * (uint64_t)rank / (uint64_t)n_all;
}

static int count_of(uint64_t n, int rank)
{
    return (int)(begin_of(n, rank + 1) - begin_of(n, rank));
}

/* RK2: this rank's part of the sum. The others' parts of it lie in `scratch`, one after the other. */
static void add_in_order(float *own, const float *scratch, float *sum, uint64_t n)
{
    for (int r = 0, other = 0; r < n_all; r++) {
        const float *from = r == own_rank ? own : scratch + (uint64_t)other++ * n;
        for (uint64_t i = 0; i < n; i++)
            sum[i] = r == 0 ? from[i] : sum[i] + from[i];
    }
}

/* Each rank sums one part of the values, and gives it to all. Parts of others arrive in scratch: (n_all - 1) * n / n_all, and the sum behind them. */
static int sum_some(float *values, float *scratch, uint64_t n)
{
    MPI_Request requests[2 * MAX_RANKS];
    uint64_t own_n = (uint64_t)count_of(n, own_rank), begin = begin_of(n, own_rank);
    float *sum = scratch + own_n * (uint64_t)(n_all - 1);
    int n_requests = 0;
    for (int r = 0, other = 0; r < n_all; r++) {
        if (r == own_rank)
            continue;
        SY_TRY(check(MPI_Irecv(scratch + (uint64_t)other++ * own_n, (int)own_n, MPI_FLOAT, r, 1,
                               MPI_COMM_WORLD, &requests[n_requests++]),
                     "receiving"));
        SY_TRY(check(MPI_Isend(values + begin_of(n, r), count_of(n, r), MPI_FLOAT, r, 1,
                               MPI_COMM_WORLD, &requests[n_requests++]),
                     "sending"));
    }
    SY_TRY(wait_all(requests, n_requests, "exchanging gradients"));
    add_in_order(values + begin, scratch, sum, own_n);
    memcpy(values + begin, sum, own_n * sizeof *sum);
    n_requests = 0;
    for (int r = 0; r < n_all; r++) {
        if (r == own_rank)
            continue;
        SY_TRY(check(MPI_Irecv(values + begin_of(n, r), count_of(n, r), MPI_FLOAT, r, 2,
                               MPI_COMM_WORLD, &requests[n_requests++]),
                     "receiving"));
        SY_TRY(check(MPI_Isend(values + begin, (int)own_n, MPI_FLOAT, r, 2, MPI_COMM_WORLD,
                               &requests[n_requests++]),
                     "sending"));
    }
    return wait_all(requests, n_requests, "exchanging sums");
}

static int sum(float *values, float *scratch, uint64_t n)
{
    for (uint64_t at = 0; n_all > 1 && at < n; at += MOST)
        SY_TRY(sum_some(values + at, scratch, SY_MIN(n - at, MOST)));
    return SY_OK;
}

static int sum_doubles(double *values, int n)
{
    double all[MAX_RANKS * MAX_DOUBLES];
    MPI_Request request;
    SY_TRY(
        check(MPI_Iallgather(values, n, MPI_DOUBLE, all, n, MPI_DOUBLE, MPI_COMM_WORLD, &request),
              "exchanging losses"));
    SY_TRY(wait_all(&request, 1, "exchanging losses"));
    for (int i = 0; i < n; i++) {
        values[i] = all[i];
        for (int r = 1; r < n_all; r++)
            values[i] += all[r * n + i];
    }
    return SY_OK;
}

static int share(void *bytes, uint64_t n)
{
    for (uint64_t at = 0; at < n; at += MOST) {
        MPI_Request request;
        SY_TRY(check(MPI_Ibcast((char *)bytes + at, (int)SY_MIN(n - at, MOST), MPI_BYTE, 0,
                                MPI_COMM_WORLD, &request),
                     "sharing the state"));
        SY_TRY(wait_all(&request, 1, "sharing the state"));
    }
    return SY_OK;
}

static void leave(void)
{
    MPI_Finalize();
}

const struct sy_ranks_ops *sy_ranks_mpi(int (*say_error)(int status, const char *text))
{
    static const struct sy_ranks_ops ops = {.bytes = sizeof ops,
                                            .name = "mpi",
                                            .join = join,
                                            .sum = sum,
                                            .sum_doubles = sum_doubles,
                                            .share = share,
                                            .leave = leave};
    say = say_error;
    return &ops;
}

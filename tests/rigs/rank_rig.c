#include "tests/rigs/rank_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "runtime/base/status.h"

#define HANG_S 60

/* ---- a rank's side: own bytes to all, all ranks' bytes to each ---------------------------------------------------- */

static int own_rank, n_all, peers[RANK_RIG_MOST];

struct way {
    size_t sent, got;
};

static int gone(int rank)
{
    return sy_error_set(SY_EPEER, "rank %d is gone", rank);
}

static bool is_closed(ssize_t n)
{
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static int move_bytes(int rank, const char *own, char *from, size_t bytes, struct way *way)
{
    if (way->sent < bytes) {
        ssize_t n = send(peers[rank], own + way->sent, bytes - way->sent, MSG_NOSIGNAL);
        if (is_closed(n))
            return gone(rank);
        way->sent += n > 0 ? (size_t)n : 0;
    }
    if (way->got < bytes) {
        ssize_t n = recv(peers[rank], from + way->got, bytes - way->got, 0);
        if (is_closed(n))
            return gone(rank);
        way->got += n > 0 ? (size_t)n : 0;
    }
    return SY_OK;
}

/* all: n_all times `bytes`. */
static int swap(const void *own, void *all, size_t bytes)
{
    struct way ways[RANK_RIG_MOST] = {{0, 0}};
    memcpy((char *)all + (size_t)own_rank * bytes, own, bytes);
    for (bool over = false; !over;) {
        struct pollfd fds[RANK_RIG_MOST];
        over = true;
        for (int r = 0; r < n_all; r++) {
            bool sends = ways[r].sent < bytes, takes = ways[r].got < bytes;
            bool waits = r != own_rank && (sends || takes);
            fds[r] =
                (struct pollfd){.fd = waits ? peers[r] : -1,
                                .events = (short)((sends ? POLLOUT : 0) | (takes ? POLLIN : 0))};
            over &= !waits;
        }
        if (over || poll(fds, (nfds_t)n_all, 1000) <= 0)
            continue;
        for (int r = 0; r < n_all; r++)
            if (fds[r].fd >= 0 && fds[r].revents)
                SY_TRY(move_bytes(r, own, (char *)all + (size_t)r * bytes, bytes, &ways[r]));
    }
    return SY_OK;
}

static int sum(float *values, float *scratch, uint64_t n)
{
    (void)scratch;
    float *all = malloc((size_t)n_all * n * sizeof *all + 1);
    SY_TRY_ALLOC(all, "no memory for a sum");
    int status = swap(values, all, n * sizeof *values);
    for (uint64_t i = 0; status == SY_OK && i < n; i++) {
        values[i] = all[i];
        for (int r = 1; r < n_all; r++)
            values[i] += all[(uint64_t)r * n + i];
    }
    free(all);
    return status;
}

static int sum_doubles(double *values, int n)
{
    double all[RANK_RIG_MOST * 16];
    SY_TRY(swap(values, all, (size_t)n * sizeof *values));
    for (int i = 0; i < n; i++) {
        values[i] = all[i];
        for (int r = 1; r < n_all; r++)
            values[i] += all[r * n + i];
    }
    return SY_OK;
}

static int share(void *bytes, uint64_t n)
{
    char *all = malloc((size_t)n_all * n + 1);
    SY_TRY_ALLOC(all, "no memory to share");
    int status = swap(bytes, all, n);
    if (status == SY_OK)
        memcpy(bytes, all, n);
    free(all);
    return status;
}

static const struct sy_ranks_ops ops = {
    .bytes = sizeof ops, .name = "test", .sum = sum, .sum_doubles = sum_doubles, .share = share};

/* ---- the test's side ------------------------------------------------------------------------------------------------ */

static void make_pairs(int n, int pairs[RANK_RIG_MOST][RANK_RIG_MOST])
{
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
                abort();
            pairs[a][b] = pair[0];
            pairs[b][a] = pair[1];
        }
}

/* All but one rank's, or all. */
static void close_pairs(int n, int pairs[RANK_RIG_MOST][RANK_RIG_MOST], int but)
{
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++)
            if (a != b && a != but)
                close(pairs[a][b]);
}

static int has_leaks(void)
{
#ifdef __SANITIZE_ADDRESS__
    return __lsan_do_recoverable_leak_check();
#else
    return 0;
#endif
}

void rank_rig_start(struct rank_rig *rig, int n,
                    int (*run)(const struct sy_ranks *ranks, void *ctx), void *ctx)
{
    int pairs[RANK_RIG_MOST][RANK_RIG_MOST];
    rig->n = n;
    make_pairs(n, pairs);
    for (int r = 0; r < n; r++) {
        rig->pids[r] = fork();
        if (rig->pids[r] < 0)
            abort();
        if (rig->pids[r] > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(HANG_S);
        own_rank = r;
        n_all = n;
        memcpy(peers, pairs[r], sizeof peers);
        close_pairs(n, pairs, r);
        struct sy_ranks ranks = {.ops = &ops, .rank = r, .n = n};
        int status = run(&ranks, ctx);
        _exit(has_leaks() ? RANK_RIG_LEAKS : status);
    }
    close_pairs(n, pairs, -1);
}

int rank_rig_wait(struct rank_rig *rig, int rank)
{
    int got = 0;
    while (waitpid(rig->pids[rank], &got, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(got) ? WEXITSTATUS(got) : 128 + WTERMSIG(got);
}

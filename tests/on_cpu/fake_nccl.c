/* NCCL without GPUs, for ranks that are processes of one machine: libnccl-fake.so, which tests name in SY_NCCL_LIBRARY. It has the calls that
 * workers/cuda/ranks/nccl_api.h opens, over sockets; asynchronous as NCCL's are for a communicator that does not block, and as strict: a call while another is in
 * progress, a group that does not match, a pointer that is none of the device's ends the process.
 *
 *   FAKE_NCCL_FAIL=CALL:N:RESULT   the N-th call of ncclCALL in this process answers RESULT; AsyncError: what CommGetAsyncError tells; Hang: the N-th group does
 *                                  not end
 *   FAKE_NCCL_ABORT=hangs          ncclCommAbort does not end
 *   FAKE_NCCL_STILL=FILE           while that file is there no group may begin: it ends the process
 *   FAKE_NCCL_VERSION=N            what ncclGetVersion tells */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/on_cpu/cpu_launch.h"
#include "workers/cuda/ranks/nccl_api.h"

#define MOST_RANKS 8
#define LOOK_MS    20

struct transfer { /* a rank's bytes in a group, one way */
    unsigned char *at;
    size_t left;
};

struct ncclComm {
    int rank, n, listener;
    int peers[MOST_RANKS]; /* sockets; -1: none */
    char name[64];
    struct transfer out[MOST_RANKS], in[MOST_RANKS];
    atomic_int result; /* of what is under way */
    atomic_bool aborted;
    pthread_t thread;
    bool has_thread;
};

#define X(name, parameters) int nccl##name parameters;
SY_NCCL_CALL_TABLE(X)
#undef X
const char *ncclGetErrorString(int result);
const char *ncclGetLastError(struct ncclComm *comm);

/* ---- failures on demand ---------------------------------------------------------------------------------- */

static int planned(const char *name)
{
    static int n_calls;
    char wanted[40];
    int at, result;
    const char *plan = getenv("FAKE_NCCL_FAIL");
    if (!plan || sscanf(plan, "%39[^:]:%d:%d", wanted, &at, &result) != 3 ||
        strcmp(wanted, name) != 0)
        return SY_NCCL_SUCCESS;
    return ++n_calls == at ? result : SY_NCCL_SUCCESS;
}

#define FAIL_IF_PLANNED(name)           \
    do {                                \
        int result_ = planned(name);    \
        if (result_ != SY_NCCL_SUCCESS) \
            return result_;             \
    } while (0)

const char *ncclGetErrorString(int result)
{
    return result == SY_NCCL_REMOTE_ERROR    ? "remote process exited or there was a network error"
           : result == SY_NCCL_INVALID_USAGE ? "invalid usage"
                                             : "fake failure";
}

const char *ncclGetLastError(struct ncclComm *comm)
{
    (void)comm;
    return "Duplicate GPU detected : or something else";
}

int ncclGetVersion(int *version)
{
    const char *text = getenv("FAKE_NCCL_VERSION");
    *version = text ? atoi(text) : 22809;
    FAIL_IF_PLANNED("GetVersion");
    return SY_NCCL_SUCCESS;
}

/* ---- joining ----------------------------------------------------------------------------------------------- */

int ncclGetUniqueId(struct sy_nccl_id *id)
{
    static int n_ids;
    FAIL_IF_PLANNED("GetUniqueId");
    snprintf(id->bytes, sizeof id->bytes, "fake-nccl-%d-%d", (int)getpid(), n_ids++);
    return SY_NCCL_SUCCESS;
}

static socklen_t address_of(const struct ncclComm *c, int rank, struct sockaddr_un *to)
{
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(to->sun_path + 1, sizeof to->sun_path - 1, "%.60s-%d", c->name, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool connect_to(struct ncclComm *c, int peer)
{
    struct sockaddr_un address;
    socklen_t bytes = address_of(c, peer, &address);
    unsigned char own = (unsigned char)c->rank;
    while (!atomic_load(&c->aborted)) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, bytes) == 0 && write(fd, &own, 1) == 1) {
            c->peers[peer] = fd;
            return true;
        }
        close(fd);
        usleep(1000);
    }
    return false;
}

static bool take_one(struct ncclComm *c)
{
    struct pollfd listener = {.fd = c->listener, .events = POLLIN};
    unsigned char peer = 0;
    while (!atomic_load(&c->aborted)) {
        if (poll(&listener, 1, LOOK_MS) <= 0)
            continue;
        int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || read(fd, &peer, 1) != 1)
            return false;
        c->peers[peer] = fd;
        return true;
    }
    return false;
}

static void *join_all(void *comm)
{
    struct ncclComm *c = comm;
    bool joined = true;
    for (int r = 0; r < c->rank; r++)
        joined = joined && connect_to(c, r);
    for (int r = c->rank + 1; r < c->n; r++)
        joined = joined && take_one(c);
    for (int r = 0; r < c->n; r++)
        if (c->peers[r] >= 0)
            fcntl(c->peers[r], F_SETFL, O_NONBLOCK);
    atomic_store(&c->result, joined ? SY_NCCL_SUCCESS : SY_NCCL_REMOTE_ERROR);
    return NULL;
}

static void begin(struct ncclComm *c, void *(*work)(void *comm))
{
    atomic_store(&c->result, SY_NCCL_IN_PROGRESS);
    if (c->has_thread)
        pthread_join(c->thread, NULL);
    c->has_thread = pthread_create(&c->thread, NULL, work, c) == 0;
    assert(c->has_thread);
}

int ncclCommInitRankConfig(struct ncclComm **out, int n_ranks, struct sy_nccl_id id, int rank,
                           struct sy_nccl_config *config)
{
    struct sockaddr_un address;
    assert(config->size == sizeof *config && config->magic == SY_NCCL_MAGIC &&
           config->version == SY_NCCL_VERSION_2_14 && config->blocking == 0);
    assert(n_ranks <= MOST_RANKS && rank >= 0 && rank < n_ranks);
    FAIL_IF_PLANNED("CommInitRankConfig");
    struct ncclComm *c = calloc(1, sizeof *c);
    assert(c);
    *c = (struct ncclComm){.rank = rank, .n = n_ranks};
    memcpy(c->name, id.bytes, sizeof c->name - 1);
    memset(c->peers, 0xff, sizeof c->peers);
    c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = address_of(c, rank, &address);
    if (bind(c->listener, (struct sockaddr *)&address, bytes) < 0 ||
        listen(c->listener, MOST_RANKS) < 0)
        abort();
    begin(c, join_all);
    *out = c;
    return SY_NCCL_IN_PROGRESS;
}

int ncclCommGetAsyncError(struct ncclComm *comm, int *result)
{
    FAIL_IF_PLANNED("CommGetAsyncError");
    *result = atomic_load(&comm->result);
    int other = planned("AsyncError");
    *result = other ? other : *result;
    return SY_NCCL_SUCCESS;
}

int ncclCommAbort(struct ncclComm *comm)
{
    if (getenv("FAKE_NCCL_ABORT") && comm->has_thread) { /* nobody joins it any more */
        pthread_detach(comm->thread);
        comm->has_thread = false;
    }
    while (getenv("FAKE_NCCL_ABORT"))
        pause();
    atomic_store(&comm->aborted, true);
    if (comm->has_thread)
        pthread_join(comm->thread, NULL);
    for (int r = 0; r < comm->n; r++)
        if (comm->peers[r] >= 0)
            close(comm->peers[r]);
    close(comm->listener);
    free(comm);
    FAIL_IF_PLANNED("CommAbort");
    return SY_NCCL_SUCCESS;
}

/* ---- groups ------------------------------------------------------------------------------------------------ */

static struct ncclComm *of_group;
static int depth;

int ncclGroupStart(void)
{
    const char *still = getenv("FAKE_NCCL_STILL");
    assert(depth == 0 && !(still && access(still, F_OK) == 0));
    FAIL_IF_PLANNED("GroupStart");
    depth++;
    of_group = NULL;
    return SY_NCCL_SUCCESS;
}

static struct transfer seen(const void *device, size_t n, int type)
{
    assert(((uintptr_t)device & CPU_MARK) && type == SY_NCCL_FLOAT32);
    return (struct transfer){(unsigned char *)((uintptr_t)device & ~CPU_MARK), n * sizeof(float)};
}

static void add(struct ncclComm *c, struct transfer *to, struct transfer transfer)
{
    assert(depth == 1 && atomic_load(&c->result) == SY_NCCL_SUCCESS);
    assert(!to->at); /* one of a kind in a group */
    of_group = c;
    *to = transfer;
}

int ncclSend(const void *from, size_t n, int type, int peer, struct ncclComm *comm, void *stream)
{
    assert(stream);
    FAIL_IF_PLANNED("Send");
    add(comm, &comm->out[peer], seen(from, n, type));
    return SY_NCCL_SUCCESS;
}

int ncclRecv(void *to, size_t n, int type, int peer, struct ncclComm *comm, void *stream)
{
    assert(stream);
    FAIL_IF_PLANNED("Recv");
    add(comm, &comm->in[peer], seen(to, n, type));
    return SY_NCCL_SUCCESS;
}

static bool pass(struct transfer *t, ssize_t n)
{
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return false;
    t->at += n > 0 ? n : 0;
    t->left -= n > 0 ? (size_t)n : 0;
    return true;
}

/* What one look at all sockets can move; false: a peer is gone. */
static bool move_some(struct ncclComm *c, bool *over)
{
    struct pollfd all[MOST_RANKS];
    *over = true;
    for (int r = 0; r < c->n; r++) {
        all[r] = (struct pollfd){
            .fd = c->peers[r],
            .events = (short)((c->out[r].left ? POLLOUT : 0) | (c->in[r].left ? POLLIN : 0))};
        *over &= all[r].events == 0;
        if (all[r].events == 0)
            all[r].fd = -1;
    }
    if (*over || poll(all, (nfds_t)c->n, LOOK_MS) <= 0)
        return true;
    for (int r = 0; r < c->n; r++) {
        if ((all[r].revents & (POLLIN | POLLHUP)) && c->in[r].left &&
            !pass(&c->in[r], read(c->peers[r], c->in[r].at, c->in[r].left)))
            return false;
        if ((all[r].revents & (POLLOUT | POLLHUP)) && c->out[r].left &&
            !pass(&c->out[r], send(c->peers[r], c->out[r].at, c->out[r].left, MSG_NOSIGNAL)))
            return false;
    }
    return true;
}

static void *run_group(void *comm)
{
    struct ncclComm *c = comm;
    struct transfer *in = &c->in[c->rank], *out = &c->out[c->rank];
    assert(in->left == out->left); /* to itself */
    if (in->left)
        memcpy(in->at, out->at, in->left);
    in->left = out->left = 0;
    bool over = false, alive = true, hangs = planned("Hang") != SY_NCCL_SUCCESS;
    while (hangs && !atomic_load(&c->aborted))
        usleep(1000);
    while (!over && alive && !atomic_load(&c->aborted))
        alive = move_some(c, &over);
    memset(c->in, 0, sizeof c->in);
    memset(c->out, 0, sizeof c->out);
    atomic_store(&c->result, over ? SY_NCCL_SUCCESS : SY_NCCL_REMOTE_ERROR);
    return NULL;
}

int ncclGroupEnd(void)
{
    assert(depth == 1);
    depth--;
    FAIL_IF_PLANNED("GroupEnd");
    if (!of_group)
        return SY_NCCL_SUCCESS;
    begin(of_group, run_group);
    return SY_NCCL_IN_PROGRESS;
}

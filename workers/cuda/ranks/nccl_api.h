/* NCCL, opened when ranks ask for it: a program on a machine without it starts and trains all the same. Its types as nccl.h has them since 2.14
 * (nccl_api_check.c compares where that header is); nothing here needs CUDA's headers. */
#ifndef SY_WORKERS_CUDA_RANKS_NCCL_API_H
#define SY_WORKERS_CUDA_RANKS_NCCL_API_H

#include <stddef.h>

#define SY_NCCL_FLOAT32      7
#define SY_NCCL_MAGIC        0xcafebeefu
#define SY_NCCL_VERSION_2_14 21400

enum sy_nccl_result {
    SY_NCCL_SUCCESS = 0,
    SY_NCCL_CUDA_ERROR = 1,
    SY_NCCL_INVALID_USAGE = 5,
    SY_NCCL_REMOTE_ERROR = 6,
    SY_NCCL_IN_PROGRESS = 7
};

struct ncclComm;

struct sy_nccl_id {
    char bytes[128];
};

/* ncclConfig_t as of 2.14: later versions take their defaults for what a shorter one lacks. */
struct sy_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

/* X(name, parameters) */
#define SY_NCCL_CALL_TABLE(X)                                                                      \
    X(GetVersion, (int *version))                                                                  \
    X(GetUniqueId, (struct sy_nccl_id * id))                                                       \
    X(CommInitRankConfig, (struct ncclComm * *comm, int n_ranks, struct sy_nccl_id id, int rank,   \
                           struct sy_nccl_config *config))                                         \
    X(CommGetAsyncError, (struct ncclComm * comm, int *result))                                    \
    X(CommAbort, (struct ncclComm * comm))                                                         \
    X(GroupStart, (void))                                                                          \
    X(GroupEnd, (void))                                                                            \
    X(Send, (const void *from, size_t n, int type, int peer, struct ncclComm *comm, void *stream)) \
    X(Recv, (void *to, size_t n, int type, int peer, struct ncclComm *comm, void *stream))

struct sy_nccl_api {
#define X(name, parameters) int(*name) parameters;
    SY_NCCL_CALL_TABLE(X)
#undef X
    const char *(*GetErrorString)(int result);
    const char *(*GetLastError)(struct ncclComm *comm);
};

/* The library that SY_NCCL_LIBRARY names, else libnccl.so.2 where the loader finds it; open as long as the process. EUNSUPPORTED says what is missing. */
int sy_nccl_api_get(const struct sy_nccl_api **out);
/* A call's result as a status; SUCCESS and IN_PROGRESS are SY_OK. comm: whose last error text is added; NULL: none. */
int sy_nccl_check(const struct sy_nccl_api *api, struct ncclComm *comm, int result,
                  const char *what);

#endif

#include "workers/cuda/ranks/ranks_nccl.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_start.h"
#include "workers/cuda/ranks/nccl_api.h"

#define TIMEOUT_S       60
#define ABORT_TIMEOUT_S 10
#define FIRST_NAP_NS    20000L
#define LAST_NAP_NS     400000L

struct sy_nccl_ranks {
    const struct sy_nccl_api *api;
    struct ncclComm *comm; /* NULL: none yet */
    struct sy_side *side;
    float *scratch;
    int rank, n;
};

/* ---- waiting (NC2) -------------------------------------------------------------------------------------- */

static uint64_t timeout_s(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    long seconds = text ? strtol(text, NULL, 10) : 0;
    return seconds > 0 ? (uint64_t)seconds : otherwise;
}

static int answer(struct sy_nccl_ranks *c, int result, const char *what)
{
    return sy_nccl_check(c->api, c->comm, result, what);
}

/* What NCCL enqueued has run, or with `enqueued` is NCCL's no more: until then nothing else may be asked of it. */
static int is_over(struct sy_nccl_ranks *c, bool enqueued, const char *what, bool *over)
{
    int result = SY_NCCL_SUCCESS;
    SY_TRY(answer(c, c->api->CommGetAsyncError(c->comm, &result), "ncclCommGetAsyncError"));
    SY_TRY(answer(c, result, what));
    *over = result == SY_NCCL_SUCCESS;
    return *over && !enqueued ? sy_side_idle(c->side, over) : SY_OK;
}

static int wait_for(struct sy_nccl_ranks *c, bool enqueued, const char *what)
{
    uint64_t limit_s = timeout_s("SY_NCCL_TIMEOUT_S", TIMEOUT_S);
    sy_ns begin = sy_clock_now();
    struct timespec nap = {0, FIRST_NAP_NS};
    for (bool over = false;;) {
        SY_TRY(is_over(c, enqueued, what, &over));
        if (over)
            return SY_OK;
        if (sy_clock_now() - begin > limit_s * SY_NS_PER_S)
            return sy_error_set(SY_EPEER,
                                "rank %d of %d: %s has not ended in %llu s: another rank is gone, "
                                "or the link between the GPUs is (SY_NCCL_TIMEOUT_S)",
                                c->rank, c->n, what, (unsigned long long)limit_s);
        nanosleep(&nap, NULL);
        nap.tv_nsec = SY_MIN(nap.tv_nsec + nap.tv_nsec / 8, LAST_NAP_NS);
    }
}

/* ---- life ----------------------------------------------------------------------------------------------- */

/* What rank 0 tells the others. */
struct invitation {
    int32_t status;
    struct sy_nccl_id id;
};

static int get_id(struct sy_nccl_ranks *c, const struct sy_rank_wire *wire, struct sy_nccl_id *id)
{
    struct invitation invitation = {SY_OK, {{0}}};
    if (wire->rank == 0)
        invitation.status = answer(c, c->api->GetUniqueId(&invitation.id), "ncclGetUniqueId");
    SY_TRY(wire->share(&invitation, sizeof invitation));
    *id = invitation.id;
    if (invitation.status < 0 && wire->rank > 0)
        return sy_error_set(SY_EPEER, "rank 0 cannot begin with NCCL");
    return invitation.status;
}

static int init(struct sy_nccl_ranks *c, const struct sy_rank_wire *wire)
{
    struct sy_nccl_id id;
    struct sy_nccl_config config = {
        .size = sizeof config, .magic = SY_NCCL_MAGIC, .version = SY_NCCL_VERSION_2_14};
    SY_TRY(get_id(c, wire, &id));
    int result = c->api->CommInitRankConfig(&c->comm, c->n, id, c->rank, &config);
    int status = answer(c, result, "ncclCommInitRankConfig");
    if (status == SY_OK)
        status = wait_for(c, true, "ncclCommInitRankConfig");
    return status < 0 ? sy_error_prefix(status,
                                        "rank %d of %d cannot join by NCCL, which wants a GPU for "
                                        "each rank (--device cuda:0,cuda:1), or \"exchange\": "
                                        "\"host\" in the job file",
                                        c->rank, c->n)
                      : SY_OK;
}

uint64_t sy_nccl_ranks_scratch(int n_ranks, uint64_t most)
{
    return most + (uint64_t)n_ranks * (uint64_t)n_ranks; /* each part rounded up */
}

int sy_nccl_ranks_open(const struct sy_rank_wire *wire, struct sy_side *side, float *scratch,
                       struct sy_nccl_ranks **out)
{
    struct sy_nccl_ranks *c = calloc(1, sizeof *c);
    SY_TRY_ALLOC(c, "no memory for ranks");
    *c = (struct sy_nccl_ranks){.side = side, .scratch = scratch, .rank = wire->rank, .n = wire->n};
    int status = sy_nccl_api_get(&c->api);
    *out = c;
    return status == SY_OK ? init(c, wire) : status;
}

static void *abort_comm(void *ranks)
{
    struct sy_nccl_ranks *c = ranks;
    int result = c->api->CommAbort(c->comm);
    if (result != SY_NCCL_SUCCESS)
        sy_log_warn("ranks", "event=abort_failed why=\"%s\"", c->api->GetErrorString(result));
    return NULL;
}

/* NC3 */
static bool abort_in_time(struct sy_nccl_ranks *c)
{
    uint64_t limit_s = timeout_s("SY_NCCL_ABORT_TIMEOUT_S", ABORT_TIMEOUT_S);
    pthread_t thread;
    struct timespec until;
    int error = sy_thread_start(&thread, abort_comm, c);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)limit_s;
    if (!error && pthread_timedjoin_np(thread, NULL, &until) == 0)
        return true;
    sy_log_warn("ranks", "event=abort_late seconds=%llu", (unsigned long long)limit_s);
    if (!error)
        pthread_detach(thread);
    return false;
}

bool sy_nccl_ranks_close(struct sy_nccl_ranks *c)
{
    if (c && c->comm && !abort_in_time(c))
        return false;
    free(c);
    return true;
}

/* ---- sums (NC1) --------------------------------------------------------------------------------------------- */

static uint64_t begin_of(const struct sy_nccl_ranks *c, uint64_t n, int rank)
{
    return n * (uint64_t)rank / (uint64_t)c->n;
}

static uint64_t count_of(const struct sy_nccl_ranks *c, uint64_t n, int rank)
{
    return begin_of(c, n, rank + 1) - begin_of(c, n, rank);
}

static int send(struct sy_nccl_ranks *c, const float *from, uint64_t n, int peer)
{
    return answer(c, c->api->Send(from, n, SY_NCCL_FLOAT32, peer, c->comm, sy_side_handle(c->side)),
                  "ncclSend");
}

static int receive(struct sy_nccl_ranks *c, float *to, uint64_t n, int peer)
{
    return answer(c, c->api->Recv(to, n, SY_NCCL_FLOAT32, peer, c->comm, sy_side_handle(c->side)),
                  "ncclRecv");
}

/* This rank's part, of all ranks, into scratch; this rank's own too. */
static int collect(struct sy_nccl_ranks *c, const float *values, uint64_t n)
{
    uint64_t own_n = count_of(c, n, c->rank);
    for (int r = 0; r < c->n; r++) {
        SY_TRY(receive(c, c->scratch + (uint64_t)r * own_n, own_n, r));
        SY_TRY(send(c, values + begin_of(c, n, r), count_of(c, n, r), r));
    }
    return SY_OK;
}

/* This rank's sum to all, and theirs. */
static int spread(struct sy_nccl_ranks *c, float *values, uint64_t n)
{
    for (int r = 0; r < c->n; r++) {
        if (r == c->rank)
            continue;
        SY_TRY(receive(c, values + begin_of(c, n, r), count_of(c, n, r), r));
        SY_TRY(send(c, values + begin_of(c, n, c->rank), count_of(c, n, c->rank), r));
    }
    return SY_OK;
}

/* A group is ended also where a call in it failed: else NCCL waits for its end. */
static int run_group(struct sy_nccl_ranks *c, float *values, uint64_t n, bool collects)
{
    char why[300];
    SY_TRY(answer(c, c->api->GroupStart(), "ncclGroupStart"));
    int status = collects ? collect(c, values, n) : spread(c, values, n);
    strncpy(why, status < 0 ? sy_error_text() : "", sizeof why - 1);
    why[sizeof why - 1] = '\0';
    int ended = answer(c, c->api->GroupEnd(), "ncclGroupEnd");
    if (status < 0)
        return sy_error_set(status, "%s", why);
    SY_TRY(ended);
    return wait_for(c, true, "the exchange of gradients");
}

int sy_nccl_ranks_sum(struct sy_nccl_ranks *c, float *values, uint64_t n)
{
    SY_TRY(run_group(c, values, n, true));
    SY_TRY(sy_side_add(c->side, c->n, c->scratch, count_of(c, n, c->rank),
                       values + begin_of(c, n, c->rank)));
    if (c->n > 1)
        SY_TRY(run_group(c, values, n, false));
    return wait_for(c, false, "the exchange of gradients");
}

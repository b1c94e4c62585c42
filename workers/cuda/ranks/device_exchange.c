#include "workers/cuda/ranks/device_exchange.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/cuda/ranks/nccl_api.h"
#include "workers/cuda/ranks/ranks_nccl.h"
#include "workers/engine/trainer.h"

#define BUCKET_FLOATS (1u << 21) /* 8 MiB: what ranks tell each other takes less than to move it */
#define FIRST_NAP_NS  20000L
#define LAST_NAP_NS   400000L

struct sy_device_exchange {
    struct sy_rank_wire wire;
    struct sy_side *side;
    float *staging;             /* on the device */
    struct sy_nccl_ranks *nccl; /* NULL: through host memory */
    float *host, *host_scratch; /* then; of one sum */
};

/* ---- all or none (DX2) ------------------------------------------------------------------------------------ */

/* status is this rank's; with an error of its own it says that. */
static int agree(struct sy_device_exchange *x, int status)
{
    double n_failed = status < 0;
    char own[300];
    strncpy(own, status < 0 ? sy_error_text() : "", sizeof own - 1);
    own[sizeof own - 1] = '\0';
    int told = x->wire.sum_doubles(&n_failed, 1);
    if (status < 0)
        return sy_error_set(status, "%s", own);
    SY_TRY(told);
    return n_failed > 0
               ? sy_error_set(SY_EPEER, "rank %d of %d goes no further: %.0f other rank%s failed",
                              x->wire.rank, x->wire.n, n_failed, n_failed > 1 ? "s" : "")
               : SY_OK;
}

/* ---- life --------------------------------------------------------------------------------------------------- */

static int take_host(struct sy_device_exchange *x, const struct sy_device_exchange_want *want)
{
    void *host;
    uint64_t room = 2 * (want->most_floats + (uint64_t)want->wire.n) * sizeof(float);
    SY_TRY(sy_side_take_host(x->side, want->most_floats * sizeof(float), &host));
    x->host = host;
    x->host_scratch = malloc(room);
    SY_TRY_ALLOC(x->host_scratch, "no memory for ranks: %llu bytes", (unsigned long long)room);
    return SY_OK;
}

static int make_parts(struct sy_device_exchange *x, const struct sy_device_exchange_want *want,
                      float **scratch)
{
    const struct sy_math_ops *ops;
    const struct sy_nccl_api *api;
    struct sy_math *math;
    void *staging, *more;
    if (want->way == SY_EXCHANGE_NCCL)
        SY_TRY(sy_nccl_api_get(&api));
    SY_TRY(sy_cuda_engine_math(&ops, &math));
    SY_TRY(sy_side_open(math, want->n_marks, &x->side));
    SY_TRY(sy_side_take(x->side, (want->n_floats + 1) * sizeof(float), &staging));
    x->staging = staging;
    if (want->way == SY_EXCHANGE_HOST)
        return take_host(x, want);
    uint64_t floats = sy_nccl_ranks_scratch(want->wire.n, want->most_floats);
    SY_TRY(sy_side_take(x->side, floats * sizeof(float), &more));
    *scratch = more;
    return SY_OK;
}

/* NC3: while NCCL has its stream and its memory, both stay; freeing them would wait for it. */
static void close_exchange(struct sy_device_exchange *x)
{
    if (!x)
        return;
    if (sy_nccl_ranks_close(x->nccl))
        sy_side_close(x->side);
    free(x->host_scratch);
    free(x);
}

static int open_exchange(const struct sy_device_exchange_want *want,
                         struct sy_device_exchange **out)
{
    float *scratch = NULL;
    struct sy_device_exchange *x = calloc(1, sizeof *x);
    SY_TRY_ALLOC(x, "no memory for ranks");
    x->wire = want->wire;
    int status = agree(x, make_parts(x, want, &scratch));
    if (status == SY_OK && want->way == SY_EXCHANGE_NCCL)
        status = sy_nccl_ranks_open(&x->wire, x->side, scratch, &x->nccl);
    if (status < 0) {
        close_exchange(x);
        return status;
    }
    *out = x;
    return SY_OK;
}

/* ---- into the stream that computes ---------------------------------------------------------------------------- */

static int gather(struct sy_device_exchange *x, const struct sy_shared_part *part, uint64_t at)
{
    return sy_side_gather(x->side, part->values, x->staging + at, part->n * sizeof(float));
}

static int mark(struct sy_device_exchange *x, unsigned mark)
{
    return sy_side_mark(x->side, mark);
}

static int take(struct sy_device_exchange *x, const struct sy_shared_part *part, uint64_t at,
                float share)
{
    return sy_side_scale(x->side, x->staging + at, share, part->n, part->values);
}

static int clear(struct sy_device_exchange *x, const struct sy_shared_part *part)
{
    return sy_side_clear(x->side, part->values, part->n * sizeof(float));
}

/* ---- sums ------------------------------------------------------------------------------------------------------- */

static void nap(struct timespec *time)
{
    nanosleep(time, NULL);
    time->tv_nsec = SY_MIN(time->tv_nsec + time->tv_nsec / 8, LAST_NAP_NS);
}

static int wait_mark(struct sy_device_exchange *x, unsigned mark)
{
    struct timespec time = {0, FIRST_NAP_NS};
    SY_TRY(sy_side_enter(x->side));
    for (bool passed = false;; nap(&time)) {
        SY_TRY(sy_side_passed(x->side, mark, &passed));
        if (passed)
            return SY_OK;
    }
}

static int wait_idle(struct sy_device_exchange *x)
{
    struct timespec time = {0, FIRST_NAP_NS};
    for (bool idle = false;; nap(&time)) {
        SY_TRY(sy_side_idle(x->side, &idle));
        if (idle)
            return SY_OK;
    }
}

static int sum_by_host(struct sy_device_exchange *x, float *values, uint64_t n)
{
    SY_TRY(sy_side_to_host(x->side, values, x->host, n * sizeof(float)));
    SY_TRY(wait_idle(x));
    SY_TRY(x->wire.sum(x->host, x->host_scratch, n));
    SY_TRY(sy_side_to_device(x->side, x->host, values, n * sizeof(float)));
    return wait_idle(x);
}

/* DX1 */
static int sum(struct sy_device_exchange *x, unsigned mark, uint64_t at, uint64_t n)
{
    int status = wait_mark(x, mark);
    if (!x->nccl) {
        SY_TRY(status);
        return sum_by_host(x, x->staging + at, n);
    }
    SY_TRY(agree(x, status));
    return sy_nccl_ranks_sum(x->nccl, x->staging + at, n);
}

const struct sy_device_exchange_ops sy_cuda_exchange = {.bucket_floats = BUCKET_FLOATS,
                                                        .open = open_exchange,
                                                        .close = close_exchange,
                                                        .gather = gather,
                                                        .mark = mark,
                                                        .take = take,
                                                        .clear = clear,
                                                        .sum = sum};

/* A run that is one of several ranks. */
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/train/ranks.h"
#include "workers/train/train_exchange.h"
#include "workers/train/train_run_internal.h"

#define SEED_STEP 0x9e3779b97f4a7c15ull /* ranks draw differently */

uint64_t sy_run_n_ranks(const struct sy_train_run *r)
{
    return r->callbacks.ranks ? (uint64_t)r->callbacks.ranks->n : 1;
}

uint64_t sy_run_part_of_batch(const struct sy_train_run *r, uint64_t batch)
{
    const struct sy_ranks *ranks = r->callbacks.ranks;
    return ranks ? batch * (uint64_t)ranks->n + (uint64_t)ranks->rank : batch;
}

int sy_run_take_part(struct sy_train_run *r)
{
    const struct sy_ranks *ranks = r->callbacks.ranks;
    struct sy_train_options *o = &r->job.options;
    if (!ranks)
        return SY_OK;
    if (o->batch % ranks->n)
        return sy_error_set(SY_EARG,
                            "job '%s': its batch of %" PRId64 " cannot be cut for %d ranks",
                            r->job.name, o->batch, ranks->n);
    o->batch /= ranks->n;
    o->seed += SEED_STEP * (uint64_t)ranks->rank;
    if (ranks->rank > 0) {
        free(r->job.snapshot_folder);
        r->job.snapshot_folder = NULL;
    }
    return SY_OK;
}

static int share_tensors(struct sy_train_run *r, const struct sy_ranks *ranks)
{
    int status = SY_OK, n = r->ops->n_state_tensors(r->trainer);
    for (int i = 0; status == SY_OK && i < n; i++) {
        struct sy_state_tensor tensor;
        r->ops->state_tensor(r->trainer, i, &tensor);
        void *plain = malloc(tensor.bytes ? tensor.bytes : 1);
        SY_TRY_ALLOC(plain, "no %llu bytes for '%s'", (unsigned long long)tensor.bytes,
                     tensor.name);
        status = r->ops->get_state(r->trainer, i, plain);
        if (status == SY_OK)
            status = ranks->ops->share(plain, tensor.bytes);
        if (status == SY_OK && ranks->rank > 0)
            status = r->ops->set_state(r->trainer, i, plain);
        free(plain);
    }
    return status;
}

/* The first of the remaining steps apply nothing. A job that resumes so close to its end still ends. */
static int check_staleness(const struct sy_train_run *r)
{
    if (r->step + r->job.staleness < r->total_steps || r->step >= r->total_steps)
        return SY_OK;
    if (r->step > 0) {
        sy_log_warn("train",
                    "job=%s step=%" PRIu64 " steps=%" PRIu64 " staleness=%" PRIu64
                    " what=\"the steps that are left take no gradient\"",
                    r->job.name, r->step, r->total_steps, r->job.staleness);
        return SY_OK;
    }
    return sy_error_set(
        SY_EARG, "job '%s': its staleness of %" PRIu64 " leaves nothing of %" PRIu64 " steps",
        r->job.name, r->job.staleness, r->total_steps);
}

int sy_run_share_state(struct sy_train_run *r)
{
    const struct sy_ranks *ranks = r->callbacks.ranks;
    SY_TRY(sy_exchange_create(ranks, (int)r->job.staleness, r->job.exchange, r->ops, r->trainer,
                              &r->exchange));
    SY_TRY(ranks->ops->share(&r->step, sizeof r->step));
    SY_TRY(check_staleness(r));
    return share_tensors(r, ranks);
}

int sy_run_gradient_step(struct sy_train_run *r, bool is_last)
{
    bool exchanges = r->exchange && is_last;
    if (exchanges && r->at == 0)
        sy_exchange_begin(r->exchange);
    if (exchanges)
        SY_TRY(sy_exchange_before(r->exchange, r->at));
    SY_TRY(r->ops->run_gradient_step(r->trainer, r->at));
    if (exchanges)
        SY_TRY(sy_exchange_after(r->exchange, r->at));
    return SY_OK;
}

int sy_run_agree(struct sy_train_run *r, double *loss)
{
    const struct sy_ranks *ranks = r->callbacks.ranks;
    double values[SY_EXCHANGE_NUMBERS] = {*loss, r->is_stopping};
    bool is_there;
    if (!ranks)
        return SY_OK;
    SY_TRY(sy_exchange_agree(r->exchange, values, &is_there));
    r->all_stop = is_there && values[1] > 0;
    if (is_there)
        *loss = values[0] / ranks->n;
    return SY_OK;
}

/* Bounds what is enqueued on the device and not done (H1). */
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"

static int record(struct sy_trainer *t, unsigned slot)
{
    SY_TRY(t->ops->mark(t->math, slot));
    sy_inflight_recorded(&t->inflight, slot);
    return SY_OK;
}

static int pass(struct sy_trainer *t, unsigned slot)
{
    uint64_t ns = 0;
    SY_TRY(t->ops->wait_mark(t->math, slot, t->last_mark, &ns));
    sy_inflight_passed(&t->inflight, slot, ns);
    /* With nothing left the device may idle: what the next mark measures then is not only work. */
    t->last_mark = sy_inflight_ns(&t->inflight) > 0 ? (int)slot : -1;
    return SY_OK;
}

/* Until there is room for a step. */
static int make_room(struct sy_trainer *t)
{
    for (;;) {
        unsigned slot = 0;
        switch (sy_inflight_next(&t->inflight, false, &slot)) {
        case SY_INFLIGHT_RECORD:
            SY_TRY(record(t, slot));
            break;
        case SY_INFLIGHT_WAIT:
            SY_TRY(pass(t, slot));
            break;
        default:
            return SY_OK;
        }
    }
}

static int launched(struct sy_trainer *t, uint64_t cost_ns)
{
    unsigned slot = 0;
    return sy_inflight_launched(&t->inflight, cost_ns, &slot) ? record(t, slot) : SY_OK;
}

int sy_cutr_bounded(struct sy_trainer *t, uint64_t cost_ns, sy_cutr_run run,
                    const struct sy_cutr_step *step)
{
    SY_TRY(make_room(t));
    SY_TRY(run(t, step));
    return launched(t, cost_ns);
}

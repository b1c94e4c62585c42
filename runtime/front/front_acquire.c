#include "runtime/front/front_acquire.h"

#include "runtime/base/status.h"

int sy_front_acquire(struct sy_front *front, const char *model, int64_t version,
                     struct sy_repository_wait *wait, struct sy_front_infer **out)
{
    struct sy_core_model_ref *ref;
    int found = front->repository
                    ? sy_repository_acquire(front->repository, model, version, wait, &ref)
                    : front->handlers->model_acquire(front->core, model, version, &ref);

    if (found != SY_OK)
        return sy_refusals_note(
            &front->refused, found == SY_ENOTFOUND ? SY_REFUSED_NOT_FOUND : SY_REFUSED_UNAVAILABLE,
            found);
    return sy_front_infer_create(front, ref, out);
}

/* Requests on a model that the client names: found at the repository, or at the core where there is none. One thread, the event loop's. */
#ifndef SY_RUNTIME_FRONT_FRONT_ACQUIRE_H
#define SY_RUNTIME_FRONT_FRONT_ACQUIRE_H

#include "runtime/front/request/front_infer.h"
#include "runtime/repository/repository.h"

/* A request (front_infer.h) on the model of this name. version 0: none named. SY_REPOSITORY_LOADS: the repository loads it now, and `wait` says
 * when to ask again. ENOTFOUND, EBUSY (it is loading), EIO/ECORRUPT (unavailable); and as sy_front_infer_create. */
int sy_front_acquire(struct sy_front *front, const char *model, int64_t version,
                     struct sy_repository_wait *wait, struct sy_front_infer **out);

#endif

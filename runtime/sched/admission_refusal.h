/* Error texts for rejected requests, with the numbers; and how much of a queue each class may use. Pure. */
#ifndef SY_SCHED_ADMISSION_REFUSAL_H
#define SY_SCHED_ADMISSION_REFUSAL_H

#include "runtime/sched/admission.h"

/* EDEADLINE: by this prediction the request would miss its deadline, or make another one miss it. */
int sy_admission_refuse_late(const struct sy_admission_request *r, const struct sy_prediction *p,
                             sy_ns now);
/* EBUSY: n_waiting requests use all places that are open to this class. */
int sy_admission_refuse_full(int n_waiting, int max_requests, int class_);

#endif

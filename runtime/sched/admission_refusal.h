/* How requests are refused, with the numbers; and how much of a queue each class may fill. Pure. */
#ifndef SY_SCHED_ADMISSION_REFUSAL_H
#define SY_SCHED_ADMISSION_REFUSAL_H

#include "runtime/sched/admission.h"

/* EDEADLINE: by this prediction it would be late, or another one would. */
int sy_admission_refuse_late(const struct sy_admission_request *r, const struct sy_prediction *p,
                             sy_ns now);
/* EBUSY: so many wait, which are all places that this class may fill. */
int sy_admission_refuse_full(int n_waiting, int max_requests, int class_);

#endif

/* Recent demand of each request class, which predictions reserve for more urgent requests to come (Q6). Pure. Not thread safe. */
#ifndef SY_SCHED_CLASS_DEMAND_H
#define SY_SCHED_CLASS_DEMAND_H

#include "runtime/base/clock.h"

/* Classes with a counter of their own; the last counter covers all others. */
#define SY_DEMAND_CLASSES 10

/* Zero-initialised: no demand yet. */
struct sy_class_demand {
    float work_ns[SY_DEMAND_CLASSES], n[SY_DEMAND_CLASSES];
    sy_ns until_ns; /* the counters have decayed up to this time */
};

/* Records the arrival of a request of this class (0: most urgent) with its work. Rejected requests count too: else a class that is rejected would stay so. */
void sy_class_demand_note(struct sy_class_demand *demand, int class_, float work_ns, sy_ns now);

/* Q6. `wait` plus the work that more urgent classes are likely to bring meanwhile, by their recent rate. This is below the mean: where fewer than ln 10
 * requests are expected, none comes in more than one case of ten, and a rejection for their sake would be in vain. */
sy_ns sy_class_demand_wait(const struct sy_class_demand *demand, int class_, sy_ns now,
                           double wait_ns);

#endif

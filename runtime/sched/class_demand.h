/* Recent demand of each request class, which predictions reserve for more urgent requests to come (Q6). Pure. Not thread safe. */
#ifndef SY_SCHED_CLASS_DEMAND_H
#define SY_SCHED_CLASS_DEMAND_H

#include "runtime/base/clock.h"

#define SY_DEMAND_CLASSES 10 /* counted apart; the last counts all beyond */

/* All 0: nothing was asked for yet. */
struct sy_class_demand {
    float work_ns[SY_DEMAND_CLASSES], n[SY_DEMAND_CLASSES];
    sy_ns until_ns; /* forgotten up to then */
};

/* A request of this class (0 the most urgent) came, of so much work; refused ones count too: a class that was shut out would otherwise stay so. */
void sy_class_demand_note(struct sy_class_demand *demand, int class_, float work_ns, sy_ns now);

/* Q6. A wait, with what classes more urgent than this one are likely to ask for meanwhile, as lately. That is less than what comes on average:
 * where fewer than ln 10 requests are expected, one time in ten none comes, and a promise that is refused for them was refused in vain. */
sy_ns sy_class_demand_wait(const struct sy_class_demand *demand, int class_, sy_ns now,
                           double wait_ns);

#endif

#include "runtime/sched/class_demand.h"

#include <math.h>

#include "runtime/base/assert.h"

#define MEMORY_NS  (30 * SY_NS_PER_S) /* decay time: work this old weighs 1/e */
#define MOST_TAKEN 0.9 /* cap on the share of time reserved for more urgent classes */

static void forget_old(struct sy_class_demand *d, sy_ns now)
{
    float kept = expf(-(float)(now - SY_MIN(now, d->until_ns)) / (float)MEMORY_NS);
    for (int i = 0; i < SY_DEMAND_CLASSES; i++) {
        d->work_ns[i] *= kept;
        d->n[i] *= kept;
    }
    d->until_ns = SY_MAX(d->until_ns, now);
}

void sy_class_demand_note(struct sy_class_demand *d, int class_, float work_ns, sy_ns now)
{
    forget_old(d, now);
    int at = SY_MIN(SY_MAX(class_, 0), SY_DEMAND_CLASSES - 1);
    d->work_ns[at] += work_ns;
    d->n[at]++;
}

sy_ns sy_class_demand_wait(const struct sy_class_demand *d, int class_, sy_ns now, double wait_ns)
{
    double work = 0, n = 0;
    for (int i = 0; i < SY_MIN(class_, SY_DEMAND_CLASSES - 1); i++) {
        work += (double)d->work_ns[i];
        n += (double)d->n[i];
    }
    if (n <= 0)
        return (sy_ns)wait_ns;
    double age = (double)(now - SY_MIN(now, d->until_ns));
    double per_ns = exp(-age / (double)MEMORY_NS) / (double)MEMORY_NS;
    double whole = wait_ns / (1 - SY_MIN(work * per_ns, MOST_TAKEN));
    double come = n * per_ns * whole;
    return (sy_ns)(come > M_LN10 ? wait_ns + (whole - wait_ns) * (1 - M_LN10 / come) : wait_ns);
}

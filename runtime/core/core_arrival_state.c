/* Progress of packages that are being fetched. */
#include "runtime/core/core_arrival.h"
#include "runtime/core/core_internal.h"

static const struct sy_package_arrival *coming(const struct sy_core_model *m)
{
    const struct sy_package_arrival *arrival = m->used && m->package ? m->package->arrival : NULL;
    return arrival && sy_arrival_state(arrival) != SY_ARRIVAL_IS_WHOLE ? arrival : NULL;
}

bool sy_core_arrival_holds(const struct sy_core *core, int model)
{
    const struct sy_core_model *m = &core->models[model];
    return coming(m) && !m->arrival.due;
}

bool sy_core_arrival_progress(const struct sy_core *core, int model, unsigned long long *bytes)
{
    const struct sy_package_arrival *arrival = coming(&core->models[model]);
    if (arrival)
        *bytes = sy_arrival_bytes(arrival);
    return arrival != NULL;
}

/* Sets the scheduler's time before each event, and carries out its actions in the loop's next turn. */
#include <event2/event.h>

#include "runtime/core/core_internal.h"

void sy_core_tick(struct sy_core *core)
{
    core->tick_ns = sy_clock_now();
    sy_sched_set_time(core->sched, core->tick_ns);
    if (!core->pumping && sy_sched_has_next(core->sched))
        sy_core_pump_soon(core); /* also if the API call fails and pumps nothing */
}

void sy_core_pump_soon(struct sy_core *core)
{
    event_active(core->pump_event, EV_TIMEOUT, 0);
}

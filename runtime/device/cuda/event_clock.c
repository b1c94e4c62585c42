#include "runtime/device/cuda/event_clock.h"

#include "runtime/base/assert.h"

#define USUAL_RECORD_NS (10 * SY_NS_PER_US) /* from the call to the event, on an idle stream */

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* The reference lies in [low, high]. Where that contradicts what was known, the two clocks have drifted apart since; the
 * newer one counts. */
static void narrow(struct sy_event_clock *clock, int64_t low, int64_t high)
{
    if (low > clock->highest || high < clock->lowest) {
        clock->lowest = low;
        clock->highest = high;
    } else {
        clock->lowest = SY_MAX(clock->lowest, low);
        clock->highest = SY_MIN(clock->highest, high);
    }
    clock->point = clamp(clock->point, clock->lowest, clock->highest);
}

void sy_event_clock_set(struct sy_event_clock *clock, sy_ns before, sy_ns after)
{
    *clock = (struct sy_event_clock){.set = true};
    clock->lowest = (int64_t)before;
    clock->highest = (int64_t)after;
    clock->point = (int64_t)(before + SY_MIN((after - before) / 2, USUAL_RECORD_NS));
}

void sy_event_clock_move(struct sy_event_clock *clock, int64_t elapsed_ns, sy_ns before,
                         sy_ns after)
{
    clock->point += elapsed_ns;
    clock->lowest += elapsed_ns;
    clock->highest += elapsed_ns;
    clock->last_elapsed -= elapsed_ns;
    narrow(clock, (int64_t)before, (int64_t)after);
}

sy_ns sy_event_clock_time(struct sy_event_clock *clock, int64_t elapsed_ns, sy_ns recorded,
                          sy_ns seen)
{
    narrow(clock, (int64_t)recorded - elapsed_ns, (int64_t)seen - elapsed_ns);
    sy_ns time = (sy_ns)(clock->point + elapsed_ns);
    if (clock->last_time == 0)
        clock->last_time = time;
    if (elapsed_ns >= clock->last_elapsed ? time < clock->last_time : time > clock->last_time)
        time = clock->last_time;
    time = (sy_ns)clamp((int64_t)time, (int64_t)recorded, (int64_t)seen);
    clock->last_elapsed = elapsed_ns;
    clock->last_time = time;
    return time;
}

uint64_t sy_event_clock_error_ns(const struct sy_event_clock *clock)
{
    return (uint64_t)SY_MAX(clock->highest - clock->point, clock->point - clock->lowest);
}

#include "runtime/base/clock.h"

#include <errno.h>
#include <time.h>

sy_ns sy_clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (sy_ns)t.tv_sec * SY_NS_PER_S + (sy_ns)t.tv_nsec;
}

void sy_clock_sleep_until(sy_ns deadline)
{
    struct timespec t = {.tv_sec = (time_t)(deadline / SY_NS_PER_S),
                         .tv_nsec = (long)(deadline % SY_NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        continue;
}

#include "runtime/base/clock.h"

#include <errno.h>
#include <time.h>

static sy_ns read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (sy_ns)t.tv_sec * SY_NS_PER_S + (sy_ns)t.tv_nsec;
}

sy_ns sy_clock_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

sy_ns sy_clock_process(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

sy_ns sy_clock_thread(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void sy_clock_sleep_until(sy_ns deadline)
{
    struct timespec t = {.tv_sec = (time_t)(deadline / SY_NS_PER_S),
                         .tv_nsec = (long)(deadline % SY_NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        continue;
}

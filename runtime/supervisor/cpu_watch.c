#include "runtime/supervisor/cpu_watch.h"

#include <time.h>

sy_ns sy_cpu_watch_look(struct sy_cpu_watch *watch, pid_t pid, sy_ns now)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return now;
    sy_ns used_ns = (sy_ns)used.tv_sec * SY_NS_PER_S + (sy_ns)used.tv_nsec;
    if (used_ns != watch->used_ns || watch->moved_ns == 0)
        *watch = (struct sy_cpu_watch){used_ns, now};
    return watch->moved_ns;
}

#include "runtime/supervisor/cpu_watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/assert.h"

#define MOST_TIMEOUTS 5u
#define LEAST_SHARE \
    20u /* less than this part of a core is none: one that loops for ever has more */

static bool read_used(pid_t pid, sy_ns *out)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return false;
    *out = (sy_ns)used.tv_sec * SY_NS_PER_S + (sy_ns)used.tv_nsec;
    return true;
}

sy_ns sy_cpu_watch_look(struct sy_cpu_watch *watch, pid_t pid, sy_ns now)
{
    sy_ns used_ns;

    if (!read_used(pid, &used_ns))
        return now;
    if (used_ns != watch->used_ns || watch->moved_ns == 0) {
        watch->used_ns = used_ns;
        watch->moved_ns = now;
    }
    return watch->moved_ns;
}

/* "PID (NAME) R ...": the name may have any characters. */
static bool is_runnable(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *end = strrchr(text, ')');
    return end && strncmp(end, ") R", 3) == 0;
}

struct sy_cpu_use sy_cpu_use_of(pid_t pid)
{
    struct sy_cpu_use use = {.is_runnable = is_runnable(pid)};
    if (!read_used(pid, &use.used_ns))
        use = (struct sy_cpu_use){0};
    return use;
}

bool sy_cpu_watch_is_silent(struct sy_cpu_watch *watch, sy_ns beat, sy_ns timeout,
                            struct sy_cpu_use use, sy_ns now)
{
    if (now <= beat + timeout / 2) {
        watch->late.look_ns = 0;
        return false;
    }
    if (watch->late.look_ns == 0) {
        watch->late.starved_ns = 0;
    } else if (use.is_runnable &&
               (use.used_ns - watch->late.used_ns) * LEAST_SHARE < now - watch->late.look_ns) {
        watch->late.starved_ns += now - watch->late.look_ns;
    }
    watch->late.look_ns = now;
    watch->late.used_ns = use.used_ns;
    return now > beat + timeout + SY_MIN(watch->late.starved_ns, MOST_TIMEOUTS * timeout);
}

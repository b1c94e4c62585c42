#include "runtime/supervisor/cpu_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/assert.h"

#define MOST_TIMEOUTS 5u
#define LEAST_SHARE \
    20u /* less than this part of a core is none: one that loops for ever has more */
#define MOST_BLOCKED (120 * SY_NS_PER_S) /* for one wait for storage, or a driver */

static bool read_used(pid_t pid, sy_ns *out)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return false;
    *out = (sy_ns)used.tv_sec * SY_NS_PER_S + (sy_ns)used.tv_nsec;
    return true;
}

/* "PID (NAME) R ...": the name may have any characters. 0: the kernel does not tell. */
static char state_in(const char *path)
{
    char text[512];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *end = strrchr(text, ')');
    return (char)(end && end[1] == ' ' ? end[2] : 0);
}

static bool is_runnable(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    return state_in(path) == 'R';
}

static bool is_blocked(pid_t pid)
{
    char path[384];
    bool blocked = false;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *tasks = opendir(path);
    for (struct dirent *e; tasks && !blocked && (e = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%ld/task/%s/stat", (long)pid, e->d_name);
        blocked = e->d_name[0] != '.' && state_in(path) == 'D';
    }
    if (tasks)
        closedir(tasks);
    return blocked;
}

struct sy_cpu_use sy_cpu_use_of(pid_t pid)
{
    struct sy_cpu_use use = {.is_runnable = is_runnable(pid), .is_blocked = is_blocked(pid)};
    if (!read_used(pid, &use.used_ns))
        use = (struct sy_cpu_use){0};
    return use;
}

bool sy_cpu_watch_stands(struct sy_cpu_watch *watch, struct sy_cpu_use use, sy_ns since,
                         sy_ns timeout, sy_ns now)
{
    if (use.used_ns == 0 || use.used_ns != watch->used_ns || watch->moved_ns == 0) {
        watch->used_ns = use.used_ns;
        watch->moved_ns = watch->stirred_ns = now;
    } else if (use.is_blocked && now <= SY_MAX(watch->moved_ns, since) + MOST_BLOCKED) {
        watch->stirred_ns = now;
    }
    return now > SY_MAX(watch->stirred_ns, since) + timeout;
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

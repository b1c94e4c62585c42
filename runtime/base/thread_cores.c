#include "runtime/base/thread_cores.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/status.h"

static _Thread_local struct {
    bool is_confined;
    cpu_set_t before, own;
} cores;

int sy_thread_cores_confine(const cpu_set_t *wanted)
{
    if (!wanted && !cores.is_confined)
        return SY_OK;
    if (!cores.is_confined && sched_getaffinity(0, sizeof cores.before, &cores.before) < 0)
        return sy_error_set(SY_EIO, "sched_getaffinity: %s", strerror(errno));
    if (sched_setaffinity(0, sizeof *wanted, wanted ? wanted : &cores.before) < 0)
        return sy_error_set(SY_EIO, "sched_setaffinity: %s", strerror(errno));
    cores.is_confined = wanted != NULL;
    if (wanted)
        cores.own = *wanted;
    return SY_OK;
}

static void move_to(const cpu_set_t *set)
{
    if (cores.is_confined)
        (void)sched_setaffinity(0, sizeof *set, set);
}

void sy_thread_cores_widen(void)
{
    move_to(&cores.before);
}

void sy_thread_cores_narrow(void)
{
    move_to(&cores.own);
}

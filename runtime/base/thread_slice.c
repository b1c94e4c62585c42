#include "runtime/base/thread_slice.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/status.h"

#define RESET_ON_FORK 1

/* struct sched_attr of sched_setattr(2), which glibc declares from 2.41 on. */
struct attributes {
    uint32_t bytes, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

static int get(struct attributes *a)
{
    *a = (struct attributes){0};
    return (int)syscall(SYS_sched_getattr, 0, a, sizeof *a, 0);
}

int sy_thread_slice_set(sy_ns slice)
{
    struct attributes a;

    if (get(&a) != 0)
        return sy_error_set(SY_EUNSUPPORTED, "sched_getattr: %s", strerror(errno));
    if (a.policy != SCHED_OTHER || a.nice < 0)
        return sy_error_set(SY_EUNSUPPORTED, "policy %u with a nice value of %d", a.policy, a.nice);
    a.bytes = sizeof a;
    a.flags |= RESET_ON_FORK;
    a.runtime_ns = slice;
    if (syscall(SYS_sched_setattr, 0, &a, 0) != 0)
        return sy_error_set(SY_EUNSUPPORTED, "sched_setattr: %s", strerror(errno));
    return SY_OK;
}

sy_ns sy_thread_slice(void)
{
    struct attributes a;

    return get(&a) == 0 ? a.runtime_ns : 0;
}

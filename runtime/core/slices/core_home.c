/* The cores of the runtime's own thread: all that it started with, or one slice's. A thread that wakes on a core where a job computes waits for the kernel to
 * preempt the job, a millisecond or more; in the slice of the models that it serves, the core is idle when the runtime has work. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/thread_cores.h"
#include "runtime/core/core_internal.h"

int sy_core_home_check(const struct sy_core *core, const char *slice)
{
    if (*slice && strcmp(core->spec.kind, "cuda") == 0)
        return sy_error_set(SY_EUNSUPPORTED, "for_runtime: slices of %.30s are not of cores",
                            core->spec.text);
    return SY_OK;
}

static const struct sy_core_slice *wanted(const struct sy_core *core)
{
    for (int i = 0; i < core->n_slices && core->n_slices > 1; i++)
        if (*core->for_runtime && strcmp(core->slices[i].name, core->for_runtime) == 0)
            return &core->slices[i];
    return NULL;
}

/* Sets the calling thread's cores, the loop's. Threads that it starts keep the original ones (thread_cores.h). */
void sy_core_home_follow(struct sy_core *core)
{
    cpu_set_t set;
    const struct sy_core_slice *slice = wanted(core);
    CPU_ZERO(&set);
    for (size_t i = 0; slice && i < slice->n_cores; i++)
        if (slice->cores[i] < CPU_SETSIZE)
            CPU_SET(slice->cores[i], &set);
    if (sy_thread_cores_confine(slice ? &set : NULL) < 0)
        sy_log_warn("slices", "event=runtime_not_confined slice=%s why=\"%s\"", core->for_runtime,
                    sy_error_text());
}

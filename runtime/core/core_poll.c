/* How long the event loop polls before it sleeps. Waking a sleeping thread takes some 5 us, on a virtual machine up to 50: as long as a run of a small
 * model. */
#include <sched.h>

#include "runtime/base/assert.h"
#include "runtime/core/core_internal.h"

static bool has_job(enum sy_worker_state state)
{
    return state >= SY_WORKER_PREPARING_JOB && state <= SY_WORKER_PAUSED;
}

/* OWN_WORK_NS: CPU time of a request between two looks besides polling. OTHER_WORK_NS: after a request that took more, polling is off for this long, so that
 * the cores are free for other work. */
#define OWN_WORK_NS   (100 * SY_NS_PER_US)
#define OTHER_WORK_NS (20 * SY_NS_PER_MS)

void sy_core_poll_check_load(struct sy_core *core)
{
    sy_ns now = sy_clock_now(), computed = core->poll_us > 0 ? sy_clock_process() : 0;
    sy_ns did = computed - core->poll_look.computed_ns, took = now - core->poll_look.at_ns;
    sy_ns polled =
        4 * (sy_ns)core->poll_us * SY_NS_PER_US; /* waking two threads, before and after a run */
    core->poll_look.computed_ns = computed;
    core->poll_look.at_ns = now;
    if (did > OWN_WORK_NS + polled && 4 * did > took)
        core->poll_look.other_work_until_ns = now + OTHER_WORK_NS;
}

uint32_t sy_core_poll_us(const struct sy_core *core)
{
    if (core->stopping) /* the supervisor may have been destroyed */
        return 0;
    if (core->tick_ns < core->poll_look.other_work_until_ns)
        return 0;
    for (int w = 0; w < core->n_workers; w++)
        if (has_job(sy_supervisor_state(core->supervisor, w)))
            return 0;
    return (uint32_t)core->poll_us;
}

/* A worker's first thread is pinned to the first core, so this thread moves away from it; the kernel may move it back at its next wake-up. Used only for runs
 * so short that they use a single worker thread: longer runs use the other cores. */
static void leave_first_core(const struct sy_core *core)
{
    cpu_set_t all, others;
    int first = (int)core->cores[0];
    if (sched_getcpu() != first || sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    others = all;
    CPU_CLR(first, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        (void)sched_setaffinity(0, sizeof all, &all);
}

void sy_core_poll_run(struct sy_core *core, sy_ns expected_ns, bool one_thread)
{
    sy_ns poll_ns = (sy_ns)sy_core_poll_us(core) * SY_NS_PER_US;
    if (!one_thread)
        core->poll_until_ns = 0;
    if (!one_thread || poll_ns == 0 || expected_ns > SY_CORE_POLLED_RUNS * poll_ns)
        return;
    if (expected_ns <= poll_ns)
        leave_first_core(core);
    core->poll_until_ns = sy_clock_now() + expected_ns + poll_ns;
}

void sy_core_poll_next(struct sy_core *core)
{
    core->poll_until_ns = core->n_requests > 0
                              ? core->poll_until_ns
                              : core->tick_ns + (sy_ns)sy_core_poll_us(core) * SY_NS_PER_US;
}

bool sy_core_poll(struct sy_core *core)
{
    bool polls = core->poll_until_ns > 0 && sy_clock_now() < core->poll_until_ns;
    if (polls || core->polls)
        sy_supervisor_take_posts(core->supervisor, polls);
    core->polls = polls;
    return polls;
}

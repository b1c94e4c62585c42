/* Opportunistic jobs beside guaranteed ones in other slices: they get the time that guaranteed jobs can spare (../sched/fill.h). The steps of each
 * guaranteed job are counted over windows in which opportunistic jobs computed throughout, or not at all; the end of a window decides whether they may
 * compute in the next. */
#include <event2/event.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"
#include "runtime/core/core_jobs.h"

#define TICK_US    50000
#define WINDOW_NS  (200 * SY_NS_PER_MS)
#define LONGEST_NS (5 * SY_NS_PER_S) /* a window ends then, even with fewer steps */
#define STEPS      8 /* a window may begin and end anywhere within a step: an error of at most 1/8 */
#define USUAL_KEEP 0.97
/* Part of a window that pausing and resuming may take. */
#define NOT_AT_ALL   0.03
#define ALL_THE_TIME 0.97

static bool trains(const struct sy_core_job *j)
{
    return j->state == SY_JOB_TRAINING && !j->suspended && !j->stop_wanted;
}

static bool is_needed(const struct sy_core *core)
{
    bool production = false, other = false;
    for (const struct sy_core_job *j = core->jobs; j; j = j->next) {
        production |= trains(j) && !j->opportunistic;
        other |= trains(j) && j->opportunistic;
    }
    return core->n_slices > 1 && production && other && core->fill.keep > 0;
}

static void mark(struct sy_core *core, sy_ns now)
{
    core->fill.since_ns = now;
    core->fill.had_ns = 0;
    for (struct sy_core_job *j = core->jobs; j; j = j->next) {
        sy_core_job_refresh(core, j);
        j->fill_step = j->step;
        j->fill_busy_ns = j->busy_ns;
    }
}

/* Share of the window's time, not of the slices, in which opportunistic jobs computed. */
static double opportunistic_share(const struct sy_core *core, sy_ns now)
{
    sy_ns sum = core->fill.had_ns, window = SY_MAX(now - core->fill.since_ns, 1);
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        if (j->opportunistic && j->since_ns && j->since_ns < now)
            sum += now - SY_MAX(j->since_ns, core->fill.since_ns);
    return SY_MIN((double)sum / (double)window, 1.0);
}

void sy_core_fill_compute_end(struct sy_core *core, const struct sy_core_job *j, sy_ns at)
{
    sy_ns from = SY_MAX(j->since_ns, core->fill.since_ns);
    if (j->opportunistic && j->since_ns && at > from)
        core->fill.had_ns += at - from;
}

/* Its worker changed, or its step count restarted: not a measurement. */
static bool advanced(const struct sy_core_job *j)
{
    return j->step > j->fill_step && j->busy_ns > j->fill_busy_ns;
}

static bool is_over(const struct sy_core *core, sy_ns now)
{
    sy_ns window = now - core->fill.since_ns;
    bool enough = true;
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        if (!j->opportunistic && trains(j) && j->since_ns)
            enough &= j->step >= j->fill_step + STEPS;
    return window >= LONGEST_NS || (enough && window >= WINDOW_NS);
}

/* Whether opportunistic jobs may compute in the next window: beside each guaranteed one that computes. */
static bool decide(struct sy_core *core, double part)
{
    bool may = true;
    for (struct sy_core_job *j = core->jobs; j; j = j->next) {
        if (j->opportunistic || !trains(j) || !j->since_ns)
            continue;
        if (advanced(j) && (part <= NOT_AT_ALL || part >= ALL_THE_TIME))
            sy_fill_observe(&j->fill, part >= ALL_THE_TIME,
                            (double)(j->busy_ns - j->fill_busy_ns) /
                                (double)(j->step - j->fill_step));
        may &= sy_fill_next(&j->fill, core->fill.keep, part);
    }
    return may;
}

static void on_tick(int fd, short what, void *ctx)
{
    struct sy_core *core = ctx;
    (void)fd;
    (void)what;
    sy_core_tick(core);
    if (!is_needed(core)) {
        event_del(core->fill.event);
        sy_sched_hold_opportunistic(core->sched, false);
        sy_core_pump_soon(core);
        return;
    }
    for (struct sy_core_job *j = core->jobs; j; j = j->next)
        sy_core_job_refresh(core, j);
    if (!core->fill.begins && !is_over(core, core->tick_ns))
        return;
    bool may = decide(core, core->fill.begins ? 0 : opportunistic_share(core, core->tick_ns));
    core->fill.begins = false;
    mark(core, core->tick_ns);
    sy_sched_hold_opportunistic(core->sched, !may);
    sy_core_pump_soon(core);
}

int sy_core_fill_create(struct sy_core *core)
{
    core->fill.keep = USUAL_KEEP;
    core->fill.event = event_new(core->base, -1, EV_PERSIST, on_tick, core);
    return core->fill.event ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for an event");
}

void sy_core_fill_destroy(struct sy_core *core)
{
    if (core->fill.event)
        event_free(core->fill.event);
}

/* The slices or cores that a job was measured in have changed. */
void sy_core_fill_reset(struct sy_core *core)
{
    for (struct sy_core_job *j = core->jobs; j; j = j->next)
        sy_fill_start(&j->fill);
}

void sy_core_fill_watch(struct sy_core *core)
{
    struct timeval tick = {.tv_usec = TICK_US};
    if (core->stopping || event_pending(core->fill.event, EV_TIMEOUT, NULL) || !is_needed(core))
        return;
    mark(core, sy_clock_now());
    core->fill.begins = true;
    event_add(core->fill.event, &tick);
    event_active(core->fill.event, EV_TIMEOUT, 0); /* may be called while actions are carried out */
}

/* For a guaranteed job: the speed that it kept beside opportunistic ones, and their share of the time; null: not known. */
json_t *sy_core_fill_json(const struct sy_core *core, const struct sy_core_job *j)
{
    if (j->opportunistic || j->fill.n_alone == 0 || j->fill.n_beside == 0)
        return json_null();
    return json_pack("{s:f, s:f}", "kept", sy_fill_ratio(&j->fill), "others_part",
                     sy_fill_part(&j->fill, core->fill.keep));
}

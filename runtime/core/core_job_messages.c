/* What workers say of training jobs. */
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"

static int prepared(struct sy_core *core, int worker, const struct sy_msg_job_prepared *msg,
                    struct sy_core_job *j)
{
    if (msg->status < 0) {
        SY_TRY(sy_supervisor_event(core->supervisor, worker, SY_WORKER_EVENT_JOB_ENDED));
        SY_TRY(sy_sched_job_ended(core->sched, worker, msg->job));
        sy_core_end_job(core, j, (int)msg->status, msg->error);
        return SY_OK;
    }
    SY_TRY(sy_supervisor_event(core->supervisor, worker, SY_WORKER_EVENT_JOB_PREPARED));
    j->persistent_bytes = msg->persistent_bytes;
    j->ephemeral_bytes = msg->ephemeral_bytes;
    j->total_steps = msg->total_steps;
    return sy_sched_job_prepared(core->sched, worker, msg->job, msg->persistent_bytes,
                                 msg->ephemeral_bytes, msg->total_steps);
}

static int started(struct sy_core *core, int worker, const struct sy_msg_job_started *msg,
                   struct sy_core_job *j)
{
    SY_TRY(sy_supervisor_event(core->supervisor, worker, SY_WORKER_EVENT_JOB_STARTED));
    SY_TRY(sy_sched_job_started(core->sched, worker, msg->job, msg->step));
    j->state = SY_JOB_TRAINING;
    j->step = j->first_step = msg->step;
    j->started_ns = sy_clock_now();
    j->resumed = false;
    sy_core_corun_judge_all(core);
    sy_log_info("jobs", "event=started job=%llu name=%s worker=%d step=%llu",
                (unsigned long long)j->id, j->name, worker, (unsigned long long)msg->step);
    sy_core_answer_start(j, SY_OK, NULL);
    return SY_OK;
}

static int turn_over(struct sy_core *core, int worker, const struct sy_msg_job_turn_over *msg,
                     struct sy_core_job *j)
{
    SY_TRY(sy_supervisor_event(core->supervisor, worker, SY_WORKER_EVENT_JOB_TURN_OVER));
    sy_core_job_stands(core, j, sy_clock_now());
    sy_core_job_look(core, j);
    j->step = msg->step;
    /* Shares are of what the device was held for, messages and waking up included, not of what the worker computed: else jobs of short
     * iterations, which change hands more often, get more of it. */
    return sy_sched_job_turn_over(core->sched, worker, msg->job, msg->step,
                                  j->account.used_ns - j->turn_began_ns);
}

static int spilled(struct sy_core *core, int worker, const struct sy_msg_job_spilled *msg,
                   const struct sy_core_job *j)
{
    sy_log_info("jobs", "event=%s job=%llu name=%s bytes=%llu why=\"%s\"",
                msg->status < 0 ? "not_spilled" : "spilled", (unsigned long long)j->id, j->name,
                (unsigned long long)msg->bytes, msg->error);
    core->n_spills += msg->status == SY_OK;
    core->spilled_bytes += msg->bytes;
    return sy_sched_job_spilled(core->sched, worker, msg->job, msg->status == SY_OK);
}

static int returned(struct sy_core *core, int worker, const struct sy_msg_job_returned *msg,
                    const struct sy_core_job *j)
{
    sy_log_info("jobs", "event=returned job=%llu name=%s bytes=%llu", (unsigned long long)j->id,
                j->name, (unsigned long long)msg->bytes);
    core->spilled_bytes += msg->bytes;
    return sy_sched_job_returned(core->sched, worker, msg->job);
}

static int left(struct sy_core *core, int worker, const struct sy_msg_job_left *msg,
                struct sy_core_job *j)
{
    SY_TRY(sy_supervisor_event(core->supervisor, worker, SY_WORKER_EVENT_JOB_ENDED));
    sy_core_job_longest(j, sy_supervisor_page(core->supervisor, worker));
    j->step = SY_MAX(j->step, msg->step);
    j->state = SY_JOB_QUEUED;
    j->worker = -1;
    sy_log_info("jobs", "event=left job=%llu name=%s worker=%d step=%llu why=\"%s\"",
                (unsigned long long)j->id, j->name, worker, (unsigned long long)j->step,
                j->opportunistic ? "for a guaranteed job" : "its slice has other cores");
    if (msg->status < 0)
        sy_log_warn("jobs", "event=left_without_snapshot job=%llu name=%s worker=%d status=%s%s",
                    (unsigned long long)j->id, j->name, worker, sy_status_name((int)msg->status),
                    j->opportunistic ? "" : " why=\"it keeps its memory, and its thread count\"");
    SY_TRY(sy_sched_job_left(core->sched, worker, msg->job, msg->status == SY_OK));
    struct sy_sched_job_view view;
    if (!sy_sched_job_view(core->sched, j->id, &view) || !view.spilled)
        sy_core_job_close_spill(j);
    return SY_OK;
}

static void note_wait(struct sy_core *core, sy_ns paused)
{
    sy_ns wait = paused > core->preempted_ns ? paused - core->preempted_ns : 0;
    struct sy_core_request *r = sy_core_find_request(core, core->preempting_request);
    core->waits[core->n_waits++ % SY_CORE_WAITS] = wait;
    sy_histogram_add(&core->counts.preempt_wait, wait);
    if (r)
        r->report.preempt_wait_ns = wait;
}

static int paused(struct sy_core *core, int worker, const struct sy_msg_job_paused *msg,
                  struct sy_core_job *j)
{
    struct sy_control_page *page = sy_supervisor_page(core->supervisor, worker);
    uint32_t epoch = atomic_load_explicit(&page->preempt_epoch, memory_order_relaxed);
    if (msg->epoch != epoch)
        return SY_OK; /* of an epoch that is over: training was resumed, or preempted once more, meanwhile */
    sy_ns at = SY_MIN(msg->paused_ns, sy_clock_now());
    SY_TRY(sy_supervisor_event(core->supervisor, worker, SY_WORKER_EVENT_JOB_PAUSED));
    note_wait(core, at);
    core->preempting_request = 0;
    sy_core_job_stands(core, j, at);
    return sy_sched_job_paused(core->sched, worker, msg->job);
}

static int ended(struct sy_core *core, int worker, const struct sy_msg_job_ended *msg,
                 struct sy_core_job *j)
{
    sy_core_job_look(
        core, j); /* the longest layer and such; a worker that has forgotten the job shows none */
    SY_TRY(sy_supervisor_event(core->supervisor, worker, SY_WORKER_EVENT_JOB_ENDED));
    SY_TRY(sy_sched_job_ended(core->sched, worker, msg->job));
    j->step = SY_MAX(j->step, msg->step);
    j->loss = msg->loss;
    if (msg->accuracy >= 0) {
        j->accuracy = msg->accuracy;
        j->accuracy_step = msg->step;
    }
    sy_core_job_longest(j, sy_supervisor_page(core->supervisor, worker));
    j->snapshot_step =
        SY_MAX(j->snapshot_step,
               atomic_load_explicit(&sy_supervisor_page(core->supervisor, worker)->snapshot_step,
                                    memory_order_relaxed));
    sy_core_end_job(core, j, (int)msg->status, msg->error);
    return SY_OK;
}

static uint64_t job_of(const struct sy_message *m)
{
    switch (m->id) {
    case SY_MSG_JOB_PREPARED:
        return m->job_prepared.job;
    case SY_MSG_JOB_STARTED:
        return m->job_started.job;
    case SY_MSG_JOB_PAUSED:
        return m->job_paused.job;
    case SY_MSG_JOB_TURN_OVER:
        return m->job_turn_over.job;
    case SY_MSG_JOB_SPILLED:
        return m->job_spilled.job;
    case SY_MSG_JOB_RETURNED:
        return m->job_returned.job;
    case SY_MSG_JOB_LEFT:
        return m->job_left.job;
    case SY_MSG_JOB_SNAPSHOT:
        return m->job_snapshot.job;
    default:
        return m->job_ended.job;
    }
}

int sy_core_job_message(struct sy_core *core, int worker, const struct sy_message *m)
{
    struct sy_core_job *j = sy_core_find_job(core, job_of(m));
    bool refused =
        j && j->state == SY_JOB_FAILED && m->id == SY_MSG_JOB_ENDED; /* JOB_REFUSE came first */
    if (!j || (j->worker != worker && !refused))
        return sy_error_set(SY_EPROTO, "%s of job %llu, which is not on worker %d",
                            sy_message_name((int)m->id), (unsigned long long)job_of(m), worker);
    switch (m->id) {
    case SY_MSG_JOB_PREPARED:
        return prepared(core, worker, &m->job_prepared, j);
    case SY_MSG_JOB_STARTED:
        return started(core, worker, &m->job_started, j);
    case SY_MSG_JOB_PAUSED:
        return paused(core, worker, &m->job_paused, j);
    case SY_MSG_JOB_TURN_OVER:
        return turn_over(core, worker, &m->job_turn_over, j);
    case SY_MSG_JOB_SPILLED:
        return spilled(core, worker, &m->job_spilled, j);
    case SY_MSG_JOB_RETURNED:
        return returned(core, worker, &m->job_returned, j);
    case SY_MSG_JOB_LEFT:
        return left(core, worker, &m->job_left, j);
    case SY_MSG_JOB_SNAPSHOT:
        j->snapshot_step = SY_MAX(j->snapshot_step, m->job_snapshot.step);
        return SY_OK;
    default:
        return ended(core, worker, &m->job_ended, j);
    }
}

/* Messages of training jobs: from workers, and the scheduler's decisions to them. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"
#include "runtime/core/core_jobs.h"

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
    if (j->pauses_first) { /* before it could be given a turn */
        j->pauses_first = false;
        j->suspended = sy_sched_job_suspend(core->sched, msg->job, true) == SY_OK;
    }
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
    sy_core_job_compute_end(core, j, sy_clock_now());
    sy_core_job_refresh(core, j);
    j->step = msg->step;
    /* Charges the time for which the device was held, including messages and wake-ups, not only compute time: otherwise jobs with short iterations, which
     * alternate more often, would get more of the device. */
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
        return SY_OK; /* for an epoch that has passed: training was resumed, or preempted again, meanwhile */
    sy_ns at = SY_MIN(msg->paused_ns, sy_clock_now());
    SY_TRY(sy_supervisor_event(core->supervisor, worker, SY_WORKER_EVENT_JOB_PAUSED));
    note_wait(core, at);
    core->preempting_request = 0;
    sy_core_job_compute_end(core, j, at);
    return sy_sched_job_paused(core->sched, worker, msg->job);
}

static int ended(struct sy_core *core, int worker, const struct sy_msg_job_ended *msg,
                 struct sy_core_job *j)
{
    sy_core_job_refresh(
        core,
        j); /* such as the longest layer; a worker that has forgotten the job does not report it */
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

/* ---- the scheduler's decisions, to workers ---------------------------------------------------- */

/* Opens the job's spill file. Without one it cannot be spilled: its worker refuses. */
static void open_spill(struct sy_core_job *j)
{
    if (!j->opportunistic || j->spill_file >= 0)
        return;
    int file = sy_shared_memory_file("switchyard-spill", j->persistent_bytes);
    if (file < 0)
        sy_log_warn("jobs", "event=no_spill_file job=%llu why=\"%s\"", (unsigned long long)j->id,
                    sy_error_text());
    j->spill_file = SY_MAX(file, -1);
}

static void send_start(struct sy_core *core, const struct sy_sched_action *a, struct sy_core_job *j)
{
    struct sy_message message = {.id = SY_MSG_JOB_START};
    message.job_start = (struct sy_msg_job_start){.job = a->job,
                                                  .persistent_offset = a->persistent_offset,
                                                  .ephemeral_offset = a->ephemeral_offset,
                                                  .in_memory = a->in_memory,
                                                  .spilled = a->spilled};
    open_spill(j);
    if (sy_supervisor_send(core->supervisor, a->worker, &message, &j->spill_file,
                           j->spill_file >= 0) == SY_OK)
        (void)sy_supervisor_event(core->supervisor, a->worker, SY_WORKER_EVENT_JOB_START);
}

/* Weights depend on the number of threads that computed them, so changes are logged. */
static void note_team(const struct sy_core *core, struct sy_core_job *j, int team)
{
    int threads = team ? team : (int)(core->units.n * core->units.each);
    if (j->team && j->team != threads)
        sy_log_info("jobs", "event=threads job=%llu name=%s step=%llu from=%d to=%d",
                    (unsigned long long)j->id, j->name, (unsigned long long)j->step, j->team,
                    threads);
    j->team = threads;
}

/* Connects to the job's `switchyard run`, at the path in its job text; -1: not reachable, which its worker reports. Never blocks: a full connection queue
 * counts as not reachable. */
static int connect_script(const struct sy_core_job *j)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    json_t *json = json_loads(j->text, 0, NULL);
    const char *path =
        json_string_value(json_object_get(json_object_get(json, "script"), "socket"));
    bool fits = path && (size_t)snprintf(address.sun_path, sizeof address.sun_path, "%s", path) <
                            sizeof address.sun_path;
    json_decref(json);
    int fd = fits ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    sy_log_warn("jobs", "event=no_script job=%llu name=%s why=\"%s\"", (unsigned long long)j->id,
                j->name, fits ? strerror(errno) : "its socket has no path, or too long a one");
    if (fd >= 0)
        close(fd);
    return -1;
}

static void send_prepare(struct sy_core *core, const struct sy_sched_action *a,
                         struct sy_core_job *j)
{
    struct sy_message message = {.id = SY_MSG_JOB_PREPARE};
    message.job_prepare = (struct sy_msg_job_prepare){.job = a->job,
                                                      .text = j->text,
                                                      .team = (uint64_t)a->team,
                                                      .cores = sy_core_slice_cores(core, a->slice)};
    note_team(core, j, a->team);
    int link = j->is_script ? connect_script(j) : -1;
    if (sy_supervisor_send(core->supervisor, a->worker, &message, &link, link >= 0) == SY_OK)
        (void)sy_supervisor_event(core->supervisor, a->worker, SY_WORKER_EVENT_JOB_PREPARE);
    if (link >= 0)
        close(link);
}

static void send_turn(struct sy_core *core, const struct sy_sched_action *a, struct sy_core_job *j)
{
    struct sy_message message = {.id = SY_MSG_JOB_TURN};
    message.job_turn = (struct sy_msg_job_turn){.job = a->job,
                                                .ephemeral_offset = a->ephemeral_offset,
                                                .cores = sy_core_slice_cores(core, a->slice)};
    atomic_store_explicit(&sy_supervisor_page(core->supervisor, a->worker)->turn_keeps, a->keeps,
                          memory_order_relaxed);
    if (sy_supervisor_send(core->supervisor, a->worker, &message, NULL, 0) != SY_OK)
        return; /* the worker's loss is handled elsewhere */
    (void)sy_supervisor_event(core->supervisor, a->worker, SY_WORKER_EVENT_JOB_TURN);
    /* Charged from the decision on, as the scheduler counts it: the hand-over is training time, not idle time. */
    sy_core_job_compute_begin(core, j, core->tick_ns);
    j->turn_began_ns = j->account.used_ns;
}

static void send_trip(struct sy_core *core, const struct sy_sched_action *a)
{
    struct sy_message spill = {.id = SY_MSG_JOB_SPILL, .job_spill = {.job = a->job}};
    struct sy_message back = {.id = SY_MSG_JOB_RETURN};
    back.job_return =
        (struct sy_msg_job_return){.job = a->job, .persistent_offset = a->persistent_offset};
    (void)sy_supervisor_send(core->supervisor, a->worker,
                             a->kind == SY_DO_JOB_SPILL ? &spill : &back, NULL, 0);
}

static void send_leave(struct sy_core *core, const struct sy_sched_action *a)
{
    struct sy_message message = {.id = SY_MSG_JOB_LEAVE, .job_leave = {.job = a->job}};
    (void)sy_supervisor_send(core->supervisor, a->worker, &message, NULL, 0);
}

static void send_stop(struct sy_core *core, const struct sy_sched_action *a,
                      const struct sy_core_job *j)
{
    struct sy_message message = {.id = SY_MSG_JOB_STOP};
    message.job_stop = (struct sy_msg_job_stop){.job = a->job, .evaluate = j->evaluate};
    (void)sy_supervisor_send(core->supervisor, a->worker, &message, NULL, 0);
}

/* The scheduler knows tenants by number only. */
static void refuse(struct sy_core *core, struct sy_core_job *j, const struct sy_sched_action *a)
{
    char why[sizeof j->error];
    snprintf(why, sizeof why, "tenant '%s': %s", core->tenants[j->tenant].name, a->why);
    sy_core_end_job(core, j, a->status, j->tenant > 0 ? why : a->why);
}

void sy_core_act_job(struct sy_core *core, const struct sy_sched_action *a)
{
    struct sy_core_job *j = sy_core_find_job(core, a->job);
    if (!j)
        return;
    switch (a->kind) {
    case SY_DO_JOB_PREPARE:
        j->state = SY_JOB_PREPARING;
        j->worker = a->worker;
        send_prepare(core, a, j);
        break;
    case SY_DO_JOB_START:
        j->state = SY_JOB_STARTING;
        send_start(core, a, j);
        break;
    case SY_DO_JOB_TURN:
        send_turn(core, a, j);
        break;
    case SY_DO_JOB_SPILL:
    case SY_DO_JOB_RETURN:
        send_trip(core, a);
        break;
    case SY_DO_JOB_LEAVE:
        send_leave(core, a);
        break;
    case SY_DO_JOB_YIELD:
        atomic_store_explicit(&sy_supervisor_page(core->supervisor, a->worker)->turn_keeps, 0,
                              memory_order_relaxed);
        break;
    case SY_DO_JOB_STOP:
        send_stop(core, a, j);
        break;
    default: /* SY_DO_JOB_REFUSE */
        refuse(core, j, a);
        break;
    }
}

#include "workers/process/worker_internal.h"
#include "workers/process/worker_script.h"

#include <stdio.h>
#include <unistd.h>

#include "runtime/base/log.h"

#define PAUSE_SLICE_NS (20 * SY_NS_PER_MS)

static void report_snapshot(void *worker, int status, uint64_t step, const char *path)
{
    struct sy_worker *w = worker;
    if (status < 0)
        return; /* the run has logged why; the last good snapshot stays */
    atomic_store_explicit(&w->page->snapshot_step, step, memory_order_relaxed);
    struct sy_message message = {.id = SY_MSG_JOB_SNAPSHOT};
    message.job_snapshot =
        (struct sy_msg_job_snapshot){.job = w->job_id, .step = step, .path = (char *)path};
    SY_CLEANUP(sy_worker_send(w, &message));
}

static int prepare(struct sy_worker *w, const struct sy_msg_job_prepare *msg,
                   struct sy_train_needs *needs)
{
    if (w->job || w->script)
        return sy_error_set(SY_EBUSY, "worker %d has job %llu already", w->index,
                            (unsigned long long)w->job_id);
    struct sy_train_callbacks callbacks = {.snapshot_done = report_snapshot, .ctx = w};
    SY_TRY(sy_train_run_create(msg->text, w->trainer, &callbacks, &w->job));
    w->job_id = msg->job;
    w->job_started = false;
    w->announced_epoch = 0;
    /* Clears the previous job's values, also if this one is refused before it starts. */
    sy_page_set_longest(w->page, 0, "");
    atomic_store_explicit(&w->page->snapshot_step, 0, memory_order_relaxed);
    atomic_store_explicit(&w->page->train_busy_ns, 0, memory_order_relaxed);
    sy_train_run_needs(w->job, needs);
    if (needs->ranks == 1)
        return SY_OK;
    sy_worker_job_forget(w);
    return sy_error_set(SY_EUNSUPPORTED,
                        "a job of %llu ranks is processes of their own: 'switchyard train "
                        "JOB.json' starts them, and this server's requests preempt them",
                        (unsigned long long)needs->ranks);
}

int sy_worker_job_prepare(struct sy_worker *w, const struct sy_msg_job_prepare *msg, int *file)
{
    if (sy_script_job_is(msg->text))
        return sy_worker_script_prepare(w, msg, file);
    struct sy_train_needs needs = {0};
    int status = sy_worker_set_cores(w, msg->team, &msg->cores);
    w->job_team = msg->team;
    if (status == SY_OK)
        status = prepare(w, msg, &needs);
    struct sy_message answer = {.id = SY_MSG_JOB_PREPARED};
    answer.job_prepared = (struct sy_msg_job_prepared){
        .job = msg->job,
        .status = status,
        .error = status < 0 ? (char *)sy_error_text() : "",
        .persistent_bytes = needs.persistent_bytes,
        .ephemeral_bytes = needs.ephemeral_bytes,
        .total_steps = needs.total_steps,
    };
    return sy_worker_send(w, &answer);
}

void sy_worker_job_forget(struct sy_worker *w)
{
    sy_train_run_destroy(w->job);
    w->job = NULL;
    w->job_started = w->has_turn = w->winding_up = w->leaving = w->stop_after_return = false;
    sy_spill_destroy(w->spill);
    w->spill = NULL;
    if (w->spill_file >= 0)
        close(w->spill_file);
    w->spill_file = -1;
    atomic_store_explicit(&w->page->job, 0, memory_order_relaxed);
    atomic_store_explicit(&w->page->train_phase, SY_PHASE_NONE, memory_order_release);
}

/* Its state is in memory, whatever became of the snapshot. */
static int leave(struct sy_worker *w, int status)
{
    struct sy_message left = {.id = SY_MSG_JOB_LEFT};
    left.job_left = (struct sy_msg_job_left){
        .job = w->job_id, .step = sy_train_run_step(w->job), .status = status};
    if (status < 0)
        sy_log_warn("worker", "event=left_without_snapshot job=%llu why=\"%s\"",
                    (unsigned long long)w->job_id, sy_error_text());
    sy_worker_job_forget(w);
    return sy_worker_send(w, &left);
}

static int end_job(struct sy_worker *w, int status)
{
    if (status == SY_EDEVICE) { /* W5: the job is resumed in another worker, as after a death */
        w->device_lost = true;
        return status;
    }
    if (w->leaving)
        return leave(w, status);
    struct sy_message ended = {.id = SY_MSG_JOB_ENDED};
    ended.job_ended = (struct sy_msg_job_ended){
        .job = w->job_id,
        .status = status,
        .error = status < 0 ? (char *)sy_error_text() : "",
        .step = sy_train_run_step(w->job),
        .loss = sy_train_run_loss(w->job),
        .accuracy = sy_train_run_accuracy(w->job),
    };
    int sent = sy_worker_send(w, &ended);
    sy_worker_job_forget(w);
    return sent;
}

/* The trainer's view of an offset: the host's pointer where it computes on the host, else the device's address. */
static void *view(const struct sy_worker *w, uint64_t offset)
{
    sy_device_address address = sy_pool_address(w->pool, offset);
    return w->trainer->settle ? (void *)(uintptr_t)address.value
                              : sy_device_host_pointer(w->device, address);
}

static int make_spill(struct sy_worker *w)
{
    if (w->spill)
        return SY_OK;
    if (w->spill_file < 0)
        return sy_error_set(SY_ENOMEM_HOST, "job %llu was given no host memory to be spilled to",
                            (unsigned long long)w->job_id);
    return sy_spill_create(w->device, w->pool, w->board, w->index, w->spill_file, &w->spill);
}

/* Restores into the pool what another worker spilled. Nothing computes meanwhile, as while a snapshot is read. */
static int fetch_spilled(struct sy_worker *w, uint64_t bytes)
{
    bool done = false;
    SY_TRY(make_spill(w));
    SY_TRY(sy_spill_adopt(w->spill, bytes));
    sy_spill_begin_restore(w->spill, w->persistent_offset);
    while (!done) {
        SY_TRY(sy_spill_step(w->spill, &done));
        sy_worker_beat(w);
    }
    return SY_OK;
}

static int bind_job(struct sy_worker *w, const struct sy_msg_job_start *msg, int *file)
{
    if (!w->job || w->job_id != msg->job || w->job_started)
        return sy_error_set(SY_EPROTO, "JOB_START of job %llu, which is not prepared here",
                            (unsigned long long)msg->job);
    struct sy_train_needs needs;
    sy_train_run_needs(w->job, &needs);
    uint64_t size = sy_pool_size(w->pool);
    if (msg->persistent_offset > size || needs.persistent_bytes > size - msg->persistent_offset ||
        msg->ephemeral_offset > size || needs.ephemeral_bytes > size - msg->ephemeral_offset)
        return sy_error_set(SY_EPROTO, "JOB_START of job %llu: memory outside the pool",
                            (unsigned long long)msg->job);
    w->persistent_offset = msg->persistent_offset;
    w->spill_file = *file;
    *file = -1;
    if (msg->spilled)
        SY_TRY(fetch_spilled(w, needs.persistent_bytes));
    atomic_store_explicit(&w->page->job, msg->job, memory_order_release);
    void *persistent = view(w, msg->persistent_offset), *ephemeral = view(w, msg->ephemeral_offset);
    return sy_train_run_start(w->job, persistent, ephemeral,
                              msg->in_memory != 0 || msg->spilled != 0, w->page);
}

/* A job that may be spilled gets its file from the start. If there is no room, it is tried again when it is spilled. */
static void prepare_spill(struct sy_worker *w)
{
    struct sy_train_needs needs;
    sy_train_run_needs(w->job, &needs);
    if (!needs.opportunistic || sy_device_get_properties(w->device)->unified)
        return;
    int status = make_spill(w);
    if (status == SY_OK)
        status = sy_spill_prepare(w->spill, needs.persistent_bytes);
    if (status < 0)
        sy_log_warn("worker", "event=spill_not_prepared job=%llu why=\"%s\"",
                    (unsigned long long)w->job_id, sy_error_text());
}

int sy_worker_job_start(struct sy_worker *w, const struct sy_msg_job_start *msg, int *file)
{
    if (w->script)
        return sy_worker_script_start(w, msg);
    int status = bind_job(w, msg, file);
    if (status < 0 && w->job && w->job_id == msg->job)
        return end_job(w, status);
    SY_TRY(status);
    prepare_spill(w);
    w->job_started = true;
    struct sy_message started = {.id = SY_MSG_JOB_STARTED};
    started.job_started =
        (struct sy_msg_job_started){.job = msg->job, .step = sy_train_run_step(w->job)};
    return sy_worker_send(w, &started);
}

/* A turn for a job that has ended meanwhile, or is about to without one, is dropped: JOB_ENDED is on the way. */
int sy_worker_job_turn(struct sy_worker *w, const struct sy_msg_job_turn *msg)
{
    if (w->script)
        return sy_worker_script_turn(w, msg);
    if (!w->job || w->job_id != msg->job || w->winding_up)
        return SY_OK;
    struct sy_train_needs needs;
    sy_train_run_needs(w->job, &needs);
    uint64_t size = sy_pool_size(w->pool);
    if (!w->job_started || w->has_turn || msg->ephemeral_offset > size ||
        needs.ephemeral_bytes > size - msg->ephemeral_offset)
        return sy_error_set(SY_EPROTO, "JOB_TURN of job %llu out of turn, or outside the pool",
                            (unsigned long long)msg->job);
    SY_TRY(sy_worker_set_cores(w, w->job_team, &msg->cores));
    sy_train_run_set_ephemeral(w->job, view(w, msg->ephemeral_offset));
    w->has_turn = true;
    w->turn_busy_ns = 0;
    return SY_OK;
}

static int send_spilled(struct sy_worker *w, int result)
{
    struct sy_train_needs needs;
    sy_train_run_needs(w->job, &needs);
    struct sy_message spilled = {.id = SY_MSG_JOB_SPILLED};
    spilled.job_spilled =
        (struct sy_msg_job_spilled){.job = w->job_id,
                                    .status = result,
                                    .error = result < 0 ? (char *)sy_error_text() : "",
                                    .bytes = result < 0 ? 0 : needs.persistent_bytes};
    return sy_worker_send(w, &spilled);
}

/* The last snapshot is written from the spilled state in host memory; its place in the pool has been reused. */
static void read_spilled(struct sy_worker *w)
{
    if (sy_spill_holds(w->spill) && sy_train_run_is_between_iterations(w->job))
        sy_train_run_read_copy(w->job, sy_spill_host(w->spill));
}

/* An evaluation has to have it back first. */
static int stop_job(struct sy_worker *w, bool evaluate)
{
    bool away = sy_spill_is_moving(w->spill) || sy_spill_is_complete(w->spill);
    bool in_place = sy_spill_is_complete(w->spill) && !evaluate;
    if (away && !in_place) {
        w->stop_after_return = true;
        w->evaluate_after_return = evaluate;
        return SY_OK;
    }
    read_spilled(w);
    sy_train_run_stop(w->job, evaluate);
    w->winding_up = !w->has_turn && !evaluate;
    return SY_OK;
}

int sy_worker_job_spill(struct sy_worker *w, const struct sy_msg_job_spill *msg)
{
    if (w->script)
        return sy_worker_script_spill(w, msg);
    struct sy_train_needs needs;
    if (!w->job || w->job_id != msg->job || w->winding_up)
        return SY_OK; /* it has ended, or is about to; JOB_ENDED is on the way */
    if (!w->job_started || w->has_turn || sy_spill_is_moving(w->spill) ||
        sy_spill_is_complete(w->spill))
        return sy_error_set(SY_EPROTO, "JOB_SPILL of job %llu out of turn",
                            (unsigned long long)msg->job);
    sy_train_run_needs(w->job, &needs);
    int status = make_spill(w);
    if (status == SY_OK)
        status = sy_spill_begin_spill(w->spill, w->persistent_offset, needs.persistent_bytes);
    return status < 0 ? send_spilled(w, status) : SY_OK;
}

int sy_worker_job_return(struct sy_worker *w, const struct sy_msg_job_return *msg)
{
    if (w->script)
        return sy_worker_script_return(w, msg);
    struct sy_train_needs needs;
    uint64_t size = sy_pool_size(w->pool);
    if (!w->job || w->job_id != msg->job || w->winding_up)
        return SY_OK;
    sy_train_run_needs(w->job, &needs);
    if (!sy_spill_is_complete(w->spill) || msg->persistent_offset > size ||
        needs.persistent_bytes > size - msg->persistent_offset)
        return sy_error_set(SY_EPROTO, "JOB_RETURN of job %llu out of turn, or outside the pool",
                            (unsigned long long)msg->job);
    w->persistent_offset = msg->persistent_offset;
    sy_spill_begin_restore(w->spill, msg->persistent_offset);
    return SY_OK;
}

int sy_worker_job_stop(struct sy_worker *w, const struct sy_msg_job_stop *msg)
{
    if (w->script)
        return sy_worker_script_stop(w, msg);
    if (!w->job || w->job_id != msg->job || w->leaving)
        return SY_OK; /* it has ended, or leaves; that is on the way */
    if (!w->job_started)
        return end_job(w, sy_error_set(SY_ECANCELED, "stopped before it started"));
    return stop_job(w, msg->evaluate != 0);
}

int sy_worker_job_leave(struct sy_worker *w, const struct sy_msg_job_leave *msg)
{
    if (w->script)
        return sy_worker_script_leave(w, msg);
    if (!w->job || w->job_id != msg->job || w->winding_up)
        return SY_OK; /* it has ended, or is about to; JOB_ENDED is on the way */
    if (w->has_turn || sy_spill_is_moving(w->spill))
        return sy_error_set(SY_EPROTO, "JOB_LEAVE of job %llu out of turn",
                            (unsigned long long)msg->job);
    if (!w->job_started)
        return leave(w, SY_OK);
    read_spilled(w);
    sy_train_run_stop(w->job, 0);
    w->winding_up = w->leaving = true;
    return SY_OK;
}

static int pause_job(struct sy_worker *w, uint32_t epoch)
{
    if (w->announced_epoch != epoch) {
        int settled =
            sy_train_run_synchronize(w->job); /* the device is free when it is said to be */
        if (settled < 0)
            return end_job(w, settled);
        SY_TRY(sy_worker_announce_pause(w, epoch));
    }
    sy_futex_wait(&w->page->preempt_epoch, epoch, PAUSE_SLICE_NS);
    sy_worker_beat(w);
    return SY_OK;
}

/* The next step; valid until it has run. */
struct stretch {
    const char *words, *node;
    uint64_t step;
};

static struct stretch next_stretch(const struct sy_worker *w)
{
    struct stretch s = {sy_train_run_next_words(w->job), NULL, sy_train_run_step(w->job)};
    (void)sy_train_run_next(w->job, &s.node);
    return s;
}

static void note_stretch(struct sy_worker *w, const struct stretch *s, sy_ns took)
{
    char what[SY_LONGEST_BYTES];
    if (took <= atomic_load_explicit(&w->page->longest_layer_ns, memory_order_relaxed))
        return;
    snprintf(what, sizeof what, "%s%s%.40s, step %llu", s->words, s->node ? " " : "",
             s->node ? s->node : "", (unsigned long long)s->step + 1);
    sy_page_set_longest(w->page, took, what);
}

static int step_job(struct sy_worker *w)
{
    enum sy_train_state state = SY_TRAIN_RUNNING;
    struct stretch stretch = next_stretch(w);
    sy_ns start = sy_clock_now();
    int status = sy_train_run_advance(w->job, &state);
    sy_ns took = sy_clock_now() - start;
    note_stretch(w, &stretch, took);
    sy_worker_beat(w);
    w->turn_busy_ns += took;
    return status < 0 || state == SY_TRAIN_FINISHED ? end_job(w, status) : SY_OK;
}

/* The device, and the memory of the turn, are free when that is said. */
static int end_turn(struct sy_worker *w)
{
    sy_ns start = sy_clock_now();
    int settled = sy_train_run_synchronize(w->job);
    w->turn_busy_ns += sy_clock_now() - start;
    if (settled < 0)
        return end_job(w, settled);
    struct sy_message over = {.id = SY_MSG_JOB_TURN_OVER};
    over.job_turn_over = (struct sy_msg_job_turn_over){
        .job = w->job_id, .step = sy_train_run_step(w->job), .busy_ns = w->turn_busy_ns};
    w->has_turn = false;
    return sy_worker_send(w, &over);
}

bool sy_worker_job_can_advance(const struct sy_worker *w)
{
    return w->script || (w->job && w->job_started &&
                         (w->has_turn || w->winding_up || sy_spill_is_moving(w->spill)));
}

static int stop_after_trip(struct sy_worker *w)
{
    return w->stop_after_return ? stop_job(w, w->evaluate_after_return) : SY_OK;
}

/* One chunk. */
static int travel(struct sy_worker *w)
{
    struct sy_train_needs needs;
    bool done, out = sy_spill_is_outbound(w->spill);
    int status = sy_spill_step(w->spill, &done);
    sy_worker_beat(w);
    if (status < 0 && out) {
        SY_TRY(send_spilled(w, status));
        return stop_after_trip(w);
    }
    if (status < 0)
        return end_job(w, status);
    if (!done)
        return SY_OK;
    if (out) {
        SY_TRY(send_spilled(w, SY_OK));
        return stop_after_trip(w);
    }
    sy_train_run_needs(w->job, &needs);
    sy_train_run_set_persistent(w->job, view(w, w->persistent_offset));
    struct sy_message back = {.id = SY_MSG_JOB_RETURNED};
    back.job_returned =
        (struct sy_msg_job_returned){.job = w->job_id, .bytes = needs.persistent_bytes};
    SY_TRY(sy_worker_send(w, &back));
    return stop_after_trip(w);
}

int sy_worker_job_advance(struct sy_worker *w)
{
    if (w->script)
        return sy_worker_script_advance(w);
    uint32_t epoch = atomic_load_explicit(&w->page->preempt_epoch, memory_order_relaxed);
    if (w->has_turn && epoch & 1)
        return pause_job(w, epoch);
    if (sy_spill_is_moving(w->spill))
        return travel(w);
    SY_TRY(step_job(w));
    bool is_over = w->job && w->has_turn && sy_train_run_is_between_iterations(w->job) &&
                   !atomic_load_explicit(&w->page->turn_keeps, memory_order_relaxed);
    return is_over ? end_turn(w) : SY_OK;
}

int sy_worker_job_finish_iteration(struct sy_worker *w, sy_ns deadline)
{
    if (w->script)
        return sy_worker_script_detach(w);
    if (!w->job_started)
        return SY_OK;
    read_spilled(w);
    sy_train_run_stop(w->job, 0);
    while (w->job && sy_clock_now() < deadline)
        SY_TRY(step_job(w));
    if (w->job)
        sy_log_warn("worker",
                    "event=job_cut_off job=%llu why=\"no time left to finish the iteration\"",
                    (unsigned long long)w->job_id);
    return SY_OK;
}

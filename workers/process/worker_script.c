#include "workers/process/worker_script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "workers/torch/script_page.h"

#define LEAST_BYTES   4096 /* a job without memory is unknown to the scheduler */
#define IDLE_SLICE_NS (10 * SY_NS_PER_MS)
#define RUNNING_SLICE_NS \
    (4 * SY_NS_PER_MS) /* the longest that a message of the runtime, or the script's end, waits */
#define PAUSED_SLICE_NS (4 * SY_NS_PER_MS)

enum trip {
    TRIP_NONE,
    TRIP_OUT,
    TRIP_BACK,
    TRIP_START /* back, for a worker that starts with it */
};

struct sy_worker_script {
    struct sy_script_job *job;
    uint64_t step, turn_step; /* step never falls, whatever the script reports */
    sy_ns turn_began_ns, turn_open_ns;
    bool ends_turn, stop_wanted;
    enum trip trip; /* its tensors travel */
};

void sy_worker_script_forget(struct sy_worker *w)
{
    if (!w->script)
        return;
    sy_script_job_destroy(w->script->job);
    free(w->script);
    w->script = NULL;
    w->job_started = w->has_turn = false;
    atomic_store_explicit(&w->page->job, 0, memory_order_relaxed);
    atomic_store_explicit(&w->page->train_total_steps, 0, memory_order_relaxed);
    atomic_store_explicit(&w->page->train_phase, SY_PHASE_NONE, memory_order_release);
}

static bool is_mine(const struct sy_worker *w, uint64_t job)
{
    return w->script && w->job_id == job;
}

/* ---- progress --------------------------------------------------------------------------------- */

static void show_progress(struct sy_worker *w)
{
    struct sy_script_progress p;
    struct sy_control_page *page = w->page;
    uint64_t bits, longest = atomic_load_explicit(&page->longest_layer_ns, memory_order_relaxed);
    sy_script_job_progress(w->script->job, &p);
    w->script->step = SY_MAX(w->script->step, p.step);
    memcpy(&bits, &p.loss, sizeof bits);
    atomic_store_explicit(&page->train_step, w->script->step, memory_order_relaxed);
    atomic_store_explicit(&page->train_loss_bits, bits, memory_order_relaxed);
    atomic_store_explicit(&page->train_busy_ns, p.open_ns, memory_order_relaxed);
    atomic_store_explicit(&page->train_total_steps, p.total_steps, memory_order_relaxed);
    if (p.longest_close_ns > longest)
        sy_page_set_longest(page, p.longest_close_ns,
                            p.hook == SY_SCRIPT_HOOK_OPERATORS
                                ? "an operator of the script"
                                : "the script, until it was stopped");
}

static double loss_of(const struct sy_worker *w)
{
    struct sy_script_progress p;
    sy_script_job_progress(w->script->job, &p);
    return p.loss;
}

/* ---- its ends --------------------------------------------------------------------------------- */

static int send_ended(struct sy_worker *w, int status)
{
    char why[512];
    snprintf(why, sizeof why, "%s", status < 0 ? sy_error_text() : "");
    show_progress(w);
    struct sy_message ended = {.id = SY_MSG_JOB_ENDED};
    ended.job_ended = (struct sy_msg_job_ended){.job = w->job_id,
                                                .status = status,
                                                .error = why,
                                                .step = w->script->step,
                                                .loss = loss_of(w),
                                                .accuracy = -1};
    int sent = sy_worker_send(w, &ended);
    sy_worker_script_forget(w);
    return sent;
}

static int end_over(struct sy_worker *w)
{
    int status = sy_script_job_result(w->script->job);
    if (w->script->stop_wanted && !sy_script_job_is_given_up(w->script->job))
        status = sy_error_set(SY_ECANCELED, "canceled");
    return send_ended(w, status);
}

int sy_worker_script_stop(struct sy_worker *w, const struct sy_msg_job_stop *msg)
{
    if (!is_mine(w, msg->job))
        return SY_OK;
    w->script->stop_wanted = true;
    w->script->trip = TRIP_NONE; /* they come back, for its checkpoint */
    sy_script_job_terminate(w->script->job);
    if (!w->job_started) /* its run waits, and has started nothing */
        return send_ended(w, sy_error_set(SY_ECANCELED, "stopped before it started"));
    return SY_OK;
}

int sy_worker_script_detach(struct sy_worker *w)
{
    sy_script_job_detach(w->script->job);
    return w->job_started ? send_ended(w, sy_error_set(SY_ECANCELED, "the server stops; the script "
                                                                     "continues"))
                          : SY_OK;
}

int sy_worker_script_leave(struct sy_worker *w, const struct sy_msg_job_leave *msg)
{
    if (!is_mine(w, msg->job) || w->script->stop_wanted)
        return SY_OK;
    if (w->has_turn || w->script->trip)
        return sy_error_set(SY_EPROTO, "JOB_LEAVE of job %llu out of turn",
                            (unsigned long long)msg->job);
    struct sy_message left = {.id = SY_MSG_JOB_LEFT};
    left.job_left = (struct sy_msg_job_left){.job = w->job_id, .step = w->script->step};
    sy_worker_script_forget(w); /* the gate is closed, and stays so until another worker comes */
    return sy_worker_send(w, &left);
}

/* ---- prepare, start, turn --------------------------------------------------------------------- */

/* *link is taken over. */
static int create(struct sy_worker *w, const struct sy_msg_job_prepare *msg, int *link)
{
    int own = *link;
    if (w->job || w->script)
        return sy_error_set(SY_EBUSY, "worker %d has job %llu already", w->index,
                            (unsigned long long)w->job_id);
    struct sy_worker_script *script = calloc(1, sizeof *script);
    SY_TRY_ALLOC(script, "no memory for a script's job");
    *link = -1;
    int status = sy_script_job_create(msg->text, own, &script->job);
    if (status < 0) {
        free(script);
        return status;
    }
    w->script = script;
    w->job_id = msg->job;
    w->job_started = w->has_turn = false;
    w->announced_epoch = 0;
    sy_page_set_longest(w->page, 0, "");
    atomic_store_explicit(&w->page->snapshot_step, 0, memory_order_relaxed);
    atomic_store_explicit(&w->page->train_accuracy_step, 0, memory_order_relaxed);
    return SY_OK;
}

int sy_worker_script_prepare(struct sy_worker *w, const struct sy_msg_job_prepare *msg, int *link)
{
    struct sy_script_needs needs = {0};
    int status = create(w, msg, link);
    if (status == SY_OK)
        sy_script_job_needs(w->script->job, &needs);
    uint64_t leased = sy_device_get_properties(w->device)->unified ? needs.memory_bytes
                                                                   : needs.device_memory_bytes;
    struct sy_message answer = {.id = SY_MSG_JOB_PREPARED};
    answer.job_prepared =
        (struct sy_msg_job_prepared){.job = msg->job,
                                     .status = status,
                                     .error = status < 0 ? (char *)sy_error_text() : "",
                                     .persistent_bytes = SY_MAX(leased, LEAST_BYTES),
                                     .ephemeral_bytes = LEAST_BYTES,
                                     .total_steps = needs.total_steps};
    return sy_worker_send(w, &answer);
}

static int send_started(struct sy_worker *w)
{
    show_progress(w);
    /* The process is its own state: whatever becomes of this worker, the next one finds it. */
    atomic_store_explicit(&w->page->train_phase, SY_PHASE_GRADIENT, memory_order_release);
    atomic_store_explicit(&w->page->job, w->job_id, memory_order_release);
    w->job_started = true;
    struct sy_message started = {.id = SY_MSG_JOB_STARTED};
    started.job_started = (struct sy_msg_job_started){.job = w->job_id, .step = w->script->step};
    return sy_worker_send(w, &started);
}

int sy_worker_script_start(struct sy_worker *w, const struct sy_msg_job_start *msg)
{
    if (!is_mine(w, msg->job) || w->job_started)
        return sy_error_set(SY_EPROTO, "JOB_START of job %llu, which is not prepared here",
                            (unsigned long long)msg->job);
    sy_script_job_unspill(w->script->job); /* an earlier worker may have left it spilled */
    if (sy_script_job_place(w->script->job) == SY_SCRIPT_IN)
        return send_started(w);
    w->script->trip = TRIP_START;
    return SY_OK;
}

int sy_worker_script_turn(struct sy_worker *w, const struct sy_msg_job_turn *msg)
{
    struct sy_script_progress p;
    if (!is_mine(w, msg->job) || w->script->stop_wanted)
        return SY_OK;
    if (!w->job_started || w->has_turn)
        return sy_error_set(SY_EPROTO, "JOB_TURN of job %llu out of turn",
                            (unsigned long long)msg->job);
    sy_script_job_progress(w->script->job, &p);
    w->has_turn = true;
    w->script->ends_turn = false;
    w->script->turn_step = w->script->step;
    w->script->turn_began_ns = sy_clock_now();
    w->script->turn_open_ns = p.open_ns;
    return SY_OK;
}

/* ---- out and back ----------------------------------------------------------------------------- */

static int send_spilled(struct sy_worker *w, int status)
{
    struct sy_message spilled = {.id = SY_MSG_JOB_SPILLED};
    spilled.job_spilled = (struct sy_msg_job_spilled){
        .job = w->job_id,
        .status = status,
        .bytes = status < 0 ? 0 : sy_script_job_spilled_bytes(w->script->job),
        .error = status < 0 ? (char *)sy_error_text() : ""};
    return sy_worker_send(w, &spilled);
}

static int send_returned(struct sy_worker *w)
{
    struct sy_message back = {.id = SY_MSG_JOB_RETURNED};
    back.job_returned = (struct sy_msg_job_returned){
        .job = w->job_id, .bytes = sy_script_job_spilled_bytes(w->script->job)};
    return sy_worker_send(w, &back);
}

int sy_worker_script_spill(struct sy_worker *w, const struct sy_msg_job_spill *msg)
{
    if (!is_mine(w, msg->job) || w->script->stop_wanted)
        return SY_OK;
    if (!w->job_started || w->has_turn || w->script->trip)
        return sy_error_set(SY_EPROTO, "JOB_SPILL of job %llu out of turn",
                            (unsigned long long)msg->job);
    int status = sy_script_job_spill(w->script->job);
    if (status < 0)
        return send_spilled(w, status);
    w->script->trip = TRIP_OUT;
    return SY_OK;
}

int sy_worker_script_return(struct sy_worker *w, const struct sy_msg_job_return *msg)
{
    if (!is_mine(w, msg->job) || w->script->stop_wanted)
        return SY_OK;
    if (!w->job_started || w->has_turn || w->script->trip)
        return sy_error_set(SY_EPROTO, "JOB_RETURN of job %llu out of turn",
                            (unsigned long long)msg->job);
    sy_script_job_unspill(w->script->job);
    w->script->trip = TRIP_BACK;
    return SY_OK;
}

/* A script that does not come back can do nothing any more, and would keep others from travelling. */
static int end_lost(struct sy_worker *w)
{
    char why[256];
    snprintf(why, sizeof why, "%s", sy_error_text());
    sy_script_job_terminate(w->script->job);
    return send_ended(w, sy_error_set(SY_EPEER, "%s", why));
}

static int arrive(struct sy_worker *w, enum sy_script_place place)
{
    enum trip trip = w->script->trip;
    w->script->trip = TRIP_NONE;
    if (trip == TRIP_OUT && place != SY_SCRIPT_OUT) {
        if (place == SY_SCRIPT_IN) /* `run` took it back for a signal, or a new process did */
            (void)sy_error_set(SY_EPEER, "the spill was called off: the script got a signal, or "
                                         "another process took its place");
        int sent = send_spilled(w, SY_EIO);
        sy_script_job_unspill(w->script->job);
        return sent;
    }
    if (place == SY_SCRIPT_FAILED)
        return end_lost(w);
    return trip == TRIP_OUT    ? send_spilled(w, SY_OK)
           : trip == TRIP_BACK ? send_returned(w)
                               : send_started(w);
}

static int travel(struct sy_worker *w)
{
    if (sy_script_job_look(w->script->job, SY_NS_PER_MS) == SY_SCRIPT_OVER)
        return end_over(w);
    enum sy_script_place place = sy_script_job_place(w->script->job);
    return place == SY_SCRIPT_MOVING ? SY_OK : arrive(w, place);
}

/* ---- between open and closed ------------------------------------------------------------------ */

static int end_turn(struct sy_worker *w)
{
    struct sy_script_progress p;
    sy_script_job_progress(w->script->job, &p);
    show_progress(w);
    struct sy_message over = {.id = SY_MSG_JOB_TURN_OVER};
    over.job_turn_over = (struct sy_msg_job_turn_over){
        .job = w->job_id, .step = w->script->step, .busy_ns = p.open_ns - w->script->turn_open_ns};
    w->has_turn = w->script->ends_turn = false;
    return sy_worker_send(w, &over);
}

static bool turn_is_over(struct sy_worker *w)
{
    const struct sy_worker_script *s = w->script;
    if (atomic_load_explicit(&w->page->turn_keeps, memory_order_relaxed))
        return false;
    show_progress(w);
    return s->step > s->turn_step || sy_clock_now() - s->turn_began_ns >= SY_SCRIPT_TURN_NS;
}

static int stand(struct sy_worker *w, uint32_t epoch)
{
    sy_script_job_close(w->script->job);
    enum sy_script_state state =
        sy_script_job_look(w->script->job, w->has_turn ? SY_NS_PER_MS : IDLE_SLICE_NS);
    if (state == SY_SCRIPT_OVER)
        return end_over(w);
    if (state != SY_SCRIPT_STILL || !w->has_turn)
        return SY_OK;
    if (w->script->ends_turn)
        return end_turn(w);
    SY_TRY(sy_worker_announce_pause(w, epoch));
    sy_futex_wait(&w->page->preempt_epoch, epoch, PAUSED_SLICE_NS);
    return SY_OK;
}

static int run(struct sy_worker *w, uint32_t epoch)
{
    sy_script_job_open(w->script->job);
    if (sy_script_job_look(w->script->job, 0) == SY_SCRIPT_OVER)
        return end_over(w);
    w->script->ends_turn = w->has_turn && turn_is_over(w);
    if (!w->script->ends_turn)
        sy_futex_wait(&w->page->preempt_epoch, epoch, RUNNING_SLICE_NS);
    show_progress(w);
    return SY_OK;
}

int sy_worker_script_advance(struct sy_worker *w)
{
    uint32_t epoch = atomic_load_explicit(&w->page->preempt_epoch, memory_order_relaxed);
    bool may_run = w->script->stop_wanted || (w->has_turn && !(epoch & 1) && !w->script->ends_turn);
    sy_worker_beat(w);
    if (w->script->trip)
        return travel(w);
    return may_run ? run(w, epoch) : stand(w, epoch);
}

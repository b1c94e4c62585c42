/* Messages from a worker to the runtime, and its heartbeat. */
#include "workers/process/worker_internal.h"

void sy_worker_beat(void *worker)
{
    struct sy_worker *w = worker;
    atomic_store_explicit(&w->page->heartbeat_ns, sy_clock_now(), memory_order_relaxed);
}

int sy_worker_send(struct sy_worker *w, const struct sy_message *message)
{
    return sy_post_send(&w->post, w->fd, message, NULL, 0);
}

int sy_worker_announce_pause(struct sy_worker *w, uint32_t epoch)
{
    if (w->announced_epoch == epoch)
        return SY_OK;
    sy_ns now = sy_clock_now();
    atomic_store_explicit(&w->page->paused_ns, now, memory_order_relaxed);
    atomic_store_explicit(&w->page->paused_epoch, epoch, memory_order_release);
    struct sy_message paused = {.id = SY_MSG_JOB_PAUSED};
    paused.job_paused =
        (struct sy_msg_job_paused){.job = w->job_id, .epoch = epoch, .paused_ns = now};
    w->announced_epoch = epoch;
    return sy_worker_send(w, &paused);
}

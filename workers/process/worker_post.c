/* What a worker says unasked: that it lives, and messages to the runtime. */
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

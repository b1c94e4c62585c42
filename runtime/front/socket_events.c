#include "runtime/front/socket_events.h"

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

int sy_socket_events_init(struct sy_socket_events *e, struct event_base *base, int fd,
                          const struct sy_socket_callbacks *callbacks, void *ctx)
{
    e->read = event_new(base, fd, EV_READ | EV_PERSIST, callbacks->readable, ctx);
    e->write = event_new(base, fd, EV_WRITE | EV_PERSIST, callbacks->writable, ctx);
    e->closed = event_new(base, fd, EV_CLOSED, callbacks->closed, ctx);
    if (!e->read || !e->write || !e->closed || event_add(e->read, NULL))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a connection's events");
    e->reading = true;
    return SY_OK;
}

void sy_socket_events_stop(struct sy_socket_events *e)
{
    struct event *events[] = {e->read, e->write, e->closed, e->again};
    for (size_t i = 0; i < SY_ARRAY_LEN(events); i++)
        if (events[i])
            event_del(events[i]);
}

void sy_socket_events_finish(struct sy_socket_events *e)
{
    struct event *events[] = {e->read, e->write, e->closed, e->again};
    for (size_t i = 0; i < SY_ARRAY_LEN(events); i++)
        if (events[i])
            event_free(events[i]);
}

void sy_socket_read(struct sy_socket_events *e, bool wanted)
{
    e->reading = wanted;
    event_del(wanted ? e->closed : e->read);
    event_add(wanted ? e->read : e->closed, NULL);
}

void sy_socket_write(struct sy_socket_events *e, bool wanted)
{
    if (wanted == e->writing)
        return;
    e->writing = wanted;
    if (wanted)
        event_add(e->write, NULL);
    else
        event_del(e->write);
}

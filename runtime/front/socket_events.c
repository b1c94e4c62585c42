#include "runtime/front/socket_events.h"

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/closed_watch.h"

int sy_socket_events_init(struct sy_socket_events *e, struct event_base *base, int fd,
                          const struct sy_socket_callbacks *callbacks,
                          struct sy_closed_watch *watch, void *connection)
{
    e->callbacks = callbacks;
    e->watch = watch;
    e->fd = fd;
    e->connection = connection;
    e->read = event_new(base, fd, EV_READ | EV_PERSIST, callbacks->readable, connection);
    e->write = event_new(base, fd, EV_WRITE | EV_PERSIST, callbacks->writable, connection);
    if (!e->read || !e->write || event_add(e->read, NULL))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a connection's events");
    e->reading = true;
    return SY_OK;
}

void sy_socket_events_stop(struct sy_socket_events *e)
{
    struct event *events[] = {e->read, e->write, e->again};
    for (size_t i = 0; i < SY_ARRAY_LEN(events); i++)
        if (events[i])
            event_del(events[i]);
    sy_socket_unwatch(e);
    e->fd = -1; /* the number may soon be another connection's */
}

void sy_socket_events_finish(struct sy_socket_events *e)
{
    struct event *events[] = {e->read, e->write, e->again};
    for (size_t i = 0; i < SY_ARRAY_LEN(events); i++)
        if (events[i])
            event_free(events[i]);
}

static void note_watched(struct sy_socket_events *e, int status)
{
    e->watched = status == SY_OK;
    if (status < 0)
        sy_log_warn("front", "event=not_watched why=\"%s\"", sy_error_text());
}

void sy_socket_read(struct sy_socket_events *e, bool wanted)
{
    e->reading = wanted;
    if (wanted) {
        sy_socket_unwatch(e);
        event_add(e->read, NULL);
        return;
    }
    event_del(e->read);
    note_watched(e, sy_closed_watch_add(e->watch, e->fd, e->connection));
}

void sy_socket_read_ended(struct sy_socket_events *e)
{
    e->reading = false;
    event_del(e->read);
    note_watched(e, sy_closed_watch_add_ended(e->watch, e->fd, e->connection));
}

void sy_socket_unwatch(struct sy_socket_events *e)
{
    if (e->watched)
        sy_closed_watch_remove(e->watch, e->fd);
    e->watched = false;
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

bool sy_socket_call_soon(struct sy_socket_events *e)
{
    static const struct timeval at_once = {0, 0};

    if (!e->again)
        e->again = event_new(event_get_base(e->read), -1, 0, e->callbacks->again, e->connection);
    return e->again && event_add(e->again, &at_once) == 0;
}

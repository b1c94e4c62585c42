#include "runtime/front/closed_watch.h"

#include <errno.h>
#include <event2/event.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "runtime/base/status.h"

#define TURN 64 /* of one turn of the loop: the others come in the next */

struct sy_closed_watch {
    int epoll_fd;
    struct event *event;
    void (*closed)(void *connection, bool is_gone);
};

/* One at a time: what is called may remove others. */
static void on_some(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_closed_watch *watch = ctx;
    struct epoll_event event;

    (void)what;
    for (int i = 0; i < TURN && epoll_wait(fd, &event, 1, 0) > 0; i++)
        watch->closed(event.data.ptr, event.events & (EPOLLERR | EPOLLHUP));
}

int sy_closed_watch_create(struct event_base *base, void (*closed)(void *connection, bool is_gone),
                           struct sy_closed_watch **out)
{
    struct sy_closed_watch *watch = calloc(1, sizeof *watch);

    if (!watch)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to watch connections");
    watch->closed = closed;
    watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (watch->epoll_fd < 0) {
        free(watch);
        return sy_error_set(SY_EIO, "cannot watch connections: %s", strerror(errno));
    }
    watch->event = event_new(base, watch->epoll_fd, EV_READ | EV_PERSIST, on_some, watch);
    if (!watch->event || event_add(watch->event, NULL)) {
        sy_closed_watch_destroy(watch);
        return sy_error_set(SY_ENOMEM_HOST, "no memory to watch connections");
    }
    *out = watch;
    return SY_OK;
}

void sy_closed_watch_destroy(struct sy_closed_watch *watch)
{
    if (!watch)
        return;
    if (watch->event)
        event_free(watch->event);
    if (watch->epoll_fd >= 0)
        close(watch->epoll_fd);
    free(watch);
}

/* EPOLLERR and EPOLLHUP are reported whether they are asked for or not. */
static int add(struct sy_closed_watch *watch, int fd, void *connection, uint32_t events)
{
    struct epoll_event event = {.events = events | EPOLLONESHOT, .data.ptr = connection};

    sy_closed_watch_remove(watch, fd); /* also one whose end was seen already */
    if (epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0)
        return SY_OK;
    return sy_error_set(errno == ENOMEM || errno == ENOSPC ? SY_ENOMEM_HOST : SY_EIO,
                        "cannot watch a connection: %s", strerror(errno));
}

int sy_closed_watch_add(struct sy_closed_watch *watch, int fd, void *connection)
{
    return add(watch, fd, connection, EPOLLRDHUP);
}

int sy_closed_watch_add_ended(struct sy_closed_watch *watch, int fd, void *connection)
{
    return add(watch, fd, connection, 0);
}

void sy_closed_watch_remove(struct sy_closed_watch *watch, int fd)
{
    if (fd >= 0)
        (void)epoll_ctl(watch->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

#include "runtime/cli/config/serve_watchdog.h"

#include <event2/event.h>

#include "runtime/base/clock.h"
#include "runtime/base/service_manager.h"

static void on_watchdog(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what, (void)ctx;
    sy_service_notify("WATCHDOG=1");
}

struct event *sy_serve_watchdog_create(struct event_base *base)
{
    uint64_t us = sy_service_watchdog_ns() / 2 / SY_NS_PER_US;
    struct timeval interval = {(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
    struct event *timer = us ? event_new(base, -1, EV_PERSIST, on_watchdog, NULL) : NULL;

    if (timer)
        event_add(timer, &interval);
    return timer;
}

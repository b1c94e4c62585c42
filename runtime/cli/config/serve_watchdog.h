/* The service manager's watchdog: a loop that no longer turns is to be restarted. */
#ifndef SY_CLI_CONFIG_SERVE_WATCHDOG_H
#define SY_CLI_CONFIG_SERVE_WATCHDOG_H

struct event;
struct event_base;

/* Sends WATCHDOG=1 from the loop twice as often as the service manager asks for. NULL: it does not ask. The caller's: event_free. */
struct event *sy_serve_watchdog_create(struct event_base *base);

#endif

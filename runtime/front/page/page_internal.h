/* Internals of the page. */
#ifndef SY_FRONT_PAGE_INTERNAL_H
#define SY_FRONT_PAGE_INTERNAL_H

#include <jansson.h>
#include <sys/queue.h>

#include "runtime/front/access/access.h"
#include "runtime/front/http/http_route.h"
#include "runtime/front/page/page.h"

struct event;

struct sy_page_listener {
    LIST_ENTRY(sy_page_listener) link;
    struct sy_page *page;
    struct sy_http_stream *stream;
    struct sy_grant grant; /* the listener's */
};

struct sy_page {
    struct sy_front *front;
    bool needs_token; /* for POSTs */
    struct event *timer;
    LIST_HEAD(, sy_page_listener) listeners;
    int n_listeners;
    sy_ns instance; /* when it was made: a page that is open over a restart sees another one */
    /* where the next tick goes on */
    uint64_t n_ticks;
    int next_model;
    uint64_t after_job;
    uint64_t pool_bytes; /* at the previous tick */
};

/* ---- page_event.c ---- */
/* "data: {...}\n\n", what runtime/front/page/README.md says; malloc'd, zero-terminated. */
int sy_page_event(struct sy_page *page, char **out);
/* The first event of a listener. */
int sy_page_hello(const struct sy_page *page, char **out);

/* ---- page_actions.c ---- */
extern const struct sy_http_route sy_page_action_routes[];
extern const int sy_page_n_action_routes;

#endif

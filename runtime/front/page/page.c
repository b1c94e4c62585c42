#include "runtime/front/page/page.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_server.h"
#include "runtime/front/page/page_files.h"
#include "runtime/front/page/page_internal.h"

/* ---- files --------------------------------------------------------------------------------------------- */

static void on_file(struct sy_http_call *call, const char *name)
{
    const char *known = sy_http_call_header(call, "If-None-Match"), *etag = sy_page_etag();
    struct sy_page_content content;

    if (!sy_page_content(name, &content)) {
        sy_http_reply_error(call, SY_ENOTFOUND, "the page has no such file");
        return;
    }
    sy_http_call_add_header(call, "ETag", etag);
    sy_http_call_add_header(call, "Cache-Control", "no-cache"); /* asked for again, by its tag */
    sy_http_call_add_header(call, "Content-Security-Policy",
                            "default-src 'self'; base-uri 'none'; form-action 'none'; "
                            "frame-ancestors 'none'");
    sy_http_call_add_header(call, "X-Content-Type-Options", "nosniff");
    sy_http_call_add_header(call, "Referrer-Policy", "no-referrer");
    if (known && strstr(known, etag))
        sy_http_reply(call, 304, NULL, NULL, 0);
    else
        sy_http_reply(call, 200, content.type, content.data, content.bytes);
}

static void on_start(void *ctx, struct sy_http_call *call)
{
    (void)ctx;
    on_file(call, SY_PAGE_START);
}

static void on_named(void *ctx, struct sy_http_call *call)
{
    (void)ctx;
    on_file(call, sy_http_call_segment(call, 0));
}

/* ---- events ---------------------------------------------------------------------------------------------- */

static void watch(struct sy_page *page, bool on)
{
    struct timeval tick = {.tv_usec = SY_PAGE_TICK_MS * 1000};

    if (page->front->handlers->timeline_watch(page->front->core, on) < 0)
        sy_log_warn("page", "event=no_timeline why=\"%s\"", sy_error_text());
    if (on)
        event_add(page->timer, &tick);
    else
        event_del(page->timer);
}

static void remove_listener(struct sy_page_listener *listener)
{
    struct sy_page *page = listener->page;

    LIST_REMOVE(listener, link);
    free(listener);
    if (--page->n_listeners == 0)
        watch(page, false);
}

static void stream_closed(void *ctx)
{
    remove_listener(ctx);
}

static void add_listener(struct sy_page *page, struct sy_page_listener *listener)
{
    listener->page = page;
    LIST_INSERT_HEAD(&page->listeners, listener, link);
    if (page->n_listeners++ == 0)
        watch(page, true);
}

/* A3: one whose token is gone is told nothing more. */
static bool may_listen(struct sy_page_listener *listener)
{
    sy_access_refresh(listener->page->front->access, &listener->grant);
    if (sy_access_need(&listener->grant, SY_RIGHT_READ) == SY_OK)
        return true;
    sy_http_stream_end(listener->stream);
    remove_listener(listener);
    return false;
}

/* Sends one text to all listeners. A failed write removes its listener. */
static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_page *page = ctx;
    struct sy_page_listener *next;
    char *text;

    (void)fd, (void)what;
    if (sy_page_event(page, &text) < 0) {
        sy_log_warn("page", "event=tick_skipped why=\"%s\"", sy_error_text());
        return;
    }
    for (struct sy_page_listener *l = LIST_FIRST(&page->listeners); l; l = next) {
        next = LIST_NEXT(l, link);
        if (may_listen(l))
            sy_http_stream_write(l->stream, text, strlen(text));
    }
    free(text);
}

static void send_hello(struct sy_page_listener *listener)
{
    char *hello;

    if (sy_page_hello(listener->page, &hello) < 0)
        return;
    sy_http_stream_write(listener->stream, hello, strlen(hello));
    free(hello);
}

static void on_events(void *ctx, struct sy_http_call *call)
{
    struct sy_page *page = ctx;
    struct sy_page_listener *listener;

    if (page->n_listeners >= SY_PAGE_LISTENERS) {
        sy_http_reply_error(call, SY_EBUSY, "as many pages are open as the server feeds");
        return;
    }
    listener = calloc(1, sizeof(*listener));
    if (!listener) {
        sy_http_reply_error(call, SY_ENOMEM_HOST, "no memory for one more page");
        return;
    }
    listener->grant = *sy_http_call_grant(call); /* the call ends here */
    listener->stream = sy_http_stream_begin(call, "text/event-stream", stream_closed, listener);
    if (!listener->stream) {
        free(listener);
        return;
    }
    add_listener(page, listener);
    send_hello(listener);
}

/* ---- the page ----------------------------------------------------------------------------------------- */

static const struct sy_http_route routes[] = {
    {"GET", "/", SY_RIGHT_ANYBODY, on_start},
    {"GET", "/page/{}", SY_RIGHT_ANYBODY, on_named},
    {"GET", "/events", SY_RIGHT_READ, on_events},
};

static int init(struct sy_page *page, struct sy_http_server *server)
{
    page->timer = event_new(page->front->base, -1, EV_PERSIST, on_tick, page);
    SY_TRY_ALLOC(page->timer, "no memory for the page's timer");
    SY_TRY(sy_http_server_add_routes(server, routes, SY_ARRAY_LEN(routes), page));
    return sy_http_server_add_routes(server, sy_page_action_routes, sy_page_n_action_routes, page);
}

int sy_page_create(struct sy_front *front, struct sy_http_server *server, bool needs_token,
                   struct sy_page **out)
{
    struct sy_page *page = calloc(1, sizeof(*page));
    int status;

    SY_TRY_ALLOC(page, "no memory for the page");
    page->front = front;
    page->instance = sy_clock_now();
    page->needs_token = needs_token;
    status = init(page, server);
    if (status < 0) {
        sy_page_destroy(page);
        return status;
    }
    *out = page;
    return SY_OK;
}

void sy_page_destroy(struct sy_page *page)
{
    if (!page)
        return;
    assert(LIST_EMPTY(&page->listeners)); /* the server ends its streams first */
    if (page->timer)
        event_free(page->timer);
    free(page);
}

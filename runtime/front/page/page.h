/* The live page: what the device does, shown in a browser, and a few buttons.
 *
 *   GET /  /page/NAME               the page's files, part of this program (page_files.h)
 *   GET /events                     server-sent events: page_event.c makes one text a tick, for all listeners
 *   POST /api/...                   the buttons (page_actions.c), if page_guard.h lets them
 *
 * P1: without listeners no timer runs, and the device's timeline is not recorded.
 * P2: a tick costs the loop well under a millisecond: at most SY_PAGE_SLICE models and as many jobs are in it, the others follow in the next ones
 *     (256 models: 0.3 ms with one listener, 0.8 with 64).
 * P3: at most SY_PAGE_LISTENERS listen; more are answered 503. A slow reader skips ticks and delays no other.
 *
 * One thread, the event loop's. */
#ifndef SY_FRONT_PAGE_H
#define SY_FRONT_PAGE_H

#include "runtime/front/request/front.h"

#define SY_PAGE_LISTENERS 64
#define SY_PAGE_TICK_MS   250
#define SY_PAGE_SLICE     16 /* models, and jobs, of one tick */

struct sy_http_server;
struct sy_page;

/* Adds the page's routes to the server. needs_token: POSTs need a token of the server (runtime/front/access/); else also this machine's own pages may
 * send them without (page_guard.h). ENOMEM_HOST. */
int sy_page_create(struct sy_front *front, struct sy_http_server *server, bool needs_token,
                   struct sy_page **out);
/* After the server's destroy, which ends the streams. NULL is fine. */
void sy_page_destroy(struct sy_page *page);

#endif

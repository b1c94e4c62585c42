/* Whether a POST of the page may act. Pure.
 *
 * A browser sends requests to this server for any page that its user has open. What keeps a foreign page from pressing our buttons:
 *
 *   G1: the type is application/json. A foreign page's browser asks first (CORS preflight), and this server never agrees.
 *   G2: with a token, it must be there. A foreign page does not know it, so that nothing else is asked.
 *   G3: without one, the client is on this machine,
 *   G4: the browser says that the page is ours, if it says anything (Sec-Fetch-Site, Origin); programs like curl say nothing,
 *   G5: and the Host is an address or localhost: a foreign name that resolves to this machine (DNS rebinding) is none. */
#ifndef SY_FRONT_PAGE_GUARD_H
#define SY_FRONT_PAGE_GUARD_H

#include <stdbool.h>

/* Header values; NULL: not sent. */
struct sy_page_post {
    const char *content_type, *fetch_site, *origin, *host;
    bool is_local; /* the client's address is a loopback one */
};

/* Whether the client showed a token with the right to this (runtime/front/access/), must, or need not. */
enum sy_page_token { SY_PAGE_TOKEN_SHOWN, SY_PAGE_TOKEN_MISSING, SY_PAGE_TOKEN_UNNEEDED };

/* 0, or the HTTP code to refuse with (401, 403, 415) and why, a constant text. */
int sy_page_guard(enum sy_page_token token, const struct sy_page_post *post, const char **why);

#endif

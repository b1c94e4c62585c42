#include "runtime/front/page/page_guard.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* "application/json", with or without parameters. */
static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    size_t n = sizeof(json) - 1;

    return type && strncasecmp(type, json, n) == 0 &&
           (type[n] == '\0' || type[n] == ';' || type[n] == ' ');
}

/* The host without its port: [::1]:8000, 127.0.0.1:8000, localhost. */
static bool is_address_or_localhost(const char *host)
{
    char name[64];
    struct in6_addr address;
    size_t n;

    if (!host)
        return false;
    if (*host == '[') {
        host++;
        n = strcspn(host, "]");
    } else {
        n = strcspn(host, ":");
    }
    if (n >= sizeof(name))
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)n, host);
    return strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, &address) == 1 ||
           inet_pton(AF_INET6, name, &address) == 1;
}

static bool is_own_origin(const char *origin, const char *host)
{
    const char *at = strstr(origin, "://");

    return at && host && strcasecmp(at + 3, host) == 0;
}

int sy_page_guard(enum sy_page_token token, const struct sy_page_post *post, const char **why)
{
    if (!is_json(post->content_type)) {
        *why = "Content-Type must be application/json";
        return 415;
    }
    if (token == SY_PAGE_TOKEN_SHOWN)
        return 0;
    *why = "needs the header \"Authorization: Bearer TOKEN\" with a token of the server (serve "
           "--token-file, --page-token)";
    if (token == SY_PAGE_TOKEN_MISSING)
        return 401;
    *why = "from other machines only with a token: serve --page-token";
    if (!post->is_local)
        return 403;
    *why = "a page of another site may not do this";
    if (post->fetch_site && strcmp(post->fetch_site, "same-origin") != 0 &&
        strcmp(post->fetch_site, "none") != 0)
        return 403;
    if (post->origin && !is_own_origin(post->origin, post->host))
        return 403;
    *why = "without a token (serve --page-token) the Host must be localhost or an address";
    return is_address_or_localhost(post->host) ? 0 : 403;
}

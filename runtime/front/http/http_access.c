/* Which right each route needs, and whether a call's client has it. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && memcmp(text + n - m, end, m) == 0;
}

/* The first row whose method and end of the pattern fit counts. What is not here is read only. */
static unsigned right_of(const struct sy_http_route *route)
{
    static const struct {
        const char *method, *end;
        unsigned right;
    } rows[] = {
        {"GET", "/v2/health/live", 0}, /* asked by what starts and stops servers */
        {"GET", "/v2/health/ready", 0},
        {"GET", "/", 0}, /* the page's files say nothing of this server */
        {"GET", "/page/{}", 0},
        {"GET", "/v2/openapi.json", 0},
        {"POST", "/infer", SY_RIGHT_INFER},
        {"POST", "/register", SY_RIGHT_INFER},
        {"POST", "/unregister", SY_RIGHT_INFER},
        {"POST", "/repository/index", SY_RIGHT_READ},
        {"POST", "/load", SY_RIGHT_MODELS},
        {"POST", "/unload", SY_RIGHT_MODELS},
        {"POST", "/evict", SY_RIGHT_MODELS},
        {"POST", "/pause", SY_RIGHT_JOBS},
        {"POST", "/resume", SY_RIGHT_JOBS},
        {"POST", "/priority", SY_RIGHT_JOBS},
        {"POST", "", SY_RIGHT_SETTINGS}, /* policy, traces, logs, and what a route forgot to say */
    };

    for (size_t i = 0; i < SY_ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].method, route->method) == 0 && ends_with(route->pattern, rows[i].end))
            return strcmp(rows[i].end, "/") == 0 && strcmp(route->pattern, "/") != 0
                       ? SY_RIGHT_READ
                       : rows[i].right;
    return SY_RIGHT_READ;
}

/* A browser asks its user for a token then: the page's events cannot carry a header of their own. */
static int refuse(struct sy_http_call *call, const char **why)
{
    const char *pattern = call->entry->route->pattern;
    bool asks_user = strcmp(pattern, "/events") == 0;

    *why = sy_error_text();
    if (*call->grant.name && strcmp(call->grant.name, "?") != 0)
        return 403; /* a token that is known, and not enough */
    sy_http_call_add_header(call, "WWW-Authenticate",
                            asks_user ? "Basic realm=\"switchyard\"" : "Bearer");
    return 401;
}

int sy_http_call_allow(struct sy_http_call *call, const char **why)
{
    struct sy_access *access = call->server->front->access;
    unsigned right = right_of(call->entry->route);
    int status = sy_access_header(access, sy_http_call_header(call, "authorization"), &call->grant);

    if (right == 0)
        return 0;
    if (status == SY_OK)
        status = sy_access_need(&call->grant, right);
    return status < 0 ? refuse(call, why) : 0;
}

bool sy_http_call_has_token(const struct sy_http_call *call)
{
    return *call->grant.name != '\0';
}

const struct sy_grant *sy_http_call_grant(const struct sy_http_call *call)
{
    return &call->grant;
}

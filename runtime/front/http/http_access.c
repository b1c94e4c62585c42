/* Whether a call's client has the right that its route needs. */
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"

/* A browser asks its user for a token then: the page's events cannot carry a header of their own. */
static int refuse(struct sy_http_call *call, const char **why)
{
    const char *pattern = call->entry->route->pattern;
    bool asks_user = strcmp(pattern, "/events") == 0;

    *why = sy_error_text();
    if (*call->grant.name && !call->grant.is_unknown)
        return 403; /* a token that is known, and not enough */
    sy_http_call_add_header(call, "WWW-Authenticate",
                            asks_user ? "Basic realm=\"switchyard\"" : "Bearer");
    return 401;
}

int sy_http_call_allow(struct sy_http_call *call, const char **why)
{
    struct sy_access *access = call->server->front->access;
    unsigned right = call->entry->route->right;
    int status = sy_access_header(access, sy_http_call_header(call, "authorization"), &call->grant);

    if (right == SY_RIGHT_ANYBODY)
        return 0;
    if (status == SY_OK)
        status = sy_access_need_header(&call->grant, right);
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

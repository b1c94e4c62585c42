/* The page's buttons. Each is one call of the core or the repository; the answer is {} or {"error": why}. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/model_info.h"
#include "runtime/front/page/page_guard.h"
#include "runtime/front/page/page_internal.h"

/* False: it was refused, and the call has ended. */
static bool is_allowed(const struct sy_page *page, struct sy_http_call *call)
{
    struct sy_page_post post = {
        .content_type = sy_http_call_header(call, "Content-Type"),
        .fetch_site = sy_http_call_header(call, "Sec-Fetch-Site"),
        .origin = sy_http_call_header(call, "Origin"),
        .host = sy_http_call_header(call, "Host"),
        .is_local = sy_http_call_is_local(call),
    };
    const char *why;
    enum sy_page_token token = sy_http_call_has_token(call) ? SY_PAGE_TOKEN_SHOWN
                               : page->needs_token          ? SY_PAGE_TOKEN_MISSING
                                                            : SY_PAGE_TOKEN_UNNEEDED;
    int code = sy_page_guard(token, &post, &why);

    if (!code)
        return true;
    if (code == 401)
        sy_http_call_add_header(call, "WWW-Authenticate", "Bearer");
    sy_http_reply_json(call, code, json_pack("{s:s}", "error", why));
    return false;
}

static void reply(struct sy_http_call *call, int status, const char *error)
{
    if (status < 0)
        sy_http_reply_error(call, status, error);
    else
        sy_http_reply_json(call, 200, json_object());
}

/* ---- models -------------------------------------------------------------------------------------------- */

static void loaded(void *ctx, int status, const char *error)
{
    reply(ctx, status, error);
}

static void on_load(void *ctx, struct sy_http_call *call)
{
    struct sy_page *page = ctx;
    int status;

    if (!is_allowed(page, call))
        return;
    status = sy_model_info_load(page->front, sy_http_call_segment(call, 0), NULL, loaded, call);
    if (status < 0)
        reply(call, status, NULL);
}

static void on_unload(void *ctx, struct sy_http_call *call)
{
    struct sy_page *page = ctx;

    if (is_allowed(page, call))
        reply(call, sy_model_info_unload(page->front, sy_http_call_segment(call, 0)), NULL);
}

static void on_evict(void *ctx, struct sy_http_call *call)
{
    struct sy_page *page = ctx;

    if (is_allowed(page, call))
        reply(call,
              page->front->handlers->model_evict(page->front->core, sy_http_call_segment(call, 0),
                                                 false),
              NULL);
}

/* ---- jobs, policy -------------------------------------------------------------------------------------- */

/* The job that is asked for, which this client may act on. */
static int job_of(const struct sy_page *page, const struct sy_http_call *call, uint64_t *out)
{
    const char *text = sy_http_call_segment(call, 0);
    size_t n = strlen(text);

    if (n == 0 || n > 18 || strspn(text, "0123456789") != n)
        return sy_error_set(SY_EARG, "the job's number is a whole number of at most 18 digits");
    *out = strtoull(text, NULL, 10);
    return sy_access_job(sy_http_call_grant(call), page->front->handlers, page->front->core, *out);
}

static int suspend(const struct sy_page *page, const struct sy_http_call *call, bool suspended)
{
    uint64_t job;

    SY_TRY(job_of(page, call, &job));
    return page->front->handlers->job_suspend(page->front->core, job, suspended);
}

static void on_pause(void *ctx, struct sy_http_call *call)
{
    if (is_allowed(ctx, call))
        reply(call, suspend(ctx, call, true), NULL);
}

static void on_resume(void *ctx, struct sy_http_call *call)
{
    if (is_allowed(ctx, call))
        reply(call, suspend(ctx, call, false), NULL);
}

static int set_priority(const struct sy_page *page, const struct sy_http_call *call)
{
    json_t *body, *value;
    json_int_t priority;
    uint64_t job;

    SY_TRY(job_of(page, call, &job));
    SY_TRY(sy_http_call_json(call, &body));
    value = json_object_get(body, "priority");
    priority = json_is_integer(value) ? json_integer_value(value) : INT64_MAX;
    json_decref(body);
    if (priority < -1000 || priority > 1000)
        return sy_error_set(SY_EARG, "\"priority\" must be a whole number, -1000 to 1000");
    return page->front->handlers->job_set_priority(page->front->core, job, (int)priority);
}

static void on_priority(void *ctx, struct sy_http_call *call)
{
    if (is_allowed(ctx, call))
        reply(call, set_priority(ctx, call), NULL);
}

static int set_policy(const struct sy_page *page, const struct sy_http_call *call)
{
    json_t *body;
    int status;

    SY_TRY(sy_http_call_json(call, &body));
    status = page->front->handlers->policy_set(page->front->core, body);
    json_decref(body);
    return status;
}

static void on_policy(void *ctx, struct sy_http_call *call)
{
    if (is_allowed(ctx, call))
        reply(call, set_policy(ctx, call), NULL);
}

const struct sy_http_route sy_page_action_routes[] = {
    {"POST", "/api/models/{}/load", SY_RIGHT_MODELS, on_load},
    {"POST", "/api/models/{}/unload", SY_RIGHT_MODELS, on_unload},
    {"POST", "/api/models/{}/evict", SY_RIGHT_MODELS, on_evict},
    {"POST", "/api/jobs/{}/pause", SY_RIGHT_JOBS, on_pause},
    {"POST", "/api/jobs/{}/resume", SY_RIGHT_JOBS, on_resume},
    {"POST", "/api/jobs/{}/priority", SY_RIGHT_JOBS, on_priority},
    {"POST", "/api/policy", SY_RIGHT_SETTINGS, on_policy},
};
const int sy_page_n_action_routes = SY_ARRAY_LEN(sy_page_action_routes);

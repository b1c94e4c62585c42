#include "runtime/front/metrics/metrics_routes.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/metrics/metrics_snapshot.h"
#include "runtime/front/request/offload.h"

/* A pending scrape. */
struct ask {
    struct sy_http_call *call;
    enum sy_exposition_format format;
    bool own, triton;
};

struct sy_metrics_routes {
    struct sy_front *front;
    const char *version;
    struct sy_host_sampler sampler; /* used by the thread that makes the text */
    struct ask waiting[SY_METRICS_MOST_WAITING];
    int n_waiting;
    /* The text that is being made, and for whom. */
    bool is_busy;
    struct ask ask;
    struct sy_metrics_input input;
    int status;
    char *text;
    size_t bytes;
    char error[200];
};

/* On a thread (O1): it sees `input` and what it writes. */
static void make_text(void *ctx)
{
    struct sy_metrics_routes *r = ctx;

    sy_host_usage_read(&r->sampler, &r->input.host);
    r->status = sy_metrics_body(&r->input, &r->text, &r->bytes);
    if (r->status < 0)
        snprintf(r->error, sizeof r->error, "%s", sy_error_text());
}

static void begin_next(struct sy_metrics_routes *r);

static void on_text(void *ctx)
{
    struct sy_metrics_routes *r = ctx;

    if (r->text)
        sy_http_reply(r->ask.call, 200, sy_exposition_content_type(r->ask.format), r->text,
                      r->bytes);
    else if (r->status < 0)
        sy_http_reply_error(r->ask.call, r->status, r->error);
    else /* the server stops: it was not made */
        sy_http_reply_error(r->ask.call, SY_EBUSY, "the server stops");
    free(r->text);
    r->text = NULL;
    sy_metrics_snapshot_finish(&r->input);
    r->is_busy = false;
    begin_next(r);
}

static int begin(struct sy_metrics_routes *r)
{
    SY_TRY(sy_metrics_snapshot_take(r->front, &r->input));
    r->input.format = r->ask.format;
    r->input.own = r->ask.own;
    r->input.triton = r->ask.triton;
    r->input.version = r->version;
    r->status = SY_OK;
    return sy_offload_run(r->front->offload, make_text, on_text, r);
}

/* Answers requests whose body cannot be made, until one starts being made. */
static void begin_next(struct sy_metrics_routes *r)
{
    while (!r->is_busy && r->n_waiting > 0) {
        r->ask = r->waiting[0];
        memmove(r->waiting, r->waiting + 1, (size_t)--r->n_waiting * sizeof *r->waiting);
        int status = begin(r);
        r->is_busy = status == SY_OK;
        if (r->is_busy)
            continue;
        sy_metrics_snapshot_finish(&r->input);
        sy_http_reply_error(r->ask.call, status, NULL);
    }
}

static void on_metrics(void *ctx, struct sy_http_call *call)
{
    struct sy_metrics_routes *r = ctx;
    const char *only = sy_http_call_query(call, "only");
    bool own = only && strcmp(only, "switchyard") == 0;
    bool triton = only && strcmp(only, "triton") == 0;

    if (only && !own && !triton) {
        sy_http_reply_error(call, SY_EARG, "\"only\" is switchyard or triton");
        return;
    }
    if (r->n_waiting == SY_METRICS_MOST_WAITING) {
        sy_http_reply_error(call, SY_EBUSY, "too many ask for the metrics at once");
        return;
    }
    r->waiting[r->n_waiting++] =
        (struct ask){.call = call,
                     .format = sy_exposition_choose(sy_http_call_header(call, "accept")),
                     .own = own || !only,
                     .triton = triton || !only};
    begin_next(r);
}

int sy_metrics_routes_create(struct sy_front *front, const char *version,
                             struct sy_metrics_routes **out)
{
    struct sy_metrics_routes *r = calloc(1, sizeof *r);

    SY_TRY_ALLOC(r, "no memory for the metrics");
    r->front = front;
    r->version = version;
    *out = r;
    return SY_OK;
}

void sy_metrics_routes_destroy(struct sy_metrics_routes *routes)
{
    free(routes);
}

int sy_metrics_routes_add(struct sy_metrics_routes *routes, struct sy_http_server *server)
{
    static const struct sy_http_route table[] = {{"GET", "/metrics", SY_RIGHT_READ, on_metrics}};

    return sy_http_server_add_routes(server, table, SY_ARRAY_LEN(table), routes);
}

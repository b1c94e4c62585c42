#include "runtime/telemetry/otlp.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/telemetry/otlp_json.h"

#define USUAL_PORT    4318
#define TRACES_PATH   "/v1/traces"
#define TIMEOUT_S     10
#define MOST_ANSWER   (64u << 10) /* bytes of a collector's answer */
#define MOST_TRIES    6
#define MOST_RETRY_NS (30 * SY_NS_PER_S)
#define MOST_DEMAND_S 300 /* limit of a Retry-After */
#define NO_ANSWER     0   /* in the place of a status code */

struct sy_otlp {
    struct event_base *base;
    struct evhttp_connection *connection;
    char *version, *host, *path; /* host: of the Host header */
    struct event *timer;
    sy_ns flush_ns, retry_ns;
    struct sy_otlp_record *ring; /* SY_OTLP_WAITING; the first n_sending are under way */
    int first, n_waiting, n_sending;
    int n_tries;     /* attempts for the first batch */
    sy_ns delay_ns;  /* before the next one; 0: the last one was taken */
    bool is_drained; /* no repetition any more */
    uint64_t chance;
    struct sy_otlp_counts counts;
};

/* ---- create --------------------------------------------------------------------------------------------------------- */

/* evhttp would look names up in the loop's thread at each connection. An IPv6 address stands in brackets. */
static int look_up(const char *host, char *to, size_t bytes)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char bare[256];

    snprintf(bare, sizeof bare, "%s", host + (*host == '['));
    bare[strcspn(bare, "]")] = '\0';
    int failed = getaddrinfo(bare, NULL, &hints, &found);

    if (failed)
        return sy_error_set(SY_EARG, "the collector's host %s: %s", host, gai_strerror(failed));
    failed = getnameinfo(found->ai_addr, found->ai_addrlen, to, (socklen_t)bytes, NULL, 0,
                         NI_NUMERICHOST);
    freeaddrinfo(found);
    return failed ? sy_error_set(SY_EARG, "the collector's host %s: %s", host, gai_strerror(failed))
                  : SY_OK;
}

static int check_uri(const char *url, const struct evhttp_uri *uri)
{
    const char *scheme = uri ? evhttp_uri_get_scheme(uri) : NULL;
    const char *host = uri ? evhttp_uri_get_host(uri) : NULL;

    if (scheme && strcasecmp(scheme, "https") == 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "%s: traces are sent without TLS; name a collector on this machine or "
                            "network by http://, which can send them on",
                            url);
    if (!scheme || strcasecmp(scheme, "http") != 0 || !host || !*host ||
        evhttp_uri_get_userinfo(uri))
        return sy_error_set(SY_EARG, "\"%s\" is not a URL like http://host:4318", url);
    return SY_OK;
}

static int take_uri(struct sy_otlp *otlp, const struct evhttp_uri *uri)
{
    const char *host = evhttp_uri_get_host(uri), *path = evhttp_uri_get_path(uri);
    int port = evhttp_uri_get_port(uri) > 0 ? evhttp_uri_get_port(uri) : USUAL_PORT;
    char address[128], name[300];

    snprintf(name, sizeof name, "%s:%d", host, port);
    SY_TRY(look_up(host, address, sizeof address));
    otlp->host = strdup(name);
    otlp->path = strdup(path && *path && strcmp(path, "/") != 0 ? path : TRACES_PATH);
    otlp->connection = evhttp_connection_base_new(otlp->base, NULL, address, (unsigned short)port);
    SY_TRY_ALLOC(otlp->host && otlp->path && otlp->connection,
                 "no memory for a connection to the collector");
    evhttp_connection_set_timeout(otlp->connection, TIMEOUT_S);
    evhttp_connection_set_retries(otlp->connection, 0);
    evhttp_connection_set_max_body_size(otlp->connection, MOST_ANSWER);
    evhttp_connection_set_max_headers_size(otlp->connection, MOST_ANSWER);
    return SY_OK;
}

static void on_timer(evutil_socket_t fd, short what, void *otlp);

static int take_memory(struct sy_otlp *otlp, const struct sy_otlp_config *config)
{
    otlp->version = strdup(config->version);
    otlp->ring = calloc(SY_OTLP_WAITING, sizeof *otlp->ring);
    otlp->timer = event_new(otlp->base, -1, 0, on_timer, otlp);
    return otlp->version && otlp->ring && otlp->timer
               ? SY_OK
               : sy_error_set(SY_ENOMEM_HOST, "no memory for the traces");
}

int sy_otlp_create(struct event_base *base, const struct sy_otlp_config *config,
                   struct sy_otlp **out)
{
    struct sy_otlp *otlp = calloc(1, sizeof *otlp);
    struct evhttp_uri *uri = evhttp_uri_parse(config->url);

    if (!otlp) {
        if (uri)
            evhttp_uri_free(uri);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the traces");
    }
    otlp->base = base;
    otlp->flush_ns = config->flush_ns ? config->flush_ns : SY_NS_PER_S;
    otlp->retry_ns = config->retry_ns ? config->retry_ns : SY_NS_PER_S;
    if (getrandom(&otlp->chance, sizeof otlp->chance, GRND_NONBLOCK) != sizeof otlp->chance)
        otlp->chance = sy_clock_now();
    int status = check_uri(config->url, uri);
    if (status == SY_OK)
        status = take_memory(otlp, config);
    if (status == SY_OK)
        status = take_uri(otlp, uri);
    if (uri)
        evhttp_uri_free(uri);
    if (status < 0) {
        sy_otlp_destroy(otlp);
        return status;
    }
    *out = otlp;
    return SY_OK;
}

void sy_otlp_destroy(struct sy_otlp *otlp)
{
    if (!otlp)
        return;
    if (otlp->connection)
        evhttp_connection_free(otlp->connection); /* its request goes without an answer */
    if (otlp->timer)
        event_free(otlp->timer);
    free(otlp->ring);
    free(otlp->version);
    free(otlp->host);
    free(otlp->path);
    free(otlp);
}

/* ---- sending -------------------------------------------------------------------------------------------------------- */

static void set_timer(struct sy_otlp *otlp, sy_ns after)
{
    struct timeval timeout = {.tv_sec = (time_t)(after / SY_NS_PER_S),
                              .tv_usec = (suseconds_t)(after % SY_NS_PER_S / 1000)};

    event_add(otlp->timer, &timeout);
}

/* Sends what waits: at once if there is a full batch, unless the collector asked for a delay. */
static void send_later(struct sy_otlp *otlp)
{
    if (otlp->n_waiting == 0 || otlp->n_sending > 0)
        return;
    bool is_full = otlp->n_waiting >= SY_OTLP_BATCH || otlp->is_drained;
    if (otlp->delay_ns == 0 && is_full)
        set_timer(otlp, 0);
    else if (!event_pending(otlp->timer, EV_TIMEOUT, NULL))
        set_timer(otlp, otlp->delay_ns ? otlp->delay_ns : otlp->flush_ns);
}

static void drop_batch(struct sy_otlp *otlp)
{
    otlp->first = (otlp->first + otlp->n_sending) % SY_OTLP_WAITING;
    otlp->n_waiting -= otlp->n_sending;
    otlp->n_sending = 0;
    otlp->n_tries = 0;
}

static void taken(struct sy_otlp *otlp)
{
    if (otlp->delay_ns > 0)
        sy_log_info("otlp", "event=collector_is_back host=%s dropped=%llu", otlp->host,
                    (unsigned long long)otlp->counts.n_dropped_refused);
    otlp->delay_ns = 0;
    otlp->counts.n_exported += (uint64_t)otlp->n_sending;
    drop_batch(otlp);
}

/* retry_after_s: what the collector asks for; 0: nothing. */
static void not_taken(struct sy_otlp *otlp, int code, long retry_after_s)
{
    bool for_now = code == NO_ANSWER || code == 429 || code == 502 || code == 503 || code == 504;
    sy_ns asked = (sy_ns)SY_MIN(retry_after_s, MOST_DEMAND_S) * SY_NS_PER_S;
    sy_ns delay = otlp->delay_ns ? 2 * otlp->delay_ns : otlp->retry_ns;

    if (otlp->delay_ns == 0)
        sy_log_warn("otlp", "event=collector_refuses host=%s code=%d requests=%d again=%s",
                    otlp->host, code, otlp->n_sending, for_now ? "yes" : "no");
    otlp->delay_ns = SY_MAX(SY_MIN(delay, MOST_RETRY_NS), asked);
    if (for_now && ++otlp->n_tries < MOST_TRIES && !otlp->is_drained) {
        otlp->n_sending = 0; /* they stay the first */
        return;
    }
    otlp->counts.n_dropped_refused += (uint64_t)otlp->n_sending;
    drop_batch(otlp);
}

static void on_answer(struct evhttp_request *request, void *ctx)
{
    struct sy_otlp *otlp = ctx;
    int code = request ? evhttp_request_get_response_code(request) : NO_ANSWER;
    const char *after =
        code ? evhttp_find_header(evhttp_request_get_input_headers(request), "Retry-After") : NULL;
    long retry_after_s = after ? strtol(after, NULL, 10) : 0; /* a date is 0 */

    if (code >= 200 && code < 300)
        taken(otlp);
    else
        not_taken(otlp, code, SY_MAX(retry_after_s, 0));
    send_later(otlp);
}

static int post(struct sy_otlp *otlp, const char *text, size_t bytes)
{
    struct evhttp_request *request = evhttp_request_new(on_answer, otlp);

    SY_TRY_ALLOC(request, "no memory for a request to the collector");
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Host", otlp->host);
    evhttp_add_header(headers, "Content-Type", "application/json");
    evhttp_add_header(headers, "User-Agent", "switchyard");
    if (evbuffer_add(evhttp_request_get_output_buffer(request), text, bytes)) {
        evhttp_request_free(request);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request to the collector");
    }
    /* On failure the request is freed, and on_answer is not called. */
    return evhttp_make_request(otlp->connection, request, EVHTTP_REQ_POST, otlp->path)
               ? sy_error_set(SY_EIO, "cannot connect to the collector")
               : SY_OK;
}

static void send_batch(struct sy_otlp *otlp)
{
    const struct sy_otlp_record *batch[SY_OTLP_BATCH];
    char *text = NULL;
    size_t bytes;

    otlp->n_sending = SY_MIN(otlp->n_waiting, SY_OTLP_BATCH);
    for (int i = 0; i < otlp->n_sending; i++)
        batch[i] = &otlp->ring[(otlp->first + i) % SY_OTLP_WAITING];
    int status = sy_otlp_json(otlp->version, batch, otlp->n_sending, &text, &bytes);
    if (status == SY_OK)
        status = post(otlp, text, bytes);
    free(text);
    if (status < 0) {
        not_taken(otlp, NO_ANSWER, 0);
        send_later(otlp);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_otlp *otlp = ctx;

    (void)fd, (void)what;
    if (otlp->n_waiting > 0 && otlp->n_sending == 0)
        send_batch(otlp);
}

/* ---- requests ------------------------------------------------------------------------------------------------------- */

/* Xorshift (Marsaglia, 2003), never 0: ids need not be secret. */
static uint64_t next_id(struct sy_otlp *otlp)
{
    otlp->chance = otlp->chance ? otlp->chance : 1;
    otlp->chance ^= otlp->chance << 13;
    otlp->chance ^= otlp->chance >> 7;
    otlp->chance ^= otlp->chance << 17;
    return otlp->chance;
}

static void take_context(struct sy_otlp *otlp, const struct sy_otlp_request *request,
                         struct sy_otlp_record *to)
{
    to->span_id = next_id(otlp);
    if (request->context && request->context->is_given) {
        to->context = *request->context;
        snprintf(to->tracestate, sizeof to->tracestate, "%s",
                 request->tracestate ? request->tracestate : "");
        return;
    }
    uint64_t ids[2] = {next_id(otlp), next_id(otlp)};
    memcpy(to->context.trace_id, ids, sizeof to->context.trace_id);
    to->context.flags = SY_TRACE_SAMPLED;
}

static int64_t wall_offset(sy_ns now)
{
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)wall.tv_sec * (int64_t)SY_NS_PER_S + wall.tv_nsec - (int64_t)now;
}

static void fill(struct sy_otlp *otlp, const struct sy_otlp_request *request,
                 struct sy_otlp_record *to)
{
    const struct sy_request_report *report = request->report;
    sy_ns now = sy_clock_now();

    memset(to, 0, sizeof *to);
    take_context(otlp, request, to);
    to->wall_offset_ns = wall_offset(now);
    snprintf(to->model, sizeof to->model, "%s", request->model);
    to->version = request->version;
    to->protocol = request->protocol;
    to->status = request->status;
    if (request->status < 0)
        snprintf(to->error, sizeof to->error, "%s",
                 request->error ? request->error : sy_status_text(request->status));
    to->has_report = report != NULL;
    if (report)
        to->report = *report;
    to->from_ns = request->received_ns           ? request->received_ns
                  : report && report->arrived_ns ? report->arrived_ns
                                                 : now;
    to->to_ns = SY_MAX(now, to->from_ns);
}

void sy_otlp_note(struct sy_otlp *otlp, const struct sy_otlp_request *request)
{
    if (otlp->n_waiting == SY_OTLP_WAITING) {
        otlp->counts.n_dropped_full++;
        return;
    }
    fill(otlp, request, &otlp->ring[(otlp->first + otlp->n_waiting) % SY_OTLP_WAITING]);
    otlp->n_waiting++;
    send_later(otlp);
}

void sy_otlp_counts(const struct sy_otlp *otlp, struct sy_otlp_counts *out)
{
    *out = otlp->counts;
    out->n_waiting = (uint64_t)otlp->n_waiting;
}

/* The loop must come back to here when the time is over. */
static void on_late(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    *(bool *)ctx = true;
}

void sy_otlp_drain(struct sy_otlp *otlp, sy_ns most_ns)
{
    struct timeval most = {.tv_sec = (time_t)(most_ns / SY_NS_PER_S),
                           .tv_usec = (suseconds_t)(most_ns % SY_NS_PER_S / 1000)};
    bool is_late = false;
    struct event *late = event_new(otlp->base, -1, 0, on_late, &is_late);

    otlp->is_drained = true;
    if (otlp->delay_ns == 0 && late && event_add(late, &most) == 0) {
        send_later(otlp);
        while (otlp->n_waiting > 0 && otlp->delay_ns == 0 && !is_late)
            if (event_base_loop(otlp->base, EVLOOP_ONCE) < 0)
                break;
    }
    if (late)
        event_free(late);
}

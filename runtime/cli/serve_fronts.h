/* serve's HTTP side: the servers, their limits, and what they share. */
#ifndef SY_CLI_SERVE_FRONTS_H
#define SY_CLI_SERVE_FRONTS_H

#include "runtime/front/http/http_server.h"

struct sy_serve_fronts {
    struct sy_front front;
    struct sy_http_config http, metrics; /* address NULL: off */
    struct sy_http_server *http_server, *metrics_server;
    struct sy_metrics_routes *metrics_routes;
    const char *otlp_url; /* NULL: no traces are sent */
    double otlp_sample;   /* of requests without a traceparent; 0 to 1 */
};

/* Rows of serve's option table; they end it. */
#define SY_SERVE_FRONT_OPTIONS                                                                     \
    {"http", "HOST:PORT",                                                                          \
     "HTTP: Open Inference Protocol, live page, metrics; default 127.0.0.1:8000; off: none"},      \
        {"metrics", "HOST:PORT", "metrics alone; default 127.0.0.1:8002; off: none"},              \
        {"otlp", "URL",                                                                            \
         "send traces to this collector, OTLP over HTTP: http://HOST:4318; default: none"},        \
        {"otlp-sample", "RATIO",                                                                   \
         "of the requests that come without a traceparent, trace so many; 0 to 1, default 1"},     \
        {"http-header-bytes", "SIZE", "request line and header lines; default 32Ki; more is 431"}, \
        {"http-body-bytes", "SIZE", "a request's body, inflated; default 1Gi; more is 413"},       \
        {"http-buffered-bytes", "SIZE", "unfinished requests together; default 2Gi; more is 503"}, \
        {"http-json-depth", "N", "nesting of a request's JSON; default 64; more is 400"},          \
        {"http-connections", "N", "open connections; default 4096; more are told 503"},            \
        {"http-idle", "SECONDS", "a connection without a request is closed; default 75"},          \
        {"http-header-time", "SECONDS", "for a request's header lines; default 10; more is 408"},  \
    {                                                                                              \
        "http-stall", "SECONDS", "a body or an answer that does not move; default 30; 408"         \
    }

void sy_serve_fronts_init(struct sy_serve_fronts *fronts);
/* An option of the table by name. SY_ENOTFOUND: none of these; EARG. */
int sy_serve_fronts_option(struct sy_serve_fronts *fronts, const char *name, const char *value);
/* front.base, handlers, core (and repository) are set. Listens, and prints where. */
int sy_serve_fronts_start(struct sy_serve_fronts *fronts);
void sy_serve_fronts_stop(struct sy_serve_fronts *fronts);   /* before the core goes */
void sy_serve_fronts_finish(struct sy_serve_fronts *fronts); /* after it */

#endif

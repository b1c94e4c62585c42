/* serve's HTTP and gRPC side: the servers, their limits, and what they share. */
#ifndef SY_CLI_SERVE_FRONTS_H
#define SY_CLI_SERVE_FRONTS_H

#include "runtime/front/access/access.h"
#include "runtime/front/grpc/grpc_server.h"
#include "runtime/front/http/http_server.h"
#include "runtime/front/request/session_table.h"
#include "runtime/telemetry/otlp.h"

struct sy_serve_fronts {
    struct sy_front front;
    struct sy_http_config http, metrics; /* address NULL: off */
    struct sy_grpc_config grpc;          /* likewise */
    struct sy_access_config access;
    const char *tls_cert, *tls_key; /* NULL: plain */
    struct sy_otlp_config otlp;     /* url NULL: off */
    double otlp_sample;
    struct sy_session_limits sessions;
    uint64_t least_bytes_per_s; /* of a body or an answer; 0: SY_LEAST_BYTES_PER_S */
    uint64_t string_bytes;      /* of a request; 0: SY_FRONT_STRING_BYTES */
    struct sy_http_server *http_server, *metrics_server;
    struct sy_grpc_server *grpc_server;
    struct sy_metrics_routes *metrics_routes;
    struct sy_page *page;
};

/* Rows of serve's option table; they end it. */
#define SY_SERVE_FRONT_OPTIONS                                                                     \
    {"http", "HOST:PORT",                                                                          \
     "HTTP: Open Inference Protocol, live page, metrics; default 127.0.0.1:8000; off: none"},      \
        {"grpc", "HOST:PORT", "gRPC, as Triton's; default 127.0.0.1:8001; off: none"},             \
        {"metrics", "HOST:PORT", "metrics alone; default 127.0.0.1:8002; off: none"},              \
        {"page-token", "TOKEN",                                                                    \
         "what the live page's buttons need; default none: this machine's own pages only"},        \
        {"token-file", "FILE",                                                                     \
         "who may do what over TCP, HTTP, gRPC: lines NAME TOKEN RIGHTS [tenant=T], RIGHTS of "    \
         "infer,models,jobs,admin; with tenant= for that tenant's requests and jobs alone, never " \
         "models and settings, which all share; read again when it changes"},                      \
        {"anonymous", "RIGHTS",                                                                    \
         "of TCP callers without a token: read,infer,models,jobs,admin or none; default none "     \
         "with "                                                                                   \
         "--token-file; without, all but paths outside --models, and on loopback only"},           \
        {"tls-cert", "FILE", "certificate chain, PEM: TCP, HTTP and gRPC speak TLS 1.2 and 1.3"},  \
        {"tls-key", "FILE", "its key, PEM"},                                                       \
        {"otlp", "URL", "send each request's spans to this collector: http://HOST:4318"},          \
        {"otlp-sample", "RATIO", "of requests without a traceparent, 0 to 1; default 1"},          \
        {"string-bytes", "SIZE",                                                                   \
         "strings of one request, and of its results; default 64Mi, at most 1Gi; more is 413"},    \
        {"least-rate", "SIZE",                                                                     \
         "bytes a second that a body or an answer moves at least, over its --http-stall or "       \
         "--grpc-stall; default 1Ki; 408, or closed"},                                             \
        {"http-header-bytes", "SIZE", "request line and header lines; default 32Ki; more is 431"}, \
        {"http-body-bytes", "SIZE", "a request's body, inflated; default 1Gi; more is 413"},       \
        {"http-buffered-bytes", "SIZE", "unfinished requests together; default 2Gi; more is 503"}, \
        {"http-json-depth", "N", "nesting of a request's JSON; default 64; more is 400"},          \
        {"http-connections", "N", "open connections; default 4096; more are told 503"},            \
        {"http-idle", "SECONDS", "a connection without a request is closed; default 75"},          \
        {"http-header-time", "SECONDS", "for a request's header lines; default 10; more is 408"},  \
        {"http-stall", "SECONDS", "a body or an answer that does not move; default 30; 408"},      \
        {"grpc-message-bytes", "SIZE", "a request of gRPC, inflated; default 1Gi"},                \
        {"grpc-buffered-bytes", "SIZE", "unfinished messages together; default 2Gi"},              \
        {"grpc-unsent-bytes", "SIZE", "answers that one client does not read; default 512Mi"},     \
        {"grpc-header-bytes", "SIZE", "a gRPC request's headers; default 16Ki"},                   \
        {"grpc-connections", "N", "open gRPC connections; default 4096"},                          \
        {"grpc-streams", "N", "calls of one connection at a time; default 256"},                   \
        {"grpc-outstanding", "N", "requests of one ModelStreamInfer at a time; default 64"},       \
        {"grpc-pings", "N", "PING, SETTINGS, resets of one connection a second; default 1000"},    \
        {"grpc-idle", "SECONDS", "a connection without a call gets GOAWAY; default 1800"},         \
        {"grpc-header-time", "SECONDS",                                                            \
         "for HTTP/2's preface, and for a call's headers; default 10"},                            \
        {"sessions", "N", "sessions of decoders at a time; default 1024"},                         \
        {"session-idle", "SECONDS", "a session that nothing used ends; default 60"},               \
        {"session-bytes", "SIZE", "of all sessions, in the slab; default three quarters of it"},   \
        {"session-tenant-bytes", "SIZE", "of one tenant's sessions; default half of the slab"},    \
    {                                                                                              \
        "grpc-stall", "SECONDS", "a message or an answer that does not move; default 30"           \
    }

void sy_serve_fronts_init(struct sy_serve_fronts *fronts);
/* An option of the table by name. SY_ENOTFOUND: none of these; EARG. */
int sy_serve_fronts_option(struct sy_serve_fronts *fronts, const char *name, const char *value);
/* Whether an option is a limit that may change while the servers run. */
bool sy_serve_fronts_is_limit(const char *name);
/* Takes these limits over from `fresh`, which was never started: of what comes from now on. */
void sy_serve_fronts_set_limits(struct sy_serve_fronts *fronts,
                                const struct sy_serve_fronts *fresh);
/* Access control and TLS; front.base, handlers, core (and repository) are set. First, for all that listens. rpc_tcp: the address of the native protocol. */
int sy_serve_fronts_guard(struct sy_serve_fronts *fronts, const char *rpc_tcp);
/* After sy_serve_fronts_guard. Listens, and prints where. */
int sy_serve_fronts_start(struct sy_serve_fronts *fronts);
/* Nothing new from clients that can go elsewhere. */
void sy_serve_fronts_drain(struct sy_serve_fronts *fronts);
void sy_serve_fronts_stop(struct sy_serve_fronts *fronts);   /* before the core goes */
void sy_serve_fronts_finish(struct sy_serve_fronts *fronts); /* after it */

#endif

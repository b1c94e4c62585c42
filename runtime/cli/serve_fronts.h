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

/* Default addresses and sample; all else of it is zero. */
void sy_serve_fronts_init(struct sy_serve_fronts *fronts);
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
/* Bytes of answers over HTTP and gRPC that clients have not taken yet; one more while a thread writes some. */
uint64_t sy_serve_fronts_unsent(const struct sy_serve_fronts *fronts);
void sy_serve_fronts_stop(struct sy_serve_fronts *fronts);   /* before the core goes */
void sy_serve_fronts_finish(struct sy_serve_fronts *fronts); /* after it */

#endif

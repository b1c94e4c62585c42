#include "runtime/cli/serve_fronts.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/front/http/http_protocol.h"
#include "runtime/front/http/http_settings.h"
#include "runtime/front/metrics/metrics_routes.h"
#include "runtime/front/page/page.h"
#include "runtime/front/request/front_stats.h"
#include "runtime/front/request/offload.h"
#include "runtime/front/request/session_table.h"
#include "runtime/front/request/trace_settings.h"
#include "runtime/front/shared_regions.h"
#include "runtime/net/tls.h"

#define DEFAULT_HTTP    "127.0.0.1:8000"
#define DEFAULT_GRPC    "127.0.0.1:8001"
#define DEFAULT_METRICS "127.0.0.1:8002"
#define OTLP_DRAIN_NS   (2 * SY_NS_PER_S)
#define MOST_OFFLOADED  256 /* large bodies that wait for a thread */
#define OFFLOAD_THREADS 1   /* work that is not offloaded runs on the loop's core */

void sy_serve_fronts_init(struct sy_serve_fronts *fronts)
{
    fronts->http.address = DEFAULT_HTTP;
    fronts->grpc.address = DEFAULT_GRPC;
    fronts->metrics.address = DEFAULT_METRICS;
    fronts->otlp_sample = 1;
}

bool sy_serve_fronts_is_limit(const char *name)
{
    return strncmp(name, "http-", 5) == 0 || strncmp(name, "grpc-", 5) == 0;
}

void sy_serve_fronts_set_limits(struct sy_serve_fronts *fronts, const struct sy_serve_fronts *fresh)
{
    if (fronts->http_server)
        sy_http_server_set_limits(fronts->http_server, &fresh->http.limits);
    if (fronts->grpc_server)
        sy_grpc_server_set_limits(fronts->grpc_server, &fresh->grpc.limits);
}

static int listen_http(struct sy_serve_fronts *fronts, const char *option,
                       const struct sy_http_config *config, struct sy_http_server **out)
{
    int status = sy_http_server_create(config, &fronts->front, out);

    if (status < 0)
        return sy_error_prefix(status, "--%s %s (name another address, or 'off')", option,
                               config->address);
    SY_TRY(sy_metrics_routes_add(fronts->metrics_routes, *out));
    sy_log_info("serve", "event=listening what=%s port=%d", option, sy_http_server_port(*out));
    return SY_OK;
}

static int start_http(struct sy_serve_fronts *fronts)
{
    if (fronts->metrics.address)
        SY_TRY(listen_http(fronts, "metrics", &fronts->metrics, &fronts->metrics_server));
    if (!fronts->http.address)
        return SY_OK;
    SY_TRY(listen_http(fronts, "http", &fronts->http, &fronts->http_server));
    SY_TRY(sy_http_protocol_add(fronts->http_server, &fronts->front));
    SY_TRY(sy_http_settings_add(fronts->http_server, &fronts->front));
    return sy_page_create(&fronts->front, fronts->http_server,
                          fronts->access.page_token || fronts->access.token_file, &fronts->page);
}

static int start_grpc(struct sy_serve_fronts *fronts)
{
    int status;

    if (!fronts->grpc.address)
        return SY_OK;
    status = sy_grpc_server_create(&fronts->grpc, &fronts->front, &fronts->grpc_server);
    if (status < 0)
        return sy_error_prefix(status, "--grpc %s (name another address, or 'off')",
                               fronts->grpc.address);
    sy_log_info("serve", "event=listening what=grpc port=%d",
                sy_grpc_server_port(fronts->grpc_server));
    return SY_OK;
}

static int start_tracing(struct sy_serve_fronts *fronts)
{
    struct sy_front *front = &fronts->front;

    SY_TRY(sy_trace_settings_create(fronts->otlp.url != NULL, fronts->otlp_sample,
                                    &front->trace_settings));
    fronts->otlp.version = SWITCHYARD_VERSION;
    if (fronts->otlp.url && sy_otlp_create(front->base, &fronts->otlp, &front->otlp) < 0)
        return sy_error_prefix(SY_EARG, "--otlp");
    return SY_OK;
}

int sy_serve_fronts_guard(struct sy_serve_fronts *fronts, const char *rpc_tcp)
{
    struct sy_front *front = &fronts->front;

    if (!fronts->tls_cert != !fronts->tls_key)
        return sy_error_set(SY_EARG, "--tls-cert and --tls-key: give both, or none");
    SY_TRY(sy_access_create(&fronts->access, &front->access));
    if (fronts->tls_cert)
        SY_TRY(sy_tls_server_create(fronts->tls_cert, fronts->tls_key, &front->tls));
    SY_TRY(sy_access_check_listen(front->access, "tcp", rpc_tcp));
    SY_TRY(sy_access_check_listen(front->access, "http", fronts->http.address));
    SY_TRY(sy_access_check_listen(front->access, "grpc", fronts->grpc.address));
    return sy_access_check_listen(front->access, "metrics", fronts->metrics.address);
}

int sy_serve_fronts_start(struct sy_serve_fronts *fronts)
{
    struct sy_front *front = &fronts->front;

    SY_TRY(sy_front_stats_create(&front->stats));
    SY_TRY(sy_offload_create(front->base, OFFLOAD_THREADS, MOST_OFFLOADED, &front->offload));
    SY_TRY(sy_offload_create(front->base, 1, MOST_OFFLOADED, &front->moves));
    SY_TRY(sy_sessions_create(front, &fronts->sessions, &front->sessions));
    if (front->handlers->region_add)
        SY_TRY(sy_shared_regions_create(front, &front->regions));
    SY_TRY(start_tracing(fronts));
    SY_TRY(sy_metrics_routes_create(front, SWITCHYARD_VERSION, &fronts->metrics_routes));
    SY_TRY(start_http(fronts));
    return start_grpc(fronts);
}

void sy_serve_fronts_drain(struct sy_serve_fronts *fronts)
{
    sy_grpc_server_drain(fronts->grpc_server);
}

uint64_t sy_serve_fronts_unsent(const struct sy_serve_fronts *fronts)
{
    struct sy_offload *offload = fronts->front.offload;

    return sy_http_server_unsent(fronts->http_server) + sy_grpc_server_unsent(fronts->grpc_server) +
           (offload && !sy_offload_is_idle(offload));
}

void sy_serve_fronts_stop(struct sy_serve_fronts *fronts)
{
    sy_offload_destroy(fronts->front.offload); /* first: what it works on belongs to requests */
    fronts->front.offload = NULL;
    sy_offload_destroy(fronts->front.moves);
    fronts->front.moves = NULL;
    sy_http_server_destroy(fronts->http_server);
    sy_http_server_destroy(fronts->metrics_server);
    sy_grpc_server_destroy(fronts->grpc_server);
    sy_page_destroy(fronts->page);
    sy_metrics_routes_destroy(fronts->metrics_routes);
    if (fronts->front.otlp)
        sy_otlp_drain(fronts->front.otlp, OTLP_DRAIN_NS);
    sy_sessions_close(fronts->front.sessions);
    sy_shared_regions_destroy(fronts->front.regions);
    fronts->front.regions = NULL;
}

void sy_serve_fronts_finish(struct sy_serve_fronts *fronts)
{
    sy_otlp_destroy(fronts->front.otlp);
    sy_sessions_destroy(fronts->front.sessions);
    sy_trace_settings_destroy(fronts->front.trace_settings);
    sy_front_stats_destroy(fronts->front.stats);
    sy_access_destroy(fronts->front.access);
    sy_tls_destroy(fronts->front.tls);
}

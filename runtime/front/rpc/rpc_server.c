#include "runtime/front/rpc/rpc_server.h"

#include <errno.h>
#include <event2/listener.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/service_manager.h"
#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_internal.h"
#include "runtime/front/rpc/rpc_receive.h"
#include "runtime/front/tcp_listen.h"
#include "runtime/net/stale_socket.h"

#define LISTENER_FLAGS (LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC)

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
                      int n_bytes, void *ctx)
{
    struct sy_rpc_server *server = ctx;

    (void)listener, (void)n_bytes;
    if (server->n_connections >= server->limits.max_connections) {
        int status = sy_error_set(SY_EBUSY, "%d connections are open already; try again later",
                                  server->n_connections);
        if (!server->full) /* said once, not for each of a flood */
            sy_log_warn("rpc", "event=refused why=\"%s\"", sy_error_text());
        server->full = true;
        sy_rpc_refuse(fd, status, sy_error_text());
        close(fd);
        return;
    }
    server->full = false;
    if (address->sa_family != AF_UNIX)
        sy_net_set_tcp(fd);
    if (sy_rpc_connection_create(server, fd, address->sa_family == AF_UNIX) < 0) {
        sy_log_warn("rpc", "event=refused why=\"%s\"", sy_error_text());
        close(fd);
    }
}

/* Out of fds, mostly: a level-triggered listener would spin, so it rests until the next tick. */
static void on_accept_error(struct evconnlistener *listener, void *ctx)
{
    struct sy_rpc_server *server = ctx;

    sy_net_accept_failed("rpc", &server->accept_said_ns);
    evconnlistener_disable(listener);
}

static void look_for_stalled(struct sy_rpc_server *server, sy_ns now)
{
    struct sy_rpc_connection *connection = server->connections, *next;

    for (; connection; connection = next) {
        next = connection->next;
        if (sy_rpc_connection_stalled(connection, now)) {
            sy_log_info("rpc", "event=stalled buffered_bytes=%llu unsent_bytes=%llu",
                        (unsigned long long)connection->used,
                        (unsigned long long)connection->unsent_bytes);
            sy_rpc_connection_close(connection);
        } else {
            sy_rpc_receive_tick(connection, now);
        }
    }
}

static void on_tick(evutil_socket_t fd, short what, void *ctx)
{
    struct sy_rpc_server *server = ctx;
    sy_ns now = sy_clock_now();

    (void)fd, (void)what;
    if (sy_stall_look_counts(&server->looks, now))
        look_for_stalled(server, now);
    if (server->unix_listener)
        evconnlistener_enable(server->unix_listener);
    if (server->tcp_listener)
        evconnlistener_enable(server->tcp_listener);
}

/* ---- addresses --------------------------------------------------------------------------------------- */

static int unix_address(const char *path, struct sockaddr_un *out)
{
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    if (!*path)
        return sy_error_set(SY_EARG, "a socket path must not be empty");
    if (strlen(path) >= sizeof(out->sun_path))
        return sy_error_set(SY_EARG, "socket path %s has %zu bytes; at most %zu are possible", path,
                            strlen(path), sizeof(out->sun_path) - 1);
    strcpy(out->sun_path, path);
    return SY_OK;
}

static int listen_on(struct sy_rpc_server *server, int fd, struct evconnlistener **out)
{
    evutil_make_socket_nonblocking(fd);
    *out = evconnlistener_new(server->front->base, on_accept, server, LISTENER_FLAGS, 128, fd);
    if (!*out) {
        close(fd);
        return sy_error_set(SY_EIO, "cannot listen: %s", strerror(errno));
    }
    evconnlistener_set_error_cb(*out, on_accept_error);
    return SY_OK;
}

/* A name or a number. */
static int find_group(const char *name, gid_t *out)
{
    const struct group *group = getgrnam(name);
    char *end;
    unsigned long number = strtoul(name, &end, 10);

    *out = group ? group->gr_gid : (gid_t)number;
    return group || (*name && !*end && number < UINT32_MAX)
               ? SY_OK
               : sy_error_set(SY_EARG, "--socket-group %s: there is no such group", name);
}

/* The file's mode and group decide which users may connect; the kernel enforces them. */
static int open_to_others(const struct sy_rpc_config *config)
{
    gid_t gid;

    if (config->socket_group) {
        SY_TRY(find_group(config->socket_group, &gid));
        if (lchown(config->socket_path, (uid_t)-1, gid))
            return sy_error_set(SY_EARG, "--socket-group %s: %s", config->socket_group,
                                strerror(errno));
    }
    mode_t mode = config->socket_mode ? config->socket_mode : config->socket_group ? 0660 : 0600;

    if (chmod(config->socket_path, mode))
        return sy_error_set(SY_EIO, "--socket-mode: %s", strerror(errno));
    return SY_OK;
}

static int listen_unix(struct sy_rpc_server *server, const struct sy_rpc_config *config)
{
    const char *path = config->socket_path;
    struct sockaddr_un address;
    mode_t mask;
    int fd, failed;

    SY_TRY(unix_address(path, &address));
    fd = sy_service_socket((const struct sockaddr *)&address, sizeof(address));
    if (fd >= 0) /* the service manager removes its file */
        return listen_on(server, fd, &server->unix_listener);
    SY_TRY(sy_net_clear_stale(&address));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sy_error_set(SY_EIO, "cannot make a socket: %s", strerror(errno));
    mask = umask(0177); /* 0600 from its first moment */
    failed = bind(fd, (struct sockaddr *)&address, sizeof(address));
    umask(mask);
    if (failed) {
        int error = errno;

        close(fd);
        return sy_error_set(SY_EIO, "cannot bind to %s: %s", path, strerror(error));
    }
    server->socket_path = strdup(path);
    failed = open_to_others(config);
    if (failed) {
        close(fd);
        return failed;
    }
    return listen_on(server, fd, &server->unix_listener);
}

static int listen_tcp(struct sy_rpc_server *server, const char *text)
{
    int fd;

    SY_TRY(sy_tcp_bind(text, &fd, &server->port));
    sy_log_info("rpc", "event=listening what=tcp port=%d", server->port);
    return listen_on(server, fd, &server->tcp_listener);
}

/* ---- create and destroy ------------------------------------------------------------------------------- */

static void set_defaults(struct sy_rpc_limits *limits)
{
    if (!limits->message_bytes)
        limits->message_bytes = SY_RPC_MESSAGE_BYTES;
    if (!limits->buffered_bytes)
        limits->buffered_bytes = 1ull << 30;
    if (!limits->max_connections)
        limits->max_connections = 256;
    if (!limits->max_outstanding)
        limits->max_outstanding = 64;
    if (limits->max_outstanding > 256) /* what a cancel of all can name */
        limits->max_outstanding = 256;
    if (!limits->stall_ns)
        limits->stall_ns = 30 * SY_NS_PER_S;
    if (!limits->receive_ns)
        limits->receive_ns = 60 * SY_NS_PER_S;
    if (!limits->unsent_bytes)
        limits->unsent_bytes = 512ull << 20;
    if (!limits->region_bytes)
        limits->region_bytes = SY_RPC_REGION_BYTES;
    if (!limits->all_region_bytes)
        limits->all_region_bytes = SY_MAX(SY_RPC_ALL_REGION_BYTES, limits->region_bytes);
    if (!limits->max_regions)
        limits->max_regions = 64;
}

static int start_tick(struct sy_rpc_server *server)
{
    sy_ns period = SY_MIN(server->limits.stall_ns / 2, SY_NS_PER_S);
    struct timeval interval = {(time_t)(period / SY_NS_PER_S),
                               (suseconds_t)(period % SY_NS_PER_S / SY_NS_PER_US)};

    server->looks = (struct sy_stall_looks){sy_clock_now(), period, false};
    server->tick = event_new(server->front->base, -1, EV_PERSIST, on_tick, server);
    if (!server->tick || event_add(server->tick, &interval))
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a timer");
    return SY_OK;
}

int sy_rpc_server_create(const struct sy_rpc_config *config, struct sy_front *front,
                         struct sy_rpc_server **out)
{
    struct sy_rpc_server *server = calloc(1, sizeof(*server));
    int status;

    SY_TRY_ALLOC(server, "no memory for the RPC server");
    server->front = front;
    server->limits = config->limits;
    server->refs = 1;
    server->dispatch = sy_rpc_dispatch;
    set_defaults(&server->limits);
    SY_TRY_GOTO(start_tick(server), fail);
    SY_TRY_GOTO(sy_closed_watch_create(front->base, sy_rpc_connection_gone, &server->closed_watch),
                fail);
    if (config->socket_path)
        SY_TRY_GOTO(listen_unix(server, config), fail);
    if (config->tcp_address)
        SY_TRY_GOTO(listen_tcp(server, config->tcp_address), fail);
    *out = server;
    return SY_OK;
fail:
    sy_rpc_server_destroy(server);
    return status;
}

void sy_rpc_server_destroy(struct sy_rpc_server *server)
{
    if (!server)
        return;
    if (server->unix_listener)
        evconnlistener_free(server->unix_listener);
    if (server->tcp_listener)
        evconnlistener_free(server->tcp_listener);
    server->unix_listener = server->tcp_listener = NULL;
    if (server->socket_path)
        unlink(server->socket_path);
    if (server->tick)
        event_free(server->tick);
    server->tick = NULL;
    while (server->connections) {
        (void)sy_rpc_reply_flush(server->connections); /* what the loop's last turn was to send */
        sy_rpc_connection_close(server->connections);
    }
    sy_closed_watch_destroy(server->closed_watch);
    sy_rpc_server_release(server);
}

int sy_rpc_server_port(const struct sy_rpc_server *server)
{
    return server->port;
}

int sy_rpc_server_connections(const struct sy_rpc_server *server)
{
    return server->n_connections;
}

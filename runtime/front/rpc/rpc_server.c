#include "runtime/front/rpc/rpc_server.h"

#include <errno.h>
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
#include "runtime/net/stale_socket.h"

static int accept_client(struct sy_front_server *base, int fd, bool is_unix)
{
    return sy_rpc_connection_create((struct sy_rpc_server *)base, fd, is_unix);
}

static void refuse_client(struct sy_front_server *base, int fd, int status)
{
    (void)base;
    sy_rpc_refuse(fd, status, sy_error_text());
}

static void *first(struct sy_front_server *base)
{
    return LIST_FIRST(&((struct sy_rpc_server *)base)->connections);
}

static void *next(void *connection)
{
    return LIST_NEXT((struct sy_rpc_connection *)connection, link);
}

static void look(void *ctx, sy_ns now, bool counts)
{
    struct sy_rpc_connection *connection = ctx;

    if (!counts)
        return;
    if (sy_rpc_connection_stalled(connection, now)) {
        sy_log_info("rpc", "event=stalled buffered_bytes=%llu unsent_bytes=%llu",
                    (unsigned long long)connection->used,
                    (unsigned long long)connection->unsent_bytes);
        sy_rpc_connection_close(connection);
    } else {
        sy_rpc_receive_tick(connection, now);
        sy_rpc_long_after_turn(connection, 0);
    }
}

static void free_server(struct sy_front_server *base)
{
    struct sy_rpc_server *server = (struct sy_rpc_server *)base;

    free(server->socket_path);
    free(server);
}

static const struct sy_front_server_ops ops = {
    .name = "rpc",
    .accept = accept_client,
    .refuse = refuse_client,
    .first = first,
    .next = next,
    .look = look,
    .free = free_server,
};

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
        return sy_front_server_listen(&server->base, fd);
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
    return sy_front_server_listen(&server->base, fd);
}

static int listen_tcp(struct sy_rpc_server *server, const char *text)
{
    SY_TRY(sy_front_server_listen_tcp(&server->base, text));
    sy_log_info("rpc", "event=listening what=tcp port=%d", server->base.port);
    return SY_OK;
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
    if (limits->max_outstanding > 256) /* the number of requests that one cancel can name */
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

int sy_rpc_server_create(const struct sy_rpc_config *config, struct sy_front *front,
                         struct sy_rpc_server **out)
{
    struct sy_rpc_server *server = calloc(1, sizeof(*server));
    int status;

    SY_TRY_ALLOC(server, "no memory for the RPC server");
    sy_front_server_init(&server->base, &ops, front->base);
    server->front = front;
    server->limits = config->limits;
    server->dispatch = sy_rpc_dispatch;
    set_defaults(&server->limits);
    server->base.max_connections = server->limits.max_connections;
    SY_TRY_GOTO(sy_front_server_start_looks(&server->base,
                                            SY_MIN(server->limits.stall_ns / 2, SY_NS_PER_S)),
                fail);
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
    sy_front_server_stop(&server->base);
    if (server->socket_path)
        unlink(server->socket_path);
    while (!LIST_EMPTY(&server->connections)) {
        struct sy_rpc_connection *connection = LIST_FIRST(&server->connections);

        (void)sy_rpc_reply_flush(connection); /* output of the loop's last turn */
        sy_rpc_connection_close(connection);
    }
    sy_closed_watch_destroy(server->closed_watch);
    sy_front_server_release(&server->base);
}

int sy_rpc_server_port(const struct sy_rpc_server *server)
{
    return server->base.port;
}

int sy_rpc_server_connections(const struct sy_rpc_server *server)
{
    return server->base.n_connections;
}

uint64_t sy_rpc_server_unsent(const struct sy_rpc_server *server)
{
    const struct sy_rpc_connection *connection = server ? LIST_FIRST(&server->connections) : NULL;
    uint64_t bytes = 0;

    for (; connection; connection = LIST_NEXT(connection, link))
        bytes += connection->unsent_bytes;
    return bytes;
}

/* The client of a running server: blocking calls over one socket, every wait bounded by the call's deadline. */
#include "runtime/client/switchyard.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/base/tcp_port.h"
#include "runtime/client/client_internal.h"
#include "runtime/net/tls.h"

#define DEFAULT_TIMEOUT_MS 60000u

static int connect_bounded(sy_client *client, const struct sockaddr *address, socklen_t n_bytes,
                           const char *text)
{
    static const int send_bytes =
        2 << 20; /* for `switchyard attach`, through which tensors go as bytes */
    int error = 0;
    socklen_t n = sizeof(error);

    client->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (client->fd < 0)
        return sy_error_set(SY_EIO, "cannot make a socket: %s", strerror(errno));
    if (address->sa_family == AF_UNIX) /* TCP sizes its own */
        (void)setsockopt(client->fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    if (connect(client->fd, address, n_bytes) == 0)
        return SY_OK;
    if (errno != EINPROGRESS)
        return sy_error_set(SY_EPEER, "no server answers on %s: %s", text, strerror(errno));
    SY_TRY(sy_client_wait(client, POLLOUT));
    getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (error)
        return sy_error_set(SY_EPEER, "no server answers on %s: %s", text, strerror(error));
    return SY_OK;
}

static int connect_unix(sy_client *client, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof(address.sun_path))
        return sy_error_set(SY_EARG, "socket path %s is longer than %zu bytes", path,
                            sizeof(address.sun_path) - 1);
    strcpy(address.sun_path, path);
    return connect_bounded(client, (struct sockaddr *)&address, sizeof(address), path);
}

static int connect_tcp(sy_client *client, const char *text, const sy_client_security *security)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *info = NULL;
    const char *colon = strrchr(text, ':');
    char host[256];
    int failed, status;

    if (!colon || (size_t)(colon - text) >= sizeof(host))
        return sy_error_set(SY_EARG, "\"tcp:%s\" is not tcp:HOST:PORT", text);
    if (*text == '[' && colon > text + 2 && colon[-1] == ']') /* [::1]:port */
        snprintf(host, sizeof(host), "%.*s", (int)(colon - text) - 2, text + 1);
    else
        snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    failed = sy_tcp_port_is_possible(colon + 1, 1)
                 ? getaddrinfo(*host ? host : "127.0.0.1", colon + 1, &hints, &info)
                 : EAI_SERVICE;
    if (failed == EAI_SERVICE)
        return sy_error_set(SY_EARG, "%s: '%s' is not a port; 1 to 65535", text, colon + 1);
    if (failed)
        return sy_error_set(SY_EARG, "cannot resolve %s: %s", text, gai_strerror(failed));
    status = SY_EPEER;
    for (const struct addrinfo *at = info; at && status == SY_EPEER; at = at->ai_next) {
        if (client->fd >= 0)
            close(client->fd);
        status = connect_bounded(client, at->ai_addr, at->ai_addrlen, text);
    }
    freeaddrinfo(info);
    SY_TRY(status);
    sy_net_set_tcp(client->fd);
    return sy_client_start_tls(client, *host ? host : "127.0.0.1", security);
}

int sy_client_connect(const char *address, unsigned timeout_ms, sy_client **out)
{
    return sy_client_connect_secure(address, timeout_ms, NULL, out);
}

int sy_client_connect_secure(const char *address, unsigned timeout_ms,
                             const sy_client_security *security, sy_client **out)
{
    bool is_tcp = strncmp(address, "tcp:", 4) == 0;
    sy_client *client = calloc(1, sizeof(*client));
    int status;

    *out = client; /* also on failure: it holds the error's words, and is closed as usual */
    if (!client)
        return SY_ENOMEM_HOST;
    client->fd = client->received_fd = -1;
    client->timeout_ns = (timeout_ms ? timeout_ms : DEFAULT_TIMEOUT_MS) * SY_NS_PER_MS;
    client->deadline = sy_clock_now() + client->timeout_ns;
    client->is_tcp = is_tcp;
    if (is_tcp)
        status = connect_tcp(client, address + 4, security);
    else
        status = connect_unix(client, strncmp(address, "unix:", 5) == 0 ? address + 5 : address);
    if (status == SY_OK)
        status = sy_client_show_token(client, is_tcp, security);
    if (status < 0)
        snprintf(client->error, sizeof(client->error), "%s", sy_error_text());
    return status;
}

void sy_client_close(sy_client *client)
{
    if (!client)
        return;
    sy_client_end_tls(client);
    if (client->fd >= 0)
        close(client->fd);
    sy_client_region_orphan_all(client);
    sy_client_long_drop(client);
    free(client->buffer);
    free(client);
}

const char *sy_client_error(const sy_client *client)
{
    return client ? client->error : "no memory for a client";
}

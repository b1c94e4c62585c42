#include "runtime/front/tcp_listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/service_manager.h"
#include "runtime/base/status.h"
#include "runtime/base/tcp_port.h"

static int split_tcp(const char *text, char *host, size_t host_bytes, const char **port)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;

    if (!colon || !colon[1] || n >= host_bytes)
        return sy_error_set(SY_EARG, "\"%s\" is no HOST:PORT", text);
    if (n > 1 && text[0] == '[' && text[n - 1] == ']') { /* [::1]:port */
        text++;
        n -= 2;
    }
    snprintf(host, host_bytes, "%.*s", (int)n, n ? text : "");
    if (n == 0)
        snprintf(host, host_bytes, "127.0.0.1");
    *port = colon + 1;
    return SY_OK;
}

static int bind_tcp(const struct addrinfo *info, const char *text, int *out)
{
    int one = 1, fd = sy_service_socket(info->ai_addr, info->ai_addrlen);

    *out = fd;
    if (fd >= 0)
        return SY_OK;
    fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sy_error_set(SY_EIO, "cannot make a socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, info->ai_addr, info->ai_addrlen)) {
        int error = errno;

        close(fd);
        return sy_error_set(error == EADDRINUSE ? SY_EBUSY : SY_EIO, "cannot listen on %s: %s",
                            text, strerror(error));
    }
    *out = fd;
    return SY_OK;
}

static int port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t n = sizeof(address);

    if (getsockname(fd, (struct sockaddr *)&address, &n))
        return 0;
    return address.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&address)->sin6_port)
                                         : ntohs(((struct sockaddr_in *)&address)->sin_port);
}

int sy_tcp_bind(const char *address, int *out_fd, int *out_port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *info;
    char host[256];
    const char *port = NULL;
    int status, failed;

    SY_TRY(split_tcp(address, host, sizeof(host), &port));
    failed =
        sy_tcp_port_is_possible(port, 0) ? getaddrinfo(host, port, &hints, &info) : EAI_SERVICE;
    if (failed == EAI_SERVICE)
        return sy_error_set(SY_EARG, "%s: '%s' is not a port; 0 to 65535", address, port);
    if (failed)
        return sy_error_set(SY_EARG, "cannot resolve %s: %s", address, gai_strerror(failed));
    status = bind_tcp(info, address, out_fd);
    freeaddrinfo(info);
    SY_TRY(status);
    *out_port = port_of(*out_fd);
    return SY_OK;
}

static bool is_loopback(const struct sockaddr_storage *peer)
{
    if (peer->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)peer)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)peer)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) ||
           (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == IN_LOOPBACKNET);
}

static bool is_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
                              &((const struct sockaddr_in6 *)b)->sin6_addr);
}

bool sy_tcp_is_local(int fd)
{
    struct sockaddr_storage peer = {0}, own = {0};
    socklen_t peer_bytes = sizeof peer, own_bytes = sizeof own;

    if (fd < 0 || getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) ||
        (peer.ss_family != AF_INET && peer.ss_family != AF_INET6))
        return false;
    return is_loopback(&peer) || (getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
                                  own.ss_family == peer.ss_family && is_same_host(&own, &peer));
}

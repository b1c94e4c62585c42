/* Bytes to and from the server: every wait ends with the call's deadline. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/client/client_internal.h"
#include "runtime/net/tls.h"

int sy_client_wait(sy_client *client, short events)
{
    for (;;) {
        struct pollfd poller = {.fd = client->fd, .events = events};
        sy_ns now = sy_clock_now();
        int n;

        if (now >= client->deadline)
            return sy_error_set(SY_EDEADLINE, "the server did not answer within %llu ms",
                                (unsigned long long)(client->timeout_ns / SY_NS_PER_MS));
        n = poll(&poller, 1, (int)((client->deadline - now) / SY_NS_PER_MS) + 1);
        if (n > 0)
            return SY_OK;
        if (n < 0 && errno != EINTR)
            return sy_error_set(SY_EIO, "poll: %s", strerror(errno));
    }
}

int sy_client_send(sy_client *client, struct iovec *parts, int n_parts)
{
    while (n_parts > 0) {
        ssize_t n = sy_net_write(client->fd, client->tls, parts, (size_t)n_parts);

        if (n < 0 && errno == EAGAIN) {
            SY_TRY(sy_client_wait(client, POLLOUT));
            continue;
        }
        if (n < 0 && errno != EINTR)
            return sy_error_set(SY_EPEER, "the server is gone: %s", strerror(errno));
        for (; n_parts > 0 && n >= (ssize_t)parts->iov_len; n_parts--, parts++)
            n -= (ssize_t)parts->iov_len;
        if (n_parts > 0 && n > 0) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= (size_t)n;
        }
    }
    return SY_OK;
}

/* Receives available bytes, and a descriptor if the call expects one; otherwise the kernel drops it. */
static ssize_t receive_some(sy_client *client, void *to, uint64_t room)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {to, room};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct cmsghdr *header;
    ssize_t n;

    if (client->tls)
        return sy_tls_read(client->tls, part.iov_base, part.iov_len);
    if (client->expects_fd) {
        message.msg_control = control.space;
        message.msg_controllen = sizeof control.space;
    }
    n = recvmsg(client->fd, &message, MSG_CMSG_CLOEXEC);
    header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
        if (client->received_fd >= 0) /* a server that passes two */
            close(client->received_fd);
        memcpy(&client->received_fd, CMSG_DATA(header), sizeof(int));
    }
    return n;
}

/* A server with TLS closes at the first plain bytes, and its alert may be lost with them. */
static bool may_be_tls(const sy_client *client)
{
    return client->is_tcp && !client->tls && client->next_id == 0;
}

/* At least a byte of at most `room`; *n: how many. */
int sy_client_receive(sy_client *client, void *to, uint64_t room, uint64_t *n)
{
    for (;;) {
        ssize_t got = receive_some(client, to, room);

        *n = got > 0 ? (uint64_t)got : 0;
        if (got > 0)
            return SY_OK;
        if (got < 0 && errno == EAGAIN)
            SY_TRY(sy_client_wait(client, POLLIN));
        else if (got == 0 || errno != EINTR)
            return sy_error_set(SY_EPEER, "the server closed the connection%s%s%s",
                                *sy_tls_why(client->tls) ? ": " : "", sy_tls_why(client->tls),
                                may_be_tls(client) ? "; if its port speaks TLS, give --tls-ca "
                                                     "(tls_ca, SWITCHYARD_TLS_CA)"
                                                   : "");
    }
}

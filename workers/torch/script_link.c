#include "workers/torch/script_link.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/status.h"

static int open_socket(const char *path, struct sockaddr_un *address, int *out)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path)
        return sy_error_set(SY_EARG, "the script's socket %s: the path is longer than %zu bytes",
                            path, sizeof address->sun_path - 1);
    strcpy(address->sun_path, path);
    /* Where the queue of connections is full, connect() says so and does not wait. */
    *out = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return *out < 0 ? sy_error_set(SY_EIO, "the script's socket: %s", strerror(errno)) : SY_OK;
}

int sy_script_listen(const char *path, int *out_fd)
{
    struct sockaddr_un address;
    SY_TRY(open_socket(path, &address, out_fd));
    if (bind(*out_fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(*out_fd, 4) == 0)
        return SY_OK;
    int status = sy_error_set(SY_EIO, "the script's socket %s: %s", path, strerror(errno));
    close(*out_fd);
    *out_fd = -1;
    return status;
}

int sy_script_send(int fd, enum sy_script_word word, int value, int file)
{
    struct sy_script_packet packet = {.word = word, .value = value};
    struct iovec part = {&packet, sizeof packet};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    }
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof packet)
        return SY_OK;
    return sy_error_set(SY_EPEER, "the script's socket: %s", strerror(errno));
}

static void take_file(struct msghdr *message, int *file)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (*file < 0)
                *file = fd;
            else
                close(fd);
        }
    }
}

int sy_script_receive(int fd, int timeout_ms, struct sy_script_packet *packet, int *file)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct iovec part = {packet, sizeof *packet};
    char control[CMSG_SPACE(4 * sizeof(int))];
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    *file = -1;
    if (poll(&p, 1, timeout_ms) <= 0)
        return 0;
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0)
        return sy_error_set(SY_EPEER, "the script's socket was closed");
    take_file(&message, file);
    if (got == (ssize_t)sizeof *packet)
        return 1;
    if (*file >= 0)
        close(*file);
    *file = -1;
    return sy_error_set(SY_EPROTO, "a packet of %zd bytes on the script's socket", got);
}

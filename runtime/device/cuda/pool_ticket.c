#include "runtime/device/cuda/pool_ticket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/status.h"

#define TICKET_MAGIC   0x5359504fu /* "SYPO" */
#define TICKET_VERSION 1u

union fd_space {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int sy_pool_ticket_make(const struct sy_pool_ticket *ticket, int memory_fd, int *out_fd)
{
    struct sy_pool_ticket copy = *ticket;
    union fd_space space = {.bytes = {0}};
    struct iovec piece = {&copy, sizeof copy};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    int ends[2];
    copy.magic = TICKET_MAGIC;
    copy.version = TICKET_VERSION;
    if (memory_fd >= 0) {
        message.msg_control = space.bytes;
        message.msg_controllen = sizeof space.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &memory_fd, sizeof memory_fd);
    }
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) != 0)
        return sy_error_set(SY_ENOMEM_HOST, "cannot export the pool: socketpair: %s",
                            strerror(errno));
    ssize_t sent = sendmsg(ends[0], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    int why = errno;
    close(ends[0]);
    if (sent == (ssize_t)sizeof copy) {
        *out_fd = ends[1];
        return SY_OK;
    }
    close(ends[1]);
    return sy_error_set(SY_ENOMEM_HOST, "cannot export the pool: sendmsg: %s", strerror(why));
}

/* The descriptor that came along, or -1. */
static int passed_fd(struct msghdr *message)
{
    int fd = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
            c->cmsg_len == CMSG_LEN(sizeof fd))
            memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

int sy_pool_ticket_read(int fd, struct sy_pool_ticket *out, int *out_memory_fd)
{
    union fd_space space = {.bytes = {0}};
    struct iovec piece = {out, sizeof *out};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = space.bytes,
                             .msg_controllen = sizeof space.bytes};
    ssize_t got = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return sy_error_set(SY_EARG, "the file is not a pool of a CUDA device: %s",
                            strerror(errno));
    int memory_fd = passed_fd(&message);
    if (got != (ssize_t)sizeof *out || out->magic != TICKET_MAGIC ||
        out->version != TICKET_VERSION) {
        if (memory_fd >= 0)
            close(memory_fd);
        return sy_error_set(SY_EARG, "the socket holds no pool of a CUDA device of this version");
    }
    *out_memory_fd = memory_fd;
    return SY_OK;
}

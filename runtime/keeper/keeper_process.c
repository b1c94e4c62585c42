/* The process that keeps: it opens nothing, maps nothing, and waits. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/keeper/keeper.h"
#include "runtime/keeper/keeper_wire.h"
#include "runtime/sandbox/sandbox.h"

struct keeping {
    int owner; /* -1: none */
    int listener, image, book;
    sy_ns until_ns; /* without an owner: the end */
    sy_ns wait_ns;
};

/* False: the other side is gone. */
static bool hand_over(const struct keeping *k, int to)
{
    char what = SY_KEEPER_HERE;
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {&what, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    int fds[2] = {k->image, k->book};
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(head), fds, sizeof fds);
    return sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

bool sy_keeper_is_own_user(int fd)
{
    struct ucred peer;
    socklen_t n = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.uid == geteuid();
}

/* KE1. */
static void take_owner(struct keeping *k)
{
    const char busy = SY_KEEPER_BUSY;
    int fd = accept4(k->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (!sy_keeper_is_own_user(fd) || k->owner >= 0) {
        (void)!send(fd, &busy, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
    } else if (hand_over(k, fd)) {
        k->owner = fd;
    } else {
        close(fd);
    }
}

static void read_owner(struct keeping *k)
{
    char what = 0;
    ssize_t n = recv(k->owner, &what, 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 1 && what == SY_KEEPER_DROP)
        _exit(0);
    if (n == 1) /* nothing that this version knows */
        return;
    close(k->owner);
    k->owner = -1;
    k->until_ns = sy_clock_now() + k->wait_ns;
}

/* Milliseconds to wait, at most 10 s, since the clock stops while the machine is suspended; -1: without limit. */
static int poll_timeout_ms(const struct keeping *k)
{
    if (k->owner >= 0)
        return -1;
    sy_ns now = sy_clock_now();
    sy_ns left = k->until_ns > now ? k->until_ns - now : 0;
    return (int)((left < 10 * SY_NS_PER_S ? left : 10 * SY_NS_PER_S) / SY_NS_PER_MS + 1);
}

/* The owner's end is heard before a new one is taken: one that was killed closed its socket before anybody could follow it. */
static void one_turn(struct keeping *k)
{
    struct pollfd fds[2] = {{.fd = k->listener, .events = POLLIN},
                            {.fd = k->owner, .events = POLLIN}};
    int n = poll(fds, 2, poll_timeout_ms(k));
    if (n < 0 && errno != EINTR)
        _exit(1);
    if (n > 0 && k->owner >= 0 && fds[1].revents)
        read_owner(k);
    if (n > 0 && fds[0].revents)
        take_owner(k);
    if (k->owner < 0 && sy_clock_now() >= k->until_ns)
        _exit(0);
}

void sy_keeper_run(int owner, int listener, int image, int book, int seconds)
{
    struct keeping k = {.owner = owner,
                        .listener = listener,
                        .image = image,
                        .book = book,
                        .wait_ns = (sy_ns)seconds * SY_NS_PER_S};
    struct sy_sandbox_state state;
    prctl(PR_SET_NAME, "switchyard-keep");
    prctl(PR_SET_DUMPABLE, 0);
    if (chdir("/") != 0 || sy_sandbox_enter_keeper(&state) < 0)
        _exit(1);
    for (;;)
        one_turn(&k);
}

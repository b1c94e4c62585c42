/* io_uring, by doing it: a ring, one read of /proc/self/exe, its completion. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <string.h>
#include <unistd.h>

#include "runtime/doctor/probe.h"
#include "runtime/doctor/probe_child.h"

#define TIMEOUT_NS (3 * SY_NS_PER_S)

/* 0 or a negative errno. */
static int read_once(struct io_uring *ring, int fd)
{
    struct __kernel_timespec most = {.tv_sec = 2};
    struct io_uring_cqe *cqe;
    char byte;
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (!sqe)
        return -ENOSPC;
    io_uring_prep_read(sqe, fd, &byte, 1, 0);
    int got = io_uring_submit(ring);
    if (got >= 0)
        got = io_uring_wait_cqe_timeout(ring, &cqe, &most);
    if (got < 0)
        return got;
    return cqe->res == 1 ? 0 : cqe->res < 0 ? cqe->res : -EIO;
}

static void probe(struct sy_doctor_facts *facts, void *ctx)
{
    struct io_uring ring;
    (void)ctx;
    int failed = io_uring_queue_init(4, &ring, 0);
    if (failed == 0) {
        int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        failed = fd < 0 ? -errno : read_once(&ring, fd);
        if (fd >= 0)
            close(fd);
        io_uring_queue_exit(&ring);
    }
    if (failed < 0)
        sy_doctor_text(facts->uring_why, strerror(-failed));
}

void sy_probe_uring(struct sy_doctor_facts *facts)
{
    sy_probe_in_child(facts, probe, NULL, TIMEOUT_NS, facts->uring_why);
}

#include "runtime/keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/shared_memory.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/service_manager.h"
#include "runtime/base/status.h"
#include "runtime/keeper/keeper_wire.h"

#define ANSWER_MS 1000
#define IMAGE     "switchyard-image" /* names in /proc and in a service manager's store */
#define BOOK      "switchyard-book"

extern char **environ;

struct sy_keeper {
    struct sockaddr_un address;
    struct sy_shared_memory book_memory;
    struct sy_image_book book;
    int image_fd;
    int socket; /* to the keeper's process; -1: a service manager keeps, or nobody */
    pid_t pid;  /* pid of a keeper that this process started; 0: another process did */
    bool was_kept, is_stored, keeps_on_stop;
};

/* ---- an image that is there ------------------------------------------------------------------------------------ */

static uint64_t page_aligned(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return SY_ALIGN_UP(bytes, page);
}

/* KE4: a file that its maker could cut short would end this process by SIGBUS. */
static int check_file(int fd, uint64_t bytes, const char *what)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return sy_error_set(SY_ECORRUPT, "%s is not sealed against shrinking", what);
    if (fstat(fd, &file) != 0 || (uint64_t)file.st_size != page_aligned(bytes))
        return sy_error_set(SY_ECORRUPT, "%s has %lld bytes, %llu are asked for", what,
                            (long long)file.st_size, (unsigned long long)bytes);
    return SY_OK;
}

/* Takes both descriptors over if it succeeds. */
static int take_files(struct sy_keeper *k, uint64_t image_bytes, int image, int book)
{
    SY_TRY(check_file(image, image_bytes, "the kept image"));
    SY_TRY(check_file(book, sy_image_book_bytes(), "the kept image's book"));
    SY_TRY(sy_shared_memory_map(&k->book_memory, book, sy_image_book_bytes(), true));
    int status = sy_image_book_take(&k->book, k->book_memory.base, image_bytes);
    if (status < 0) {
        munmap(k->book_memory.base, k->book_memory.bytes);
        k->book_memory = (struct sy_shared_memory){.fd = -1};
        return status;
    }
    k->image_fd = image;
    k->was_kept = true;
    sy_log_info("keeper", "event=image_taken groups=%d", sy_image_book_n(&k->book));
    return SY_OK;
}

static int take_or_close(struct sy_keeper *k, uint64_t image_bytes, const int fds[2])
{
    int status = take_files(k, image_bytes, fds[0], fds[1]);
    for (int i = 0; status < 0 && i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return status;
}

/* ---- asking a keeper ------------------------------------------------------------------------------------------- */

static bool has_answer(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, ANSWER_MS) == 1;
}

/* The keeper's answer, and two descriptors; 0: it closed, or says nothing for a second. */
static char receive_files(int fd, int fds[2])
{
    char what = 0;
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {&what, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    if (!has_answer(fd) || recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1)
        return 0;
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(2 * sizeof(int)))
        memcpy(fds, CMSG_DATA(head), 2 * sizeof(int));
    return what == SY_KEEPER_HERE && fds[1] < 0 ? 0 : what;
}

/* Ends a keeper, and waits until it is gone: its name is free then. */
static void drop_keeper(int fd)
{
    const char drop = SY_KEEPER_DROP;
    char rest;
    if (send(fd, &drop, 1, MSG_NOSIGNAL) == 1 && has_answer(fd))
        (void)!recv(fd, &rest, 1, MSG_DONTWAIT);
    close(fd);
}

/* SY_OK whether there is one or not. EBUSY. */
static int ask_keeper(struct sy_keeper *k, uint64_t image_bytes)
{
    int fds[2] = {-1, -1};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sy_error_set(SY_EIO, "no socket to ask for a kept image: %s", strerror(errno));
    const struct timeval patience = {
        .tv_sec = ANSWER_MS / 1000}; /* a keeper that is stopped has a full queue */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (const struct sockaddr *)&k->address, sizeof k->address) != 0) {
        close(fd);
        return SY_OK;
    }
    if (!sy_keeper_is_own_user(fd)) {
        close(fd);
        return sy_error_set(SY_EDENIED, "%s is another user's socket", k->address.sun_path);
    }
    char said = receive_files(fd, fds);
    if (said == SY_KEEPER_HERE && take_or_close(k, image_bytes, fds) == SY_OK) {
        k->socket = fd;
        return SY_OK;
    }
    if (said == SY_KEEPER_HERE) {
        sy_log_warn("keeper", "event=image_dropped why=\"%s\"", sy_error_text());
        drop_keeper(fd);
        return SY_OK;
    }
    close(fd);
    if (said == SY_KEEPER_BUSY)
        return sy_error_set(SY_EBUSY, "another server has the image that is kept at %s",
                            k->address.sun_path);
    sy_log_warn("keeper", "event=image_dropped why=\"the keeper at %s does not answer\"",
                k->address.sun_path);
    return SY_OK;
}

/* ---- a new image ----------------------------------------------------------------------------------------------- */

static int make_files(struct sy_keeper *k, uint64_t image_bytes)
{
    SY_TRY(sy_shared_memory_create(&k->book_memory, BOOK, sy_image_book_bytes()));
    sy_image_book_start(&k->book, k->book_memory.base, image_bytes);
    int fd = sy_shared_memory_file(IMAGE, image_bytes);
    SY_TRY(fd);
    k->image_fd = fd;
    return SY_OK;
}

static int listen_at(const struct sockaddr_un *address)
{
    struct stat there;
    if (lstat(address->sun_path, &there) == 0 && S_ISSOCK(there.st_mode))
        unlink(address->sun_path); /* nobody answered there (ask_keeper) */
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0177);
    bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)address, sizeof *address) == 0;
    umask(before);
    if (bound && listen(fd, 4) == 0)
        return fd;
    int status =
        sy_error_set(SY_EIO, "cannot keep an image at %s: %s", address->sun_path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return status;
}

/* Signals are as after login, no terminal's reach it, and nothing of this process but the four descriptors. */
static int run_program(struct sy_keeper *k, const char *program, const int fds[4], int seconds)
{
    char text[16];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    char *const argv[] = {(char *)(program ? program : "/proc/self/exe"), "keep", text, NULL};
    char *const nothing[] = {NULL};
    snprintf(text, sizeof text, "%d", seconds);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
    for (int i = 0; i < 4; i++) /* above all that they become, so that none is overwritten */
        posix_spawn_file_actions_adddup2(&actions, fds[i], SY_KEEPER_OWNER_FD + i);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int error = posix_spawn(&k->pid, argv[0], &actions, &attributes, argv, nothing);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        k->pid = 0;
    return error ? sy_error_set(SY_EIO, "cannot start a keeper: %s", strerror(error)) : SY_OK;
}

static int start_keeper(struct sy_keeper *k, const struct sy_keeper_config *config)
{
    int pair[2], high[4] = {-1, -1, -1, -1}, status = SY_OK;
    int listener = listen_at(&k->address);
    SY_TRY(listener);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        close(listener);
        return sy_error_set(SY_EIO, "no socket for a keeper: %s", strerror(errno));
    }
    const int fds[4] = {pair[1], listener, k->image_fd, k->book_memory.fd};
    for (int i = 0; i < 4 && status == SY_OK; i++) {
        high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, SY_KEEPER_BOOK_FD + 1);
        if (high[i] < 0)
            status = sy_error_set(SY_EIO, "no descriptor for a keeper: %s", strerror(errno));
    }
    if (status == SY_OK)
        status = run_program(k, config->program, high, config->seconds);
    for (int i = 0; i < 4; i++)
        if (high[i] >= 0)
            close(high[i]);
    close(listener);
    close(pair[1]);
    if (status < 0)
        close(pair[0]);
    else
        k->socket = pair[0];
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static int find_or_make(struct sy_keeper *k, const struct sy_keeper_config *config)
{
    int stored[2] = {sy_service_stored(IMAGE), sy_service_stored(BOOK)};
    k->is_stored = sy_service_stores();
    if ((stored[0] >= 0 || stored[1] >= 0) && /* one alone: killed between the two */
        take_or_close(k, config->image_bytes, stored) < 0) {
        sy_log_warn("keeper", "event=image_dropped why=\"%s\"", sy_error_text());
        sy_service_forget(IMAGE);
        sy_service_forget(BOOK);
    }
    if (!k->was_kept && !k->is_stored)
        SY_TRY(ask_keeper(k, config->image_bytes));
    if (k->was_kept)
        return SY_OK;
    SY_TRY(make_files(k, config->image_bytes));
    if (!k->is_stored)
        return start_keeper(k, config);
    sy_service_store(IMAGE, k->image_fd);
    sy_service_store(BOOK, k->book_memory.fd);
    return SY_OK;
}

int sy_keeper_open(const struct sy_keeper_config *config, struct sy_keeper **out)
{
    struct sy_keeper *k = calloc(1, sizeof *k);
    SY_TRY_ALLOC(k, "no memory for a keeper");
    k->image_fd = k->socket = k->book_memory.fd = -1;
    k->keeps_on_stop = config->keeps_on_stop;
    k->address.sun_family = AF_UNIX;
    int n = snprintf(k->address.sun_path, sizeof k->address.sun_path, "%s", config->socket_path);
    int status = SY_OK;
    if (n < 1 || (size_t)n >= sizeof k->address.sun_path)
        status =
            sy_error_set(SY_EARG, "%s is longer than a socket's path may be", config->socket_path);
    if (status == SY_OK)
        status = find_or_make(k, config);
    if (status < 0) {
        k->keeps_on_stop = true; /* nothing of its own is to be dropped */
        sy_keeper_close(k);
        return status;
    }
    *out = k;
    return SY_OK;
}

void sy_keeper_close(struct sy_keeper *k)
{
    if (!k)
        return;
    if (k->is_stored && !k->keeps_on_stop) {
        sy_service_forget(IMAGE);
        sy_service_forget(BOOK);
    }
    if (k->socket >= 0 && k->keeps_on_stop) {
        close(k->socket);
    } else if (k->socket >= 0) {
        unlink(k->address.sun_path);
        drop_keeper(k->socket);
        if (k->pid > 0)
            (void)waitpid(k->pid, NULL, WNOHANG); /* it has closed its socket, so it ends */
    }
    sy_shared_memory_finish(&k->book_memory);
    if (k->image_fd >= 0)
        close(k->image_fd);
    free(k);
}

int sy_keeper_image_fd(const struct sy_keeper *k)
{
    return k->image_fd;
}

struct sy_image_book *sy_keeper_book(struct sy_keeper *k)
{
    return &k->book;
}

#include "runtime/base/service_manager.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/status.h"

#define FIRST_FD   3 /* SD_LISTEN_FDS_START */
#define MAX_STORED 4

static struct {
    int fds[SY_SERVICE_MAX_SOCKETS]; /* -1: taken */
    int n_fds;
    struct {
        char name[32];
        int fd;
    } stored[MAX_STORED];
    int n_stored;
    bool stores;
    char notify_path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    uint64_t watchdog_ns;
} manager;

/* *out stays where the variable is not there. */
static int number_of(const char *variable, unsigned long long most, unsigned long long *out)
{
    const char *text = getenv(variable);
    char *end;

    if (!text)
        return SY_OK;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (errno || end == text || *end || *out > most)
        return sy_error_set(SY_EARG, "%s=%s is not a number from 0 to %llu", variable, text, most);
    return SY_OK;
}

static bool option_is(int fd, int option, int wanted)
{
    socklen_t n_bytes = sizeof(int);
    int value;

    return getsockopt(fd, SOL_SOCKET, option, &value, &n_bytes) == 0 && value == wanted;
}

static int take_socket(int fd)
{
    int flags = fcntl(fd, F_GETFD);

    if (flags < 0 || !option_is(fd, SO_TYPE, SOCK_STREAM) || !option_is(fd, SO_ACCEPTCONN, 1))
        return sy_error_set(SY_EARG, "descriptor %d of LISTEN_FDS is not a listening stream socket",
                            fd);
    fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    manager.fds[manager.n_fds++] = fd;
    return SY_OK;
}

/* The index-th of the colon-separated names in LISTEN_FDNAMES; "": there is none. */
static void name_of(const char *names, int index, char *out, size_t bytes)
{
    for (; names && index > 0; index--) {
        names = strchr(names, ':');
        names = names ? names + 1 : NULL;
    }
    snprintf(out, bytes, "%.*s", names ? (int)strcspn(names, ":") : 0, names ? names : "");
}

/* A descriptor that is no socket was stored by this service: the name is its own. */
static int take_descriptor(int fd, const char *names)
{
    char name[32];
    int type;
    socklen_t n_bytes = sizeof type;

    name_of(names, fd - FIRST_FD, name, sizeof name);
    if (strncmp(name, "switchyard-", 11) != 0 || manager.n_stored == MAX_STORED ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n_bytes) == 0)
        return take_socket(fd);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    memcpy(manager.stored[manager.n_stored].name, name, sizeof name);
    manager.stored[manager.n_stored++].fd = fd;
    return SY_OK;
}

static int take_sockets(void)
{
    unsigned long long pid = 0, n = 0;
    const char *names = getenv("LISTEN_FDNAMES");
    int status = number_of("LISTEN_PID", UINT32_MAX, &pid);

    if (status == SY_OK)
        status = number_of("LISTEN_FDS", SY_SERVICE_MAX_SOCKETS, &n);
    if (pid != (unsigned long long)getpid()) /* somebody else's, inherited */
        n = 0;
    for (int i = 0; status == SY_OK && i < (int)n; i++)
        status = take_descriptor(FIRST_FD + i, names);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return status;
}

static int take_watchdog(void)
{
    unsigned long long us = 0, pid = (unsigned long long)getpid();
    int status = number_of("WATCHDOG_USEC", UINT64_MAX / 1000, &us);

    if (status == SY_OK)
        status = number_of("WATCHDOG_PID", UINT32_MAX, &pid);
    manager.watchdog_ns = pid == (unsigned long long)getpid() ? us * 1000 : 0;
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return status;
}

int sy_service_take(void)
{
    const char *path = getenv("NOTIFY_SOCKET"), *stores = getenv("FDSTORE");
    int status = SY_OK;

    manager.stores = path && stores && atoi(stores) >= 2;
    unsetenv("FDSTORE");
    if (path && strlen(path) >= sizeof(manager.notify_path))
        status = sy_error_set(SY_EARG, "NOTIFY_SOCKET=%s is longer than a socket's path", path);
    else if (path)
        snprintf(manager.notify_path, sizeof(manager.notify_path), "%s", path);
    unsetenv("NOTIFY_SOCKET");
    SY_TRY(status);
    SY_TRY(take_watchdog());
    return take_sockets();
}

static bool is_same(const struct sockaddr *a, const struct sockaddr *b)
{
    const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;

    if (a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    if (a->sa_family == AF_INET6)
        return a6->sin6_port == b6->sin6_port &&
               memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0;
    return a->sa_family == AF_UNIX && strcmp(((const struct sockaddr_un *)a)->sun_path,
                                             ((const struct sockaddr_un *)b)->sun_path) == 0;
}

/* Zeroed first: a Unix path need not end with 0. */
static bool address_of(int fd, struct sockaddr_storage *out)
{
    socklen_t n_bytes = sizeof(*out) - 1;

    memset(out, 0, sizeof(*out));
    return getsockname(fd, (struct sockaddr *)out, &n_bytes) == 0;
}

int sy_service_socket(const struct sockaddr *address, socklen_t n_bytes)
{
    struct sockaddr_storage wanted = {0}, there;

    if (n_bytes >= sizeof(wanted))
        return -1;
    memcpy(&wanted, address, n_bytes);
    for (int i = 0; i < manager.n_fds; i++) {
        int fd = manager.fds[i];

        if (fd >= 0 && address_of(fd, &there) &&
            is_same((struct sockaddr *)&there, (struct sockaddr *)&wanted)) {
            manager.fds[i] = -1;
            return fd;
        }
    }
    return -1;
}

static void write_address(const struct sockaddr_storage *address, char *text, size_t bytes)
{
    const struct sockaddr_in6 *a6 = (const void *)address;
    const struct sockaddr_in *a4 = (const void *)address;
    char host[INET6_ADDRSTRLEN] = "?";

    if (address->ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &a6->sin6_addr, host, sizeof(host));
        snprintf(text, bytes, "[%s]:%d", host, ntohs(a6->sin6_port));
    } else if (address->ss_family == AF_INET) {
        inet_ntop(AF_INET, &a4->sin_addr, host, sizeof(host));
        snprintf(text, bytes, "%s:%d", host, ntohs(a4->sin_port));
    } else {
        snprintf(text, bytes, "%s", ((const struct sockaddr_un *)address)->sun_path);
    }
}

int sy_service_check_all_taken(void)
{
    struct sockaddr_storage address;
    char text[128] = "an unknown address";

    for (int i = 0; i < manager.n_fds; i++)
        if (manager.fds[i] >= 0) {
            if (address_of(manager.fds[i], &address))
                write_address(&address, text, sizeof(text));
            return sy_error_set(SY_EARG,
                                "the service manager's socket listens on %s, and no option does: "
                                "make the two alike",
                                text);
        }
    return SY_OK;
}

static void send_text(const char *text, int passed)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = strlen(manager.notify_path);
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {(void *)text, strlen(text)};
    struct msghdr message = {.msg_name = &address,
                             .msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n),
                             .msg_iov = &part,
                             .msg_iovlen = 1};
    int fd;

    if (n == 0)
        return;
    memcpy(address.sun_path, manager.notify_path, n);
    if (address.sun_path[0] == '@') /* abstract */
        address.sun_path[0] = '\0';
    if (passed >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        *CMSG_FIRSTHDR(&message) = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &passed, sizeof(int));
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    (void)!sendmsg(fd, &message, MSG_NOSIGNAL);
    close(fd);
}

void sy_service_notify(const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    send_text(text, -1);
}

/* ---- stored descriptors ----------------------------------------------------------------------------------- */

bool sy_service_stores(void)
{
    return manager.stores;
}

void sy_service_store(const char *name, int fd)
{
    char text[80];

    snprintf(text, sizeof text, "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
    send_text(text, fd);
}

void sy_service_forget(const char *name)
{
    sy_service_notify("FDSTOREREMOVE=1\nFDNAME=%s", name);
}

int sy_service_stored(const char *name)
{
    for (int i = 0; i < manager.n_stored; i++)
        if (strcmp(manager.stored[i].name, name) == 0 && manager.stored[i].fd >= 0) {
            int fd = manager.stored[i].fd;
            manager.stored[i].fd = -1;
            return fd;
        }
    return -1;
}

uint64_t sy_service_watchdog_ns(void)
{
    return manager.watchdog_ns;
}

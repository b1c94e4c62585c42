/* attach: a local socket whose clients reach a server on another machine. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/client/client_relay.h"
#include "runtime/net/stale_socket.h"

#define MOST_CLIENTS 256
#define TIMEOUT_MS   10000u
#define STACK_BYTES  (256u << 10)
#define SOCKET_BYTES \
    (2 << 20) /* to the local client: the usual 208 KiB are a switch of processes each */

struct attach {
    const char *server, *path;
    int listener;
    atomic_int n_clients;
    pthread_attr_t attributes;
};

struct visitor {
    struct attach *attach;
    int fd;
};

/* The local client hears why as the server's answer to no call of its own, which ends its connection with these words. */
static void refuse(int fd, const char *why)
{
    unsigned char head[] = {0x94, 0x01, 0x00, 0x82, 0xa6, 's', 't', 'a', 't', 'u', 's', 0xa5, 'E',
                            'P',  'E',  'E',  'R',  0xa7, 'm', 'e', 's', 's', 'a', 'g', 'e',  0xd9};
    unsigned char length = (unsigned char)SY_MIN(strlen(why), (size_t)255), nil = 0xc0;

    (void)!send(fd, head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)!send(fd, &length, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)!send(fd, why, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)!send(fd, &nil, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void *serve_visitor(void *ctx)
{
    struct visitor visitor = *(struct visitor *)ctx;
    int room = SOCKET_BYTES;
    sy_client *client = NULL;

    free(ctx);
    (void)setsockopt(visitor.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (sy_client_connect_secure(visitor.attach->server, TIMEOUT_MS, sy_cli_security(), &client) <
        0) {
        sy_log_warn("attach", "event=refused why=\"%s\"", sy_client_error(client));
        refuse(visitor.fd, sy_client_error(client));
    } else if (sy_client_relay(client, visitor.fd) < 0) {
        sy_log_warn("attach", "event=ended why=\"%s\"", sy_client_error(client));
    }
    sy_client_close(client);
    close(visitor.fd);
    atomic_fetch_sub(&visitor.attach->n_clients, 1);
    return NULL;
}

static void take_visitor(struct attach *attach)
{
    int fd = accept4(attach->listener, NULL, NULL, SOCK_CLOEXEC);
    struct visitor *visitor = fd >= 0 ? malloc(sizeof *visitor) : NULL;
    pthread_t thread;

    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            usleep(10000); /* out of descriptors: the listener stays readable */
        return;
    }
    if (!visitor || atomic_load(&attach->n_clients) >= MOST_CLIENTS) {
        refuse(fd, "256 clients are attached already; try again later");
    } else {
        *visitor = (struct visitor){attach, fd};
        atomic_fetch_add(&attach->n_clients, 1);
        if (pthread_create(&thread, &attach->attributes, serve_visitor, visitor) == 0)
            return;
        atomic_fetch_sub(&attach->n_clients, 1);
        refuse(fd, "no thread for one more client; try again later");
    }
    free(visitor);
    close(fd);
}

static int listen_on(struct attach *attach)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t mask;
    int failed;

    if (strlen(attach->path) >= sizeof address.sun_path)
        return sy_error_set(SY_EARG, "socket path %s is longer than %zu bytes", attach->path,
                            sizeof address.sun_path - 1);
    strcpy(address.sun_path, attach->path);
    SY_TRY(sy_net_clear_stale(&address));
    attach->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mask = umask(0177);
    failed = attach->listener < 0 ||
             bind(attach->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
             listen(attach->listener, 128) != 0;
    umask(mask);
    return failed ? sy_error_set(SY_EIO, "cannot listen on %s: %s", attach->path, strerror(errno))
                  : SY_OK;
}

/* Until SIGTERM or SIGINT. */
static void run(struct attach *attach, int signals)
{
    for (;;) {
        struct pollfd pollers[] = {{attach->listener, POLLIN, 0}, {signals, POLLIN, 0}};

        if (poll(pollers, 2, -1) < 0 && errno != EINTR)
            return;
        if (pollers[1].revents)
            return;
        if (pollers[0].revents)
            take_visitor(attach);
    }
}

/* The server is there, and takes the token: what is wrong is said at once, not to the first client. */
static int try_server(const struct attach *attach)
{
    sy_client *client = NULL;
    json_t *answer = NULL;
    int result;

    if (sy_cli_connect(attach->server, TIMEOUT_MS, &client))
        return 1;
    result = sy_cli_call(client, "ping", json_object(), &answer);
    json_decref(answer);
    sy_client_close(client);
    return result;
}

static int serve(struct attach *attach)
{
    sigset_t set;
    int signals, result = try_server(attach);

    if (result)
        return result;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signals = signalfd(-1, &set, SFD_CLOEXEC);
    pthread_attr_init(&attach->attributes);
    pthread_attr_setdetachstate(&attach->attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attach->attributes, STACK_BYTES);
    if (signals < 0 || listen_on(attach) < 0)
        return signals < 0 ? sy_cli_fail("signalfd: %s", strerror(errno)) : sy_cli_fail_status();
    printf("ready: %s is %s\n", attach->path, attach->server);
    fflush(stdout);
    run(attach, signals);
    unlink(attach->path);
    fflush(NULL);
    _exit(0); /* clients' threads end with the process, and their connections with them */
}

int sy_cmd_attach(int argc, char **argv)
{
    enum { SERVER, SOCKET };
    static const struct sy_cli_option options[] = {
        [SERVER] = {"server", "tcp:HOST:PORT", "the server, which listens there (serve --tcp)"},
        [SOCKET] = {"socket", "PATH",
                    "the local Unix socket, mode 600; default: where commands and clients look for "
                    "a server"},
        {NULL, NULL, NULL}};
    struct sy_cli_parser parser = {
        "attach --server tcp:HOST:PORT [options]\n\nUses an accelerator of another machine: makes "
        "a Unix socket here, whose clients (all commands, the C and Python clients, unchanged) "
        "reach that server with the same answers, bit for bit. Each local client has a connection "
        "of its own; closing it ends its requests and sessions at the server. Runs until SIGTERM "
        "or SIGINT; "
        "prints \"ready\" when the server has taken the token. Clients that can name the server "
        "themselves (--server tcp:HOST:PORT) are faster without attach.",
        options, argc, argv, 0};
    struct attach attach = {.path = sy_cli_default_socket(), .listener = -1};
    const char *value;
    int got;

    while ((got = sy_cli_next(&parser, &value)) >= 0)
        *(got == SERVER ? &attach.server : &attach.path) = value;
    if (got == SY_CLI_HELP)
        return 0;
    if (got == SY_CLI_WORD)
        return sy_cli_usage("attach takes no words: %s", value);
    if (got != SY_CLI_END)
        return 2;
    if (!attach.server)
        return sy_cli_usage("attach needs --server tcp:HOST:PORT");
    if (strncmp(attach.server, "tcp:", 4) != 0)
        return sy_cli_usage("attach --server: '%s' is not tcp:HOST:PORT", attach.server);
    if (strncmp(attach.path, "unix:", 5) == 0)
        attach.path += 5;
    return serve(&attach);
}

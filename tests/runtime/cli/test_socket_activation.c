/* A server that a service manager starts: sockets that listen already, READY and STOPPING, variables that are wrong. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/rigs/server_fixture.h"

static struct fixture f;

static int listen_somewhere(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &n), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static int listen_for_messages(char *path, size_t bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {60, 0};

    snprintf(path, bytes, "%s/notify", f.folder);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/notify", f.folder);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

/* serve with descriptor 3 as given (-1: none), in a process whose id is its LISTEN_PID. */
static pid_t start(int fd, const char *n_fds, const char *notify, int http_port)
{
    char http[40], socket_path[200], pid_text[20];
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    snprintf(http, sizeof http, "127.0.0.1:%d", http_port);
    snprintf(socket_path, sizeof socket_path, "%s/socket", f.folder);
    snprintf(pid_text, sizeof pid_text, "%d", (int)getpid());
    setenv("LISTEN_PID", pid_text, 1);
    setenv("LISTEN_FDS", n_fds, 1);
    if (notify)
        setenv("NOTIFY_SOCKET", notify, 1);
    if (fd == 3)
        fcntl(fd, F_SETFD, 0);
    else if (fd >= 0)
        dup2(fd, 3);
    if (!freopen(f.log, "w", stderr) || dup2(fileno(stderr), 1) < 0)
        _exit(99);
    execl(fixture_program("switchyard"), "switchyard", "serve", "--http", http, "--grpc", "off",
          "--metrics", "off", "--socket", socket_path, "--workers", "2", "--pool-bytes", "64M",
          NULL);
    _exit(98);
}

static int end_of(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int connect_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {60, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void assert_message(int fd, const char *says)
{
    char text[600];
    ssize_t n = recv(fd, text, sizeof text - 1, 0);

    assert_true(n > 0);
    text[n] = 0;
    if (!strstr(text, says))
        fail_msg("\"%s\" was expected, not \"%s\"", says, text);
}

/* The client asks before there is a server, and is answered by it. */
static void a_socket_that_listens_is_taken(void **state)
{
    (void)state;
    static const char request[] = "GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n";
    char notify[200], answer[600] = {0};
    int port, fd = listen_somewhere(&port);
    int messages = listen_for_messages(notify, sizeof notify);
    int client = connect_to(port);

    assert_int_equal(send(client, request, sizeof request - 1, 0), sizeof request - 1);
    pid_t pid = start(fd, "1", notify, port);
    assert_true(recv(client, answer, sizeof answer - 1, 0) > 0);
    assert_non_null(strstr(answer, "200"));
    assert_message(messages, "READY=1");
    kill(pid, SIGTERM);
    assert_message(messages, "STOPPING=1");
    assert_int_equal(end_of(pid), 0);
    close(client);
    close(fd);
    close(messages);
}

static void a_socket_that_nobody_wants_ends_it(void **state)
{
    (void)state;
    int port, fd = listen_somewhere(&port);
    pid_t pid = start(fd, "1", NULL, 0);

    assert_int_equal(end_of(pid), 1);
    char wanted[80];
    snprintf(wanted, sizeof wanted, "listens on 127.0.0.1:%d, and no option does", port);
    assert_true(fixture_log_has(&f, wanted));
    close(fd);
}

static void wrong_variables_are_refused(void **state)
{
    (void)state;
    static const char *const counts[] = {"two", "-1", "17", "99999999999999999999"};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        assert_int_equal(end_of(start(-1, counts[i], NULL, 0)), 1);
        assert_true(fixture_log_has(&f, "LISTEN_FDS="));
    }
    int pipes[2]; /* a descriptor that is no socket */
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(end_of(start(pipes[0], "1", NULL, 0)), 1);
    assert_true(fixture_log_has(&f, "is not a listening stream socket"));
    close(pipes[0]);
    close(pipes[1]);
}

static int set_up(void **state)
{
    (void)state;
    fixture_init(&f, "socket_activation");
    snprintf(f.log, sizeof f.log, "%s/log", f.folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_finish(&f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_socket_that_listens_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_socket_that_nobody_wants_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_variables_are_refused, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Bytes through `switchyard attach`: both ways, to the end, and without a busy loop while one side is gone and the other does not read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/client/client_relay.h"

#define MOST_POLLS 50

static _Atomic int n_polls;

/* In place of the C library's, for this program. */
int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    struct timespec limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};

    n_polls++;
    return (int)syscall(SYS_ppoll, fds, n, timeout_ms < 0 ? NULL : &limit, NULL, 0);
}

struct relay {
    sy_client *client;
    int server, visitor, inside; /* visitor ─ inside ═ relay ═ client ─ server */
    int status;
    pthread_t thread;
};

static void *carry(void *ctx)
{
    struct relay *r = ctx;

    r->status = sy_client_relay(r->client, r->inside);
    return NULL;
}

static void start(struct relay *r)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {20, 0};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), ends[2];

    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/test_relay_%d.sock", (int)getpid());
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(sy_client_connect(address.sun_path, 10000, &r->client), SY_OK);
    r->server = accept(listener, NULL, NULL);
    assert_true(r->server >= 0);
    close(listener);
    unlink(address.sun_path);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    r->visitor = ends[0];
    r->inside = ends[1];
    setsockopt(r->server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(r->visitor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(pthread_create(&r->thread, NULL, carry, r), 0);
}

static void finish(struct relay *r)
{
    assert_int_equal(pthread_join(r->thread, NULL), 0);
    close(r->inside);
    sy_client_close(r->client);
}

static void bytes_go_both_ways(void **state)
{
    struct relay r;
    char got[6] = "";

    (void)state;
    start(&r);
    assert_int_equal(send(r.visitor, "there", 5, 0), 5);
    assert_int_equal(recv(r.server, got, 5, MSG_WAITALL), 5);
    assert_string_equal(got, "there");
    assert_int_equal(send(r.server, "again", 5, 0), 5);
    assert_int_equal(recv(r.visitor, got, 5, MSG_WAITALL), 5);
    assert_string_equal(got, "again");
    close(r.server);
    finish(&r);
    assert_int_equal(r.status, SY_EPEER);
    close(r.visitor);
}

/* Until nothing more fits anywhere. */
static size_t fill(int fd)
{
    static const char zeros[1 << 16];
    size_t sent = 0;

    for (int still = 0; still < 10;) {
        ssize_t n = send(fd, zeros, sizeof zeros, MSG_DONTWAIT | MSG_NOSIGNAL);

        still = n > 0 ? 0 : still + 1;
        sent += n > 0 ? (size_t)n : 0;
        if (n <= 0)
            usleep(20000);
    }
    return sent;
}

static void waits_quietly_for_a_server_that_does_not_read(void **state)
{
    static char taken[1 << 16];
    struct relay r;
    ssize_t n;

    (void)state;
    start(&r);
    size_t sent = fill(r.visitor), got = 0;
    close(r.visitor);
    usleep(20000);
    n_polls = 0;
    usleep(300000);
    assert_true(n_polls < MOST_POLLS);
    while ((n = recv(r.server, taken, sizeof taken, 0)) > 0 && (got += (size_t)n) < sent)
        ;
    assert_int_equal(got, sent);
    finish(&r);
    assert_int_equal(r.status, SY_OK);
    close(r.server);
}

static void waits_quietly_for_a_visitor_that_does_not_read(void **state)
{
    static char taken[1 << 16];
    struct relay r;
    ssize_t n;

    (void)state;
    start(&r);
    size_t sent = fill(r.server), got = 0;
    close(r.server);
    usleep(20000);
    n_polls = 0;
    usleep(300000);
    assert_true(n_polls < MOST_POLLS);
    while (got < sent && (n = recv(r.visitor, taken, sizeof taken, 0)) > 0)
        got += (size_t)n;
    assert_int_equal(got, sent);
    finish(&r);
    assert_int_equal(r.status, SY_EPEER);
    close(r.visitor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_both_ways),
        cmocka_unit_test(waits_quietly_for_a_server_that_does_not_read),
        cmocka_unit_test(waits_quietly_for_a_visitor_that_does_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

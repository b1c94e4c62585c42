/* A large answer and a client that reads as fast as it comes: others have their turn before all is sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_http.h"

#define ROWS    256
#define COLUMNS 4096
#define BYTES   (ROWS * COLUMNS * sizeof(float)) /* of the large answer's tensor */

static _Atomic int large = -1, small = -1; /* the clients' */
static atomic_flag has_asked = ATOMIC_FLAG_INIT;
static _Atomic uint64_t n_read, n_read_before_small;

static void read_large(void)
{
    char buffer[65536];
    ssize_t n;

    while ((n = recv(large, buffer, sizeof buffer, MSG_DONTWAIT)) > 0)
        n_read += (uint64_t)n;
}

static in_port_t port_of(int fd, int (*get)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_in address = {0};
    socklen_t n = sizeof address;

    return get(fd, (struct sockaddr *)&address, &n) == 0 ? address.sin_port : 0;
}

/* Stands before the C library's: what the server has sent is read before its call returns, so that its socket is never full. The small request is there as soon
 * as the large answer has begun. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (small >= 0 && port_of(fd, getpeername) == port_of(small, getsockname))
        n_read_before_small = n_read;
    ssize_t n = syscall(SYS_sendmsg, fd, message, flags);
    if (large >= 0)
        read_large();
    if (n_read > 0 && !atomic_flag_test_and_set(&has_asked))
        http_say(small, "GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n");
    return n;
}

static void post_large(int fd)
{
    char *body = calloc(1, 512 + BYTES), header[80];
    assert_non_null(body);
    int n = snprintf(body, 512,
                     "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[%d,%d],"
                     "\"parameters\":{\"binary_data_size\":%zu}}],"
                     "\"parameters\":{\"binary_data_output\":true}}",
                     ROWS, COLUMNS, BYTES);

    snprintf(header, sizeof header, "Inference-Header-Content-Length: %d\r\n", n);
    http_post(fd, "/v2/models/wide/infer", header, body, (size_t)n + BYTES);
    free(body);
}

static void test_a_small_request_beside_a_large_answer(void **state)
{
    int fd = http_connect(fake_http_port);

    (void)state;
    small = http_connect(fake_http_port);
    post_large(fd);
    while (fake_core_n_held == 0)
        fake_core_call(NULL, NULL);
    n_read_before_small = UINT64_MAX;
    large = fd;
    fake_core_call(fake_core_answer_held, NULL);
    http_expect(small, 200);
    while (n_read < BYTES) {
        fake_core_call(NULL, NULL);
        read_large();
    }
    assert_in_range(n_read_before_small, 1, BYTES / 2);
    large = -1;
    fake_core_call(NULL, NULL); /* the server's thread reads from it no more */
    close(small);
    small = -1;
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_small_request_beside_a_large_answer),
    };

    return cmocka_run_group_tests(tests, fake_http_start, fake_http_finish);
}

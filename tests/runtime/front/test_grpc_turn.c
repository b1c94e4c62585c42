/* A large answer and a client that reads as fast as it comes: one turn of the loop sends a bounded part of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/front/grpc/grpc_out.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_rpc.h"
#include "tests/rigs/grpc_client.h"

#define ROWS    192
#define COLUMNS 4096
#define BYTES   (ROWS * COLUMNS * sizeof(float))
#define WINDOW  (16 << 20)

static _Atomic bool takes_all; /* the client's socket */
static _Atomic uint64_t taken, turn_bytes, most_bytes;

/* Both stand before the C library's. A turn of the loop begins when it has asked for events. */
int epoll_wait(int fd, struct epoll_event *events, int n, int timeout_ms)
{
    turn_bytes = 0;
    return (int)syscall(SYS_epoll_pwait, fd, events, n, timeout_ms, NULL, 8);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    uint64_t n = 0;

    if (!takes_all)
        return syscall(SYS_sendmsg, fd, message, flags);
    for (size_t i = 0; i < message->msg_iovlen; i++)
        n += message->msg_iov[i].iov_len;
    taken += n;
    turn_bytes += n;
    if (turn_bytes > most_bytes)
        most_bytes = turn_bytes;
    return (ssize_t)n;
}

static void test_a_large_answer_is_sent_in_turns(void **state)
{
    float *x = calloc(BYTES, 1);
    struct sy_grpc_buffer request = {0};
    struct grpc_client client;

    (void)state;
    assert_non_null(x);
    grpc_client_open(&client, fake_core_grpc_port, WINDOW);
    nghttp2_session_set_local_window_size(client.session, NGHTTP2_FLAG_NONE, 0, WINDOW);
    grpc_client_put_request(&request, "wide", ROWS, COLUMNS, x);
    struct grpc_call *call = grpc_client_call(&client, INFER, NULL);
    grpc_client_message(&client, call, request.data, request.n);
    grpc_client_half_close(&client, call);
    while (fake_core_n_held == 0) {
        grpc_client_run(&client, 1);
        assert_false(call->is_over);
    }
    takes_all = true;
    fake_core_call(fake_core_answer_held, NULL);
    while (taken < BYTES)
        fake_core_call(NULL, NULL);
    takes_all = false;
    assert_in_range(most_bytes, 1, 3 * SY_GRPC_OUT_BYTES);
    grpc_client_close(&client);
    sy_grpc_buffer_free(&request);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_large_answer_is_sent_in_turns)};

    return cmocka_run_group_tests(tests, fake_core_start, fake_core_finish);
}

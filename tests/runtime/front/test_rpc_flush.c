/* A client that reads as fast as answers come, and sends as fast as it is read: each turn of the loop writes, and reads, a bounded part. The loop is driven by
 * hand, and the socket takes what it is told to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <msgpack.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_server.h"
#include "tests/fakes/fake_core.h"

#define REQUESTS       16
#define TENSOR_BYTES   (1u << 20)
#define SMALL_REQUESTS 200
#define SMALL_BYTES    (100u << 10)
#define TURN_MOST      (1u << 20)

static enum { REAL, TAKES_NOTHING, TAKES_ALL } socket_mode;
static uint64_t taken_bytes;

/* In place of the C library's, for this program. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    uint64_t n = 0;

    if (socket_mode == REAL)
        return syscall(SYS_sendmsg, fd, message, flags);
    if (socket_mode == TAKES_NOTHING) {
        errno = EAGAIN;
        return -1;
    }
    for (size_t i = 0; i < message->msg_iovlen; i++)
        n += message->msg_iov[i].iov_len;
    taken_bytes += n;
    return (ssize_t)n;
}

static msgpack_sbuffer to_send;
static size_t sent_bytes;
static int client = -1;
static uint64_t read_bytes;

/* As much as the server's socket takes. */
static void send_more(void)
{
    ssize_t n = 0;

    for (; n >= 0 && sent_bytes<to_send.size; sent_bytes += n> 0 ? (size_t)n : 0)
        n = send(client, to_send.data + sent_bytes, to_send.size - sent_bytes, MSG_NOSIGNAL);
}

/* So the socket is never empty. */
ssize_t recv(int fd, void *to, size_t n_bytes, int flags)
{
    ssize_t n = syscall(SYS_recvfrom, fd, to, n_bytes, flags, NULL, NULL);

    read_bytes += n > 0 ? (uint64_t)n : 0;
    send_more();
    return n;
}

static void pack_text(msgpack_packer *packer, const char *text)
{
    msgpack_pack_str(packer, strlen(text));
    msgpack_pack_str_body(packer, text, strlen(text));
}

static void pack_infer(msgpack_packer *packer, unsigned id, unsigned n_bytes)
{
    static const char zeros[TENSOR_BYTES];

    msgpack_pack_array(packer, 4);
    msgpack_pack_int(packer, 0);
    msgpack_pack_unsigned_int(packer, id);
    pack_text(packer, "infer");
    msgpack_pack_array(packer, 1);
    msgpack_pack_map(packer, 2);
    pack_text(packer, "model");
    pack_text(packer, "double");
    pack_text(packer, "inputs");
    msgpack_pack_array(packer, 1);
    msgpack_pack_map(packer, 4);
    pack_text(packer, "name");
    pack_text(packer, "x");
    pack_text(packer, "dtype");
    pack_text(packer, "FP32");
    pack_text(packer, "shape");
    msgpack_pack_array(packer, 2);
    msgpack_pack_int(packer, (int)n_bytes / 16);
    msgpack_pack_int(packer, 4);
    pack_text(packer, "data");
    msgpack_pack_bin(packer, n_bytes);
    msgpack_pack_bin_body(packer, zeros, n_bytes);
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

    strcpy(address.sun_path, path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* All requests go to the server, which reads them in turns of the loop. */
static void send_all(struct event_base *base, unsigned n_requests, unsigned n_bytes)
{
    msgpack_packer packer;

    msgpack_sbuffer_init(&to_send);
    msgpack_packer_init(&packer, &to_send, msgpack_sbuffer_write);
    for (unsigned i = 0; i < n_requests; i++)
        pack_infer(&packer, i, n_bytes);
    read_bytes = sent_bytes = 0;
    send_more();
    while (read_bytes < to_send.size) {
        uint64_t before = read_bytes;

        event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
        assert_true(read_bytes - before <= TURN_MOST);
    }
    msgpack_sbuffer_destroy(&to_send);
    to_send.size = 0;
}

static void answers_go_out_in_bounded_turns(void **state)
{
    char path[100];
    struct sy_rpc_config config = {.socket_path = path};
    struct sy_front *front = fake_core_open();
    struct sy_rpc_server *server;
    int n_turns = 0;

    (void)state;
    snprintf(path, sizeof path, "/tmp/test_rpc_flush_%d.sock", (int)getpid());
    assert_int_equal(sy_rpc_server_create(&config, front, &server), SY_OK);
    client = connect_to(path);
    socket_mode = TAKES_NOTHING;
    send_all(front->base, REQUESTS, TENSOR_BYTES);
    while (fake_core_slab_bytes() >
           (REQUESTS + 1) * TENSOR_BYTES) /* all are answered: their inputs are free */
        event_base_loop(front->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    socket_mode = TAKES_ALL;
    while (taken_bytes < REQUESTS * TENSOR_BYTES) {
        uint64_t before = taken_bytes;

        event_base_loop(front->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
        assert_true(taken_bytes - before <= TURN_MOST);
        n_turns += taken_bytes > before;
    }
    assert_true(n_turns >= (int)(REQUESTS * TENSOR_BYTES / TURN_MOST));
    socket_mode = REAL;
    close(client);
    fake_core_run();
    fake_core_stop();
    sy_rpc_server_destroy(server);
    fake_core_close();
}

/* Tensors that are no long ones. */
static void small_requests_are_read_in_bounded_turns(void **state)
{
    char path[100];
    struct sy_rpc_config config = {.socket_path = path};
    struct sy_front *front = fake_core_open();
    struct sy_rpc_server *server;

    (void)state;
    snprintf(path, sizeof path, "/tmp/test_rpc_flush_%d.sock", (int)getpid());
    assert_int_equal(sy_rpc_server_create(&config, front, &server), SY_OK);
    client = connect_to(path);
    socket_mode = TAKES_ALL;
    send_all(front->base, SMALL_REQUESTS, SMALL_BYTES);
    socket_mode = REAL;
    close(client);
    fake_core_run();
    fake_core_stop();
    sy_rpc_server_destroy(server);
    fake_core_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_go_out_in_bounded_turns),
        cmocka_unit_test(small_requests_are_read_in_bounded_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Long tensors over TCP are read in few large pieces, by the server and by the client: the same bits at all sizes, and what comes slowly after that is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dlfcn.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <msgpack.h>

#include "runtime/base/status.h"
#include "runtime/client/switchyard.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_rpc.h"

#define ROWS  65000 /* of 16 bytes: almost the 1 MiB that the fake server takes */
#define BYTES (ROWS * 16u)
#define FAST  (256u << 10) /* comes in one piece, the rest in small ones */
#define PIECE 4096u        /* 191 of them */
#define MOST_READS \
    24 /* of those 191: two low waters, what came meanwhile, and reads that find nothing */

static _Atomic int n_reads;
static _Atomic uint64_t read_bytes;

static ssize_t count(ssize_t n)
{
    n_reads++;
    read_bytes += n > 0 ? (uint64_t)n : 0;
    return n;
}

/* In place of the C library's, for this program: the server reads with the one, the client with the other. */
ssize_t recv(int fd, void *to, size_t room, int flags)
{
    return count(recvfrom(fd, to, room, flags, NULL, NULL));
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    static ssize_t (*real)(int, struct msghdr *, int);

    if (!real)
        real = (ssize_t(*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg");
    return count(real(fd, message, flags));
}

static float *numbers(void)
{
    float *x = malloc(BYTES);

    assert_non_null(x);
    for (int i = 0; i < 4 * ROWS; i++)
        x[i] = (float)i;
    return x;
}

static void send_all(int fd, const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);

        assert_true(sent > 0);
        at += (size_t)sent;
    }
}

static void wait_read(uint64_t bytes)
{
    for (int i = 0; i < 10000 && read_bytes < bytes; i++)
        usleep(1000);
    assert_true(read_bytes >= bytes);
}

/* The fast part, which the peer has read when this returns, but for less than a low water. */
static void send_fast(int fd, const void *bytes)
{
    read_bytes = 0;
    send_all(fd, bytes, FAST);
    wait_read(FAST / 2);
    usleep(20000);
    n_reads = 0;
}

/* The reader is given the time to read each piece by itself. */
static void send_in_pieces(int fd, const char *bytes, size_t n)
{
    for (size_t at = 0; at < n; at += PIECE) {
        send_all(fd, bytes + at, n - at < PIECE ? n - at : PIECE);
        usleep(500);
    }
}

static void pack_text(msgpack_packer *to, const char *text)
{
    msgpack_pack_str(to, strlen(text));
    msgpack_pack_str_body(to, text, strlen(text));
}

static void pack_tensor(msgpack_packer *to, const char *name, const float *x)
{
    msgpack_pack_array(to, 1);
    msgpack_pack_map(to, 4);
    pack_text(to, "name");
    pack_text(to, name);
    pack_text(to, "dtype");
    pack_text(to, "FP32");
    pack_text(to, "shape");
    msgpack_pack_array(to, 2);
    msgpack_pack_int(to, ROWS);
    msgpack_pack_int(to, 4);
    pack_text(to, "data");
    msgpack_pack_bin(to, BYTES);
    msgpack_pack_bin_body(to, x, BYTES);
}

/* A request for `double` of x, or an answer that is x. */
static void pack_message(msgpack_sbuffer *bytes, bool is_request, const float *x)
{
    msgpack_packer to;

    msgpack_sbuffer_init(bytes);
    msgpack_packer_init(&to, bytes, msgpack_sbuffer_write);
    msgpack_pack_array(&to, 4);
    msgpack_pack_int(&to, is_request ? 0 : 1);
    msgpack_pack_int(&to, is_request ? 1 : 0);
    if (is_request) {
        pack_text(&to, "infer");
        msgpack_pack_array(&to, 1);
    } else {
        msgpack_pack_nil(&to);
    }
    msgpack_pack_map(&to, 2);
    pack_text(&to, "model");
    pack_text(&to, "double");
    pack_text(&to, is_request ? "inputs" : "outputs");
    pack_tensor(&to, is_request ? "x" : "y", x);
}

static int connect_tcp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_port = htons((uint16_t)atoi(strrchr(fake_core_tcp, ':') + 1));
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* The answer's tensor is its end. */
static void expect_double(int fd, const float *x)
{
    char *answer = malloc(BYTES + 4096);
    size_t at = 0, begin = 0;

    for (; begin == 0 || at < begin + BYTES;) {
        ssize_t n = recvfrom(fd, answer + at, BYTES + 4096 - at, 0, NULL, NULL);

        assert_true(n > 0);
        at += (size_t)n;
        char *data = begin == 0 ? memmem(answer, at, "data\xc6", 5) : NULL;
        begin = data ? (size_t)(data - answer) + 9 : begin;
    }
    for (int i = 0; i < 4 * ROWS; i++) {
        float y;

        memcpy(&y, answer + begin + (size_t)i * 4, 4);
        assert_true(y == 2 * x[i]);
    }
    free(answer);
}

static void the_server_reads_in_few_pieces(void **state)
{
    float *x = numbers();
    msgpack_sbuffer bytes;
    int fd = connect_tcp();

    (void)state;
    pack_message(&bytes, true, x);
    send_fast(fd, bytes.data);
    send_in_pieces(fd, bytes.data + FAST, bytes.size - FAST);
    expect_double(fd, x);
    assert_in_range(n_reads, 1, MOST_READS);
    close(fd);
    msgpack_sbuffer_destroy(&bytes);
    free(x);
}

static void look(void *unused)
{
    (void)unused;
    fake_core_look();
}

/* A client that turns slow is not taken for one that stalls: a look makes the server read what there is. */
static void a_look_reads_what_came_slowly(void **state)
{
    float *x = numbers();
    msgpack_sbuffer bytes;
    int fd = connect_tcp();

    (void)state;
    pack_message(&bytes, true, x);
    send_fast(fd, bytes.data);
    send_all(fd, bytes.data + FAST, PIECE);
    usleep(50000);
    assert_true(read_bytes < FAST + PIECE);
    fake_core_call(look, NULL);
    wait_read(FAST + PIECE);
    send_all(fd, bytes.data + FAST + PIECE, bytes.size - FAST - PIECE);
    expect_double(fd, x);
    close(fd);
    msgpack_sbuffer_destroy(&bytes);
    free(x);
}

struct answerer {
    int listener;
    const float *x;
    int n_reads;
};

/* A server that answers one request with x, slowly. */
static void *answer(void *ctx)
{
    struct answerer *answerer = ctx;
    int fd = accept(answerer->listener, NULL, NULL);
    msgpack_sbuffer bytes;
    char request[1024];

    assert_true(recvfrom(fd, request, sizeof request, 0, NULL, NULL) > 0);
    pack_message(&bytes, false, answerer->x);
    send_fast(fd, bytes.data);
    send_in_pieces(fd, bytes.data + FAST, bytes.size - FAST);
    msgpack_sbuffer_destroy(&bytes);
    recvfrom(fd, request, 1, 0, NULL, NULL); /* the client has closed */
    close(fd);
    return NULL;
}

static void the_client_reads_in_few_pieces(void **state)
{
    struct answerer answerer = {socket(AF_INET, SOCK_STREAM, 0), numbers(), 0};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    float little[4] = {0};
    sy_client_tensor input = {"x", "FP32", 2, {1, 4}, little, sizeof little};
    sy_client_result *result;
    sy_client *client;
    pthread_t thread;
    char name[40];

    (void)state;
    assert_int_equal(bind(answerer.listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(answerer.listener, 1), 0);
    getsockname(answerer.listener, (struct sockaddr *)&address, &size);
    snprintf(name, sizeof name, "tcp:127.0.0.1:%d", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&thread, NULL, answer, &answerer), 0);
    assert_int_equal(sy_client_connect(name, 60000, &client), SY_OK);
    assert_int_equal(sy_client_infer(client, "double", &input, 1, &result), SY_OK);
    assert_in_range(n_reads, 1, MOST_READS);
    assert_int_equal(result->outputs[0].bytes, BYTES);
    assert_memory_equal(result->outputs[0].data, answerer.x, BYTES);
    sy_client_result_free(result);
    sy_client_close(client);
    pthread_join(thread, NULL);
    close(answerer.listener);
    free((void *)answerer.x);
}

/* Around half a megabyte, twice on a connection: the first one's end leaves nothing that the second one waits for. */
static void bits_are_equal(void **state)
{
    static const int rows[] = {16384, 16385, 24576, 32767, 32768, 32769, 49151, 64999, ROWS};
    float *x = numbers();
    sy_client_result *result;
    sy_client *client;

    (void)state;
    assert_int_equal(sy_client_connect(fake_core_tcp, 60000, &client), SY_OK);
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        int n = rows[i / 2];
        sy_client_tensor input = {"x", "FP32", 2, {n, 4}, x, (size_t)n * 16};

        assert_int_equal(sy_client_infer(client, "double", &input, 1, &result), SY_OK);
        assert_int_equal(result->outputs[0].bytes, (size_t)n * 16);
        for (int k = 0; k < 4 * n; k++)
            assert_true(((const float *)result->outputs[0].data)[k] == 2 * x[k]);
        sy_client_result_free(result);
    }
    sy_client_close(client);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_reads_in_few_pieces),
        cmocka_unit_test(a_look_reads_what_came_slowly),
        cmocka_unit_test(the_client_reads_in_few_pieces),
        cmocka_unit_test(bits_are_equal),
    };

    return cmocka_run_group_tests(tests, fake_core_start, fake_core_finish);
}

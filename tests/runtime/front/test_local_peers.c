/* Whether a client is on this machine, and what only such a client may do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/front/tcp_listen.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_http.h"

static const char *pretended; /* the address of each peer; NULL: its own */

/* In place of the C library's, for this program. */
int getpeername(int fd, struct sockaddr *restrict address, socklen_t *restrict n)
{
    struct sockaddr_storage peer = {0};

    if (!pretended)
        return (int)syscall(SYS_getpeername, fd, address, n);
    peer.ss_family = strchr(pretended, ':') ? AF_INET6 : AF_INET;
    assert_int_equal(inet_pton(peer.ss_family, pretended,
                               peer.ss_family == AF_INET6
                                   ? (void *)&((struct sockaddr_in6 *)&peer)->sin6_addr
                                   : (void *)&((struct sockaddr_in *)&peer)->sin_addr),
                     1);
    memcpy(address, &peer, *n < sizeof peer ? *n : sizeof peer);
    return 0;
}

static void who_is_local(void **state)
{
    static const char *const here[] = {"127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"};
    static const char *const elsewhere[] = {"10.0.0.1", "203.0.113.5", "2001:db8::1",
                                            "::ffff:10.0.0.1"};
    int fd = http_connect(fake_http_port), pair[2];

    (void)state;
    assert_true(sy_tcp_is_local(fd));
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
        pretended = here[i];
        assert_true(sy_tcp_is_local(fd));
        pretended = elsewhere[i];
        assert_false(sy_tcp_is_local(fd));
    }
    pretended = NULL;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_false(sy_tcp_is_local(pair[0]));
    assert_false(sy_tcp_is_local(-1));
    close(pair[0]);
    close(pair[1]);
    close(fd);
}

#define REGISTER "/v2/systemsharedmemory/region/r/register"
#define REGION   "{\"key\": \"/sy-none-such\", \"offset\": 0, \"byte_size\": 64}"

/* There is no such object: from here that is what is said, from elsewhere nothing of it. */
static void only_local_clients_register(void **state)
{
    int fd = http_connect(fake_http_port);

    (void)state;
    http_ask_text(fd, 404, REGISTER, REGION);
    pretended = "203.0.113.5";
    http_ask_text(fd, 403, REGISTER, REGION);
    assert_non_null(strstr(http_last.body, "on this machine only"));
    pretended = NULL;
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_local),
        cmocka_unit_test(only_local_clients_register),
    };

    return cmocka_run_group_tests(tests, fake_http_start, fake_http_finish);
}

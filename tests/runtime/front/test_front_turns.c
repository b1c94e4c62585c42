/* What one turn of the loop does for a server at most, however many clients come or fall silent together. The loop is driven by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/front_server.h"

#define CLIENTS (5 * SY_FRONT_ACCEPTS + 3)
#define MANY    (3 * SY_FRONT_LOOKS + 5)

/* A server whose connections are nothing but marks. */
struct connection {
    struct connection *next, **previous;
    int n_looks;
    bool is_silent;
};

struct server {
    struct sy_front_server base;
    struct connection *connections;
    int n_looked, n_accepted;
    bool also_next; /* a look at a silent one closes the one behind it, too */
    int fds[CLIENTS];
};

static struct server server;
static struct connection connections[MANY];

static int accept_one(struct sy_front_server *base, int fd, bool is_unix)
{
    assert_false(is_unix);
    server.fds[server.n_accepted++] = fd;
    sy_front_server_connected(base);
    return SY_OK;
}

static void *first(struct sy_front_server *base)
{
    (void)base;
    return server.connections;
}

static void *next(void *connection)
{
    return ((struct connection *)connection)->next;
}

static void close_one(struct connection *c)
{
    sy_front_server_disconnected(&server.base, c, c->next);
    *c->previous = c->next;
    if (c->next)
        c->next->previous = c->previous;
    memset(c, 0xff, sizeof *c); /* whoever uses it again fails */
    c->n_looks = -1;
    sy_front_server_release(&server.base);
}

static void look(void *connection, sy_ns now, bool counts)
{
    struct connection *c = connection;

    (void)now, (void)counts;
    server.n_looked++;
    c->n_looks++;
    if (!c->is_silent)
        return;
    if (server.also_next && c->next)
        close_one(c->next);
    close_one(c);
}

static void free_server(struct sy_front_server *base)
{
    (void)base;
}

static const struct sy_front_server_ops ops = {
    .name = "test",
    .accept = accept_one,
    .first = first,
    .next = next,
    .look = look,
    .free = free_server,
};

static struct event_base *start(int n)
{
    struct event_base *loop = event_base_new();

    memset(&server, 0, sizeof server);
    memset(connections, 0, sizeof connections);
    sy_front_server_init(&server.base, &ops, loop);
    server.base.max_connections = MANY;
    for (int i = n - 1; i >= 0; i--) {
        struct connection *c = &connections[i];

        c->next = server.connections;
        c->previous = &server.connections;
        if (c->next)
            c->next->previous = &c->next;
        server.connections = c;
        sy_front_server_connected(&server.base);
    }
    assert_int_equal(sy_front_server_start_looks(&server.base, 3600 * SY_NS_PER_S), SY_OK);
    return loop;
}

static void finish(struct event_base *loop)
{
    sy_front_server_stop(&server.base);
    event_base_free(loop);
}

static void turn(struct event_base *loop)
{
    event_base_loop(loop, EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

static int connect_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void test_a_flood_of_clients_is_accepted_in_turns(void **state)
{
    struct event_base *loop = start(0);
    int clients[CLIENTS];

    (void)state;
    assert_int_equal(sy_front_server_listen_tcp(&server.base, "127.0.0.1:0"), SY_OK);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = connect_to(server.base.port);
    while (server.n_accepted < CLIENTS) {
        int before = server.n_accepted;

        turn(loop);
        assert_in_range(server.n_accepted - before, 1, SY_FRONT_ACCEPTS);
    }
    for (int i = 0; i < CLIENTS; i++) {
        close(clients[i]);
        close(server.fds[i]);
    }
    finish(loop);
}

/* One round: how many turns it took. */
static int run_round(struct event_base *loop)
{
    int n_turns = 0;

    event_active(server.base.tick, EV_TIMEOUT, 0);
    do {
        int looked = server.n_looked, open = server.base.n_connections;

        turn(loop);
        n_turns++;
        assert_in_range(server.n_looked - looked, 0, SY_FRONT_LOOKS);
        /* one look may close two */
        assert_in_range(open - server.base.n_connections, 0, SY_FRONT_CLOSES + 1);
    } while (server.base.look_at);
    return n_turns;
}

static void test_each_connection_is_looked_at_once_a_round(void **state)
{
    struct event_base *loop = start(MANY);

    (void)state;
    for (int round = 1; round <= 2; round++) {
        assert_true(run_round(loop) > MANY / SY_FRONT_LOOKS);
        for (int i = 0; i < MANY; i++)
            assert_int_equal(connections[i].n_looks, round);
    }
    finish(loop);
}

static void test_connections_that_fell_silent_together_are_closed_in_turns(void **state)
{
    for (int pairs = 0; pairs < 2; pairs++) {
        struct event_base *loop = start(MANY);

        (void)state;
        server.also_next = pairs;
        for (int i = 0; i < MANY; i++)
            connections[i].is_silent = true;
        assert_true(run_round(loop) >= MANY / (SY_FRONT_CLOSES + 1));
        assert_int_equal(server.base.n_connections, 0);
        assert_int_equal(server.base.refs, 1);
        finish(loop);
    }
}

/* The connection that the next turn begins with may end between two turns. */
static void test_the_next_one_ends_between_two_turns(void **state)
{
    struct event_base *loop = start(MANY);

    (void)state;
    event_active(server.base.tick, EV_TIMEOUT, 0);
    turn(loop);
    assert_ptr_equal(server.base.look_at, &connections[SY_FRONT_LOOKS]);
    close_one(&connections[SY_FRONT_LOOKS]);
    while (server.base.look_at)
        turn(loop);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(connections[i].n_looks, i == SY_FRONT_LOOKS ? -1 : 1);
    finish(loop);
}

/* The other end of a socket that is closed reads its end. */
static int count_ended(const int *clients)
{
    int n = 0;
    char byte;

    for (int i = 0; i < CLIENTS; i++)
        n += recv(clients[i], &byte, 1, MSG_DONTWAIT) == 0;
    return n;
}

static void test_sockets_that_end_together_are_closed_in_turns(void **state)
{
    for (int stops = 0; stops < 2; stops++) {
        struct event_base *loop = start(0);
        int clients[CLIENTS], own[CLIENTS], ended;

        (void)state;
        for (int i = 0; i < CLIENTS; i++) {
            int pair[2];

            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            clients[i] = pair[0];
            own[i] = pair[1];
        }
        for (int i = 0; i < CLIENTS; i++)
            sy_front_server_close(&server.base, own[i]);
        ended = count_ended(clients);
        assert_int_equal(ended, SY_FRONT_CLOSES);
        for (int now; !stops && ended < CLIENTS; ended = now) {
            turn(loop);
            now = count_ended(clients);
            assert_in_range(now - ended, 1, SY_FRONT_CLOSES);
        }
        finish(loop);
        assert_int_equal(count_ended(clients), CLIENTS); /* a server that stops closes all */
        for (int i = 0; i < CLIENTS; i++)
            close(clients[i]);
    }
}

/* Descriptors of clients that are gone count until they are closed; nobody is refused for them. */
static void test_new_clients_wait_for_closes(void **state)
{
    struct event_base *loop = start(0);
    int gone[2 * CLIENTS], clients[CLIENTS];

    (void)state;
    server.base.max_connections = CLIENTS;
    assert_int_equal(sy_front_server_listen_tcp(&server.base, "127.0.0.1:0"), SY_OK);
    for (int i = 0; i < 2 * CLIENTS; i++) {
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        gone[i] = pair[0];
        sy_front_server_close(&server.base, pair[1]);
    }
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = connect_to(server.base.port);
    while (server.n_accepted < CLIENTS) {
        turn(loop);
        if (server.n_accepted > 0)
            assert_true(server.base.n_connections + server.base.n_ends <= CLIENTS);
    }
    assert_false(server.base.is_full);
    for (int i = 0; i < 2 * CLIENTS; i++)
        close(gone[i]);
    for (int i = 0; i < CLIENTS; i++) {
        close(clients[i]);
        close(server.fds[i]);
    }
    finish(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_flood_of_clients_is_accepted_in_turns),
        cmocka_unit_test(test_each_connection_is_looked_at_once_a_round),
        cmocka_unit_test(test_connections_that_fell_silent_together_are_closed_in_turns),
        cmocka_unit_test(test_sockets_that_end_together_are_closed_in_turns),
        cmocka_unit_test(test_the_next_one_ends_between_two_turns),
        cmocka_unit_test(test_new_clients_wait_for_closes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The load generator's loop against a server that is a table of times: which requests count as touched by a stall of the generator. Clock and epoll are the
 * test's, so that a stall is where the test puts it and nowhere else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define sy_clock_now load_test_now
#define epoll_wait   load_test_wait
#include "bench/serve/load_core.c"

#define MOST_CONNECTIONS 4
#define STALL            (10 * SY_NS_PER_MS)
#define END_NS           (200 * SY_NS_PER_MS)

static struct world {
    struct load *load;
    sy_ns now_ns, service_ns, answer_ns[MOST_CONNECTIONS]; /* 0: no request */
    uint64_t n_started, stalls_at;                         /* the request whose sending stalls */
} world;

sy_ns load_test_now(void)
{
    return world.now_ns += SY_NS_PER_US;
}

static int answers(struct epoll_event *events)
{
    int n = 0;
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        if (world.answer_ns[i] && world.answer_ns[i] <= world.now_ns)
            events[n++] =
                (struct epoll_event){.events = EPOLLIN, .data.ptr = &world.load->connections[i]};
    return n;
}

int load_test_wait(int fd, struct epoll_event *events, int most, int wait_ms)
{
    (void)fd, (void)most;
    sy_ns until = world.now_ns + (sy_ns)wait_ms * SY_NS_PER_MS;
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        if (world.answer_ns[i])
            until = SY_MIN(until, world.answer_ns[i]);
    world.now_ns = SY_MAX(world.now_ns, until);
    return answers(events);
}

static int start(struct load_connection *connection)
{
    if (world.n_started++ == world.stalls_at)
        world.now_ns += STALL;
    world.answer_ns[connection - world.load->connections] = world.now_ns + world.service_ns;
    return 0;
}

static int flush_nothing(struct load_connection *connection)
{
    (void)connection;
    return 0;
}

static int receive(struct load_connection *connection)
{
    world.answer_ns[connection - world.load->connections] = 0;
    load_answered(connection, true);
    return 0;
}

/* 1000 requests a second, of which request 5 stalls the generator. Freed by give_back. */
static void run(struct load *load, int n_connections, sy_ns service_ns)
{
    static const struct load_protocol protocol = {
        .start = start, .flush = flush_nothing, .receive = receive};
    *load = (struct load){.options = {.n_connections = n_connections, .rate = 1000},
                          .protocol = &protocol};
    world = (struct world){
        .load = load, .now_ns = SY_NS_PER_S, .service_ns = service_ns, .stalls_at = 5};
    assert_int_equal(take_memory(load), 0);
    for (int i = 0; i < n_connections; i++) {
        load->connections[i] = (struct load_connection){.load = load, .fd = -1};
        load->free_list[load->n_free++] = &load->connections[i];
    }
    load->start_ns = load->count_from_ns = sy_clock_now();
    load->end_ns = load->start_ns + END_NS;
    assert_int_equal(loop(load), 0);
    assert_true(load->stalled_ns >= STALL && load->stalled_ns < STALL + SY_NS_PER_MS);
}

/* A request of 0.1 ms, each 1 ms: the stall touches the request that it met and those that became due in it. */
static void a_stall_touches_what_was_due_in_it(void **state)
{
    (void)state;
    struct load load;
    run(&load, 1, SY_NS_PER_MS / 10);
    assert_int_equal(load.n_latency, 200);
    assert_in_range(load.n_smooth, 187, 189);
    for (uint64_t i = 0; i < load.n_smooth; i++)
        assert_true(load.smooth_ns[i] < SY_NS_PER_MS);
    give_back(&load);
}

/* One of 1.5 ms, each 1 ms: from the stall on every request is late, and it is the server that keeps the connection. */
static void late_by_the_server_is_no_stall(void **state)
{
    (void)state;
    struct load load;
    run(&load, 1, 3 * SY_NS_PER_MS / 2);
    uint64_t n_answered = load.n_latency - load.n_unserved;
    assert_true(load.n_unserved > 0);
    assert_in_range(n_answered - load.n_smooth, 10, 16);
    give_back(&load);
}

/* With all connections in use the generator reads answers late: those requests and the ones due in the stall are touched, later ones are not. */
static void answers_read_late_are_touched(void **state)
{
    (void)state;
    struct load load;
    run(&load, 4, 5 * SY_NS_PER_MS);
    uint64_t n_answered = load.n_latency - load.n_unserved;
    assert_in_range(n_answered - load.n_smooth, 10, 22);
    give_back(&load);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stall_touches_what_was_due_in_it),
        cmocka_unit_test(late_by_the_server_is_no_stall),
        cmocka_unit_test(answers_read_late_are_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Messages through shared memory beside the control socket (runtime/wire/post_box.h): order, sleeping readers, slots that a mad writer has filled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/wire/control_page.h"
#include "tests/rigs/seed.h"

enum { N_MESSAGES = 30000, LONG_TEXT = 5000, LOOKS = 200 };

static struct sy_control_page page;
static struct sy_post runtime, worker;
static int sockets[2]; /* the runtime's, the worker's */

static int open_ends(void **state)
{
    (void)state;
    memset(&page, 0, sizeof page);
    runtime = (struct sy_post){.out = &page.to_worker, .in = &page.to_runtime};
    worker = (struct sy_post){.out = &page.to_runtime, .in = &page.to_worker};
    return socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets);
}

static int close_ends(void **state)
{
    (void)state;
    close(sockets[0]);
    close(sockets[1]);
    return 0;
}

static bool has_packet(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void say_ready(uint64_t number)
{
    struct sy_message m = {.id = SY_MSG_READY, .ready = {.worker = number}};
    assert_int_equal(sy_post_send(&worker, sockets[1], &m, NULL, 0), SY_OK);
}

static void expect_ready(uint64_t number)
{
    struct sy_message m;
    assert_int_equal(sy_post_receive(&runtime, sockets[0], SY_TO_RUNTIME, &m, NULL, NULL), SY_OK);
    assert_int_equal(m.id, SY_MSG_READY);
    assert_int_equal(m.ready.worker, number);
    sy_message_finish(&m);
}

static void a_sleeping_reader_has_the_socket(void **state)
{
    (void)state;
    say_ready(1);
    assert_true(has_packet(sockets[0]));
    assert_false(sy_post_has(&runtime));
    expect_ready(1);
}

static void a_looking_reader_has_slots(void **state)
{
    struct sy_message m;
    (void)state;
    sy_post_set_polled(&runtime, true);
    say_ready(1);
    assert_false(has_packet(sockets[0]));
    assert_true(sy_post_has(&runtime));
    assert_int_equal(sy_post_take(&runtime, SY_TO_RUNTIME, &m), 1);
    assert_int_equal(m.ready.worker, 1);
    sy_message_finish(&m);
    assert_int_equal(sy_post_take(&runtime, SY_TO_RUNTIME, &m), 0);
}

/* What finds the slots full, or is too long, goes through the socket, and is read in its turn. */
static void order_is_that_of_sending(void **state)
{
    static char text[LONG_TEXT + 1];
    struct sy_message m;
    (void)state;
    sy_post_set_polled(&runtime, true);
    say_ready(1);
    say_ready(2);
    say_ready(3);
    assert_true(has_packet(sockets[0]));
    expect_ready(1);
    expect_ready(2);
    say_ready(4); /* behind 3, which is in the socket */
    assert_int_equal(sy_post_take(&runtime, SY_TO_RUNTIME, &m), 0);
    assert_true(sy_post_has(&runtime));
    memset(text, 'x', LONG_TEXT);
    m = (struct sy_message){.id = SY_MSG_MODEL_ADDED, .model_added = {.model = 5, .error = text}};
    assert_int_equal(sy_post_send(&worker, sockets[1], &m, NULL, 0), SY_OK);
    expect_ready(3);
    expect_ready(4);
    assert_int_equal(sy_post_receive(&runtime, sockets[0], SY_TO_RUNTIME, &m, NULL, NULL), SY_OK);
    assert_int_equal(m.model_added.model, 5);
    assert_string_equal(m.model_added.error, text);
    sy_message_finish(&m);
}

static void files_go_through_the_socket(void **state)
{
    struct sy_message m = {.id = SY_MSG_MODEL_DROP, .model_drop = {.model = 7}};
    int fds[SY_MESSAGE_MAX_FDS], n_fds = SY_MESSAGE_MAX_FDS;
    (void)state;
    sy_post_set_polled(&worker, true);
    assert_int_equal(sy_post_send(&runtime, sockets[0], &m, &sockets[0], 1), SY_OK);
    assert_int_equal(sy_post_receive(&worker, sockets[1], SY_TO_WORKER, &m, fds, &n_fds), SY_OK);
    assert_int_equal(n_fds, 1);
    close(fds[0]);
    sy_message_finish(&m);
}

static void a_mad_writer_is_refused(void **state)
{
    struct sy_post_slot *slot = &page.to_runtime.slots[0];
    struct sy_message m;
    uint64_t seed = seed_of_run(3);
    (void)state;
    atomic_store(&slot->n_bytes, SY_POST_BYTES + 1);
    atomic_store(&slot->full, 1);
    assert_int_equal(sy_post_take(&runtime, SY_TO_RUNTIME, &m), SY_EPROTO);
    atomic_store(&slot->after, 1); /* a packet that was never sent */
    assert_int_equal(sy_post_take(&runtime, SY_TO_RUNTIME, &m), 0);
    for (int i = 0; i < 500; i++) {
        slot = &page.to_runtime.slots[runtime.next_in % SY_POST_SLOTS];
        uint32_t n = (uint32_t)seed_below(&seed, 64);
        for (uint32_t k = 0; k < n; k++)
            slot->bytes[k] = (unsigned char)seed_below(&seed, 256);
        atomic_store(&slot->after, 0);
        atomic_store(&slot->n_bytes, n);
        atomic_store(&slot->full, 1);
        int status = sy_post_take(&runtime, SY_TO_RUNTIME, &m);
        assert_true(status == 1 || status == SY_EPROTO);
        sy_message_finish(&m);
    }
}

/* The first message is short and the last one long, so that each takes its own way. */
static void *write_all(void *arg)
{
    static char text[LONG_TEXT + 1];
    uint64_t seed = *(uint64_t *)arg;
    intptr_t failed = 0;
    memset(text, 'y', LONG_TEXT);
    for (uint64_t i = 0; i < N_MESSAGES; i++) {
        bool is_long = i > 0 && (i == N_MESSAGES - 1 || seed_below(&seed, 50) == 0);
        struct sy_message m = {.id = SY_MSG_MODEL_ADDED,
                               .model_added = {.model = i, .error = is_long ? text : ""}};
        failed |= sy_post_send(&worker, sockets[1], &m, NULL, 0) < 0;
        if (seed_below(&seed, 10) == 0)
            sched_yield();
    }
    return (void *)failed;
}

/* As a worker waits: it looks for a while, then sleeps on the socket. */
static void wait_for_one(uint64_t *seed, struct sy_message *m)
{
    if (seed_below(seed, 4) > 0) {
        sy_post_set_polled(&runtime, true);
        for (uint64_t k = seed_below(seed, LOOKS); k > 0; k--)
            if (sy_post_has(&runtime) || has_packet(sockets[0]))
                break;
    }
    assert_int_equal(sy_post_receive(&runtime, sockets[0], SY_TO_RUNTIME, m, NULL, NULL), SY_OK);
}

/* Nothing is lost, doubled or overtaken while the reader looks and sleeps as it likes. */
static void nothing_is_lost_or_overtaken(void **state)
{
    uint64_t seed = seed_of_run(1), writers = seed + 1;
    const struct timeval patience = {.tv_sec = 20};
    pthread_t thread;
    void *failed;
    (void)state;
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sy_post_set_polled(&runtime, true); /* the first message is posted */
    assert_int_equal(pthread_create(&thread, NULL, write_all, &writers), 0);
    while (!sy_post_has(&runtime))
        sched_yield();
    for (uint64_t i = 0; i < N_MESSAGES; i++) {
        struct sy_message m;
        wait_for_one(&seed, &m);
        assert_int_equal(m.model_added.model, i);
        sy_message_finish(&m);
    }
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_false(has_packet(sockets[0]) || sy_post_has(&runtime));
    assert_true(runtime.next_in > 0 && runtime.n_received > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_sleeping_reader_has_the_socket, open_ends, close_ends),
        cmocka_unit_test_setup_teardown(a_looking_reader_has_slots, open_ends, close_ends),
        cmocka_unit_test_setup_teardown(order_is_that_of_sending, open_ends, close_ends),
        cmocka_unit_test_setup_teardown(files_go_through_the_socket, open_ends, close_ends),
        cmocka_unit_test_setup_teardown(a_mad_writer_is_refused, open_ends, close_ends),
        cmocka_unit_test_setup_teardown(nothing_is_lost_or_overtaken, open_ends, close_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The control socket's codec: round trips of every message, hostile bytes, directions, file descriptors, futexes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/msgpack_scan.h"
#include "runtime/base/status.h"
#include "runtime/wire/control_page.h"
#include "runtime/wire/messages.h"
#include "tests/rigs/seed.h"

static uint64_t random_state;

static uint64_t next_random(void)
{
    return seed_next(&random_state);
}

static uint64_t random_width(void)
{
    return next_random() >> (next_random() % 64);
}

/* ---- random content and comparison, from the same table ------------------------------------------ */

static void fill_U64(uint64_t *v)
{
    *v = random_width();
}
static void fill_I64(int64_t *v)
{
    *v = (int64_t)random_width() * (next_random() & 1 ? 1 : -1);
}
static void fill_STATUS(int64_t *v)
{
    *v = -(int64_t)(next_random() % 18); /* OK to EDENIED */
}
static void fill_F64(double *v)
{
    *v = (double)(int64_t)next_random() / 1e9;
}

static void fill_STR(char **v)
{
    size_t n = next_random() % 300;

    *v = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        (*v)[i] = (char)('!' + next_random() % 90);
    (*v)[n] = 0;
}

static void fill_U64S(struct sy_u64s *v)
{
    v->n = next_random() % 200;
    v->v = calloc(v->n + 1, sizeof(*v->v));
    for (size_t i = 0; i < v->n; i++)
        v->v[i] = random_width();
}

static void drop_U64(uint64_t *v)
{
    (void)v;
}
static void drop_I64(int64_t *v)
{
    (void)v;
}
static void drop_STATUS(int64_t *v)
{
    (void)v;
}
static void drop_F64(double *v)
{
    (void)v;
}
static void drop_STR(char **v)
{
    free(*v);
}
static void drop_U64S(struct sy_u64s *v)
{
    free(v->v);
}

static void same_U64(const uint64_t *a, const uint64_t *b)
{
    assert_true(*a == *b);
}
static void same_I64(const int64_t *a, const int64_t *b)
{
    assert_true(*a == *b);
}
static void same_STATUS(const int64_t *a, const int64_t *b)
{
    assert_true(*a == *b);
}
static void same_F64(const double *a, const double *b)
{
    assert_memory_equal(a, b, sizeof(*a));
}
static void same_STR(char *const *a, char *const *b)
{
    assert_string_equal(*a, *b);
}

static void same_U64S(const struct sy_u64s *a, const struct sy_u64s *b)
{
    assert_int_equal(a->n, b->n);
    if (a->n)
        assert_memory_equal(a->v, b->v, a->n * sizeof(*a->v));
}

#define FILL(kind, field) fill_##kind(&m->field);
#define DROP(kind, field) drop_##kind(&m->field);
#define SAME(kind, field) same_##kind(&a->field, &b->field);
#define M(NAME, name, id, direction)                                                      \
    static void fill_##name(struct sy_msg_##name *m)                                      \
    {                                                                                     \
        SY_FIELDS_##NAME(FILL)                                                            \
    }                                                                                     \
    static void drop_##name(struct sy_msg_##name *m)                                      \
    {                                                                                     \
        SY_FIELDS_##NAME(DROP)                                                            \
    }                                                                                     \
    static void same_##name(const struct sy_msg_##name *a, const struct sy_msg_##name *b) \
    {                                                                                     \
        SY_FIELDS_##NAME(SAME)                                                            \
    }
SY_MESSAGE_TABLE(M)
#undef M

struct maker {
    enum sy_message_id id;
    enum sy_message_direction direction;
    const char *name;
};

static const struct maker makers[] = {
#define M(NAME, name, id, direction) {SY_MSG_##NAME, SY_##direction, #NAME},
    SY_MESSAGE_TABLE(M)
#undef M
};

#define N_MAKERS (sizeof(makers) / sizeof(makers[0]))

static void fill(struct sy_message *message, enum sy_message_id id)
{
    memset(message, 0, sizeof(*message));
    message->id = id;
    switch (id) {
#define M(NAME, name, id_, direction) \
    case id_:                         \
        fill_##name(&message->name);  \
        break;
        SY_MESSAGE_TABLE(M)
#undef M
    }
}

static void drop(struct sy_message *message)
{
    switch (message->id) {
#define M(NAME, name, id_, direction) \
    case id_:                         \
        drop_##name(&message->name);  \
        break;
        SY_MESSAGE_TABLE(M)
#undef M
    }
}

static void same(const struct sy_message *a, const struct sy_message *b)
{
    assert_int_equal(a->id, b->id);
    switch (a->id) {
#define M(NAME, name, id_, direction)    \
    case id_:                            \
        same_##name(&a->name, &b->name); \
        break;
        SY_MESSAGE_TABLE(M)
#undef M
    }
}

/* ---- tests ------------------------------------------------------------------------------------------ */

static unsigned char packet[SY_MESSAGE_MAX_BYTES];

static void test_round_trip(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++)
        for (size_t i = 0; i < N_MAKERS; i++) {
            struct sy_message sent, got;
            size_t n;
            char line[400];

            fill(&sent, makers[i].id);
            assert_int_equal(sy_message_encode(&sent, packet, sizeof(packet), &n), SY_OK);
            assert_int_equal(sy_message_decode(packet, n, makers[i].direction, &got), SY_OK);
            same(&sent, &got);
            sy_message_dump(&got, line, sizeof(line));
            assert_memory_equal(line, makers[i].name, strlen(makers[i].name));
            assert_string_equal(sy_message_name((int)sent.id), makers[i].name);
            sy_message_finish(&got);
            drop(&sent);
        }
    assert_string_equal(sy_message_name(4711), "?");
}

static void test_wrong_direction(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MAKERS; i++) {
        struct sy_message sent, got;
        size_t n;

        fill(&sent, makers[i].id);
        assert_int_equal(sy_message_encode(&sent, packet, sizeof(packet), &n), SY_OK);
        assert_int_equal(sy_message_decode(packet, n, !makers[i].direction, &got), SY_EPROTO);
        assert_non_null(strstr(sy_error_text(), makers[i].name));
        drop(&sent);
    }
}

static void test_hostile_bytes(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++)
        for (size_t i = 0; i < N_MAKERS; i++) {
            struct sy_message sent, got;
            unsigned char *exact; /* on the heap, so that a sanitizer sees a read past the end */
            size_t n;

            fill(&sent, makers[i].id);
            assert_int_equal(sy_message_encode(&sent, packet, sizeof(packet), &n), SY_OK);
            drop(&sent);
            if (next_random() & 1)
                n = next_random() % (n + 1);
            exact = malloc(n + 1);
            memcpy(exact, packet, n);
            for (unsigned flips = (unsigned)(next_random() % 6); n > 0 && flips > 0; flips--)
                exact[next_random() % (next_random() & 1 && n > 16 ? 16 : n)] =
                    (unsigned char)next_random();
            if (sy_message_decode(exact, n, makers[i].direction, &got) == SY_OK)
                sy_message_finish(&got);
            free(exact);
        }
}

static void expect_refused(const char *bytes, size_t n, const char *word)
{
    struct sy_message got;

    assert_int_equal(sy_message_decode(bytes, n, SY_TO_WORKER, &got), SY_EPROTO);
    assert_non_null(strstr(sy_error_text(), word));
    assert_null(got.storage);
}

static void test_named_refusals(void **state)
{
    (void)state;
    expect_refused("", 0, "not one msgpack value");
    expect_refused("\x01", 1, "array");
    expect_refused("\x91\x7f", 2, "unknown message id 127");
    expect_refused("\x91\x06", 2, "MODEL_DROP has 1 fields, 0 came");
    expect_refused("\x92\x06\xff", 3, "field model");
    expect_refused("\x92\x06\x01\x01", 4, "not one msgpack value");
    expect_refused("\xdd\xff\xff\xff\xff\x01", 6, "elements");
    expect_refused("\xc1", 1, "0xc1");
    expect_refused("\x92\x06\xc6\xff\xff\xff\xff", 7, "bytes");
    memset(packet, 0x91, 64);
    expect_refused((char *)packet, 64, "deeper");
}

/* Not one that would be another, or fine, once it was cut to an int. */
static void test_unknown_statuses_are_refused(void **state)
{
    static const int64_t unknown[] = {
        1, 5, -18, INT64_MIN, INT64_MAX, -(1ll << 32), 1ll << 32, -(1ll << 32) - 5};
    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        struct sy_message sent = {.id = SY_MSG_RUN_DONE, .run_done = {.status = unknown[i]}}, got;
        size_t n;
        assert_int_equal(sy_message_encode(&sent, packet, sizeof packet, &n), SY_OK);
        assert_int_equal(sy_message_decode(packet, n, SY_TO_RUNTIME, &got), SY_EPROTO);
        assert_non_null(strstr(sy_error_text(), "RUN_DONE: field status"));
        sent = (struct sy_message){.id = SY_MSG_JOB_LEFT, .job_left = {.status = unknown[i]}};
        assert_int_equal(sy_message_encode(&sent, packet, sizeof packet, &n), SY_OK);
        assert_int_equal(sy_message_decode(packet, n, SY_TO_RUNTIME, &got), SY_EPROTO);
    }
}

static void test_too_large(void **state)
{
    struct sy_u64s many = {.n = SY_MESSAGE_MAX_BYTES / 8, .v = NULL};
    struct sy_message message = {.id = SY_MSG_RUN};
    size_t n;

    (void)state;
    many.v = malloc(many.n * sizeof(*many.v));
    for (size_t i = 0; i < many.n; i++)
        many.v[i] = UINT64_MAX;
    message.run.inputs = many;
    assert_int_equal(sy_message_encode(&message, packet, sizeof(packet), &n), SY_ETOOBIG);
    assert_non_null(strstr(sy_error_text(), "RUN"));
    free(many.v);
}

static void test_fds_pass(void **state)
{
    struct sy_message sent = {.id = SY_MSG_WELCOME, .welcome = {.worker = 3, .device = "host"}},
                      got;
    int sockets[2], pipes[2], fds[SY_MESSAGE_MAX_FDS], n_fds;
    char byte = 0;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(sy_message_send(sockets[0], &sent, pipes, 2), SY_OK);
    assert_int_equal(sy_message_receive(sockets[1], SY_TO_WORKER, &got, fds, &n_fds), SY_OK);
    assert_int_equal(n_fds, 2);
    assert_int_equal(got.welcome.worker, 3);
    assert_string_equal(got.welcome.device, "host");
    assert_int_equal(fcntl(fds[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    sy_message_finish(&got);
    for (int i = 0; i < 2; i++)
        close(fds[i]), close(pipes[i]);

    fcntl(sockets[1], F_SETFL, O_NONBLOCK);
    assert_int_equal(sy_message_receive(sockets[1], SY_TO_WORKER, &got, NULL, NULL), SY_EBUSY);
    close(sockets[0]);
    assert_int_equal(sy_message_receive(sockets[1], SY_TO_WORKER, &got, NULL, NULL), SY_EPEER);
    sent.id = SY_MSG_SHUTDOWN;
    assert_int_equal(sy_message_send(sockets[1], &sent, NULL, 0), SY_EPEER);
    close(sockets[1]);
}

/* A peer that reads nothing: bounded patience, then EBUSY. */
static void test_hung_peer(void **state)
{
    struct sy_message message = {.id = SY_MSG_SHUTDOWN};
    int sockets[2], status = SY_OK;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    for (int i = 0; i < 1000000 && status == SY_OK; i++)
        status = sy_message_send(sockets[0], &message, NULL, 0);
    assert_int_equal(status, SY_EBUSY);
    close(sockets[0]);
    close(sockets[1]);
}

static void test_scan_in_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MAKERS; i++) {
        struct sy_msgpack_scan scan;
        struct sy_message sent;
        size_t n, have = 0;
        int complete = 0;

        fill(&sent, makers[i].id);
        assert_int_equal(sy_message_encode(&sent, packet, sizeof(packet), &n), SY_OK);
        drop(&sent);
        sy_msgpack_scan_init(&scan, sizeof(packet), 65536);
        while (!complete && have < n) {
            have += 1 + next_random() % 3;
            have = have > n ? n : have;
            complete = sy_msgpack_scan(&scan, packet, have);
            assert_true(complete == (have == n));
        }
        assert_int_equal(scan.at, n);
    }
}

static _Atomic uint32_t futex_word;

static void *wake_later(void *unused)
{
    (void)unused;
    sy_clock_sleep_until(sy_clock_now() + 20 * SY_NS_PER_MS);
    futex_word = 1;
    sy_futex_wake(&futex_word);
    return NULL;
}

static void test_futex(void **state)
{
    pthread_t thread;
    sy_ns before = sy_clock_now();

    (void)state;
    sy_futex_wait(&futex_word, 1, UINT64_MAX); /* differs already */
    sy_futex_wait(&futex_word, 0, 5 * SY_NS_PER_MS);
    assert_true(sy_clock_now() - before >= 4 * SY_NS_PER_MS);
    assert_int_equal(pthread_create(&thread, NULL, wake_later, NULL), 0);
    while (futex_word == 0)
        sy_futex_wait(&futex_word, 0, UINT64_MAX);
    pthread_join(thread, NULL);
}

static void test_longest_stretch(void **state)
{
    static struct sy_control_page page;
    char what[SY_LONGEST_BYTES], name[2 * SY_LONGEST_BYTES];
    uint64_t ns;

    (void)state;
    sy_page_set_longest(&page, 5, "forward a, step 1");
    assert_true(sy_page_longest(&page, &ns, what));
    assert_int_equal(ns, 5);
    assert_string_equal(what, "forward a, step 1");
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    sy_page_set_longest(&page, 6, name);
    assert_true(sy_page_longest(&page, &ns, what));
    assert_int_equal(strlen(what), SY_LONGEST_BYTES - 1);
    page.longest_version++; /* its writer died over it */
    assert_false(sy_page_longest(&page, &ns, what));
    sy_page_set_longest(&page, 7, "update \x1b, step 2");
    assert_true(sy_page_longest(&page, &ns, what));
    assert_string_equal(what, "update ?, step 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_wrong_direction),
        cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_named_refusals),
        cmocka_unit_test(test_unknown_statuses_are_refused),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_fds_pass),
        cmocka_unit_test(test_hung_peer),
        cmocka_unit_test(test_scan_in_pieces),
        cmocka_unit_test(test_futex),
        cmocka_unit_test(test_longest_stretch),
    };
    random_state = seed_of_run(20240601);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Threads beside the loop: order, bounds, the end while work waits; buffers that are freed there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/front/body_buffer.h"
#include "runtime/front/request/offload.h"

static struct event_base *base;
static struct sy_offload *offload;

static int set_up(void **state)
{
    (void)state;
    base = event_base_new();
    return sy_offload_create(base, 2, 8, &offload);
}

static int tear_down(void **state)
{
    (void)state;
    sy_offload_destroy(offload);
    offload = NULL;
    event_base_free(base);
    return 0;
}

struct piece {
    int input, output, n_done;
    _Atomic int *gate; /* waits until it is not 0 */
};

static void work(void *ctx)
{
    struct piece *piece = ctx;

    while (piece->gate && !*piece->gate)
        usleep(100);
    piece->output = piece->input * 2;
}

static void done(void *ctx)
{
    struct piece *piece = ctx;

    piece->n_done++;
}

static void loop_until(const int *value, int wanted)
{
    for (int i = 0; i < 5000 && *value != wanted; i++) {
        event_base_loop(base, EVLOOP_NONBLOCK);
        usleep(100);
    }
    assert_int_equal(*value, wanted);
}

static void test_runs(void **state)
{
    struct piece pieces[8] = {0};

    (void)state;
    for (int round = 1; round < 50; round++) {
        for (int i = 0; i < 8; i++) {
            pieces[i].input = round + i;
            assert_int_equal(sy_offload_run(offload, work, done, &pieces[i]), SY_OK);
        }
        for (int i = 0; i < 8; i++) {
            loop_until(&pieces[i].n_done, round);
            assert_int_equal(pieces[i].output, 2 * (round + i));
        }
    }
}

/* As many as are asked to wait, not one more; those that run do not count. */
static void test_bound(void **state)
{
    _Atomic int gate = 0;
    struct piece pieces[16] = {0};
    int n = 0;

    (void)state;
    for (int i = 0; i < 16; i++) {
        pieces[i].gate = &gate;
        int status = sy_offload_run(offload, work, done, &pieces[i]);
        if (status < 0) {
            assert_int_equal(status, SY_EBUSY);
            assert_non_null(strstr(sy_error_text(), "8"));
            break;
        }
        n++;
        usleep(i < 2 ? 20000 : 0);
    }
    assert_in_range(n, 8, 10);
    gate = 1;
    for (int i = 0; i < n; i++)
        loop_until(&pieces[i].n_done, 1);
}

/* What waits at the end is not run, but done is called for each. */
static void test_end(void **state)
{
    _Atomic int gate = 1;
    struct piece pieces[8] = {0};
    int n_run = 0;

    (void)state;
    for (int i = 0; i < 8; i++) {
        pieces[i] = (struct piece){.input = 1, .gate = &gate};
        assert_int_equal(sy_offload_run(offload, work, done, &pieces[i]), SY_OK);
    }
    sy_offload_destroy(offload);
    offload = NULL;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pieces[i].n_done, 1);
        n_run += pieces[i].output == 2;
    }
    assert_in_range(n_run, 0, 8);
}

static void test_buffers(void **state)
{
    static const uint64_t steps[] = {10, 1000, 65536, 200000, 300000, 1 << 20, 5 << 20};
    struct sy_body_buffer buffer = {0};
    uint64_t all = 0;

    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(sy_body_buffer_room(&buffer, steps[i], i == 1 ? 4000 : 0), SY_OK);
        memset(buffer.at + buffer.used, (int)i, steps[i]);
        buffer.used += steps[i];
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps; all += steps[i], i++) {
        assert_int_equal(buffer.at[all], i);
        assert_int_equal(buffer.at[all + steps[i] - 1], i);
    }
    sy_body_buffer_forget(&buffer, 1 << 20);
    assert_int_equal(buffer.at[buffer.used - 1], 6);
    sy_body_buffer_finish(&buffer, offload);
    assert_null(buffer.at);
    for (int i = 0; i < 30; i++) { /* more than may wait: the rest is freed here */
        assert_int_equal(sy_body_buffer_room(&buffer, 2 << 20, 64ull << 30), SY_OK);
        memset(buffer.at, 1, 2 << 20);
        sy_body_buffer_finish(&buffer, offload);
        sy_offload_free(offload, malloc(2 << 20), 2 << 20);
    }
    sy_offload_free(NULL, NULL, 0);
    sy_body_buffer_finish(&buffer, NULL);
}

static void test_no_room(void **state)
{
    struct sy_body_buffer buffer = {.used = 100};

    (void)state;
    assert_int_equal(sy_body_buffer_room(&buffer, 1ull << 60, 0), SY_ENOMEM_HOST);
    assert_null(buffer.at);
}

struct long_work {
    const _Atomic bool *stop;
    _Atomic bool has_begun, is_over;
};

static void works_until_told(void *ctx)
{
    struct long_work *work = ctx;

    work->has_begun = true;
    while (!*work->stop)
        usleep(100);
    work->is_over = true;
}

static void nothing_after(void *ctx)
{
    (void)ctx;
}

/* Work that would go on without end learns of the end, which waits for it. */
static void test_long_work_is_told_to_stop(void **state)
{
    struct long_work work = {.stop = sy_offload_stops(offload)};

    (void)state;
    assert_false(*work.stop);
    assert_int_equal(sy_offload_run(offload, works_until_told, nothing_after, &work), SY_OK);
    while (!work.has_begun)
        usleep(100);
    sy_offload_destroy(offload);
    offload = NULL;
    assert_true(work.is_over);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bound, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_buffers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_work_is_told_to_stop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_room, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

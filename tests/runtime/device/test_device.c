/* The rules that every device keeps, run on each backend that opens here. What needs a second process starts this binary again. */
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/device/device.h"
#include "runtime/device/link_clock.h"
#include "runtime/device/link_cost.h"
#include "tests/rigs/device_child.h"
#include "tests/rigs/device_rig.h"
#include "tests/rigs/seed.h"

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

static void fill_random(void *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)to)[i] = (unsigned char)below(256);
}

/* ---- copies and order ------------------------------------------------------------------------------------ */

static void test_copies_move_the_bytes(void **state)
{
    struct device_rig *r = *state;
    unsigned char *model = malloc(DEVICE_RIG_POOL_BYTES);
    assert_non_null(model);
    fill_random(r->host, DEVICE_RIG_POOL_BYTES);
    memcpy(model, r->host, DEVICE_RIG_POOL_BYTES);
    assert_int_equal(
        sy_copy_h2d(r->h2d, sy_pool_address(r->pool, 0), r->host, DEVICE_RIG_POOL_BYTES), SY_OK);
    for (int i = 0; i < 500; i++) {
        uint64_t bytes = below(10) ? below(5000) : below(300000);
        uint64_t from = below(DEVICE_RIG_POOL_BYTES - bytes),
                 to = below(DEVICE_RIG_POOL_BYTES - bytes);
        memcpy(model + to, r->host + from, bytes);
        assert_int_equal(sy_copy_h2d(r->h2d, sy_pool_address(r->pool, to), r->host + from, bytes),
                         SY_OK);
    }
    assert_int_equal(sy_stream_synchronize(r->h2d), SY_OK);
    for (uint64_t at = 0; at < DEVICE_RIG_POOL_BYTES;) {
        uint64_t bytes = SY_MIN(1 + below(70001), DEVICE_RIG_POOL_BYTES - at);
        assert_int_equal(sy_copy_d2h(r->d2h, r->back + at, sy_pool_address(r->pool, at), bytes),
                         SY_OK);
        at += bytes;
    }
    assert_int_equal(sy_stream_synchronize(r->d2h), SY_OK);
    assert_memory_equal(r->back, model, DEVICE_RIG_POOL_BYTES);
    free(model);
}

struct step {
    int *list, *n, value;
};

static void append_value(void *arg)
{
    struct step *step = arg;
    step->list[(*step->n)++] = step->value;
}

static void check_order(struct sy_stream *stream)
{
    int list[100], n = 0;
    struct step steps[100];
    for (int i = 0; i < 100; i++) {
        steps[i] = (struct step){list, &n, i};
        assert_int_equal(sy_stream_launch(stream, append_value, &steps[i]), SY_OK);
    }
    assert_int_equal(sy_stream_synchronize(stream), SY_OK);
    assert_int_equal(n, 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(list[i], i);
}

static void test_a_stream_keeps_its_order(void **state)
{
    struct device_rig *r = *state;
    check_order(r->h2d);
    check_order(r->d2h);
    check_order(r->compute);
    /* Copies to one place: the last one stays. */
    for (unsigned i = 0; i < 200; i++) {
        r->host[i * 64] = (unsigned char)i;
        assert_int_equal(sy_copy_h2d(r->h2d, sy_pool_address(r->pool, 77), r->host + i * 64, 64),
                         SY_OK);
    }
    assert_int_equal(sy_stream_synchronize(r->h2d), SY_OK);
    assert_int_equal(sy_copy_d2h(r->d2h, r->back, sy_pool_address(r->pool, 77), 64), SY_OK);
    assert_int_equal(sy_stream_synchronize(r->d2h), SY_OK);
    assert_int_equal(r->back[0], 199);
}

static void test_bad_copies_are_refused(void **state)
{
    struct device_rig *r = *state;
    sy_device_address place = sy_pool_address(r->pool, 0);
    assert_int_equal(sy_copy_h2d(r->h2d, place, NULL, 10), SY_EARG);
    assert_int_equal(sy_copy_h2d(r->h2d, (sy_device_address){0}, r->host, 10), SY_EARG);
    assert_int_equal(sy_copy_h2d(r->d2h, place, r->host, 10), SY_EARG);
    assert_int_equal(sy_copy_d2h(r->h2d, r->host, place, 10), SY_EARG);
    assert_int_equal(sy_copy_h2d(r->h2d, place, NULL, 0), SY_OK);
    assert_int_equal(sy_stream_launch(r->compute, NULL, NULL), SY_EARG);
    assert_int_equal(sy_device_host_register(r->device, NULL, 10), SY_EARG);
    assert_int_equal(sy_stream_synchronize(r->h2d),
                     SY_OK); /* a refusal is not a failure of the stream */
}

/* ---- events ---------------------------------------------------------------------------------------------- */

struct comparison {
    const void *a, *b;
    size_t bytes;
    int result;
};

static void compare_bytes(void *arg)
{
    struct comparison *c = arg;
    c->result = memcmp(c->a, c->b, c->bytes);
}

static void test_compute_waits_for_a_copy(void **state)
{
    struct device_rig *r = *state;
    void *view = sy_device_host_pointer(r->device, sy_pool_address(r->pool, 0));
    if (!view)
        skip();
    for (int i = 0; i < 5; i++) {
        fill_random(r->host, DEVICE_RIG_POOL_BYTES);
        struct comparison c = {view, r->host, DEVICE_RIG_POOL_BYTES, -1};
        assert_int_equal(
            sy_copy_h2d(r->h2d, sy_pool_address(r->pool, 0), r->host, DEVICE_RIG_POOL_BYTES),
            SY_OK);
        assert_int_equal(sy_event_record(r->event, r->h2d), SY_OK);
        assert_int_equal(sy_stream_wait_event(r->compute, r->event), SY_OK);
        assert_int_equal(sy_stream_launch(r->compute, compare_bytes, &c), SY_OK);
        assert_int_equal(sy_stream_synchronize(r->compute), SY_OK);
        assert_int_equal(c.result, 0);
    }
}

static void write_ones(void *arg)
{
    memset(arg, 1, 100000);
}

static void test_a_copy_waits_for_compute(void **state)
{
    struct device_rig *r = *state;
    void *view = sy_device_host_pointer(r->device, sy_pool_address(r->pool, 4096));
    if (!view)
        skip();
    assert_int_equal(sy_stream_launch(r->compute, write_ones, view), SY_OK);
    assert_int_equal(sy_event_record(r->event, r->compute), SY_OK);
    assert_int_equal(sy_stream_wait_event(r->d2h, r->event), SY_OK);
    assert_int_equal(sy_copy_d2h(r->d2h, r->back, sy_pool_address(r->pool, 4096), 100000), SY_OK);
    assert_int_equal(sy_stream_synchronize(r->d2h), SY_OK);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(r->back[i], 1);
}

/* No clock: work in the compute stream ends while a copy is still held behind an event, so neither waits for the other. The
 * work is a copy: functions of different streams may wait for each other. */
static void test_a_copy_overlaps_compute(void **state)
{
    struct device_rig *r = *state;
    _Atomic bool gate;
    fill_random(r->host, 5000);
    device_rig_close_gate(r->d2h, &gate);
    assert_int_equal(sy_event_record(r->event, r->d2h), SY_OK);
    assert_int_equal(sy_stream_wait_event(r->h2d, r->event), SY_OK);
    assert_int_equal(sy_copy_h2d(r->h2d, sy_pool_address(r->pool, 0), r->host, 5000), SY_OK);
    assert_int_equal(sy_event_record(r->other, r->h2d), SY_OK);
    assert_int_equal(sy_copy_h2d(r->compute, sy_pool_address(r->pool, 8192), r->host, 100), SY_OK);
    assert_int_equal(sy_stream_synchronize(r->compute), SY_OK);
    assert_int_equal(sy_event_query(r->event), 0);
    assert_int_equal(sy_event_query(r->other), 0);
    atomic_store(&gate, true);
    assert_int_equal(sy_event_synchronize(r->other, UINT64_MAX), SY_OK);
    assert_int_equal(sy_copy_d2h(r->d2h, r->back, sy_pool_address(r->pool, 0), 5000), SY_OK);
    assert_int_equal(sy_stream_synchronize(r->d2h), SY_OK);
    assert_memory_equal(r->back, r->host, 5000);
}

static void test_events(void **state)
{
    struct device_rig *r = *state;
    _Atomic bool gate;
    /* Never recorded: a wait passes, a query says no. */
    assert_int_equal(sy_stream_wait_event(r->h2d, r->event), SY_OK);
    assert_int_equal(sy_stream_synchronize(r->h2d), SY_OK);
    assert_int_equal(sy_event_query(r->event), 0);
    assert_int_equal(sy_event_time(r->event), 0);
    /* Signalled, with a time that follows the order. */
    sy_ns start = sy_clock_now();
    assert_int_equal(sy_event_record(r->event, r->h2d), SY_OK);
    assert_int_equal(sy_event_record(r->other, r->h2d), SY_OK);
    assert_int_equal(sy_event_synchronize(r->other, UINT64_MAX), SY_OK);
    assert_int_equal(sy_event_query(r->event), 1);
    assert_true(start <= sy_event_time(r->event));
    assert_true(sy_event_time(r->event) <= sy_event_time(r->other));
    assert_true(sy_event_time(r->other) <= sy_clock_now());
    /* Recorded again: reset, until the stream comes to it. */
    device_rig_close_gate(r->h2d, &gate);
    assert_int_equal(sy_event_record(r->event, r->h2d), SY_OK);
    assert_int_equal(sy_event_query(r->event), 0);
    assert_int_equal(sy_event_time(r->event), 0);
    assert_int_equal(sy_event_synchronize(r->event, 0), SY_EDEADLINE);
    assert_int_equal(sy_event_synchronize(r->event, 2 * SY_NS_PER_MS), SY_EDEADLINE);
    atomic_store(&gate, true);
    assert_int_equal(sy_event_synchronize(r->event, 100 * SY_NS_PER_S), SY_OK);
    assert_int_equal(sy_event_query(r->event), 1);
}

static void test_the_queue_is_bounded(void **state)
{
    struct device_rig *r = *state;
    _Atomic bool gate;
    int n = 0, status = SY_OK;
    int most = (int)sy_device_get_properties(r->device)->queue_entries;
    device_rig_close_gate(r->h2d, &gate);
    for (; status == SY_OK && n < 10000; n++)
        status = sy_copy_h2d(r->h2d, sy_pool_address(r->pool, 0), r->host, 1);
    assert_int_equal(status, SY_EBUSY);
    assert_in_range(n, most - 1, most + 2);
    /* What could not be recorded says so, and nobody waits for it for ever. */
    assert_int_equal(sy_event_record(r->event, r->h2d), SY_EBUSY);
    assert_int_equal(sy_event_synchronize(r->event, UINT64_MAX), SY_EBUSY);
    assert_int_equal(sy_event_query(r->event), SY_EBUSY);
    atomic_store(&gate, true);
    assert_int_equal(sy_stream_synchronize(r->h2d), SY_OK);
    assert_int_equal(sy_event_record(r->event, r->h2d), SY_OK);
    assert_int_equal(sy_event_synchronize(r->event, UINT64_MAX), SY_OK);
}

static void test_destroy_finishes_the_queue(void **state)
{
    struct device_rig *r = *state;
    fill_random(r->host, DEVICE_RIG_POOL_BYTES);
    for (uint64_t at = 0; at < DEVICE_RIG_POOL_BYTES; at += DEVICE_RIG_POOL_BYTES / 64)
        assert_int_equal(sy_copy_h2d(r->h2d, sy_pool_address(r->pool, at), r->host + at,
                                     DEVICE_RIG_POOL_BYTES / 64),
                         SY_OK);
    sy_stream_destroy(r->h2d);
    r->h2d = NULL;
    assert_int_equal(
        sy_copy_d2h(r->d2h, r->back, sy_pool_address(r->pool, 0), DEVICE_RIG_POOL_BYTES), SY_OK);
    assert_int_equal(sy_stream_synchronize(r->d2h), SY_OK);
    assert_memory_equal(r->back, r->host, DEVICE_RIG_POOL_BYTES);
}

/* ---- pools ----------------------------------------------------------------------------------------------- */

static void test_pools(void **state)
{
    struct device_rig *r = *state;
    struct sy_pool_memory *second, *third;
    assert_int_equal(sy_pool_size(r->pool), DEVICE_RIG_POOL_BYTES);
    assert_int_equal(sy_pool_address(r->pool, 4711).value,
                     sy_pool_address(r->pool, 0).value + 4711);
    assert_int_equal(sy_pool_create(r->device, 1, &second), SY_OK);
    assert_int_equal(sy_pool_size(second) % 4096, 0);
    uint64_t address = sy_pool_address(second, 0).value;
    bool own_addresses = sy_device_get_properties(r->device)->own_addresses;
    assert_true(address != sy_pool_address(r->pool, 0).value);
    sy_pool_destroy(second);
    assert_int_equal(sy_pool_create(r->device, 100000, &third), SY_OK);
    if (!own_addresses) /* the place is free again */
        assert_int_equal(sy_pool_address(third, 0).value, address);
    sy_pool_destroy(third);
    assert_int_equal(sy_pool_create(r->device, 0, &third), SY_ENOMEM_DEVICE);
    assert_int_equal(sy_pool_create(r->device, UINT64_MAX / 2, &third), SY_ENOMEM_DEVICE);
}

/* Whatever pages the kernel gives: what was there stays, in the range and beside it. */
static void test_touched_memory_keeps_its_bytes(void **state)
{
    struct device_rig *r = *state;
    struct sy_pool_memory *pool;
    const uint64_t bytes = (7u << 20) + 12345;
    assert_int_equal(sy_pool_create(r->device, bytes, &pool), SY_OK);
    unsigned char *at = sy_device_host_pointer(r->device, sy_pool_address(pool, 0));
    for (uint64_t i = 0; at && i < bytes; i += 997)
        at[i] = (unsigned char)(i / 997);
    sy_pool_touch(pool, 0, 0);
    sy_pool_touch(pool, 3u << 20, 1);
    sy_pool_touch(pool, 100, bytes - 100);
    sy_pool_touch(pool, 0, bytes);
    sy_pool_touch(pool, bytes, 0);
    for (uint64_t i = 0; at && i < bytes; i += 997)
        assert_int_equal(at[i], (unsigned char)(i / 997));
    sy_pool_destroy(pool);
}

static void test_a_wrong_import_is_refused(void **state)
{
    struct device_rig *r = *state;
    struct sy_pool_memory *other;
    int fd;
    assert_int_equal(sy_pool_export(r->pool, &fd), SY_OK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(sy_pool_import(r->device, fd, DEVICE_RIG_POOL_BYTES / 2, &other), SY_EARG);
    assert_int_equal(sy_pool_import(r->device, fd, DEVICE_RIG_POOL_BYTES * 2, &other), SY_EARG);
    assert_int_equal(sy_pool_import(r->device, fd, 0, &other), SY_EARG);
    assert_int_equal(sy_pool_import(r->device, -1, DEVICE_RIG_POOL_BYTES, &other), SY_EARG);
    close(fd);
    fd = open("/dev/null", O_RDWR);
    assert_int_equal(sy_pool_import(r->device, fd, DEVICE_RIG_POOL_BYTES, &other), SY_EARG);
    close(fd);
}

/* ---- two processes --------------------------------------------------------------------------------------- */

static void test_two_processes_see_the_same_bytes(void **state)
{
    struct device_rig *r = *state;
    for (unsigned i = 0; i < DEVICE_CHILD_BYTES; i++)
        r->host[i] = device_child_byte(i, 1);
    uint64_t address = sy_pool_address(r->pool, DEVICE_CHILD_READS).value;
    memcpy(r->host + DEVICE_CHILD_BYTES, &address, sizeof address);
    assert_int_equal(sy_copy_h2d(r->h2d, sy_pool_address(r->pool, DEVICE_CHILD_READS), r->host,
                                 DEVICE_CHILD_BYTES + sizeof address),
                     SY_OK);
    assert_int_equal(sy_stream_synchronize(r->h2d), SY_OK);
    assert_int_equal(device_rig_finish_child(device_rig_start_child(r, "bytes", NULL)), 0);
    assert_int_equal(sy_copy_d2h(r->d2h, r->back, sy_pool_address(r->pool, DEVICE_CHILD_WRITES),
                                 DEVICE_CHILD_BYTES),
                     SY_OK);
    assert_int_equal(sy_stream_synchronize(r->d2h), SY_OK);
    for (unsigned i = 0; i < DEVICE_CHILD_BYTES; i++)
        assert_int_equal(r->back[i], device_child_byte(i, 2));
}

static void test_an_error_stays_in_its_process(void **state)
{
    struct device_rig *r = *state;
    assert_int_equal(
        device_rig_finish_child(device_rig_start_child(r, "sticky", "copy_run:2:EDEVICE")), 0);
    fill_random(r->host, 1000);
    assert_int_equal(sy_copy_h2d(r->h2d, sy_pool_address(r->pool, 5), r->host, 1000), SY_OK);
    assert_int_equal(sy_stream_synchronize(r->h2d), SY_OK);
    assert_int_equal(sy_copy_d2h(r->d2h, r->back, sy_pool_address(r->pool, 5), 1000), SY_OK);
    assert_int_equal(sy_stream_synchronize(r->d2h), SY_OK);
    assert_memory_equal(r->back, r->host, 1000);
}

static void test_faults_on_demand(void **state)
{
    static const char *const ops[] = {"pool_create",  "pool_import",   "copy_h2d",     "copy_d2h",
                                      "event_record", "stream_launch", "host_register"};
    for (size_t i = 0; i < SY_ARRAY_LEN(ops); i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s:2:EDEVICE", ops[i]);
        assert_int_equal(device_rig_finish_child(device_rig_start_child(*state, ops[i], fault)), 0);
    }
}

/* ---- the emulated link ----------------------------------------------------------------------------------- */

static bool is_emulated(const struct device_rig *r)
{
    return sy_device_get_properties(r->device)->emulated;
}

static struct sy_link_clock *link_clock_of(struct device_rig *r)
{
    return sy_device_host_pointer(r->device, sy_pool_address(r->pool, sy_pool_size(r->pool)));
}

static int compare_slots(const void *a, const void *b)
{
    const struct device_child_slot *x = a, *y = b;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Two processes reserve at once; their slots, put side by side, never overlap. */
static void test_reserved_slots_never_overlap(void **state)
{
    struct device_rig *r = *state;
    struct device_child_slots *slots =
        sy_device_host_pointer(r->device, sy_pool_address(r->pool, 0));
    if (!is_emulated(r))
        return;
    memset(slots, 0, sizeof *slots);
    pid_t children[2] = {device_rig_start_child(r, "slots", NULL),
                         device_rig_start_child(r, "slots", NULL)};
    assert_int_equal(device_rig_finish_child(children[0]), 0);
    assert_int_equal(device_rig_finish_child(children[1]), 0);
    unsigned n = atomic_load(&slots->n);
    assert_int_equal(n, 2 * DEVICE_CHILD_SLOTS);
    qsort(slots->slots, n, sizeof slots->slots[0], compare_slots);
    for (unsigned i = 1; i < n; i++)
        assert_true(slots->slots[i - 1].end_ns <= slots->slots[i].start_ns);
    assert_int_equal(atomic_load(&link_clock_of(r)->free_ns[SY_LINK_H2D]),
                     slots->slots[n - 1].end_ns);
}

/* Two processes copy at once: the link is busy for the bytes of both, and for every copy's alpha. */
static void test_two_processes_share_one_link(void **state)
{
    struct device_rig *r = *state;
    struct sy_device_spec spec;
    if (!is_emulated(r))
        return;
    assert_int_equal(sy_device_spec_parse(device_rig_spec, &spec), SY_OK);
    sy_ns start = sy_clock_now();
    pid_t children[2] = {device_rig_start_child(r, "link", NULL),
                         device_rig_start_child(r, "link", NULL)};
    assert_int_equal(device_rig_finish_child(children[0]), 0);
    assert_int_equal(device_rig_finish_child(children[1]), 0);
    double bytes = 2.0 * DEVICE_CHILD_COPIES * DEVICE_CHILD_BYTES;
    double least_ns =
        bytes / spec.link_gbps + 2.0 * DEVICE_CHILD_COPIES * (double)(spec.link_alpha_ns - 1);
    uint64_t end = atomic_load(&link_clock_of(r)->free_ns[SY_LINK_H2D]);
    assert_true((double)(end - start) >= least_ns);
    assert_true(sy_clock_now() >= end); /* a copy ends no earlier than its slot */
    assert_int_equal(atomic_load(&link_clock_of(r)->free_ns[SY_LINK_D2H]), 0);
}

static void count_own_cores(void *arg)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    *(int *)arg = CPU_COUNT(&set);
}

static void test_the_link_is_pinned_when_asked(void **state)
{
    struct device_rig *r = *state;
    struct sy_stream *stream;
    int n_cores = -1;
    assert_int_equal(sy_device_set_link_core(r->device, -2), SY_EARG);
    assert_int_equal(sy_device_set_link_core(r->device, 100000), SY_EARG);
    assert_int_equal(sy_device_set_link_core(r->device, sched_getcpu()), SY_OK);
    assert_int_equal(sy_stream_create(r->device, SY_STREAM_COPY_H2D, &stream), SY_OK);
    assert_int_equal(sy_stream_launch(stream, count_own_cores, &n_cores), SY_OK);
    assert_int_equal(sy_stream_synchronize(stream), SY_OK);
    sy_stream_destroy(stream);
    assert_true(is_emulated(r) ? n_cores == 1 : n_cores >= 1);
}

static void test_the_link_is_measured(void **state)
{
    struct device_rig *r = *state;
    struct sy_link_measurement m;
    assert_int_equal(
        sy_link_measure(r->device, r->pool, 0, DEVICE_RIG_POOL_BYTES + 1, r->host, 0, &m), SY_EARG);
    assert_int_equal(sy_link_measure(r->device, r->pool, 0, 4096, r->host, 0, &m), SY_EARG);
    assert_int_equal(sy_link_measure(r->device, r->pool, 4096, DEVICE_RIG_POOL_BYTES - 4096,
                                     r->host, 50 * SY_NS_PER_MS, &m),
                     SY_OK);
    print_message("%s: alpha %.0f ns, %.2f GB/s in, %.2f GB/s out, sigma %.0f ns, %d samples\n",
                  sy_device_get_properties(r->device)->name, m.alpha_ns, m.h2d_gbps, m.d2h_gbps,
                  m.sigma_ns, m.n_samples);
    assert_true(m.h2d_gbps > 0 && m.d2h_gbps > 0 && m.sigma_ns > 0);
    assert_true(isfinite(m.lost_ns_per_byte) && m.lost_ns_per_byte >= 0);
    assert_true(m.n_samples >= 15);
    assert_true(sy_device_get_properties(r->device)->unified ? m.alpha_ns == 0 : m.alpha_ns >= 0);
}

/* ---- the suite ----------------------------------------------------------------------------------------- */

#define ON_DEVICE(test) \
    cmocka_unit_test_setup_teardown(test, device_rig_set_up, device_rig_tear_down)

static int run_suite(const char *text)
{
    static const struct CMUnitTest tests[] = {
        ON_DEVICE(test_copies_move_the_bytes),
        ON_DEVICE(test_a_stream_keeps_its_order),
        ON_DEVICE(test_bad_copies_are_refused),
        ON_DEVICE(test_compute_waits_for_a_copy),
        ON_DEVICE(test_a_copy_waits_for_compute),
        ON_DEVICE(test_a_copy_overlaps_compute),
        ON_DEVICE(test_events),
        ON_DEVICE(test_the_queue_is_bounded),
        ON_DEVICE(test_destroy_finishes_the_queue),
        ON_DEVICE(test_pools),
        ON_DEVICE(test_touched_memory_keeps_its_bytes),
        ON_DEVICE(test_a_wrong_import_is_refused),
        ON_DEVICE(test_two_processes_see_the_same_bytes),
        ON_DEVICE(test_an_error_stays_in_its_process),
        ON_DEVICE(test_faults_on_demand),
        ON_DEVICE(test_reserved_slots_never_overlap),
        ON_DEVICE(test_two_processes_share_one_link),
        ON_DEVICE(test_the_link_is_pinned_when_asked),
        ON_DEVICE(test_the_link_is_measured),
    };
    struct sy_device_spec spec;
    struct sy_device *device;
    device_rig_spec = text;
    if (sy_device_spec_parse(text, &spec) < 0 || sy_device_open(&spec, &device) < 0) {
        print_message("%s is not here: %s\n", text, sy_error_text());
        return getenv("SY_TEST_DEVICE") ? 1 : 0;
    }
    sy_device_close(device);
    return cmocka_run_group_tests_name(text, tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--child") == 0)
        return device_child_main(argv[2], argv[3], atoi(argv[4]), strtoull(argv[5], NULL, 10));
    seed = seed_of_run(20261121);
    int failed = 0;
    /* A fast link, so that the suite is quick: most of it is not about pace. */
    static const char *const devices[] = {"host", "emulated,link-gbps=4,link-alpha-us=5"};
    const char *only = getenv("SY_TEST_DEVICE"); /* which then has to be there */
    if (only)
        return run_suite(only);
    for (size_t i = 0; i < SY_ARRAY_LEN(devices); i++)
        failed += run_suite(devices[i]);
    return failed;
}

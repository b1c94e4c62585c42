/* The CUDA device on a table of calls that records them: which calls, in which order, and what happens when one of them fails. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_place.h"
#include "runtime/device/cuda/pool_keeper.h"
#include "runtime/device/cuda/queue_bound.h"
#include "runtime/device/device.h"
#include "tests/fake_cuda.h"

#define POOL_BYTES (8u << 20)

static char own_path[4096];

static int open_cuda(int ordinal, struct sy_device **out)
{
    struct sy_device_spec spec = {.kind = "cuda", .ordinal = ordinal};
    return sy_cuda_ops.open(&spec, out);
}

/* Each test in a process of its own: contexts, places and the thread's device are the process's. */
static void in_a_process(void (*test)(void))
{
    int result = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        fake_cuda_reset();
        test();
        fflush(NULL);
#ifdef __SANITIZE_ADDRESS__ /* _exit would leave it out */
        _exit(__lsan_do_recoverable_leak_check() ? 3 : 0);
#endif
        _exit(0);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

/* cmocka's assertions jump out of the child into the parent's tests; these end it. */
#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s:%d: %s; last error: %s; calls: %.600s\n", __FILE__, __LINE__, \
                    #condition, sy_error_text(), fake_cuda_record());                         \
            _exit(1);                                                                         \
        }                                                                                     \
    } while (0)
#define CHECK_CALLS(expected)                                                          \
    do {                                                                               \
        if (strcmp(fake_cuda_record(), expected) != 0) {                               \
            fprintf(stderr, "%s:%d: calls are\n  %s\nnot\n  %s\n", __FILE__, __LINE__, \
                    fake_cuda_record(), expected);                                     \
            _exit(1);                                                                  \
        }                                                                              \
    } while (0)
#define IN_A_PROCESS(name)                \
    static void name(void);               \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        in_a_process(name);               \
    }                                     \
    static void name(void)

static struct sy_device *must_open(void)
{
    struct sy_device *device = NULL;
    CHECK(open_cuda(0, &device) == SY_OK);
    return device;
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

static void expect_refusal(int ordinal, const char *word)
{
    struct sy_device *device = NULL;
    CHECK(open_cuda(ordinal, &device) == SY_ENODEVICE);
    CHECK(strstr(sy_error_text(), "cuda:") && strstr(sy_error_text(), word));
    CHECK(!strchr(sy_error_text(), '\n'));
    CHECK(!fake_cuda_has_context() && fake_cuda_alive() == 0);
    fake_cuda_reset();
}

IN_A_PROCESS(what_cannot_be_opened_says_why)
{
    fake_cuda.fail_name = "api_load";
    fake_cuda.fail_error = 1;
    expect_refusal(0, "driver");
    fake_cuda.n_devices = 0;
    expect_refusal(0, "no CUDA-capable device");
    fake_cuda.n_devices = 2;
    expect_refusal(2, "2 GPUs");
    expect_refusal(1, "is 1 GPU here");
    fake_cuda.capability = 75;
    expect_refusal(0, "7.5");
    fake_cuda.mode = SY_CUDA_MODE_EXCLUSIVE;
    expect_refusal(0, "exclusive-process");
    fake_cuda.mode = SY_CUDA_MODE_PROHIBITED;
    expect_refusal(0, "prohibited");
    fake_cuda.capability = 80;
    sy_device_close(must_open());
}

IN_A_PROCESS(the_properties)
{
    struct sy_device *device = must_open();
    const struct sy_device_properties *p = sy_device_get_properties(device);
    CHECK(strcmp(p->name, "cuda:0 (Fake GPU)") == 0);
    CHECK(!p->unified && !p->emulated && p->reserved_cores == 0 && !p->own_addresses);
    CHECK(p->memory_bytes == 1ull << 33 && p->numa_node == 3 &&
          p->queue_entries == SY_QUEUE_ENTRIES);
    CHECK(sy_device_host_pointer(device, (sy_device_address){4096}) == NULL);
    CHECK(sy_device_set_link_core(device, 1) == SY_OK);
    sy_device_close(device);
}

/* ---- the runtime's side -------------------------------------------------------------------------------------- */

IN_A_PROCESS(the_runtime_makes_no_context)
{
    struct sy_device *device = must_open();
    struct sy_pool_memory *pool;
    int fd;
    fake_cuda_reset();
    CHECK(sy_pool_create(device, POOL_BYTES - 5, &pool) == SY_OK);
    CHECK(sy_pool_size(pool) == POOL_BYTES);
    CHECK(sy_pool_address(pool, 0).value == SY_CUDA_PLACE_BASE);
    CHECK(sy_pool_export(pool, &fd) == SY_OK);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK_CALLS("mem_granularity device_attribute device_attribute "
                "mem_create mem_export mem_import mem_release mem_release " /* tried once */
                "mem_create address_reserve context_active mem_export ");
    close(fd);
    sy_pool_destroy(pool);
    sy_device_close(device);
    CHECK(!fake_cuda_has_context() && fake_cuda_alive() == 0);
}

IN_A_PROCESS(the_way_is_chosen_once)
{
    struct sy_device *device = must_open();
    struct sy_pool_memory *pool, *second;
    CHECK(sy_pool_create(device, 1, &pool) == SY_OK);
    fake_cuda_reset();
    CHECK(sy_pool_create(device, 1, &second) == SY_OK);
    CHECK_CALLS("mem_granularity mem_create address_reserve context_active ");
    CHECK(sy_pool_address(second, 0).value == SY_CUDA_PLACE_BASE + SY_CUDA_PLACE_STRIDE);
    sy_pool_destroy(pool);
    sy_pool_destroy(second);
    sy_device_close(device);
    CHECK(fake_cuda_alive() == 0);
}

IN_A_PROCESS(too_large_a_pool)
{
    struct sy_device *device = must_open();
    struct sy_pool_memory *pool;
    CHECK(sy_pool_create(device, (1ull << 33) + 1, &pool) == SY_ENOMEM_DEVICE);
    fake_cuda.memory_bytes = 1ull << 30; /* others have the rest */
    CHECK(sy_pool_create(device, 1ull << 31, &pool) == SY_ENOMEM_DEVICE);
    CHECK(strstr(sy_error_text(), "2147483648") && strstr(sy_error_text(), "--pool-gb"));
    sy_device_close(device);
    CHECK(fake_cuda_alive() == 0);
}

/* ---- a worker's side ----------------------------------------------------------------------------------------- */

/* What the runtime would have sent: made here, before this process has a context. */
static int make_export(struct sy_device *device, struct sy_pool_memory **pool)
{
    int fd = -1;
    CHECK(sy_pool_create(device, POOL_BYTES, pool) == SY_OK);
    CHECK(sy_pool_export(*pool, &fd) == SY_OK);
    return fd;
}

IN_A_PROCESS(a_worker_maps_at_the_exporters_address)
{
    struct sy_device *runtime = must_open(), *worker = must_open();
    struct sy_pool_memory *pool, *imported;
    int fd = make_export(runtime, &pool);
    /* One process plays both; the runtime's place is free again, but not its memory. */
    fake_cuda_reset();
    CHECK(sy_pool_import(worker, fd, POOL_BYTES, &imported) == SY_OK);
    CHECK_CALLS("mem_granularity context_open context_enter mem_import address_reserve mem_map "
                "mem_access ");
    CHECK(sy_pool_address(imported, 0).value == SY_CUDA_PLACE_BASE + SY_CUDA_PLACE_STRIDE);
    sy_pool_destroy(pool);
    sy_pool_destroy(imported);
    fake_cuda_reset();
    CHECK(sy_pool_import(worker, fd, POOL_BYTES, &imported) == SY_OK);
    CHECK(sy_pool_address(imported, 0).value == SY_CUDA_PLACE_BASE);
    CHECK_CALLS("mem_granularity mem_import address_reserve mem_map mem_access ");
    fake_cuda_reset();
    sy_pool_destroy(imported);
    CHECK_CALLS("mem_unmap address_free mem_release ");
    close(fd);
    sy_device_close(runtime);
    sy_device_close(worker);
    CHECK(fake_cuda_alive() == 0);
}

IN_A_PROCESS(a_wrong_import_is_refused)
{
    struct sy_device *device = must_open(), *other;
    struct sy_pool_memory *pool, *imported;
    int fd = make_export(device, &pool);
    CHECK(sy_pool_import(device, fd, POOL_BYTES / 2, &imported) == SY_EARG);
    CHECK(sy_pool_import(device, fd, POOL_BYTES + 1, &imported) == SY_EARG);
    fake_cuda.uuid0 = 99;
    other = must_open();
    CHECK(sy_pool_import(other, fd, POOL_BYTES, &imported) == SY_EARG);
    CHECK(strstr(sy_error_text(), "CUDA_VISIBLE_DEVICES"));
    CHECK(!fake_cuda_has_context());
    close(fd);
    sy_pool_destroy(pool);
    sy_device_close(device);
    sy_device_close(other);
    CHECK(fake_cuda_alive() == 0);
}

IN_A_PROCESS(another_address_is_refused)
{
    struct sy_device *device = must_open();
    struct sy_pool_memory *pool, *imported;
    int fd = make_export(device, &pool);
    uint64_t address = sy_pool_address(pool, 0).value;
    sy_pool_destroy(pool);
    fake_cuda.moves_addresses = true;
    CHECK(sy_pool_import(device, fd, POOL_BYTES, &imported) == SY_EUNSUPPORTED);
    CHECK(strstr(sy_error_text(), "SY_CUDA_POOL_BASE"));
    fake_cuda.moves_addresses = false;
    void *taken = mmap((void *)(uintptr_t)address, 4096, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(taken != MAP_FAILED);
    CHECK(sy_pool_import(device, fd, POOL_BYTES, &imported) == SY_EUNSUPPORTED);
    munmap(taken, 4096);
    CHECK(sy_pool_import(device, fd, POOL_BYTES, &imported) == SY_OK);
    CHECK(sy_pool_address(imported, 0).value == address);
    sy_pool_destroy(imported);
    close(fd);
    sy_device_close(device);
    CHECK(fake_cuda_alive() == 0);
}

/* The maker's driver has another idea: then that is the address for all. */
IN_A_PROCESS(the_drivers_address_is_everybodys)
{
    struct sy_device *device = must_open();
    struct sy_pool_memory *pool, *imported;
    fake_cuda.moves_addresses = true;
    int fd = make_export(device, &pool);
    uint64_t address = sy_pool_address(pool, 0).value;
    CHECK(address != SY_CUDA_PLACE_BASE);
    sy_pool_destroy(pool);
    fake_cuda.moves_addresses = false;
    CHECK(sy_pool_import(device, fd, POOL_BYTES, &imported) == SY_OK);
    CHECK(sy_pool_address(imported, 0).value == address);
    sy_pool_destroy(imported);
    close(fd);
    sy_device_close(device);
    CHECK(fake_cuda_alive() == 0);
}

/* A driver that reserves nothing without a context: later, and at the place that was said. */
IN_A_PROCESS(reserving_may_have_to_wait)
{
    struct sy_device *device = must_open();
    struct sy_pool_memory *pool;
    struct sy_stream *stream;
    fake_cuda.fail_name = "address_reserve";
    fake_cuda.fail_error = SY_CUDA_DeviceUninitialized;
    CHECK(sy_pool_create(device, POOL_BYTES, &pool) == SY_OK);
    CHECK(sy_pool_address(pool, 0).value == SY_CUDA_PLACE_BASE);
    fake_cuda.fail_name = "mem_access";
    CHECK(sy_stream_create(device, SY_STREAM_COMPUTE, &stream) < 0); /* the pool is to be mapped */
    fake_cuda_reset();
    CHECK(sy_stream_create(device, SY_STREAM_COMPUTE, &stream) ==
          SY_OK); /* and is, the next time */
    CHECK(strstr(fake_cuda_record(), "context_open context_enter mem_map mem_access "));
    sy_stream_destroy(stream);
    sy_pool_destroy(pool);
    sy_device_close(device);
    CHECK(fake_cuda_alive() == 0);
}

/* ---- a swap -------------------------------------------------------------------------------------------------- */

struct rig {
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_stream *h2d, *compute;
    struct sy_event *event;
    unsigned char *host;
};

static struct rig make_rig(void)
{
    struct rig r = {.device = must_open()};
    CHECK(sy_pool_create(r.device, POOL_BYTES, &r.pool) == SY_OK);
    CHECK(sy_stream_create(r.device, SY_STREAM_COPY_H2D, &r.h2d) == SY_OK);
    CHECK(sy_stream_create(r.device, SY_STREAM_COMPUTE, &r.compute) == SY_OK);
    CHECK(sy_event_create(r.device, &r.event) == SY_OK);
    r.host = aligned_alloc(POOL_BYTES, POOL_BYTES); /* so that no pinned piece ends in it */
    CHECK(r.host);
    memset(r.host, 0, POOL_BYTES);
    return r;
}

static void drop_rig(struct rig *r)
{
    sy_stream_destroy(r->h2d);
    sy_stream_destroy(r->compute);
    sy_event_destroy(r->event);
    sy_pool_destroy(r->pool);
    sy_device_close(r->device);
    free(r->host);
}

static void count_up(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

IN_A_PROCESS(a_swap_waits_nowhere)
{
    struct rig r = make_rig();
    struct sy_event *second;
    _Atomic int n = 0;
    CHECK(sy_event_create(r.device, &second) == SY_OK);
    fake_cuda_reset();
    CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 0), r.host, 4096) == SY_OK);
    CHECK(sy_event_record(r.event, r.h2d) == SY_OK);
    CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 4096), r.host, 4096) == SY_OK);
    CHECK(sy_event_record(second, r.h2d) == SY_OK);
    CHECK(sy_stream_wait_event(r.compute, r.event) == SY_OK);
    CHECK(sy_stream_launch(r.compute, count_up, (void *)&n) == SY_OK);
    CHECK(sy_stream_wait_event(r.compute, second) == SY_OK);
    CHECK(sy_stream_launch(r.compute, count_up, (void *)&n) == SY_OK);
    CHECK_CALLS(
        "copy event_record copy event_record wait_event launch_host wait_event launch_host ");
    CHECK(sy_stream_synchronize(r.compute) == SY_OK);
    CHECK(atomic_load(&n) == 2);
    CHECK(sy_cuda_stream_handle(r.h2d) &&
          sy_cuda_stream_handle(r.h2d) != sy_cuda_stream_handle(r.compute));
    CHECK(sy_cuda_event_handle(r.event) &&
          sy_cuda_event_handle(r.event) != sy_cuda_event_handle(second));
    sy_event_destroy(second);
    drop_rig(&r);
    CHECK(fake_cuda_alive() == 0);
}

IN_A_PROCESS(a_wait_on_nothing_is_no_call)
{
    struct rig r = make_rig();
    fake_cuda_reset();
    CHECK(sy_stream_wait_event(r.compute, r.event) == SY_OK);
    CHECK(sy_event_query(r.event) == 0);
    CHECK(sy_event_time(r.event) == 0);
    CHECK(sy_event_synchronize(r.event, UINT64_MAX) == SY_OK);
    CHECK_CALLS("");
    drop_rig(&r);
}

/* One extra record for 32 entries, none of them waited for. */
IN_A_PROCESS(entries_are_counted)
{
    struct rig r = make_rig();
    int n_records = 0;
    fake_cuda_reset();
    for (unsigned i = 0; i < 3 * SY_QUEUE_ENTRIES; i++) {
        int status = sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 0), r.host, 64);
        if (status == SY_EBUSY) {
            CHECK(i >= SY_QUEUE_ENTRIES);
            CHECK(sy_stream_synchronize(r.h2d) == SY_OK);
        }
    }
    for (const char *at = fake_cuda_record(); (at = strstr(at, "event_record")); at++)
        n_records++;
    CHECK(n_records >= 32 && n_records <= 48);
    drop_rig(&r);
    CHECK(fake_cuda_alive() == 0);
}

/* ---- times --------------------------------------------------------------------------------------------------- */

IN_A_PROCESS(times_are_the_hosts)
{
    struct rig r = make_rig();
    sy_ns last = 0;
    for (int i = 0; i < 50; i++) {
        sy_ns start = sy_clock_now();
        CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 0), r.host, 100000) == SY_OK);
        CHECK(sy_event_record(r.event, r.h2d) == SY_OK);
        CHECK(sy_event_synchronize(r.event, i % 2 ? UINT64_MAX : 100 * SY_NS_PER_S) == SY_OK);
        sy_ns time = sy_event_time(r.event);
        CHECK(time >= start && time <= sy_clock_now() && time >= last);
        CHECK(sy_event_time(r.event) == time);
        last = time;
    }
    drop_rig(&r);
}

/* ---- failures that stay --------------------------------------------------------------------------------------- */

IN_A_PROCESS(a_sticky_error_sticks)
{
    struct rig r = make_rig();
    struct sy_event *before;
    _Atomic int n = 0;
    CHECK(sy_event_create(r.device, &before) == SY_OK);
    CHECK(sy_event_record(before, r.h2d) == SY_OK);
    CHECK(sy_event_synchronize(before, UINT64_MAX) == SY_OK);
    CHECK(sy_event_record(r.event, r.h2d) == SY_OK);
    fake_cuda.broken = SY_CUDA_IllegalAddress; /* a kernel wrote where it must not */
    CHECK(sy_event_synchronize(r.event, UINT64_MAX) == SY_EDEVICE);
    CHECK(sy_event_query(r.event) == SY_EDEVICE);
    CHECK(sy_event_query(before) == 1);
    fake_cuda_reset(); /* nothing is asked of the driver any more */
    CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 0), r.host, 64) == SY_EDEVICE);
    CHECK(strstr(sy_error_text(), "open it in a new one"));
    CHECK(sy_event_record(r.event, r.h2d) == SY_EDEVICE);
    CHECK(sy_event_synchronize(r.event, 5 * SY_NS_PER_S) == SY_EDEVICE);
    CHECK(sy_stream_wait_event(r.compute, r.event) == SY_EDEVICE);
    CHECK(sy_stream_launch(r.compute, count_up, (void *)&n) == SY_EDEVICE);
    CHECK(sy_stream_synchronize(r.compute) == SY_EDEVICE);
    CHECK(sy_device_host_register(r.device, r.host, POOL_BYTES) == SY_EDEVICE);
    CHECK_CALLS("");
    sy_event_destroy(before);
    drop_rig(&r); /* and all can be taken down */
    CHECK(fake_cuda_alive() == 0);
}

IN_A_PROCESS(what_is_not_sticky_passes)
{
    struct rig r = make_rig();
    fake_cuda.fail_name = "copy";
    fake_cuda.fail_error = SY_CUDA_InvalidValue;
    CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 0), r.host, 64) == SY_EARG);
    CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 0), r.host, 64) == SY_OK);
    fake_cuda.fail_name = "event_record";
    fake_cuda.fail_error = SY_CUDA_MemoryAllocation;
    CHECK(sy_event_record(r.event, r.h2d) == SY_ENOMEM_DEVICE);
    CHECK(sy_event_query(r.event) == SY_ENOMEM_DEVICE); /* D4 */
    CHECK(sy_stream_wait_event(r.compute, r.event) == SY_ENOMEM_DEVICE);
    CHECK(sy_event_synchronize(r.event, UINT64_MAX) == SY_ENOMEM_DEVICE);
    CHECK(sy_event_record(r.event, r.h2d) == SY_OK);
    CHECK(sy_event_synchronize(r.event, UINT64_MAX) == SY_OK);
    CHECK(sy_cuda_device_check(r.device, SY_CUDA_NoKernelImageForDevice, "kernel %d", 5) ==
          SY_EUNSUPPORTED);
    CHECK(strstr(sy_error_text(), "kernel 5"));
    CHECK(sy_cuda_device_failed(r.device) == SY_OK);
    CHECK(sy_stream_synchronize(r.h2d) == SY_OK);
    drop_rig(&r);
    CHECK(fake_cuda_alive() == 0);
}

/* ---- threads -------------------------------------------------------------------------------------------------- */

static void *ask(void *arg)
{
    struct sy_event *event = arg;
    return sy_event_synchronize(event, UINT64_MAX) == SY_OK && sy_event_query(event) == 1 &&
                   sy_event_time(event) > 0
               ? arg
               : NULL;
}

/* The fake refuses calls from threads that have not entered the context. */
IN_A_PROCESS(any_thread_may_ask)
{
    struct rig r = make_rig();
    pthread_t threads[4];
    void *result;
    CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 0), r.host, POOL_BYTES) == SY_OK);
    CHECK(sy_event_record(r.event, r.h2d) == SY_OK);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, ask, r.event) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], &result) == 0 && result);
    drop_rig(&r);
}

/* ---- pinned memory --------------------------------------------------------------------------------------------- */

IN_A_PROCESS(memory_is_pinned_in_the_background)
{
    struct rig r = make_rig();
    int alive = fake_cuda_alive();
    CHECK(sy_device_host_register(r.device, r.host, 4096) == SY_OK);
    CHECK(sy_device_host_register(r.device, r.host, 4096) == SY_OK); /* again: the same */
    CHECK(sy_device_host_register(r.device, r.host, 8192) == SY_EARG);
    CHECK(sy_device_host_register_wait(r.device, 100 * SY_NS_PER_S) == SY_OK);
    CHECK(fake_cuda_alive() == alive + 1);
    CHECK(sy_device_host_unregister(r.device, r.host) == SY_OK);
    CHECK(sy_device_host_unregister(r.device, r.host) == SY_EARG);
    CHECK(fake_cuda_alive() == alive);
    for (int i = 0; i < 32; i++)
        CHECK(sy_device_host_register(r.device, r.host + i * 4096, 4096) == SY_OK);
    CHECK(sy_device_host_register(r.device, r.host + 32 * 4096, 4096) == SY_EBUSY);
    for (int i = 31; i > 3; i--) /* pinned by now or not */
        CHECK(sy_device_host_unregister(r.device, r.host + i * 4096) == SY_OK);
    drop_rig(&r); /* the rest goes with the device */
    CHECK(fake_cuda_alive() == 0);
}

static int count_calls_of(const char *name)
{
    int n = 0;
    for (const char *at = fake_cuda_record(); (at = strstr(at, name)); at++)
        n++;
    return n;
}

/* A range of several GiB is several registrations, and a copy is of one of them: CUDA takes no copy that is partly in one. */
IN_A_PROCESS(large_ranges_are_pinned_in_pieces)
{
    struct rig r = make_rig();
    const uint64_t gib = 1ull << 30;
    int alive = fake_cuda_alive();
    char *place = mmap(NULL, 5 * gib, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(place != MAP_FAILED);
    char *base =
        place + gib - (uint64_t)(uintptr_t)place % gib - 8192; /* 8 KiB in front of a boundary */
    unsigned char back[3000];
    for (int i = 0; i < 3000; i++)
        base[8192 + 2 * gib - 1500 + (uint64_t)i] = base[-1500 + i] = (char)(i * 11 + 1);
    CHECK(sy_device_host_register(r.device, base, 8192 + 2 * gib + 4096) == SY_OK);
    CHECK(sy_device_host_register_wait(r.device, 100 * SY_NS_PER_S) == SY_OK);
    CHECK(fake_cuda_alive() == alive + 4);
    fake_cuda_reset();
    CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 0), base + 8192, 4096) == SY_OK); /* in one */
    CHECK(count_calls_of("copy ") == 1);
    CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 0), base + 8192 + 2 * gib - 1500, 3000) ==
          SY_OK); /* in two */
    CHECK(count_calls_of("copy ") == 3);
    CHECK(sy_stream_synchronize(r.h2d) == SY_OK);
    CHECK(sy_copy_d2h(r.compute, back, sy_pool_address(r.pool, 0), 10) == SY_OK); /* in none */
    CHECK(count_calls_of("copy ") == 4);
    CHECK(sy_stream_synchronize(r.compute) == SY_OK);
    CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 4096), base - 1500, 3000) ==
          SY_OK); /* half outside */
    CHECK(count_calls_of("copy ") == 6);
    CHECK(sy_stream_synchronize(r.h2d) == SY_OK);
    /* So are those that the engine queues by itself. */
    CHECK(sy_cuda_device_copy(r.device, sy_cuda_stream_handle(r.h2d), base + 8192 + 2 * gib - 1500,
                              sy_pool_address(r.pool, 8192).value, 3000, true) == SY_OK);
    CHECK(count_calls_of("copy ") == 8);
    CHECK(sy_cuda_device_copy(r.device, sy_cuda_stream_handle(r.h2d), back,
                              sy_pool_address(r.pool, 8192).value, 3000, false) == SY_OK);
    CHECK(count_calls_of("copy ") == 9);
    CHECK(sy_stream_synchronize(r.h2d) == SY_OK);
    for (int i = 0; i < 3000; i++)
        CHECK(back[i] == (unsigned char)(i * 11 + 1));
    for (int k = 0; k < 2; k++) {
        CHECK(sy_copy_d2h(r.compute, back, sy_pool_address(r.pool, k ? 4096 : 0), 3000) == SY_OK);
        CHECK(sy_stream_synchronize(r.compute) == SY_OK);
        for (int i = 0; i < (k ? 1500 : 3000); i++)
            CHECK(back[i] == (unsigned char)(i * 11 + 1));
    }
    CHECK(sy_device_host_unregister(r.device, base) == SY_OK);
    CHECK(fake_cuda_alive() == alive);
    /* One piece fails: the ones before it stay, and are given back. */
    fake_cuda_reset();
    fake_cuda.fail_at = 3;
    fake_cuda.fail_error = SY_CUDA_MemoryAllocation;
    CHECK(sy_device_host_register(r.device, base, 8192 + 2 * gib + 4096) == SY_OK);
    CHECK(sy_device_host_register_wait(r.device, 100 * SY_NS_PER_S) == SY_ENOMEM_HOST);
    CHECK(strcmp(fake_cuda.failed, "host_register") == 0 && fake_cuda_alive() == alive + 1);
    CHECK(sy_device_host_unregister(r.device, base) == SY_OK);
    CHECK(fake_cuda_alive() == alive);
    drop_rig(&r);
    munmap(place, 5 * gib);
}

/* Taken back while it is queued, or being pinned: what was pinned is given back. */
IN_A_PROCESS(registering_can_be_taken_back_at_any_time)
{
    struct rig r = make_rig();
    const uint64_t bytes = 8ull << 30;
    int alive = fake_cuda_alive();
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(base != MAP_FAILED);
    for (int i = 0; i < 200; i++) {
        CHECK(sy_device_host_register(r.device, base, bytes) == SY_OK);
        CHECK(sy_device_host_register(r.device, r.host, 4096) == SY_OK);
        if (i % 3 == 0)
            sy_clock_sleep_until(sy_clock_now() + 20 * SY_NS_PER_US);
        CHECK(sy_device_host_unregister(r.device, base) == SY_OK);
        CHECK(sy_device_host_unregister(r.device, r.host) == SY_OK);
        CHECK(fake_cuda_alive() == alive);
    }
    CHECK(sy_device_host_register(r.device, base, bytes) == SY_OK);
    drop_rig(&r);
    CHECK(fake_cuda_alive() == 0);
    munmap(base, bytes);
}

IN_A_PROCESS(read_only_memory_is_pinned_as_such)
{
    struct rig r = make_rig();
    int fd = memfd_create("image", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, POOL_BYTES) == 0);
    for (int writable = 0; writable < 2; writable++) {
        void *image =
            mmap(NULL, POOL_BYTES, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
        CHECK(image != MAP_FAILED);
        fake_cuda_reset();
        CHECK(sy_device_host_register(r.device, image, POOL_BYTES) == SY_OK);
        CHECK(sy_device_host_register_wait(r.device, 100 * SY_NS_PER_S) == SY_OK);
        CHECK_CALLS("context_enter host_register ");
        CHECK(fake_cuda.registered_read_only == !writable);
        CHECK(sy_device_host_unregister(r.device, image) == SY_OK);
        munmap(image, POOL_BYTES);
    }
    close(fd);
    drop_rig(&r);
}

IN_A_PROCESS(what_cannot_be_pinned_is_told)
{
    struct rig r = make_rig();
    fake_cuda.fail_name = "host_register";
    fake_cuda.fail_error = SY_CUDA_MemoryAllocation;
    CHECK(sy_device_host_register(r.device, r.host, POOL_BYTES) == SY_OK);
    CHECK(sy_device_host_register_wait(r.device, 100 * SY_NS_PER_S) == SY_ENOMEM_HOST);
    CHECK(strstr(sy_error_text(), "8388608"));
    CHECK(sy_copy_h2d(r.h2d, sy_pool_address(r.pool, 0), r.host, 64) ==
          SY_OK); /* slower, but right */
    CHECK(sy_device_host_unregister(r.device, r.host) == SY_OK);
    drop_rig(&r);
    CHECK(fake_cuda_alive() == 0);
}

/* ---- the keeper ------------------------------------------------------------------------------------------------ */

static void copy_there_and_back(struct sy_device *device, struct sy_pool_memory *to,
                                struct sy_pool_memory *from)
{
    struct sy_stream *stream;
    unsigned char out[1000], back[1000] = {0};
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (unsigned char)(i * 7);
    CHECK(sy_stream_create(device, SY_STREAM_COMPUTE, &stream) == SY_OK);
    CHECK(sy_copy_h2d(stream, sy_pool_address(to, 5), out, sizeof out) == SY_OK);
    CHECK(sy_copy_d2h(stream, back, sy_pool_address(from, 5), sizeof back) == SY_OK);
    CHECK(sy_stream_synchronize(stream) == SY_OK);
    CHECK(memcmp(out, back, sizeof out) == 0);
    sy_stream_destroy(stream);
}

IN_A_PROCESS(without_descriptors_a_keeper_has_the_pool)
{
    struct sy_device *device = must_open();
    struct sy_pool_memory *pool, *imported;
    int fd;
    fake_cuda.has_fd = 0;
    setenv("SY_CUDA_KEEPER", own_path, 1);
    CHECK(sy_pool_create(device, POOL_BYTES, &pool) == SY_OK);
    CHECK(sy_device_get_properties(device)->own_addresses);
    CHECK(sy_pool_export(pool, &fd) == SY_OK);
    CHECK(!fake_cuda_has_context()); /* only the keeper has one */
    CHECK(sy_pool_import(device, fd, POOL_BYTES, &imported) == SY_OK);
    copy_there_and_back(device, imported, pool);
    close(fd);
    sy_pool_destroy(imported);
    sy_pool_destroy(pool);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0); /* the keeper is gone, and waited for */
    sy_device_close(device);
    CHECK(fake_cuda_alive() == 0);
}

static void expect_no_pool(const char *keeper, int status, const char *word)
{
    struct sy_device *device = must_open();
    struct sy_pool_memory *pool;
    setenv("SY_CUDA_POOL", "ipc", 1);
    setenv("SY_CUDA_KEEPER", keeper, 1);
    CHECK(sy_pool_create(device, 1ull << 32, &pool) == status);
    CHECK(strstr(sy_error_text(), word));
    CHECK(waitpid(-1, NULL, WNOHANG) < 0);
    sy_device_close(device);
}

IN_A_PROCESS(a_keeper_that_cannot)
{
    expect_no_pool("/nonexistent/keeper", SY_ENODEVICE, "/nonexistent/keeper");
    expect_no_pool("/bin/true", SY_EPEER, "died");
    setenv("FAKE_CUDA_KEEPER_BYTES", "1000000", 1); /* its GPU has no more */
    expect_no_pool(own_path, SY_ENOMEM_DEVICE, "4294967296");
    CHECK(fake_cuda_alive() == 0);
}

IN_A_PROCESS(descriptors_can_be_demanded)
{
    struct sy_device *device = must_open();
    struct sy_pool_memory *pool;
    fake_cuda.has_fd = 0;
    setenv("SY_CUDA_POOL", "fd", 1);
    CHECK(sy_pool_create(device, POOL_BYTES, &pool) == SY_EUNSUPPORTED);
    setenv("SY_CUDA_POOL", "nonsense", 1);
    CHECK(sy_pool_create(device, POOL_BYTES, &pool) == SY_EARG);
    sy_device_close(device);
    CHECK(fake_cuda_alive() == 0);
}

/* ---- every call fails once -------------------------------------------------------------------------------------- */

static long n_calls_at_the_end; /* behind it, all is taken down */

/* Uses everything, stops at the first failure, takes down what there is. */
static int use_everything(void)
{
    struct sy_device *device = NULL;
    struct sy_pool_memory *pool = NULL, *imported = NULL;
    struct sy_stream *h2d = NULL, *d2h = NULL;
    struct sy_event *event = NULL;
    static _Alignas(4096) unsigned char host[4096], back[4096];
    _Atomic int n = 0;
    int fd = -1, status = open_cuda(0, &device);
    if (status < 0)
        return status;
    SY_TRY_GOTO(sy_pool_create(device, POOL_BYTES, &pool), out);
    SY_TRY_GOTO(sy_pool_export(pool, &fd), out);
    SY_TRY_GOTO(sy_stream_create(device, SY_STREAM_COPY_H2D, &h2d), out);
    SY_TRY_GOTO(sy_stream_create(device, SY_STREAM_COPY_D2H, &d2h), out);
    SY_TRY_GOTO(sy_pool_import(device, fd, POOL_BYTES, &imported), out);
    SY_TRY_GOTO(sy_event_create(device, &event), out);
    SY_TRY_GOTO(sy_device_host_register(device, host, sizeof host), out);
    SY_TRY_GOTO(sy_device_host_register_wait(device, 20 * SY_NS_PER_S), out);
    for (int i = 0; i < 40; i++)
        SY_TRY_GOTO(sy_copy_h2d(h2d, sy_pool_address(pool, 0), host, sizeof host), out);
    SY_TRY_GOTO(sy_event_record(event, h2d), out);
    SY_TRY_GOTO(sy_stream_wait_event(d2h, event), out);
    SY_TRY_GOTO(sy_copy_d2h(d2h, back, sy_pool_address(pool, 0), sizeof back), out);
    SY_TRY_GOTO(sy_stream_launch(d2h, count_up, (void *)&n), out);
    SY_TRY_GOTO(sy_event_synchronize(event, UINT64_MAX), out);
    CHECK(sy_event_time(event) > 0);
    SY_TRY_GOTO(sy_stream_synchronize(h2d), out);
    SY_TRY_GOTO(sy_stream_synchronize(d2h), out);
    CHECK(atomic_load(&n) == 1);
    SY_TRY_GOTO(sy_device_host_unregister(device, host), out);
out:
    n_calls_at_the_end = fake_cuda.n_calls;
    sy_stream_destroy(h2d);
    sy_stream_destroy(d2h);
    sy_event_destroy(event);
    sy_pool_destroy(imported);
    sy_pool_destroy(pool);
    sy_device_close(device);
    if (fd >= 0)
        close(fd);
    return status;
}

static int count_fds(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        n++;
    if (folder)
        closedir(folder);
    return n;
}

/* Those whose failure is answered by something else than a failure: another way, a worse clock, nothing. */
static bool may_fail_unnoticed(const char *name)
{
    static const char *const names[] = {"context_active", "event_elapsed", "mem_release",
                                        "host_register", "address_reserve"};
    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static long *n_calls_of_all; /* shared with the child that counts */

static void count_calls(void)
{
    CHECK(use_everything() == SY_OK);
    CHECK(fake_cuda_alive() == 0);
    *n_calls_of_all = fake_cuda.n_calls;
}

static long call_to_fail;
static int error_to_fail_with;

/* Probing by mem_create, mem_export, mem_import: the keeper takes over, so that is not a failure either. */
static void fail_one_call(void)
{
    int fds = count_fds();
    setenv("SY_CUDA_KEEPER", own_path, 1);
    fake_cuda.fail_at = call_to_fail;
    fake_cuda.fail_error = error_to_fail_with;
    int status = use_everything();
    if (!fake_cuda.failed
             [0]) { /* how often an event is asked depends on the time: that was the last call */
        CHECK(status == SY_OK && call_to_fail > n_calls_at_the_end);
        return;
    }
    bool by_keeper = strstr(fake_cuda_record(), "ipc_open") != NULL;
    if (status == SY_OK && call_to_fail <= n_calls_at_the_end &&
        !may_fail_unnoticed(fake_cuda.failed) && !by_keeper) {
        fprintf(stderr, "call %ld, %s, failed with %d and nobody was told\n", call_to_fail,
                fake_cuda.failed, error_to_fail_with);
        _exit(1);
    }
    CHECK(status == SY_OK || strlen(sy_error_text()) > 10);
    if (fake_cuda_alive() != 0 || count_fds() != fds) {
        fprintf(stderr,
                "call %ld, %s, failed with %d: %d objects are left, %d files, not %d; calls: %s\n",
                call_to_fail, fake_cuda.failed, error_to_fail_with, fake_cuda_alive(), count_fds(),
                fds, fake_cuda_record());
        _exit(1);
    }
    fake_cuda.broken = 0;
    CHECK(sy_cuda_error_is_sticky(error_to_fail_with) || use_everything() == SY_OK);
    CHECK(fake_cuda_alive() == 0);
}

static void test_every_call_fails_once(void **state)
{
    (void)state;
    static const int errors[] = {SY_CUDA_InvalidValue, SY_CUDA_MemoryAllocation,
                                 SY_CUDA_NotSupported, SY_CUDA_IllegalAddress};
    size_t n_errors = SY_ARRAY_LEN(errors);
#ifdef SY_SANITIZED
    n_errors = 2;
#endif
    n_calls_of_all = mmap(NULL, sizeof *n_calls_of_all, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(n_calls_of_all, MAP_FAILED);
    setenv("SY_LOG", "error", 1);
    sy_log_init("test");
    in_a_process(count_calls);
    assert_in_range(*n_calls_of_all, 100, 500);
    for (size_t e = 0; e < n_errors; e++) {
        error_to_fail_with = errors[e];
        for (call_to_fail = 1; call_to_fail <= *n_calls_of_all; call_to_fail++)
            in_a_process(fail_one_call);
    }
    print_message("%ld calls, each failed with %zu errors\n", *n_calls_of_all, n_errors);
    munmap(n_calls_of_all, sizeof *n_calls_of_all);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_cannot_be_opened_says_why),
        cmocka_unit_test(test_the_properties),
        cmocka_unit_test(test_the_runtime_makes_no_context),
        cmocka_unit_test(test_the_way_is_chosen_once),
        cmocka_unit_test(test_too_large_a_pool),
        cmocka_unit_test(test_a_worker_maps_at_the_exporters_address),
        cmocka_unit_test(test_a_wrong_import_is_refused),
        cmocka_unit_test(test_another_address_is_refused),
        cmocka_unit_test(test_the_drivers_address_is_everybodys),
        cmocka_unit_test(test_reserving_may_have_to_wait),
        cmocka_unit_test(test_a_swap_waits_nowhere),
        cmocka_unit_test(test_a_wait_on_nothing_is_no_call),
        cmocka_unit_test(test_entries_are_counted),
        cmocka_unit_test(test_times_are_the_hosts),
        cmocka_unit_test(test_a_sticky_error_sticks),
        cmocka_unit_test(test_what_is_not_sticky_passes),
        cmocka_unit_test(test_any_thread_may_ask),
        cmocka_unit_test(test_memory_is_pinned_in_the_background),
        cmocka_unit_test(test_large_ranges_are_pinned_in_pieces),
        cmocka_unit_test(test_registering_can_be_taken_back_at_any_time),
        cmocka_unit_test(test_read_only_memory_is_pinned_as_such),
        cmocka_unit_test(test_what_cannot_be_pinned_is_told),
        cmocka_unit_test(test_without_descriptors_a_keeper_has_the_pool),
        cmocka_unit_test(test_a_keeper_that_cannot),
        cmocka_unit_test(test_descriptors_can_be_demanded),
        cmocka_unit_test(test_every_call_fails_once),
    };
    if (argc == 4) { /* started as a keeper */
        fake_cuda_reset();
        if (getenv("FAKE_CUDA_KEEPER_BYTES"))
            fake_cuda.memory_bytes = strtoull(getenv("FAKE_CUDA_KEEPER_BYTES"), NULL, 10);
        return sy_pool_keeper_run(atoi(argv[1]), atoi(argv[2]), strtoull(argv[3], NULL, 10));
    }
    if (readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

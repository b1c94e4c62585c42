/* The CUDA device on a table of calls that records them: which calls, in which order, and what happens when one of them fails. */
#include <fcntl.h>
#include <pthread.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_place.h"
#include "runtime/device/cuda/queue_bound.h"
#include "tests/rigs/cuda_device_rig.h"

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

#define FAKE_UUID_0 "07000000-0000-0000-0000-000000000000"
#define FAKE_UUID_1 "07010101-0101-0101-0101-010101010101"

static void expect_uuid(const char *uuid, const char *name)
{
    struct sy_device *device;
    CHECK(open_cuda_uuid(uuid, &device) == SY_OK);
    CHECK(strcmp(sy_device_get_properties(device)->name, name) == 0);
    CHECK(strcasecmp(sy_device_get_properties(device)->uuid, uuid) == 0);
    sy_device_close(device);
}

IN_A_PROCESS(a_gpu_is_opened_by_its_uuid)
{
    struct sy_device *device = NULL;
    unsetenv("CUDA_VISIBLE_DEVICES");
    fake_cuda.n_devices = 2;
    expect_uuid("GPU-" FAKE_UUID_0, "cuda:0 (Fake GPU)");
    expect_uuid("GPU-" FAKE_UUID_1, "cuda:1 (Fake GPU)");
    CHECK(open_cuda_uuid("GPU-00010101-0101-0101-0101-010101010101", &device) == SY_ENODEVICE);
    CHECK(strstr(sy_error_text(), "cuda:GPU-00010101-") && strstr(sy_error_text(), "2 GPUs"));
    CHECK(open_cuda_uuid("MIG-" FAKE_UUID_0, &device) == SY_ENODEVICE); /* a whole GPU is none */
    fake_cuda.fail_name = "device_uuid";
    fake_cuda.fail_error = SY_CUDA_Unknown;
    CHECK(open_cuda_uuid("GPU-" FAKE_UUID_1, &device) == SY_ENODEVICE);
    CHECK(strstr(sy_error_text(), "UUID"));
}

IN_A_PROCESS(a_mig_instance_is_what_the_driver_is_told_to_show)
{
    fake_cuda.name = "Fake GPU MIG 1g.18gb";
    unsetenv("CUDA_VISIBLE_DEVICES");
    expect_uuid("MIG-" FAKE_UUID_0, "cuda:0 (Fake GPU MIG 1g.18gb)");
    CHECK(strcmp(getenv("CUDA_VISIBLE_DEVICES"), "MIG-" FAKE_UUID_0) == 0);
}

IN_A_PROCESS(a_mig_instance_that_is_hidden_stays_so)
{
    struct sy_device *device = NULL;
    fake_cuda.name = "Fake GPU MIG 1g.18gb";
    setenv("CUDA_VISIBLE_DEVICES", "MIG-" FAKE_UUID_1, 1);
    CHECK(open_cuda_uuid("MIG-" FAKE_UUID_0, &device) == SY_ENODEVICE);
    CHECK(strstr(sy_error_text(), FAKE_UUID_0) && strstr(sy_error_text(), FAKE_UUID_1));
    CHECK(strcmp(getenv("CUDA_VISIBLE_DEVICES"), "MIG-" FAKE_UUID_1) == 0);
    setenv("CUDA_VISIBLE_DEVICES", "MIG-" FAKE_UUID_1 ",MIG-" FAKE_UUID_0, 1);
    expect_uuid("MIG-" FAKE_UUID_0, "cuda:0 (Fake GPU MIG 1g.18gb)");
    CHECK(strcmp(getenv("CUDA_VISIBLE_DEVICES"), "MIG-" FAKE_UUID_0) == 0);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    expect_uuid("MIG-" FAKE_UUID_0, "cuda:0 (Fake GPU MIG 1g.18gb)");
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

/* The importer's driver has another idea, or something lies there: then the pool has an address of this process's own. */
IN_A_PROCESS(another_address_is_its_own)
{
    struct sy_device *device = must_open();
    struct sy_pool_memory *pool, *imported;
    int fd = make_export(device, &pool);
    uint64_t address = sy_pool_address(pool, 0).value;
    sy_pool_destroy(pool);
    CHECK(!sy_device_get_properties(device)->own_addresses);
    fake_cuda.moves_addresses = true;
    CHECK(sy_pool_import(device, fd, POOL_BYTES, &imported) == SY_OK);
    CHECK(sy_pool_address(imported, 0).value != address);
    CHECK(sy_device_get_properties(device)->own_addresses);
    sy_pool_destroy(imported);
    fake_cuda.moves_addresses = false;
    CHECK(sy_pool_import(device, fd, POOL_BYTES, &imported) == SY_OK);
    CHECK(sy_pool_address(imported, 0).value == address);
    sy_pool_destroy(imported);
    close(fd);
    sy_device_close(device);
    CHECK(fake_cuda_alive() == 0);
}

/* The maker's driver has another idea: then that is what all wish for. */
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_cannot_be_opened_says_why),
        cmocka_unit_test(test_a_gpu_is_opened_by_its_uuid),
        cmocka_unit_test(test_a_mig_instance_is_what_the_driver_is_told_to_show),
        cmocka_unit_test(test_a_mig_instance_that_is_hidden_stays_so),
        cmocka_unit_test(test_the_properties),
        cmocka_unit_test(test_the_runtime_makes_no_context),
        cmocka_unit_test(test_the_way_is_chosen_once),
        cmocka_unit_test(test_too_large_a_pool),
        cmocka_unit_test(test_a_worker_maps_at_the_exporters_address),
        cmocka_unit_test(test_a_wrong_import_is_refused),
        cmocka_unit_test(test_another_address_is_its_own),
        cmocka_unit_test(test_the_drivers_address_is_everybodys),
        cmocka_unit_test(test_reserving_may_have_to_wait),
        cmocka_unit_test(test_a_swap_waits_nowhere),
        cmocka_unit_test(test_a_wait_on_nothing_is_no_call),
        cmocka_unit_test(test_entries_are_counted),
        cmocka_unit_test(test_times_are_the_hosts),
        cmocka_unit_test(test_a_sticky_error_sticks),
        cmocka_unit_test(test_what_is_not_sticky_passes),
        cmocka_unit_test(test_any_thread_may_ask),
        cmocka_unit_test(test_without_descriptors_a_keeper_has_the_pool),
        cmocka_unit_test(test_a_keeper_that_cannot),
        cmocka_unit_test(test_descriptors_can_be_demanded),
    };
    int code;
    return cuda_device_keeps(argc, argv, &code) ? code : cmocka_run_group_tests(tests, NULL, NULL);
}

/* Host memory that the CUDA device pins, on the fake table. */
#include <fcntl.h>
#include <sys/mman.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_error.h"
#include "tests/rigs/cuda_device_rig.h"

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
        if ((uintptr_t)image >> 30 == ((uintptr_t)image + POOL_BYTES - 1) >> 30)
            CHECK_CALLS("context_enter host_register ");
        else /* over a boundary of pieces, wherever the kernel put it */
            CHECK_CALLS("context_enter host_register host_register ");
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_pinned_in_the_background),
        cmocka_unit_test(test_large_ranges_are_pinned_in_pieces),
        cmocka_unit_test(test_registering_can_be_taken_back_at_any_time),
        cmocka_unit_test(test_read_only_memory_is_pinned_as_such),
        cmocka_unit_test(test_what_cannot_be_pinned_is_told),
    };
    int code;
    return cuda_device_keeps(argc, argv, &code) ? code : cmocka_run_group_tests(tests, NULL, NULL);
}

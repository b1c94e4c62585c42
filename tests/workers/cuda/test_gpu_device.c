/* What of the CUDA device only a GPU can show, besides the device suite: run by gpu_check.sh; skips itself where there is none. */
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/device/device.h"
#include "runtime/device/link_cost.h"

#define MIB (1ull << 20)

static const char *spec_text;
static char own_path[4096];

static struct sy_device *open_gpu(void)
{
    struct sy_device_spec spec;
    struct sy_device *device = NULL;
    assert_int_equal(sy_device_spec_parse(spec_text, &spec), SY_OK);
    assert_int_equal(sy_device_open(&spec, &device), SY_OK);
    return device;
}

/* This binary again, as the runtime process: takes a pool and holds it for a second. What the driver lists as a process with a context has
 * one; this one must not be there. */
static int play_runtime(void)
{
    struct sy_device *device = open_gpu();
    struct sy_pool_memory *pool;
    char command[200];
    int fd;
    if (sy_pool_create(device, 64 * MIB, &pool) < 0 || sy_pool_export(pool, &fd) < 0)
        return 2;
    snprintf(command, sizeof command,
             "nvidia-smi --query-compute-apps=pid --format=csv,noheader | grep -qx %d",
             (int)getpid());
    int listed = system(command) == 0;
    close(fd);
    sy_pool_destroy(pool);
    sy_device_close(device);
    return listed ? 3 : 0;
}

static void test_the_runtime_has_no_context(void **state)
{
    (void)state;
    char command[5000], output[4096];
    snprintf(command, sizeof command, "%s --runtime 2>&1", own_path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = 0;
    assert_int_equal(pclose(pipe), 0);
    assert_null(strstr(output, "context_without_need"));
}

/* Over half of the memory, again and again: it can be had only if all of it was given back. */
static void test_pools_give_their_memory_back(void **state)
{
    (void)state;
    struct sy_device *device = open_gpu();
    struct sy_pool_memory *pool;
    uint64_t bytes = sy_device_get_properties(device)->memory_bytes / 100 * 60;
    struct sy_stream *stream;
    assert_int_equal(sy_stream_create(device, SY_STREAM_COMPUTE, &stream), SY_OK);
    for (int i = 0; i < 20; i++) {
        int status = sy_pool_create(device, bytes, &pool);
        if (i == 0 && status == SY_ENOMEM_DEVICE) {
            print_message("skip: others use the GPU's memory: %s\n", sy_error_text());
            break;
        }
        assert_int_equal(status, SY_OK);
        sy_pool_destroy(pool);
    }
    sy_stream_destroy(stream);
    sy_device_close(device);
}

/* Workers map the host image read-only. Copies from it are right, pinned or not. */
static void test_read_only_host_memory(void **state)
{
    (void)state;
    struct sy_device *device = open_gpu();
    struct sy_pool_memory *pool;
    struct sy_stream *stream;
    const size_t bytes = 32 * MIB;
    int fd = memfd_create("image", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    unsigned char *writable = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char *image = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *back = malloc(bytes);
    assert_true(writable != MAP_FAILED && image != MAP_FAILED && back);
    for (size_t i = 0; i < bytes; i++)
        writable[i] = (unsigned char)((i * 2654435761u) >> 11);
    assert_int_equal(sy_pool_create(device, bytes, &pool), SY_OK);
    assert_int_equal(sy_stream_create(device, SY_STREAM_COMPUTE, &stream), SY_OK);
    assert_int_equal(sy_device_host_register(device, image, bytes), SY_OK);
    for (int pinned = 0; pinned < 2; pinned++) { /* while it is being pinned, and then */
        memset(back, 0, bytes);
        assert_int_equal(sy_copy_h2d(stream, sy_pool_address(pool, 0), image, bytes), SY_OK);
        assert_int_equal(sy_copy_d2h(stream, back, sy_pool_address(pool, 0), bytes), SY_OK);
        assert_int_equal(sy_stream_synchronize(stream), SY_OK);
        assert_memory_equal(back, writable, bytes);
        assert_int_equal(sy_device_host_register_wait(device, 60 * SY_NS_PER_S), SY_OK);
    }
    assert_int_equal(sy_device_host_unregister(device, image), SY_OK);
    sy_stream_destroy(stream);
    sy_pool_destroy(pool);
    sy_device_close(device);
    munmap(writable, bytes);
    munmap(image, bytes);
    free(back);
    close(fd);
}

/* Times of events against the host's clock, over the renewal of the reference (every 4 s). */
static void test_event_times_over_ten_seconds(void **state)
{
    (void)state;
    struct sy_device *device = open_gpu();
    struct sy_stream *stream;
    struct sy_event *event;
    sy_ns last = 0, widest = 0;
    assert_int_equal(sy_stream_create(device, SY_STREAM_COMPUTE, &stream), SY_OK);
    assert_int_equal(sy_event_create(device, &event), SY_OK);
    for (int i = 0; i < 200; i++) {
        sy_ns before = sy_clock_now();
        assert_int_equal(sy_event_record(event, stream), SY_OK);
        assert_int_equal(sy_event_synchronize(event, 10 * SY_NS_PER_S), SY_OK);
        sy_ns after = sy_clock_now(), time = sy_event_time(event);
        assert_true(time >= before && time <= after && time > last);
        widest = SY_MAX(widest, after - before);
        last = time;
        sy_clock_sleep_until(after + 50 * SY_NS_PER_MS);
    }
    print_message("record to seen: at most %.1f us\n", (double)widest / 1e3);
    sy_event_destroy(event);
    sy_stream_destroy(stream);
    sy_device_close(device);
}

/* ---- a fault on the device ------------------------------------------------------------------------------------- */

/* The second process: its kernel faults. Exit status: 0 as it should be, 77 there is no such kernel, else the line. */
static int play_fault(int fd, uint64_t bytes)
{
    struct sy_device_spec spec;
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_stream *stream;
    struct sy_event *before, *after;
    char path[5000], host[64] = {0};
    snprintf(path, sizeof path, "%.*s/libgpu_fault.so", (int)(strrchr(own_path, '/') - own_path),
             own_path);
    void *library = dlopen(path, RTLD_NOW);
    int (*gpu_fault)(int) = library ? (int (*)(int))dlsym(library, "gpu_fault") : NULL;
    if (!gpu_fault || sy_device_spec_parse(spec_text, &spec) < 0 ||
        sy_device_open(&spec, &device) < 0)
        return 77;
    if (sy_pool_import(device, fd, bytes, &pool) < 0 ||
        sy_stream_create(device, SY_STREAM_COMPUTE, &stream) < 0 ||
        sy_event_create(device, &before) < 0 || sy_event_create(device, &after) < 0)
        return 2;
    if (sy_event_record(before, stream) < 0 || sy_event_synchronize(before, UINT64_MAX) < 0)
        return 3;
    int error = gpu_fault(spec.ordinal);
    if (error == 35 || error == 100) /* CUDA itself finds no driver, no GPU: this is the fake */
        return 77;
    if (error == 0)
        return 4;
    if (sy_event_record(after, stream) != SY_EDEVICE && sy_stream_synchronize(stream) != SY_EDEVICE)
        return 5;
    if (sy_copy_h2d(stream, sy_pool_address(pool, 0), host, sizeof host) != SY_EDEVICE ||
        sy_event_synchronize(after, 10 * SY_NS_PER_S) != SY_EDEVICE || sy_event_query(before) != 1)
        return 6;
    printf("%s\n", sy_error_text());
    sy_event_destroy(before); /* all can be taken down */
    sy_event_destroy(after);
    sy_stream_destroy(stream);
    sy_pool_destroy(pool);
    sy_device_close(device);
    return 0;
}

static int run_faulting_process(struct sy_pool_memory *pool)
{
    char fd_text[16], bytes_text[24];
    int fd, result = 0;
    assert_int_equal(sy_pool_export(pool, &fd), SY_OK);
    snprintf(fd_text, sizeof fd_text, "%d", fd);
    snprintf(bytes_text, sizeof bytes_text, "%llu", (unsigned long long)sy_pool_size(pool));
    pid_t child = fork();
    if (child == 0) {
        fcntl(fd, F_SETFD, 0);
        execl(own_path, own_path, "--fault", fd_text, bytes_text, (char *)NULL);
        _exit(127);
    }
    close(fd);
    assert_int_equal(waitpid(child, &result, 0), child);
    return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

/* A worker's kernel faults: that process has lost the device, this one and the pool's bytes have not. */
static void test_a_fault_stays_in_its_process(void **state)
{
    (void)state;
    struct sy_device *device = open_gpu();
    struct sy_pool_memory *pool;
    struct sy_stream *stream;
    const size_t bytes = 4 * MIB;
    unsigned char *out = malloc(bytes), *back = calloc(1, bytes);
    assert_true(out && back);
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)((i * 40503u) >> 7);
    assert_int_equal(sy_pool_create(device, bytes, &pool), SY_OK);
    assert_int_equal(sy_stream_create(device, SY_STREAM_COMPUTE, &stream), SY_OK);
    assert_int_equal(sy_copy_h2d(stream, sy_pool_address(pool, 0), out, bytes), SY_OK);
    assert_int_equal(sy_stream_synchronize(stream), SY_OK);
    int result = run_faulting_process(pool);
    assert_int_equal(sy_copy_d2h(stream, back, sy_pool_address(pool, 0), bytes), SY_OK);
    assert_int_equal(sy_stream_synchronize(stream), SY_OK);
    assert_memory_equal(back, out, bytes);
    sy_stream_destroy(stream);
    sy_pool_destroy(pool);
    sy_device_close(device);
    free(out);
    free(back);
    if (result == 77) {
        print_message("skip: no kernel to fault with (libgpu_fault.so, made with nvcc), or no GPU "
                      "under it\n");
        skip();
    }
    assert_int_equal(result, 0);
}

/* The longest swap that the planner can make: 64 groups, each a copy, a record and a wait, behind nothing that has finished. */
static void test_a_swap_of_64_groups_is_queued_at_once(void **state)
{
    (void)state;
    struct sy_device *device = open_gpu();
    struct sy_pool_memory *pool;
    struct sy_stream *h2d, *compute;
    struct sy_event *events[64];
    const size_t bytes = 256 * MIB, group = bytes / 64;
    char *host = malloc(bytes);
    assert_non_null(host);
    memset(host, 1, bytes);
    assert_int_equal(sy_pool_create(device, bytes, &pool), SY_OK);
    assert_int_equal(sy_stream_create(device, SY_STREAM_COPY_H2D, &h2d), SY_OK);
    assert_int_equal(sy_stream_create(device, SY_STREAM_COMPUTE, &compute), SY_OK);
    assert_int_equal(sy_device_host_register(device, host, bytes), SY_OK);
    assert_int_equal(sy_device_host_register_wait(device, 60 * SY_NS_PER_S), SY_OK);
    sy_ns start = sy_clock_now();
    for (int i = 0; i < 64; i++) {
        assert_int_equal(sy_event_create(device, &events[i]), SY_OK);
        assert_int_equal(sy_copy_h2d(h2d, sy_pool_address(pool, (uint64_t)i * group),
                                     host + (size_t)i * group, group),
                         SY_OK);
        assert_int_equal(sy_event_record(events[i], h2d), SY_OK);
        assert_int_equal(sy_stream_wait_event(compute, events[i]), SY_OK);
    }
    sy_ns queued = sy_clock_now();
    assert_int_equal(sy_stream_synchronize(compute), SY_OK);
    print_message("64 groups of 4 MiB: queued after %.0f us, there after %.0f us\n",
                  (double)(queued - start) / 1e3, (double)(sy_clock_now() - start) / 1e3);
    for (int i = 1; i < 64; i++)
        assert_true(sy_event_time(events[i - 1]) < sy_event_time(events[i]));
    for (int i = 0; i < 64; i++)
        sy_event_destroy(events[i]);
    assert_int_equal(sy_device_host_unregister(device, host), SY_OK);
    sy_stream_destroy(h2d);
    sy_stream_destroy(compute);
    sy_pool_destroy(pool);
    sy_device_close(device);
    free(host);
}

static bool device_is_here(void)
{
    struct sy_device_spec spec;
    struct sy_device *device;
    if (sy_device_spec_parse(spec_text, &spec) < 0 || sy_device_open(&spec, &device) < 0)
        return false;
    sy_device_close(device);
    return true;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_runtime_has_no_context),
        cmocka_unit_test(test_pools_give_their_memory_back),
        cmocka_unit_test(test_read_only_host_memory),
        cmocka_unit_test(test_event_times_over_ten_seconds),
        cmocka_unit_test(test_a_swap_of_64_groups_is_queued_at_once),
        cmocka_unit_test(test_a_fault_stays_in_its_process),
    };
    spec_text = getenv("SY_TEST_DEVICE");
    if (!spec_text || !device_is_here()) {
        printf("skip: no GPU: %s\n",
               spec_text ? sy_error_text() : "make gpu-check sets SY_TEST_DEVICE");
        return 77;
    }
    if (readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0)
        return 1;
    if (argc == 2 && strcmp(argv[1], "--runtime") == 0)
        return play_runtime();
    if (argc == 4 && strcmp(argv[1], "--fault") == 0)
        return play_fault(atoi(argv[2]), strtoull(argv[3], NULL, 10));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

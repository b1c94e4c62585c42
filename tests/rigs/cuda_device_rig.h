/* What the tests of the CUDA device on its fake table share: each in a process of its own, a device with streams and a pool. Their binaries
 * are keepers of pools, too, when they are started as such. */
#ifndef SY_TESTS_RIGS_CUDA_DEVICE_RIG_H
#define SY_TESTS_RIGS_CUDA_DEVICE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/pool_keeper.h"
#include "runtime/device/device.h"
#include "tests/fakes/fake_cuda.h"

#define POOL_BYTES (8u << 20)

/* Of this binary. */
static char own_path[4096];

static inline int open_cuda(int ordinal, struct sy_device **out)
{
    struct sy_device_spec spec = {.kind = "cuda", .ordinal = ordinal};
    snprintf(spec.text, sizeof spec.text, "cuda:%d", ordinal);
    return sy_cuda_ops.open(&spec, out);
}

static inline int open_cuda_uuid(const char *uuid, struct sy_device **out)
{
    struct sy_device_spec spec = {.kind = "cuda"};
    snprintf(spec.text, sizeof spec.text, "cuda:%s", uuid);
    snprintf(spec.uuid, sizeof spec.uuid, "%s", uuid);
    return sy_cuda_ops.open(&spec, out);
}

/* Each test in a process of its own: contexts, places and the thread's device are the process's. */
static inline void in_a_process(void (*test)(void))
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

static inline struct sy_device *must_open(void)
{
    struct sy_device *device = NULL;
    CHECK(open_cuda(0, &device) == SY_OK);
    return device;
}

struct rig {
    struct sy_device *device;
    struct sy_pool_memory *pool;
    struct sy_stream *h2d, *compute;
    struct sy_event *event;
    unsigned char *host;
};

static inline struct rig make_rig(void)
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

static inline void drop_rig(struct rig *r)
{
    sy_stream_destroy(r->h2d);
    sy_stream_destroy(r->compute);
    sy_event_destroy(r->event);
    sy_pool_destroy(r->pool);
    sy_device_close(r->device);
    free(r->host);
}

static inline void count_up(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

/* For main: as a keeper if it was started as one (and then *exit_code is its), else own_path is read. */
static inline bool cuda_device_keeps(int argc, char **argv, int *exit_code)
{
    *exit_code = 1;
    if (argc != 4)
        return readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0;
    fake_cuda_reset();
    if (getenv("FAKE_CUDA_KEEPER_BYTES"))
        fake_cuda.memory_bytes = strtoull(getenv("FAKE_CUDA_KEEPER_BYTES"), NULL, 10);
    *exit_code = sy_pool_keeper_run(atoi(argv[1]), atoi(argv[2]), strtoull(argv[3], NULL, 10));
    return true;
}

#endif

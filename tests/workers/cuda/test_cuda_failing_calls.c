/* Each call of the CUDA device's table fails once, with each kind of error: it is reported, and nothing is left behind. */
#include <dirent.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_error.h"
#include "tests/rigs/cuda_device_rig.h"

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
    SY_TRY_GOTO(sy_stream_confine(h2d, (const int[]){1, 2}, 2), out);
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
    static const char *const names[] = {"context_active",  "event_elapsed",
                                        "mem_release",     "host_register",
                                        "address_reserve", "stream_destroy"}; /* C9 */
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
        cmocka_unit_test(test_every_call_fails_once),
    };
    int code;
    return cuda_device_keeps(argc, argv, &code) ? code : cmocka_run_group_tests(tests, NULL, NULL);
}

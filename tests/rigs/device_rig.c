#include "tests/rigs/device_rig.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"

const char *device_rig_spec;

int device_rig_set_up(void **state)
{
    struct sy_device_spec spec;
    struct device_rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_int_equal(sy_device_spec_parse(device_rig_spec, &spec), SY_OK);
    assert_int_equal(sy_device_open(&spec, &r->device), SY_OK);
    assert_int_equal(sy_pool_create(r->device, DEVICE_RIG_POOL_BYTES, &r->pool), SY_OK);
    assert_int_equal(sy_stream_create(r->device, SY_STREAM_COPY_H2D, &r->h2d), SY_OK);
    assert_int_equal(sy_stream_create(r->device, SY_STREAM_COPY_D2H, &r->d2h), SY_OK);
    assert_int_equal(sy_stream_create(r->device, SY_STREAM_COMPUTE, &r->compute), SY_OK);
    assert_int_equal(sy_event_create(r->device, &r->event), SY_OK);
    assert_int_equal(sy_event_create(r->device, &r->other), SY_OK);
    r->host = malloc(DEVICE_RIG_POOL_BYTES);
    r->back = calloc(1, DEVICE_RIG_POOL_BYTES);
    assert_true(r->host && r->back);
    assert_int_equal(sy_device_host_register(r->device, r->host, DEVICE_RIG_POOL_BYTES), SY_OK);
    assert_int_equal(sy_device_host_register_wait(r->device, 60 * SY_NS_PER_S), SY_OK);
    *state = r;
    return 0;
}

int device_rig_tear_down(void **state)
{
    struct device_rig *r = *state;
    assert_int_equal(sy_device_host_unregister(r->device, r->host), SY_OK);
    sy_stream_destroy(r->h2d);
    sy_stream_destroy(r->d2h);
    sy_stream_destroy(r->compute);
    sy_event_destroy(r->event);
    sy_event_destroy(r->other);
    sy_pool_destroy(r->pool);
    sy_device_close(r->device);
    free(r->host);
    free(r->back);
    free(r);
    return 0;
}

/* Work that holds its stream until the test opens the gate. */
static void wait_at_gate(void *arg)
{
    while (!atomic_load((_Atomic bool *)arg))
        sy_clock_sleep_until(sy_clock_now() + 200 * SY_NS_PER_US);
}

void device_rig_close_gate(struct sy_stream *stream, _Atomic bool *gate)
{
    atomic_store(gate, false);
    assert_int_equal(sy_stream_launch(stream, wait_at_gate, (void *)gate), SY_OK);
}

pid_t device_rig_start_child(struct device_rig *r, const char *role, const char *fault)
{
    char fd_text[16], bytes_text[24], own_path[4096] = "";
    int fd;
    assert_int_equal(sy_pool_export(r->pool, &fd), SY_OK);
    snprintf(fd_text, sizeof fd_text, "%d", fd);
    snprintf(bytes_text, sizeof bytes_text, "%llu", (unsigned long long)sy_pool_size(r->pool));
    assert_true(readlink("/proc/self/exe", own_path, sizeof own_path - 1) > 0);
    pid_t child = fork();
    if (child == 0) {
        fcntl(fd, F_SETFD, 0);
        if (fault)
            setenv("SY_FAULT", fault, 1);
        execl(own_path, own_path, "--child", role, device_rig_spec, fd_text, bytes_text,
              (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    close(fd);
    return child;
}

int device_rig_finish_child(pid_t child)
{
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

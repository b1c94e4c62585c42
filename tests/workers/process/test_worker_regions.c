/* A worker's table of client memory: what faults do to it, in this process and in ones that are meant to die. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/wire/tensor_at.h"
#include "workers/process/worker_regions.h"

#define PAGE  4096u
#define PAGES 8u
#define BYTES (PAGES * PAGE)

static struct sy_device *device;

static uint64_t at(uint64_t region, uint64_t offset)
{
    return region << SY_TENSOR_REGION_SHIFT | offset;
}

static int add(uint64_t region, int fd, uint64_t offset, uint64_t bytes, bool sealed)
{
    struct sy_msg_region_add message = {region, offset, bytes, sealed};
    return sy_worker_region_add(device, &message, fd);
}

static int make_file(void)
{
    int fd = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
    return fd;
}

static unsigned char *locate(uint64_t place, uint64_t bytes)
{
    void *p = NULL;
    if (sy_worker_region_locate(place, bytes, "x", &p) < 0)
        fail_msg("locate: %s", sy_error_text());
    return p;
}

static int check(uint64_t place)
{
    const struct sy_u64s one = {1, &place};
    return sy_worker_regions_check(&one);
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void test_ranges(void **state)
{
    void *p;
    int fd = make_file();
    (void)state;
    assert_int_equal(add(5, fd, PAGE, BYTES - PAGE, true), SY_OK);
    assert_int_equal(add(5, fd, 0, PAGE, true), SY_EPROTO);
    assert_int_equal(add(5 + SY_MAX_REGIONS, fd, 0, PAGE, true), SY_EPROTO); /* its slot */
    assert_int_equal(add(0, fd, 0, PAGE, true), SY_EPROTO);
    assert_int_equal(add(6, fd, 0, 0, true), SY_EPROTO);
    assert_int_equal(pwrite(fd, "x", 1, PAGE + 64), 1);
    assert_int_equal(*locate(at(5, 64), BYTES - PAGE - 64), 'x');
    assert_int_equal(sy_worker_region_locate(at(5, 64), BYTES - PAGE - 63, "x", &p), SY_EARG);
    assert_int_equal(sy_worker_region_locate(at(5, BYTES), 1, "x", &p), SY_EARG);
    assert_int_equal(sy_worker_region_locate(at(6, 0), 1, "x", &p), SY_EPROTO);
    sy_worker_region_drop(device, 5 + SY_MAX_REGIONS); /* another one */
    assert_int_equal(check(at(5, 0)), SY_OK);
    sy_worker_region_drop(device, 5);
    sy_worker_region_drop(device, 5);
    assert_int_equal(check(at(5, 0)), SY_EPROTO);
    assert_int_equal(check(64), SY_OK); /* the slab */
    close(fd);
}

static void test_cannot_be_mapped(void **state)
{
    void *p;
    (void)state;
    assert_int_equal(add(9, -1, 0, PAGE, true), SY_OK); /* runs are told */
    assert_int_equal(sy_worker_region_locate(at(9, 0), 1, "x", &p), SY_EIO);
    assert_non_null(strstr(sy_error_text(), "cannot be mapped"));
    sy_worker_region_drop(device, 9);
}

struct reader {
    const volatile unsigned char *from;
    unsigned sum;
    pthread_t thread;
};

static void *read_all(void *arg)
{
    struct reader *r = arg;
    for (unsigned i = 0; i < BYTES; i += 64)
        r->sum += r->from[i];
    return NULL;
}

/* cmocka has a handler of its own while a test runs. */
static void take_over_faults(void)
{
    assert_int_equal(sy_worker_regions_start(), SY_OK);
}

/* E1, by several threads at once: what is in front of the cut stays the client's, and the neighbours are whole. */
static void test_cut_file(void **state)
{
    struct reader readers[4];
    (void)state;
    take_over_faults();
    for (uint64_t round = 0; round < 50; round++) {
        int fd = make_file(), whole = make_file();
        uint64_t id = 20 + round;
        assert_int_equal(add(id, fd, 0, BYTES, false), SY_OK);
        assert_int_equal(add(id + 100, whole, 0, BYTES, false), SY_OK);
        unsigned char *p = locate(at(id, 0), BYTES);
        p[0] = 7;
        assert_int_equal(ftruncate(fd, (off_t)(round % PAGES * PAGE)), 0);
        for (int i = 0; i < 4; i++) {
            readers[i] = (struct reader){.from = p};
            assert_int_equal(pthread_create(&readers[i].thread, NULL, read_all, &readers[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(readers[i].thread, NULL);
            assert_int_equal(readers[i].sum, round % PAGES ? 7 : 0);
        }
        p[BYTES - 1] = 1; /* may be written, too */
        assert_int_equal(check(at(id, 0)), SY_EARG);
        assert_int_equal(check(at(id + 100, 0)), SY_OK);
        sy_worker_region_drop(device, id);
        sy_worker_region_drop(device, id + 100);
        close(fd);
        close(whole);
    }
}

/* A slot that had a broken region is as good as new. */
static void test_slot_after_a_cut(void **state)
{
    int fd = make_file();
    (void)state;
    take_over_faults();
    assert_int_equal(add(3, fd, 0, BYTES, false), SY_OK);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(*locate(at(3, 0), 1), 0);
    assert_int_equal(check(at(3, 0)), SY_EARG);
    sy_worker_region_drop(device, 3);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(add(3 + SY_MAX_REGIONS, fd, 0, BYTES, false), SY_OK);
    assert_int_equal(*locate(at(3 + SY_MAX_REGIONS, 0), 1), 0);
    assert_int_equal(check(at(3 + SY_MAX_REGIONS, 0)), SY_OK);
    sy_worker_region_drop(device, 3 + SY_MAX_REGIONS);
    close(fd);
}

/* ---- E1, a full file system ------------------------------------------------------------------------ */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return is_written;
}

/* For a caller without privileges. The new namespace's root has to be mapped, else it cannot make files in a tmpfs. */
static bool enter_user_namespace(void)
{
    char users[32], groups[32];
    snprintf(users, sizeof users, "0 %u 1", (unsigned)getuid());
    snprintf(groups, sizeof groups, "0 %u 1", (unsigned)getgid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
           write_text("/proc/self/setgroups", "deny") && write_text("/proc/self/uid_map", users) &&
           write_text("/proc/self/gid_map", groups);
}

/* In a process of its own. A file of BYTES, of which no page is taken yet, in a file system of half as many; -1: cannot be mounted here. */
static int make_file_in_little_room(void)
{
    char folder[] = "/tmp/switchyard-little-XXXXXX", options[40], path[80];
    snprintf(options, sizeof options, "size=%u", BYTES / 2);
    if (!mkdtemp(folder))
        return -1;
    bool mounted = (unshare(CLONE_NEWNS) == 0 || enter_user_namespace()) &&
                   mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                   mount("tmpfs", folder, "tmpfs", 0, options) == 0;
    snprintf(path, sizeof path, "%s/file", folder);
    int fd = mounted ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (mounted)
        umount2(folder, MNT_DETACH);
    rmdir(folder);
    if (fd >= 0 && ftruncate(fd, BYTES) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

#define NO_MOUNT 77

/* Exit status 0: both regions ended as they should, and each said why. */
static void fill_file_system(void)
{
    int fd = make_file_in_little_room();
    if (fd < 0)
        _exit(NO_MOUNT);
    if (sy_worker_regions_start() < 0 || add(2, fd, 0, BYTES, false) < 0)
        _exit(1);
    memset(locate(at(2, 0), BYTES), 1, BYTES);
    if (check(at(2, 0)) != SY_ENOMEM_HOST || !strstr(sy_error_text(), "no room"))
        _exit(2);
    sy_worker_region_drop(device, 2);
    /* A file that was cut is named so here, too. */
    if (add(3, fd, 0, BYTES, false) < 0 || ftruncate(fd, PAGE) < 0)
        _exit(3);
    memset(locate(at(3, 0), BYTES), 1, BYTES);
    _exit(check(at(3, 0)) == SY_EARG && strstr(sy_error_text(), "truncated") ? 0 : 4);
}

static void test_full_file_system(void **state)
{
    int wait_status = 0;
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        fill_file_system();
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFEXITED(wait_status));
    if (WEXITSTATUS(wait_status) == NO_MOUNT) {
        print_message("skipped: a small file system cannot be mounted here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(wait_status), 0);
}

/* A region's file is closed with it. */
static void test_drop_closes(void **state)
{
    (void)state;
    int fd = make_file(), lowest = dup(fd); /* the lowest free number */
    close(lowest);
    for (uint64_t id = 1; id < 20; id++) {
        assert_int_equal(add(id, fd, 0, BYTES, false), SY_OK);
        sy_worker_region_drop(device, id);
    }
    int after = dup(fd);
    close(after);
    assert_int_equal(after, lowest);
    close(fd);
}

/* ---- E2 ------------------------------------------------------------------------------------------ */

static int signal_of(void (*fatal)(void))
{
    int wait_status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        alarm(20);
        fatal();
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    return WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
}

static void touch_own_file(void)
{
    int fd = memfd_create("own", MFD_CLOEXEC);
    volatile unsigned char *p =
        ftruncate(fd, PAGE) == 0 ? mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    if (p && ftruncate(fd, 0) == 0)
        (void)p[0];
}

/* What was said to be sealed, and is not. */
static void touch_sealed(void)
{
    int fd = make_file();
    if (add(2, fd, 0, BYTES, true) == SY_OK && ftruncate(fd, 0) == 0)
        (void)*(volatile unsigned char *)locate(at(2, 0), 1);
}

static void raise_it(void)
{
    raise(SIGBUS);
}

static void test_other_faults_are_fatal(void **state)
{
    (void)state;
    take_over_faults();
    assert_int_equal(signal_of(touch_own_file), SIGBUS);
    assert_int_equal(signal_of(touch_sealed), SIGBUS);
    assert_int_equal(signal_of(raise_it), SIGBUS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_cannot_be_mapped),
        cmocka_unit_test(test_cut_file),
        cmocka_unit_test(test_slot_after_a_cut),
        cmocka_unit_test(test_full_file_system),
        cmocka_unit_test(test_drop_closes),
        cmocka_unit_test(test_other_faults_are_fatal),
    };
    struct sy_device_spec spec;
    if (sy_device_spec_parse("host", &spec) < 0 || sy_device_open(&spec, &device) < 0 ||
        sy_worker_regions_start() < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sy_worker_regions_finish(device);
    sy_device_close(device);
    return failed;
}

/* Shared memory regions by name, on a core that only remembers them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/front/shared_regions.h"

#define OBJECT_BYTES 20000

static char key[64];
static int object;
static struct sy_shared_regions *regions;

/* ---- the core -------------------------------------------------------------------------------------------- */

static int n_regions, add_status;
static uint64_t last_offset, last_bytes, last_id;

static int fake_add(void *core, int fd, uint64_t offset, uint64_t bytes, bool is_sealed,
                    uint64_t *out)
{
    (void)core, (void)fd;
    if (add_status < 0)
        return sy_error_set(add_status, "the core does not want it");
    assert_false(is_sealed);
    last_offset = offset;
    last_bytes = bytes;
    *out = ++last_id;
    n_regions++;
    return SY_OK;
}

static void fake_drop(void *core, uint64_t region)
{
    (void)core;
    assert_in_range(region, 1, last_id);
    n_regions--;
}

static const struct sy_core_handlers fakes = {.region_add = fake_add, .region_drop = fake_drop},
                                     without = {0};
static struct sy_front front;

static int set_up(void **state)
{
    (void)state;
    snprintf(key, sizeof key, "/test_regions_%d", (int)getpid());
    object = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(object >= 0);
    assert_int_equal(ftruncate(object, OBJECT_BYTES), 0);
    front = (struct sy_front){.handlers = &fakes};
    add_status = SY_OK;
    return sy_shared_regions_create(&front, &regions);
}

static int tear_down(void **state)
{
    (void)state;
    sy_shared_regions_destroy(regions);
    assert_int_equal(n_regions, 0);
    if (object >= 0)
        close(object);
    shm_unlink(key);
    return 0;
}

static int add(const char *name, uint64_t offset, uint64_t bytes)
{
    return sy_shared_regions_register(regions, name, key, offset, bytes);
}

/* ---- tests ------------------------------------------------------------------------------------------------- */

static void test_register(void **state)
{
    char long_name[300];

    (void)state;
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(add("a", 5000, 100), SY_OK);
    assert_int_equal(last_offset, 4096); /* a whole page before it */
    assert_int_equal(last_bytes, 100 + 904);
    assert_int_equal(add("a", 0, 100), SY_EARG);
    assert_int_equal(add("", 0, 100), SY_EARG);
    assert_int_equal(add(long_name, 0, 100), SY_EARG);
    assert_int_equal(add("b", 0, 0), SY_EARG);
    assert_int_equal(add("b", 0, OBJECT_BYTES + 1), SY_EARG);
    assert_int_equal(add("b", UINT64_MAX, 2), SY_EARG);
    assert_int_equal(add("b", OBJECT_BYTES, 1), SY_EARG);
    assert_int_equal(sy_shared_regions_register(regions, "b", "/test_regions_none", 0, 1),
                     SY_ENOTFOUND);
    assert_int_equal(sy_shared_regions_register(regions, "b", "/../etc/passwd", 0, 1), SY_EARG);
    assert_int_equal(sy_shared_regions_register(regions, "b", "", 0, 1), SY_EARG);
    assert_int_equal(sy_shared_regions_register(regions, "b", long_name, 0, 1), SY_EARG);
    assert_int_equal(n_regions, 1);
    add_status = SY_EBUSY;
    assert_int_equal(add("b", 0, OBJECT_BYTES), SY_EBUSY);
    front.handlers = &without;
    assert_int_equal(add("b", 0, OBJECT_BYTES), SY_EUNSUPPORTED);
    front.handlers = &fakes;
    add_status = SY_OK;
    assert_int_equal(add("b", 0, OBJECT_BYTES), SY_OK);
}

static void test_most(void **state)
{
    char name[20];

    (void)state;
    for (int i = 0; i < SY_SHARED_REGIONS_MOST; i++) {
        snprintf(name, sizeof name, "r%d", i);
        assert_int_equal(add(name, 0, 64), SY_OK);
    }
    assert_int_equal(add("more", 0, 64), SY_EBUSY);
    sy_shared_regions_unregister(regions, "r17");
    assert_int_equal(add("more", 0, 64), SY_OK);
    sy_shared_regions_unregister(regions, NULL);
    assert_int_equal(n_regions, 0);
}

static void test_find(void **state)
{
    uint64_t region, at;

    (void)state;
    assert_int_equal(add("a", 5000, 100), SY_OK);
    assert_int_equal(sy_shared_regions_find(regions, "a", 24, 76, &region, &at), SY_OK);
    assert_int_equal(region, last_id);
    assert_int_equal(at, 904 + 24);
    assert_int_equal(sy_shared_regions_find(regions, "a", 24, 77, &region, &at), SY_EARG);
    assert_int_equal(sy_shared_regions_find(regions, "a", UINT64_MAX, 2, &region, &at), SY_EARG);
    assert_int_equal(sy_shared_regions_find(regions, "a", 101, 0, &region, &at), SY_EARG);
    assert_int_equal(sy_shared_regions_find(regions, "b", 0, 1, &region, &at), SY_EARG);
}

static void test_status(void **state)
{
    json_t *status;

    (void)state;
    assert_int_equal(add("a", 5000, 100), SY_OK);
    assert_int_equal(add("b", 0, 64), SY_OK);
    assert_int_equal(sy_shared_regions_status(regions, NULL, &status), SY_OK);
    assert_int_equal(json_array_size(status), 2);
    json_decref(status);
    assert_int_equal(sy_shared_regions_status(regions, "a", &status), SY_OK);
    assert_int_equal(json_array_size(status), 1);
    const json_t *entry = json_array_get(status, 0);
    assert_int_equal(json_integer_value(json_object_get(entry, "offset")), 5000);
    assert_int_equal(json_integer_value(json_object_get(entry, "byte_size")), 100);
    assert_string_equal(json_string_value(json_object_get(entry, "key")), key);
    json_decref(status);
    sy_shared_regions_unregister(regions, "a");
    sy_shared_regions_unregister(regions, "never there");
    assert_int_equal(sy_shared_regions_status(regions, "a", &status), SY_ENOTFOUND);
}

static void test_copies(void **state)
{
    char bytes[100], back[100];
    struct sy_region_file file;

    (void)state;
    memset(bytes, 7, sizeof bytes);
    assert_int_equal(add("a", 5000, 100), SY_OK);
    assert_int_equal(sy_region_file_open(regions, "a", 4, 97, &file), SY_EARG);
    assert_int_equal(sy_region_file_open(regions, "a", 3, 97, &file), SY_OK);
    assert_int_equal(sy_region_file_write(&file, bytes, 97), SY_OK);
    assert_int_equal(pread(object, back, 98, 5002), 98);
    assert_int_equal(back[0], 0);
    assert_memory_equal(back + 1, bytes, 97);
    sy_shared_regions_unregister(regions, "a"); /* a copy that was begun goes on */
    assert_int_equal(sy_region_file_read(&file, back, 97), SY_OK);
    assert_memory_equal(back, bytes, 97);
    assert_int_equal(ftruncate(object, 5050), 0); /* its owner may cut it */
    assert_int_equal(sy_region_file_read(&file, back, 97), SY_EARG);
    assert_int_equal(sy_region_file_write(&file, bytes, 10), SY_EARG);
    assert_int_equal(lseek(object, 0, SEEK_END), 5050);
    sy_region_file_close(&file);
    sy_region_file_close(&file);
}

/* Its client may cut the object, or give it away, after it was registered. */
static void test_changed_later(void **state)
{
    uint64_t region, at;

    (void)state;
    assert_int_equal(add("cut", 0, OBJECT_BYTES), SY_OK);
    assert_int_equal(sy_shared_regions_find(regions, "cut", 0, 64, &region, &at), SY_OK);
    assert_int_equal(ftruncate(object, 100), 0);
    assert_int_equal(sy_shared_regions_find(regions, "cut", 0, 64, &region, &at), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "'cut'"));
    assert_non_null(strstr(sy_error_text(), "truncated to 100 bytes"));
    assert_int_equal(ftruncate(object, OBJECT_BYTES), 0);
    assert_int_equal(sy_shared_regions_find(regions, "cut", 0, 64, &region, &at), SY_OK);
}

/* What only the server's privileges open is not lent to clients. */
static void test_another_users(void **state)
{
    (void)state;
    if (geteuid() != 0 || fchown(object, 12345, 12345) != 0) {
        print_message("skipped: only root can give a file to another user\n");
        skip();
    }
    assert_int_equal(add("theirs", 0, 100), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "12345"));
    assert_int_equal(fchmod(object, 0666), 0);
    assert_int_equal(add("theirs", 0, 100), SY_OK);
}

/* Opening a file whose lease another holds waits for its holder, which may never answer. */
static void test_lease(void **state)
{
    int reader = shm_open(key, O_RDONLY, 0);

    (void)state;
    signal(SIGIO, SIG_IGN);
    close(object);
    object = -1;
    if (fcntl(reader, F_SETLEASE, F_RDLCK) != 0) {
        close(reader);
        print_message("skipped: no leases on this file system\n");
        skip();
    }
    assert_int_equal(add("leased", 0, 100), SY_EBUSY);
    assert_non_null(strstr(sy_error_text(), "lease"));
    assert_int_equal(fcntl(reader, F_SETLEASE, F_UNLCK), 0);
    assert_int_equal(add("leased", 0, 100), SY_OK);
    close(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_register, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_most, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_find, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_status, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_copies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_changed_later, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_users, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_lease, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

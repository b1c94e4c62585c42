/* The parts of the CUDA device that are no CUDA calls. Expected values: brute force, simulation, CUDA's documented numbers. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_place.h"
#include "runtime/device/cuda/event_clock.h"
#include "runtime/device/cuda/pci_link.h"
#include "runtime/device/cuda/pool_fallback.h"
#include "runtime/device/cuda/pool_ticket.h"
#include "runtime/device/device_cuda.h"
#include "tests/rigs/seed.h"
#include "tests/rigs/shell.h"

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

/* ---- names ------------------------------------------------------------------------------------------------ */

static void test_specs(void **state)
{
    (void)state;
    struct sy_device_spec spec;
    static const char *const wrong[] = {"cuda:",
                                        "cuda:x",
                                        "cuda:-1",
                                        "cuda:+1",
                                        "cuda: 1",
                                        "cuda:1x",
                                        "cuda:128",
                                        "cuda:99999999999999999999",
                                        "cuda:0,link-gbps=5",
                                        "cuda,"};
    assert_int_equal(sy_device_spec_parse("cuda", &spec), SY_OK);
    assert_string_equal(spec.kind, "cuda");
    assert_int_equal(spec.ordinal, 0);
    assert_int_equal(sy_device_spec_parse("cuda:7", &spec), SY_OK);
    assert_string_equal(spec.kind, "cuda");
    assert_string_equal(spec.text, "cuda:7");
    assert_int_equal(spec.ordinal, 7);
    assert_true(spec.link_gbps > 0);
    for (size_t i = 0; i < SY_ARRAY_LEN(wrong); i++) {
        assert_int_equal(sy_device_spec_parse(wrong[i], &spec), SY_EARG);
        assert_non_null(strstr(sy_error_text(), "cuda"));
    }
    assert_int_equal(sy_device_spec_parse("cudax", &spec), SY_ENODEVICE);
    assert_int_equal(sy_device_spec_parse("cud", &spec), SY_ENODEVICE);
    assert_int_equal(sy_device_spec_parse("host", &spec), SY_OK);
    assert_int_equal(spec.ordinal, 0);
}

/* ---- errors ----------------------------------------------------------------------------------------------- */

/* What CUDA's documentation says "the process must be terminated and relaunched" of, and what it does not. */
static void test_errors(void **state)
{
    (void)state;
    static const int sticky[] = {4,   214, 220, 226, 700, 702, 709, 710, 714,
                                 715, 716, 717, 718, 719, 721, 810, 911, 999};
    static const struct {
        int error, status;
    } others[] = {{0, SY_OK},
                  {1, SY_EARG},
                  {2, SY_ENOMEM_DEVICE},
                  {35, SY_ENODEVICE},
                  {46, SY_ENODEVICE},
                  {100, SY_ENODEVICE},
                  {101, SY_ENODEVICE},
                  {209, SY_EUNSUPPORTED},
                  {304, SY_EUNSUPPORTED},
                  {400, SY_EBUG},
                  {600, SY_EBUSY},
                  {712, SY_EARG},
                  {800, SY_EUNSUPPORTED},
                  {801, SY_EUNSUPPORTED},
                  {802, SY_ENODEVICE},
                  {900, SY_EBUG},
                  {910, SY_EUNSUPPORTED},
                  {77777, SY_EDEVICE}};
    for (size_t i = 0; i < SY_ARRAY_LEN(sticky); i++) {
        assert_true(sy_cuda_error_is_sticky(sticky[i]));
        assert_int_equal(sy_cuda_error_status(sticky[i]), SY_EDEVICE);
    }
    for (size_t i = 0; i < SY_ARRAY_LEN(others); i++) {
        assert_false(sy_cuda_error_is_sticky(others[i].error));
        assert_int_equal(sy_cuda_error_status(others[i].error), others[i].status);
    }
    int n_sticky = 0;
    for (int error = -5; error < 2000; error++) {
        assert_non_null(sy_cuda_error_hint(error));
        n_sticky += sy_cuda_error_is_sticky(error);
        if (error != 0)
            assert_true(sy_cuda_error_status(error) < 0);
    }
    assert_int_equal(n_sticky, SY_ARRAY_LEN(sticky));
}

/* ---- places ----------------------------------------------------------------------------------------------- */

static void test_places(void **state)
{
    (void)state;
    struct sy_cuda_place here, there;
    uint64_t a, b, c, address;
    assert_int_equal(sy_cuda_place_init(&here, NULL), SY_OK);
    assert_int_equal(sy_cuda_place_init(&there, ""), SY_OK);
    assert_int_equal(sy_cuda_place_take(&here, 0, 100, &a), SY_OK);
    assert_int_equal(a, SY_CUDA_PLACE_BASE);
    assert_int_equal(sy_cuda_place_take(&here, 0, SY_CUDA_PLACE_STRIDE, &b), SY_OK);
    assert_int_equal(b, a + SY_CUDA_PLACE_STRIDE);
    assert_int_equal(sy_cuda_place_take(&here, 0, SY_CUDA_PLACE_STRIDE + 1, &c), SY_ENOMEM_DEVICE);
    /* Another process takes the second pool first, and gets the same address. */
    assert_int_equal(sy_cuda_place_take(&there, b, 100, &address), SY_OK);
    assert_int_equal(address, b);
    assert_int_equal(sy_cuda_place_take(&there, a, 100, &address), SY_OK);
    assert_int_equal(address, a);
    /* A second time in one process it lies elsewhere; so does what is no place of ours. */
    assert_int_equal(sy_cuda_place_take(&there, a, 100, &address), SY_OK);
    assert_int_equal(address, b + SY_CUDA_PLACE_STRIDE);
    sy_cuda_place_give(&there, a);
    assert_int_equal(sy_cuda_place_take(&there, 12345, 100, &address), SY_OK);
    assert_int_equal(address, a);
    for (int i = 3; i < SY_CUDA_PLACE_SLOTS; i++)
        assert_int_equal(sy_cuda_place_take(&there, 0, 100, &address), SY_OK);
    assert_int_equal(sy_cuda_place_take(&there, 0, 100, &address), SY_ENOMEM_HOST);
    sy_cuda_place_give(&there, b);
    assert_int_equal(sy_cuda_place_take(&there, 0, 100, &address), SY_OK);
    assert_int_equal(address, b);
}

static void test_the_place_can_be_moved(void **state)
{
    (void)state;
    static const char *const wrong[] = {"x",
                                        "0x500000000001",
                                        "0x500000001000",
                                        "0",
                                        "-1",
                                        "0x40000000",
                                        "0x7fffc0000000",
                                        "0x800000000000",
                                        "0x500000000000z",
                                        "99999999999999999999999"};
    struct sy_cuda_place place;
    uint64_t address;
    assert_int_equal(sy_cuda_place_init(&place, "0x4000000000"), SY_OK);
    assert_int_equal(sy_cuda_place_take(&place, 0, 1, &address), SY_OK);
    assert_int_equal(address, 0x4000000000ull);
    for (size_t i = 0; i < SY_ARRAY_LEN(wrong); i++) {
        assert_int_equal(sy_cuda_place_init(&place, wrong[i]), SY_EARG);
        assert_non_null(strstr(sy_error_text(), "SY_CUDA_POOL_BASE"));
    }
}

/* ---- which way -------------------------------------------------------------------------------------------- */

static void expect_way(struct sy_pool_probe probe, const char *wanted, int status, int way,
                       const char *word)
{
    enum sy_pool_way got = SY_POOL_BY_FD;
    const char *why = NULL;
    assert_int_equal(sy_pool_choose_way(&probe, wanted, &got, &why), status);
    if (status == SY_OK)
        assert_int_equal(got, way);
    if (word)
        assert_non_null(strstr(status == SY_OK ? why : sy_error_text(), word));
}

static void test_the_fallback(void **state)
{
    (void)state;
    struct sy_pool_probe fine = {.has_vmm = true, .has_fd = true, .call = "x"};
    struct sy_pool_probe no_vmm = {.has_fd = true, .call = ""};
    struct sy_pool_probe no_fd = {.has_vmm = true, .call = ""};
    expect_way(fine, NULL, SY_OK, SY_POOL_BY_FD, NULL);
    expect_way(fine, "", SY_OK, SY_POOL_BY_FD, NULL);
    expect_way(fine, "fd", SY_OK, SY_POOL_BY_FD, NULL);
    expect_way(fine, "ipc", SY_OK, SY_POOL_BY_KEEPER, "SY_CUDA_POOL");
    expect_way(fine, "shm", SY_EARG, 0, "shm");
    expect_way(no_vmm, NULL, SY_OK, SY_POOL_BY_KEEPER, "virtual memory");
    expect_way(no_fd, NULL, SY_OK, SY_POOL_BY_KEEPER, "descriptors");
    expect_way(no_fd, "fd", SY_EUNSUPPORTED, 0, "descriptors");
    static const int about_fds[] = {1, 304, 800, 801};
    for (size_t i = 0; i < SY_ARRAY_LEN(about_fds); i++) {
        struct sy_pool_probe probe = {true, true, about_fds[i], "cuMemExportToShareableHandle"};
        expect_way(probe, NULL, SY_OK, SY_POOL_BY_KEEPER, "cuMemExport");
        expect_way(probe, "fd", SY_EUNSUPPORTED, 0, "cuMemExport");
    }
    static const struct {
        int error, status;
    } about_all[] = {{2, SY_ENOMEM_DEVICE},
                     {100, SY_ENODEVICE},
                     {101, SY_ENODEVICE},
                     {719, SY_EDEVICE},
                     {999, SY_EDEVICE}};
    for (size_t i = 0; i < SY_ARRAY_LEN(about_all); i++) {
        struct sy_pool_probe probe = {true, true, about_all[i].error, "cuMemCreate"};
        expect_way(probe, NULL, about_all[i].status, 0, "cuMemCreate");
        expect_way(probe, "ipc", SY_OK, SY_POOL_BY_KEEPER, NULL);
    }
}

/* ---- tickets ---------------------------------------------------------------------------------------------- */

static bool same_file(int a, int b)
{
    struct stat x, y;
    assert_int_equal(fstat(a, &x), 0);
    assert_int_equal(fstat(b, &y), 0);
    return x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static void test_a_ticket_is_read_many_times(void **state)
{
    (void)state;
    struct sy_pool_ticket ticket = {.way = SY_POOL_BY_FD,
                                    .bytes = 12345,
                                    .address = 0x600000000000},
                          got;
    int memory = open("/dev/null", O_RDWR | O_CLOEXEC), fd, copy;
    memcpy(ticket.uuid, "0123456789abcdef", 16);
    assert_int_equal(sy_pool_ticket_make(&ticket, memory, &fd), SY_OK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    for (int i = 0; i < 300; i++) { /* peeking neither takes it away nor uses descriptors up */
        assert_int_equal(sy_pool_ticket_read(fd, &got, &copy), SY_OK);
        assert_int_equal(got.bytes, 12345);
        assert_int_equal(got.address, ticket.address);
        assert_memory_equal(got.uuid, ticket.uuid, 16);
        assert_true(copy >= 0 && copy < 100 && same_file(copy, memory));
        assert_true(fcntl(copy, F_GETFD) & FD_CLOEXEC);
        close(copy);
    }
    close(memory);
    close(fd);
    ticket.way = SY_POOL_BY_KEEPER;
    memcpy(ticket.ipc, "handle", 7);
    assert_int_equal(sy_pool_ticket_make(&ticket, -1, &fd), SY_OK);
    assert_int_equal(sy_pool_ticket_read(fd, &got, &copy), SY_OK);
    assert_int_equal(copy, -1);
    assert_string_equal((const char *)got.ipc, "handle");
    close(fd);
}

static void test_what_is_no_ticket(void **state)
{
    (void)state;
    struct sy_pool_ticket got;
    int fd, copy, ends[2];
    fd = open("/dev/null", O_RDWR);
    assert_int_equal(sy_pool_ticket_read(fd, &got, &copy), SY_EARG);
    close(fd);
    assert_int_equal(sy_pool_ticket_read(-1, &got, &copy), SY_EARG);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(sy_pool_ticket_read(ends[0], &got, &copy), SY_EARG);
    close(ends[0]);
    close(ends[1]);
}

/* ---- clocks ----------------------------------------------------------------------------------------------- */

/* A device clock that starts anywhere and drifts by 50 ppm, rounded as CUDA rounds; the host sees events late. */
static void test_event_times(void **state)
{
    (void)state;
    struct sy_event_clock clock = {0};
    const double drift = 1 + 50e-6;
    double true_reference = 1e12 + 3000; /* host time, ns */
    sy_ns last = 0, now;
    uint64_t worst = 0;
    sy_event_clock_set(&clock, (sy_ns)true_reference - 3000, (sy_ns)true_reference + 9000);
    assert_true(sy_event_clock_error_ns(&clock) <= 9000);
    double at = true_reference;
    for (int i = 0; i < 40000; i++) {
        at += 1000 + (double)below(1000000);
        double elapsed = (at - true_reference) * drift;
        int64_t ns = (int64_t)((double)(float)(elapsed / 1e6) * 1e6);
        sy_ns recorded = (sy_ns)(at - 2000 - (double)below(8000)),
              seen = (sy_ns)(at + 8000 + (double)below(30000));
        now = sy_event_clock_time(&clock, ns, recorded, seen);
        assert_true(now >= recorded && now <= seen);
        assert_true(now >= last || now == seen); /* in order, unless it was seen done before that */
        last = now;
        uint64_t off = (uint64_t)(now > at ? now - at : at - now);
        worst = i > 100 ? SY_MAX(worst, off) : worst;
        if (elapsed > 4e9) { /* a new reference, here the event itself */
            sy_event_clock_move(&clock, ns, recorded, seen);
            true_reference = at;
        }
    }
    assert_true(worst < 20000); /* half of the widest window from record to look, and some drift */
}

static void test_a_late_look_at_the_reference(void **state)
{
    (void)state;
    struct sy_event_clock clock = {0};
    sy_event_clock_set(&clock, 1000000, 900000000);
    assert_int_equal(clock.point, 1010000);
    /* An event that was seen 2 us after it was recorded says where the reference must lie. */
    assert_int_equal(sy_event_clock_time(&clock, 500000, 1503000, 1505000), 1505000);
    assert_int_equal(clock.point, 1005000);
    assert_int_equal(sy_event_clock_error_ns(&clock), 2000);
    assert_int_equal(sy_event_clock_time(&clock, -2000, 0, 99999999), 1003000);
}

/* ---- the bus ----------------------------------------------------------------------------------------------- */

static void expect_gbps(const char *speed, int lanes, double expected)
{
    double got = sy_pci_link_gbps(speed, lanes);
    assert_true(got > expected - 0.01 && got < expected + 0.01);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_the_bus(void **state)
{
    (void)state;
    char root[] = "/tmp/sy-pci-XXXXXX", folder[200];
    double gbps = 5;
    int node = 5;
    /* PCI-SIG's per-lane rates: 0.25, 0.5, 0.985, 1.969, 3.938 GB/s */
    expect_gbps("2.5 GT/s PCIe", 16, 4.0);
    expect_gbps("5.0 GT/s PCIe", 16, 8.0);
    expect_gbps("8.0 GT/s PCIe", 16, 15.754);
    expect_gbps("16.0 GT/s PCIe", 8, 15.754);
    expect_gbps("32.0 GT/s PCIe", 16, 63.015);
    expect_gbps("Unknown speed", 16, 0);
    expect_gbps("", 16, 0);
    expect_gbps("32.0 GT/s PCIe", 0, 0);
    expect_gbps("-8 GT/s", 16, 0);
    assert_non_null(mkdtemp(root));
    sy_pci_link_read(root, "0000:3B:00.0", &gbps, &node);
    assert_true(gbps == 0 && node == -1);
    snprintf(folder, sizeof folder, "%s/0000:3b:00.0", root);
    assert_int_equal(mkdir(folder, 0755), 0);
    write_file(folder, "max_link_speed", "32.0 GT/s PCIe\n");
    write_file(folder, "max_link_width", "16\n");
    write_file(folder, "numa_node", "-1\n");
    sy_pci_link_read(root, "0000:3B:00.0", &gbps, &node);
    assert_true(gbps > 63.0 && gbps < 63.1 && node == -1);
    write_file(folder, "numa_node", "1\n");
    sy_pci_link_read(root, "0000:3B:00.0", &gbps, &node);
    assert_int_equal(node, 1);
    assert_int_equal(remove_tree(root), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_specs),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_the_place_can_be_moved),
        cmocka_unit_test(test_the_fallback),
        cmocka_unit_test(test_a_ticket_is_read_many_times),
        cmocka_unit_test(test_what_is_no_ticket),
        cmocka_unit_test(test_event_times),
        cmocka_unit_test(test_a_late_look_at_the_reference),
        cmocka_unit_test(test_the_bus),
    };
    seed = seed_of_run(20261121);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

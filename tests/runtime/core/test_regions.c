/* Tensors in memory that clients share, with the core in this process and real workers: the same bits as in the slab, files that are cut
 * while they are used, workers that die, clients that drop what they use, and the bounds. */
#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "allocator/shared_memory.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/core/core_batch.h"
#include "runtime/core/core_internal.h"
#include "tests/rigs/core_rig.h"
#include "workers/process/worker.h"

#define PAGE     4096u
#define ROWS     4096 /* 16 pages an input, 16 an output */
#define TENSOR   (ROWS * FAKE_ROW * sizeof(float))
#define IN       (PAGE + 64)
#define OUT      (PAGE + 64 + TENSOR)
#define FILE_AT  (2 * PAGE) /* where the region begins in its file */
#define REGION   (2 * PAGE + 2 * TENSOR)
#define FILE_ALL (FILE_AT + REGION)

/* ---- rig ----------------------------------------------------------------------------------------- */

static void open_rig(struct core_rig *r, const char *device)
{
    const struct sy_core_config config = {.device = device,
                                          .pool_bytes = 4u << 20,
                                          .n_workers = 2,
                                          .hang_timeout_ns = 60 * SY_NS_PER_S};
    core_rig_open_with(r, &config);
    core_rig_add_both(r);
}

/* A client's: a file, its view of it, and the region. */
struct client {
    int fd;
    unsigned char *file;
    uint64_t region;
};

static float *input_of(const struct client *c)
{
    return (float *)(void *)(c->file + FILE_AT + IN);
}

static const float *output_of(const struct client *c)
{
    return (const float *)(const void *)(c->file + FILE_AT + OUT);
}

static void fill_input(float *in)
{
    for (int i = 0; i < ROWS * FAKE_ROW; i++)
        in[i] = (float)(i % 977) / 100 - 4;
}

static void client_open(struct client *c, struct core_rig *r, bool sealed)
{
    c->fd = memfd_create("region-under-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(c->fd >= 0 && ftruncate(c->fd, FILE_ALL) == 0);
    if (sealed)
        assert_int_equal(fcntl(c->fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    c->file = mmap(NULL, FILE_ALL, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    assert_ptr_not_equal(c->file, MAP_FAILED);
    fill_input(input_of(c));
    if (sy_core_region_add(r->core, c->fd, FILE_AT, REGION, sealed, &c->region) < 0)
        fail_msg("region_add: %s", sy_error_text());
}

static void client_close(struct client *c)
{
    munmap(c->file, FILE_ALL);
    close(c->fd);
}

static void on_answer(void *ctx, int status, const char *error,
                      const struct sy_request_report *report)
{
    struct core_answer *a = ctx;
    a->over = true;
    a->n_calls++;
    a->status = status;
    a->report = *report;
    snprintf(a->error, sizeof a->error, "%s", error ? error : "");
}

static int send_at(struct core_rig *r, uint64_t in, uint64_t out, struct core_answer *a)
{
    *a = (struct core_answer){.rig = r, .batch = ROWS, .in = in, .out = out};
    return core_rig_send(r, "a", ROWS, in, out, NULL, on_answer, a, &a->id);
}

static int client_send(struct client *c, struct core_rig *r, struct core_answer *a)
{
    return send_at(r, sy_core_tensor_at(c->region, IN), sy_core_tensor_at(c->region, OUT), a);
}

static bool is_over(struct core_rig *r, void *answer)
{
    (void)r;
    return ((struct core_answer *)answer)->over;
}

static int wait_for(struct core_rig *r, struct core_answer *a)
{
    core_rig_until(r, is_over, a, "an answer");
    assert_int_equal(a->n_calls, 1);
    return a->status;
}

static int client_ask(struct client *c, struct core_rig *r, struct core_answer *a)
{
    if (client_send(c, r, a) < 0)
        fail_msg("infer: %s", sy_error_text());
    return wait_for(r, a);
}

/* The same input by the slab; malloc'd. */
static float *result_by_slab(struct core_rig *r)
{
    struct sy_slab *slab = sy_core_slab(r->core);
    struct core_answer a;
    uint64_t in, out;
    float *copy = malloc(TENSOR);
    assert_int_equal(sy_slab_alloc(slab, TENSOR, &in), SY_OK);
    assert_int_equal(sy_slab_alloc(slab, TENSOR, &out), SY_OK);
    fill_input(sy_slab_pointer(slab, in));
    assert_int_equal(send_at(r, in, out, &a), SY_OK);
    assert_int_equal(wait_for(r, &a), SY_OK);
    memcpy(copy, sy_slab_pointer(slab, out), TENSOR);
    sy_slab_release(slab, in);
    sy_slab_release(slab, out);
    return copy;
}

static bool nothing_is_mapped(struct core_rig *r, void *ctx)
{
    int n = sy_core_regions_n(r->core);
    (void)ctx;
    for (int w = 0; w < r->n_workers; w++)
        n += sy_core_regions_n_mapped(r->core, w);
    return n == 0;
}

/* Its process has a mapping of the test's file. */
static bool maps_file(struct core_rig *r, int worker)
{
    char path[64], line[512];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/maps",
             (int)sy_supervisor_pid(r->core->supervisor, worker));
    FILE *maps = fopen(path, "r");
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, "region-under-test") != NULL;
    if (maps)
        fclose(maps);
    return found;
}

static bool no_worker_maps_it(struct core_rig *r, void *ctx)
{
    (void)ctx;
    return !maps_file(r, 0) && !maps_file(r, 1);
}

static void drop_and_close(struct core_rig *r, struct client *c)
{
    sy_core_region_drop(r->core, c->region);
    client_close(c);
    core_rig_until(r, nothing_is_mapped, NULL, "the core to forget the regions");
    core_rig_until(r, no_worker_maps_it, NULL, "workers to unmap the region");
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void same_bits_on(const char *device)
{
    struct core_rig r;
    struct client c;
    struct core_answer a;
    open_rig(&r, device);
    float *expected = result_by_slab(&r);
    for (int sealed = 0; sealed < 2; sealed++) {
        client_open(&c, &r, sealed);
        for (int i = 0; i < 3; i++) {
            memset(c.file + FILE_AT + OUT, 0xff, TENSOR);
            if (client_ask(&c, &r, &a) < 0)
                fail_msg("in the region: %s", a.error);
            assert_memory_equal(output_of(&c), expected, TENSOR);
        }
        assert_true(maps_file(&r, 0) || maps_file(&r, 1));
        drop_and_close(&r, &c);
    }
    core_rig_calm(&r);
    free(expected);
    core_rig_close(&r);
}

static void test_same_bits_on_host(void **state)
{
    (void)state;
    same_bits_on("host");
}

static void test_same_bits_on_emulated(void **state)
{
    (void)state;
    same_bits_on("emulated,link-gbps=10");
}

/* What requests use stays until they have ended, and whoever comes after the drop is refused. */
static void test_drop_while_in_use(void **state)
{
    (void)state;
    struct core_rig r;
    struct client c;
    struct core_answer a[4], late;
    open_rig(&r, "host");
    float *expected = result_by_slab(&r);
    client_open(&c, &r, true);
    for (int i = 0; i < 4; i++)
        assert_int_equal(client_send(&c, &r, &a[i]), SY_OK);
    sy_core_region_drop(r.core, c.region);
    sy_core_region_drop(r.core, c.region); /* again: nothing */
    assert_int_equal(client_send(&c, &r, &late), SY_EARG);
    for (int i = 0; i < 4; i++)
        assert_int_equal(wait_for(&r, &a[i]), SY_OK);
    assert_memory_equal(output_of(&c), expected, TENSOR);
    drop_and_close(&r, &c);
    core_rig_calm(&r);
    free(expected);
    core_rig_close(&r);
}

/* Requests are canceled, waiting ones and started ones: nothing stays held. */
static void test_cancel(void **state)
{
    (void)state;
    struct core_rig r;
    struct client c;
    struct core_answer a[6];
    open_rig(&r, "host");
    client_open(&c, &r, false);
    for (int i = 0; i < 6; i++)
        assert_int_equal(client_send(&c, &r, &a[i]), SY_OK);
    for (int i = 0; i < 6; i += 2)
        sy_core_infer_cancel(r.core, a[i].id);
    for (int i = 0; i < 6; i++)
        assert_true(wait_for(&r, &a[i]) == SY_OK || (i % 2 == 0 && a[i].status == SY_ECANCELED));
    drop_and_close(&r, &c);
    core_rig_calm(&r);
    core_rig_close(&r);
}

static void test_worker_is_killed(void **state)
{
    (void)state;
    struct core_rig r;
    struct client c;
    struct core_answer a;
    open_rig(&r, "host");
    float *expected = result_by_slab(&r);
    client_open(&c, &r, true);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(client_send(&c, &r, &a), SY_OK);
        core_rig_kill(&r, i % 2);
        if (wait_for(&r, &a) < 0)
            fail_msg("after a kill: %s", a.error);
        assert_memory_equal(output_of(&c), expected, TENSOR);
        core_rig_await_deaths(&r, i + 1);
        core_rig_calm(&r);
    }
    drop_and_close(&r, &c);
    free(expected);
    core_rig_close(&r);
}

/* The owner cuts the file: that run ends with EARG, the worker lives, others' requests and the client's next region are fine. */
static void cut_file_on(const char *device)
{
    static const off_t left[] = {0, FILE_AT + IN + PAGE, FILE_AT + OUT + 3 * PAGE};
    struct core_rig r;
    struct client c, other;
    struct core_answer a;
    open_rig(&r, device);
    float *expected = result_by_slab(&r);
    client_open(&other, &r, true);
    for (int i = 0; i < 3; i++) {
        client_open(&c, &r, false);
        if (i != 1) /* once, before any worker has mapped it */
            assert_int_equal(client_ask(&c, &r, &a), SY_OK);
        assert_int_equal(ftruncate(c.fd, left[i]), 0);
        assert_int_equal(client_ask(&c, &r, &a), SY_EARG);
        assert_non_null(strstr(a.error, "truncated by its owner"));
        assert_int_equal(ftruncate(c.fd, FILE_ALL), 0); /* too late */
        assert_int_equal(client_ask(&c, &r, &a), SY_EARG);
        assert_int_equal(client_ask(&other, &r, &a), SY_OK);
        assert_memory_equal(output_of(&other), expected, TENSOR);
        sy_core_region_drop(r.core, c.region);
        client_close(&c);
    }
    assert_int_equal(core_rig_deaths(&r), 0);
    drop_and_close(&r, &other);
    core_rig_calm(&r);
    free(expected);
    core_rig_close(&r);
}

static void test_cut_file_on_host(void **state)
{
    (void)state;
    cut_file_on("host");
}

static void test_cut_file_on_emulated(void **state)
{
    (void)state;
    cut_file_on("emulated,link-gbps=10");
}

/* At any moment of a run. */
static void test_cut_file_while_running(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer a;
    open_rig(&r, "host");
    float *expected = result_by_slab(&r);
    for (int i = 0; i < 30; i++) {
        struct client c;
        client_open(&c, &r, false);
        assert_int_equal(client_send(&c, &r, &a), SY_OK);
        if (i % 3)
            event_base_loop(r.base, EVLOOP_NONBLOCK); /* the RUN is sent */
        usleep((useconds_t)(i * 17));
        assert_int_equal(ftruncate(c.fd, FILE_AT), 0);
        int status = wait_for(&r, &a);
        assert_true(status == SY_OK || status == SY_EARG);
        sy_core_region_drop(r.core, c.region);
        client_close(&c);
    }
    assert_int_equal(core_rig_deaths(&r), 0);
    float *again = result_by_slab(&r);
    assert_memory_equal(again, expected, TENSOR);
    core_rig_until(&r, nothing_is_mapped, NULL, "the core to forget the regions");
    core_rig_calm(&r);
    free(again);
    free(expected);
    core_rig_close(&r);
}

/* Requests that may run back to back (core_batch.h; on a slow machine they run alone): who names the file that was cut gets EARG, nobody else does; and what is dropped
 * while it is gathered is there for its run. */
static void test_back_to_back(void **state)
{
    (void)state;
    struct core_rig r;
    struct client whole, cut;
    struct core_answer a[24];
    open_rig(&r, "host");
    float *expected = result_by_slab(&r);
    client_open(&whole, &r, true);
    for (int round = 0; round < 4; round++) {
        client_open(&cut, &r, false);
        if (round % 2)
            assert_int_equal(client_ask(&cut, &r, &a[0]), SY_OK);
        for (int i = 0; i < 24; i++)
            assert_int_equal(client_send(i % 5 == 3 ? &cut : &whole, &r, &a[i]), SY_OK);
        sy_core_region_drop(r.core, cut.region);
        assert_int_equal(ftruncate(cut.fd, FILE_AT), 0);
        for (int i = 0; i < 24; i++)
            assert_int_equal(wait_for(&r, &a[i]), i % 5 == 3 ? SY_EARG : SY_OK);
        assert_memory_equal(output_of(&whole), expected, TENSOR);
        client_close(&cut);
    }
    assert_int_equal(core_rig_deaths(&r), 0);
    drop_and_close(&r, &whole);
    core_rig_calm(&r);
    free(expected);
    core_rig_close(&r);
}

static void test_bound(void **state)
{
    (void)state;
    static uint64_t ids[SY_CORE_MAX_REGIONS];
    struct core_rig r;
    struct client c;
    struct core_answer a;
    uint64_t more;
    open_rig(&r, "host");
    client_open(&c, &r, true);
    ids[0] = c.region;
    for (int round = 0; round < 3; round++) {
        for (int i = 1; i < SY_CORE_MAX_REGIONS; i++)
            if (sy_core_region_add(r.core, c.fd, FILE_AT, REGION, true, &ids[i]) < 0)
                fail_msg("region %d: %s", i, sy_error_text());
        assert_int_equal(sy_core_region_add(r.core, c.fd, FILE_AT, REGION, true, &more), SY_EBUSY);
        for (int i = 0; i < SY_CORE_MAX_REGIONS; i += 101) {
            uint64_t in = sy_core_tensor_at(ids[i], IN), out = sy_core_tensor_at(ids[0], OUT);
            assert_int_equal(send_at(&r, in, out, &a), SY_OK);
            assert_int_equal(wait_for(&r, &a), SY_OK);
        }
        for (int i = 1; i < SY_CORE_MAX_REGIONS; i++)
            sy_core_region_drop(r.core, ids[i]);
    }
    drop_and_close(&r, &c);
    core_rig_calm(&r);
    assert_int_equal(core_rig_deaths(&r), 0);
    core_rig_close(&r);
}

/* An id is another's only after its slot had a thousand. */
static void test_ids(void **state)
{
    (void)state;
    struct core_rig r;
    struct client c;
    uint64_t before = 0, id;
    open_rig(&r, "host");
    client_open(&c, &r, true);
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(sy_core_region_add(r.core, c.fd, FILE_AT, REGION, true, &id), SY_OK);
        assert_true(id >= 1 && id < 1u << (64 - SY_CORE_REGION_SHIFT));
        assert_true(id != before && id != c.region);
        before = id;
        sy_core_region_drop(r.core, id);
    }
    drop_and_close(&r, &c);
    core_rig_close(&r);
}

/* Sparse files cost their client nothing: together they get no more of a worker's address space than one may have. */
static void test_sparse_files(void **state)
{
    (void)state;
    const uint64_t half = 1ull << 43;
    struct core_rig r;
    uint64_t ids[3];
#ifdef __SANITIZE_THREAD__ /* leaves a program 2 TiB of addresses */
    skip();
#endif
    open_rig(&r, "host");
    int fd = memfd_create("sparse", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 1ll << 43), 0);
    assert_int_equal(sy_core_region_add(r.core, fd, 0, half, false, &ids[0]), SY_OK);
    assert_int_equal(sy_core_region_add(r.core, fd, 0, half - PAGE, false, &ids[1]), SY_OK);
    assert_int_equal(sy_core_region_add(r.core, fd, 0, 2 * PAGE, false, &ids[2]), SY_EBUSY);
    assert_non_null(strstr(sy_error_text(), "all regions of shared memory together"));
    assert_int_equal(sy_core_region_add(r.core, fd, 0, PAGE, false, &ids[2]), SY_OK);
    sy_core_region_drop(r.core, ids[0]); /* no worker has mapped it */
    assert_int_equal(sy_core_region_add(r.core, fd, 0, half, false, &ids[0]), SY_OK);
    for (int i = 0; i < 3; i++)
        sy_core_region_drop(r.core, ids[i]);
    close(fd);
    core_rig_close(&r);
}

static void refuse(struct core_rig *r, int fd, uint64_t offset, uint64_t bytes, const char *why)
{
    uint64_t id = 77;
    assert_int_equal(sy_core_region_add(r->core, fd, offset, bytes, false, &id), SY_EARG);
    if (!strstr(sy_error_text(), why))
        fail_msg("'%s' is not in: %s", why, sy_error_text());
}

static void test_refusals(void **state)
{
    (void)state;
    struct core_rig r;
    struct client c;
    struct core_answer a;
    char read_only[64];
    open_rig(&r, "host");
    client_open(&c, &r, false);
    refuse(&r, -1, 0, PAGE, "fd -1");
    refuse(&r, c.fd, 100, PAGE, "multiple of the page");
    refuse(&r, c.fd, 0, 0, "0 bytes");
    refuse(&r, c.fd, 0, FILE_ALL + 1, "does not lie in its file");
    refuse(&r, c.fd, UINT64_MAX - PAGE + 1, PAGE, "does not lie in its file");
    refuse(&r, c.fd, 0, 1ull << 44, "a region of");
    int disk = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), folder = open("/", O_RDONLY);
    refuse(&r, disk, 0, PAGE, "neither a memfd");
    refuse(&r, folder, 0, PAGE, "not a file");
    snprintf(read_only, sizeof read_only, "/proc/self/fd/%d", c.fd);
    int reader = open(read_only, O_RDONLY | O_CLOEXEC);
    refuse(&r, reader, 0, PAGE, "to read and write");
    int huge = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB); /* runs out of pages at a fault */
    if (huge >= 0 && ftruncate(huge, 2 << 20) == 0)
        refuse(&r, huge, 0, PAGE, "neither a memfd");
    if (huge >= 0)
        close(huge);
    close(disk);
    close(folder);
    close(reader);
    uint64_t out = sy_core_tensor_at(c.region, OUT);
    assert_int_equal(send_at(&r, sy_core_tensor_at(c.region + 1, IN), out, &a), SY_EARG);
    assert_int_equal(send_at(&r, sy_core_tensor_at(c.region, IN + 4), out, &a), SY_EARG);
    assert_int_equal(send_at(&r, sy_core_tensor_at(c.region, REGION), out, &a), SY_EARG);
    /* Only the worker knows how much the tensor takes. */
    assert_int_equal(send_at(&r, out, sy_core_tensor_at(c.region, REGION - 64), &a), SY_OK);
    assert_int_equal(wait_for(&r, &a), SY_EARG);
    assert_non_null(strstr(a.error, "do not lie in a shared memory region"));
    assert_int_equal(core_rig_deaths(&r), 0);
    drop_and_close(&r, &c);
    core_rig_calm(&r);
    core_rig_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_on_host),
        cmocka_unit_test(test_same_bits_on_emulated),
        cmocka_unit_test(test_drop_while_in_use),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_worker_is_killed),
        cmocka_unit_test(test_cut_file_on_host),
        cmocka_unit_test(test_cut_file_on_emulated),
        cmocka_unit_test(test_cut_file_while_running),
        cmocka_unit_test(test_back_to_back),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_sparse_files),
        cmocka_unit_test(test_refusals),
    };
    struct rlimit files;
    if (fake_is_worker(argc, argv)) /* a real one: argv is PROGRAM worker --fd N --index I */
        return sy_worker_main(atoi(argv[3]), atoi(argv[5]));
    sy_log_init("test_regions");
    if (!getenv("SY_LOG"))
        sy_log_threshold = SY_LOG_ERROR;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* each region has a descriptor */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

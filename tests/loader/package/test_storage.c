/* The storage reader against plain pread: random ranges, cached and not, on a disk and in memory; what must fail fails by name. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/storage/storage.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/rigs/seed.h"

#define PAGE       4096u
#define FILE_PAGES 3000u /* 12 MiB: more than the queue holds of 64 KiB chunks */
#define MAX_RANGES 40

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

struct fixture {
    char path[64];
    unsigned char *expected; /* the file's bytes */
    unsigned char *to;       /* as large, and a page more */
};

/* On the disk beside the build, since /tmp may be in memory. */
static void make_file(struct fixture *f, const char *folder)
{
    size_t bytes = FILE_PAGES * (size_t)PAGE;
    snprintf(f->path, sizeof f->path, "%s/test-storage-XXXXXX", folder);
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    f->expected = aligned_alloc(PAGE, bytes);
    f->to = aligned_alloc(PAGE, bytes + PAGE);
    assert_non_null(f->expected);
    assert_non_null(f->to);
    for (size_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)f->expected)[i] = below(UINT64_MAX);
    assert_int_equal(write(fd, f->expected, bytes), bytes);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static void remove_file(struct fixture *f)
{
    unlink(f->path);
    free(f->expected);
    free(f->to);
}

static void drop_cache(const char *path, uint64_t offset, uint64_t bytes)
{
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED), 0);
    close(fd);
}

static void fill_cache(const char *path, uint64_t offset, uint64_t bytes)
{
    char page[PAGE];
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0); /* nothing read ahead */
    for (uint64_t at = offset; at < offset + bytes; at += PAGE)
        assert_int_equal(pread(fd, page, PAGE, (off_t)at), PAGE);
    close(fd);
}

/* ---- what the callbacks saw ------------------------------------------------------------------------------ */

struct seen {
    int n_done[MAX_RANGES], status[MAX_RANGES], order[MAX_RANGES], n;
    int asked[MAX_RANGES], n_at_ready[MAX_RANGES];
    int hold;       /* ready() says "not yet" so many times for each range */
    int stop_at;    /* ready() says ECANCELED for this range; -1: never */
    bool after_all; /* range i is ready once all before it are done */
};

static int on_ready(void *ctx, int range)
{
    struct seen *seen = ctx;
    if (range == seen->stop_at)
        return sy_error_set(SY_ECANCELED, "the test stops here");
    if (seen->after_all && seen->n < range)
        return 0;
    seen->n_at_ready[range] = seen->n;
    return seen->asked[range]++ >= seen->hold;
}

static void on_done(void *ctx, int range, int status)
{
    struct seen *seen = ctx;
    seen->n_done[range]++;
    seen->status[range] = status;
    seen->order[seen->n++] = range;
}

static int read_ranges(struct sy_storage_reader *reader, const char *path,
                       const struct sy_storage_range *ranges, int n, struct seen *seen,
                       struct sy_storage_result *result)
{
    struct sy_storage_callbacks callbacks = {on_ready, on_done, seen};
    int status = sy_storage_read(reader, path, ranges, n, &callbacks, result);
    for (int i = 0; i < n; i++)
        assert_int_equal(seen->n_done[i], 1);
    return status;
}

/* ---- bytes ----------------------------------------------------------------------------------------------- */

/* Ranges in file order with gaps, empty ones among them, packed in memory. Returns how many. */
static int random_ranges(const struct fixture *f, struct sy_storage_range *ranges)
{
    int n = 0;
    uint64_t at = 0, to = 0;
    while (n < MAX_RANGES) {
        uint64_t skip = below(60), pages = below(8) == 0 ? 0 : 1 + below(250);
        if (at + skip + pages > FILE_PAGES)
            break;
        ranges[n++] =
            (struct sy_storage_range){(at + skip) * PAGE, pages * PAGE, f->to + to * PAGE};
        at += skip + pages;
        to += pages;
    }
    return n;
}

static void check_bytes(const struct fixture *f, const struct sy_storage_range *ranges, int n)
{
    for (int i = 0; i < n; i++)
        assert_memory_equal(ranges[i].to, f->expected + ranges[i].file_offset, ranges[i].bytes);
}

/* More than io_uring takes: the reader goes back to pread. */
#define REFUSED_DEPTH 40000u

static void one_round(struct fixture *f, int round)
{
    static const uint64_t chunks[] = {PAGE, 16 * PAGE, 0};
    unsigned depth = round % 4 == 3 ? REFUSED_DEPTH : 1 + (unsigned)below(40);
    struct sy_storage_range ranges[MAX_RANGES];
    struct seen seen = {.stop_at = -1, .hold = round % 3, .after_all = round % 5 == 4};
    struct sy_storage_result result;
    struct sy_storage_reader *reader;
    int n = random_ranges(f, ranges);
    uint64_t total = 0, part = below(FILE_PAGES) * PAGE;
    fill_cache(f->path, 0, FILE_PAGES * (uint64_t)PAGE);
    if (round % 2)
        drop_cache(f->path, part, FILE_PAGES * (uint64_t)PAGE - part);
    memset(f->to, 0, FILE_PAGES * (size_t)PAGE);
    assert_int_equal(sy_storage_reader_create(depth, chunks[round % 3], &reader), SY_OK);
    assert_int_equal(read_ranges(reader, f->path, ranges, n, &seen, &result), SY_OK);
    check_bytes(f, ranges, n);
    for (int i = 0; i < n; i++)
        total += ranges[i].bytes;
    assert_int_equal(result.direct_bytes + result.cached_bytes, total);
    assert_true(result.end_ns > result.start_ns);
    sy_storage_reader_destroy(reader);
}

static void test_bytes_on_disk(void **state)
{
    struct fixture *f = *state;
    for (int round = 0; round < 30; round++)
        one_round(f, round);
}

static void test_bytes_in_memory(void **state)
{
    (void)state;
    struct fixture f;
    make_file(&f, "/dev/shm");
    for (int round = 0; round < 10; round++)
        one_round(&f, round);
    remove_file(&f);
}

static void test_one_reader_serves_many_calls(void **state)
{
    struct fixture *f = *state;
    struct sy_storage_range ranges[MAX_RANGES];
    struct sy_storage_reader *reader;
    assert_int_equal(sy_storage_reader_create(0, 0, &reader), SY_OK);
    for (int i = 0; i < 10; i++) {
        struct seen seen = {.stop_at = -1};
        int n = random_ranges(f, ranges);
        assert_int_equal(sy_storage_read(reader, "/nonexistent/file", ranges, n, NULL, NULL),
                         SY_ENOTFOUND);
        assert_int_equal(read_ranges(reader, f->path, ranges, n, &seen, NULL), SY_OK);
        check_bytes(f, ranges, n);
    }
    assert_int_equal(sy_storage_read(reader, f->path, NULL, 0, NULL, NULL), SY_OK);
    sy_storage_reader_destroy(reader);
    sy_storage_reader_destroy(NULL);
}

/* ---- which way ------------------------------------------------------------------------------------------- */

static bool takes_direct(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECT);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void test_way_follows_the_page_cache(void **state)
{
    struct fixture *f = *state;
    uint64_t half = FILE_PAGES / 2 * PAGE;
    struct sy_storage_range ranges[2] = {{0, half, f->to}, {half, half, f->to + half}};
    struct sy_storage_reader *reader;
    struct sy_storage_result result;
    double before = -1, behind = -1;
    drop_cache(f->path, 0, 0); /* all of it: a part may share a large page with its neighbour */
    fill_cache(f->path, 0, half);
    assert_int_equal(sy_storage_cached_share(f->path, 0, half, &before), SY_OK);
    assert_int_equal(sy_storage_cached_share(f->path, half, half, &behind), SY_OK);
    if (!takes_direct(f->path) || before < 1 || behind > 0) {
        print_message("skip: this file system has no O_DIRECT or keeps its pages\n");
        skip();
    }
    assert_int_equal(sy_storage_reader_create(0, 0, &reader), SY_OK);
    assert_int_equal(sy_storage_read(reader, f->path, ranges, 2, NULL, &result), SY_OK);
    assert_int_equal(result.cached_bytes, half);
    assert_int_equal(result.direct_bytes, half);
    /* Reading past the cache leaves nothing in it. */
    assert_int_equal(sy_storage_cached_share(f->path, half, half, &behind), SY_OK);
    assert_true(behind == 0);
    check_bytes(f, ranges, 2);
    sy_storage_reader_destroy(reader);
}

static void test_rate_is_measured(void **state)
{
    struct fixture *f = *state;
    double gbps = 0;
    assert_int_equal(sy_storage_measure(f->path, UINT64_MAX, &gbps), SY_OK);
    assert_true(gbps > 0);
    assert_int_equal(sy_storage_measure(f->path, 100, &gbps), SY_EARG);
    assert_int_equal(sy_storage_measure("/nonexistent/file", PAGE, &gbps), SY_ENOTFOUND);
}

/* ---- order and holding back ------------------------------------------------------------------------------ */

static void test_done_follows_the_order_when_held_back(void **state)
{
    struct fixture *f = *state;
    struct sy_storage_range ranges[MAX_RANGES];
    struct seen seen = {.stop_at = -1, .after_all = true};
    struct sy_storage_reader *reader;
    int n = random_ranges(f, ranges);
    assert_int_equal(sy_storage_reader_create(0, PAGE, &reader), SY_OK);
    assert_int_equal(read_ranges(reader, f->path, ranges, n, &seen, NULL), SY_OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(seen.order[i], i);
    sy_storage_reader_destroy(reader);
}

/* What lies in the page cache is copied by the caller: what is complete is told before more is copied. */
static void test_cached_ranges_are_told_one_by_one(void **state)
{
    struct fixture *f = *state;
    struct sy_storage_range ranges[8];
    struct seen seen = {.stop_at = -1};
    struct sy_storage_reader *reader;
    fill_cache(f->path, 0, 8 * 64 * PAGE);
    for (uint64_t i = 0; i < 8; i++)
        ranges[i] = (struct sy_storage_range){i * 64 * PAGE, 64 * PAGE, f->to + i * 64 * PAGE};
    assert_int_equal(sy_storage_reader_create(0, 0, &reader), SY_OK);
    assert_int_equal(read_ranges(reader, f->path, ranges, 8, &seen, NULL), SY_OK);
    assert_true(seen.n_at_ready[7] >= 1);
    check_bytes(f, ranges, 8);
    sy_storage_reader_destroy(reader);
}

static void test_ready_may_stop(void **state)
{
    struct fixture *f = *state;
    struct sy_storage_range ranges[4];
    struct sy_storage_reader *reader;
    for (uint64_t i = 0; i < 4; i++)
        ranges[i] = (struct sy_storage_range){i * PAGE, PAGE, f->to + i * PAGE};
    assert_int_equal(sy_storage_reader_create(0, 0, &reader), SY_OK);
    for (int stop_at = 0; stop_at < 4; stop_at++) {
        struct seen seen = {.stop_at = stop_at};
        memset(f->to, 0, 4 * PAGE);
        assert_int_equal(read_ranges(reader, f->path, ranges, 4, &seen, NULL), SY_ECANCELED);
        assert_non_null(strstr(sy_error_text(), "the test stops here"));
        for (int i = 0; i < 4; i++)
            assert_int_equal(seen.status[i], i < stop_at ? SY_OK : SY_ECANCELED);
        check_bytes(f, ranges, stop_at);
    }
    sy_storage_reader_destroy(reader);
}

/* ---- refusals -------------------------------------------------------------------------------------------- */

static void expect_failure(const struct fixture *f, struct sy_storage_range bad, int expected)
{
    struct sy_storage_range ranges[3] = {{0, PAGE, f->to}, bad, {PAGE, PAGE, f->to + PAGE}};
    struct seen seen = {.stop_at = -1};
    struct sy_storage_reader *reader;
    assert_int_equal(sy_storage_reader_create(0, 0, &reader), SY_OK);
    assert_int_equal(read_ranges(reader, f->path, ranges, 3, &seen, NULL), expected);
    assert_non_null(strstr(sy_error_text(), f->path));
    assert_int_equal(seen.status[0], SY_OK);
    assert_int_equal(seen.status[1], expected);
    assert_int_equal(seen.status[2], expected);
    assert_memory_equal(f->to, f->expected, PAGE);
    sy_storage_reader_destroy(reader);
}

static void test_short_file(void **state)
{
    struct fixture *f = *state;
    uint64_t end = FILE_PAGES * (uint64_t)PAGE;
    expect_failure(f, (struct sy_storage_range){end - PAGE, 2 * PAGE, f->to + PAGE}, SY_ECORRUPT);
    expect_failure(f, (struct sy_storage_range){end, PAGE, f->to + PAGE}, SY_ECORRUPT);
    expect_failure(f, (struct sy_storage_range){end + PAGE, PAGE, f->to + PAGE}, SY_ECORRUPT);
    assert_non_null(strstr(sy_error_text(), "12288000")); /* where it ends */
    expect_failure(f, (struct sy_storage_range){UINT64_MAX / PAGE * PAGE, PAGE, f->to + PAGE},
                   SY_ECORRUPT);
}

static void cut_file(void *ctx, int range, int status)
{
    (void)status;
    if (range == 0)
        assert_int_equal(truncate(ctx, 10 * PAGE + 100), 0);
}

static int after_cut(void *ctx, int range)
{
    struct stat st;
    return range == 0 || (stat(ctx, &st) == 0 && st.st_size < 11 * (off_t)PAGE);
}

/* The file shrinks while it is read: found by the read itself, whichever way it is read. */
static void test_file_cut_while_read(void **state)
{
    (void)state;
    for (int dropped = 0; dropped < 2; dropped++) {
        struct fixture f;
        struct sy_storage_reader *reader;
        make_file(&f, "build");
        struct sy_storage_callbacks callbacks = {after_cut, cut_file, f.path};
        struct sy_storage_range ranges[2] = {{0, PAGE, f.to}, {8 * PAGE, 8 * PAGE, f.to + PAGE}};
        if (dropped)
            drop_cache(f.path, 0, 0);
        assert_int_equal(sy_storage_reader_create(0, 0, &reader), SY_OK);
        assert_int_equal(sy_storage_read(reader, f.path, ranges, 2, &callbacks, NULL), SY_ECORRUPT);
        assert_non_null(strstr(sy_error_text(), f.path));
        sy_storage_reader_destroy(reader);
        remove_file(&f);
    }
}

static void test_not_aligned(void **state)
{
    struct fixture *f = *state;
    expect_failure(f, (struct sy_storage_range){100, PAGE, f->to + PAGE}, SY_EARG);
    expect_failure(f, (struct sy_storage_range){0, 100, f->to + PAGE}, SY_EARG);
    expect_failure(f, (struct sy_storage_range){0, PAGE, f->to + PAGE + 100}, SY_EARG);
}

static void test_no_file(void **state)
{
    struct fixture *f = *state;
    struct sy_storage_range range = {0, PAGE, f->to};
    struct seen seen = {.stop_at = -1};
    struct sy_storage_reader *reader;
    double share;
    assert_int_equal(sy_storage_reader_create(0, 0, &reader), SY_OK);
    assert_int_equal(read_ranges(reader, "/nonexistent/file", &range, 1, &seen, NULL),
                     SY_ENOTFOUND);
    assert_non_null(strstr(sy_error_text(), "/nonexistent/file"));
    assert_int_equal(seen.status[0], SY_ENOTFOUND);
    seen = (struct seen){.stop_at = -1};
    assert_int_equal(sy_storage_cached_share("/nonexistent/file", 0, PAGE, &share), SY_EIO);
    sy_storage_reader_destroy(reader);
}

/* ---- faults: SY_FAULT is read at start, so the test runs itself again ------------------------------------ */

static char own_path[4096];

static int run_self(const char *path, const char *fault)
{
    pid_t child = fork();
    if (child == 0) {
        setenv("SY_FAULT", fault, 1);
        execl(own_path, own_path, "--fault", path, (char *)NULL);
        _exit(127);
    }
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

/* The third range fails: 0 if all is as it must be, else where not. */
static int fault_main(const char *path)
{
    struct sy_storage_range ranges[5];
    struct seen seen = {.stop_at = -1};
    struct sy_storage_callbacks callbacks = {NULL, on_done, &seen};
    struct sy_storage_reader *reader;
    unsigned char *to = aligned_alloc(PAGE, 5 * PAGE);
    int wrong = 0;
    if (!to || sy_storage_reader_create(0, 0, &reader) < 0)
        return 1;
    for (uint64_t i = 0; i < 5; i++)
        ranges[i] = (struct sy_storage_range){i * PAGE, PAGE, to + i * PAGE};
    if (sy_storage_read(reader, path, ranges, 5, &callbacks, NULL) != SY_EIO ||
        !strstr(sy_error_text(), path))
        wrong = 2;
    for (int i = 0; i < 5; i++)
        if (seen.n_done[i] != 1 || seen.status[i] != (i < 2 ? SY_OK : SY_EIO))
            wrong = 3;
    if (sy_storage_read(reader, path, ranges, 5, NULL, NULL) != SY_OK) /* the fault was once */
        wrong = 4;
    sy_storage_reader_destroy(reader);
    free(to);
    return wrong;
}

static void test_fault(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run_self(f->path, "storage_read:3:EIO"), 0);
    assert_int_equal(run_self(f->path, "storage_read:9:EIO"), 4);
}

static int set_up(void **state)
{
    static struct fixture f;
    seed = seed_of_run(20261121);
    make_file(&f, "build");
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    remove_file(*state);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--fault") == 0)
        return fault_main(argv[2]);
    ssize_t n = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    if (n < 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_on_disk),
        cmocka_unit_test(test_bytes_in_memory),
        cmocka_unit_test(test_one_reader_serves_many_calls),
        cmocka_unit_test(test_way_follows_the_page_cache),
        cmocka_unit_test(test_rate_is_measured),
        cmocka_unit_test(test_done_follows_the_order_when_held_back),
        cmocka_unit_test(test_cached_ranges_are_told_one_by_one),
        cmocka_unit_test(test_ready_may_stop),
        cmocka_unit_test(test_short_file),
        cmocka_unit_test(test_file_cut_while_read),
        cmocka_unit_test(test_not_aligned),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_fault),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* Changes of a package file: a profile is set whole or not at all; whatever fails or kills a writer, the old package stays. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/rigs/package_rig.h"

#define PAGE 4096u

/* ---- profiles -------------------------------------------------------------------------------------------------- */

static uint64_t times[2][4];
static uint32_t solo[4] = {1, 0, 0xffff, UINT32_MAX};

static struct sy_profile some_profile(uint64_t scale)
{
    struct sy_profile profile = {.n_threads = 2,
                                 .storage_bytes_per_s = 5 * scale,
                                 .batch = {1, 8},
                                 .layer_ns = {times[0], times[1]},
                                 .solo_batches = solo};
    for (int i = 0; i < 4; i++) {
        times[0][i] = (uint64_t)(i + 1) * scale;
        times[1][i] = (uint64_t)(i + 1) * scale * 3;
    }
    return profile;
}

static int set_some_profile(void)
{
    struct sy_profile profile = some_profile(7);
    return sy_package_set_profile(pr_path, &profile);
}

static void expect_same_but_profile(const struct sy_package *a, const struct sy_package *b)
{
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->packed_for, b->packed_for);
    assert_int_equal(a->n_layers, b->n_layers);
    assert_int_equal(a->weights_bytes, b->weights_bytes);
    assert_memory_equal(a->layer_hash, b->layer_hash, (size_t)a->n_layers * 8);
    for (int i = 0; i < a->n_layers; i++) {
        assert_int_equal(a->layers[i].offset_bytes, b->layers[i].offset_bytes);
        assert_int_equal(a->layers[i].bytes, b->layers[i].bytes);
        assert_int_equal(a->layers[i].n_params, b->layers[i].n_params);
    }
    size_t n, m;
    void *x, *y;
    bool *keep = calloc((size_t)a->graph->n_tensors, 1);
    assert_int_equal(sy_graph_encode(a->graph, keep, &x, &n), SY_OK);
    assert_int_equal(sy_graph_encode(b->graph, keep, &y, &m), SY_OK);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
    free(keep);
}

static void expect_same_weights(void)
{
    size_t n, m;
    unsigned char *a = pr_read_file(pr_pristine, &n), *b = pr_read_file(pr_path, &m);
    struct sy_package_header x = pr_header_of(a), y = pr_header_of(b);
    assert_int_equal(x.weights_bytes, y.weights_bytes);
    assert_memory_equal(a + x.weights_offset, b + y.weights_offset, x.weights_bytes);
    free(a);
    free(b);
}

static void test_profile_round_trip(void **state)
{
    (void)state;
    struct sy_package *before, *after;
    assert_int_equal(pr_open_and_verify(pr_pristine, &before), SY_OK);
    /* small numbers, then long ones, which take more room in the meta section, then small ones again */
    const uint64_t scales[] = {1, 1ull << 58, 100};
    for (size_t s = 0; s < SY_ARRAY_LEN(scales); s++) {
        struct sy_profile profile = some_profile(scales[s]);
        assert_int_equal(sy_package_set_profile(pr_path, &profile), SY_OK);
        assert_int_equal(pr_open_and_verify(pr_path, &after), SY_OK);
        expect_same_but_profile(before, after);
        expect_same_weights();
        assert_true(before->content_hash != after->content_hash);
        assert_int_equal(after->weights_offset, before->weights_offset);
        assert_int_equal(after->profile.n_threads, 2);
        assert_memory_equal(after->profile.solo_batches, solo, sizeof solo);
        for (int i = 0; i < 4; i++)
            assert_int_equal(after->layers[i].solo_batches, solo[i]);
        assert_int_equal(after->profile.storage_bytes_per_s, 5 * scales[s]);
        for (int b = 0; b < 2; b++) {
            assert_int_equal(after->profile.batch[b], b ? 8 : 1);
            assert_memory_equal(after->profile.layer_ns[b], times[b], sizeof times[b]);
        }
        sy_package_close(after);
    }
    assert_int_equal(sy_package_open(pr_path, &after), SY_OK);
    assert_int_equal(sy_package_layer_ns(after, 1, 1), 200);
    assert_int_equal(sy_package_layer_ns(after, 1, 8), 600);
    assert_int_equal(sy_package_layer_ns(after, 1, 15), 1000); /* the line goes on */
    sy_package_close(after);
    sy_package_close(before);
    assert_int_equal(pr_files_in_folder(), 2);
}

/* A package with less room in front of the weights than a profile may need: they move, bit for bit. */
static void test_profile_moves_the_weights(void **state)
{
    (void)state;
    char name[4096] = "";
    size_t bytes = 0;
    unsigned char *all = NULL;
    struct sy_package_header h = {.meta_bytes = 0};
    for (size_t n = 3000; n < 4000; n++) { /* the longest meta section that fits one page */
        name[n - 1] = 'n';
        if (n == 3000)
            memset(name, 'n', n);
        assert_int_equal(sy_package_write(pr_path, name, pr_graph, &pr_copier, NULL, NULL), SY_OK);
        free(all);
        all = pr_read_file(pr_path, &bytes);
        h = pr_header_of(all);
        if (h.weights_offset == 3 * PAGE)
            break;
    }
    assert_true(h.weights_offset == 3 * PAGE && h.meta_bytes <= PAGE);
    memmove(all + 2 * PAGE, all + 3 * PAGE, h.weights_bytes);
    h.weights_offset = 2 * PAGE;
    h.header_hash = sy_package_header_hash(&h);
    memcpy(all, &h, sizeof h);
    pr_write_file(pr_path, all, bytes - PAGE);
    free(all);
    pr_expect_good(pr_path);
    assert_int_equal(set_some_profile(), SY_OK);
    pr_expect_good(pr_path);
    expect_same_weights();
    all = pr_read_file(pr_path, &bytes);
    h = pr_header_of(all);
    assert_int_equal(h.weights_offset, 3 * PAGE);
    free(all);
}

/* What could not be read again is not written: the old package stays. */
static void test_unreadable_profile_is_refused(void **state)
{
    (void)state;
    struct sy_profile profile = some_profile(1);
    profile.n_threads = -1;
    assert_int_equal(sy_package_set_profile(pr_path, &profile), SY_EARG);
    profile = some_profile(1), profile.batch[1] = 1ll << 40;
    assert_int_equal(sy_package_set_profile(pr_path, &profile), SY_EARG);
    profile = some_profile(1), times[1][2] = UINT64_MAX;
    assert_int_equal(sy_package_set_profile(pr_path, &profile), SY_EARG);
    char *name = calloc(1, 5001);
    memset(name, 'n', 5000);
    assert_int_equal(sy_package_write(pr_path, name, pr_graph, &pr_copier, NULL, NULL), SY_EARG);
    free(name);
    pr_expect_good(pr_path);
    expect_same_weights();
    assert_int_equal(pr_files_in_folder(), 2);
}

static void test_profile_of_a_damaged_package(void **state)
{
    (void)state;
    struct sy_profile profile = some_profile(1);
    assert_int_equal(truncate(pr_path, 2 * PAGE + 17), 0);
    assert_int_equal(sy_package_set_profile(pr_path, &profile), SY_ECORRUPT);
    unlink(pr_path);
    assert_int_equal(sy_package_set_profile(pr_path, &profile), SY_ENOTFOUND);
    assert_int_equal(pr_files_in_folder(), 1);
}

/* ---- writes that fail ------------------------------------------------------------------------------------------ */

static int with_file_limit(rlim_t bytes, int (*write_it)(void))
{
    struct rlimit old, now;
    getrlimit(RLIMIT_FSIZE, &old);
    now = old, now.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    int status = write_it();
    setrlimit(RLIMIT_FSIZE, &old);
    return status;
}

static int write_package(void)
{
    return sy_package_write(pr_path, "small", pr_graph, &pr_copier, NULL, NULL);
}

static void test_full_disk(void **state)
{
    (void)state;
    size_t bytes;
    free(pr_read_file(pr_path, &bytes));
    for (rlim_t limit = 0; limit < bytes; limit += limit % PAGE ? 1 : PAGE - 1) {
        assert_int_equal(with_file_limit(limit, set_some_profile), SY_EIO);
        assert_non_null(strstr(sy_error_text(), pr_path));
        assert_int_equal(with_file_limit(limit, write_package), SY_EIO);
        assert_int_equal(pr_files_in_folder(), 2);
        pr_expect_good(pr_path);
        expect_same_weights();
    }
    unlink(pr_path);
    assert_int_equal(with_file_limit(PAGE, write_package), SY_EIO);
    assert_int_equal(pr_files_in_folder(), 1); /* no half package under the name either */
    assert_int_equal(with_file_limit(bytes, write_package), SY_OK);
    pr_expect_good(pr_path);
}

static int failing_pack(const struct sy_graph *g, const struct sy_layer *layer, void *to)
{
    (void)g, (void)to;
    return layer->node == 3 ? sy_error_set(SY_EUNSUPPORTED, "not this layer") : SY_OK;
}

static void test_engine_that_fails(void **state)
{
    (void)state;
    struct sy_engine_ops failing = pr_copier;
    failing.pack_layer = failing_pack;
    assert_int_equal(sy_package_write(pr_path, "other", pr_graph, &failing, NULL, NULL),
                     SY_EUNSUPPORTED);
    assert_int_equal(pr_files_in_folder(), 2);
    pr_expect_good(pr_path);
    expect_same_weights();
}

/* This program again, as a process with SY_FAULT set: it sets the profile, or writes the package. Its wait status. */
static int run_child(const char *what, const char *fault)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        setenv("SY_FAULT", fault, 1);
        execl("/proc/self/exe", "test_package_changes", what, pr_path, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static int child_main(const char *what, const char *at)
{
    snprintf(pr_path, sizeof pr_path, "%s", at);
    pr_graph = pr_small_graph();
    int status = strcmp(what, "--profile") == 0 ? set_some_profile() : write_package();
    sy_graph_free(pr_graph);
    return status == SY_OK ? 0 : status == SY_EIO ? 1 : 2;
}

static void remove_temporaries(void)
{
    char name[400];
    DIR *dir = opendir(pr_folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strstr(entry->d_name, ".tmp-")) {
            snprintf(name, sizeof name, "%s/%s", pr_folder, entry->d_name);
            unlink(name);
        }
    closedir(dir);
}

/* The k-th call of one operation fails, for every k until nothing fails any more. */
static void fail_each(const char *what, const char *op, const char *how)
{
    for (int k = 1; k < 50; k++) {
        char fault[80];
        snprintf(fault, sizeof fault, "%s:%d:%s", op, k, how);
        int status = run_child(what, fault);
        bool done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (strcmp(how, "KILL") == 0) {
            assert_true(done || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
            remove_temporaries(); /* a killed process cannot */
        } else if (!done) {
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        }
        assert_int_equal(pr_files_in_folder(), 2);
        pr_expect_good(pr_path);
        expect_same_weights();
        if (done) {
            assert_true(k > 1); /* the operation is there */
            return;
        }
    }
    fail_msg("%s is called without end", op);
}

static void test_every_operation_fails(void **state)
{
    (void)state;
    static const char *const ops[] = {"file_create", "file_write", "file_sync", "file_rename",
                                      "folder_sync"};
    for (size_t i = 0; i < SY_ARRAY_LEN(ops); i++) {
        fail_each("--profile", ops[i], "EIO");
        fail_each("--profile", ops[i], "KILL");
        fail_each("--write", ops[i], "EIO");
        fail_each("--write", ops[i], "KILL");
    }
    fail_each("--profile", "file_read", "EIO");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_profile_round_trip, pr_fresh),
        cmocka_unit_test_setup(test_profile_moves_the_weights, pr_fresh),
        cmocka_unit_test_setup(test_unreadable_profile_is_refused, pr_fresh),
        cmocka_unit_test_setup(test_profile_of_a_damaged_package, pr_fresh),
        cmocka_unit_test_setup(test_full_disk, pr_fresh),
        cmocka_unit_test_setup(test_engine_that_fails, pr_fresh),
        cmocka_unit_test_setup(test_every_operation_fails, pr_fresh),
    };
    if (argc == 3)
        return child_main(argv[1], argv[2]);
    return cmocka_run_group_tests(tests, pr_start, pr_finish);
}

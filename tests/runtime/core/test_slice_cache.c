/* Cache ways of slices, against a folder that looks as the kernel's resctrl does: whose ways are whose, what is written, what is left behind. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"
#include "tests/rigs/core_rig.h"
#include "tests/rigs/seed.h"

static uint64_t seed;
static char root[64];
static bool refuses; /* the fake kernel takes no cores */

/* ---- the fake kernel: a folder that is made there has its files, and takes them along ---------------------- */

static bool is_group(const char *path)
{
    return *root && strncmp(path, root, strlen(root)) == 0 && strstr(path, "/switchyard-");
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

int mkdir(const char *path, mode_t mode)
{
    int made = mkdirat(AT_FDCWD, path, mode);
    if (made < 0 || !is_group(path))
        return made;
    char cores[400];
    snprintf(cores, sizeof cores, "%s/cpus_list", path);
    put(path, "schemata", "L3:0=fffff;2=fffff\n");
    if (refuses)
        return symlink("/dev/full", cores);
    put(path, "cpus_list", "\n");
    return 0;
}

int rmdir(const char *path)
{
    static const char *const files[] = {"schemata", "cpus_list"};
    char name[400];
    for (size_t i = 0; is_group(path) && i < SY_ARRAY_LEN(files); i++) {
        snprintf(name, sizeof name, "%s/%s", path, files[i]);
        unlink(name);
    }
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

static void mount_fake(const char *mask, const char *least, const char *groups)
{
    char folder[200];
    snprintf(root, sizeof root, "/tmp/resctrl-XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/info", root);
    assert_int_equal(mkdir(folder, 0755), 0);
    snprintf(folder, sizeof folder, "%s/info/L3", root);
    assert_int_equal(mkdir(folder, 0755), 0);
    put(folder, "cbm_mask", mask);
    put(folder, "min_cbm_bits", least);
    put(folder, "num_closids", groups);
    put(root, "schemata", "    MB:0=100;2=100\n    L3:0=fffff;2=fffff\n");
    refuses = false;
}

static void unmount_fake(void)
{
    char command[200];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    assert_int_equal(system(command), 0);
    *root = '\0';
}

/* What the group says; "": there is none. */
static const char *said(int pid, int group, const char *name)
{
    static char text[200];
    char path[300];
    snprintf(path, sizeof path, "%s/switchyard-%d-%d/%s", root, pid, group, name);
    FILE *file = fopen(path, "r");
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[got] = '\0';
    if (file)
        fclose(file);
    return text;
}

/* ---- whose ways ------------------------------------------------------------------------------------------------ */

static bool is_adjacent(uint64_t mask)
{
    uint64_t from = mask & -mask;
    return mask != 0 && ((mask + from) & mask) == 0;
}

/* No two share a way, none is left over, each has its least, and who has more cores has no fewer ways. */
static void test_ways_are_divided_by_cores(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        int n = 1 + (int)seed_below(&seed, SY_SCHED_MAX_SLICES);
        unsigned least = 1 + (unsigned)seed_below(&seed, 3),
                 ways = 1 + (unsigned)seed_below(&seed, 64);
        size_t n_cores[SY_SCHED_MAX_SLICES], sum = 0;
        uint64_t masks[SY_SCHED_MAX_SLICES], all = 0;
        for (int i = 0; i < n; i++)
            sum += n_cores[i] = 1 + seed_below(&seed, 64);
        int status = sy_cache_ways_plan(ways, least, n_cores, n, masks);
        assert_int_equal(status, (unsigned)n * least > ways ? SY_EBUSY : SY_OK);
        double spare = ways - (double)n * least;
        for (int i = 0; status == SY_OK && i < n; i++) {
            double fair = least + spare * (double)n_cores[i] / (double)sum;
            int had = __builtin_popcountll(masks[i]);
            assert_true(is_adjacent(masks[i]) && had >= (int)least);
            assert_int_equal(masks[i] & all, 0);
            assert_true(had > fair - 1 && had < fair + 1);
            all |= masks[i];
            for (int k = 0; k < i; k++)
                assert_false(n_cores[k] > n_cores[i] && __builtin_popcountll(masks[k]) < had);
        }
        if (status == SY_OK)
            assert_int_equal(__builtin_popcountll(all), ways);
    }
    assert_int_equal(sy_cache_ways_plan(20, 1, NULL, 0, NULL), SY_EARG);
    assert_int_equal(sy_cache_ways_plan(20, 0, &(size_t){1}, 1, &(uint64_t){0}), SY_EARG);
    assert_int_equal(sy_cache_ways_plan(20, 1, &(size_t){0}, 1, &(uint64_t){0}), SY_EARG);
}

/* ---- what there is --------------------------------------------------------------------------------------------- */

static void test_what_the_kernel_offers(void **state)
{
    struct sy_cache_ways ways;
    char path[200];
    (void)state;
    assert_int_equal(sy_cache_ways_open("/tmp/resctrl-none", &ways), SY_ENOTFOUND);
    mount_fake("7fff\n", "2\n", "16\n");
    assert_int_equal(sy_cache_ways_open(root, &ways), SY_OK);
    assert_int_equal(ways.n_ways, 15);
    assert_int_equal(ways.min_ways, 2);
    assert_int_equal(ways.most_groups, 15);
    assert_int_equal(ways.n_domains, 2);
    assert_int_equal(ways.domains[1], 2);
    put(root, "schemata", "MB:0=100\n");
    assert_int_equal(sy_cache_ways_open(root, &ways), SY_EUNSUPPORTED);
    put(root, "schemata", "L3:0=7fff;x\n");
    assert_int_equal(sy_cache_ways_open(root, &ways), SY_EPROTO);
    snprintf(path, sizeof path, "%s/info/L3", root);
    static const char *const wrong[] = {"", "0\n", "ways\n", "f0\n", "7fff0000000000000000\n"};
    for (size_t i = 0; i < SY_ARRAY_LEN(wrong); i++) {
        put(path, "cbm_mask", wrong[i]);
        assert_int_equal(sy_cache_ways_open(root, &ways), SY_EPROTO);
    }
    unmount_fake();
    mount_fake("7fff\n", "2\n", "16\n");
    snprintf(path, sizeof path, "rm -r %s/info/L3", root);
    assert_int_equal(system(path), 0);
    assert_int_equal(sy_cache_ways_open(root, &ways), SY_EUNSUPPORTED);
    unmount_fake();
}

static int pid_that_ended(void)
{
    int pid = fork();
    if (pid == 0)
        _exit(0);
    assert_true(pid > 0 && waitpid(pid, NULL, 0) == pid);
    return pid;
}

static void test_groups_of_processes_that_are_gone_go_too(void **state)
{
    struct sy_cache_ways ways;
    char theirs[200], living[200], other[200];
    int gone = pid_that_ended();
    (void)state;
    mount_fake("fffff\n", "1\n", "16\n");
    snprintf(theirs, sizeof theirs, "%s/switchyard-%d-0", root, gone);
    snprintf(living, sizeof living, "%s/switchyard-%d-3", root, (int)getppid());
    snprintf(other, sizeof other, "%s/switchyard-%d-0-mine", root, gone);
    assert_int_equal(mkdir(theirs, 0755), 0);
    assert_int_equal(mkdir(living, 0755), 0);
    assert_int_equal(mkdir(other, 0755), 0);
    assert_int_equal(sy_cache_ways_read(root, &ways), SY_OK);
    assert_int_equal(access(theirs, F_OK), 0);
    assert_int_equal(sy_cache_ways_open(root, &ways), SY_OK);
    assert_int_equal(access(theirs, F_OK), -1);
    assert_int_equal(access(living, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    unmount_fake();
}

/* Of an earlier process of this number: by opening, and by clearing whatever groups are there. */
static void test_groups_of_ones_own_number_go(void **state)
{
    struct sy_cache_ways ways;
    char groups[2][200];
    (void)state;
    mount_fake("fffff\n", "1\n", "16\n");
    for (int i = 0; i < 2; i++) {
        snprintf(groups[i], sizeof groups[i], "%s/switchyard-%d-%d", root, (int)getpid(), i);
        assert_int_equal(mkdir(groups[i], 0755), 0);
    }
    assert_int_equal(sy_cache_ways_open(root, &ways), SY_OK);
    assert_int_equal(access(groups[0], F_OK), -1);
    assert_int_equal(access(groups[1], F_OK), -1);
    assert_int_equal(mkdir(groups[1], 0755), 0);
    sy_cache_ways_clear(&ways);
    assert_int_equal(access(groups[1], F_OK), -1);
    unmount_fake();
}

/* ---- slices ---------------------------------------------------------------------------------------------------- */

static void set(struct core_rig *r, const char *text)
{
    json_t *params = json_loads(text, 0, NULL);
    assert_non_null(params);
    assert_int_equal(sy_core_slices_set(r->core, params), SY_OK);
    json_decref(params);
}

static void open_four(struct core_rig *r)
{
    core_rig_open(r, "host", 2);
    r->core->n_cores = 4;
    for (uint64_t i = 0; i < 4; i++)
        r->core->cores[i] = i;
    sy_core_units_start(r->core);
    sy_core_slices_start(r->core);
    sy_core_cache_start(r->core, root);
}

#define TWO "{\"slices\": [{\"name\": \"x\", \"cores\": 1}, {\"name\": \"y\", \"cores\": 3}]}"

static void assert_told(const struct core_rig *r, bool divided, int x, const char *why_not)
{
    json_t *cache = sy_core_cache_json(r->core), *slices = sy_core_slices_json(r->core);
    assert_int_equal(json_is_true(json_object_get(cache, "divided")), divided);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(slices, 0), "cache_ways")),
                     x);
    const char *is = json_string_value(json_object_get(cache, "why_not"));
    assert_int_equal(is != NULL, why_not != NULL);
    if (why_not)
        assert_non_null(strstr(is, why_not));
    json_decref(cache);
    json_decref(slices);
}

static void test_slices_have_ways(void **state)
{
    struct core_rig r;
    int own = (int)getpid();
    (void)state;
    mount_fake("fffff\n", "1\n", "16\n");
    open_four(&r);
    assert_told(&r, false, 0, NULL);
    set(&r, TWO);
    assert_told(&r, true, 6, NULL); /* one, and a quarter of 18 */
    assert_string_equal(said(own, 0, "schemata"), "L3:0=3f;2=3f\n");
    assert_string_equal(said(own, 0, "cpus_list"), "0");
    assert_string_equal(said(own, 1, "schemata"), "L3:0=fffc0;2=fffc0\n");
    assert_string_equal(said(own, 1, "cpus_list"), "1-3");
    set(&r, "{\"slices\": [{\"name\": \"x\", \"cores\": 2}, {\"name\": \"y\", \"cores\": 2}]}");
    assert_string_equal(said(own, 0, "schemata"), "L3:0=3ff;2=3ff\n");
    set(&r, "{\"bound\": 2}");
    assert_told(&r, true, 10, NULL);
    set(&r, "{\"slices\": []}");
    assert_told(&r, false, 0, NULL);
    assert_string_equal(said(own, 0, "schemata"), "");
    set(&r, TWO);
    core_rig_calm(&r);
    core_rig_close(&r);
    assert_string_equal(said(own, 0, "schemata"), "");
    assert_string_equal(said(own, 1, "schemata"), "");
    unmount_fake();
}

/* Slices of cores are there all the same, and say why they share the cache. */
static void test_slices_without_ways(void **state)
{
    static const struct {
        const char *mask, *groups, *why;
        bool refuses;
    } cases[] = {{"1\n", "16\n", "1 cache ways", false},
                 {"fffff\n", "2\n", "1 groups", false},
                 {"fffff\n", "16\n", "No space left", true}};
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        struct core_rig r;
        mount_fake(cases[i].mask, "1\n", cases[i].groups);
        refuses = cases[i].refuses;
        open_four(&r);
        set(&r, TWO);
        assert_int_equal(r.core->n_slices, 2);
        assert_told(&r, false, 0, cases[i].why);
        assert_string_equal(said((int)getpid(), 0, "schemata"), "");
        core_rig_calm(&r);
        core_rig_close(&r);
        unmount_fake();
    }
    struct core_rig r;
    snprintf(root, sizeof root, "/tmp/resctrl-none");
    open_four(&r);
    set(&r, TWO);
    assert_told(&r, false, 0, "not mounted");
    core_rig_calm(&r);
    core_rig_close(&r);
    *root = '\0';
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways_are_divided_by_cores),
        cmocka_unit_test(test_what_the_kernel_offers),
        cmocka_unit_test(test_groups_of_processes_that_are_gone_go_too),
        cmocka_unit_test(test_groups_of_ones_own_number_go),
        cmocka_unit_test(test_slices_have_ways),
        cmocka_unit_test(test_slices_without_ways),
    };
    if (fake_is_worker(argc, argv))
        return fake_worker_main(argv);
    seed = seed_of_run(1);
    sy_log_init("test_slice_cache");
    sy_log_threshold = SY_LOG_ERROR;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

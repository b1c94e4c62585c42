/* What the doctor makes of measured values: a table of one changed fact each against a sound machine, and rules that hold for all values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/doctor/findings.h"
#include "tests/rigs/seed.h"

#define MIB 1048576.0
#define GIB (1024 * MIB)

/* A server as one would order it. */
static struct sy_doctor_facts sound(void)
{
    struct sy_doctor_facts f;
    sy_doctor_facts_init(&f);
    f.cores_online = f.cores_usable = 8;
    f.cores_quota = f.memory_limit_bytes = INFINITY;
    f.numa_nodes = 1;
    f.memory_bytes = 64 * GIB;
    f.memory_available_bytes = 60 * GIB;
    f.memory_read_gbps = 80;
    f.memory_copy_gbps = 40;
    f.memlock_bytes = 8 * MIB;
    f.huge_asked_blocks = f.huge_made_blocks = 64;
    f.huge_gain_percent = 20;
    f.hugetlb_free_bytes = 0;
    f.shm_bytes = f.shm_free_bytes = 32 * GIB;
    f.files_limit = 65536;
    f.files_most = INFINITY;
    f.processes_limit = 4096;
    f.workers_wanted = f.workers_started = 4;
    f.worker_start_ms = 9;
    f.pool_wanted_bytes = 8 * GIB;
    f.device_unified = 1;
    f.device_emulated = 0;
    f.device_memory_bytes = 64 * GIB;
    f.link_gbps = 20;
    f.link_alpha_us = f.link_sigma_us = f.link_lost_ns_per_byte = 0;
    f.storage_gbps = 2;
    f.storage_read_bytes = 240e6;
    f.storage_scratch = 1;
    f.disk_free_bytes = 500e9;
    strcpy(f.kernel, "6.18.0");
    strcpy(f.cpu_model, "A CPU");
    strcpy(f.cpu_features, "AVX2, AVX-512, BF16");
    strcpy(f.thp_mode, "madvise");
    strcpy(f.thp_shmem_mode, "never");
    strcpy(f.device, "host");
    strcpy(f.device_name, "host");
    strcpy(f.cuda_why, "no driver");
    strcpy(f.folder, "/models");
    return f;
}

static const struct sy_finding *find(const struct sy_findings *findings, const char *id)
{
    for (int i = 0; i < findings->n; i++)
        if (strcmp(findings->list[i].id, id) == 0)
            return &findings->list[i];
    return NULL;
}

static void a_sound_machine_has_nothing_to_change(void **state)
{
    (void)state;
    struct sy_doctor_facts facts = sound();
    struct sy_findings findings;
    sy_findings_make(&facts, &findings);
    assert_true(sy_findings_are_ok(&findings));
    for (int i = 0; i < findings.n; i++)
        if (findings.list[i].level != SY_FINDING_OK)
            fail_msg("%s: %s", findings.list[i].id, findings.list[i].value);
    assert_int_equal(sy_findings_count(&findings, SY_FINDING_OK), findings.n);
    assert_non_null(strstr(find(&findings, "swap_240mb")->value, "120 ms"));
}

static void nothing_known_is_nothing_to_change(void **state)
{
    (void)state;
    struct sy_doctor_facts facts;
    struct sy_findings findings;
    sy_doctor_facts_init(&facts);
    sy_findings_make(&facts, &findings);
    assert_int_equal(sy_findings_count(&findings, SY_FINDING_OK), findings.n);
}

#define TEXT(field)          offsetof(struct sy_doctor_facts, field), NAN
#define NUMBER(field, value) offsetof(struct sy_doctor_facts, field), value, NULL

/* One fact changed: which finding, its level, and a part of its value or advice. */
static const struct {
    size_t field;
    double number;
    const char *text; /* NULL: the number */
    const char *id;
    enum sy_finding_level level;
    const char *says;
} cases[] = {
    {TEXT(device_why), "it is on fire", "device", SY_FINDING_FAIL, "host: it is on fire"},
    {TEXT(pool_why), "Cannot allocate memory", "pool", SY_FINDING_FAIL, "--pool-bytes"},
    {NUMBER(workers_started, 2), "workers", SY_FINDING_FAIL, "2 of 4"},
    {NUMBER(workers_started, 3), "workers", SY_FINDING_FAIL, "now 4096"},
    {NUMBER(memory_available_bytes, 511 * MIB), "memory", SY_FINDING_FAIL, "512 MiB"},
    {NUMBER(memory_available_bytes, 512 * MIB), "memory", SY_FINDING_WARN, "--pool-bytes 64Mi"},
    {NUMBER(memory_available_bytes, 1512 * MIB), "memory", SY_FINDING_WARN, "--pool-bytes 800Mi"},
    {NUMBER(memory_available_bytes, 8704 * MIB), "memory", SY_FINDING_OK, "8.5 GiB available"},
    {NUMBER(memory_limit_bytes, 400 * MIB), "memory", SY_FINDING_FAIL, "cgroup limit 400 MiB"},
    {NUMBER(memory_limit_bytes, 4 * GIB), "memory", SY_FINDING_WARN, "cgroup limit 4.0 GiB"},
    {NUMBER(files_most, 63), "open_files", SY_FINDING_FAIL, "ulimit -Hn"},
    {NUMBER(files_most, 64), "open_files", SY_FINDING_WARN, "LimitNOFILE"},
    {NUMBER(files_most, 1100), "open_files", SY_FINDING_OK, "1100"},
    {NUMBER(files_most, NAN), "open_files", SY_FINDING_OK, "65536"},
    {NUMBER(resctrl, 0), "slices", SY_FINDING_OK, "this kernel has no resctrl"},
    {NUMBER(resctrl, 1), "slices", SY_FINDING_OK, "mount -t resctrl"},
    {NUMBER(cache_ways, 15), "slices", SY_FINDING_OK, "parts of the 15 ways"},
    {NUMBER(storage_gbps, 0.15), "storage", SY_FINDING_WARN, "10 times as fast"},
    {TEXT(storage_why), "read-only", "storage", SY_FINDING_WARN, "--models DIR"},
    {TEXT(direct_why), "Invalid argument", "o_direct", SY_FINDING_WARN, "ext4"},
    {TEXT(uring_why), "Operation not permitted", "io_uring", SY_FINDING_WARN, "at 2.00 GB/s"},
    {TEXT(link_why), "exit status 3", "link", SY_FINDING_WARN, "bench-link --device host"},
    {NUMBER(huge_made_blocks, 3), "huge_pages", SY_FINDING_WARN, "now never"},
    {NUMBER(huge_made_blocks, 60), "huge_pages", SY_FINDING_OK, "60 of 64"},
    {TEXT(thp_mode), "never", "thp", SY_FINDING_WARN, "+20 % measured"},
    {TEXT(pin_why), "EPERM", "memlock", SY_FINDING_WARN, "now 8.0 MiB"},
    {NUMBER(memlock_bytes, INFINITY), "memlock", SY_FINDING_OK, "limit unlimited"},
    {NUMBER(shm_free_bytes, 10 * MIB), "dev_shm", SY_FINDING_WARN, "--shm-size"},
    {NUMBER(cores_quota, 2.5), "cores", SY_FINDING_WARN, "--threads 2"},
    {NUMBER(cores_quota, 0.5), "cores", SY_FINDING_WARN, "--threads 1"},
    {TEXT(cpu_features), "AVX-VNNI", "features", SY_FINDING_WARN, "-cpu host"},
    {TEXT(cpu_features), "NEON, BF16", "features", SY_FINDING_OK, "bf16"},
    {NUMBER(disk_free_bytes, 5e8), "disk", SY_FINDING_WARN, "free 1 GB"},
    {TEXT(ports_busy), "8001 (Address already in use)", "ports", SY_FINDING_WARN, "--grpc"},
};

static void one_changed_fact_changes_its_finding(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sy_doctor_facts facts = sound();
        struct sy_findings findings;
        if (cases[i].text)
            strcpy((char *)&facts + cases[i].field, cases[i].text);
        else
            *(double *)(void *)((char *)&facts + cases[i].field) = cases[i].number;
        sy_findings_make(&facts, &findings);
        const struct sy_finding *finding = find(&findings, cases[i].id);
        if (!finding || finding->level != cases[i].level ||
            (!strstr(finding->value, cases[i].says) && !strstr(finding->advice, cases[i].says)))
            fail_msg("case %zu, %s: level %d, \"%s\", do: \"%s\"; \"%s\" was expected", i,
                     cases[i].id, finding ? (int)finding->level : -1, finding ? finding->value : "",
                     finding ? finding->advice : "", cases[i].says);
        assert_int_equal(sy_findings_are_ok(&findings), cases[i].level != SY_FINDING_FAIL);
    }
}

/* With several nodes, on a discrete device, behind an emulated link. */
static void devices_and_nodes_have_their_words(void **state)
{
    (void)state;
    struct sy_doctor_facts facts = sound();
    struct sy_findings findings;
    facts.numa_nodes = 2;
    facts.numa_far_percent = 60;
    facts.device_unified = 0;
    facts.device_emulated = 1;
    facts.link_gbps = 12;
    facts.cores_usable = 1;
    facts.storage_gbps = 3;
    sy_findings_make(&facts, &findings);
    assert_int_equal(find(&findings, "numa")->level, SY_FINDING_WARN);
    assert_non_null(strstr(find(&findings, "numa")->value, "60 %"));
    assert_int_equal(find(&findings, "cores")->level, SY_FINDING_WARN);
    assert_non_null(strstr(find(&findings, "link")->value, "12.00 GB/s"));
    assert_non_null(strstr(find(&findings, "link")->value, "(emulated)"));
    const char *swap = find(&findings, "swap_240mb")->value;
    assert_non_null(strstr(swap, "image 80 ms"));
    assert_non_null(strstr(swap, "pool 20 ms"));
    assert_non_null(strstr(swap, "waits for storage"));
    assert_null(find(&findings, "gpu_slices")); /* of cores */
    facts.slice_parts = 15;
    facts.slice_units = 8;
    facts.slices_beside = 0;
    sy_findings_make(&facts, &findings);
    assert_non_null(strstr(find(&findings, "gpu_slices")->value, "15 parts, 8 multi"));
    assert_non_null(strstr(find(&findings, "gpu_slices")->value, "start MPS"));
    facts.slices_beside = 1;
    sy_findings_make(&facts, &findings);
    assert_null(strstr(find(&findings, "gpu_slices")->value, "start MPS"));
}

/* ---- whatever the values are ----------------------------------------------------------------------------- */

static uint64_t seed;

static double any_number(void)
{
    static const double some[] = {0, 1, 2, -1, 63, 64, 1e3, 1e9, 1e12, 1e300};
    switch (seed_below(&seed, 4)) {
    case 0:
        return NAN;
    case 1:
        return INFINITY;
    default:
        return some[seed_below(&seed, sizeof some / sizeof *some)];
    }
}

static void any_text(char *out)
{
    size_t n = seed_below(&seed, 3) == 0 ? SY_DOCTOR_TEXT_BYTES - 1 : seed_below(&seed, 3);
    memset(out, 'x', n);
    out[n] = '\0';
}

static void rules_hold_for_all_values(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct sy_doctor_facts facts;
        struct sy_findings findings, again;
        sy_doctor_facts_init(&facts);
#define X(name, what) facts.name = any_number();
        SY_DOCTOR_NUMBERS(X)
#undef X
#define X(name, what) any_text(facts.name);
        SY_DOCTOR_TEXTS(X)
#undef X
        sy_findings_make(&facts, &findings);
        sy_findings_make(&facts, &again);
        assert_int_equal(findings.n, again.n);
        for (int i = 0; i < findings.n; i++) {
            const struct sy_finding *finding = &findings.list[i];
            assert_true(find(&findings, finding->id) == finding); /* once */
            assert_int_equal(finding->level == SY_FINDING_OK, finding->advice[0] == '\0');
            assert_true(finding->value[0] != '\0');
            assert_string_equal(finding->value, again.list[i].value);
            assert_true(i == 0 || finding->group >= findings.list[i - 1].group);
        }
    }
}

static void facts_become_json_with_every_key(void **state)
{
    (void)state;
    struct sy_doctor_facts facts = sound();
    json_t *object = sy_doctor_facts_json(&facts);
    assert_true(json_is_null(json_object_get(object, "pin_bytes")));
    assert_int_equal(json_integer_value(json_object_get(object, "files_most")), -1);
    assert_true(json_real_value(json_object_get(object, "storage_gbps")) == 2);
    assert_string_equal(json_string_value(json_object_get(object, "kernel")), "6.18.0");
#define X(name, what) assert_non_null(json_object_get(object, #name));
    SY_DOCTOR_NUMBERS(X)
    SY_DOCTOR_TEXTS(X)
#undef X
    json_decref(object);
}

static void sizes_have_their_units(void **state)
{
    (void)state;
    static const struct {
        double bytes;
        const char *text;
    } sizes[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {8 * MIB, "8.0 MiB"},
                 {INFINITY, "unlimited"},
                 {NAN, "unknown"},
                 {500 * GIB, "500 GiB"}};
    char out[SY_SIZE_TEXT_BYTES];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_string_equal(sy_finding_bytes(sizes[i].bytes, out), sizes[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_machine_has_nothing_to_change),
        cmocka_unit_test(nothing_known_is_nothing_to_change),
        cmocka_unit_test(one_changed_fact_changes_its_finding),
        cmocka_unit_test(devices_and_nodes_have_their_words),
        cmocka_unit_test(rules_hold_for_all_values),
        cmocka_unit_test(facts_become_json_with_every_key),
        cmocka_unit_test(sizes_have_their_units),
    };
    seed = seed_of_run(7);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

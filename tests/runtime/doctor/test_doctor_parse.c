/* The kernel's text files, as real machines write them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/doctor/doctor_parse.h"
#include "tests/rigs/seed.h"

static void meminfo_has_bytes_and_counts(void **state)
{
    (void)state;
    const char *text =
        "MemTotal:       24650000 kB\nMemAvailable:    1024 kB\nHugePages_Free:  7\n";
    assert_true(sy_parse_meminfo(text, "MemTotal") == 24650000.0 * 1024);
    assert_true(sy_parse_meminfo(text, "MemAvailable") == 1024.0 * 1024);
    assert_true(sy_parse_meminfo(text, "HugePages_Free") == 7);
    assert_true(isnan(sy_parse_meminfo(text, "Mem")));
    assert_true(isnan(sy_parse_meminfo("", "MemTotal")));
    assert_true(isnan(sy_parse_meminfo("MemTotal:\n", "MemTotal")));
}

static void the_chosen_mode_is_in_brackets(void **state)
{
    (void)state;
    char out[16];
    sy_parse_chosen("always [madvise] never\n", out, sizeof out);
    assert_string_equal(out, "madvise");
    sy_parse_chosen("[always] madvise never\n", out, 4);
    assert_string_equal(out, "alw");
    sy_parse_chosen("always\n", out, sizeof out);
    assert_string_equal(out, "");
    sy_parse_chosen("] [x", out, sizeof out);
    assert_string_equal(out, "");
}

static void cpu_features_are_whole_words(void **state)
{
    (void)state;
    char out[128];
    const char *x86 = "processor\t: 0\nmodel name\t: A CPU @ 2.0GHz\n"
                      "flags\t\t: fpu avx2 avx512f avx512_vnni avx512_bf16 amx_tile\n";
    sy_parse_cpuinfo(x86, "model name", out, sizeof out);
    assert_string_equal(out, "A CPU @ 2.0GHz");
    sy_parse_cpu_features(x86, out, sizeof out);
    assert_string_equal(out, "AVX2, AVX-512, AVX-512 VNNI, BF16, AMX");
    sy_parse_cpu_features("flags : avx22 xavx2 amx_tiles\n", out, sizeof out);
    assert_string_equal(out, "");
    sy_parse_cpu_features("Features\t: fp asimd bf16 i8mm\n", out, sizeof out);
    assert_string_equal(out, "NEON, BF16, I8MM");
    sy_parse_cpu_features(x86, out, 7);
    assert_string_equal(out, "AVX2, ");
}

static void cgroup_limits_have_a_word_for_none(void **state)
{
    (void)state;
    assert_true(sy_parse_cpu_max("150000 100000\n") == 1.5);
    assert_true(isinf(sy_parse_cpu_max("max 100000\n")));
    assert_true(isnan(sy_parse_cpu_max("")));
    assert_true(isnan(sy_parse_cpu_max("5\n")));
    assert_true(isnan(sy_parse_cpu_max("5 0\n")));
    assert_true(sy_parse_memory_max("1048576\n") == 1048576);
    assert_true(isinf(sy_parse_memory_max("max\n")));
    assert_true(isinf(sy_parse_memory_max("9223372036854771712\n")));
    assert_true(isnan(sy_parse_memory_max("\n")));
    assert_true(sy_parse_stat("anon 5\nactive_file 12\n", "active_file") == 12);
    assert_true(isnan(sy_parse_stat("inactive_file 12\n", "active_file")));
}

static void cgroup_paths_of_both_versions(void **state)
{
    (void)state;
    char out[64];
    const char *text = "12:memory:/docker/abc\n4:cpu,cpuacct:/cpu/x\n1:name=systemd:/y\n0::/z:0\n";
    sy_parse_cgroup_path(text, "memory", out, sizeof out);
    assert_string_equal(out, "/docker/abc");
    sy_parse_cgroup_path(text, "cpu", out, sizeof out);
    assert_string_equal(out, "/cpu/x");
    sy_parse_cgroup_path(text, "cpuacct", out, sizeof out);
    assert_string_equal(out, "/cpu/x");
    sy_parse_cgroup_path(text, "", out, sizeof out);
    assert_string_equal(out, "/z:0");
    sy_parse_cgroup_path(text, "pids", out, sizeof out);
    assert_string_equal(out, "");
    sy_parse_cgroup_path("nonsense\n::\n", "cpu", out, sizeof out);
    assert_string_equal(out, "");
}

/* Whatever is read, nothing outside of it is, and the result ends. */
static void any_bytes_are_survived(void **state)
{
    (void)state;
    static const char letters[] = "MemTotal: kB[]flags\n\t:,/0123456789max activ_ ";
    uint64_t seed = seed_of_run(7);
    for (int round = 0; round < 20000; round++) {
        size_t n = seed_below(&seed, 60), size = 1 + seed_below(&seed, 20);
        char *text = malloc(n + 1), *out = malloc(size);
        for (size_t i = 0; i < n; i++)
            text[i] = letters[seed_below(&seed, sizeof letters - 1)];
        text[n] = '\0';
        (void)sy_parse_meminfo(text, "MemTotal");
        (void)sy_parse_cpu_max(text);
        (void)sy_parse_memory_max(text);
        (void)sy_parse_stat(text, "activ");
        sy_parse_chosen(text, out, size);
        assert_true(strnlen(out, size) < size);
        sy_parse_cpuinfo(text, "flags", out, size);
        assert_true(strnlen(out, size) < size);
        sy_parse_cpu_features(text, out, size);
        assert_true(strnlen(out, size) < size);
        sy_parse_cgroup_path(text, round % 2 ? "max" : "", out, size);
        assert_true(strnlen(out, size) < size);
        free(text);
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meminfo_has_bytes_and_counts),
        cmocka_unit_test(the_chosen_mode_is_in_brackets),
        cmocka_unit_test(cpu_features_are_whole_words),
        cmocka_unit_test(cgroup_limits_have_a_word_for_none),
        cmocka_unit_test(cgroup_paths_of_both_versions),
        cmocka_unit_test(any_bytes_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Drives a fuzz target by clang's libFuzzer, for `make fuzz`:
 *
 *   fuzz_NAME --write-seeds FOLDER     the target's seeds as files
 *   fuzz_NAME ...                      libFuzzer's options; -help=1 lists them
 *
 * clang counts the blocks of all but the engine's kernels. These are gcc's, as in the program; they call a function at each block (trace-pc), which
 * counts where libFuzzer looks, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"

#define N_COUNTERS \
    (1u << 16) /* some 40 000 blocks of kernels: those that share one cost an input, no error */
#define NOT_TRACED __attribute__((visibility("default"), no_sanitize("coverage", "address")))

/* Bounds, before those of the caller: the last one holds. */
static char most_bytes[] = "-max_len=65536", most_seconds[] = "-timeout=20",
            most_memory[] = "-rss_limit_mb=2048", most_a_piece[] = "-malloc_limit_mb=512";

__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t counters[N_COUNTERS];

extern const char
    __executable_start[]; /* the linker's: addresses differ from run to run, distances do not */

int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*one)(const uint8_t *data, size_t size));
void __wrap___sanitizer_cov_trace_pc(void);
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

/* In front of libFuzzer's, which says that it is no longer supported (by the linker: tests.mk). */
NOT_TRACED void __wrap___sanitizer_cov_trace_pc(void)
{
    uintptr_t at = (uintptr_t)__builtin_return_address(0) - (uintptr_t)__executable_start;
    counters[(at ^ at >> 16) % N_COUNTERS]++;
}

NOT_TRACED const char *__asan_default_options(void)
{
    return "detect_leaks=1:strict_string_checks=1";
}

NOT_TRACED const char *__ubsan_default_options(void)
{
    return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}

static int run_one(const uint8_t *data, size_t size)
{
    sy_error_set(SY_OK, "%s", "");
    return LLVMFuzzerTestOneInput(data, size);
}

int main(int argc, char **argv)
{
    char *bounds[] = {most_bytes, most_seconds, most_memory, most_a_piece};
    int n = 0;

    sy_log_threshold = SY_LOG_ERROR;
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    if (argc == 3 && strcmp(argv[1], "--write-seeds") == 0)
        return fuzz_write_seeds(argv[2]);
    char **all = calloc((size_t)argc + 5, sizeof *all);
    if (!all)
        return 2;
    all[n++] = argv[0];
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        all[n++] = bounds[i];
    for (int i = 1; i < argc; i++)
        all[n++] = argv[i];
    int status = LLVMFuzzerRunDriver(&n, &all, run_one);
    free(all);
    return status;
}

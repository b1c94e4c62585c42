/* What a fuzz target has: libFuzzer's entry point, and seeds that it makes itself.
 *
 * fuzz_main.c drives it in the tests, clang's libFuzzer behind fuzz_guided.c under `make fuzz` (tests/fuzz/README.md). A target
 * aborts (FUZZ_CHECK) where an invariant does not hold; sanitizers find the rest. */
#ifndef SY_TESTS_FUZZ_H
#define SY_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_MAX_BYTES 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Optional. libFuzzer's name: a target whose code starts this program again looks here what it is to be. */
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
/* Writes the i-th seed (from 0) and returns its length, at most `room`; 0: there are no more. Called in order, before any input. */
size_t fuzz_seed(int i, uint8_t *to, size_t room);

/* Aborts, saying what and where, after the last error text. */
#define FUZZ_CHECK(condition) \
    ((condition) ? (void)0 : fuzz_check_failed(#condition, __FILE__, __LINE__))
void fuzz_check_failed(const char *condition, const char *file, int line) __attribute__((noreturn));

/* The bytes as a file for code that opens one by its name: in memory, the same name each time, valid until the next call. */
const char *fuzz_file(const void *bytes, size_t n);

/* A folder in memory, empty again at each call; removed at exit. */
const char *fuzz_folder(void);

/* Copies a seed; 0 when it does not fit. */
size_t fuzz_give(const void *bytes, size_t n, uint8_t *to, size_t room);

/* The seeds as files seed-0, seed-1, ... in a folder that exists; 0, or 1 after saying what failed. */
int fuzz_write_seeds(const char *folder);

#endif

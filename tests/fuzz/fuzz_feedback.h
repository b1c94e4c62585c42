/* What the driver learns from a run: whether it went somewhere new, and what the code compared with.
 *
 * Built by `make fuzz`, the library reports each block that it enters (gcc's -fsanitize-coverage=trace-pc), and "new" is a pair of
 * blocks in a row, or an order of magnitude of times, that no run had. Without that, error texts stand in: a refusal with new words
 * (numbers and quotations do not count). Words come from the address sanitizer's hooks in strcmp, strncmp and memcmp.
 *
 * One thread: the driver's. The same inputs give the same answers. */
#ifndef SY_TESTS_FUZZ_FEEDBACK_H
#define SY_TESTS_FUZZ_FEEDBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_MAX_WORD 32

#ifdef __clang__
#define FUZZ_NOT_TRACED __attribute__((no_sanitize("coverage")))
#else
#define FUZZ_NOT_TRACED __attribute__((no_sanitize_coverage))
#endif

void fuzz_feedback_begin(void); /* before a run */
bool fuzz_feedback_end(void);   /* after it: it was new */
/* How many different things were seen; *what says which. */
int fuzz_feedback_seen(const char **what);
/* One of the words that were compared, by `random`: its length, 0 if there is none there. Valid until the next run. */
size_t fuzz_feedback_word(uint64_t random, const uint8_t **out);

#endif

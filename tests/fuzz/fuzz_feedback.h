/* What the driver learns from a run: whether it went somewhere new, and what the code compared with.
 *
 * "New" is a refusal with new words (numbers and quotations do not count). Words come from the address sanitizer's hooks in strcmp,
 * strncmp and memcmp.
 *
 * One thread: the driver's. The same inputs give the same answers. */
#ifndef SY_TESTS_FUZZ_FEEDBACK_H
#define SY_TESTS_FUZZ_FEEDBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_MAX_WORD 32

void fuzz_feedback_begin(void); /* before a run */
bool fuzz_feedback_end(void);   /* after it: it was new */
int fuzz_feedback_seen(void);   /* how many different refusals */
/* One of the words that were compared, by `random`: its length, 0 if there is none there. Valid until the next run. */
size_t fuzz_feedback_word(uint64_t random, const uint8_t **out);

#endif

/* Regular expressions, by PCRE2: Perl's, which those of RE2 that people write are, too; over UTF-8. Bounded: all matches of a run
 * together have SY_STRINGS_STEPS steps (strings.h), more is an error of the run. */
#ifndef SY_WORKERS_HOST_BASE_TEXT_PATTERN_H
#define SY_WORKERS_HOST_BASE_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

struct sy_pattern;

/* whole: the pattern must match the entire text. EUNSUPPORTED says where the pattern is invalid. */
int sy_pattern_create(const char *pattern, bool whole, struct sy_pattern **out);
/* NULL is fine. It is kept for this thread's next sy_pattern_create of the same pattern, 16 at most. */
void sy_pattern_destroy(struct sy_pattern *pattern);
/* Searches from byte `from` on; the match is [*start, *end). EARG: the text is not UTF-8, or matching takes too long. */
int sy_pattern_find(struct sy_pattern *pattern, const char *text, size_t bytes, size_t from,
                    bool *found, size_t *start, size_t *end);

#endif

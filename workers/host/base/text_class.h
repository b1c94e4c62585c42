/* Patterns of one class of characters, most that tokenizers have: "[a-z]+", "\w{2,}", "\b\w\w+\b", "\s+", ",". They are found by a table of
 * bytes, in time linear in the text, with the matches that PCRE2 has for the same pattern over UTF-8. */
#ifndef SY_WORKERS_HOST_BASE_TEXT_CLASS_H
#define SY_WORKERS_HOST_BASE_TEXT_CLASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sy_text_class {
    bool has[256];       /* by a character's first byte; those above 127 are treated alike */
    int64_t least, most; /* limits on the characters of a match; least > 0 */
    /* \b in front; \b behind. With either, the class has word characters only */
    bool word_starts, word_ends;
};

/* False: the pattern is not of this form. */
bool sy_text_class_parse(const char *pattern, struct sy_text_class *out);
/* The first match from byte `from` on, which begins a character; the text is UTF-8. */
bool sy_text_class_find(const struct sy_text_class *c, const char *text, size_t bytes, size_t from,
                        size_t *start, size_t *end);
/* Whether all of the text is one match. */
bool sy_text_class_is_all(const struct sy_text_class *c, const char *text, size_t bytes);
/* As in RFC 3629: no surrogates, no overlong forms. */
bool sy_text_is_utf8(const char *text, size_t bytes);

#endif

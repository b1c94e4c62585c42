/* A text that grows: answers are built in one. Out of memory is remembered, and said at the end. */
#ifndef SY_BASE_TEXT_BUILDER_H
#define SY_BASE_TEXT_BUILDER_H

#include <stdbool.h>
#include <stddef.h>

struct sy_text {
    char *at; /* malloc'd; not zero-terminated */
    size_t used, size;
    bool failed;
};

/* Room for n bytes at the end; NULL: no memory (failed is set). */
char *sy_text_reserve(struct sy_text *text, size_t n);
void sy_text_add(struct sy_text *text, const char *bytes, size_t n);
void sy_text_add_string(struct sy_text *text, const char *string);
void sy_text_add_int(struct sy_text *text, long long value);
/* As a JSON string with its quotes; what is no UTF-8 becomes '?'. */
void sy_text_add_json_string(struct sy_text *text, const char *string);
void sy_text_finish(struct sy_text *text); /* frees; zeroed is fine */

#endif

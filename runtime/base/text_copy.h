#ifndef SY_BASE_TEXT_COPY_H
#define SY_BASE_TEXT_COPY_H

#include <stddef.h>

/*
 * A copy of `bytes` bytes at `text`, ended by a NUL. For text out of messages and files: unlike strndup's argument it
 * needs no NUL, and is not searched for one. `text` may be NULL if `bytes` is 0.
 * Returns NULL if there is no memory; the copy is the caller's to free. Any thread.
 */
char *sy_text_copy(const void *text, size_t bytes);

#endif

/* The values of serve's options: each sets *out from the text, or says what is wrong with it (EARG). */
#ifndef SY_CLI_SERVE_VALUES_H
#define SY_CLI_SERVE_VALUES_H

#include <stdint.h>

#include "runtime/base/clock.h"

/* From `least` to `most`. */
int sy_serve_set_count(const char *value, int64_t least, int64_t most, int *out);
/* A size such as 64M; not 0. */
int sy_serve_set_bytes(const char *value, uint64_t *out);
/* Microseconds of polling; 0: none. */
int sy_serve_set_poll(const char *value, int *out);
/* A file's mode in octal, 1 to 777. */
int sy_serve_set_mode(const char *value, unsigned *out);
/* From 0.01 to 1e6 seconds. */
int sy_serve_set_seconds(const char *value, sy_ns *out);
/* The text as it is, which stays the caller's. */
int sy_serve_set_text(const char **to, const char *value);

#endif

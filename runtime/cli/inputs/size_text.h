/* Sizes as a server writes them ("seq+past", "floor((H+1) / (2))": loader/graph/size_expr.h), worked out for given numbers. */
#ifndef SY_CLI_SIZE_TEXT_H
#define SY_CLI_SIZE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* The sizes that are known, N among them. */
struct sy_size_names {
    const char *const *names; /* may contain any characters: the longest that fits is taken */
    const int64_t *values;
    int n;
};

/* False: the text is none, names an unknown size, divides by 0 or overflows. */
bool sy_cli_size_of(const char *text, const struct sy_size_names *names, int64_t *out);

#endif

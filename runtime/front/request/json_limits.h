/* Limits of JSON that becomes a tree of values: a tree takes up to fifty times its text, and freeing it holds the loop. Pure; any thread. */
#ifndef SY_RUNTIME_FRONT_REQUEST_JSON_LIMITS_H
#define SY_RUNTIME_FRONT_REQUEST_JSON_LIMITS_H

#include <jansson.h>
#include <stdint.h>

#define SY_JSON_MOST_VALUES 20000 /* freed within a millisecond */

/* The text as a tree, the caller's. EARG: no JSON (line and column), nested deeper than most_depth, more than SY_JSON_MOST_VALUES values, a name given twice. */
int sy_json_parse_limited(const char *text, uint64_t bytes, int most_depth, json_t **out);

#endif

/* sy_client_call without the text in between: for callers that have jansson, and pieces of a megabyte. */
#ifndef SY_CLIENT_JSON_H
#define SY_CLIENT_JSON_H

#include <jansson.h>

#include "runtime/client/switchyard.h"

/* params borrowed, *out the caller's (NULL on failure). As sy_client_call. */
int sy_client_call_json(sy_client *client, const char *method, const json_t *params, json_t **out);
/* The array's first object whose "name" is this; borrowed; NULL: there is none. */
json_t *sy_json_named(const json_t *array, const char *name);

#endif

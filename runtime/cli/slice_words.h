/* Slices as people write them (`switchyard slices`, `serve --slices`), and as the "slices" call takes them:
 *
 *   train=1 serve=50% rest=w3 odd=@1,3   -->   [{"name": "train", "cores": 1}, {"name": "serve", "share": 0.5}, {"name": "rest", "weight": 3}, ...]
 *
 * How many cores there are, and whether the sizes fit, is the server's to say. */
#ifndef SY_CLI_SLICE_WORDS_H
#define SY_CLI_SLICE_WORDS_H

#include <jansson.h>

/* Appends the slice of one word, NAME=SIZE. EARG (quotes the word), ENOMEM_HOST. */
int sy_cli_slice_add(json_t *list, const char *word);
/* A text of several, with spaces or commas between; a comma within @1,3 belongs to the list of cores. *out is the caller's. EARG: also of a text without any;
 * ENOMEM_HOST. */
int sy_cli_slice_list(const char *text, json_t **out);

#endif

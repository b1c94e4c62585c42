/* Bytes in JSON: standard base64 with its padding (OpenSSL's). */
#ifndef SY_NET_BASE64_H
#define SY_NET_BASE64_H

#include <jansson.h>
#include <stddef.h>

/* A new string; NULL: no memory. n: at most 1 GiB. */
json_t *sy_base64_json(const unsigned char *bytes, size_t n);
/* *out is malloc'd, of *n bytes. EARG: no string, no base64, or not 1 to `most` bytes, with the key in the text; ENOMEM_HOST. */
int sy_base64_take(const json_t *object, const char *key, size_t most, unsigned char **out,
                   size_t *n);

#endif

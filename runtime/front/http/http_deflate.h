/* Compressed answers: what Accept-Encoding asks for, and the work itself. */
#ifndef SY_FRONT_HTTP_DEFLATE_H
#define SY_FRONT_HTTP_DEFLATE_H

#include <stdbool.h>
#include <stdint.h>

struct sy_http_segment;

enum sy_http_coding { SY_HTTP_PLAIN, SY_HTTP_GZIP, SY_HTTP_DEFLATE };

/* Chooses by the value of Accept-Encoding (NULL: none): gzip before deflate at equal weights; q=0 refuses. */
enum sy_http_coding sy_http_accepted_coding(const char *accept_encoding);
const char *sy_http_coding_name(enum sy_http_coding coding);
/* All segments as one compressed block, malloc'd. ENOMEM_HOST. Any thread. */
int sy_http_compress(enum sy_http_coding coding, const struct sy_http_segment *segments, int n,
                     unsigned char **out, uint64_t *out_bytes);

#endif

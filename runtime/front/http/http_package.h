/* GET /v2/models/NAME[/versions/V]/package: the file of a model that is loaded here, for another node's `fetch`.
 *
 *   call ──> range, ETag ──> stream of known length
 *                              block 0: read by a thread ──> sent ──┐
 *                              block 1:      read ──> sent          └──> read again ...      two blocks a download, MOST_SENDING downloads
 *
 * HP1: what is sent is the content that the server computes with: its open file, whatever lies at the path by now; the ETag is the content's hash.
 * HP2: the loop reads no file. The kernel's cache usually has it, since the model was loaded from there; else its disk. */
#ifndef SY_FRONT_HTTP_PACKAGE_H
#define SY_FRONT_HTTP_PACKAGE_H

#include <stdint.h>

#include "runtime/front/http/http_route.h"

/* A sy_http_handler; ctx: struct sy_front. 200, 206, 304; 404; 416 for a range behind the end; 503 while the package itself comes, or too many are sent. */
void sy_http_package_handle(void *front, struct sy_http_call *call);

/* Parses a Range header's value `text` for content of `size` bytes. 1: the range is [*first, *end); 0: send everything (several ranges, or not a byte range);
 * negative: not satisfiable, it begins behind the end. */
int sy_http_range_parse(const char *text, uint64_t size, uint64_t *first, uint64_t *end);

#endif

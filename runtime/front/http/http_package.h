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

/* Of a content of `size` bytes, what `text` (a Range header line's value) asks for: 1 with [*first, *end); 0: all of it, as for several ranges or what is no range in
 * bytes; negative: nothing, it begins behind the end. */
int sy_http_range_parse(const char *text, uint64_t size, uint64_t *first, uint64_t *end);

#endif

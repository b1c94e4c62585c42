/* Compression of messages: gzip, and zlib's format, which HTTP calls deflate. Any thread. */
#ifndef SY_FRONT_GRPC_GZIP_H
#define SY_FRONT_GRPC_GZIP_H

#include "runtime/front/grpc/grpc_block.h"
#include "runtime/front/grpc/grpc_status.h"

/* Appends to *out, which has a budget; at most `most` bytes (ETOOBIG: there are more, so a bomb costs no more than that). Either format.
 * EARG: damaged, or it does not end. EBUSY, ENOMEM_HOST. */
int sy_grpc_inflate(struct sy_grpc_bytes in, uint64_t most, struct sy_grpc_block *out);
/* Appends n pieces, compressed as one, at zlib's fastest level. ENOMEM_HOST. */
int sy_grpc_deflate(const struct sy_grpc_bytes *pieces, int n, enum sy_grpc_encoding encoding,
                    struct sy_grpc_buffer *out);

#endif

/* Segments for one send: small ones are copied, tensors referenced.
 *
 * A connection has one only while it writes, or while its socket takes no more. */
#ifndef SY_FRONT_GRPC_OUT_H
#define SY_FRONT_GRPC_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sy_tls_stream;

/* FE1: there is no room for more: one send over loopback goes on for as long as the client reads. */
#define SY_GRPC_OUT_BYTES (256 << 10)

struct sy_grpc_out;
struct sy_grpc_reply;

struct sy_grpc_out *sy_grpc_out_create(void);      /* NULL: no memory */
void sy_grpc_out_destroy(struct sy_grpc_out *out); /* NULL is fine */
bool sy_grpc_out_is_empty(const struct sy_grpc_out *out);
/* For a frame of n bytes, however it is made up. */
bool sy_grpc_out_has_room(const struct sy_grpc_out *out, size_t n);
void sy_grpc_out_copy(struct sy_grpc_out *out, const void *data, size_t n);
/* n bytes of a reply, which are kept until they are written. ctx: the struct sy_grpc_out. */
void sy_grpc_out_piece(void *ctx, const uint8_t *data, size_t n, struct sy_grpc_reply *reply);
/* Writes what the socket takes; bytes written, 0: it takes nothing now; negative: broken. */
long sy_grpc_out_write(struct sy_grpc_out *out, int fd, struct sy_tls_stream *tls);

#endif

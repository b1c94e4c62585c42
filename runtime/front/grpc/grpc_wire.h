/* Protobuf's wire format: a reader that looks at bytes where they lie, and a writer into a growing buffer.
 *
 * The reader allocates nothing and believes no length that the bytes do not bear out. */
#ifndef SY_FRONT_GRPC_WIRE_H
#define SY_FRONT_GRPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A view of bytes; not owned. */
struct sy_grpc_bytes {
    const uint8_t *data;
    size_t n;
};

enum sy_grpc_wire_type {
    SY_GRPC_VARINT = 0,
    SY_GRPC_FIXED64 = 1,
    SY_GRPC_BYTES = 2,
    SY_GRPC_FIXED32 = 5
};

struct sy_grpc_field {
    uint32_t number;
    enum sy_grpc_wire_type type;
    uint64_t value;             /* of a number: its bits, little endian; of BYTES: their length */
    struct sy_grpc_bytes bytes; /* of BYTES */
};

/* Result of reading one field. */
enum {
    SY_GRPC_FIELD = 1,
    SY_GRPC_END = 0,   /* there are no more */
    SY_GRPC_MORE = -1, /* the bytes end within the field */
    SY_GRPC_BAD = -2   /* no wire format: a group, field number 0, a varint of more than 10 bytes */
};

/* Reads the next field and moves `at` behind it. Where it ends with MORE within the bytes of a BYTES field, *out has the field's
 * number and length and bytes.data its beginning (bytes.n: what is there of it). `at` moves with FIELD only. */
int sy_grpc_wire_next(struct sy_grpc_bytes *at, struct sy_grpc_field *out);
/* A varint at the front of `at`; FIELD, MORE or BAD. */
int sy_grpc_wire_varint(struct sy_grpc_bytes *at, uint64_t *out);

bool sy_grpc_bytes_equal(struct sy_grpc_bytes bytes, const char *text);
/* Copies as a string; false: it does not fit, or holds a zero. */
bool sy_grpc_bytes_copy(struct sy_grpc_bytes bytes, char *to, size_t room);

/* ---- writing ---- */

/* Zeroed at first. Once an allocation has failed, is_broken is set and nothing more is written. */
struct sy_grpc_buffer {
    uint8_t *data; /* malloc'd */
    size_t n, capacity;
    bool is_broken;
};

void sy_grpc_buffer_free(struct sy_grpc_buffer *buffer);
/* Room for `n` more bytes at the end, to be written by the caller; NULL: broken. */
uint8_t *sy_grpc_buffer_extend(struct sy_grpc_buffer *buffer, size_t n);

size_t sy_grpc_varint_bytes(uint64_t value);
void sy_grpc_put_varint(struct sy_grpc_buffer *buffer, uint64_t value);
void sy_grpc_put_tag(struct sy_grpc_buffer *buffer, uint32_t number, enum sy_grpc_wire_type type);
/* A varint field, a BYTES field, and the beginning of a BYTES field of n bytes that follow. */
void sy_grpc_put_number(struct sy_grpc_buffer *buffer, uint32_t number, uint64_t value);
void sy_grpc_put_bytes(struct sy_grpc_buffer *buffer, uint32_t number, const void *data, size_t n);
void sy_grpc_put_text(struct sy_grpc_buffer *buffer, uint32_t number, const char *text);
void sy_grpc_put_length(struct sy_grpc_buffer *buffer, uint32_t number, uint64_t n);
/* A message within: begin returns where it starts, end puts its length in front of it. */
size_t sy_grpc_put_begin(struct sy_grpc_buffer *buffer, uint32_t number);
void sy_grpc_put_end(struct sy_grpc_buffer *buffer, size_t start);

#endif

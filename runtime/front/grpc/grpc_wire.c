#include "runtime/front/grpc/grpc_wire.h"

#include <stdlib.h>
#include <string.h>

#define MAX_VARINT   10
#define FIRST_BUFFER 256

/* ---- reading ------------------------------------------------------------------------------------------------- */

int sy_grpc_wire_varint(struct sy_grpc_bytes *at, uint64_t *out)
{
    uint64_t value = 0;

    for (size_t i = 0; i < MAX_VARINT; i++) {
        if (i == at->n)
            return SY_GRPC_MORE;
        value |= (uint64_t)(at->data[i] & 0x7f) << (7 * i);
        if (at->data[i] < 0x80) {
            at->data += i + 1;
            at->n -= i + 1;
            *out = value;
            return SY_GRPC_FIELD;
        }
    }
    return SY_GRPC_BAD;
}

static int read_fixed(struct sy_grpc_bytes *at, size_t n, uint64_t *out)
{
    if (at->n < n)
        return SY_GRPC_MORE;
    *out = 0;
    memcpy(out, at->data, n);
    at->data += n;
    at->n -= n;
    return SY_GRPC_FIELD;
}

static int read_bytes(struct sy_grpc_bytes *at, struct sy_grpc_field *out)
{
    int got = sy_grpc_wire_varint(at, &out->value);

    if (got != SY_GRPC_FIELD)
        return got;
    out->bytes.data = at->data;
    out->bytes.n = out->value < at->n ? (size_t)out->value : at->n;
    if (out->value > at->n)
        return SY_GRPC_MORE;
    at->data += out->bytes.n;
    at->n -= out->bytes.n;
    return SY_GRPC_FIELD;
}

static int read_value(struct sy_grpc_bytes *at, struct sy_grpc_field *out)
{
    switch (out->type) {
    case SY_GRPC_VARINT:
        return sy_grpc_wire_varint(at, &out->value);
    case SY_GRPC_FIXED64:
        return read_fixed(at, 8, &out->value);
    case SY_GRPC_FIXED32:
        return read_fixed(at, 4, &out->value);
    case SY_GRPC_BYTES:
        return read_bytes(at, out);
    }
    return SY_GRPC_BAD;
}

int sy_grpc_wire_next(struct sy_grpc_bytes *at, struct sy_grpc_field *out)
{
    struct sy_grpc_bytes next = *at;
    uint64_t tag;
    int got;

    *out = (struct sy_grpc_field){0};
    if (at->n == 0)
        return SY_GRPC_END;
    got = sy_grpc_wire_varint(&next, &tag);
    if (got != SY_GRPC_FIELD)
        return got;
    if (tag >> 3 == 0 || tag > UINT32_MAX)
        return SY_GRPC_BAD;
    out->number = (uint32_t)(tag >> 3);
    out->type = (enum sy_grpc_wire_type)(tag & 7);
    got = read_value(&next, out);
    if (got == SY_GRPC_FIELD)
        *at = next;
    return got;
}

bool sy_grpc_bytes_equal(struct sy_grpc_bytes bytes, const char *text)
{
    size_t n = strlen(text);

    return bytes.n == n && (n == 0 || memcmp(bytes.data, text, n) == 0);
}

bool sy_grpc_bytes_copy(struct sy_grpc_bytes bytes, char *to, size_t room)
{
    if (bytes.n >= room || (bytes.n > 0 && memchr(bytes.data, 0, bytes.n)))
        return false;
    if (bytes.n > 0)
        memcpy(to, bytes.data, bytes.n);
    to[bytes.n] = '\0';
    return true;
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

void sy_grpc_buffer_free(struct sy_grpc_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct sy_grpc_buffer){0};
}

static bool grow(struct sy_grpc_buffer *buffer, size_t needs)
{
    size_t capacity = buffer->capacity ? buffer->capacity : FIRST_BUFFER;
    uint8_t *data;

    while (capacity < needs)
        capacity *= 2;
    data = realloc(buffer->data, capacity);
    if (!data) {
        buffer->is_broken = true;
        return false;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

uint8_t *sy_grpc_buffer_extend(struct sy_grpc_buffer *buffer, size_t n)
{
    uint8_t *at;

    if (buffer->is_broken)
        return NULL;
    if (n > buffer->capacity - buffer->n && !grow(buffer, buffer->n + n))
        return NULL;
    at = buffer->data + buffer->n;
    buffer->n += n;
    return at;
}

size_t sy_grpc_varint_bytes(uint64_t value)
{
    size_t n = 1;

    for (; value >= 0x80; value >>= 7)
        n++;
    return n;
}

static void write_varint(uint8_t *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at = (uint8_t)value;
}

void sy_grpc_put_varint(struct sy_grpc_buffer *buffer, uint64_t value)
{
    uint8_t *at = sy_grpc_buffer_extend(buffer, sy_grpc_varint_bytes(value));

    if (at)
        write_varint(at, value);
}

void sy_grpc_put_tag(struct sy_grpc_buffer *buffer, uint32_t number, enum sy_grpc_wire_type type)
{
    sy_grpc_put_varint(buffer, (uint64_t)number << 3 | type);
}

void sy_grpc_put_number(struct sy_grpc_buffer *buffer, uint32_t number, uint64_t value)
{
    sy_grpc_put_tag(buffer, number, SY_GRPC_VARINT);
    sy_grpc_put_varint(buffer, value);
}

void sy_grpc_put_length(struct sy_grpc_buffer *buffer, uint32_t number, uint64_t n)
{
    sy_grpc_put_tag(buffer, number, SY_GRPC_BYTES);
    sy_grpc_put_varint(buffer, n);
}

void sy_grpc_put_bytes(struct sy_grpc_buffer *buffer, uint32_t number, const void *data, size_t n)
{
    uint8_t *at;

    sy_grpc_put_length(buffer, number, n);
    at = sy_grpc_buffer_extend(buffer, n);
    if (at && n > 0)
        memcpy(at, data, n);
}

void sy_grpc_put_text(struct sy_grpc_buffer *buffer, uint32_t number, const char *text)
{
    sy_grpc_put_bytes(buffer, number, text, strlen(text));
}

size_t sy_grpc_put_begin(struct sy_grpc_buffer *buffer, uint32_t number)
{
    sy_grpc_put_tag(buffer, number, SY_GRPC_BYTES);
    return buffer->n;
}

void sy_grpc_put_end(struct sy_grpc_buffer *buffer, size_t start)
{
    size_t n = buffer->n - start, head = sy_grpc_varint_bytes(n);

    if (!sy_grpc_buffer_extend(buffer, head))
        return;
    memmove(buffer->data + start + head, buffer->data + start, n);
    write_varint(buffer->data + start, n);
}

#include "runtime/base/msgpack_scan.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/status.h"

/* The first byte of a value: how many bytes of length follow it, and what the length counts. */
enum shape { SHAPE_FIXED, SHAPE_BYTES, SHAPE_ARRAY, SHAPE_MAP, SHAPE_BAD };

struct lead {
    enum shape shape;
    unsigned length_bytes; /* size of the length field */
    /* length when there is no field; FIXED: payload bytes; BYTES: added to the field (ext type) */
    uint64_t value;
};

/* 0xc0 .. 0xdf, in order, from the msgpack specification. */
static const struct lead leads[32] = {
    {SHAPE_FIXED, 0, 0},  {SHAPE_BAD, 0, 0},   {SHAPE_FIXED, 0, 0}, {SHAPE_FIXED, 0, 0},
    {SHAPE_BYTES, 1, 0},  {SHAPE_BYTES, 2, 0}, {SHAPE_BYTES, 4, 0},                      /* bin */
    {SHAPE_BYTES, 1, 1},  {SHAPE_BYTES, 2, 1}, {SHAPE_BYTES, 4, 1},                      /* ext */
    {SHAPE_FIXED, 0, 4},  {SHAPE_FIXED, 0, 8},                                           /* float */
    {SHAPE_FIXED, 0, 1},  {SHAPE_FIXED, 0, 2}, {SHAPE_FIXED, 0, 4}, {SHAPE_FIXED, 0, 8}, /* uint */
    {SHAPE_FIXED, 0, 1},  {SHAPE_FIXED, 0, 2}, {SHAPE_FIXED, 0, 4}, {SHAPE_FIXED, 0, 8}, /* int */
    {SHAPE_FIXED, 0, 2},  {SHAPE_FIXED, 0, 3}, {SHAPE_FIXED, 0, 5}, {SHAPE_FIXED, 0, 9},
    {SHAPE_FIXED, 0, 17},                                           /* fixext */
    {SHAPE_BYTES, 1, 0},  {SHAPE_BYTES, 2, 0}, {SHAPE_BYTES, 4, 0}, /* str */
    {SHAPE_ARRAY, 2, 0},  {SHAPE_ARRAY, 4, 0}, {SHAPE_MAP, 2, 0},   {SHAPE_MAP, 4, 0},
};

static struct lead lead_of(unsigned char byte)
{
    if (byte < 0x80 || byte >= 0xe0)
        return (struct lead){SHAPE_FIXED, 0, 0};
    if (byte < 0x90)
        return (struct lead){SHAPE_MAP, 0, byte & 15u};
    if (byte < 0xa0)
        return (struct lead){SHAPE_ARRAY, 0, byte & 15u};
    if (byte < 0xc0)
        return (struct lead){SHAPE_FIXED, 0, byte & 31u};
    return leads[byte - 0xc0];
}

void sy_msgpack_scan_init(struct sy_msgpack_scan *scan, uint64_t max_bytes, uint64_t max_elements)
{
    memset(scan, 0, sizeof(*scan));
    scan->max_bytes = max_bytes;
    scan->max_elements = max_elements;
    scan->left[0] = 1;
    scan->depth = 1;
}

static int open_container(struct sy_msgpack_scan *scan, uint64_t n)
{
    if (n > scan->max_elements - scan->n_elements)
        return sy_error_set(SY_EPROTO, "a message with more than %" PRIu64 " elements",
                            scan->max_elements);
    scan->n_elements += n;
    if (n == 0)
        return SY_OK;
    if (scan->depth == SY_MSGPACK_MAX_DEPTH)
        return sy_error_set(SY_EPROTO, "a message nested deeper than %d", SY_MSGPACK_MAX_DEPTH);
    scan->left[scan->depth++] = n;
    return SY_OK;
}

static void close_finished(struct sy_msgpack_scan *scan)
{
    while (scan->depth > 0 && scan->left[scan->depth - 1] == 0)
        scan->depth--;
}

static uint64_t big_endian(const unsigned char *bytes, unsigned n)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < n; i++)
        value = value << 8 | bytes[i];
    return value;
}

static int scan_value(struct sy_msgpack_scan *scan, const unsigned char *bytes,
                      const struct lead *lead)
{
    uint64_t length = big_endian(bytes + 1, lead->length_bytes) + lead->value;
    bool container = lead->shape == SHAPE_ARRAY || lead->shape == SHAPE_MAP;

    scan->left[scan->depth - 1]--;
    if (!container)
        scan->leaf_at = scan->at;
    scan->at += 1 + lead->length_bytes;
    if (container)
        SY_TRY(open_container(scan, lead->shape == SHAPE_MAP ? length * 2 : length));
    else
        scan->at += length;
    if (scan->at > scan->max_bytes)
        return sy_error_set(
            SY_ETOOBIG, "a message of at least %" PRIu64 " bytes; at most %" PRIu64 " are allowed",
            scan->at, scan->max_bytes);
    close_finished(scan);
    return SY_OK;
}

int sy_msgpack_scan(struct sy_msgpack_scan *scan, const void *bytes, uint64_t n_bytes)
{
    const unsigned char *start = bytes;

    while (scan->depth > 0) {
        struct lead lead;

        if (scan->at >= n_bytes)
            return 0;
        lead = lead_of(start[scan->at]);
        if (lead.shape == SHAPE_BAD)
            return sy_error_set(SY_EPROTO, "byte 0x%02x begins no msgpack value", start[scan->at]);
        if (n_bytes - scan->at < 1 + lead.length_bytes)
            return 0;
        SY_TRY(scan_value(scan, start + scan->at, &lead));
    }
    return scan->at <= n_bytes ? 1 : 0;
}

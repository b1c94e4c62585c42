#include "runtime/front/grpc/grpc_status.h"

#include <string.h>

#include "runtime/base/status.h"

const char *const sy_grpc_encoding_names[SY_GRPC_N_ENCODINGS] = {"identity", "gzip", "deflate"};

enum sy_grpc_code sy_grpc_code_of(int status)
{
    switch (status) {
    case SY_OK:
        return SY_GRPC_OK;
    case SY_EARG:
    case SY_EPROTO:
        return SY_GRPC_INVALID_ARGUMENT;
    case SY_ENOMEM_HOST:
    case SY_ENOMEM_DEVICE:
    case SY_ETOOBIG:
        return SY_GRPC_RESOURCE_EXHAUSTED;
    case SY_ENODEVICE:
    case SY_EPEER:
    case SY_EBUSY:
        return SY_GRPC_UNAVAILABLE;
    case SY_EDEADLINE:
        return SY_GRPC_DEADLINE_EXCEEDED;
    case SY_ECORRUPT:
        return SY_GRPC_DATA_LOSS;
    case SY_EUNSUPPORTED:
        return SY_GRPC_UNIMPLEMENTED;
    case SY_ENOTFOUND:
        return SY_GRPC_NOT_FOUND;
    case SY_ECANCELED:
        return SY_GRPC_CANCELLED;
    case SY_EDENIED:
        return SY_GRPC_PERMISSION_DENIED;
    default:
        return SY_GRPC_INTERNAL;
    }
}

/* Bytes of the UTF-8 character that begins with this one; 1 for what is none. */
static size_t character_bytes(unsigned char first)
{
    return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c <= 0x7e && c != '%';
}

size_t sy_grpc_encode_message(const char *text, char *to, size_t room)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = strlen(text), used = 0;

    for (size_t i = 0; i < n;) {
        size_t whole = character_bytes((unsigned char)text[i]);

        whole = whole < n - i ? whole : n - i;
        if (used + 3 * whole >= room)
            break;
        for (size_t end = i + whole; i < end; i++) {
            unsigned char c = (unsigned char)text[i];

            if (is_plain(c)) {
                to[used++] = (char)c;
                continue;
            }
            to[used++] = '%';
            to[used++] = hex[c >> 4];
            to[used++] = hex[c & 15];
        }
    }
    to[used] = '\0';
    return used;
}

static sy_ns unit_ns(char unit)
{
    switch (unit) {
    case 'H':
        return 3600 * SY_NS_PER_S;
    case 'M':
        return 60 * SY_NS_PER_S;
    case 'S':
        return SY_NS_PER_S;
    case 'm':
        return SY_NS_PER_MS;
    case 'u':
        return SY_NS_PER_US;
    case 'n':
        return 1;
    default:
        return 0;
    }
}

/* 8 digits of hours are 3.6e20 ns, more than 64 bits: cut to UINT64_MAX / 2, some 292 years. */
bool sy_grpc_parse_timeout(const char *text, size_t n, sy_ns *out)
{
    uint64_t value = 0;
    sy_ns unit;

    if (n < 2 || n > 9)
        return false;
    for (size_t i = 0; i + 1 < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    unit = unit_ns(text[n - 1]);
    if (unit == 0)
        return false;
    *out = value > UINT64_MAX / 2 / unit ? UINT64_MAX / 2 : value * unit;
    return true;
}

enum sy_grpc_encoding sy_grpc_encoding_of(const char *text, size_t n)
{
    enum sy_grpc_encoding i = SY_GRPC_IDENTITY;

    while (i < SY_GRPC_N_ENCODINGS && (strlen(sy_grpc_encoding_names[i]) != n ||
                                       memcmp(sy_grpc_encoding_names[i], text, n) != 0))
        i++;
    return i;
}

unsigned sy_grpc_accepted_encodings(const char *text, size_t n)
{
    unsigned accepted = 1u << SY_GRPC_IDENTITY;

    for (size_t at = 0; at < n;) {
        size_t end = at;

        while (end < n && text[end] != ',')
            end++;
        while (at < end && text[at] == ' ')
            at++;
        accepted |= 1u << sy_grpc_encoding_of(text + at, end - at);
        at = end + 1;
    }
    return accepted & ((1u << SY_GRPC_N_ENCODINGS) - 1);
}

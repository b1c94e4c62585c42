/* gRPC's values in HTTP/2 headers: status codes, messages, timeouts, compression names. Pure. */
#ifndef SY_FRONT_GRPC_STATUS_H
#define SY_FRONT_GRPC_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/clock.h"

enum sy_grpc_code {
    SY_GRPC_OK = 0,
    SY_GRPC_CANCELLED = 1,
    SY_GRPC_UNKNOWN = 2,
    SY_GRPC_INVALID_ARGUMENT = 3,
    SY_GRPC_DEADLINE_EXCEEDED = 4,
    SY_GRPC_NOT_FOUND = 5,
    SY_GRPC_PERMISSION_DENIED = 7,
    SY_GRPC_RESOURCE_EXHAUSTED = 8,
    SY_GRPC_UNIMPLEMENTED = 12,
    SY_GRPC_INTERNAL = 13,
    SY_GRPC_UNAVAILABLE = 14,
    SY_GRPC_DATA_LOSS = 15,
    SY_GRPC_UNAUTHENTICATED = 16
};

/* The code for a status of ours; the table is in README.md. */
enum sy_grpc_code sy_grpc_code_of(int status);

/* A grpc-message: `text` percent-encoded and cut, at a whole character, to what `room` holds. Returns its length. */
size_t sy_grpc_encode_message(const char *text, char *to, size_t room);

/* grpc-timeout ("100m": at most 8 digits and one of H M S m u n). False: malformed. */
bool sy_grpc_parse_timeout(const char *text, size_t n, sy_ns *out);

enum sy_grpc_encoding { SY_GRPC_IDENTITY, SY_GRPC_GZIP, SY_GRPC_DEFLATE, SY_GRPC_N_ENCODINGS };
extern const char *const sy_grpc_encoding_names[SY_GRPC_N_ENCODINGS];
/* N_ENCODINGS: none of ours. */
enum sy_grpc_encoding sy_grpc_encoding_of(const char *text, size_t n);
/* grpc-accept-encoding, a list with commas: a bit (1 << encoding) for each of ours. */
unsigned sy_grpc_accepted_encodings(const char *text, size_t n);

#endif

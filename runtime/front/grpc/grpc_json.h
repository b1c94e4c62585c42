/* Protobuf messages as JSON and back, by protobuf-c's descriptors: fields by their names, enums by the names of their values, maps as
 * objects. What HTTP answers as JSON, gRPC answers through here.
 *
 * Strings of type `bytes` are JSON strings of any bytes: not to be printed as JSON. */
#ifndef SY_FRONT_GRPC_JSON_H
#define SY_FRONT_GRPC_JSON_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "runtime/front/grpc/grpc_wire.h"

#define SY_GRPC_JSON_ELEMENTS 10000 /* values in one message that is read */
#define SY_GRPC_JSON_DEPTH    16

/* Fields that are not there are not in *out; unknown ones are left out. EARG: no message of this type, more values or deeper than
 * above, a number that is no int64; ENOMEM_HOST. */
int sy_grpc_json_read(const ProtobufCMessageDescriptor *type, struct sy_grpc_bytes message,
                      json_t **out);
/* Appends. Members that the type does not have, and null, are left out. 64-bit numbers may be strings. EARG names the field that a
 * value does not fit; ENOMEM_HOST. */
int sy_grpc_json_write(const ProtobufCMessageDescriptor *type, const json_t *value,
                       struct sy_grpc_buffer *out);

#endif

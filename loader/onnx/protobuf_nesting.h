/* What protobuf-c does not look at before it unpacks untrusted bytes: it recurses with their nesting without a limit, takes some 40 bytes
 * for each field however short, and merges messages that come twice. */
#ifndef SY_LOADER_ONNX_PROTOBUF_NESTING_H
#define SY_LOADER_ONNX_PROTOBUF_NESTING_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

/* EUNSUPPORTED: nested deeper than `most`, or more fields than `most_fields` altogether; ECORRUPT: no such message, or one that
 * comes twice where one may be. Without a text. */
int sy_protobuf_check_nesting(const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
                              size_t n, int most, size_t most_fields);

#endif

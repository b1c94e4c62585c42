/* Checks of untrusted bytes that protobuf-c lacks: it recurses without a limit on nesting, allocates some 40 bytes for each field however short, and
 * merges repeated messages. */
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

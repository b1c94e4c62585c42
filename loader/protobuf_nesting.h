/* How deep the messages in untrusted protobuf bytes are nested. */
#ifndef SY_LOADER_PROTOBUF_NESTING_H
#define SY_LOADER_PROTOBUF_NESTING_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

/* EUNSUPPORTED: deeper than `most`; ECORRUPT: no such message. Without a text. */
int sy_protobuf_check_nesting(const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
                              size_t n, int most);

#endif

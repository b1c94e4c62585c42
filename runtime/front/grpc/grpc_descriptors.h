/* The .proto files of this folder, compiled: a serialized FileDescriptorSet, which the Makefile makes into build/gen/grpc_descriptors.c. */
#ifndef SY_FRONT_GRPC_DESCRIPTORS_H
#define SY_FRONT_GRPC_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

extern const uint8_t sy_grpc_descriptor_set[];
extern const size_t sy_grpc_descriptor_set_bytes;

#endif

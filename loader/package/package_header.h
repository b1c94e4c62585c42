/* The first 4096 bytes of a package. Little-endian, like the whole file. */
#ifndef SY_LOADER_PACKAGE_PACKAGE_HEADER_H
#define SY_LOADER_PACKAGE_PACKAGE_HEADER_H

#include <stdint.h>

#define SY_PACKAGE_MAGIC   "SYPKG\r\n\x1a" /* shows text-mode damage, as PNG's does */
#define SY_PACKAGE_VERSION 2u
#define SY_PACKAGE_ALIGN   4096u

struct sy_package_header {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    uint64_t meta_bytes; /* the meta section begins at SY_PACKAGE_ALIGN */
    uint64_t meta_hash;
    uint64_t weights_offset;
    uint64_t weights_bytes;
    uint64_t header_hash; /* xxh3-64 of these 4096 bytes with this field zero */
    unsigned char zero[SY_PACKAGE_ALIGN - 56];
};

_Static_assert(sizeof(struct sy_package_header) == SY_PACKAGE_ALIGN, "one block");

uint64_t sy_package_header_hash(const struct sy_package_header *header);

#endif

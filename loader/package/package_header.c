#include "loader/package/package_header.h"

#include <xxhash.h>

uint64_t sy_package_header_hash(const struct sy_package_header *header)
{
    struct sy_package_header copy = *header;
    copy.header_hash = 0;
    return XXH3_64bits(&copy, sizeof copy);
}

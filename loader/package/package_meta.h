/* The package's meta section as msgpack: everything but the weights. */
#ifndef SY_LOADER_PACKAGE_PACKAGE_META_H
#define SY_LOADER_PACKAGE_PACKAGE_META_H

#include <stddef.h>

#include "loader/package/package.h"

/* *out is malloc'd. Constants that are packed parameters are left out of the graph; all others stay in it. */
int sy_package_meta_encode(const struct sy_package *package, void **out, size_t *out_bytes);
/* Untrusted bytes. Fills everything but path, offsets in the file and content_hash; ECORRUPT says which part. `package` is zeroed by the
 * caller, and closed by it on failure too. */
int sy_package_meta_decode(const void *bytes, size_t n_bytes, struct sy_package *package);

#endif

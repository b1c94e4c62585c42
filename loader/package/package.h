/* The package: an imported model as one file.
 *
 *   +-----------+-------------------------------+---------+---------------------+
 *   | header    | meta: msgpack, hashed         | padding | weights             |
 *   | 4096 B    | graph, layer table, profile,  | to 4096 | layer after layer,  |
 *   | versioned | layer hashes, packed_for      |         | 4096-aligned each   |
 *   +-----------+-------------------------------+---------+---------------------+
 *
 * Written to a temporary name, fsync'd, renamed, folder fsync'd. Every byte is covered by a hash (xxh3-64):
 * header by its own, meta by the header's, weights by one per layer (so that any grouping can be checked),
 * padding must be zero. */
#ifndef SY_LOADER_PACKAGE_PACKAGE_H
#define SY_LOADER_PACKAGE_PACKAGE_H

#include <stdint.h>

#include "loader/graph/engine.h"
#include "loader/graph/graph.h"
#include "loader/package/arrival.h"

#define SY_PACKAGE_SUFFIX  ".sypkg"
#define SY_PROFILE_BATCHES 2

/* Per-layer compute time at two batch sizes; others are interpolated linearly. */
struct sy_profile {
    int n_threads;
    /* sequential read of this file past the page cache; 0: not measured */
    uint64_t storage_bytes_per_s;
    int64_t batch[SY_PROFILE_BATCHES];      /* 1 and 8 */
    uint64_t *layer_ns[SY_PROFILE_BATCHES]; /* n_layers each */
    uint32_t *solo_batches;                 /* n_layers (struct sy_layer); NULL: not measured */
    char *choices; /* engine choices (struct sy_engine_ops); NULL or empty: none */
};

struct sy_package {
    char *path;
    int fd; /* open until close, so that later reads see the same content even if `path` is replaced; -1: none */
    char *name;
    char *packed_for; /* sy_package_packed_for at import */
    struct sy_graph *graph;
    /* `graph` with its usual sizes, which layouts and profile are for; `graph` itself where no size is open */
    struct sy_graph *usual;
    int n_layers;
    struct sy_layer *layers;
    uint64_t *layer_hash; /* xxh3-64 of the layer's `bytes` in the file */
    struct sy_profile profile;
    uint64_t weights_offset; /* in the file */
    uint64_t weights_bytes;
    uint64_t content_hash; /* identifies the content: hash over header and meta */
    /* held reference: limits which weights may be read (arrival.h); NULL: all are there */
    struct sy_package_arrival *arrival;
};

/* The packed_for text of a package for `engine` in this precision: describe(), and the precision unless it is float32. EUNSUPPORTED if the
 * engine does not compute in it on this machine. */
int sy_package_packed_for(const struct sy_engine_ops *engine, enum sy_precision precision,
                          char *buffer, size_t bytes);
/* Imports: lays out and packs with `engine`, writes the file at `path` durably. `graph` is optimized.
 * `profile` may be all zero: write again with sy_package_set_profile. progress(ctx, done, total bytes) may be NULL. */
int sy_package_write(const char *path, const char *name, const struct sy_graph *graph,
                     const struct sy_engine_ops *engine,
                     void (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
                     void *ctx);
/* Rewrites the meta part with this profile (durably, by rename). */
int sy_package_set_profile(const char *path, const struct sy_profile *profile);

/* Reads and checks header and meta, and that the file has its full length. ECORRUPT names file, section and what did not
 * match. Weights are not read. */
int sy_package_open(const char *path, struct sy_package **out);
/* As sy_package_open, with the open file `fd` from `path`. Takes ownership of `fd`, also on failure. */
int sy_package_open_file(const char *path, int fd, struct sy_package **out);
void sy_package_close(struct sy_package *package);
/* Checks layers [first, first+n) lying at `weights` against their hashes. ECORRUPT names file and layer. */
int sy_package_verify(const struct sy_package *package, int first, int n, const void *weights);
/* Whether `engine` on this machine can compute with the package's layouts. EUNSUPPORTED names the file, what it was packed for and what this machine has. */
int sy_package_check_engine(const struct sy_package *package, const struct sy_engine_ops *engine);
uint64_t sy_package_layer_ns(const struct sy_package *package, int layer, int64_t batch);

#endif

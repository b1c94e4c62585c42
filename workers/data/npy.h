/* NumPy's .npy files (format 1.0 to 3.0, numpy.lib.format): one tensor a file. */
#ifndef SY_WORKERS_DATA_NPY_H
#define SY_WORKERS_DATA_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "loader/graph/graph.h"

#define SY_NPY_MAX_BYTES (1ull << 32)

struct sy_npy {
    enum sy_dtype dtype;
    int rank; /* 0: a scalar */
    int64_t dims[SY_MAX_RANK];
    size_t bytes;
    void *data; /* row-major, owned; aligned for every element type */
};

/* Reads the whole file; blocks. Any thread. `out` is the caller's, freed by sy_npy_finish; untouched on failure. Column-major and big-endian files come out
 * row-major and as this machine has them, int16 and uint16 as int32, uint32 and uint64 as int64. ENOTFOUND, EIO, ECORRUPT (magic, header, length),
 * EUNSUPPORTED (element type, rank, a uint64 over 2^63 - 1), ETOOBIG (over SY_NPY_MAX_BYTES), ENOMEM_HOST; the text names the file. */
int sy_npy_read(const char *path, struct sy_npy *out);
void sy_npy_finish(struct sy_npy *npy); /* NULL is fine */

/* Writes a row-major tensor of `dims` as format 1.0, durably (whole or not at all). EIO names the path, EARG a rank over
 * SY_MAX_RANK or a negative dimension. */
int sy_npy_write(const char *path, enum sy_dtype dtype, int rank, const int64_t *dims,
                 const void *data);

#endif

/* IDX files of unsigned bytes (MNIST's format: images, labels), gzip'd or not. */
#ifndef SY_WORKERS_DATA_IDX_READER_H
#define SY_WORKERS_DATA_IDX_READER_H

#include <stddef.h>
#include <stdint.h>

#define SY_IDX_MAX_RANK  4
#define SY_IDX_MAX_BYTES (1ull << 32)

struct sy_idx {
    int rank; /* 1: labels; 3: images (count, height, width) */
    uint32_t dims[SY_IDX_MAX_RANK];
    size_t bytes;  /* product of dims */
    uint8_t *data; /* row-major, owned */
};

/* Reads the whole file into memory; blocks. Any thread. `out` is the caller's, freed by sy_idx_finish;
 * untouched on failure. EIO (cannot open or read), ECORRUPT (magic, length), EUNSUPPORTED (element type),
 * ETOOBIG (over SY_IDX_MAX_BYTES), ENOMEM_HOST; the text names the file. */
int sy_idx_read(const char *path, struct sy_idx *out);
void sy_idx_finish(struct sy_idx *idx); /* NULL is fine */

#endif

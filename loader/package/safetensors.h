/* safetensors files: reading, checking and writing durably.
 *
 *   [8 bytes: header length n][n bytes: JSON header, padded with spaces][data: tensor after tensor]
 *
 * The header is {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "text"}}. Tensors
 * cover the data without a gap or an overlap; data begins at a multiple of 8 in the file, as the reference implementation has it.
 *
 * Nothing in a file is trusted: the header must lie in the file before memory is taken for it, it has at most SY_SAFETENSORS_MAX_HEADER
 * bytes, names are unique, sizes agree with shapes, and every byte of the data belongs to one tensor.
 *
 * One thread per object. */
#ifndef SY_LOADER_PACKAGE_SAFETENSORS_H
#define SY_LOADER_PACKAGE_SAFETENSORS_H

#include <stdint.h>

#include "loader/graph/graph.h"

#define SY_SAFETENSORS_MAX_HEADER (16u << 20)

struct sy_safetensor {
    const char *name;
    enum sy_dtype dtype;
    int rank;
    int64_t shape[SY_MAX_RANK];
    uint64_t offset_bytes; /* in the data */
    uint64_t bytes;
};

struct sy_safetensors_text {
    const char *key, *value;
};

/* Texts are owned by the object. */
struct sy_safetensors {
    char *path;
    int fd;
    int n_tensors;
    struct sy_safetensor *tensors; /* in the order of their offsets */
    uint64_t data_offset;          /* in the file */
    uint64_t data_bytes;
    void *header; /* the parsed JSON: owns names and metadata */
};

/* Reads and checks the header, and that the file has its full length; data is not read. ENOTFOUND, EARG (not a regular file), EIO,
 * ENOMEM_HOST, ECORRUPT, EUNSUPPORTED (a type or rank that this program has not) name the path and the tensor. Blocks. */
int sy_safetensors_open(const char *path, struct sy_safetensors **out);
void sy_safetensors_close(struct sy_safetensors *file); /* NULL is fine */
/* Or NULL. Borrowed until close. */
const struct sy_safetensor *sy_safetensors_find(const struct sy_safetensors *file,
                                                const char *name);
const char *sy_safetensors_metadata(const struct sy_safetensors *file, const char *key);
/* [offset, offset + bytes) of the data into `to`. EARG outside of it, EIO, ECORRUPT if the file became shorter. Blocks. */
int sy_safetensors_read(const struct sy_safetensors *file, uint64_t offset_bytes, uint64_t bytes,
                        void *to);

/* Writes tensors that lie in `data` one after the other, in the order given, durably (runtime/base/durable_file.h). Metadata may be
 * NULL if n_texts is 0. EARG when tensors do not cover the data, have a wrong size, or share a name; EIO; ENOMEM_HOST. Blocks. */
int sy_safetensors_write(const char *path, const struct sy_safetensor *tensors, int n_tensors,
                         const struct sy_safetensors_text *texts, int n_texts, const void *data,
                         uint64_t data_bytes);

#endif

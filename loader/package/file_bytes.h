/* Small files and parts of files, read whole into memory. */
#ifndef SY_LOADER_PACKAGE_FILE_BYTES_H
#define SY_LOADER_PACKAGE_FILE_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Reads [offset, offset + bytes) of a regular file; bytes UINT64_MAX: to its end. Caller frees *out. Blocks. ENOTFOUND, EARG
 * (not a regular file), EIO, ECORRUPT (the file is shorter), ENOMEM_HOST; each names the path. */
int sy_file_read_range(const char *path, uint64_t offset, uint64_t bytes, unsigned char **out,
                       size_t *out_bytes);

/* Opens a regular file to read, and says its size; anything else (a FIFO would block) is EARG. The caller closes *fd. */
int sy_file_open(const char *path, int *fd, uint64_t *size);

#endif

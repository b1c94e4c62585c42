#include "workers/data/idx_reader.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "loader/package/file_bytes.h"
#include "runtime/base/status.h"

#define IDX_UBYTE 0x08

static int read_exactly(gzFile file, const char *path, const char *part, uint8_t *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        size_t left = bytes - done;
        int got = gzread(file, to + done, left < 1u << 20 ? (unsigned)left : 1u << 20);
        if (got <= 0) {
            int code = Z_OK;
            const char *why = gzerror(file, &code);
            return sy_error_set(code == Z_ERRNO ? SY_EIO : SY_ECORRUPT,
                                "%s: %s ends after %zu of %zu bytes%s%s; fetch the file again",
                                path, part, done, bytes, code ? ": " : "", code ? why : "");
        }
        done += (size_t)got;
    }
    return SY_OK;
}

static int read_header(gzFile file, const char *path, struct sy_idx *idx)
{
    uint8_t magic[4], dim[4];
    SY_TRY(read_exactly(file, path, "magic", magic, 4));
    if (magic[0] || magic[1] || magic[3] < 1 || magic[3] > SY_IDX_MAX_RANK)
        return sy_error_set(SY_ECORRUPT, "%s: magic %02x%02x%02x%02x is not IDX of rank 1..%d",
                            path, magic[0], magic[1], magic[2], magic[3], SY_IDX_MAX_RANK);
    if (magic[2] != IDX_UBYTE)
        return sy_error_set(SY_EUNSUPPORTED, "%s: element type 0x%02x; only ubyte (0x08) is read",
                            path, magic[2]);
    idx->rank = magic[3];
    uint64_t bytes = 1;
    for (int i = 0; i < idx->rank; i++) {
        SY_TRY(read_exactly(file, path, "dimensions", dim, 4));
        idx->dims[i] =
            (uint32_t)dim[0] << 24 | (uint32_t)dim[1] << 16 | (uint32_t)dim[2] << 8 | dim[3];
        if (idx->dims[i] == 0)
            return sy_error_set(SY_ECORRUPT, "%s: dimension %d is 0", path, i);
        if (bytes > SY_IDX_MAX_BYTES / idx->dims[i])
            return sy_error_set(SY_ETOOBIG, "%s: dimension %d = %u makes it more than %llu bytes",
                                path, i, idx->dims[i], SY_IDX_MAX_BYTES);
        bytes *= idx->dims[i];
    }
    idx->bytes = bytes;
    return SY_OK;
}

/* Before memory is taken for what the header claims: deflate shrinks by 1032 to 1 at most. */
static int check_claim(const char *path, uint64_t size, const struct sy_idx *idx)
{
    if (idx->bytes / 1032 > size)
        return sy_error_set(SY_ECORRUPT,
                            "%s: a file of %llu bytes cannot hold the %zu that its dimensions "
                            "name; fetch the file again",
                            path, (unsigned long long)size, idx->bytes);
    return SY_OK;
}

static int read_all(gzFile file, const char *path, uint64_t size, struct sy_idx *idx)
{
    uint8_t extra;
    SY_TRY(read_header(file, path, idx));
    SY_TRY(check_claim(path, size, idx));
    idx->data = malloc(idx->bytes);
    SY_TRY_ALLOC(idx->data, "%s: no memory for %zu bytes", path, idx->bytes);
    SY_TRY(read_exactly(file, path, "data", idx->data, idx->bytes));
    if (gzread(file, &extra, 1) != 0)
        return sy_error_set(SY_ECORRUPT, "%s: bytes follow the %zu that its dimensions name", path,
                            idx->bytes);
    return SY_OK;
}

int sy_idx_read(const char *path, struct sy_idx *out)
{
    struct sy_idx idx = {0};
    int fd;
    uint64_t size;
    SY_TRY(sy_file_open(path, &fd, &size));
    gzFile file = gzdopen(fd, "rb");
    if (!file) {
        close(fd);
        return sy_error_set(SY_ENOMEM_HOST, "%s: no memory to read it", path);
    }
    int status = read_all(file, path, size, &idx);
    if (gzclose_r(file) != Z_OK && status == SY_OK)
        status =
            sy_error_set(SY_ECORRUPT, "%s ends within its compressed data; fetch it again", path);
    if (status < 0)
        sy_idx_finish(&idx);
    else
        *out = idx;
    return status;
}

void sy_idx_finish(struct sy_idx *idx)
{
    if (!idx)
        return;
    free(idx->data);
    memset(idx, 0, sizeof(*idx));
}

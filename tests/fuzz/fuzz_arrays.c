/* Arrays in files: IDX (plain and gzip'd) and NumPy's .npy. The first byte chooses: odd is .npy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"
#include "workers/data/idx_reader.h"
#include "workers/data/npy.h"

/* Every byte that a reader says is there is there. */
static unsigned sum_of(const void *data, size_t n)
{
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((const uint8_t *)data)[i];
    return sum;
}

/* What was read can be written, and is the same again. */
static void write_again(const struct sy_npy *npy)
{
    struct sy_npy again;
    char path[64];
    snprintf(path, sizeof path, "%s/x.npy", fuzz_folder());
    FUZZ_CHECK(sy_npy_write(path, npy->dtype, npy->rank, npy->dims, npy->data) == SY_OK);
    FUZZ_CHECK(sy_npy_read(path, &again) == SY_OK);
    FUZZ_CHECK(again.dtype == npy->dtype && again.rank == npy->rank && again.bytes == npy->bytes);
    FUZZ_CHECK(!memcmp(again.dims, npy->dims, (size_t)npy->rank * sizeof *npy->dims));
    FUZZ_CHECK(npy->bytes == 0 || !memcmp(again.data, npy->data, npy->bytes));
    sy_npy_finish(&again);
    FUZZ_CHECK(sy_npy_write(path, npy->dtype, SY_MAX_RANK + 1, npy->dims, npy->data) < 0);
    FUZZ_CHECK(sy_npy_write(path, npy->dtype, 1, (int64_t[]){-1}, npy->data) < 0);
}

static void read_npy(const char *path)
{
    struct sy_npy npy;
    if (sy_npy_read(path, &npy) < 0)
        return;
    uint64_t bytes = sy_dtype_bytes(npy.dtype);
    FUZZ_CHECK(npy.rank >= 0 && npy.rank <= SY_MAX_RANK);
    for (int i = 0; i < npy.rank; i++)
        bytes *= (uint64_t)npy.dims[i];
    FUZZ_CHECK(bytes == npy.bytes && bytes <= FUZZ_MAX_BYTES);
    FUZZ_CHECK(sum_of(npy.data, npy.bytes) <= 255u * FUZZ_MAX_BYTES);
    write_again(&npy);
    sy_npy_finish(&npy);
}

static void read_idx(const char *path)
{
    struct sy_idx idx;
    if (sy_idx_read(path, &idx) < 0)
        return;
    uint64_t bytes = 1;
    FUZZ_CHECK(idx.rank >= 1 && idx.rank <= SY_IDX_MAX_RANK);
    for (int i = 0; i < idx.rank; i++)
        bytes *= idx.dims[i];
    FUZZ_CHECK(bytes == idx.bytes);
    FUZZ_CHECK(sum_of(idx.data, idx.bytes) / 255 <= idx.bytes);
    sy_idx_finish(&idx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *path = fuzz_file(data + 1, size - 1);
    if (data[0] & 1)
        read_npy(path);
    else
        read_idx(path);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------------------------ */

#define NPY(version, length, header, data) "\x93NUMPY" version length header data

static size_t gzip(const char *bytes, size_t n, uint8_t *to, size_t room)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)bytes,
                  .avail_in = (uInt)n,
                  .next_out = to,
                  .avail_out = (uInt)room};
    FUZZ_CHECK(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    FUZZ_CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    size_t written = room - z.avail_out;
    deflateEnd(&z);
    return written;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const char labels[] = "\0\0\x08\x01\0\0\0\x04"
                                 "\1\2\3\4";
    static const char images[] = "\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x03"
                                 "abcdef";
    static const char rows[] =
        NPY("\1\0", "\x3b\0", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1)} \n",
            "12345678");
    static const char columns[] =
        NPY("\2\0", "\x3a\0\0\0", "{'descr': '<i8', 'fortran_order': True, 'shape': (1, 1)} \n",
            "12345678");
    static const char scalar[] =
        NPY("\1\0", "\x37\0", "{'descr': '|u1', 'fortran_order': False, 'shape': ()} \n", "1");
    to[0] = i >= 4;
    switch (i) {
    case 0:
        return 1 + fuzz_give(labels, sizeof labels - 1, to + 1, room - 1);
    case 1:
        return 1 + fuzz_give(images, sizeof images - 1, to + 1, room - 1);
    case 2:
        return 1 + gzip(labels, sizeof labels - 1, to + 1, room - 1);
    case 3:
        return 1 + gzip(images, sizeof images - 1, to + 1, room - 1);
    case 4:
        return 1 + fuzz_give(rows, sizeof rows - 1, to + 1, room - 1);
    case 5:
        return 1 + fuzz_give(columns, sizeof columns - 1, to + 1, room - 1);
    case 6:
        return 1 + fuzz_give(scalar, sizeof scalar - 1, to + 1, room - 1);
    default:
        return 0;
    }
}

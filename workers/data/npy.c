#include "workers/data/npy.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/package/file_bytes.h"
#include "runtime/base/assert.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

#define MAGIC       "\x93NUMPY"
#define MAGIC_BYTES 6u
#define ALIGNMENT   64u /* of the data, as the format asks */
#define MAX_HEADER  65535u

static const struct {
    enum sy_dtype dtype;
    const char *text;
} descriptions[] = {
#define X(name, value, bytes, wire, npy) {SY_DTYPE_##name, npy},
    SY_DTYPE_TABLE(X)
#undef X
};

/* ---- reading the header: a Python dictionary of three keys --------------------------------------------- */

struct cursor {
    const char *path, *at, *end;
};

struct header {
    struct sy_npy npy;
    size_t element_bytes; /* in the file */
    bool is_big_endian;
    bool is_column_major;
    unsigned seen; /* a bit for each key */
};

static int bad(const struct cursor *c, const char *what)
{
    return sy_error_set(SY_ECORRUPT, "%s: the .npy header %s", c->path, what);
}

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && isspace((unsigned char)*c->at))
        c->at++;
}

static bool take(struct cursor *c, const char *token)
{
    size_t n = strlen(token);

    skip_blanks(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, token, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* A quoted word without escapes. */
static int take_text(struct cursor *c, char *to, size_t room)
{
    char quote;
    size_t n = 0;

    skip_blanks(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return bad(c, "has no quoted word where one belongs");
    quote = *c->at++;
    while (c->at < c->end && *c->at != quote && n + 1 < room)
        to[n++] = *c->at++;
    to[n] = 0;
    if (c->at == c->end || *c->at++ != quote)
        return bad(c, "has a word without an end");
    return SY_OK;
}

/* The element's type in this machine's byte order, with the file's size and order. */
static void find_type(const char *text, struct header *h)
{
    char little[16];

    snprintf(little, sizeof little, "%s", text);
    h->is_big_endian = little[0] == '>';
    if (h->is_big_endian)
        little[0] = '<';
    for (size_t i = 0; i < SY_ARRAY_LEN(descriptions); i++)
        if (strcmp(descriptions[i].text, little) == 0)
            h->npy.dtype = descriptions[i].dtype;
    h->element_bytes = sy_dtype_bytes(h->npy.dtype);
}

static int read_descr(struct cursor *c, struct header *h)
{
    char text[16];

    skip_blanks(c);
    if (c->at < c->end && *c->at == '[')
        return sy_error_set(SY_EUNSUPPORTED, "%s: an array of records; one of numbers is needed",
                            c->path);
    SY_TRY(take_text(c, text, sizeof(text)));
    find_type(text, h);
    if (h->npy.dtype == SY_DTYPE_NONE)
        return sy_error_set(SY_EUNSUPPORTED,
                            "%s: element type '%s'; save it as float32, float64, float16, a whole "
                            "number of 8 to 64 bits or bool",
                            c->path, text);
    return SY_OK;
}

static int read_order(struct cursor *c, struct header *h)
{
    h->is_column_major = take(c, "True");
    if (!h->is_column_major && !take(c, "False"))
        return bad(c, "has a fortran_order that is neither True nor False");
    return SY_OK;
}

static int read_dim(struct cursor *c, int64_t *out)
{
    int64_t value = 0;

    if (c->at == c->end || !isdigit((unsigned char)*c->at))
        return bad(c, "has a shape with something else than numbers");
    for (; c->at < c->end && isdigit((unsigned char)*c->at); c->at++) {
        value = 10 * value + (*c->at - '0');
        if (value > (int64_t)SY_NPY_MAX_BYTES)
            return sy_error_set(SY_ETOOBIG, "%s: a dimension over %llu", c->path, SY_NPY_MAX_BYTES);
    }
    *out = value;
    return SY_OK;
}

static int read_shape(struct cursor *c, struct header *h)
{
    if (!take(c, "("))
        return bad(c, "has a shape that is not a tuple");
    while (!take(c, ")")) {
        skip_blanks(c);
        if (h->npy.rank == SY_MAX_RANK)
            return sy_error_set(SY_EUNSUPPORTED, "%s: more than %d dimensions", c->path,
                                SY_MAX_RANK);
        SY_TRY(read_dim(c, &h->npy.dims[h->npy.rank++]));
        if (!take(c, ",")) {
            if (!take(c, ")"))
                return bad(c, "has a shape without an end");
            break;
        }
    }
    return SY_OK;
}

static int read_entry(struct cursor *c, struct header *h)
{
    static const struct {
        const char *key;
        int (*read)(struct cursor *c, struct header *h);
    } keys[] = {{"descr", read_descr}, {"fortran_order", read_order}, {"shape", read_shape}};
    char key[16];

    SY_TRY(take_text(c, key, sizeof(key)));
    if (!take(c, ":"))
        return bad(c, "has a key without a value");
    for (unsigned i = 0; i < SY_ARRAY_LEN(keys); i++) {
        if (strcmp(keys[i].key, key) != 0)
            continue;
        if (h->seen & 1u << i)
            return bad(c, "has a key twice");
        h->seen |= 1u << i;
        return keys[i].read(c, h);
    }
    return bad(c, "has a key other than descr, fortran_order, shape");
}

static int read_dictionary(struct cursor *c, struct header *h)
{
    if (!take(c, "{"))
        return bad(c, "is no dictionary");
    while (!take(c, "}")) {
        SY_TRY(read_entry(c, h));
        if (!take(c, ",")) {
            if (!take(c, "}"))
                return bad(c, "has no end");
            break;
        }
    }
    skip_blanks(c);
    if (c->at != c->end)
        return bad(c, "has something after its end");
    return h->seen == 7 ? SY_OK : bad(c, "lacks descr, fortran_order or shape");
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static int find_header(const char *path, const unsigned char *file, size_t bytes,
                       struct cursor *out)
{
    size_t prefix, length;

    if (bytes < 12 || memcmp(file, MAGIC, MAGIC_BYTES) != 0)
        return sy_error_set(SY_ECORRUPT, "%s is not a .npy file: it does not begin with \\x93NUMPY",
                            path);
    if (file[6] < 1 || file[6] > 3)
        return sy_error_set(SY_EUNSUPPORTED, "%s: .npy version %u; 1 to 3 are known", path,
                            file[6]);
    prefix = file[6] == 1 ? 10 : 12;
    length = file[8] | (size_t)file[9] << 8;
    if (file[6] > 1)
        length |= (size_t)file[10] << 16 | (size_t)file[11] << 24;
    if (length > MAX_HEADER || length > bytes - prefix)
        return sy_error_set(SY_ECORRUPT, "%s: a header of %zu bytes in a file of %zu", path, length,
                            bytes);
    *out = (struct cursor){path, (const char *)file + prefix, (const char *)file + prefix + length};
    return SY_OK;
}

static int count_bytes(const char *path, struct sy_npy *npy)
{
    npy->bytes = sy_dtype_bytes(npy->dtype);
    for (int i = 0; i < npy->rank; i++)
        if (__builtin_mul_overflow(npy->bytes, (size_t)npy->dims[i], &npy->bytes) ||
            npy->bytes > SY_NPY_MAX_BYTES)
            return sy_error_set(SY_ETOOBIG, "%s: a tensor over %llu bytes", path, SY_NPY_MAX_BYTES);
    return SY_OK;
}

static void take_element(const struct header *h, const unsigned char *from, unsigned char *to)
{
    size_t n = h->element_bytes;

    for (size_t i = 0; i < n; i++)
        to[i] = from[h->is_big_endian ? n - 1 - i : i];
}

/* Element by element, column-major to row-major: walks the target in order, keeping the source's index. */
static void convert(const struct header *h, const unsigned char *from, struct sy_npy *npy)
{
    size_t size = sy_dtype_bytes(npy->dtype), n = npy->bytes / size;
    int64_t index[SY_MAX_RANK] = {0};
    unsigned char *to = npy->data;

    for (size_t i = 0; i < n; i++) {
        size_t at = h->is_column_major ? 0 : i;

        for (int d = npy->rank - 1; h->is_column_major && d >= 0; d--)
            at = at * (size_t)npy->dims[d] + (size_t)index[d];
        take_element(h, from + at * h->element_bytes, to + i * size);
        for (int d = npy->rank - 1; d >= 0 && ++index[d] == npy->dims[d]; d--)
            index[d] = 0;
    }
}

static int take_data(const struct cursor *c, const struct header *h, const unsigned char *file,
                     size_t file_bytes, struct sy_npy *out)
{
    size_t start = (size_t)(c->end - (const char *)file), bytes;
    struct sy_npy npy = h->npy;
    bool is_as_here = !h->is_big_endian && !(h->is_column_major && npy.rank > 1);

    bytes = npy.bytes / sy_dtype_bytes(npy.dtype) * h->element_bytes;
    if (file_bytes - start != bytes)
        return sy_error_set(SY_ECORRUPT, "%s: its shape needs %zu bytes of data, the file has %zu",
                            c->path, bytes, file_bytes - start);
    npy.data = malloc(npy.bytes + 1);
    SY_TRY_ALLOC(npy.data, "no memory for the %zu bytes of %s", npy.bytes, c->path);
    if (is_as_here)
        memcpy(npy.data, file + start, npy.bytes);
    else
        convert(h, file + start, &npy);
    *out = npy;
    return SY_OK;
}

int sy_npy_read(const char *path, struct sy_npy *out)
{
    struct header header = {0};
    struct cursor cursor, at;
    unsigned char *file;
    size_t bytes;
    int status;

    SY_TRY(sy_file_read_range(path, 0, UINT64_MAX, &file, &bytes));
    SY_TRY_GOTO(find_header(path, file, bytes, &cursor), done);
    at = cursor;
    SY_TRY_GOTO(read_dictionary(&at, &header), done);
    SY_TRY_GOTO(count_bytes(path, &header.npy), done);
    status = take_data(&cursor, &header, file, bytes, out);
done:
    free(file);
    return status;
}

void sy_npy_finish(struct sy_npy *npy)
{
    if (npy)
        free(npy->data);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static size_t format_header(enum sy_dtype dtype, int rank, const int64_t *dims, char *to,
                            size_t room)
{
    const char *text = "";
    size_t n, padded;

    for (size_t i = 0; i < SY_ARRAY_LEN(descriptions); i++)
        if (descriptions[i].dtype == dtype)
            text = descriptions[i].text;
    n = (size_t)snprintf(to, room, MAGIC "%c%c..{'descr': '%s', 'fortran_order': False, 'shape': (",
                         1, 0, text);
    for (int i = 0; i < rank; i++)
        n += (size_t)snprintf(to + n, room - n, "%lld%s", (long long)dims[i],
                              rank == 1      ? ","
                              : i + 1 < rank ? ", "
                                             : "");
    n += (size_t)snprintf(to + n, room - n, "), }");
    padded = SY_ALIGN_UP(n + 1, ALIGNMENT);
    memset(to + n, ' ', padded - n);
    to[padded - 1] = '\n';
    to[8] = (char)((padded - 10) & 0xff);
    to[9] = (char)((padded - 10) >> 8);
    return padded;
}

int sy_npy_write(const char *path, enum sy_dtype dtype, int rank, const int64_t *dims,
                 const void *data)
{
    struct sy_durable_file file;
    char header[512];
    size_t header_bytes, bytes = sy_dtype_bytes(dtype);
    int status;

    if (rank < 0 || rank > SY_MAX_RANK || bytes == 0)
        return sy_error_set(SY_EARG, "%s: rank %d, element type %d", path, rank, (int)dtype);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(bytes, (size_t)dims[i], &bytes))
            return sy_error_set(SY_EARG, "%s: dimension %d is %lld", path, i, (long long)dims[i]);
    header_bytes = format_header(dtype, rank, dims, header, sizeof(header));
    SY_TRY(sy_durable_file_create(path, &file));
    SY_TRY_GOTO(sy_write_fully(file.fd, path, header, header_bytes, 0), failed);
    SY_TRY_GOTO(sy_write_fully(file.fd, path, data, bytes, header_bytes), failed);
    return sy_durable_file_commit(&file);
failed:
    sy_durable_file_discard(&file);
    return status;
}

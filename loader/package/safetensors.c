#include "loader/package/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

#define METADATA   "__metadata__"
#define DATA_ALIGN 8u

/* safetensors writes types as ONNX names them: F32, I64, BF16, BOOL. */
static const struct {
    const char *name;
    enum sy_dtype dtype;
} dtype_names[] = {
#define X(name, value, bytes, wire, npy) {#name, SY_DTYPE_##name},
    SY_DTYPE_TABLE(X)
#undef X
};

static enum sy_dtype dtype_of(const char *name)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(dtype_names); i++)
        if (strcmp(dtype_names[i].name, name) == 0)
            return dtype_names[i].dtype;
    return SY_DTYPE_NONE;
}

static const char *name_of(enum sy_dtype dtype)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(dtype_names); i++)
        if (dtype_names[i].dtype == dtype)
            return dtype_names[i].name;
    return NULL;
}

/* Bytes by type and shape; false on overflow or a negative length. */
static bool size_of(const struct sy_safetensor *t, uint64_t *bytes)
{
    *bytes = sy_dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 0 || __builtin_mul_overflow(*bytes, (uint64_t)t->shape[i], bytes))
            return false;
    return true;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static int bad_tensor(const struct sy_safetensors *file, const char *name, const char *what)
{
    return sy_error_set(SY_ECORRUPT, "%s: tensor '%.100s': %s", file->path, name, what);
}

static int take_shape(const struct sy_safetensors *file, const json_t *shape,
                      struct sy_safetensor *t)
{
    if (!json_is_array(shape))
        return bad_tensor(file, t->name, "its shape is missing or not a list");
    if (json_array_size(shape) > SY_MAX_RANK)
        return sy_error_set(SY_EUNSUPPORTED, "%s: tensor '%.100s' has %zu dimensions, at most %d",
                            file->path, t->name, json_array_size(shape), SY_MAX_RANK);
    t->rank = (int)json_array_size(shape);
    for (int i = 0; i < t->rank; i++) {
        const json_t *length = json_array_get(shape, (size_t)i);
        if (!json_is_integer(length) || json_integer_value(length) < 0)
            return bad_tensor(file, t->name, "a dimension is not a length");
        t->shape[i] = json_integer_value(length);
    }
    return SY_OK;
}

static int take_offsets(const struct sy_safetensors *file, const json_t *ends,
                        struct sy_safetensor *t)
{
    uint64_t needed;
    const json_t *from = json_array_get(ends, 0), *to = json_array_get(ends, 1);
    if (json_array_size(ends) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
        json_integer_value(from) < 0 || json_integer_value(to) < json_integer_value(from))
        return bad_tensor(file, t->name, "its data_offsets are not two numbers in order");
    t->offset_bytes = (uint64_t)json_integer_value(from);
    t->bytes = (uint64_t)json_integer_value(to) - t->offset_bytes;
    if (t->offset_bytes + t->bytes > file->data_bytes)
        return sy_error_set(SY_ECORRUPT,
                            "%s: tensor '%.100s' ends at byte %" PRIu64
                            " of the data, which has %" PRIu64,
                            file->path, t->name, t->offset_bytes + t->bytes, file->data_bytes);
    if (!size_of(t, &needed) || needed != t->bytes)
        return sy_error_set(SY_ECORRUPT,
                            "%s: tensor '%.100s' has %" PRIu64
                            " bytes, its type and shape need another number",
                            file->path, t->name, t->bytes);
    return SY_OK;
}

static int take_tensor(const struct sy_safetensors *file, const char *name, const json_t *entry,
                       struct sy_safetensor *t)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    t->name = name;
    if (!dtype || json_object_size(entry) != 3)
        return bad_tensor(file, name, "it is not {dtype, shape, data_offsets}");
    t->dtype = dtype_of(dtype);
    if (t->dtype == SY_DTYPE_NONE)
        return sy_error_set(SY_EUNSUPPORTED, "%s: tensor '%.100s' has type '%.20s', unknown here",
                            file->path, name, dtype);
    SY_TRY(take_shape(file, json_object_get(entry, "shape"), t));
    return take_offsets(file, json_object_get(entry, "data_offsets"), t);
}

static int take_metadata(const struct sy_safetensors *file, const json_t *texts)
{
    const char *key;
    json_t *value;
    if (!json_is_object(texts))
        return sy_error_set(SY_ECORRUPT, "%s: " METADATA " is not an object", file->path);
    json_object_foreach((json_t *)(uintptr_t)texts, key, value)
    {
        if (!json_is_string(value))
            return sy_error_set(SY_ECORRUPT, "%s: " METADATA " '%.100s' is not text", file->path,
                                key);
    }
    return SY_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct sy_safetensor *x = a, *y = b;
    if (x->offset_bytes != y->offset_bytes)
        return x->offset_bytes < y->offset_bytes ? -1 : 1;
    if (x->bytes != y->bytes) /* empty tensors first: they take no room */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Every byte of the data belongs to exactly one tensor: no hidden bytes, no overlaps. */
static int check_cover(const struct sy_safetensors *file)
{
    uint64_t end = 0;
    for (int i = 0; i < file->n_tensors; i++) {
        const struct sy_safetensor *t = &file->tensors[i];
        if (t->offset_bytes != end)
            return sy_error_set(SY_ECORRUPT,
                                "%s: tensor '%.100s' begins at byte %" PRIu64
                                " of the data, the one before ends at %" PRIu64,
                                file->path, t->name, t->offset_bytes, end);
        end += t->bytes;
    }
    if (end != file->data_bytes)
        return sy_error_set(SY_ECORRUPT,
                            "%s: its tensors have %" PRIu64 " bytes, the data has %" PRIu64,
                            file->path, end, file->data_bytes);
    return SY_OK;
}

static int take_header(struct sy_safetensors *file)
{
    const char *name;
    json_t *entry;
    file->tensors = calloc(json_object_size(file->header) + 1, sizeof *file->tensors);
    SY_TRY_ALLOC(file->tensors, "%s: no memory for its %zu tensors", file->path,
                 json_object_size(file->header));
    json_object_foreach((json_t *)file->header, name, entry)
    {
        if (strcmp(name, METADATA) == 0)
            SY_TRY(take_metadata(file, entry));
        else
            SY_TRY(take_tensor(file, name, entry, &file->tensors[file->n_tensors++]));
    }
    qsort(file->tensors, (size_t)file->n_tensors, sizeof *file->tensors, by_offset);
    return check_cover(file);
}

static int parse_header(struct sy_safetensors *file, const char *text, size_t n)
{
    json_error_t error;
    file->header = text[0] == '{' ? json_loadb(text, n, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (text[0] != '{')
        return sy_error_set(SY_ECORRUPT, "%s: its header does not begin with '{'", file->path);
    if (!json_is_object((json_t *)file->header))
        return sy_error_set(SY_ECORRUPT, "%s: its header, byte %d: %s", file->path, error.position,
                            error.text);
    return take_header(file);
}

static int read_length(const struct sy_safetensors *file, uint64_t file_bytes, uint64_t *length)
{
    unsigned char bytes[8];
    if (file_bytes < sizeof bytes)
        return sy_error_set(SY_ECORRUPT, "%s has %" PRIu64 " bytes: no header", file->path,
                            file_bytes);
    SY_TRY(sy_read_fully(file->fd, file->path, bytes, sizeof bytes, 0));
    *length = 0;
    for (int i = 7; i >= 0; i--)
        *length = *length << 8 | bytes[i];
    if (*length < 2 || *length > SY_SAFETENSORS_MAX_HEADER || *length > file_bytes - sizeof bytes)
        return sy_error_set(SY_ECORRUPT,
                            "%s: a header of %" PRIu64 " bytes in a file of %" PRIu64
                            "; at most %u are read",
                            file->path, *length, file_bytes, SY_SAFETENSORS_MAX_HEADER);
    return SY_OK;
}

static int read_header(struct sy_safetensors *file)
{
    struct stat st;
    uint64_t length;
    if (fstat(file->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return sy_error_set(SY_EARG, "%s is not a regular file", file->path);
    SY_TRY(read_length(file, (uint64_t)st.st_size, &length));
    file->data_offset = sizeof(uint64_t) + length;
    file->data_bytes = (uint64_t)st.st_size - file->data_offset;
    char *text = malloc(length);
    SY_TRY_ALLOC(text, "%s: no memory for its header of %" PRIu64 " bytes", file->path, length);
    int status = sy_read_fully(file->fd, file->path, text, length, sizeof(uint64_t));
    if (status == SY_OK)
        status = parse_header(file, text, length);
    free(text);
    return status;
}

int sy_safetensors_open(const char *path, struct sy_safetensors **out)
{
    struct sy_safetensors *file = calloc(1, sizeof *file);
    char *copy = strdup(path);
    if (!file || !copy) {
        free(file);
        free(copy);
        return sy_error_set(SY_ENOMEM_HOST, "no memory to open %s", path);
    }
    file->path = copy;
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    int status = file->fd < 0 ? sy_error_set(errno == ENOENT ? SY_ENOTFOUND : SY_EIO,
                                             "cannot open %s: %s", path, strerror(errno))
                              : read_header(file);
    if (status < 0) {
        sy_safetensors_close(file);
        return status;
    }
    *out = file;
    return SY_OK;
}

void sy_safetensors_close(struct sy_safetensors *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    json_decref(file->header);
    free(file->tensors);
    free(file->path);
    free(file);
}

const struct sy_safetensor *sy_safetensors_find(const struct sy_safetensors *file, const char *name)
{
    for (int i = 0; i < file->n_tensors; i++) /* some hundred at most: a scan suffices */
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}

const char *sy_safetensors_metadata(const struct sy_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, METADATA), key));
}

int sy_safetensors_read(const struct sy_safetensors *file, uint64_t offset_bytes, uint64_t bytes,
                        void *to)
{
    if (offset_bytes > file->data_bytes || bytes > file->data_bytes - offset_bytes)
        return sy_error_set(SY_EARG,
                            "%s: %" PRIu64 " bytes at %" PRIu64 " of the data, which has %" PRIu64,
                            file->path, bytes, offset_bytes, file->data_bytes);
    return sy_read_fully(file->fd, file->path, to, bytes, file->data_offset + offset_bytes);
}

/* ---- writing ------------------------------------------------------------------------------------- */

static int check_tensors(const char *path, const struct sy_safetensor *tensors, int n,
                         uint64_t data_bytes)
{
    uint64_t end = 0, needed;
    for (int i = 0; i < n; i++) {
        const struct sy_safetensor *t = &tensors[i];
        if (t->rank < 0 || t->rank > SY_MAX_RANK || !name_of(t->dtype) || !size_of(t, &needed) ||
            needed != t->bytes || t->offset_bytes != end || !strcmp(t->name, METADATA))
            return sy_error_set(SY_EARG,
                                "%s: tensor '%.100s' of %" PRIu64 " bytes at %" PRIu64
                                " does not lie where it should, or has another size than its shape",
                                path, t->name, t->bytes, t->offset_bytes);
        end += t->bytes;
    }
    if (end != data_bytes)
        return sy_error_set(SY_EARG,
                            "%s: its tensors have %" PRIu64 " bytes, the data has %" PRIu64, path,
                            end, data_bytes);
    return SY_OK;
}

static json_t *tensor_entry(const struct sy_safetensor *t)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", name_of(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)t->offset_bytes,
                     (json_int_t)(t->offset_bytes + t->bytes));
}

/* NULL: a text is not UTF-8, a name is repeated, or no memory. */
static json_t *make_json(const struct sy_safetensor *tensors, int n_tensors,
                         const struct sy_safetensors_text *texts, int n_texts)
{
    json_t *root = json_object(), *metadata = json_object();
    int failed = !root || !metadata;
    for (int i = 0; i < n_texts; i++)
        failed |= json_object_set_new(metadata, texts[i].key, json_string(texts[i].value));
    if (n_texts > 0) /* first, where people look */
        failed |= json_object_set(root, METADATA, metadata);
    json_decref(metadata);
    for (int i = 0; i < n_tensors; i++)
        failed |= json_object_set_new(root, tensors[i].name, tensor_entry(&tensors[i]));
    failed |= json_object_size(root) != (size_t)n_tensors + (n_texts > 0);
    if (!failed)
        return root;
    json_decref(root);
    return NULL;
}

/* Length, JSON, and spaces so that the data is aligned. malloc'd. */
static int make_header(const char *path, const json_t *root, char **out, size_t *out_bytes)
{
    size_t n = json_dumpb(root, NULL, 0, JSON_COMPACT), padded = SY_ALIGN_UP(n, DATA_ALIGN);
    char *header =
        n > 0 && padded <= SY_SAFETENSORS_MAX_HEADER ? malloc(sizeof(uint64_t) + padded) : NULL;
    SY_TRY_ALLOC(header, "%s: no room for its header of %zu bytes", path, n);
    for (int i = 0; i < 8; i++)
        header[i] = (char)(padded >> 8 * i);
    memset(header + sizeof(uint64_t), ' ', padded);
    json_dumpb(root, header + sizeof(uint64_t), n, JSON_COMPACT);
    *out = header;
    *out_bytes = sizeof(uint64_t) + padded;
    return SY_OK;
}

static int write_file(const char *path, const char *header, size_t header_bytes, const void *data,
                      uint64_t data_bytes)
{
    struct sy_durable_file file;
    SY_TRY(sy_durable_file_create(path, &file));
    int status = sy_write_fully(file.fd, path, header, header_bytes, 0);
    if (status == SY_OK)
        status = sy_write_fully(file.fd, path, data, data_bytes, header_bytes);
    if (status == SY_OK)
        status = sy_durable_file_commit(&file);
    sy_durable_file_discard(&file);
    return status;
}

int sy_safetensors_write(const char *path, const struct sy_safetensor *tensors, int n_tensors,
                         const struct sy_safetensors_text *texts, int n_texts, const void *data,
                         uint64_t data_bytes)
{
    char *header = NULL;
    size_t header_bytes = 0;
    SY_TRY(check_tensors(path, tensors, n_tensors, data_bytes));
    json_t *root = make_json(tensors, n_tensors, texts, n_texts);
    if (!root)
        return sy_error_set(SY_EARG, "%s: two tensors have one name, or a text is not UTF-8", path);
    int status = make_header(path, root, &header, &header_bytes);
    json_decref(root);
    if (status == SY_OK)
        status = write_file(path, header, header_bytes, data, data_bytes);
    free(header);
    return status;
}

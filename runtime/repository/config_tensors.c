/* The fields input and output: tensors, their types and dims. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/repository/model_config_internal.h"

/* Triton writes TYPE_ before the protocol's names, but for strings: BYTES in a request, TYPE_STRING here. */
enum sy_dtype sy_config_dtype(const char *name)
{
    if (strcmp(name, "TYPE_STRING") == 0)
        return SY_DTYPE_STRING;
    if (strncmp(name, "TYPE_", 5) != 0 || strcmp(name, "TYPE_BYTES") == 0)
        return SY_DTYPE_NONE;
    return sy_dtype_from_wire_name(name + 5);
}

const char *sy_config_dtype_name(enum sy_dtype dtype, char buffer[24])
{
    snprintf(buffer, 24, "TYPE_%s",
             dtype == SY_DTYPE_STRING ? "STRING" : sy_dtype_wire_name(dtype));
    return buffer;
}

int sy_config_read_dims(const json_t *list, const char *what, int64_t dims[SY_MAX_RANK], int *rank)
{
    size_t n = json_array_size(list);

    if (n > SY_MAX_RANK)
        return sy_error_set(SY_EARG, "%s has %zu dimensions; at most %d", what, n, SY_MAX_RANK);
    for (size_t i = 0; i < n; i++) {
        dims[i] = json_integer_value(json_array_get(list, i));
        if (dims[i] < -1 || dims[i] == 0)
            return sy_error_set(SY_EARG, "%s has a dimension of %lld; above 0, or -1 for open",
                                what, (long long)dims[i]);
    }
    *rank = (int)n;
    return SY_OK;
}

/* Fields that would change what requests mean. */
static int refuse_kinds(const json_t *json, const char *kind, const char *name)
{
    static const char *const fields[] = {"is_shape_tensor", "allow_ragged_batch", "optional",
                                         "is_non_linear_format_io"};

    for (size_t i = 0; i < SY_ARRAY_LEN(fields); i++)
        if (json_is_true(json_object_get(json, fields[i])))
            return sy_error_set(SY_EUNSUPPORTED, "%s '%.100s': field %s is not supported", kind,
                                name, fields[i]);
    return SY_OK;
}

static int read_dtype(const json_t *json, const char *what, enum sy_dtype *out)
{
    const char *type = sy_config_text(json, "data_type");

    *out = type ? sy_config_dtype(type) : SY_DTYPE_NONE;
    if (!type || strcmp(type, "TYPE_INVALID") == 0)
        return sy_error_set(SY_EARG, "%s: data_type is missing", what);
    if (*out == SY_DTYPE_NONE)
        return sy_error_set(SY_EUNSUPPORTED, "%s: data_type %s is not supported", what, type);
    return SY_OK;
}

static int64_t product_of(const int64_t *dims, int rank, int *n_open)
{
    int64_t product = 1;

    *n_open = 0;
    for (int i = 0; i < rank; i++) {
        *n_open += dims[i] < 0;
        if (dims[i] > 0 && __builtin_mul_overflow(product, dims[i], &product))
            return INT64_MAX;
    }
    return product;
}

static int read_reshape(const json_t *json, const char *what, struct sy_config_tensor *tensor)
{
    const json_t *reshape = json_object_get(json, "reshape");
    int n_open, n_open_after;

    if (!reshape)
        return SY_OK;
    tensor->has_reshape = true;
    SY_TRY(sy_config_read_dims(json_object_get(reshape, "shape"), what, tensor->reshape,
                               &tensor->reshape_rank));
    int64_t before = product_of(tensor->dims, tensor->rank, &n_open);
    int64_t after = product_of(tensor->reshape, tensor->reshape_rank, &n_open_after);

    if (n_open != n_open_after)
        return sy_error_set(SY_EARG, "%s: dims leave %d dimensions open, reshape %d", what, n_open,
                            n_open_after);
    if (before != after)
        return sy_error_set(SY_EARG,
                            "%s: reshape holds another number of elements than dims: %" PRId64
                            ", not %" PRId64,
                            what, after, before);
    return SY_OK;
}

static int read_tensor(const json_t *json, const char *kind, struct sy_config_tensor *tensor)
{
    char what[200];

    tensor->name = sy_config_text(json, "name");
    if (!tensor->name)
        return sy_error_set(SY_EARG, "field %s: one without a name", kind);
    snprintf(what, sizeof what, "%s '%.100s'", kind, tensor->name);
    SY_TRY(refuse_kinds(json, kind, tensor->name));
    SY_TRY(read_dtype(json, what, &tensor->dtype));
    tensor->labels = sy_config_text(json, "label_filename");
    SY_TRY(sy_config_read_dims(json_object_get(json, "dims"), what, tensor->dims, &tensor->rank));
    return read_reshape(json, what, tensor);
}

int sy_config_read_tensors(const json_t *list, const char *kind, struct sy_config_tensor **out,
                           int *n)
{
    size_t count = json_array_size(list);

    *out = calloc(count + 1, sizeof **out);
    SY_TRY_ALLOC(*out, "no memory for %zu tensors", count);
    for (*n = 0; (size_t)*n < count; ++*n) {
        struct sy_config_tensor *tensor = &(*out)[*n];

        SY_TRY(read_tensor(json_array_get(list, (size_t)*n), kind, tensor));
        for (int i = 0; i < *n; i++)
            if (strcmp((*out)[i].name, tensor->name) == 0)
                return sy_error_set(SY_EARG, "%s '%.100s' is given twice", kind, tensor->name);
    }
    return SY_OK;
}

const char *sy_config_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text && *text ? text : NULL;
}

#include "runtime/cli/inputs/random_inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph.h"
#include "runtime/base/status.h"
#include "runtime/cli/inputs/size_text.h"
#include "runtime/client/client_json.h"
#include "runtime/front/rpc/rpc_server.h"

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    return z ^ z >> 27;
}

static void fill_random(void *data, size_t bytes, enum sy_dtype dtype, uint64_t *state)
{
    size_t size = sy_dtype_bytes(dtype);

    for (size_t at = 0; at + size <= bytes; at += size) {
        int64_t whole = (int64_t)(next_random(state) >> 63);
        float value = (float)(next_random(state) >> 40) / 8388608.0f - 1.0f;

        if (dtype == SY_DTYPE_F32)
            memcpy((char *)data + at, &value, size);
        else if (dtype == SY_DTYPE_STRING) /* a length of 4, and letters */
            memcpy((char *)data + at,
                   (const char[]){4, 0, 0, 0, 'a', 'b', (char)('a' + whole), 'd'}, size);
        else
            memcpy((char *)data + at, &whole, size);
    }
}

static int64_t choose_dim(const json_t *entry, size_t i, int64_t batch,
                          const struct sy_cli_sizes *sizes)
{
    int64_t dim = json_integer_value(json_array_get(json_object_get(entry, "shape"), i)), size;
    const char *text = json_string_value(json_array_get(json_object_get(entry, "dims"), i));
    const char *names[SY_CLI_MAX_DIMS + 1] = {"N"};
    int64_t values[SY_CLI_MAX_DIMS + 1] = {batch};
    struct sy_size_names known = {names, values, 1};

    if (dim >= 0)
        return dim;
    if (!text)
        return batch;
    for (int k = 0; sizes && k < sizes->n; k++, known.n++) {
        names[known.n] = sizes->dims[k].name;
        values[known.n] = sizes->dims[k].size;
    }
    if (sy_cli_size_of(text, &known, &size) && size >= 0)
        return size;
    return json_integer_value(json_array_get(json_object_get(entry, "usual_shape"), i));
}

static bool has_size(const struct sy_cli_sizes *sizes, const char *name)
{
    for (int k = 0; k < sizes->n; k++)
        if (strcmp(sizes->dims[k].name, name) == 0)
            return true;
    return false;
}

static int check_sizes(json_t *known, const char *model, const struct sy_cli_sizes *sizes)
{
    char names[512] = "";
    size_t i, used = 0;
    json_t *size;

    json_array_foreach(known, i, size) if (used < sizeof(names)) used +=
        (size_t)snprintf(names + used, sizeof(names) - used, "%s%s (usually %lld)", i ? ", " : "",
                         json_string_value(json_object_get(size, "name")),
                         (long long)json_integer_value(json_object_get(size, "usual")));
    for (int k = 0; k < sizes->n; k++) {
        bool there = false;

        json_array_foreach(known, i, size) there |=
            strcmp(json_string_value(json_object_get(size, "name")), sizes->dims[k].name) == 0;
        if (!there)
            return sy_error_set(SY_EARG, "%s has no open size %s; it has %s", model,
                                sizes->dims[k].name, used ? names : "none");
    }
    return SY_OK;
}

int sy_cli_complete_sizes(json_t *models, const char *model, struct sy_cli_sizes *sizes)
{
    json_t *known = json_object_get(sy_json_named(models, model), "sizes"), *size;
    size_t i;

    SY_TRY(check_sizes(known, model, sizes));
    json_array_foreach(known, i, size)
    {
        const char *name = json_string_value(json_object_get(size, "name"));

        if (name && sizes->n < SY_CLI_MAX_DIMS && !has_size(sizes, name))
            sizes->dims[sizes->n++] = (struct sy_onnx_dim){
                .name = name, .size = json_integer_value(json_object_get(size, "usual"))};
    }
    return SY_OK;
}

int sy_cli_random_input(json_t *entry, int64_t batch, const struct sy_cli_sizes *sizes,
                        uint64_t *state, sy_client_tensor *out)
{
    json_t *shape = json_object_get(entry, "shape");
    enum sy_dtype dtype;
    void *data;

    out->dtype = json_string_value(json_object_get(entry, "dtype"));
    out->rank = (int)json_array_size(shape);
    dtype = out->dtype ? sy_dtype_from_wire_name(out->dtype) : SY_DTYPE_NONE;
    out->bytes = sy_dtype_bytes(dtype);
    if (!out->bytes || out->rank > SWITCHYARD_MAX_RANK)
        return sy_error_set(SY_EPROTO, "the server does not say what the model's inputs are");
    for (int i = 0; i < out->rank; i++) {
        out->shape[i] = choose_dim(entry, (size_t)i, batch, sizes);
        if (__builtin_mul_overflow(out->bytes, (size_t)out->shape[i], &out->bytes))
            return sy_error_set(SY_EPROTO, "input %s: a shape beyond all memory", out->name);
    }
    if (out->bytes > SY_RPC_MESSAGE_BYTES)
        return sy_error_set(SY_ETOOBIG,
                            "input %s of batch %lld has %zu bytes; a server takes messages of at "
                            "most %llu",
                            out->name, (long long)batch, out->bytes, SY_RPC_MESSAGE_BYTES);
    data = malloc(out->bytes + 1);
    out->data = data;
    SY_TRY_ALLOC(data, "no memory for input %s", out->name);
    fill_random(data, out->bytes, dtype, state);
    return SY_OK;
}

json_t *sy_cli_inputs_of(json_t *models, const char *model)
{
    return json_object_get(sy_json_named(models, model), "inputs");
}

#include "runtime/cli/inputs/decoder_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* Parts of a request. */
struct step {
    const int64_t *tokens;
    int64_t n, past;
};

static int64_t token_at(const struct step *step, int64_t i)
{
    return step->tokens[i];
}

static int64_t one_at(const struct step *step, int64_t i)
{
    (void)step, (void)i;
    return 1;
}

static int64_t position_at(const struct step *step, int64_t i)
{
    return step->past + i;
}

static int64_t last_position(const struct step *step, int64_t i)
{
    (void)i;
    return step->past + step->n - 1;
}

static int64_t total(const struct step *step, int64_t i)
{
    (void)i;
    return step->past + step->n;
}

static int64_t has_past(const struct step *step, int64_t i)
{
    (void)i;
    return step->past > 0;
}

enum length { LENGTH_NEW, LENGTH_ALL, LENGTH_ONE };

/* The first whose word is in the input's name. */
static const struct role {
    const char *word;
    enum length length;
    int64_t (*value)(const struct step *step, int64_t i);
} roles[] = {
    {"total_sequence_length", LENGTH_ONE, total},
    {"seqlens_k", LENGTH_ONE, last_position},
    {"use_cache", LENGTH_ONE, has_past},
    {"mask", LENGTH_ALL, one_at},
    {"position", LENGTH_NEW, position_at},
    {"input_ids", LENGTH_NEW, token_at},
    {"tokens", LENGTH_NEW, token_at},
};

static const struct role *role_of(const char *name)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(roles); i++)
        if (strstr(name, roles[i].word))
            return &roles[i];
    return NULL;
}

static bool is_kept(json_t *model, const char *name)
{
    size_t i;
    json_t *pair;

    json_array_foreach(json_object_get(model, "state_tensors"), i, pair)
    {
        const char *input = json_string_value(json_object_get(pair, "input"));
        if (input && strcmp(input, name) == 0)
            return true;
    }
    return false;
}

static void put(void *to, enum sy_dtype dtype, int64_t i, int64_t value)
{
    if (dtype == SY_DTYPE_I64)
        ((int64_t *)to)[i] = value;
    else if (dtype == SY_DTYPE_I32)
        ((int32_t *)to)[i] = (int32_t)value;
    else if (dtype == SY_DTYPE_F32)
        ((float *)to)[i] = (float)value;
    else
        ((unsigned char *)to)[i] = value != 0;
}

static bool can_put(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_I64 || dtype == SY_DTYPE_I32 || dtype == SY_DTYPE_F32 ||
           dtype == SY_DTYPE_BOOL;
}

/* [1, ..., 1, length]; a scalar is one value. */
static int fill(const struct role *role, const struct step *step, size_t rank,
                sy_client_tensor *out)
{
    enum sy_dtype dtype = sy_dtype_from_wire_name(out->dtype);
    int64_t n = role->length == LENGTH_NEW   ? step->n
                : role->length == LENGTH_ALL ? step->past + step->n
                                             : 1;

    if (!can_put(dtype) || rank > SWITCHYARD_MAX_RANK || (rank == 0 && n != 1))
        return sy_error_set(SY_EUNSUPPORTED, "input \"%.200s\" is %s of %zu dimensions", out->name,
                            out->dtype, rank);
    out->rank = (int)rank;
    for (int d = 0; d < out->rank; d++)
        out->shape[d] = d + 1 == out->rank ? n : 1;
    out->bytes = (size_t)n * sy_dtype_bytes(dtype);
    void *data = malloc(out->bytes + 1);
    SY_TRY_ALLOC(data, "no memory for %lld positions", (long long)n);
    for (int64_t i = 0; i < n; i++)
        put(data, dtype, i, role->value(step, i));
    out->data = data;
    return SY_OK;
}

static int add_input(json_t *model, json_t *entry, const struct step *step,
                     struct sy_decoder_inputs *out, bool *has_tokens)
{
    const char *name = json_string_value(json_object_get(entry, "name")),
               *dtype = json_string_value(json_object_get(entry, "dtype"));

    if (!name || !dtype)
        return sy_error_set(SY_EPROTO, "the server does not say what the model's inputs are");
    if (is_kept(model, name))
        return SY_OK;
    const struct role *role = role_of(name);
    if (!role || out->n == SWITCHYARD_MAX_TENSORS)
        return sy_error_set(SY_EUNSUPPORTED,
                            "input \"%.200s\": what belongs there is not known; known are "
                            "input_ids, attention_mask, position_ids, cache_position, seqlens_k, "
                            "total_sequence_length and use_cache_branch",
                            name);
    *has_tokens |= role->value == token_at;
    out->tensors[out->n] = (sy_client_tensor){.name = name, .dtype = dtype};
    SY_TRY(
        fill(role, step, json_array_size(json_object_get(entry, "shape")), &out->tensors[out->n]));
    out->n++;
    return SY_OK;
}

int sy_decoder_inputs_make(json_t *model, const int64_t *tokens, int64_t n, int64_t past,
                           struct sy_decoder_inputs *out)
{
    const struct step step = {tokens, n, past};
    bool has_tokens = false;
    size_t i;
    json_t *entry;

    out->n = 0;
    json_array_foreach(json_object_get(model, "inputs"), i, entry)
        SY_TRY(add_input(model, entry, &step, out, &has_tokens));
    return has_tokens ? SY_OK
                      : sy_error_set(SY_EUNSUPPORTED, "no input takes tokens (\"input_ids\")");
}

void sy_decoder_inputs_finish(struct sy_decoder_inputs *inputs)
{
    for (int i = 0; i < inputs->n; i++)
        free((void *)inputs->tensors[i].data);
    inputs->n = 0;
}

/* What the method infer is given: its parameters against what it has, its inputs against the model's graph. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_infer_internal.h"
#include "runtime/switchyard.h"

int sy_rpc_infer_read_text(const msgpack_object *map, const char *key, char *to, size_t bytes)
{
    const msgpack_object *value = sy_rpc_get(map, key);

    if (!value || value->type != MSGPACK_OBJECT_STR || value->via.str.size >= bytes)
        return sy_error_set(SY_EARG, "\"%s\" is missing, no string, or longer than %zu bytes", key,
                            bytes - 1);
    if (value->via.str.size > 0 && memchr(value->via.str.ptr, 0, value->via.str.size))
        return sy_error_set(SY_EARG, "\"%s\" has a zero byte in it", key);
    memcpy(to, value->via.str.ptr ? value->via.str.ptr : "", value->via.str.size);
    to[value->via.str.size] = 0;
    return SY_OK;
}

static int find_input(const struct sy_graph *graph, const char *name, int *out)
{
    char names[300] = "";
    size_t used = 0;

    for (*out = 0; *out < graph->n_inputs; ++*out)
        if (strcmp(graph->tensors[graph->inputs[*out]].name, name) == 0)
            return SY_OK;
    for (int i = 0; i < graph->n_inputs && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                                 graph->tensors[graph->inputs[i]].name);
    return sy_error_set(SY_EARG, "the model has no input \"%s\"; it has %s", name, names);
}

static int check_dtype(const struct sy_tensor *tensor, const msgpack_object *map)
{
    char dtype[16];

    SY_TRY(sy_rpc_infer_read_text(map, "dtype", dtype, sizeof(dtype)));
    if (sy_dtype_from_wire_name(dtype) != tensor->dtype)
        return sy_error_set(SY_EARG, "input \"%s\" has dtype %s; the model takes %s", tensor->name,
                            dtype, sy_dtype_wire_name(tensor->dtype));
    return SY_OK;
}

static int read_shape(const struct sy_tensor *tensor, const msgpack_object *map,
                      struct sy_given_input *given, int64_t *dims)
{
    const msgpack_object *shape = sy_rpc_get(map, "shape");
    char expected[128];

    sy_shape_text(&tensor->shape, expected, sizeof(expected));
    if (!shape || shape->type != MSGPACK_OBJECT_ARRAY)
        return sy_error_set(SY_EARG, "input \"%s\": \"shape\" is missing or no array",
                            tensor->name);
    if (shape->via.array.size != (uint32_t)tensor->shape.rank)
        return sy_error_set(SY_EARG, "input \"%s\" has %u dimensions; the model takes %s",
                            tensor->name, shape->via.array.size, expected);
    for (int i = 0; i < tensor->shape.rank; i++) {
        const msgpack_object *dim = &shape->via.array.ptr[i];

        if (dim->type != MSGPACK_OBJECT_POSITIVE_INTEGER || dim->via.u64 > INT64_MAX)
            return sy_error_set(SY_EARG, "input \"%s\": dimension %d is no length", tensor->name,
                                i);
        dims[i] = (int64_t)dim->via.u64;
    }
    given->rank = tensor->shape.rank;
    given->dims = dims;
    return SY_OK;
}

static int check_batch(const struct sy_tensor *tensor, const int64_t *dims)
{
    for (int i = 0; i < tensor->shape.rank; i++)
        if (tensor->shape.dims[i].per_batch == 1 && tensor->shape.dims[i].fixed == 0 &&
            (dims[i] < 1 || dims[i] > SY_RPC_MAX_BATCH))
            return sy_error_set(SY_EARG,
                                "input \"%s\" is a batch of %" PRId64 "; 1 to %d are possible",
                                tensor->name, dims[i], SY_RPC_MAX_BATCH);
    return SY_OK;
}

/* As many bytes as shape and dtype say; so what is claimed is bounded by what came. */
static int check_data(const struct sy_tensor *tensor, const struct sy_given_input *given,
                      const msgpack_object *data)
{
    uint64_t bytes = sy_dtype_bytes(tensor->dtype);
    bool counts = true;

    for (int i = 0; i < given->rank; i++)
        counts = !__builtin_mul_overflow(bytes, (uint64_t)given->dims[i], &bytes) && counts;
    if (!counts)
        return sy_error_set(SY_EARG, "input \"%s\" has a shape of more bytes than can be counted",
                            tensor->name);
    if (data->via.bin.size != bytes)
        return sy_error_set(SY_EARG,
                            "input \"%s\" has %u bytes of data; its shape and dtype need %" PRIu64,
                            tensor->name, data->via.bin.size, bytes);
    return SY_OK;
}

static int check_input(struct sy_rpc_infer *infer, const msgpack_object *map,
                       struct sy_rpc_infer_inputs *inputs)
{
    const msgpack_object *data = sy_rpc_get(map, "data");
    const struct sy_tensor *tensor;
    struct sy_given_input *given;
    char name[256];
    int index;

    SY_TRY(sy_rpc_infer_read_text(map, "name", name, sizeof(name)));
    SY_TRY(find_input(infer->graph, name, &index));
    if (inputs->data[index])
        return sy_error_set(SY_EARG, "input \"%s\" is given twice", name);
    tensor = &infer->graph->tensors[infer->graph->inputs[index]];
    SY_TRY(check_dtype(tensor, map));
    if (!data || data->type != MSGPACK_OBJECT_BIN)
        return sy_error_set(SY_EARG, "input \"%s\": \"data\" is missing or no bin", tensor->name);
    given = &inputs->given[inputs->n++];
    given->input = index;
    SY_TRY(read_shape(tensor, map, given, inputs->dims[index]));
    SY_TRY(check_batch(tensor, given->dims));
    inputs->data[index] = data;
    return SY_OK;
}

/* Batch and sizes from all shapes together. */
static int solve_sizes(struct sy_rpc_infer *infer, const struct sy_rpc_infer_inputs *inputs)
{
    SY_TRY(sy_graph_solve(infer->graph, inputs->n, inputs->given, &infer->batch, &infer->sizes));
    if (infer->batch < 1 || infer->batch > SY_RPC_MAX_BATCH)
        return sy_error_set(SY_EARG, "the inputs are a batch of %" PRId64 "; 1 to %d are possible",
                            infer->batch, SY_RPC_MAX_BATCH);
    for (int i = 0; i < inputs->n; i++) {
        int input = inputs->given[i].input;

        SY_TRY(check_data(&infer->graph->tensors[infer->graph->inputs[input]], &inputs->given[i],
                          inputs->data[input]));
    }
    return SY_OK;
}

int sy_rpc_infer_check_inputs(struct sy_rpc_infer *infer, const msgpack_object *params,
                              struct sy_rpc_infer_inputs *inputs)
{
    const msgpack_object *list = sy_rpc_get(params, "inputs");

    if (!list || list->type != MSGPACK_OBJECT_ARRAY)
        return sy_error_set(SY_EARG, "\"inputs\" is missing or no array");
    for (uint32_t i = 0; i < list->via.array.size; i++)
        SY_TRY(check_input(infer, &list->via.array.ptr[i], inputs));
    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (!inputs->data[i])
            return sy_error_set(SY_EARG, "input \"%s\" is missing; the model \"%s\" has %d inputs",
                                infer->graph->tensors[infer->graph->inputs[i]].name, infer->model,
                                infer->graph->n_inputs);
    return solve_sizes(infer, inputs);
}

int sy_rpc_infer_read_options(struct sy_rpc_infer *infer, const msgpack_object *params)
{
    const msgpack_object *class_ = sy_rpc_get(params, "class"),
                         *deadline = sy_rpc_get(params, "deadline_ms"),
                         *tenant = sy_rpc_get(params, "tenant");
    double ms = 0;

    infer->options = (struct sy_core_infer_options){
        .class_ = SY_CORE_USUAL_CLASS, .sizes = infer->graph->n_symbols > 0 ? &infer->sizes : NULL};
    if (deadline && deadline->type == MSGPACK_OBJECT_NIL)
        deadline = NULL;
    if (class_ && (class_->type != MSGPACK_OBJECT_POSITIVE_INTEGER || class_->via.u64 > INT32_MAX))
        return sy_error_set(SY_EARG, "\"class\": a whole number, 0 for the most urgent");
    if (class_)
        infer->options.class_ = (int)class_->via.u64;
    if (deadline && deadline->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
        ms = (double)deadline->via.u64;
    else if (deadline &&
             (deadline->type == MSGPACK_OBJECT_FLOAT32 || deadline->type == MSGPACK_OBJECT_FLOAT64))
        ms = deadline->via.f64;
    if (deadline && !(ms > 0 && ms <= SWITCHYARD_MAX_DEADLINE_MS))
        return sy_error_set(SY_EARG, "\"deadline_ms\": a number above 0, at most %g",
                            SWITCHYARD_MAX_DEADLINE_MS);
    infer->options.deadline_ns = (sy_ns)(ms * 1e6);
    if (!tenant)
        return SY_OK;
    SY_TRY(sy_rpc_infer_read_text(params, "tenant", infer->tenant, sizeof(infer->tenant)));
    infer->options.tenant = infer->tenant;
    return SY_OK;
}

static bool is_word(const msgpack_object *key, const char *word)
{
    return key->type == MSGPACK_OBJECT_STR && key->via.str.size == strlen(word) &&
           memcmp(key->via.str.ptr, word, key->via.str.size) == 0;
}

int sy_rpc_infer_check_keys(const msgpack_object *params)
{
    static const char *const known[] = {"model", "inputs", "class", "deadline_ms", "tenant", NULL};

    for (uint32_t i = 0; params->type == MSGPACK_OBJECT_MAP && i < params->via.map.size; i++) {
        const msgpack_object *key = &params->via.map.ptr[i].key;
        bool is_text = key->type == MSGPACK_OBJECT_STR;
        int k = 0;

        while (known[k] && !is_word(key, known[k]))
            k++;
        if (!known[k])
            return sy_error_set(SY_EARG,
                                "infer has no parameter \"%.*s\"; it has model, inputs, class, "
                                "deadline_ms and tenant",
                                is_text ? (int)SY_MIN(key->via.str.size, 60u) : 0,
                                is_text ? key->via.str.ptr : "");
    }
    return SY_OK;
}

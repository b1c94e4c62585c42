/* An inference request's JSON, key by key (Open Inference Protocol, with Triton's extensions for binary data, shared memory and classification). */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_infer_internal.h"
#include "runtime/front/request/front_strings.h"
#include "runtime/front/request/infer_parameters.h"

int sy_http_read_version(const char *text, int64_t *out)
{
    size_t n = text ? strlen(text) : 0;

    *out = 0;
    if (!text)
        return SY_OK;
    if (n < 1 || n > 18 || strspn(text, "0123456789") != n || (*out = atoll(text)) < 1)
        return sy_error_set(SY_EARG,
                            "failed to get model version from specified version string "
                            "'%.40s': a whole number above 0",
                            text);
    return SY_OK;
}

void sy_http_infer_expect_raw(struct sy_http_infer *infer, uint64_t bytes)
{
    infer->is_raw = true;
    infer->raw_bytes = bytes;
    if (bytes == 0)
        infer->header_bytes = UINT64_MAX; /* its length is known once it is there */
}

/* ---- small things ---- */

static int take_arrays(struct sy_http_infer *infer)
{
    const struct sy_graph *graph = sy_front_infer_model(infer->request)->package->graph;
    size_t n_in = (size_t)graph->n_inputs, n_out = (size_t)graph->n_outputs;
    char *block = calloc(1, n_in * sizeof(*infer->inputs) + n_out * sizeof(*infer->outputs) +
                                n_out * (sizeof(*infer->tensors) + sizeof(*infer->cuts)) + 1);

    SY_TRY_ALLOC(block, "no memory for a request");
    infer->inputs = (struct sy_http_infer_input *)block;
    infer->outputs = (struct sy_http_infer_output *)(infer->inputs + n_in);
    infer->tensors = (struct sy_http_segment *)(infer->outputs + n_out);
    infer->cuts = (uint64_t *)(infer->tensors + n_out);
    return SY_OK;
}

static int need_string(const json_t *object, const char *key, const char *of, const char **out)
{
    *out = json_string_value(json_object_get(object, key));
    return *out ? SY_OK : sy_error_set(SY_EARG, "%s: \"%s\" is missing or not a string", of, key);
}

/* A whole number of at least 0; absent: `usual`. */
static int read_size(const json_t *parameters, const char *key, uint64_t usual, uint64_t *out)
{
    const json_t *value = json_object_get(parameters, key);

    *out = usual;
    if (!value)
        return SY_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return sy_error_set(SY_EARG, "the parameter \"%s\" is not a whole number from 0 on", key);
    *out = (uint64_t)json_integer_value(value);
    return SY_OK;
}

static int read_bool(const json_t *parameters, const char *key, bool usual, bool *out)
{
    const json_t *value = json_object_get(parameters, key);

    *out = value ? json_is_true(value) : usual;
    if (value && !json_is_boolean(value))
        return sy_error_set(SY_EARG, "the parameter \"%s\" is neither true nor false", key);
    return SY_OK;
}

/* ---- inputs ---- */

static int read_shape(const json_t *input, const char *name, int64_t dims[SY_MAX_RANK], int *rank)
{
    const json_t *shape = json_object_get(input, "shape"), *dim;
    size_t i;

    if (!json_is_array(shape))
        return sy_error_set(SY_EARG, "input \"%s\": \"shape\" is missing or not an array", name);
    if (json_array_size(shape) > SY_MAX_RANK)
        return sy_error_set(SY_EARG, "input \"%s\" has %zu dimensions; at most %d are possible",
                            name, json_array_size(shape), SY_MAX_RANK);
    json_array_foreach(shape, i, dim)
    {
        if (!json_is_integer(dim))
            return sy_error_set(SY_EARG, "input \"%s\": dimension %zu is not a whole number", name,
                                i);
        dims[i] = json_integer_value(dim);
    }
    *rank = (int)json_array_size(shape);
    return SY_OK;
}

static int place_input(struct sy_http_infer *infer, struct sy_http_infer_input *input,
                       const json_t *parameters, const char *region)
{
    SY_TRY(read_size(parameters, "shared_memory_offset", 0, &input->place.offset));
    SY_TRY(read_size(parameters, "shared_memory_byte_size", UINT64_MAX, &input->place.bytes));
    if (input->place.bytes == UINT64_MAX)
        return sy_error_set(SY_EARG, "input \"%s\": \"shared_memory_byte_size\" is missing",
                            input->name);
    input->source = SY_HTTP_REGION;
    input->bytes = input->place.bytes;
    return sy_infer_region_input(infer->server->front, infer->request, input->index, region,
                                 &input->place);
}

/* The parameters of an input or output; *out is NULL where it has none. */
static int read_parameters(const json_t *of, const char *name, const json_t **out)
{
    *out = json_object_get(of, "parameters");
    return !*out || json_is_object(*out)
               ? SY_OK
               : sy_error_set(SY_EARG, "\"%s\": \"parameters\" is not an object", name);
}

static int read_region(const json_t *parameters, const char *name, const char **out)
{
    const json_t *region = json_object_get(parameters, "shared_memory_region");

    *out = json_string_value(region);
    return !region || *out
               ? SY_OK
               : sy_error_set(SY_EARG, "\"%s\": \"shared_memory_region\" is not a string", name);
}

/* The source of its bytes: exactly one of "data", binary data, shared memory. */
static int read_source(struct sy_http_infer *infer, struct sy_http_infer_input *input,
                       const json_t *json)
{
    const json_t *parameters, *data = json_object_get(json, "data"), *binary;
    const char *region;

    SY_TRY(read_parameters(json, input->name, &parameters));
    SY_TRY(read_region(parameters, input->name, &region));
    binary = json_object_get(parameters, "binary_data_size");
    int n = (data != NULL) + (binary != NULL) + (region != NULL);
    if (n != 1)
        return sy_error_set(SY_EARG,
                            "input \"%s\" has %s; it takes one of \"data\" and the parameters "
                            "\"binary_data_size\" and \"shared_memory_region\"",
                            input->name, n == 0 ? "no data" : "its data twice");
    if (region)
        return place_input(infer, input, parameters, region);
    if (binary) {
        input->source = SY_HTTP_BINARY;
        return read_size(parameters, "binary_data_size", 0, &input->bytes);
    }
    input->source = SY_HTTP_JSON;
    input->cut = json_is_integer(data) ? json_integer_value(data) : -1;
    if (input->cut < 0 || input->cut >= infer->json.n_cuts)
        return sy_error_set(SY_EARG, "input \"%s\": \"data\" is not an array", input->name);
    return SY_OK;
}

static int read_input(struct sy_http_infer *infer, const json_t *json)
{
    const struct sy_graph *graph = sy_front_infer_model(infer->request)->package->graph;
    struct sy_http_infer_input *input = &infer->inputs[infer->n_inputs];
    const char *name, *dtype;
    int64_t dims[SY_MAX_RANK];
    int rank;

    if (!json_is_object(json))
        return sy_error_set(SY_EARG, "an element of \"inputs\" is not an object");
    SY_TRY(need_string(json, "name", "an input", &name));
    SY_TRY(need_string(json, "datatype", name, &dtype));
    SY_TRY(read_shape(json, name, dims, &rank));
    SY_TRY(sy_front_infer_add_input(infer->request, name, dtype, rank, dims, &input->index));
    input->name = graph->tensors[graph->inputs[input->index]].name;
    infer->n_inputs++; /* at most as many as the model has: add_input refuses duplicates */
    return read_source(infer, input, json);
}

/* Checks the bytes that came, or were announced, against the shape. */
static int announce_strings(struct sy_http_infer *infer, struct sy_http_infer_input *input)
{
    uint64_t n = (uint64_t)sy_front_infer_elements(infer->request, input->index);

    if (input->source == SY_HTTP_JSON)
        input->bytes = sy_strings_json_bytes(&infer->json.cuts[input->cut], n);
    return sy_front_infer_announce_strings(infer->request, input->index, input->bytes);
}

static int check_bytes(struct sy_http_infer *infer)
{
    for (int i = 0; i < infer->n_inputs; i++) {
        struct sy_http_infer_input *input = &infer->inputs[i];
        if (sy_front_infer_has_strings(infer->request, input->index)) {
            input->dtype = SY_DTYPE_STRING;
            SY_TRY(announce_strings(infer, input));
            continue;
        }
        uint64_t wanted = sy_front_infer_input_bytes(infer->request, input->index);
        bool is_short =
            input->source == SY_HTTP_REGION ? input->bytes < wanted : input->bytes != wanted;

        input->dtype = sy_front_infer_input_dtype(infer->request, input->index);
        if (input->source == SY_HTTP_JSON) {
            uint64_t least = 2 * (wanted / sy_dtype_bytes(input->dtype)); /* a digit and a comma */

            if (infer->json.cuts[input->cut].bytes + 2 < least)
                return sy_tensor_json_few(&infer->json.cuts[input->cut], input->name, input->dtype);
        } else if (is_short) {
            return sy_error_set(
                SY_EARG, "input \"%s\" has %llu bytes of data; its shape and datatype need %llu",
                input->name, (unsigned long long)input->bytes, (unsigned long long)wanted);
        }
        input->bytes = wanted;
    }
    return SY_OK;
}

/* ---- outputs ---- */

static int place_output(struct sy_http_infer *infer, struct sy_http_infer_output *output,
                        const json_t *parameters)
{
    SY_TRY(read_size(parameters, "shared_memory_offset", 0, &output->place.offset));
    SY_TRY(read_size(parameters, "shared_memory_byte_size", UINT64_MAX, &output->place.bytes));
    if (output->classes > 0)
        return sy_error_set(SY_EUNSUPPORTED, "classes cannot be written to shared memory");
    if (output->place.bytes == UINT64_MAX)
        return sy_error_set(SY_EARG,
                            "an output in shared memory needs \"shared_memory_byte_size\"");
    return sy_infer_region_output(infer->server->front, infer->request, output->index,
                                  output->region, &output->place);
}

static int read_output(struct sy_http_infer *infer, const json_t *json, bool binary)
{
    const json_t *parameters;
    struct sy_http_infer_output *output = &infer->outputs[infer->n_outputs];
    const char *name;
    uint64_t classes;
    int index;

    SY_TRY(need_string(json, "name", "an output", &name));
    SY_TRY(read_parameters(json, name, &parameters));
    SY_TRY(sy_front_infer_find_output(infer->request, name, &index));
    for (int i = 0; i < infer->n_outputs; i++)
        if (infer->outputs[i].index == index)
            return sy_error_set(SY_EARG, "output \"%s\" is asked for twice", name);
    output->index = index;
    infer->n_outputs++;
    SY_TRY(read_bool(parameters, "binary_data", binary, &output->binary));
    SY_TRY(read_size(parameters, "classification", 0, &classes));
    output->classes = (int64_t)SY_MIN(classes, (uint64_t)INT64_MAX);
    SY_TRY(read_region(parameters, name, &output->region));
    return output->region ? place_output(infer, output, parameters) : SY_OK;
}

static int read_outputs(struct sy_http_infer *infer, const json_t *root)
{
    const json_t *list = json_object_get(root, "outputs"), *output;
    size_t i;
    bool binary;

    SY_TRY(read_bool(json_object_get(root, "parameters"), "binary_data_output", infer->is_raw,
                     &binary));
    json_array_foreach(list, i, output) SY_TRY(read_output(infer, output, binary));
    if (list && !json_is_array(list))
        return sy_error_set(SY_EARG, "\"outputs\" is not an array");
    if (infer->n_outputs > 0)
        return SY_OK;
    infer->n_outputs = 0;
    for (int o = 0; o < sy_front_infer_n_outputs(infer->request); o++)
        if (!sy_front_infer_is_kept(infer->request, o))
            infer->outputs[infer->n_outputs++] =
                (struct sy_http_infer_output){.index = o, .binary = binary};
    return SY_OK;
}

/* ---- the request ---- */

/* The body is the model's one input; its size determines the one open dimension. */
static int read_raw(struct sy_http_infer *infer)
{
    const struct sy_graph *graph = sy_front_infer_model(infer->request)->package->graph;
    struct sy_http_infer_input *input = &infer->inputs[0];
    const struct sy_tensor *tensor = &graph->tensors[graph->inputs[0]];
    int64_t dims[SY_MAX_RANK];
    uint64_t each = graph->n_inputs == 1 && tensor->dtype != SY_DTYPE_STRING
                        ? sy_dtype_bytes(tensor->dtype)
                        : 0;
    int open = -1;

    for (int d = 0; each > 0 && d < tensor->shape.rank; d++) {
        if (sy_dim_is_number(tensor->shape.dims[d])) {
            dims[d] = tensor->shape.dims[d].fixed;
            each *= (uint64_t)dims[d];
        } else {
            each = open >= 0 ? 0 : each;
            open = d;
        }
    }
    if (each == 0 || infer->raw_bytes % each != 0)
        return sy_error_set(SY_EARG,
                            "a body without JSON is for models of one input with at most one open "
                            "dimension, of which %llu bytes are whole rows",
                            (unsigned long long)infer->raw_bytes);
    if (open >= 0)
        dims[open] = (int64_t)(infer->raw_bytes / each);
    SY_TRY(sy_front_infer_add_input(infer->request, tensor->name, sy_dtype_wire_name(tensor->dtype),
                                    tensor->shape.rank, dims, &input->index));
    *input = (struct sy_http_infer_input){
        .name = tensor->name, .source = SY_HTTP_BINARY, .bytes = infer->raw_bytes};
    infer->n_inputs = 1;
    return SY_OK;
}

static int read_inputs(struct sy_http_infer *infer, const json_t *root)
{
    const json_t *list = json_object_get(root, "inputs"), *input;
    size_t i;

    if (!json_is_array(list))
        return sy_error_set(SY_EARG, "\"inputs\" is missing or not an array");
    json_array_foreach(list, i, input) SY_TRY(read_input(infer, input));
    return SY_OK;
}

static int read_options(struct sy_http_infer *infer, const json_t *root)
{
    const json_t *parameters = json_object_get(root, "parameters"),
                 *id = json_object_get(root, "id");
    const char *tenant = sy_http_call_header(infer->call, "switchyard-tenant");

    if (id && !json_is_string(id))
        return sy_error_set(SY_EARG, "\"id\" is not a string");
    infer->id = json_string_value(id);
    sy_front_infer_set_trace(infer->request, "http", infer->received_ns,
                             sy_http_call_header(infer->call, "traceparent"),
                             sy_http_call_header(infer->call, "tracestate"));
    SY_TRY(sy_access_tenant(&infer->call->grant, tenant, &tenant));
    if (*tenant)
        SY_TRY(sy_front_infer_set_tenant(infer->request, tenant));
    return parameters ? sy_infer_parameters_set(infer->request, parameters) : SY_OK;
}

/* A request that the slab can never hold is too large, for whatever reason. */
static int prepare(struct sy_http_infer *infer)
{
    int status = sy_front_infer_prepare(infer->request);

    return status == SY_ENOMEM_HOST ? SY_ETOOBIG : status;
}

int sy_http_infer_read(struct sy_http_infer *infer)
{
    json_t *root = infer->json.root;

    SY_TRY(take_arrays(infer));
    SY_TRY(infer->is_raw ? read_raw(infer) : read_inputs(infer, root));
    SY_TRY(read_options(infer, root));
    SY_TRY(read_outputs(infer, root));
    SY_TRY(sy_front_infer_solve(infer->request));
    SY_TRY(check_bytes(infer));
    SY_TRY(prepare(infer));
    for (int i = 0; i < infer->n_inputs; i++)
        infer->inputs[i].to = sy_front_infer_input_data(infer->request, infer->inputs[i].index);
    return SY_OK;
}

uint64_t sy_http_infer_convert_bytes(const struct sy_http_infer *infer)
{
    uint64_t bytes = infer->header_bytes;

    for (int i = 0; i < infer->n_inputs; i++)
        bytes += infer->inputs[i].place.is_copied ? infer->inputs[i].bytes / 16 : 0;
    return bytes;
}

int sy_http_infer_convert(struct sy_http_infer *infer)
{
    for (int i = 0; i < infer->n_inputs; i++) {
        const struct sy_http_infer_input *input = &infer->inputs[i];

        if (input->source == SY_HTTP_JSON && input->dtype == SY_DTYPE_STRING)
            SY_TRY(sy_strings_from_json(
                &infer->json.cuts[input->cut], input->name,
                (uint64_t)sy_front_infer_elements(infer->request, input->index), input->to));
        else if (input->source == SY_HTTP_JSON)
            SY_TRY(sy_tensor_from_json(&infer->json.cuts[input->cut], input->name, input->dtype,
                                       input->bytes / sy_dtype_bytes(input->dtype), input->to));
        if (input->place.is_copied)
            SY_TRY(sy_infer_region_read(&input->place, input->to, input->bytes));
    }
    sy_body_buffer_forget(&infer->text, infer->header_bytes);
    return SY_OK;
}

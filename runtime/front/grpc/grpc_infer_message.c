#include "runtime/front/grpc/grpc_infer_message.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* Field numbers of ModelInferRequest and what it holds. */
enum { MODEL_NAME = 1, MODEL_VERSION, ID, PARAMETERS, INPUTS, OUTPUTS, RAW = SY_GRPC_RAW_INPUT };
enum { INPUT_NAME = 1, INPUT_DATATYPE, INPUT_SHAPE, INPUT_PARAMETERS, INPUT_CONTENTS };
enum { OUTPUT_NAME = 1, OUTPUT_PARAMETERS };
enum { PARAM_BOOL = 1, PARAM_INT64, PARAM_STRING, PARAM_DOUBLE, PARAM_UINT64 };

static int bad_wire(const char *what)
{
    return sy_error_set(SY_EARG, "%s is not a protobuf message of its type", what);
}

/* ---- parameters ---------------------------------------------------------------------------------------------- */

struct parameter {
    struct sy_grpc_bytes key;
    uint32_t kind; /* PARAM_...; 0: no value */
    uint64_t number;
    struct sy_grpc_bytes text;
};

static int read_choice(struct sy_grpc_bytes bytes, struct parameter *out)
{
    struct sy_grpc_field field;
    int got;

    while ((got = sy_grpc_wire_next(&bytes, &field)) == SY_GRPC_FIELD) {
        out->kind = field.number;
        out->number = field.value;
        out->text = field.bytes;
        if (field.number == PARAM_STRING && field.type != SY_GRPC_BYTES)
            return bad_wire("a parameter");
    }
    return got == SY_GRPC_END ? SY_OK : bad_wire("a parameter");
}

/* One entry of a map<string, InferParameter>. */
static int read_parameter(struct sy_grpc_bytes entry, struct parameter *out)
{
    struct sy_grpc_field field;
    int got;

    *out = (struct parameter){0};
    while ((got = sy_grpc_wire_next(&entry, &field)) == SY_GRPC_FIELD) {
        if (field.type != SY_GRPC_BYTES)
            return bad_wire("a parameter");
        if (field.number == 1)
            out->key = field.bytes;
        else if (field.number == 2)
            SY_TRY(read_choice(field.bytes, out));
    }
    return got == SY_GRPC_END ? SY_OK : bad_wire("a parameter");
}

/* A whole number of 0 or more, by whichever type the client sends it. */
static int whole_number(const struct parameter *parameter, const char *name, uint64_t *out)
{
    bool fits = parameter->kind == PARAM_UINT64 ||
                (parameter->kind == PARAM_INT64 && (int64_t)parameter->number >= 0);

    if (parameter->kind == PARAM_STRING) {
        fits = parameter->text.n > 0 && parameter->text.n < 20;
        *out = 0;
        for (size_t i = 0; i < parameter->text.n && fits; i++) {
            fits = parameter->text.data[i] >= '0' && parameter->text.data[i] <= '9';
            *out = *out * 10 + (uint64_t)(parameter->text.data[i] - '0');
        }
    } else {
        *out = parameter->number;
    }
    return fits ? SY_OK
                : sy_error_set(SY_EARG, "parameter \"%s\" must be a whole number of 0 or more",
                               name);
}

static bool is_set(const struct parameter *parameter)
{
    return parameter->kind == PARAM_STRING ? parameter->text.n > 0 : parameter->number != 0;
}

static int take_region_parameter(const struct parameter *parameter, struct sy_grpc_region_view *out)
{
    if (sy_grpc_bytes_equal(parameter->key, "shared_memory_region")) {
        if (parameter->kind != PARAM_STRING || parameter->text.n == 0)
            return sy_error_set(SY_EARG, "parameter \"shared_memory_region\" must be a name");
        out->name = parameter->text;
        return SY_OK;
    }
    if (sy_grpc_bytes_equal(parameter->key, "shared_memory_offset"))
        return whole_number(parameter, "shared_memory_offset", &out->offset);
    if (sy_grpc_bytes_equal(parameter->key, "shared_memory_byte_size"))
        return whole_number(parameter, "shared_memory_byte_size", &out->bytes);
    return SY_OK;
}

/* ---- the request --------------------------------------------------------------------------------------------- */

static int take_request_field(const struct sy_grpc_field *field, struct sy_grpc_request_view *out)
{
    struct parameter parameter;

    if (field->type != SY_GRPC_BYTES) /* all fields that it has are; others are of no use here */
        return field->number <= RAW ? bad_wire("the request") : SY_OK;
    switch (field->number) {
    case MODEL_NAME:
        out->model = field->bytes;
        break;
    case MODEL_VERSION:
        out->version = field->bytes;
        break;
    case ID:
        out->id = field->bytes;
        break;
    case PARAMETERS:
        SY_TRY(read_parameter(field->bytes, &parameter));
        out->n_parameters++;
        if (sy_grpc_bytes_equal(parameter.key, "triton_enable_empty_final_response"))
            out->wants_final = is_set(&parameter);
        break;
    case INPUTS:
        out->n_inputs++;
        break;
    case OUTPUTS:
        out->n_outputs++;
        break;
    case RAW:
        out->n_raw++;
        break;
    default:
        break;
    }
    return SY_OK;
}

int sy_grpc_request_read(struct sy_grpc_bytes message, struct sy_grpc_request_view *out)
{
    struct sy_grpc_field field;
    int got;

    *out = (struct sy_grpc_request_view){0};
    while ((got = sy_grpc_wire_next(&message, &field)) == SY_GRPC_FIELD) {
        SY_TRY(take_request_field(&field, out));
        if (out->n_inputs > SY_MAX_ENDS || out->n_outputs > SY_MAX_ENDS ||
            out->n_raw > SY_MAX_ENDS || out->n_parameters > SY_MAX_ENDS)
            return sy_error_set(
                SY_EARG, "the request has more than %d inputs, outputs or parameters", SY_MAX_ENDS);
    }
    return got == SY_GRPC_END ? SY_OK : bad_wire("the request");
}

bool sy_grpc_request_head(struct sy_grpc_bytes begun, size_t *at)
{
    struct sy_grpc_bytes rest = {begun.data + *at, begun.n - *at};
    struct sy_grpc_field field;
    int got;

    while ((got = sy_grpc_wire_next(&rest, &field)) == SY_GRPC_FIELD && field.number != RAW)
        *at = begun.n - rest.n;
    return (got == SY_GRPC_FIELD || got == SY_GRPC_MORE) && field.number == RAW &&
           field.type == SY_GRPC_BYTES;
}

/* The next field of this number; END when there is none. */
static int next_of(struct sy_grpc_bytes *at, uint32_t number, struct sy_grpc_bytes *out)
{
    struct sy_grpc_field field;
    int got;

    while ((got = sy_grpc_wire_next(at, &field)) == SY_GRPC_FIELD)
        if (field.number == number && field.type == SY_GRPC_BYTES) {
            *out = field.bytes;
            return SY_GRPC_FIELD;
        }
    return got == SY_GRPC_END ? SY_GRPC_END : bad_wire("the request");
}

/* Integers of JSON end at 2^63 - 1. An id of a sequence above becomes the text of its digits, so that no two ids become one; other numbers are clamped. */
static json_t *unsigned_value(struct sy_grpc_bytes key, uint64_t number)
{
    if (number > INT64_MAX && sy_grpc_bytes_equal(key, "sequence_id"))
        return json_sprintf("%" PRIu64, number);
    return json_integer((json_int_t)SY_MIN(number, (uint64_t)INT64_MAX));
}

static json_t *parameter_value(const struct parameter *parameter)
{
    double real;

    switch (parameter->kind) {
    case PARAM_BOOL:
        return json_boolean(parameter->number != 0);
    case PARAM_INT64:
        return json_integer((json_int_t)parameter->number);
    case PARAM_UINT64:
        return unsigned_value(parameter->key, parameter->number);
    case PARAM_DOUBLE:
        memcpy(&real, &parameter->number, sizeof real);
        return json_real(real);
    case PARAM_STRING:
        return json_stringn((const char *)parameter->text.data, parameter->text.n);
    default:
        return json_null();
    }
}

static int add_parameter(json_t *to, struct sy_grpc_bytes entry)
{
    struct parameter parameter;
    char key[64];

    SY_TRY(read_parameter(entry, &parameter));
    if (!sy_grpc_bytes_copy(parameter.key, key, sizeof key))
        return SY_OK; /* longer than any that means something */
    if (json_object_set_new(to, key, parameter_value(&parameter)))
        return sy_error_set(SY_EARG, "a parameter's name or value is not UTF-8, or not a number");
    return SY_OK;
}

int sy_grpc_request_parameters(struct sy_grpc_bytes message, json_t **out)
{
    struct sy_grpc_bytes entry;
    json_t *parameters = json_object();
    int got = SY_GRPC_FIELD;

    SY_TRY_ALLOC(parameters, "no memory for parameters");
    while (got == SY_GRPC_FIELD) {
        got = next_of(&message, PARAMETERS, &entry);
        if (got == SY_GRPC_FIELD && add_parameter(parameters, entry) < 0)
            got = SY_EARG;
    }
    if (got < 0) {
        json_decref(parameters);
        return got;
    }
    *out = parameters;
    return SY_OK;
}

static int add_dim(struct sy_grpc_input_view *input, uint64_t dim)
{
    if (input->rank == SY_MAX_RANK)
        return sy_error_set(SY_EARG, "input \"%.*s\" has more than %d dimensions",
                            (int)SY_MIN(input->name.n, (size_t)200), (const char *)input->name.data,
                            SY_MAX_RANK);
    input->dims[input->rank++] = (int64_t)dim;
    return SY_OK;
}

/* Packed, or one by one. */
static int take_shape(const struct sy_grpc_field *field, struct sy_grpc_input_view *input)
{
    struct sy_grpc_bytes rest = field->bytes;
    uint64_t dim;

    if (field->type == SY_GRPC_VARINT)
        return add_dim(input, field->value);
    while (field->type == SY_GRPC_BYTES && rest.n > 0) {
        if (sy_grpc_wire_varint(&rest, &dim) != SY_GRPC_FIELD)
            return bad_wire("a shape");
        SY_TRY(add_dim(input, dim));
    }
    return field->type == SY_GRPC_BYTES ? SY_OK : bad_wire("a shape");
}

static int take_input_field(const struct sy_grpc_field *field, struct sy_grpc_input_view *input)
{
    struct parameter parameter;

    if (field->number == INPUT_SHAPE)
        return take_shape(field, input);
    if (field->type != SY_GRPC_BYTES)
        return field->number <= INPUT_CONTENTS ? bad_wire("an input") : SY_OK;
    switch (field->number) {
    case INPUT_NAME:
        input->name = field->bytes;
        break;
    case INPUT_DATATYPE:
        input->datatype = field->bytes;
        break;
    case INPUT_PARAMETERS:
        SY_TRY(read_parameter(field->bytes, &parameter));
        return take_region_parameter(&parameter, &input->region);
    case INPUT_CONTENTS:
        if (input->has_contents)
            return sy_error_set(SY_EARG, "an input has contents twice");
        input->has_contents = true;
        input->contents = field->bytes;
        break;
    default:
        break;
    }
    return SY_OK;
}

int sy_grpc_request_next_input(struct sy_grpc_bytes *at, struct sy_grpc_input_view *out)
{
    struct sy_grpc_bytes bytes;
    struct sy_grpc_field field;
    int got = next_of(at, INPUTS, &bytes);

    *out = (struct sy_grpc_input_view){0};
    if (got != SY_GRPC_FIELD)
        return got;
    while ((got = sy_grpc_wire_next(&bytes, &field)) == SY_GRPC_FIELD)
        SY_TRY(take_input_field(&field, out));
    return got == SY_GRPC_END ? SY_GRPC_FIELD : bad_wire("an input");
}

static int take_output_parameter(const struct parameter *parameter, struct sy_grpc_output_view *out)
{
    if (sy_grpc_bytes_equal(parameter->key, "classification"))
        return whole_number(parameter, "classification", &out->classes);
    return take_region_parameter(parameter, &out->region);
}

int sy_grpc_request_next_output(struct sy_grpc_bytes *at, struct sy_grpc_output_view *out)
{
    struct parameter parameter;
    struct sy_grpc_bytes bytes;
    struct sy_grpc_field field;
    int got = next_of(at, OUTPUTS, &bytes);

    *out = (struct sy_grpc_output_view){0};
    if (got != SY_GRPC_FIELD)
        return got;
    while ((got = sy_grpc_wire_next(&bytes, &field)) == SY_GRPC_FIELD) {
        if (field.type != SY_GRPC_BYTES)
            return bad_wire("an output");
        if (field.number == OUTPUT_NAME)
            out->name = field.bytes;
        if (field.number == OUTPUT_PARAMETERS) {
            SY_TRY(read_parameter(field.bytes, &parameter));
            SY_TRY(take_output_parameter(&parameter, out));
        }
    }
    return got == SY_GRPC_END ? SY_GRPC_FIELD : bad_wire("an output");
}

int sy_grpc_request_next_raw(struct sy_grpc_bytes *at, struct sy_grpc_bytes *out)
{
    return next_of(at, RAW, out);
}

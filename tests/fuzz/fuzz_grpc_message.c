/* Messages of gRPC clients: an inference request read where it lies, in pieces and whole, and messages as JSON.
 *
 * input = [kind] bytes of a message. Kind: 0..3: an inference request; then a small message of a type by kind; from 200 on JSON; else compressed bytes. What protobuf-c reads too must be the same. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "grpc_service.pb-c.h"
#include "health.pb-c.h"
#include "reflection_v1.pb-c.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_gzip.h"
#include "runtime/front/grpc/grpc_infer_message.h"
#include "runtime/front/grpc/grpc_json.h"
#include "tests/fuzz/fuzz.h"

static const ProtobufCMessageDescriptor *const types[] = {
    &inference__model_config__descriptor,
    &inference__repository_model_load_request__descriptor,
    &inference__trace_setting_request__descriptor,
    &inference__log_settings_request__descriptor,
    &inference__model_statistics_response__descriptor,
    &inference__system_shared_memory_register_request__descriptor,
    &grpc__reflection__v1__server_reflection_request__descriptor,
    &grpc__health__v1__health_check_request__descriptor,
};
#define N_TYPES (sizeof types / sizeof *types)
#define TEXTS   200u /* from this kind on: JSON of a type */

static void read_tensors(struct sy_grpc_bytes message, const struct sy_grpc_request_view *view)
{
    struct sy_grpc_bytes inputs = message, outputs = message, raws = message, raw;
    struct sy_grpc_input_view input;
    struct sy_grpc_output_view output;
    static uint8_t tensor[8 * 64];
    int n = 0;

    while (sy_grpc_request_next_raw(&raws, &raw) == SY_GRPC_FIELD) {
        FUZZ_CHECK(raw.data >= message.data && raw.data + raw.n <= message.data + message.n);
        n++;
    }
    FUZZ_CHECK(n == view->n_raw);
    while (sy_grpc_request_next_output(&outputs, &output) == SY_GRPC_FIELD)
        FUZZ_CHECK(output.name.n <= message.n);
    while (sy_grpc_request_next_input(&inputs, &input) == SY_GRPC_FIELD) {
        FUZZ_CHECK(input.rank <= SY_MAX_RANK);
        for (int dtype = 1; dtype <= 16; dtype++)
            if (input.has_contents && sy_dtype_bytes((enum sy_dtype)dtype) > 0)
                sy_grpc_contents_read(input.contents, "x", (enum sy_dtype)dtype,
                                      (uint64_t)dtype % 5, tensor);
    }
}

/* What one says of the message the other must say too. */
static void compare(struct sy_grpc_bytes message, const struct sy_grpc_request_view *view)
{
    Inference__ModelInferRequest *other =
        inference__model_infer_request__unpack(NULL, message.n, message.data);

    if (!other)
        return;
    FUZZ_CHECK(other->n_inputs == (size_t)view->n_inputs);
    FUZZ_CHECK(other->n_outputs == (size_t)view->n_outputs);
    FUZZ_CHECK(other->n_raw_input_contents == (size_t)view->n_raw);
    FUZZ_CHECK(strlen(other->model_name) <= view->model.n);
    inference__model_infer_request__free_unpacked(other, NULL);
}

static void fuzz_request(struct sy_grpc_bytes message)
{
    struct sy_grpc_request_view view;
    json_t *parameters;
    size_t at = 0, head = SIZE_MAX;

    for (size_t n = 0; n <= message.n; n += 1 + n / 7) {
        bool found = sy_grpc_request_head((struct sy_grpc_bytes){message.data, n}, &at);

        FUZZ_CHECK(at <= n);
        FUZZ_CHECK(!found || head == SIZE_MAX || head == at);
        head = found ? at : head;
        if (found && sy_grpc_request_read((struct sy_grpc_bytes){message.data, at}, &view) == SY_OK)
            FUZZ_CHECK(view.n_raw == 0);
    }
    if (sy_grpc_request_read(message, &view) < 0)
        return;
    read_tensors(message, &view);
    compare(message, &view);
    if (sy_grpc_request_parameters(message, &parameters) == SY_OK)
        json_decref(parameters);
}

/* Read, written, read again: the same. */
static void fuzz_json(const ProtobufCMessageDescriptor *type, struct sy_grpc_bytes message)
{
    struct sy_grpc_buffer written = {0};
    json_t *json, *again;

    if (sy_grpc_json_read(type, message, &json) < 0)
        return;
    int status = sy_grpc_json_write(type, json, &written);
    if (status == SY_OK) {
        FUZZ_CHECK(sy_grpc_json_read(type, (struct sy_grpc_bytes){written.data, written.n},
                                     &again) == SY_OK);
        FUZZ_CHECK(json_object_size(again) <= json_object_size(json));
        json_decref(again);
    }
    json_decref(json);
    sy_grpc_buffer_free(&written);
}

/* What our own calls make of JSON, whatever it holds: written, it can be read. */
static void fuzz_json_text(const ProtobufCMessageDescriptor *type, struct sy_grpc_bytes text)
{
    struct sy_grpc_buffer written = {0};
    json_t *json = json_loadb((const char *)text.data, text.n, 0, NULL), *again;

    if (json && sy_grpc_json_write(type, json, &written) == SY_OK &&
        sy_grpc_json_read(type, (struct sy_grpc_bytes){written.data, written.n}, &again) == SY_OK)
        json_decref(again);
    json_decref(json);
    sy_grpc_buffer_free(&written);
}

static void fuzz_inflate(struct sy_grpc_bytes message)
{
    struct sy_grpc_budget budget = {.most_bytes = 1 << 20};
    struct sy_grpc_block out = {.budget = &budget};

    if (sy_grpc_inflate(message, 1 << 19, &out) == SY_OK)
        FUZZ_CHECK(out.n <= 1 << 19);
    sy_grpc_block_free(&out);
    FUZZ_CHECK(budget.used_bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sy_grpc_bytes message = {data + 1, size - 1};

    if (size < 1)
        return 0;
    if (data[0] < 4)
        fuzz_request(message);
    else if (data[0] < 4 + N_TYPES)
        fuzz_json(types[data[0] - 4], message);
    else if (data[0] == TEXTS + N_TYPES)
        fuzz_json_text(&inference__infer_parameter__descriptor, message);
    else if (data[0] >= TEXTS)
        fuzz_json_text(types[(data[0] - TEXTS) % N_TYPES], message);
    else
        fuzz_inflate(message);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------------------------------ */

static void put_request(struct sy_grpc_buffer *to, int i)
{
    size_t input, entry, value;

    sy_grpc_put_text(to, 1, "model");
    sy_grpc_put_text(to, 2, "1");
    entry = sy_grpc_put_begin(to, 4);
    sy_grpc_put_text(to, 1, "priority");
    value = sy_grpc_put_begin(to, 2);
    sy_grpc_put_number(to, 5, 3);
    sy_grpc_put_end(to, value);
    sy_grpc_put_end(to, entry);
    input = sy_grpc_put_begin(to, 5);
    sy_grpc_put_text(to, 1, "x");
    sy_grpc_put_text(to, 2, "INT32");
    sy_grpc_put_bytes(to, 3, "\x02\x02", 2);
    if (i == 1) {
        value = sy_grpc_put_begin(to, 5);
        sy_grpc_put_bytes(to, 2, "\x01\x02\x03\x04", 4);
        sy_grpc_put_end(to, value);
    }
    sy_grpc_put_end(to, input);
    if (i == 2)
        sy_grpc_put_bytes(to, 6, "\n\1y", 3);
    if (i != 1)
        sy_grpc_put_bytes(to, 7, "0123456789abcdef", 16);
}

/* A parameter of each kind: field 1 a bool, 2 and 5 numbers, 3 a text, 4 a double. */
static void put_parameter(struct sy_grpc_buffer *to, int field, const char *key, int kind,
                          const char *text, uint64_t number)
{
    static const uint8_t one_point_five[] = {0, 0, 0, 0, 0, 0, 0xf8, 0x3f};
    size_t entry = sy_grpc_put_begin(to, field), value;
    sy_grpc_put_text(to, 1, key);
    value = sy_grpc_put_begin(to, 2);
    if (kind == 3)
        sy_grpc_put_text(to, 3, text);
    else if (kind == 4)
        memcpy(memcpy(sy_grpc_buffer_extend(to, 9), "\x21", 1) + 1, one_point_five, 8);
    else
        sy_grpc_put_number(to, kind, number);
    sy_grpc_put_end(to, value);
    sy_grpc_put_end(to, entry);
}

/* What a request may say beside its tensors: regions of shared memory, classes, parameters of each kind. */
static void put_full_request(struct sy_grpc_buffer *to)
{
    size_t part;
    sy_grpc_put_text(to, 1, "m");
    sy_grpc_put_text(to, 3, "id");
    put_parameter(to, 4, "triton_enable_empty_final_response", 1, NULL, 1);
    put_parameter(to, 4, "timeout", 2, NULL, 1000);
    put_parameter(to, 4, "priority", 5, NULL, 3);
    put_parameter(to, 4, "tenant", 3, "t", 0);
    put_parameter(to, 4, "share", 4, NULL, 0);
    part = sy_grpc_put_begin(to, 5);
    sy_grpc_put_text(to, 1, "x");
    sy_grpc_put_text(to, 2, "FP32");
    sy_grpc_put_number(to, 3, 2);
    put_parameter(to, 4, "shared_memory_region", 3, "r", 0);
    put_parameter(to, 4, "shared_memory_offset", 2, NULL, 8);
    put_parameter(to, 4, "shared_memory_byte_size", 3, "16", 0);
    sy_grpc_put_end(to, part);
    part = sy_grpc_put_begin(to, 6);
    sy_grpc_put_text(to, 1, "y");
    put_parameter(to, 2, "classification", 2, NULL, 2);
    sy_grpc_put_end(to, part);
    part = sy_grpc_put_begin(to, 6);
    sy_grpc_put_text(to, 1, "z");
    put_parameter(to, 2, "shared_memory_region", 3, "r", 0);
    put_parameter(to, 2, "shared_memory_byte_size", 5, NULL, 16);
    sy_grpc_put_end(to, part);
}

static void put_json(struct sy_grpc_buffer *to, size_t type)
{
    static const char *const texts[N_TYPES] = {
        "{\"name\":\"m\",\"max_batch_size\":4,\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_"
        "FP32\","
        "\"dims\":[-1]}],\"parameters\":{\"a\":{\"string_value\":\"b\"}},\"version_policy\":{"
        "\"all\":{}}}",
        "{\"model_name\":\"m\",\"parameters\":{\"config\":{\"string_param\":\"{}\"}}}",
        "{\"settings\":{\"trace_rate\":{\"value\":[\"1\"]}},\"model_name\":\"m\"}",
        "{\"settings\":{\"log_info\":{\"bool_param\":true},\"log_verbose_level\":{\"uint32_param\":"
        "1}}}",
        "{\"model_stats\":[{\"name\":\"m\",\"inference_stats\":{\"success\":{\"count\":1,\"ns\":2}}"
        "}]}",
        "{\"name\":\"r\",\"key\":\"/k\",\"offset\":64,\"byte_size\":128}",
        "{\"file_containing_symbol\":\"inference.DataType\"}",
        "{\"service\":\"s\"}"};
    json_t *json = json_loads(texts[type], 0, NULL);

    FUZZ_CHECK(json && sy_grpc_json_write(types[type], json, to) == SY_OK);
    json_decref(json);
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    struct sy_grpc_buffer buffer = {0};
    struct sy_grpc_bytes text = {(const uint8_t *)"aaaaaaaaaaaaaaaaaaaaaaaabc", 26};
    size_t n;

    *sy_grpc_buffer_extend(&buffer, 1) = (uint8_t)i;
    if (i == 3)
        put_full_request(&buffer);
    else if (i < 4)
        put_request(&buffer, i);
    else if (i < 4 + (int)N_TYPES)
        put_json(&buffer, (size_t)i - 4);
    else if (i < 6 + (int)N_TYPES)
        FUZZ_CHECK(sy_grpc_deflate(&text, 1, i % 2 ? SY_GRPC_GZIP : SY_GRPC_DEFLATE, &buffer) ==
                   SY_OK);
    else
        buffer.n = 0;
    n = buffer.n > 0 ? fuzz_give(buffer.data, buffer.n, to, room) : 0;
    sy_grpc_buffer_free(&buffer);
    return n;
}

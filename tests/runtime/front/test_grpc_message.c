/* gRPC's pure parts: wire format, JSON by descriptors, inference requests where they lie, compression, headers. protobuf-c and zlib are the references. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "grpc_service.pb-c.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_gzip.h"
#include "runtime/front/grpc/grpc_infer_message.h"
#include "runtime/front/grpc/grpc_json.h"
#include "runtime/front/grpc/grpc_status.h"
#include "tests/rigs/seed.h"

static struct sy_grpc_bytes bytes_of(const struct sy_grpc_buffer *buffer)
{
    return (struct sy_grpc_bytes){buffer->data, buffer->n};
}

/* ---- headers ------------------------------------------------------------------------------------------------------------ */

static void test_timeouts(void **state)
{
    static const struct {
        const char *text;
        sy_ns ns; /* 0: malformed */
    } cases[] = {{"1n", 1},
                 {"5u", 5000},
                 {"100m", 100 * SY_NS_PER_MS},
                 {"2S", 2 * SY_NS_PER_S},
                 {"1M", 60 * SY_NS_PER_S},
                 {"3H", 3 * 3600 * SY_NS_PER_S},
                 {"99999999H", UINT64_MAX / 2},
                 {"", 0},
                 {"m", 0},
                 {"1", 0},
                 {"1x", 0},
                 {"-1m", 0},
                 {"1.5S", 0},
                 {"123456789S", 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sy_ns ns = 0;

        assert_int_equal(sy_grpc_parse_timeout(cases[i].text, strlen(cases[i].text), &ns),
                         cases[i].ns != 0);
        assert_int_equal(ns, cases[i].ns);
    }
}

static void test_messages(void **state)
{
    char to[64];

    (void)state;
    assert_int_equal(sy_grpc_encode_message("a b", to, sizeof to), 3);
    sy_grpc_encode_message("50% \"\n\xc3\xa4", to, sizeof to);
    assert_string_equal(to, "50%25 \"%0A%C3%A4");
    assert_int_equal(sy_grpc_encode_message("aa\xc3\xa4", to, 8), 2); /* no half characters */
    assert_string_equal(to, "aa");
    assert_int_equal(sy_grpc_encode_message("\xf0", to, sizeof to), 3);
}

static void test_codes_and_encodings(void **state)
{
    static const int statuses[] = {
#define X(name, value, text) SY_##name,
        SY_STATUS_TABLE(X)
#undef X
    };
    static const char list[] = "identity, gzip,br,  deflate";

    (void)state;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        assert_int_equal(sy_grpc_code_of(statuses[i]) == SY_GRPC_OK, statuses[i] == SY_OK);
    assert_int_equal(sy_grpc_code_of(-1000), SY_GRPC_INTERNAL);
    assert_int_equal(sy_grpc_accepted_encodings(list, strlen(list)), 7);
    assert_int_equal(sy_grpc_accepted_encodings("gzip", 4), 3);
    assert_int_equal(sy_grpc_accepted_encodings("", 0), 1);
    assert_int_equal(sy_grpc_encoding_of("gzi", 3), SY_GRPC_N_ENCODINGS);
}

/* ---- the wire ----------------------------------------------------------------------------------------------------------- */

static void test_varints(void **state)
{
    struct sy_grpc_buffer buffer = {0};
    uint64_t value, got;

    (void)state;
    for (int bit = 0; bit < 64; bit++)
        for (int off = -1; off <= 1; off++) {
            value = (UINT64_C(1) << bit) + (uint64_t)off;
            buffer.n = 0;
            sy_grpc_put_varint(&buffer, value);
            assert_int_equal(buffer.n, sy_grpc_varint_bytes(value));
            for (size_t n = 0; n <= buffer.n; n++) {
                struct sy_grpc_bytes at = {buffer.data, n};

                assert_int_equal(sy_grpc_wire_varint(&at, &got),
                                 n < buffer.n ? SY_GRPC_MORE : SY_GRPC_FIELD);
            }
            assert_true(got == value);
        }
    sy_grpc_buffer_free(&buffer);
    memset(sy_grpc_buffer_extend(&buffer, 12), 0xff, 12);
    struct sy_grpc_bytes at = bytes_of(&buffer);
    assert_int_equal(sy_grpc_wire_varint(&at, &got), SY_GRPC_BAD);
    sy_grpc_buffer_free(&buffer);
}

/* ---- JSON --------------------------------------------------------------------------------------------------------------- */

static const char config_json[] =
    "{\"name\": \"m\", \"platform\": \"onnxruntime_onnx\", \"max_batch_size\": 8,"
    " \"version_policy\": {\"specific\": {\"versions\": [1, 300]}},"
    " \"input\": [{\"name\": \"x\", \"data_type\": \"TYPE_FP32\", \"dims\": [-1, 4],"
    "              \"format\": \"FORMAT_NCHW\", \"reshape\": {\"shape\": []}},"
    "             {\"name\": \"k\", \"data_type\": \"TYPE_INT8\", \"dims\": [1]}],"
    " \"dynamic_batching\": {\"preferred_batch_size\": [4, 8], \"max_queue_delay_microseconds\": "
    "100,"
    "   \"priority_queue_policy\": {\"2\": {\"timeout_action\": \"DELAY\", \"max_queue_size\": "
    "7}}},"
    " \"parameters\": {\"class\": {\"string_value\": \"3\"}, \"t\": {\"string_value\": "
    "\"\xc3\xa4\"}},"
    " \"metric_tags\": {\"a\": \"b\"}, \"unknown\": [1, 2],"
    " \"sequence_batching\": null, \"model_metrics\": {\"metric_control\": [{\"histogram_options\":"
    "   {\"buckets\": [0.5, 10.25]}}]}}";

/* What it writes protobuf-c reads, and it reads what protobuf-c writes. */
static void test_json_both_ways(void **state)
{
    json_t *json = json_loads(config_json, 0, NULL), *again;
    struct sy_grpc_buffer buffer = {0}, packed = {0};
    Inference__ModelConfig *config;

    (void)state;
    assert_non_null(json);
    assert_int_equal(sy_grpc_json_write(&inference__model_config__descriptor, json, &buffer),
                     SY_OK);
    config = inference__model_config__unpack(NULL, buffer.n, buffer.data);
    assert_non_null(config);
    assert_int_equal(config->max_batch_size, 8);
    assert_int_equal(config->version_policy->specific->versions[1], 300);
    assert_int_equal(config->input[0]->dims[0], -1);
    assert_int_equal(config->input[1]->data_type, INFERENCE__DATA_TYPE__TYPE_INT8);
    assert_int_equal(config->scheduling_choice_case,
                     INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING);
    assert_int_equal(config->dynamic_batching->priority_queue_policy[0]->key, 2);
    assert_int_equal(config->dynamic_batching->priority_queue_policy[0]->value->max_queue_size, 7);
    assert_true(config->model_metrics->metric_control[0]->histogram_options->buckets[1] == 10.25);
    packed.n = packed.capacity = inference__model_config__get_packed_size(config);
    packed.data = malloc(packed.n);
    inference__model_config__pack(config, packed.data);
    inference__model_config__free_unpacked(config, NULL);
    assert_int_equal(
        sy_grpc_json_read(&inference__model_config__descriptor, bytes_of(&packed), &again), SY_OK);
    json_object_del(json, "unknown");
    json_object_del(json, "sequence_batching");
    json_object_del(json_array_get(json_object_get(json, "input"), 0), "reshape");
    json_object_del(json_array_get(json_object_get(again, "input"), 0), "reshape");
    assert_true(json_equal(json, again));
    json_decref(json);
    json_decref(again);
    sy_grpc_buffer_free(&buffer);
    sy_grpc_buffer_free(&packed);
}

static void refuse_json(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    struct sy_grpc_buffer buffer = {0};

    assert_non_null(json);
    assert_int_equal(sy_grpc_json_write(&inference__model_config__descriptor, json, &buffer),
                     SY_EARG);
    json_decref(json);
    sy_grpc_buffer_free(&buffer);
}

static void test_json_that_does_not_fit(void **state)
{
    struct sy_grpc_buffer buffer = {0};
    json_t *json;

    (void)state;
    refuse_json("{\"name\": 5}");
    refuse_json("{\"max_batch_size\": \"many\"}");
    refuse_json("{\"input\": {\"name\": \"x\"}}");
    refuse_json("{\"input\": [5]}");
    refuse_json("{\"input\": [{\"data_type\": \"TYPE_NONE\"}]}");
    refuse_json("{\"dynamic_batching\": []}");
    for (int i = 0; i <= SY_GRPC_JSON_ELEMENTS; i++)
        sy_grpc_put_text(&buffer, 1, "");
    assert_int_equal(sy_grpc_json_read(&inference__server_metadata_response__descriptor,
                                       bytes_of(&buffer), &json),
                     SY_EARG);
    buffer.n = 0;
    sy_grpc_put_bytes(&buffer, 1, "\xff", 1);
    assert_int_equal(
        sy_grpc_json_read(&inference__model_ready_request__descriptor, bytes_of(&buffer), &json),
        SY_EARG);
    sy_grpc_buffer_free(&buffer);
}

/* ---- inference requests -------------------------------------------------------------------------------------------------- */

/* A random request by protobuf-c. */
static void pack_request(struct sy_grpc_buffer *to, uint64_t *seed)
{
    Inference__ModelInferRequest__InferInputTensor inputs[4], *input_of[4];
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    ProtobufCBinaryData raws[4];
    int64_t dims[SY_MAX_RANK];
    uint8_t raw[300];

    memset(raw, 7, sizeof raw);
    for (int i = 0; i < SY_MAX_RANK; i++)
        dims[i] = (int64_t)seed_next(seed);
    request.model_name = (char *)(uintptr_t) "model";
    request.id = (char *)(uintptr_t)(seed_below(seed, 2) ? "id" : "");
    request.n_inputs = request.n_raw_input_contents = (size_t)seed_below(seed, 5);
    request.inputs = input_of;
    request.raw_input_contents = raws;
    for (size_t i = 0; i < request.n_inputs; i++) {
        inference__model_infer_request__infer_input_tensor__init(&inputs[i]);
        inputs[i].name = (char *)(uintptr_t) "input";
        inputs[i].datatype = (char *)(uintptr_t) "FP32";
        inputs[i].n_shape = (size_t)seed_below(seed, SY_MAX_RANK + 1);
        inputs[i].shape = dims;
        input_of[i] = &inputs[i];
        raws[i] = (ProtobufCBinaryData){(size_t)seed_below(seed, sizeof raw), raw};
    }
    to->n = 0;
    inference__model_infer_request__pack(
        &request,
        sy_grpc_buffer_extend(to, inference__model_infer_request__get_packed_size(&request)));
}

static void compare_inputs(const Inference__ModelInferRequest *request, struct sy_grpc_bytes at)
{
    struct sy_grpc_bytes raws = at, raw;
    struct sy_grpc_input_view input;

    for (size_t i = 0; i < request->n_inputs; i++) {
        assert_int_equal(sy_grpc_request_next_input(&at, &input), SY_GRPC_FIELD);
        assert_true(sy_grpc_bytes_equal(input.name, request->inputs[i]->name));
        assert_true(sy_grpc_bytes_equal(input.datatype, request->inputs[i]->datatype));
        assert_int_equal(input.rank, request->inputs[i]->n_shape);
        for (int d = 0; d < input.rank; d++)
            assert_true(input.dims[d] == request->inputs[i]->shape[d]);
        assert_int_equal(sy_grpc_request_next_raw(&raws, &raw), SY_GRPC_FIELD);
        assert_int_equal(raw.n, request->raw_input_contents[i].len);
        assert_memory_equal(raw.data, request->raw_input_contents[i].data, raw.n);
    }
    assert_int_equal(sy_grpc_request_next_input(&at, &input), SY_GRPC_END);
    assert_int_equal(sy_grpc_request_next_raw(&raws, &raw), SY_GRPC_END);
}

/* The head is found once the first tensor's tag is there, from whatever pieces it came in. */
static void compare_head(struct sy_grpc_bytes message, size_t n_raw)
{
    struct sy_grpc_bytes raws = message, raw = {message.data + message.n, 0};
    struct sy_grpc_request_view view;
    size_t at = 0;

    sy_grpc_request_next_raw(&raws, &raw);
    for (size_t n = 0; n <= message.n; n++) {
        bool found = sy_grpc_request_head((struct sy_grpc_bytes){message.data, n}, &at);

        assert_true(at <= n);
        if (found)
            assert_true(n_raw > 0 && message.data + at < raw.data);
        if (found && sy_grpc_request_read((struct sy_grpc_bytes){message.data, at}, &view) == SY_OK)
            assert_int_equal(view.n_raw, 0);
        assert_true(found || n_raw == 0 || message.data + n <= raw.data);
    }
}

static void test_requests(void **state)
{
    struct sy_grpc_buffer buffer = {0};
    uint64_t seed = seed_of_run(24);

    (void)state;
    for (int i = 0; i < 2000; i++) {
        struct sy_grpc_request_view view;
        Inference__ModelInferRequest *request;

        pack_request(&buffer, &seed);
        request = inference__model_infer_request__unpack(NULL, buffer.n, buffer.data);
        assert_int_equal(sy_grpc_request_read(bytes_of(&buffer), &view), SY_OK);
        assert_int_equal(view.n_inputs, request->n_inputs);
        assert_int_equal(view.n_raw, request->n_raw_input_contents);
        assert_true(sy_grpc_bytes_equal(view.model, request->model_name));
        assert_true(sy_grpc_bytes_equal(view.id, request->id));
        compare_inputs(request, bytes_of(&buffer));
        compare_head(bytes_of(&buffer), request->n_raw_input_contents);
        inference__model_infer_request__free_unpacked(request, NULL);
    }
    sy_grpc_buffer_free(&buffer);
}

static void put_parameter(struct sy_grpc_buffer *to, uint32_t field, const char *key, uint32_t kind,
                          uint64_t number, const char *text)
{
    size_t entry = sy_grpc_put_begin(to, field), value;

    sy_grpc_put_text(to, 1, key);
    value = sy_grpc_put_begin(to, 2);
    if (text)
        sy_grpc_put_text(to, kind, text);
    else
        sy_grpc_put_number(to, kind, number);
    sy_grpc_put_end(to, value);
    sy_grpc_put_end(to, entry);
}

static void test_request_parameters(void **state)
{
    struct sy_grpc_buffer buffer = {0};
    struct sy_grpc_request_view view;
    json_t *got, *expected = json_pack("{s:b, s:I, s:s, s:i, s:s}", "flag", 1, "priority",
                                       (json_int_t)INT64_MAX, "tenant", "t", "timeout", 500,
                                       "sequence_id", "18446744073709551615");

    (void)state;
    put_parameter(&buffer, 4, "flag", 1, 1, NULL);
    put_parameter(&buffer, 4, "priority", 5, UINT64_MAX, NULL); /* the least urgent */
    put_parameter(&buffer, 4, "tenant", 3, 0, "t");
    put_parameter(&buffer, 4, "timeout", 2, 500, NULL);
    put_parameter(&buffer, 4, "sequence_id", 5, UINT64_MAX, NULL); /* no other id's number */
    assert_int_equal(sy_grpc_request_read(bytes_of(&buffer), &view), SY_OK);
    assert_int_equal(view.n_parameters, 5);
    assert_false(view.wants_final);
    assert_int_equal(sy_grpc_request_parameters(bytes_of(&buffer), &got), SY_OK);
    assert_true(json_equal(got, expected));
    json_decref(got);
    json_decref(expected);
    put_parameter(&buffer, 4, "triton_enable_empty_final_response", 1, 1, NULL);
    assert_int_equal(sy_grpc_request_read(bytes_of(&buffer), &view), SY_OK);
    assert_true(view.wants_final);
    put_parameter(&buffer, 4, "x", 3, 0, "\xff");
    assert_int_equal(sy_grpc_request_parameters(bytes_of(&buffer), &got), SY_EARG);
    sy_grpc_buffer_free(&buffer);
}

static void test_output_parameters(void **state)
{
    struct sy_grpc_buffer buffer = {0};
    struct sy_grpc_output_view output;
    struct sy_grpc_bytes at;
    size_t start = sy_grpc_put_begin(&buffer, 6);

    (void)state;
    sy_grpc_put_text(&buffer, 1, "y");
    put_parameter(&buffer, 2, "classification", 2, 5, NULL);
    put_parameter(&buffer, 2, "shared_memory_region", 3, 0, "r");
    put_parameter(&buffer, 2, "shared_memory_offset", 2, 64, NULL);
    put_parameter(&buffer, 2, "shared_memory_byte_size", 3, 0, "128");
    sy_grpc_put_end(&buffer, start);
    at = bytes_of(&buffer);
    assert_int_equal(sy_grpc_request_next_output(&at, &output), SY_GRPC_FIELD);
    assert_true(sy_grpc_bytes_equal(output.name, "y"));
    assert_true(sy_grpc_bytes_equal(output.region.name, "r"));
    assert_int_equal(output.classes, 5);
    assert_int_equal(output.region.offset, 64);
    assert_int_equal(output.region.bytes, 128);
    start = sy_grpc_put_begin(&buffer, 6);
    put_parameter(&buffer, 2, "classification", 2, (uint64_t)-1, NULL);
    sy_grpc_put_end(&buffer, start);
    at = bytes_of(&buffer);
    assert_int_equal(sy_grpc_request_next_output(&at, &output), SY_GRPC_FIELD);
    assert_int_equal(sy_grpc_request_next_output(&at, &output), SY_EARG);
    sy_grpc_buffer_free(&buffer);
}

static int read_contents(const struct sy_grpc_buffer *buffer, enum sy_dtype dtype, uint64_t n,
                         void *to)
{
    return sy_grpc_contents_read(bytes_of(buffer), "x", dtype, n, to);
}

static void test_contents(void **state)
{
    struct sy_grpc_buffer buffer = {0};
    int8_t narrow[3];
    int64_t wide[2];
    float floats[3];

    (void)state;
    sy_grpc_put_number(&buffer, 2, (uint64_t)-128); /* one by one, then packed */
    sy_grpc_put_bytes(&buffer, 2, "\x05\x7f", 2);
    assert_int_equal(read_contents(&buffer, SY_DTYPE_I8, 3, narrow), SY_OK);
    assert_true(narrow[0] == -128 && narrow[1] == 5 && narrow[2] == 127);
    assert_int_equal(read_contents(&buffer, SY_DTYPE_I8, 4, narrow), SY_EARG);
    assert_int_equal(read_contents(&buffer, SY_DTYPE_I8, 2, narrow), SY_EARG);
    assert_int_equal(read_contents(&buffer, SY_DTYPE_U8, 3, narrow), SY_EARG); /* uint_contents */
    sy_grpc_put_number(&buffer, 2, 128);
    assert_int_equal(read_contents(&buffer, SY_DTYPE_I8, 4, (int8_t[4]){0}), SY_EARG);
    assert_int_equal(read_contents(&buffer, SY_DTYPE_F16, 4, wide), SY_EUNSUPPORTED);
    buffer.n = 0;
    sy_grpc_put_number(&buffer, 3, (uint64_t)INT64_MIN);
    sy_grpc_put_number(&buffer, 3, 9);
    assert_int_equal(read_contents(&buffer, SY_DTYPE_I64, 2, wide), SY_OK);
    assert_true(wide[0] == INT64_MIN && wide[1] == 9);
    buffer.n = 0;
    sy_grpc_put_bytes(&buffer, 6, (const float[]){1.5f, -2}, 8);
    sy_grpc_put_tag(&buffer, 6, SY_GRPC_FIXED32);
    memcpy(sy_grpc_buffer_extend(&buffer, 4), (const float[]){7}, 4);
    assert_int_equal(read_contents(&buffer, SY_DTYPE_F32, 3, floats), SY_OK);
    assert_true(floats[0] == 1.5f && floats[1] == -2 && floats[2] == 7);
    sy_grpc_put_bytes(&buffer, 6, "abc", 3);
    assert_int_equal(read_contents(&buffer, SY_DTYPE_F32, 4, (float[4]){0}), SY_EARG);
    sy_grpc_buffer_free(&buffer);
}

/* ---- compression ----------------------------------------------------------------------------------------------------------- */

static void test_compression(void **state)
{
    struct sy_grpc_budget budget = {.most_bytes = 8 << 20};
    struct sy_grpc_block out = {.budget = &budget};
    struct sy_grpc_buffer packed = {0};
    static uint8_t data[1 << 20];
    uint64_t seed = seed_of_run(24);

    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = i < sizeof data / 2 ? (uint8_t)seed_next(&seed) : 0;
    for (int encoding = SY_GRPC_GZIP; encoding <= SY_GRPC_DEFLATE; encoding++) {
        struct sy_grpc_bytes pieces[3] = {
            {data, 1}, {data + 1, 70000}, {data + 70001, sizeof data - 70001}};

        packed.n = 0;
        assert_int_equal(sy_grpc_deflate(pieces, 3, (enum sy_grpc_encoding)encoding, &packed),
                         SY_OK);
        assert_int_equal(sy_grpc_inflate(bytes_of(&packed), sizeof data, &out), SY_OK);
        assert_int_equal(out.n, sizeof data);
        assert_memory_equal(out.data, data, sizeof data);
        sy_grpc_block_free(&out);
        assert_int_equal(sy_grpc_inflate(bytes_of(&packed), sizeof data - 1, &out), SY_ETOOBIG);
        assert_true(out.n <= sizeof data);
        sy_grpc_block_free(&out);
        for (size_t cut = 1; cut < packed.n; cut = cut * 3 + 1) {
            struct sy_grpc_bytes part = {packed.data, packed.n - cut};

            assert_int_equal(sy_grpc_inflate(part, sizeof data, &out), SY_EARG);
            sy_grpc_block_free(&out);
        }
        sy_grpc_put_varint(&packed, 5);
        assert_int_equal(sy_grpc_inflate(bytes_of(&packed), sizeof data, &out), SY_EARG);
        sy_grpc_block_free(&out);
    }
    budget.most_bytes = sizeof data / 2;
    packed.n -= 1;
    assert_int_equal(sy_grpc_inflate(bytes_of(&packed), sizeof data, &out), SY_EBUSY);
    sy_grpc_block_free(&out);
    assert_int_equal(budget.used_bytes, 0);
    sy_grpc_buffer_free(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_codes_and_encodings),
        cmocka_unit_test(test_varints),
        cmocka_unit_test(test_json_both_ways),
        cmocka_unit_test(test_json_that_does_not_fit),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_request_parameters),
        cmocka_unit_test(test_output_parameters),
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_compression),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

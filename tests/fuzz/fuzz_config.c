/* config.pbtxt and its JSON form: a model's configuration from a folder or a client, held against a model and completed from it. The first
 * byte chooses: odd is JSON. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/base/text_copy.h"
#include "runtime/repository/model_config.h"
#include "runtime/repository/pbtxt.h"
#include "tests/fuzz/fuzz.h"
#include "tests/nets/graph_builder.h"

static struct sy_graph *model(void)
{
    static struct sy_graph *g;
    if (g)
        return g;
    g = gb_new("m");
    int x = gb_input(g, 2, (int64_t[]){1, 4});
    gb_output(g, gb_node(g, SY_OP_RELU, 1, &x, 2, (int64_t[]){1, 4}));
    return g;
}

static void use(struct sy_model_config *config)
{
    json_t *whole = NULL;
    struct sy_core_reshape *reshapes = NULL;
    struct sy_state_pair *states = NULL;
    int n;
    bool fits = sy_model_config_check(config, model()) == SY_OK;
    if (fits && sy_model_config_reshapes(config, model(), &reshapes, &n) == SY_OK)
        free(reshapes);
    if (fits && sy_model_config_states(config, model(), &states, &n) == SY_OK)
        free(states);
    if (fits && sy_model_config_complete(config, "m", model(), &whole) == SY_OK) {
        char *text = json_dumps(whole, JSON_COMPACT);
        struct sy_model_config *again = NULL;
        FUZZ_CHECK(text);
        /* What clients are told is a configuration. */
        FUZZ_CHECK(sy_model_config_parse_json(text, "m", &again) == SY_OK);
        sy_model_config_free(again);
        free(text);
        json_decref(whole);
    }
    sy_model_config_free(config);
}

/* Read without a schema first: each node that is there has a place that can be told. */
static void walk(const struct sy_pbtxt *node, int depth)
{
    char place[200];
    int64_t whole;
    bool yes;
    FUZZ_CHECK(depth <= SY_PBTXT_MOST_DEPTH + 1);
    for (const struct sy_pbtxt *field = node->first; field; field = field->next) {
        FUZZ_CHECK(field->name && strlen(sy_pbtxt_place(field, place, sizeof place)) > 0);
        FUZZ_CHECK(field->kind == SY_PBTXT_MESSAGE || field->text);
        if (field->kind == SY_PBTXT_MESSAGE)
            walk(field, depth + 1);
        else {
            (void)sy_pbtxt_integer(field, -100, 100, &whole);
            (void)sy_pbtxt_bool(field, &yes);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sy_model_config *config = NULL;
    struct sy_pbtxt *tree = NULL;
    if (size < 1)
        return 0;
    if (data[0] & 1) {
        char *text = sy_text_copy(data + 1, size - 1);
        FUZZ_CHECK(text);
        if (sy_model_config_parse_json(text, "m", &config) == SY_OK)
            use(config);
        free(text);
        return 0;
    }
    if (sy_pbtxt_parse((const char *)data + 1, size - 1, &tree) == SY_OK)
        walk(tree, 0);
    sy_pbtxt_free(tree);
    if (sy_model_config_parse((const char *)data + 1, size - 1, "m", &config) == SY_OK)
        use(config);
    return 0;
}

size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        "0name: \"m\"\nplatform: \"onnxruntime_onnx\"\nmax_batch_size: 8\n"
        "input [ { name: \"input0\" data_type: TYPE_FP32 dims: [ 4 ] } ]\n"
        "output { name: 'output0', data_type: TYPE_FP32; dims: [ 4 ] label_filename: \"l.txt\" }\n"
        "dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 0x64 "
        "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 1000 "
        "max_queue_size: 10 } priority_levels: 2 default_priority_level: 1 }\n",
        "0# a comment\nbackend: \"onnxruntime\" version_policy: { specific: { versions: [ 1, 3 ] } "
        "}\n"
        "instance_group [ { count: 1 kind: KIND_CPU } ]\nmodel_warmup [ { name: \"w\" batch_size: "
        "1 "
        "count: 2 inputs { key: \"input0\" value { data_type: TYPE_FP32 dims: 4 zero_data: true } "
        "} } ]",
        "0max_batch_size: 0 input { name: \"input0\" data_type: TYPE_FP32 dims: -1 dims: 4 reshape "
        "{ shape: "
        "[ 1, 4 ] } } parameters { key: \"a\\x41\\101\\n\" value { string_value: \"b\" 'c' } }\n"
        "optimization { execution_accelerators { gpu_execution_accelerator { name: \"tensorrt\" } "
        "} }",
        "0sequence_batching { max_sequence_idle_microseconds: 5000000 control_input [ { name: "
        "\"START\" "
        "control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ] state [ { "
        "input_name: \"input0\" output_name: \"output0\" data_type: TYPE_FP32 dims: [ 4 ] "
        "initial_state { name: \"z\" data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } ] }",
        "0max_batch_size: 4 input { name: \"input0\" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { "
        "shape: [ 4 ] } } "
        "output { name: \"output0\" data_type: TYPE_FP32 dims: [ 4 ] } "
        "parameters { key: \"precision\" value { string_value: \"bf16\" } }",
        "0sequence_batching { state { input_name: \"input0\" output_name: \"output0\" data_type: "
        "TYPE_FP32 dims: 4 "
        "} } model_warmup { name: \"r\" batch_size: 2 inputs { key: \"input0\" value { data_type: "
        "TYPE_FP32 dims: 4 "
        "random_data: true } } }",
        "0version_policy { latest { num_versions: 2 } } default_model_filename: \"model.onnx\" "
        "ensemble_scheduling { step [ { model_name: \"a\" model_version: -1 input_map { key: \"x\" "
        "value: \"y\" } } ] } "
        "response_cache { enable: false } model_transaction_policy < decoupled: false >",
        "0parameters { key: \"class\" value { string_value: \"1\" } } parameters { key: \"tenant\" "
        "value { string_value: \"t\" } } "
        "parameters { key: \"slice\" value { string_value: \"s\" } } version_policy { all { } }",
        "0parameters { key: \"\\u00e9\\U0001F600\\x41\" value { string_value: \"9\" } } parameters "
        "{ key: \"class\" value { string_value: \"9\" } }",
        "0name: \"other\" name: \"m\"",
        "0max_batch_size 4",
        "0input [ { name: \"a\", } ]",
        "0input { name: \"input0\" data_type: TYPE_FP32 dims: [ 5 ] }",
        "0input { name: \"input0\" data_type: TYPE_INT8 dims: [ 4 ] }",
        "0max_batch_size: - x",
        "0[ext] { }",
        "0input { name: \"",
        "0version_policy { specific { versions: 0 } }",
        "1{\"name\":\"m\",\"max_batch_size\":4,\"input\":[{\"name\":\"input0\",\"data_type\":"
        "\"TYPE_FP32\","
        "\"dims\":[\"4\"]}],\"output\":[{\"name\":\"output0\",\"data_type\":\"TYPE_FP32\",\"dims\":"
        "[4]}]}",
        "1{\"versionPolicy\":{\"all\":{}},\"dynamicBatching\":{\"preferredBatchSize\":[4],"
        "\"maxQueueDelayMicroseconds\":\"100\"},\"parameters\":{\"k\":{\"stringValue\":\"v\"}}}",
    };
    return (size_t)i < sizeof seeds / sizeof *seeds
               ? fuzz_give(seeds[i], strlen(seeds[i]), to, room)
               : 0;
}

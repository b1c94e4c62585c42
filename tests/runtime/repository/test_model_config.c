/* Triton's model configuration: what is honoured, what is named, what is refused, and how it fits a model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/repository/model_config.h"
#include "tests/rigs/seed.h"

static int ends[] = {0, 1};
static struct sy_tensor tensors[] = {
    {.name = "x", .dtype = SY_DTYPE_F32, .shape = {3, {{0, 1}, {3, 0}, {16, 0}}}},
    {.name = "y", .dtype = SY_DTYPE_I64, .shape = {2, {{0, 1}, {10, 0}}}},
};
static struct sy_graph graph = {.n_tensors = 2,
                                .tensors = tensors,
                                .n_inputs = 1,
                                .inputs = &ends[0],
                                .n_outputs = 1,
                                .outputs = &ends[1]};
static struct sy_tensor fixed_tensors[] = {
    {.name = "x", .dtype = SY_DTYPE_F32, .shape = {2, {{1, 0}, {3, 0}}}},
    {.name = "y", .dtype = SY_DTYPE_F32, .shape = {1, {{1, 0}}}},
};
static struct sy_graph fixed_graph = {.n_tensors = 2,
                                      .tensors = fixed_tensors,
                                      .n_inputs = 1,
                                      .inputs = &ends[0],
                                      .n_outputs = 1,
                                      .outputs = &ends[1]};

static struct sy_model_config *read_text(const char *text)
{
    struct sy_model_config *config = NULL;

    if (sy_model_config_parse(text, strlen(text), "m", &config) < 0)
        fail_msg("'%s': %s", text, sy_error_text());
    return config;
}

static void expect_says(const char *why)
{
    if (!strstr(sy_error_text(), why))
        fail_msg("'%s' is not in '%s'", why, sy_error_text());
}

static void refused(const char *text, int status, const char *why)
{
    struct sy_model_config *config = NULL;

    assert_int_equal(sy_model_config_parse(text, strlen(text), "m", &config), status);
    assert_null(config);
    expect_says(why);
}

static void does_not_fit(const char *text, const struct sy_graph *with, const char *why)
{
    struct sy_model_config *config = read_text(text);

    assert_int_equal(sy_model_config_check(config, with), SY_EARG);
    expect_says(why);
    sy_model_config_free(config);
}

static const char usual[] =
    "name: \"m\"\nplatform: \"onnxruntime_onnx\"\nmax_batch_size: 8\n"
    "input [ { name: \"x\" data_type: TYPE_FP32 dims: [ 3, 16 ] } ]\n"
    "output [ { name: \"y\" data_type: TYPE_INT64 dims: [ 10 ] label_filename: \"l.txt\" } ]\n"
    "instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0 ] } ]\n"
    "optimization { execution_accelerators { gpu_execution_accelerator : [ { name : \"t\" } ] } }\n"
    "dynamic_batching { preferred_batch_size: [ 4, 6 ] max_queue_delay_microseconds: 100\n"
    "  priority_levels: 5 default_priority_level: 3\n"
    "  default_queue_policy { default_timeout_microseconds: 7000 allow_timeout_override: true } }\n"
    "version_policy: { specific: { versions: [ 1, 3 ] } }\n"
    "parameters { key: \"precision\" value: { string_value: \"bf16\" } }\n"
    "parameters { key: \"tenant\" value { string_value: \"blue\" } }\n"
    "parameters { key: \"of_somebody_else\" value { string_value: \"1\" } }\n"
    "model_warmup [ { name: \"w\" batch_size: 4 inputs { key: \"x\" value: { data_type: TYPE_FP32 "
    "dims: [ 3, 16 ] random_data: true } } } ]\n";

static void expect_usual(const struct sy_model_config *config)
{
    assert_int_equal(config->max_batch_size, 8);
    assert_int_equal(config->defaults.most_rows, 8);
    assert_int_equal(config->max_gathered, 6);
    assert_int_equal(config->max_delay_ns, 100000);
    assert_true(config->defaults.has_class);
    assert_int_equal(config->defaults.class_, 2);
    assert_int_equal(config->defaults.deadline_ns, 7000000);
    assert_false(config->defaults.keeps_deadline);
    assert_int_equal(config->versions.kind, SY_VERSIONS_SPECIFIC);
    assert_int_equal(config->versions.versions[1], 3);
    assert_int_equal(config->precision, SY_PRECISION_BF16);
    assert_string_equal(config->defaults.tenant, "blue");
    assert_string_equal(config->outputs[0].labels, "l.txt");
    assert_int_equal(config->n_warmups, 1);
    assert_true(config->warmups[0].inputs[0].is_random);
    assert_int_equal(sy_model_config_check(config, &graph), SY_OK);
}

static void a_usual_one_is_honoured(void **state)
{
    (void)state;
    struct sy_model_config *config = read_text(usual);

    expect_usual(config);
    assert_string_equal(config->warning, "instance_group, optimization");
    sy_model_config_free(config);
}

/* What Triton's clients get can be given back with a load. */
static void its_json_is_read_again(void **state)
{
    (void)state;
    struct sy_model_config *config = read_text(usual), *again;
    json_t *json;

    assert_int_equal(sy_model_config_complete(config, "m", &graph, &json), SY_OK);
    char *text = json_dumps(json, 0);
    assert_int_equal(sy_model_config_parse_json(text, "m", &again), SY_OK);
    expect_usual(again);
    assert_null(again->warning);
    free(text);
    json_decref(json);
    sy_model_config_free(again);
    sy_model_config_free(config);
}

static void nothing_said_follows_from_the_model(void **state)
{
    (void)state;
    struct sy_model_config *config = NULL;
    json_t *json, *input;

    assert_int_equal(sy_model_config_parse(NULL, 0, "m", &config), SY_OK);
    assert_false(config->is_given);
    assert_int_equal(config->defaults.most_rows, 0);
    assert_int_equal(sy_model_config_complete(config, "m", &graph, &json), SY_OK);
    assert_int_equal(json_integer_value(json_object_get(json, "max_batch_size")),
                     SY_CONFIG_OPEN_BATCH);
    input = json_array_get(json_object_get(json, "input"), 0);
    assert_string_equal(json_string_value(json_object_get(input, "data_type")), "TYPE_FP32");
    assert_int_equal(json_array_size(json_object_get(input, "dims")), 2);
    json_decref(json);
    assert_int_equal(sy_model_config_complete(config, "m", &fixed_graph, &json), SY_OK);
    assert_int_equal(json_integer_value(json_object_get(json, "max_batch_size")), 0);
    input = json_array_get(json_object_get(json, "input"), 0);
    assert_int_equal(json_array_size(json_object_get(input, "dims")), 2);
    json_decref(json);
    sy_model_config_free(config);
}

static void what_is_not_served_is_refused(void **state)
{
    (void)state;
    refused("max_batch_sise: 1", SY_EARG,
            "line 1, column 1: field max_batch_sise: there is no such");
    refused("input { name: \"x\" dim: 1 }", SY_EARG, "column 19: field dim: there is no such");
    refused("name: \"other\"", SY_EARG, "'other'; the model's folder is 'm'");
    refused("platform: \"tensorflow_savedmodel\"", SY_EUNSUPPORTED, "only ONNX models");
    refused("backend: \"python\"", SY_EUNSUPPORTED, "'python' is not served");
    refused("platform: \"ensemble\"", SY_EUNSUPPORTED, "ensembles");
    refused("ensemble_scheduling { }", SY_EUNSUPPORTED, "ensembles");
    refused("sequence_batching { control_input { name: \"START\" } }", SY_EUNSUPPORTED,
            "makes of a sequence");
    refused("sequence_batching { state { input_name: \"a\" } }", SY_EARG, "output_name is missing");
    refused("model_transaction_policy { decoupled: true }", SY_EUNSUPPORTED, "decoupled");
    refused("max_batch_size: 1 max_batch_size: 2", SY_EARG, "given twice");
    refused("max_batch_size: -1", SY_EARG, "max_batch_size");
    refused("input { name: \"x\" data_type: TYPE_BYTES dims: [1] }", SY_EARG,
            "not one of its values");
    refused("input { name: \"x\" data_type: TYPE_FP99 dims: [1] }", SY_EARG,
            "not one of its values");
    refused("input { name: \"x\" dims: [1] }", SY_EARG, "data_type is missing");
    refused("input { name: \"x\" data_type: TYPE_FP32 dims: [0] }", SY_EARG, "dimension of 0");
    refused("input { name: \"x\" data_type: TYPE_FP32 dims: [1] allow_ragged_batch: true }",
            SY_EUNSUPPORTED, "allow_ragged_batch");
    refused("input { name: \"x\" data_type: TYPE_FP32 dims: [4] reshape { shape: [2, 3] } }",
            SY_EARG, "another number of elements than dims: 6, not 4");
    refused("input { name: \"x\" data_type: TYPE_FP32 dims: [-1] reshape { shape: [2, 3] } }",
            SY_EARG, "dims leave 1 dimensions open, reshape 0");
    refused("\xef\xbb\xbfname: \"m\"", SY_EARG, "byte 0xEF has no meaning here");
    refused("max_batch_size: 4 = 5", SY_EARG, "'=' has no meaning here");
    refused("version_policy { all { } latest { } }", SY_EARG, "one of latest");
    refused("version_policy { specific { versions: [0] } }", SY_EARG, "1 or above");
    refused("dynamic_batching { }", SY_EARG, "max_batch_size above 0");
    refused("max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }", SY_EARG, "from 1");
    refused("max_batch_size: 4 dynamic_batching { priority_levels: 2 }", SY_EARG,
            "default_priority_level 0");
    refused("parameters { key: \"class\" value { string_value: \"77\" } }", SY_EARG, "'77'");
    refused("parameters { key: \"precision\" value { string_value: \"f8\" } }", SY_EARG,
            "precision");
    refused("model_warmup { inputs { key: \"x\" value { data_type: TYPE_FP32 dims: [-1] } } }",
            SY_EARG, "dimension 0 is open");
    refused("default_model_filename: \"../secret\"", SY_EARG, "not the name of a file");
}

static void it_is_held_against_the_model(void **state)
{
    (void)state;
    does_not_fit("input { name: \"z\" data_type: TYPE_FP32 dims: [1] }", &graph, "it has: x");
    does_not_fit("max_batch_size: 2 input { name: \"x\" data_type: TYPE_FP16 dims: [3, 16] }",
                 &graph, "TYPE_FP16; the model's is TYPE_FP32");
    does_not_fit("max_batch_size: 2 input { name: \"x\" data_type: TYPE_FP32 dims: [3, 17] }",
                 &graph, "dims [3, 17] behind the batch does not fit the model's [N, 3, 16]");
    does_not_fit("input { name: \"x\" data_type: TYPE_FP32 dims: [3, 16] }", &graph,
                 "does not fit");
    does_not_fit("max_batch_size: 4", &fixed_graph, "is no batch");
    does_not_fit("max_batch_size: 4 input { name: \"x\" data_type: TYPE_FP32 dims: [3] }",
                 &fixed_graph, "is no batch");
    struct sy_model_config *config =
        read_text("input { name: \"x\" data_type: TYPE_FP32 dims: [-1, 3, 16] }");
    assert_int_equal(sy_model_config_check(config, &graph), SY_OK);
    sy_model_config_free(config);
    config = read_text("max_batch_size: 2 input { name: \"x\" data_type: TYPE_FP32 dims: [48] "
                       "reshape { shape: [3, 16] } }");
    assert_int_equal(sy_model_config_check(config, &graph), SY_OK);
    sy_model_config_free(config);
}

/* Parts of a good one, changed at random: refused or read, and freed whole. */
static void mutated_ones_do_no_harm(void **state)
{
    (void)state;
    uint64_t seed = seed_of_run(7);
    char text[sizeof usual];
    int n_read = 0;

    for (int i = 0; i < 20000; i++) {
        struct sy_model_config *config = NULL;

        memcpy(text, usual, sizeof usual);
        for (uint64_t k = seed_below(&seed, 4); k > 0; k--) {
            size_t at = seed_below(&seed, sizeof usual - 1),
                   from = seed_below(&seed, sizeof usual - 1), bytes = seed_below(&seed, 12);
            bytes = SY_MIN(bytes, sizeof usual - 1 - SY_MAX(at, from));
            memmove(text + at, text + from, bytes);
        }
        int status = sy_model_config_parse(text, sizeof usual - 1, "m", &config);
        assert_true(status == SY_OK || (status < 0 && !config && *sy_error_text()));
        if (config)
            (void)sy_model_config_check(config, &graph);
        n_read += config != NULL;
        sy_model_config_free(config);
    }
    assert_true(n_read > 1000);
}

/* ---- versions --------------------------------------------------------------------------------------------------- */

static void policies_choose_as_by_hand(void **state)
{
    (void)state;
    uint64_t seed = seed_of_run(3);

    for (int round = 0; round < 5000; round++) {
        struct sy_version_policy policy = {.kind =
                                               (enum sy_version_policy_kind)seed_below(&seed, 3)};
        int64_t versions[8], next = 0;
        bool served[8], given[40] = {false};
        int n = (int)seed_below(&seed, 9), n_served = 0;

        for (int i = 0; i < n; i++)
            versions[i] = next += 1 + (int64_t)seed_below(&seed, 4);
        policy.n = (int)seed_below(&seed, 5);
        for (int i = 0; i < policy.n; i++)
            given[policy.versions[i] = 1 + (int64_t)seed_below(&seed, 38)] = true;
        sy_version_policy_choose(&policy, versions, n, served);
        for (int i = n - 1; i >= 0; i--) {
            bool expected = policy.kind == SY_VERSIONS_ALL ||
                            (policy.kind == SY_VERSIONS_LATEST && n_served < SY_MAX(policy.n, 1)) ||
                            (policy.kind == SY_VERSIONS_SPECIFIC && given[versions[i]]);
            assert_int_equal(served[i], expected);
            n_served += served[i];
            given[versions[i]] = false;
        }
        int64_t missing = sy_version_policy_missing(&policy, versions, n);
        bool lacks = false;
        for (int i = 0; i < 40; i++)
            lacks |= policy.kind == SY_VERSIONS_SPECIFIC && given[i];
        assert_int_equal(missing != 0, lacks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_usual_one_is_honoured),
        cmocka_unit_test(its_json_is_read_again),
        cmocka_unit_test(nothing_said_follows_from_the_model),
        cmocka_unit_test(what_is_not_served_is_refused),
        cmocka_unit_test(it_is_held_against_the_model),
        cmocka_unit_test(mutated_ones_do_no_harm),
        cmocka_unit_test(policies_choose_as_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The field model_warmup: runs that come before a version answers requests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/repository/model_config_internal.h"

#define MOST_RUNS 1000

void sy_config_free_warmups(struct sy_model_config *config)
{
    for (int i = 0; i < config->n_warmups; i++)
        free(config->warmups[i].inputs);
    free(config->warmups);
}

static int read_input(const char *name, const json_t *json, struct sy_config_warmup_input *input)
{
    const char *type = json_string_value(json_object_get(json, "data_type"));
    char what[200];

    input->name = name;
    input->dtype = type ? sy_config_dtype(type) : SY_DTYPE_NONE;
    input->is_random = json_is_true(json_object_get(json, "random_data"));
    input->file = json_string_value(json_object_get(json, "input_data_file"));
    snprintf(what, sizeof what, "field model_warmup: input '%.100s'", name);
    if (input->dtype == SY_DTYPE_NONE)
        return sy_error_set(SY_EARG, "%s: data_type %s", what, type ? type : "is missing");
    SY_TRY(sy_config_read_dims(json_object_get(json, "dims"), what, input->dims, &input->rank));
    for (int d = 0; d < input->rank; d++)
        if (input->dims[d] < 0)
            return sy_error_set(SY_EARG, "%s: a run needs all dimensions; dimension %d is open",
                                what, d);
    return SY_OK;
}

static int read_warmup(const json_t *json, struct sy_config_warmup *warmup)
{
    json_t *inputs = json_object_get(json, "inputs"), *input;
    const char *name = json_string_value(json_object_get(json, "name")), *key;

    warmup->name = name ? name : "";
    warmup->batch = json_integer_value(json_object_get(json, "batch_size"));
    warmup->count =
        (int)SY_MIN(SY_MAX(json_integer_value(json_object_get(json, "count")), 1), MOST_RUNS);
    warmup->inputs = calloc(json_object_size(inputs) + 1, sizeof *warmup->inputs);
    SY_TRY_ALLOC(warmup->inputs, "no memory for a warm-up");
    json_object_foreach(inputs, key, input)
        SY_TRY(read_input(key, input, &warmup->inputs[warmup->n_inputs++]));
    return SY_OK;
}

int sy_config_read_warmups(struct sy_model_config *config)
{
    const json_t *list = json_object_get(config->json, "model_warmup"), *item;
    size_t i, n = json_array_size(list);

    if (n > SY_CONFIG_MOST_WARMUPS)
        return sy_error_set(SY_EARG, "field model_warmup: %zu of them; at most %d", n,
                            SY_CONFIG_MOST_WARMUPS);
    config->warmups = calloc(n + 1, sizeof *config->warmups);
    SY_TRY_ALLOC(config->warmups, "no memory for %zu warm-ups", n);
    json_array_foreach(list, i, item)
        SY_TRY(read_warmup(item, &config->warmups[config->n_warmups++]));
    return SY_OK;
}

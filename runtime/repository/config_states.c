/* The field sequence_batching: which outputs a session keeps for which inputs, and for how long. Sessions need no configuration where names
 * say it (loader/graph/state_pairs.h); what the configuration says goes before names. How Triton batches sequences (direct, oldest) has no effect here. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/repository/model_config_internal.h"

#define MOST_US ((json_int_t)(INT64_MAX / 1000))

static const json_t *states_of(const struct sy_model_config *config)
{
    return json_object_get(json_object_get(config->json, "sequence_batching"), "state");
}

static const char *text_of(const json_t *state, const char *key)
{
    const char *text = json_string_value(json_object_get(state, key));
    return text ? text : "";
}

int sy_config_read_sequences(struct sy_model_config *config)
{
    const json_t *batching = json_object_get(config->json, "sequence_batching"), *state;
    json_int_t us = json_integer_value(json_object_get(batching, "max_sequence_idle_microseconds"));
    size_t i;

    if (us > MOST_US)
        return sy_error_set(SY_EARG, "field sequence_batching: max_sequence_idle_microseconds");
    config->session_idle_ns = (sy_ns)us * 1000;
    if (json_array_size(states_of(config)) > SY_MAX_ENDS)
        return sy_error_set(SY_EARG, "field sequence_batching: more than %d states", SY_MAX_ENDS);
    json_array_foreach(states_of(config), i, state)
    {
        if (!*text_of(state, "input_name") || !*text_of(state, "output_name"))
            return sy_error_set(SY_EARG,
                                "field sequence_batching: state %zu: input_name or output_name is "
                                "missing",
                                i);
    }
    return SY_OK;
}

static int index_of(const struct sy_graph *graph, const int *tensors, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(graph->tensors[tensors[i]].name, name) == 0)
            return i;
    return -1;
}

static int find_pair(const struct sy_graph *graph, const json_t *state, struct sy_state_pair *out)
{
    const char *input = text_of(state, "input_name"), *output = text_of(state, "output_name");

    out->input = index_of(graph, graph->inputs, graph->n_inputs, input);
    out->output = index_of(graph, graph->outputs, graph->n_outputs, output);
    if (out->input < 0 || out->output < 0)
        return sy_error_set(SY_EARG, "sequence_batching: the model has no %s \"%.200s\"",
                            out->input < 0 ? "input" : "output", out->input < 0 ? input : output);
    const struct sy_tensor *to = &graph->tensors[graph->inputs[out->input]],
                           *from = &graph->tensors[graph->outputs[out->output]];
    if (to->dtype != from->dtype || to->dtype == SY_DTYPE_STRING ||
        to->shape.rank != from->shape.rank)
        return sy_error_set(SY_EARG,
                            "sequence_batching: output \"%.200s\" (%s of %d dimensions) cannot be "
                            "input \"%.200s\" (%s of %d)",
                            output, sy_dtype_wire_name(from->dtype), from->shape.rank, input,
                            sy_dtype_wire_name(to->dtype), to->shape.rank);
    return SY_OK;
}

static int check_single(const struct sy_state_pair *pairs, int n)
{
    for (int i = 0; i < n; i++)
        if (pairs[i].input == pairs[n].input || pairs[i].output == pairs[n].output)
            return sy_error_set(SY_EARG, "sequence_batching: state %d names a tensor of state %d",
                                n, i);
    return SY_OK;
}

static int find_pairs(const struct sy_model_config *config, const struct sy_graph *graph,
                      struct sy_state_pair *pairs, int *n)
{
    const json_t *state;
    size_t i;

    json_array_foreach(states_of(config), i, state)
    {
        SY_TRY(find_pair(graph, state, &pairs[*n]));
        SY_TRY(check_single(pairs, *n));
        ++*n;
    }
    return SY_OK;
}

int sy_model_config_states(const struct sy_model_config *config, const struct sy_graph *graph,
                           struct sy_state_pair **out, int *n)
{
    *n = 0;
    *out = calloc(json_array_size(states_of(config)) + 1, sizeof **out);
    SY_TRY_ALLOC(*out, "no memory for a model's states");
    int status = find_pairs(config, graph, *out, n);
    if (status < 0) {
        free(*out);
        *out = NULL;
    }
    return status;
}

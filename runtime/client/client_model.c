/* A model's inputs and outputs, parsed from the answer to the method "models". */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/client/client_internal.h"
#include "runtime/client/client_json.h"

static int read_port(const json_t *entry, sy_client_port *port)
{
    const json_t *shape = json_object_get(entry, "shape"), *dims = json_object_get(entry, "dims"),
                 *usual = json_object_get(entry, "usual_shape");
    port->name = json_string_value(json_object_get(entry, "name"));
    port->dtype = json_string_value(json_object_get(entry, "dtype"));
    port->rank = (int)json_array_size(shape);
    if (!port->name || !port->dtype || port->rank > SWITCHYARD_MAX_RANK ||
        json_array_size(dims) != json_array_size(shape) ||
        json_array_size(usual) != json_array_size(shape))
        return sy_error_set(SY_EPROTO, "the server does not say what the model's tensors are");
    for (size_t i = 0; i < json_array_size(shape); i++) {
        port->shape[i] = json_integer_value(json_array_get(shape, i));
        port->usual_shape[i] = json_integer_value(json_array_get(usual, i));
        port->dims[i] = json_string_value(json_array_get(dims, i));
    }
    return SY_OK;
}

static int read_ports(const json_t *list, sy_client_port **out, int *n)
{
    size_t i;
    const json_t *entry;
    *out = calloc(json_array_size(list) + 1, sizeof **out);
    if (!*out)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a model's description");
    json_array_foreach(list, i, entry)
    {
        SY_TRY(read_port(entry, &(*out)[i]));
        *n = (int)i + 1;
    }
    return SY_OK;
}

static int read_sizes(const json_t *list, sy_client_model *model)
{
    size_t i;
    const json_t *entry;
    model->sizes = calloc(json_array_size(list) + 1, sizeof *model->sizes);
    if (!model->sizes)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a model's description");
    json_array_foreach(list, i, entry)
    {
        model->sizes[i].name = json_string_value(json_object_get(entry, "name"));
        model->sizes[i].usual = json_integer_value(json_object_get(entry, "usual"));
        if (!model->sizes[i].name)
            return sy_error_set(SY_EPROTO, "the server names no open size");
        model->n_sizes = (int)i + 1;
    }
    return SY_OK;
}

static int read_model(const json_t *models, const char *name, sy_client_model *model)
{
    const json_t *entry = sy_json_named(models, name);
    if (!entry)
        return sy_error_set(SY_ENOTFOUND, "there is no model '%.100s'", name);
    if (!json_object_get(entry, "inputs"))
        return sy_error_set(SY_EBUSY, "model '%.100s' is %.40s", name,
                            json_string_value(json_object_get(entry, "state")));
    SY_TRY(read_ports(json_object_get(entry, "inputs"), &model->inputs, &model->n_inputs));
    SY_TRY(read_ports(json_object_get(entry, "outputs"), &model->outputs, &model->n_outputs));
    return read_sizes(json_object_get(entry, "sizes"), model);
}

int sy_client_model_find(sy_client *client, const char *name, sy_client_model **out)
{
    char *text = NULL;
    sy_client_model *model;
    *out = NULL;
    json_t *params = json_pack("{s:s}", "model", name);
    char *asks = params ? json_dumps(params, JSON_COMPACT) : NULL;
    json_decref(params);
    int asked = asks ? sy_client_call(client, "models", asks, &text)
                     : sy_client_fail(client, sy_error_set(SY_EARG, "a name that is not UTF-8"));
    free(asks);
    SY_TRY(asked);
    model = calloc(1, sizeof *model);
    json_t *models = json_loads(text, 0, NULL);
    free(text);
    if (!model || !models) {
        free(model);
        json_decref(models);
        return sy_client_fail(client,
                              sy_error_set(SY_ENOMEM_HOST, "no memory for a model's description"));
    }
    model->storage = models;
    int status = read_model(models, name, model);
    if (status < 0) {
        sy_client_model_free(model);
        return sy_client_fail(client, status);
    }
    *out = model;
    return SY_OK;
}

void sy_client_model_free(sy_client_model *model)
{
    if (!model)
        return;
    json_decref(model->storage);
    free(model->inputs);
    free(model->outputs);
    free(model->sizes);
    free(model);
}

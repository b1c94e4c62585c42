#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli.h"

#define MAX_INPUTS 64

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state += 0x9e3779b97f4a7c15ull;
    uint64_t z = (random_state ^ random_state >> 30) * 0xbf58476d1ce4e5b9ull;

    return z ^ z >> 27;
}

/* Floats in [-1, 1); whole numbers are 0 or 1, valid as indices of any table that is worth one. */
static void fill_random(void *data, size_t bytes, enum sy_dtype dtype)
{
    size_t size = sy_dtype_bytes(dtype);

    for (size_t at = 0; at + size <= bytes; at += size) {
        int64_t whole = (int64_t)(next_random() >> 63);
        float value = (float)(next_random() >> 40) / 8388608.0f - 1.0f;

        if (dtype == SY_DTYPE_F32)
            memcpy((char *)data + at, &value, size);
        else
            memcpy((char *)data + at, &whole, size);
    }
}

static int make_input(json_t *entry, int64_t batch, sy_client_tensor *out)
{
    json_t *shape = json_object_get(entry, "shape");
    enum sy_dtype dtype;
    void *data;

    out->name = json_string_value(json_object_get(entry, "name"));
    out->dtype = json_string_value(json_object_get(entry, "dtype"));
    out->rank = (int)json_array_size(shape);
    dtype = out->dtype ? sy_dtype_from_wire_name(out->dtype) : SY_DTYPE_NONE;
    out->bytes = sy_dtype_bytes(dtype);
    if (!out->name || !out->bytes || out->rank > SWITCHYARD_MAX_RANK)
        return sy_error_set(SY_EPROTO, "the server does not say what the model's inputs are");
    for (int i = 0; i < out->rank; i++) {
        int64_t dim = json_integer_value(json_array_get(shape, (size_t)i));

        out->shape[i] = dim < 0 ? batch : dim;
        out->bytes *= (size_t)out->shape[i];
    }
    data = malloc(out->bytes + 1);
    out->data = data;
    if (!data)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for input %s", out->name);
    fill_random(data, out->bytes, dtype);
    return SY_OK;
}

static json_t *find_inputs(json_t *models, const char *model)
{
    size_t i;
    json_t *entry;

    json_array_foreach(models, i,
                       entry) if (json_is_string(json_object_get(entry, "name")) &&
                                  strcmp(json_string_value(json_object_get(entry, "name")),
                                         model) == 0) return json_object_get(entry, "inputs");
    return NULL;
}

static int repeat(sy_client *client, const char *model, const sy_client_tensor *inputs, int n,
                  int64_t times)
{
    for (int64_t i = 0; i < times; i++) {
        sy_ns start = sy_clock_now();
        sy_client_result *result;

        if (sy_client_infer(client, model, inputs, n, &result) < 0)
            return sy_cli_fail("%s", sy_client_error(client));
        printf("%s: %.3f ms at the client, %.3f ms at the server, queue %.3f, first layer %.3f%s\n",
               model, (double)(sy_clock_now() - start) / 1e6, (double)result->total_ns / 1e6,
               (double)result->queue_ns / 1e6, (double)result->first_layer_ns / 1e6,
               result->swapped ? ", swapped in" : "");
        sy_client_result_free(result);
    }
    return 0;
}

static int infer_random(sy_client *client, const char *model, int64_t batch, int64_t times)
{
    sy_client_tensor inputs[MAX_INPUTS] = {{0}};
    char *text;
    json_t *models, *list;
    int n = 0, status = SY_OK, result;

    if (sy_client_call(client, "models", "{}", &text) < 0)
        return sy_cli_fail("%s", sy_client_error(client));
    models = json_loads(text, 0, NULL);
    free(text);
    list = find_inputs(models, model);
    for (size_t i = 0; status == SY_OK && i < json_array_size(list) && n < MAX_INPUTS; i++)
        status = make_input(json_array_get(list, i), batch, &inputs[n++]);
    result = status < 0 ? sy_cli_fail_status() : repeat(client, model, inputs, n, times);
    for (int i = 0; i < n; i++)
        free((void *)inputs[i].data);
    json_decref(models);
    return result;
}

int sy_cmd_infer(int argc, char **argv)
{
    static const struct sy_cli_option options[] = {
        {"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
        {"random", NULL, "random inputs (the default)"},
        {"seed", "N", "of the random inputs; default 1"},
        {"batch", "N", "batch size; default 1"},
        {"repeat", "N", "so many requests, one after the other; default 1"},
        {NULL, NULL, NULL}};
    struct sy_cli_parser parser = {
        "infer MODEL [options]\n\nSends requests to a server and prints their times.", options,
        argc, argv, 0};
    int64_t number[5] = {0, 0, 1, 1, 1};
    const char *value, *model = NULL, *address = NULL;
    sy_client *client;
    int got, result;

    while ((got = sy_cli_next(&parser, &value)) >= 0 || got == SY_CLI_WORD) {
        if (got == SY_CLI_WORD)
            model = value;
        else if (got == 0)
            address = value;
        else if (got > 1 && sy_cli_integer(value, 1, 1000000000, &number[got]) < 0)
            return sy_cli_usage("--%s: %s", options[got].name, sy_error_text());
    }
    if (got != SY_CLI_END)
        return got == SY_CLI_HELP ? 0 : 2;
    if (!model)
        return sy_cli_usage("infer which model? see switchyard infer --help");
    random_state = (uint64_t)number[2];
    if (sy_cli_connect(address, 0, &client))
        return 1;
    result = infer_random(client, model, number[3], number[4]);
    sy_client_close(client);
    return result;
}

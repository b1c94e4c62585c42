/* infer: requests to a running server, with inputs from .npy files or random ones. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "loader/graph/graph.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/inputs/random_inputs.h"
#include "workers/data/npy.h"

struct infer {
    const char *address, *model, *output_folder;
    const char
        *words[SWITCHYARD_MAX_TENSORS]; /* NAME=FILE.npy, or FILE.npy for a model with one input */
    int n_words;
    bool random;
    int64_t batch, times, seed;
    struct sy_cli_sizes sizes;
    sy_client *client;
    json_t *list; /* the model's inputs, as the server describes them */
    sy_client_tensor inputs[SWITCHYARD_MAX_TENSORS];
    int n_inputs;
    sy_client_options options;
};

static uint64_t random_state;

/* ---- inputs -------------------------------------------------------------------------------------------- */

static int file_input(const char *path, sy_client_tensor *out)
{
    struct sy_npy npy;

    SY_TRY(sy_npy_read(path, &npy));
    out->dtype = sy_dtype_wire_name(npy.dtype);
    out->rank = npy.rank;
    for (int i = 0; i < npy.rank; i++)
        out->shape[i] = npy.dims[i];
    out->data = npy.data;
    out->bytes = npy.bytes;
    return SY_OK;
}

/* The file of `word` if it is for the input `name`, else NULL. */
static const char *file_for(const char *word, const char *name, size_t n_names)
{
    size_t n = strlen(name);

    if (strncmp(word, name, n) == 0 && word[n] == '=')
        return word + n + 1;
    return n_names == 1 && !strchr(word, '=') ? word : NULL;
}

static int make_input(struct infer *infer, json_t *entry)
{
    sy_client_tensor *out = &infer->inputs[infer->n_inputs];
    const char *path = NULL;

    out->name = json_string_value(json_object_get(entry, "name"));
    if (!out->name)
        return sy_error_set(SY_EPROTO, "the server does not say what the model's inputs are");
    for (int i = 0; i < infer->n_words; i++) {
        const char *file = file_for(infer->words[i], out->name, json_array_size(infer->list));

        if (file && path)
            return sy_error_set(SY_EARG, "input %s is given twice", out->name);
        path = file ? file : path;
    }
    infer->n_inputs++;
    if (path)
        return file_input(path, out);
    if (!infer->random)
        return sy_error_set(SY_EARG,
                            "no file for input %s; give %s=FILE.npy, or --random for the others",
                            out->name, out->name);
    return sy_cli_random_input(entry, infer->batch, &infer->sizes, &random_state, out);
}

static int unknown_input(const struct infer *infer, const char *word)
{
    char names[512] = "";
    size_t i, n = 0;
    json_t *entry;

    json_array_foreach(infer->list, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));

        if (n < sizeof(names))
            n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "", name);
    }
    return sy_error_set(SY_EARG, "%s is for no input of %s; its inputs are: %s (NAME=FILE.npy)",
                        word, infer->model, names);
}

static bool is_for_some_input(const struct infer *infer, const char *word)
{
    size_t i;
    json_t *entry;

    json_array_foreach(infer->list, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));

        if (name && file_for(word, name, json_array_size(infer->list)))
            return true;
    }
    return false;
}

static int make_inputs(struct infer *infer)
{
    size_t i;
    json_t *entry;

    if (json_array_size(infer->list) > SWITCHYARD_MAX_TENSORS)
        return sy_error_set(SY_ETOOBIG, "%s has more than %d inputs", infer->model,
                            SWITCHYARD_MAX_TENSORS);
    for (int w = 0; w < infer->n_words; w++) /* first: a misspelled name leaves another without */
        if (!is_for_some_input(infer, infer->words[w]))
            return unknown_input(infer, infer->words[w]);
    json_array_foreach(infer->list, i, entry) SY_TRY(make_input(infer, entry));
    return SY_OK;
}

/* ---- outputs ------------------------------------------------------------------------------------------- */

static int write_output(const char *folder, const sy_client_tensor *tensor)
{
    char path[4096], name[256];

    snprintf(name, sizeof(name), "%s", tensor->name);
    for (char *c = name; *c; c++)
        if (*c == '/' || *c == '\\' || (unsigned char)*c < 32)
            *c = '_';
    if (strlen(folder) + strlen(name) + sizeof("/.npy") > sizeof(path))
        return sy_error_set(SY_EARG, "--output %s: too long", folder);
    snprintf(path, sizeof(path), "%s/%s%s.npy", folder, name[0] == '.' ? "_" : "", name);
    SY_TRY(sy_npy_write(path, sy_dtype_from_wire_name(tensor->dtype), tensor->rank, tensor->shape,
                        tensor->data));
    printf("%s\n", path);
    return SY_OK;
}

static int write_outputs(const struct infer *infer, const sy_client_result *result)
{
    if (mkdir(infer->output_folder, 0777) < 0 && errno != EEXIST)
        return sy_error_set(SY_EIO, "cannot make the folder %s: %s", infer->output_folder,
                            strerror(errno));
    for (int i = 0; i < result->n_outputs; i++)
        SY_TRY(write_output(infer->output_folder, &result->outputs[i]));
    return SY_OK;
}

static int request(struct infer *infer, bool last)
{
    sy_ns start = sy_clock_now();
    sy_client_result *result;
    int status = SY_OK;

    if (sy_client_infer_with(infer->client, infer->model, infer->inputs, infer->n_inputs,
                             &infer->options, &result) < 0)
        return sy_cli_fail("%s", sy_client_error(infer->client));
    printf("%s: %.3f ms at the client, %.3f ms at the server, queue %.3f, first layer %.3f%s\n",
           infer->model, (double)(sy_clock_now() - start) / 1e6, (double)result->total_ns / 1e6,
           (double)result->queue_ns / 1e6, (double)result->first_layer_ns / 1e6,
           result->swapped ? ", swapped in" : "");
    if (last && infer->output_folder)
        status = write_outputs(infer, result);
    sy_client_result_free(result);
    return status < 0 ? sy_cli_fail_status() : 0;
}

/* ---- the command --------------------------------------------------------------------------------------- */

static int run(struct infer *infer)
{
    json_t *models, *params = json_pack("{s:s}", "model", infer->model);
    int result = 0;

    if (!params)
        return sy_cli_fail("a name that is not UTF-8");
    if (infer->options.version > 0)
        json_object_set_new(params, "version", json_integer(infer->options.version));
    if (sy_cli_call(infer->client, "models", params, &models))
        return 1;
    infer->list = sy_cli_inputs_of(models, infer->model);
    if (infer->list &&
        (sy_cli_complete_sizes(models, infer->model, &infer->sizes) < 0 || make_inputs(infer) < 0))
        result = sy_cli_fail_status();
    for (int64_t i = 0; result == 0 && i < infer->times; i++)
        result = request(infer, i + 1 == infer->times);
    for (int i = 0; i < infer->n_inputs; i++)
        free((void *)infer->inputs[i].data);
    json_decref(models);
    return result;
}

static int add_dim(void *command, const char *value)
{
    struct sy_cli_sizes *sizes = &((struct infer *)command)->sizes;

    return sy_cli_dim(value, sizes->dims, &sizes->n);
}

static const struct sy_cli_field fields[] = {
    {{"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
     SY_CLI_TEXT(struct infer, address)},
    {{"output", "DIR", "write the (last) answer's tensors as DIR/NAME.npy (also -o)"},
     SY_CLI_TEXT(struct infer, output_folder)},
    {{"random", NULL, "random values for inputs without a file; the default when none is given"},
     SY_CLI_SWITCH(struct infer, random)},
    {{"seed", "N", "of the random inputs; default 1"},
     SY_CLI_INT64(struct infer, seed, 0, INT64_MAX)},
    {{"batch", "N", "batch size of the random inputs; default 1"},
     SY_CLI_INT64(struct infer, batch, 1, 1 << 20)},
    {{"repeat", "N", "so many requests, one after the other; default 1"},
     SY_CLI_INT64(struct infer, times, 1, 1000000000)},
    {{"class", "N", "0, the most urgent, to 9; default: the model's, mostly 1"},
     SY_CLI_INT(struct infer, options.urgency_class, 0, 9)},
    {{"deadline-ms", "N", "refused at once if it would be late by prediction"},
     SY_CLI_REAL(struct infer, options.deadline_ms)},
    {{"tenant", "NAME", "whose request it is"}, SY_CLI_TEXT(struct infer, options.tenant)},
    {{"dim", "NAME=SIZE",
      "of the random inputs: an open size of the model, as a sequence's length; once for each, the "
      "others are the usual ones (switchyard models shows them)"},
     SY_CLI_SET(add_dim)},
    {{"version", "N", "of the model; default: as its version policy says, the highest"},
     SY_CLI_INT64(struct infer, options.version, 1, INT64_MAX)}};

static int add_word(void *command, const char *word)
{
    struct infer *infer = command;

    if (!infer->model) {
        infer->model = word;
        return SY_OK;
    }
    if (infer->n_words == SWITCHYARD_MAX_TENSORS)
        return sy_error_set(SY_EARG, "more than %d inputs", SWITCHYARD_MAX_TENSORS);
    infer->words[infer->n_words++] = word;
    return SY_OK;
}

int sy_cmd_infer(int argc, char **argv)
{
    static const struct sy_cli_fields command = {
        "infer MODEL [NAME=FILE.npy ...] [options]\n\nSends a request to a server and prints its "
        "times. Inputs are .npy files, or random.",
        fields, SY_ARRAY_LEN(fields), add_word};
    struct infer infer = {
        .batch = 1, .times = 1, .seed = 1, .options = {.urgency_class = SWITCHYARD_MODEL_CLASS}};
    int result = sy_cli_read(&command, argc, argv, &infer);

    if (result != SY_CLI_END)
        return result;
    if (!infer.model)
        return sy_cli_usage("infer which model? see switchyard infer --help");
    random_state = (uint64_t)infer.seed;
    infer.random |= infer.n_words == 0;
    if (sy_cli_connect(infer.address, 0, &infer.client))
        return 1;
    result = run(&infer);
    sy_client_close(infer.client);
    return result;
}
